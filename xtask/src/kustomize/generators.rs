//! Makes up generators of ConfigMaps and Secrets with arguments and options, and the files that they read.

use super::objects::{Made, make_pairs};
use super::random::Random;
use super::scalars;
use super::trees::Folder;
use super::writer::{Value, map};

/// Makes `configMapGenerator`, `secretGenerator` and `generatorOptions`.
pub(super) fn add_generators(random: &mut Random, folder: &mut Folder, visible: &mut Vec<Made>, fields: &mut Value) {
    for (field, kind, chance) in [
        ("configMapGenerator", "ConfigMap", 28),
        ("secretGenerator", "Secret", 15),
    ] {
        if !random.chance(chance) {
            continue;
        }
        let mut all = Vec::new();
        for _ in 0..random.between(1, 2) {
            all.push(make_generator(random, folder, visible, kind));
        }
        fields.put(field, Value::List(all));
    }
    if random.chance(10) {
        fields.put("generatorOptions", generator_options(random));
    }
}

fn generator_options(random: &mut Random) -> Value {
    let mut options = map([]);
    if random.chance(50) {
        options.put("disableNameSuffixHash", random.chance(70));
    }
    if random.chance(40) {
        options.put("labels", make_pairs(random, 2));
    }
    if random.chance(40) {
        options.put("annotations", make_pairs(random, 2));
    }
    if random.chance(20) {
        options.put("immutable", true);
    }
    options
}

fn make_generator(random: &mut Random, folder: &mut Folder, visible: &mut Vec<Made>, kind: &str) -> Value {
    let existing: Vec<Made> = visible.iter().filter(|made| made.kind == kind).cloned().collect();
    let replaces = !existing.is_empty() && random.chance(30);
    let made = if replaces {
        random.pick(&existing)
    } else {
        Made {
            api: "v1".to_owned(),
            kind: kind.to_owned(),
            name: format!(
                "{}-{}{}",
                random.pick(&["settings", "env", "files"]),
                visible.len(),
                folder.initials()
            ),
            namespace: if random.chance(15) {
                "prod".to_owned()
            } else {
                String::new()
            },
        }
    };
    let mut arguments = map([("name", made.name.as_str().into())]);
    if !made.namespace.is_empty() {
        arguments.put("namespace", made.namespace.as_str());
    }
    if replaces {
        arguments.put(
            "behavior",
            random.pick(&["merge", "replace", "merge", "merge", "replace"]),
        );
    } else {
        if random.chance(10) {
            arguments.put("behavior", "create");
        }
        visible.push(made);
    }
    if random.chance(70) {
        arguments.put("literals", make_literals(random));
    }
    if random.chance(30) {
        let mut files: Vec<String> = Vec::new();
        for _ in 0..random.between(1, 2) {
            let content = map([("key", scalars::make_odd(random))]);
            let mut text = folder.text(random, &content);
            if random.chance(10) {
                text = random
                    .pick(&[
                        "",
                        "no newline",
                        "windows\r\nlines\r\n",
                        "\u{feff}bom",
                        "tab\there\n",
                        " \n",
                        "trailing  \nspace\n",
                    ])
                    .to_owned();
            }
            let stem = random.pick(&["app.properties", "config.json", "plain"]);
            let name = folder.file(random, stem, &text);
            files.push(if random.chance(40) {
                let keys: &[&str] = if files.is_empty() || random.chance(10) {
                    &["file", "renamed.yaml"]
                } else {
                    &["second", "second.json"]
                };
                format!("{}={name}", random.pick(keys))
            } else {
                name
            });
        }
        arguments.put("files", files);
    }
    if random.chance(20) {
        let lines = random.some(
            &[
                "A=1",
                "B=two words",
                "# comment",
                "",
                "C=\"quoted\"",
                "D='single'",
                "E=a=b",
                "  F=indented",
                "G= spaced ",
                "H=",
                "I=#no",
            ],
            50,
        );
        let name = folder.file(random, "values.env", &(lines.join("\n") + "\n"));
        if random.chance(10) {
            // The older field, which takes one file.
            arguments.put("env", name);
        } else {
            arguments.put("envs", vec![name]);
        }
    }
    if kind == "Secret" && random.chance(40) {
        arguments.put("type", random.pick(&["Opaque", "kubernetes.io/tls", "example.com/odd"]));
    }
    if random.chance(20) {
        arguments.put("options", generator_options(random));
    }
    arguments
}

fn make_literals(random: &mut Random) -> Value {
    let mut all = Vec::new();
    for key in random.some(&["k1", "k2", "LEVEL", "a.b", "c-d"], 45) {
        let value = random.pick(&[
            "v",
            "1",
            "true",
            "a=b",
            "two words",
            "\"q\"",
            "'q'",
            "",
            "multi\\nline",
            "caf\u{e9}",
            "0644",
            "x: y",
            "#",
            " lead",
        ]);
        all.push(format!("{key}={value}"));
    }
    all.into()
}
