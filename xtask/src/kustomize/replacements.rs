//! Makes up replacements: paths to read values from and to write them to, and options. Most of them fit the object.

use super::objects::Made;
use super::random::Random;
use super::writer::{Value, list, map};

/// The paths that values are read from and written to.
const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.labels.app",
    "metadata.labels",
    "metadata.annotations.[example.com/owner]",
    "metadata.annotations.team",
    "metadata.annotations.example\\.com/owner",
    "spec.replicas",
    "spec.template.spec.containers.0.image",
    "spec.template.spec.containers.1.image",
    "spec.template.spec.containers.[name=app].image",
    "spec.template.spec.containers.[name=a.*].image",
    "spec.template.spec.containers.*.image",
    "spec.template.spec.containers.[name=app].env.[name=LEVEL].value",
    "spec.template.spec.containers.[name=app].env.0.value",
    "spec.template.spec.containers.*.env.*.value",
    "spec.template.spec.containers.[name=app].args.[=--level]",
    "spec.template.spec.containers.0",
    "spec.template.metadata.labels.app",
    "spec.template.metadata.labels",
    "spec.ports.0.port",
    "spec.ports.[name=http].port",
    "spec.dnsNames.0",
    "spec.dnsNames.*",
    "spec.size",
    "spec.list.[name=one].value",
    "spec.list.*.value",
    "spec.nested.size",
    "spec.items",
    "spec.items.0",
    "spec.target.name",
    "spec.embedded.spec.template.spec.containers.[name=app].image",
    "data.k1",
    "data.config\\.yaml",
    "data.config\\.json.a.b",
    "data.config\\.json.a.new",
    "data.config\\.json.list.[name=one].value",
    "data.config\\.json.list.0",
    "webhooks.*.clientConfig.service.namespace",
    "webhooks.0.clientConfig.service.name",
    "subjects.0.name",
    "spec.rules.0.host",
    "spec.rules.*.http.paths.*.path",
];

fn fields_of(random: &mut Random, made: &Made, source: bool) -> String {
    let fit: Vec<&str> = FIELDS
        .iter()
        .copied()
        .filter(|field| match made.kind.as_str() {
            "ConfigMap" | "Secret" => field.starts_with("data") || field.starts_with("metadata.name"),
            "Service" => field.starts_with("spec.ports") || *field == "metadata.name",
            "Ingress" => field.starts_with("spec.rules"),
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => field.starts_with("webhooks"),
            "RoleBinding" | "ClusterRoleBinding" => field.starts_with("subjects"),
            "Certificate" => field.starts_with("spec.dnsNames"),
            "Widget" | "Gadget" => {
                *field == "metadata.name"
                    || [
                        "spec.size",
                        "spec.list",
                        "spec.nested",
                        "spec.items",
                        "spec.target",
                        "spec.embedded",
                    ]
                    .iter()
                    .any(|start| field.starts_with(start))
            }
            _ if made.is_workload() => {
                field.starts_with("spec.template") || field.starts_with("metadata") || *field == "spec.replicas"
            }
            _ => field.starts_with("metadata"),
        })
        .filter(|field| !source || !(field.contains('*') || field.contains("[=")))
        // A number in place of a name is an error. Creating a list at a missing field is an error, too.
        .filter(|field| {
            let is_number = field.ends_with("port") || field.ends_with("replicas");
            let is_risky = is_number || field.contains('*') || field.starts_with("data.config");
            !is_risky || random.chance(if source { 100 } else { 25 })
        })
        .collect();
    if source && random.chance(97) || fit.is_empty() {
        return "metadata.name".to_owned();
    }
    random.pick(&fit).to_owned()
}

/// Makes one element of `replacements`.
pub(super) fn make_replacement(random: &mut Random, visible: &[Made]) -> Value {
    let from = random.pick(visible);
    let mut replacement = map([]);
    if random.chance(15) {
        replacement.put(
            "sourceValue",
            random.pick(&["given", "8080", "true", "a-b-c", "x:y", ""]),
        );
    } else {
        let mut source = map([("kind", from.kind.as_str().into()), ("name", from.name.as_str().into())]);
        if random.chance(15) {
            source.put("version", from.version());
        }
        if random.chance(15) && !from.group().is_empty() {
            source.put("group", from.group());
        }
        if !from.namespace.is_empty() && random.chance(30) {
            source.put("namespace", from.namespace.as_str());
        }
        if random.chance(80) {
            source.put("fieldPath", fields_of(random, &from, true));
        }
        if random.chance(20) {
            source.put("options", make_options(random, false, true));
        }
        replacement.put("source", source);
    }
    let mut targets = Vec::new();
    for _ in 0..random.between(1, 2) {
        targets.push(make_target(random, visible));
    }
    replacement.with("targets", Value::List(targets))
}

fn make_target(random: &mut Random, visible: &[Made]) -> Value {
    let to = random.pick(visible);
    let mut select = map([("kind", to.kind.as_str().into())]);
    if random.chance(75) {
        select.put("name", to.name.as_str());
    }
    if random.chance(10) {
        select.put("version", to.version());
    }
    if random.chance(8) {
        select.put("namespace", random.pick(&["prod", "default", "team-a", "staging"]));
    }
    if random.chance(6) {
        select.put(
            random.pick(&["labelSelector", "annotationSelector"]),
            random.pick(&["app", "app=web", "!team", "tier in (web)", "k1!=v1"]),
        );
    }
    let mut paths = vec![fields_of(random, &to, false)];
    if random.chance(20) {
        paths.push(fields_of(random, &to, false));
    }
    let mut target = map([("select", select)]);
    if random.chance(95) {
        target.put("fieldPaths", paths.clone());
    }
    if random.chance(20) {
        let mut rejected = Vec::new();
        for _ in 0..random.between(1, 2) {
            let made = random.pick(visible);
            rejected.push(match random.draw_below(4) {
                0 => map([("kind", made.kind.into()), ("name", made.name.into())]),
                1 => map([(
                    "labelSelector",
                    random.pick(&["app=web", "tier", "k1 notin (1)"]).into(),
                )]),
                2 => map([("namespace", random.pick(&["prod", "default", "p.*"]).into())]),
                _ => map([("name", made.name.into())]),
            });
        }
        target.put("reject", Value::List(rejected));
    }
    if random.chance(97) {
        let is_collection = |path: &String| path.ends_with("labels") || path.ends_with(".0") || path.ends_with("items");
        let delimits = !paths.iter().any(is_collection) || random.chance(10);
        target.put("options", make_options(random, true, delimits));
    }
    target
}

fn make_options(random: &mut Random, target: bool, delimits: bool) -> Value {
    let mut options = map([]);
    if delimits && random.chance(25) {
        options.put("delimiter", random.pick(&["-", ":", ".", "/", "e"]));
        if random.chance(60) {
            let index: &[&str] = if target {
                &["0", "0", "0", "0", "5", "-1", "1", "0"]
            } else {
                &["0", "0", "0", "0", "0", "0", "0", "0", "0", "0", "1", "-1"]
            };
            options.put("index", Value::Raw(random.pick(index).to_owned()));
        }
    }
    if target && random.chance(95) {
        options.put("create", true);
    }
    if random.chance(5) {
        options.put("encoding", random.pick(&["base64", "hex", "none"]));
    }
    options
}

/// Makes an element of `replacements` in a file: one, or a list of them.
pub(super) fn make_replacement_file(random: &mut Random, visible: &[Made]) -> Value {
    let content = make_replacement(random, visible);
    if random.chance(50) {
        list([content, make_replacement(random, visible)])
    } else {
        content
    }
}
