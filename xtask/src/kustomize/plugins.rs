//! Makes up resources of the built-in plugin kinds, for `generators`, `transformers` and `validators`. They are in files, inline, or in a directory with a kustomization
//! of its own.

use super::objects::{Made, make_label, make_pairs};
use super::overlays::as_block;
use super::patches;
use super::random::Random;
use super::replacements::make_replacement;
use super::transformers::make_image;
use super::trees::Folder;
use super::writer::{Value, list, map};

const TRANSFORMERS: &[&str] = &[
    "PrefixTransformer",
    "SuffixTransformer",
    "PrefixSuffixTransformer",
    "LabelTransformer",
    "AnnotationsTransformer",
    "NamespaceTransformer",
    "NamespaceTransformer",
    "ImageTagTransformer",
    "ReplicaCountTransformer",
    "PatchTransformer",
    "PatchJson6902Transformer",
    "PatchStrategicMergeTransformer",
    "ReplacementTransformer",
    "ValueAddTransformer",
    "ValueAddTransformer",
    "HashTransformer",
];

/// Makes `generators`, `transformers` and `validators`.
pub(super) fn add_plugins(random: &mut Random, folder: &mut Folder, visible: &mut Vec<Made>, fields: &mut Value) {
    if random.chance(7) {
        let generator = make_generator(random, folder, visible);
        put_plugins(random, folder, "generators", vec![generator], fields);
    }
    if random.chance(18) {
        let count = random.between(1, 2);
        let all = (0..count)
            .map(|number| make_transformer(random, folder, visible, number))
            .collect();
        put_plugins(random, folder, "transformers", all, fields);
    }
    if random.chance(4) {
        let validator = make_validator(random);
        put_plugins(random, folder, "validators", vec![validator], fields);
    }
}

fn put_plugins(random: &mut Random, folder: &mut Folder, name: &str, all: Vec<Value>, fields: &mut Value) {
    let mut entries = Vec::new();
    if random.chance(20) {
        let texts: Vec<String> = all.iter().map(|one| folder.text(random, one)).collect();
        entries.push(folder.file(random, name, &texts.join("---\n")).into());
    } else {
        for one in &all {
            let text = folder.text(random, one);
            entries.push(match random.draw_below(10) {
                0..=3 => as_block(text),
                _ => folder.file(random, name, &text).into(),
            });
        }
    }
    fields.put(name, Value::List(entries));
}

fn start_config(kind: &str, name: &str) -> Value {
    map([
        ("apiVersion", "builtin".into()),
        ("kind", kind.into()),
        ("metadata", map([("name", name.into())])),
    ])
}

fn make_generator(random: &mut Random, folder: &mut Folder, visible: &mut Vec<Made>) -> Value {
    let kind = random.pick(&[
        "ConfigMapGenerator",
        "ConfigMapGenerator",
        "SecretGenerator",
        "IAMPolicyGenerator",
    ]);
    let name = format!("plugged-{}{}", visible.len(), folder.initials());
    let made_kind = match kind {
        "ConfigMapGenerator" => "ConfigMap",
        "SecretGenerator" => "Secret",
        _ => "ServiceAccount",
    };
    visible.push(Made {
        api: "v1".to_owned(),
        kind: made_kind.to_owned(),
        name: name.clone(),
        namespace: String::new(),
    });
    let mut generator = start_config(kind, &name);
    if kind == "IAMPolicyGenerator" {
        return generator
            .with("cloud", "gke")
            .with("kubernetesService", map([("name", name.into())]))
            .with(
                "serviceAccount",
                map([("name", "robot".into()), ("projectId", "project-1".into())]),
            );
    }
    if random.chance(70) {
        generator.put("literals", vec!["k1=v", "LEVEL=debug"]);
    }
    if random.chance(40) {
        generator.put("files", vec![folder.file(random, "plugged.txt", "some text\n")]);
    }
    if random.chance(30) {
        generator.put("envs", vec![folder.file(random, "plugged.env", "A=1\n# no\nB=two\n")]);
    }
    if random.chance(30) {
        generator.put("behavior", "create");
    }
    if random.chance(40) {
        let mut options = map([("labels", make_pairs(random, 2))]);
        if random.chance(50) {
            options.put("disableNameSuffixHash", true);
        }
        if random.chance(30) {
            options.put("immutable", true);
        }
        generator.put("options", options);
    }
    generator
}

