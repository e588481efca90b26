//! Makes up kustomizations and components over the objects that they see: every field except the patches.

use super::generators::add_generators;
use super::objects::{Made, make_pairs};
use super::patches;
use super::plugins::add_plugins;
use super::random::Random;
use super::replacements;
use super::schemas;
use super::transformers::{make_configuration, make_image};
use super::trees::Folder;
use super::writer::{Value, list, map};

/// Makes the fields of a Kustomization.
pub(super) fn make_kustomization(
    random: &mut Random,
    folder: &mut Folder,
    resources: Vec<String>,
    components: &[String],
    visible: &mut Vec<Made>,
    is_top: bool,
) -> Value {
    let mut fields: Vec<(String, Value)> = Vec::new();
    if random.chance(50) {
        fields.push(("apiVersion".to_owned(), "kustomize.config.k8s.io/v1beta1".into()));
        fields.push(("kind".to_owned(), "Kustomization".into()));
    }
    if !resources.is_empty() {
        let bases: Vec<String> = resources
            .iter()
            .filter(|path| path.starts_with("../"))
            .cloned()
            .collect();
        if !bases.is_empty() && random.chance(6) {
            let files: Vec<String> = resources.into_iter().filter(|path| !path.starts_with("../")).collect();
            fields.push(("resources".to_owned(), files.into()));
            fields.push(("bases".to_owned(), bases.into()));
        } else {
            fields.push(("resources".to_owned(), resources.into()));
        }
    }
    if !components.is_empty() {
        let paths: Vec<String> = components.iter().map(|path| format!("../{path}")).collect();
        fields.push(("components".to_owned(), paths.into()));
    }
    let mut rest = Value::Map(Vec::new());
    add_generators(random, folder, visible, &mut rest);
    add_transformers(random, folder, visible, &mut rest);
    add_plugins(random, folder, visible, &mut rest);
    if is_top {
        if random.chance(8) {
            rest.put("sortOptions", sort_options(random));
        }
        if random.chance(12) {
            let names = ["originAnnotations", "transformerAnnotations", "managedByLabel"];
            let options = random.some(&names, 50);
            rest.put("buildMetadata", options);
        }
    }
    if let Value::Map(rest) = rest {
        fields.extend(rest);
    }
    Value::Map(fields)
}

/// Makes the fields of a Component.
pub(super) fn make_component(
    random: &mut Random,
    folder: &mut Folder,
    resources: Vec<String>,
    components: &[String],
    visible: &mut Vec<Made>,
) -> Value {
    let mut fields = map([
        ("apiVersion", "kustomize.config.k8s.io/v1alpha1".into()),
        ("kind", "Component".into()),
    ]);
    if !resources.is_empty() {
        fields.put("resources", resources);
    }
    if !components.is_empty() {
        let paths: Vec<String> = components.iter().map(|path| format!("../{path}")).collect();
        fields.put("components", paths);
    }
    add_generators(random, folder, visible, &mut fields);
    add_transformers(random, folder, visible, &mut fields);
    add_plugins(random, folder, visible, &mut fields);
    fields
}

fn sort_options(random: &mut Random) -> Value {
    let mut options = map([("order", random.pick(&["legacy", "fifo", "legacy"]).into())]);
    if random.chance(40)
        && matches!(&options, Value::Map(entries) if entries.iter().any(|(_, value)| matches!(value, Value::Text(text) if text == "legacy")))
    {
        options.put(
            "legacySortOptions",
            map([
                ("orderFirst", vec!["Namespace", "ConfigMap"].into()),
                ("orderLast", vec!["Deployment"].into()),
            ]),
        );
    }
    options
}