fn make_specs(random: &mut Random, choices: &[(&str, &str)]) -> Value {
    let (path, kind) = random.pick(choices);
    let mut spec = map([("path", path.into())]);
    if !kind.is_empty() {
        spec.put("kind", kind);
    }
    if random.chance(70) {
        spec.put("create", true);
    }
    list([spec])
}

/// Makes a resource of a built-in transformer's kind.
fn make_transformer(random: &mut Random, folder: &mut Folder, visible: &[Made], number: usize) -> Value {
    let kind = random.pick(TRANSFORMERS);
    let config = start_config(kind, &format!("plugin-{number}"));
    let names: &[(&str, &str)] = &[
        ("metadata/name", ""),
        ("metadata/name", "ConfigMap"),
        ("spec/target/name", "Widget"),
        ("metadata/labels/app", ""),
    ];
    match kind {
        "PrefixTransformer" => config
            .with("prefix", "t-")
            .with("fieldSpecs", make_specs(random, names)),
        "SuffixTransformer" => config
            .with("suffix", "-t")
            .with("fieldSpecs", make_specs(random, names)),
        "PrefixSuffixTransformer" => {
            let mut config = config.with("fieldSpecs", make_specs(random, names));
            if random.chance(80) {
                config.put("prefix", "both-");
            }
            if random.chance(80) {
                config.put("suffix", "-both");
            }
            config
        }
        "LabelTransformer" => {
            let places = [
                ("metadata/labels", ""),
                ("spec/template/metadata/labels", "Deployment"),
                ("spec/selector/matchLabels", ""),
                ("spec/nested/labels", "Widget"),
                ("spec/volumeClaimTemplates[]/metadata/labels", "StatefulSet"),
            ];
            config
                .with("labels", make_pairs(random, 2))
                .with("fieldSpecs", make_specs(random, &places))
        }
        "AnnotationsTransformer" => {
            let places = [("metadata/annotations", ""), ("spec/template/metadata/annotations", "")];
            config
                .with("annotations", make_pairs(random, 2))
                .with("fieldSpecs", make_specs(random, &places))
        }
        "NamespaceTransformer" => make_namespace(random),
        "ImageTagTransformer" => {
            let config = config.with("imageTag", make_image(random));
            if random.chance(50) {
                let places = [("spec/image", "Widget"), ("spec/template/spec/containers[]/image", "")];
                config.with("fieldSpecs", make_specs(random, &places))
            } else {
                config
            }
        }
        "HashTransformer" => config,
        "ValueAddTransformer" => value_add(random, folder, visible, config),
        _ if visible.is_empty() => config,
        "ReplicaCountTransformer" => {
            let places = [
                ("spec/replicas", "Deployment"),
                ("spec/replicas", ""),
                ("spec/size", "Widget"),
            ];
            let (path, kind) = random.pick(&places);
            // Nearly always an object that the field spec matches; a missing object of that name is an error.
            let fit: Vec<Made> = visible
                .iter()
                .filter(|made| made.kind == kind || kind.is_empty())
                .cloned()
                .collect();
            let from = if random.chance(8) { visible } else { &fit };
            if from.is_empty() {
                return start_config("HashTransformer", &format!("plugin-{number}"));
            }
            let replica = map([
                ("name", random.pick(from).name.into()),
                ("count", random.draw_below(6).into()),
            ]);
            config
                .with("replica", replica)
                .with("fieldSpecs", make_specs(random, &[(path, kind)]))
        }
        "ReplacementTransformer" => {
            let mut all = Vec::new();
            for _ in 0..random.between(1, 2) {
                all.push(make_replacement(random, visible));
            }
            config.with("replacements", Value::List(all))
        }
        _ => make_patch(random, folder, visible, kind, config),
    }
}

fn make_namespace(random: &mut Random) -> Value {
    let mut config = map([
        ("apiVersion", "builtin".into()),
        ("kind", "NamespaceTransformer".into()),
        (
            "metadata",
            map([
                ("name", "spaced".into()),
                ("namespace", random.pick(&["elsewhere", "prod"]).into()),
            ]),
        ),
    ]);
    if random.chance(50) {
        config.put("unsetOnly", random.chance(60));
    }
    if random.chance(60) {
        config.put(
            "setRoleBindingSubjects",
            random.pick(&["defaultOnly", "allServiceAccounts", "none"]),
        );
    }
    if random.chance(70) {
        let places = [
            ("metadata/namespace", ""),
            ("metadata/name", "Namespace"),
            ("subjects/namespace", "RoleBinding"),
            ("webhooks/clientConfig/service/namespace", ""),
            ("spec/target/namespace", "Widget"),
        ];
        config.put("fieldSpecs", make_specs(random, &places));
    }
    config
}