fn add_transformers(random: &mut Random, folder: &mut Folder, visible: &[Made], fields: &mut Value) {
    names_and_labels(random, fields);
    if random.chance(20) {
        let mut all = Vec::new();
        for _ in 0..random.between(1, 2) {
            all.push(make_image(random));
        }
        let name = if random.chance(4) { "imageTags" } else { "images" };
        fields.put(name, Value::List(all));
    }
    let scaled: Vec<Made> = visible
        .iter()
        .filter(|made| ["Deployment", "StatefulSet", "ReplicaSet"].contains(&made.kind.as_str()))
        .cloned()
        .collect();
    if !scaled.is_empty() && random.chance(15) {
        let all = (0..random.between(1, 2))
            .map(|_| {
                let made = random.pick(&scaled);
                map([("name", made.name.into()), ("count", random.draw_below(6).into())])
            })
            .collect();
        fields.put("replicas", Value::List(all));
    }
    if random.chance(45) {
        let count = random.between(1, 3);
        let all: Vec<Value> = (0..count)
            .filter_map(|_| patches::make_patch(random, folder, visible))
            .collect();
        put_some(fields, "patches", all);
    }
    if random.chance(8) {
        let all = patches::legacy_merge(random, folder, visible).into_iter().collect();
        put_some(fields, "patchesStrategicMerge", all);
    }
    if random.chance(8) {
        let all = patches::legacy_json(random, folder, visible).into_iter().collect();
        put_some(fields, "patchesJson6902", all);
    }
    if !visible.is_empty() && random.chance(20) {
        let count = random.between(1, 2);
        let mut all: Vec<Value> = (0..count)
            .map(|_| replacements::make_replacement(random, visible))
            .collect();
        if random.chance(20) {
            all.pop();
            let content = replacements::make_replacement_file(random, visible);
            let text = folder.text(random, &content);
            all.push(map([("path", folder.file(random, "replacement", &text).into())]));
        }
        fields.put("replacements", Value::List(all));
    }
    if !visible.is_empty() && random.chance(8) {
        fields.put("vars", make_variables(random, visible, folder));
    }
    if random.chance(8) {
        let content = make_configuration(random);
        let text = folder.text(random, &content);
        fields.put("configurations", vec![folder.file(random, "configuration", &text)]);
    }
    if random.chance(4) {
        let openapi = schemas::make_openapi(random, folder);
        fields.put("openapi", openapi);
    }
    if random.chance(5) {
        let crds = schemas::make_crds(random, folder);
        fields.put("crds", crds);
    }
}

/// Returns a text of several lines as a block scalar, which every writer keeps.
pub(super) fn as_block(text: String) -> Value {
    if text.contains('\n') {
        Value::Block("|-".to_owned(), text.lines().map(str::to_owned).collect())
    } else {
        text.into()
    }
}

fn put_some(fields: &mut Value, name: &str, all: Vec<Value>) {
    if !all.is_empty() {
        fields.put(name, Value::List(all));
    }
}

fn names_and_labels(random: &mut Random, fields: &mut Value) {
    if random.chance(25) {
        fields.put("namespace", random.pick(&["prod", "staging", "default", "team-a"]));
    }
    if random.chance(25) {
        fields.put("namePrefix", random.pick(&["pre-", "a-", "x"]));
    }
    if random.chance(15) {
        fields.put("nameSuffix", random.pick(&["-v1", "-b", "1"]));
    }
    if random.chance(12) {
        fields.put("commonLabels", make_pairs(random, 2));
    }
    if random.chance(20) {
        let all = (0..random.pick(&[1_usize, 1, 1, 2]))
            .map(|_| make_labels(random))
            .collect();
        fields.put("labels", Value::List(all));
    }
    if random.chance(15) {
        fields.put("commonAnnotations", make_pairs(random, 2));
    }
}

/// Makes an element of `make_labels`.
fn make_labels(random: &mut Random) -> Value {
    let mut entry = map([("pairs", make_pairs(random, 2))]);
    if random.chance(40) {
        entry.put("includeSelectors", random.chance(70));
    }
    if random.chance(40) {
        entry.put("includeTemplates", random.chance(70));
    }
    if random.chance(20) {
        let (path, kind) = random.pick(&[
            ("spec/nested/labels", "Widget"),
            ("spec/template/metadata/labels", "Rollout"),
            ("spec/selector", "Service"),
            ("spec/list/labels", "Widget"),
        ]);
        let spec = map([
            ("path", path.into()),
            ("kind", kind.into()),
            ("create", random.chance(50).into()),
        ]);
        entry.put("fields", list([spec]));
    }
    entry
}

fn make_variables(random: &mut Random, visible: &[Made], folder: &Folder) -> Value {
    let mut all = Vec::new();
    for name in random.some(&["NAME", "VAR", "SERVICE_NAME", "TAG"], 50) {
        let made = random.pick(visible);
        let mut reference = map([
            ("apiVersion", made.api.as_str().into()),
            ("kind", made.kind.as_str().into()),
            ("name", made.name.as_str().into()),
        ]);
        if !made.namespace.is_empty() {
            reference.put("namespace", made.namespace.as_str());
        }
        let unique = format!(
            "{name}{}",
            if random.chance(50) {
                ""
            } else {
                folder.path.get(4..).unwrap_or("")
            }
        );
        let mut variable = map([("name", unique.to_uppercase().into()), ("objref", reference)]);
        if random.chance(20) {
            variable.put(
                "fieldref",
                map([(
                    "fieldpath",
                    random
                        .pick(&[
                            "metadata.name",
                            "metadata.namespace",
                            "metadata.labels.app",
                            "spec.replicas",
                        ])
                        .into(),
                )]),
            );
        }
        all.push(variable);
    }
    Value::List(all)
}