fn make_patch(random: &mut Random, folder: &mut Folder, visible: &[Made], kind: &str, mut config: Value) -> Value {
    let made = random.pick(visible);
    match kind {
        "PatchTransformer" => {
            let json = random.chance(40);
            let content = if json {
                patches::json_operations(random, &made)
            } else if random.chance(40) {
                patches::make_merge_patch(random, &made, visible)
            } else {
                make_annotation_patch(random, &made)
            };
            let text = folder.patch(random, &content);
            if random.chance(50) {
                config.put("patch", as_block(text));
            } else {
                config.put("path", folder.file(random, "patch", &text));
            }
            if json || random.chance(40) {
                config.put("target", patches::make_target(random, &made));
            }
            if random.chance(10) {
                let option = random.pick(&["allowNameChange", "allowKindChange"]);
                config.put("options", map([(option, true.into())]));
            }
        }
        "PatchJson6902Transformer" => {
            let content = patches::json_operations(random, &made);
            let text = folder.patch(random, &content);
            let mut target = map([("kind", made.kind.as_str().into()), ("name", made.name.as_str().into())]);
            if !made.group().is_empty() {
                target.put("group", made.group());
            }
            target.put("version", made.version());
            config.put("target", target);
            if random.chance(50) {
                config.put("jsonOp", as_block(text));
            } else {
                config.put("path", folder.file(random, "json", &text));
            }
        }
        _ => {
            let content = make_annotation_patch(random, &made);
            let text = folder.patch(random, &content);
            if random.chance(50) {
                config.put("patches", as_block(text));
            } else {
                config.put("paths", vec![folder.file(random, "merge", &text)]);
            }
        }
    }
    config
}

/// Makes a small patch that always fits.
fn make_annotation_patch(random: &mut Random, made: &Made) -> Value {
    let mut metadata = map([
        ("name", made.name.as_str().into()),
        ("annotations", map([("patched", make_label(random))])),
    ]);
    if !made.namespace.is_empty() {
        metadata.put("namespace", made.namespace.as_str());
    }
    map([
        ("apiVersion", made.api.as_str().into()),
        ("kind", made.kind.as_str().into()),
        ("metadata", metadata),
    ])
}

fn value_add(random: &mut Random, folder: &mut Folder, visible: &[Made], mut config: Value) -> Value {
    if random.chance(75) {
        config.put("value", random.pick(&["project-1", "a/b", "true", "12"]));
    }
    let mut targets = Vec::new();
    for _ in 0..random.between(1, 2) {
        let field = random.pick(&[
            "metadata/namespace",
            "metadata/annotations/project",
            "metadata/labels/project",
            "spec/path",
            "spec/target/name",
            "metadata/annotations/a\\/b",
        ]);
        let mut target = map([("fieldPath", field.into())]);
        if !visible.is_empty() && random.chance(50) {
            target.put("selector", patches::make_target(random, &random.clone().pick(visible)));
        }
        if random.chance(40) {
            target.put("filePathPosition", random.draw_below(4));
        }
        targets.push(target);
    }
    if random.chance(20) {
        let text = folder.text(random, &map([("targets", Value::List(targets))]));
        config.put("targetFilePath", folder.file(random, "targets", &text));
    } else {
        config.put("targets", Value::List(targets));
    }
    config
}

/// Makes a transformer that validators may run: most leave the resources unchanged.
fn make_validator(random: &mut Random) -> Value {
    match random.draw_below(9) {
        0 => start_config("LabelTransformer", "validator")
            .with("labels", map([("validated-by", "me".into())]))
            .with(
                "fieldSpecs",
                list([map([("path", "metadata/labels".into()), ("create", true.into())])]),
            ),
        1 => start_config("AnnotationsTransformer", "validator"),
        2 => start_config("LabelTransformer", "validator")
            .with("labels", map([("changed", "yes".into())]))
            .with("fieldSpecs", list([map([("path", "spec/nowhere".into())])])),
        3 => start_config("ImageTagTransformer", "validator").with("imageTag", map([("name", "nobody/uses".into())])),
        _ => start_config("ReplacementTransformer", "validator").with("replacements", Value::List(Vec::new())),
    }
}
