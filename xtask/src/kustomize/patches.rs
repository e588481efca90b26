//! Makes up patches of objects: strategic merge with directives, JSON 6902, inline and in files, with targets. Patches fit their object or not, by chance.

use super::objects::{IMAGES, Made, make_label, make_pairs, name_of};
use super::random::Random;
use super::scalars;
use super::trees::Folder;
use super::writer::{Value, list, map};

/// Makes one element of `patches`, and puts its files into the folder.
pub(super) fn make_patch(random: &mut Random, folder: &mut Folder, known: &[Made]) -> Option<Value> {
    if known.is_empty() {
        return None;
    }
    let made = random.pick(known);
    let mut entry = map([]);
    let json = random.chance(35);
    let several = !json && random.chance(8);
    let content = if json {
        json_operations(random, &made)
    } else {
        make_merge_patch(random, &made, known)
    };
    if random.chance(50) && !several {
        let text = folder.patch(random, &content);
        entry.put(
            "patch",
            Value::Block("|-".to_owned(), text.lines().map(str::to_owned).collect()),
        );
    } else {
        let mut text = folder.patch(random, &content);
        if several {
            let other = random.pick(known);
            let second = make_merge_patch(random, &other, known);
            text = format!("{text}---\n{}", folder.patch(random, &second));
        }
        entry.put("path", folder.file(random, "patch", &text));
    }
    if json && random.chance(80) {
        // Only the object for which the operations were made.
        entry.put(
            "target",
            map([("kind", made.kind.as_str().into()), ("name", made.name.as_str().into())]),
        );
    } else if json || (random.chance(40) && !several) {
        entry.put("target", make_target(random, &made));
    }
    if random.chance(5) {
        let names = ["allowNameChange", "allowKindChange"];
        let options = random.some(&names, 60).into_iter().map(|option| (option, true.into()));
        entry.put(
            "options",
            Value::Map(options.map(|(name, value)| (name.to_owned(), value)).collect()),
        );
    }
    Some(entry)
}

/// Makes an element of `patchesStrategicMerge`.
pub(super) fn legacy_merge(random: &mut Random, folder: &mut Folder, known: &[Made]) -> Option<Value> {
    if known.is_empty() {
        return None;
    }
    let made = random.pick(known);
    let content = make_merge_patch(random, &made, known);
    let text = folder.patch(random, &content);
    if random.chance(40) {
        return Some(Value::Block("|-".to_owned(), text.lines().map(str::to_owned).collect()));
    }
    Some(folder.file(random, "merge", &text).into())
}

/// Makes an element of `patchesJson6902`.
pub(super) fn legacy_json(random: &mut Random, folder: &mut Folder, known: &[Made]) -> Option<Value> {
    if known.is_empty() {
        return None;
    }
    let made = random.pick(known);
    let mut target = map([
        ("version", made.version().into()),
        ("kind", made.kind.as_str().into()),
        ("name", made.name.as_str().into()),
    ]);
    if !made.group().is_empty() {
        target.put("group", made.group());
    }
    if !made.namespace.is_empty() {
        target.put("namespace", made.namespace.as_str());
    }
    let content = json_operations(random, &made);
    let text = folder.patch(random, &content);
    let entry = map([("target", target)]);
    Some(if random.chance(50) {
        entry.with(
            "patch",
            Value::Block("|-".to_owned(), text.lines().map(str::to_owned).collect()),
        )
    } else {
        let path = folder.file(random, "json", &text);
        entry.with("path", path)
    })
}

/// Makes a target that selects the object and maybe others.
pub(super) fn make_target(random: &mut Random, made: &Made) -> Value {
    let mut target = map([]);
    match random.draw_below(9) {
        8 => {
            target.put("group", random.pick(&["apps", "apps|batch", "", "[a-z.]*example.com"]));
            target.put("version", random.pick(&["v1", "v1.*", "v\\d+"]));
        }
        0 => target.put("kind", made.kind.as_str()),
        1 => target.put("name", made.name.as_str()),
        2 => {
            target.put(
                "kind",
                random.pick(&["Deployment|StatefulSet", "(Config|Secret).*", ".*", "D.*t"]),
            );
            if random.chance(50) {
                target.put("name", random.pick(&["w.*", ".*b", "web|api", ".*-2", "^web$"]));
            }
        }
        3 => {
            target.put("group", made.group());
            target.put("version", made.version());
            target.put("kind", made.kind.as_str());
            target.put("name", made.name.as_str());
        }
        4 => target.put(
            "labelSelector",
            random.pick(&[
                "app=web",
                "app",
                "!app",
                "tier in (web, backend)",
                "app!=web",
                "k1=1,k2",
                "app notin (x)",
                "app.kubernetes.io/name",
                "k1 > 0",
                "app == web , tier",
            ]),
        ),
        5 => target.put("annotationSelector", random.pick(&["team=v1", "k1", "!k2"])),
        _ => {
            target.put("kind", made.kind.as_str());
            target.put("name", made.name.as_str());
        }
    }
    if random.chance(8) {
        target.put("namespace", random.pick(&["prod", "default", "", "p.*"]));
    }
    target
}

/// Makes a strategic merge patch of an object.
pub(super) fn make_merge_patch(random: &mut Random, made: &Made, known: &[Made]) -> Value {
    let mut metadata = map([("name", made.name.as_str().into())]);
    if !made.namespace.is_empty() && random.chance(96) {
        metadata.put("namespace", made.namespace.as_str());
    }
    if random.chance(30) {
        metadata.put("labels", make_changes(random));
    }
    if random.chance(30) {
        metadata.put("annotations", make_changes(random));
    }
    let mut patch = map([
        ("apiVersion", made.api.as_str().into()),
        ("kind", made.kind.as_str().into()),
        ("metadata", metadata),
    ]);
    if random.chance(5) {
        patch.put("$patch", random.pick(&["delete", "delete", "replace", "merge"]));
        return patch;
    }
    match made.kind.as_str() {
        "ConfigMap" | "Secret" | "StorageClass" => {
            let mut data = make_changes(random);
            if random.chance(10) {
                data.put("$patch", random.pick(&["replace", "delete", "merge"]));
            }
            let field = if made.kind == "StorageClass" {
                "parameters"
            } else {
                "data"
            };
            patch.put(
                field,
                if random.chance(5) {
                    Value::Raw("null".to_owned())
                } else {
                    data
                },
            );
        }
        "Service" => patch.put("spec", make_service(random)),
        "CronJob" => {
            let job = map([("template", map([("spec", make_pod(random, known))]))]);
            patch.put(
                "spec",
                map([("suspend", true.into()), ("jobTemplate", map([("spec", job)]))]),
            );
        }
        "Pod" => patch.put("spec", make_pod(random, known)),
        _ if made.is_workload() || made.kind == "Rollout" => {
            let mut spec = map([]);
            if random.chance(40) {
                spec.put(
                    "replicas",
                    Value::Raw(random.pick(&["3", "0", "null", "1e1"]).to_owned()),
                );
            }
            if random.chance(10) {
                spec.put(
                    "strategy",
                    random.pick(&[
                        map([("$retainKeys", vec!["type"].into()), ("type", "Recreate".into())]),
                        map([("type", "Recreate".into())]),
                        map([("rollingUpdate", Value::Raw("null".to_owned()))]),
                    ]),
                );
            }
            if random.chance(80) {
                spec.put("template", map([("spec", make_pod(random, known))]));
            }
            patch.put("spec", spec);
        }
        "ServiceAccount" => patch.put(
            "imagePullSecrets",
            list([map([("name", name_of(random, "Secret", known).into())])]),
        ),
        "Role" | "ClusterRole" => patch.put("rules", list([map([("verbs", vec!["watch"].into())])])),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            let hook = map([("name", "two.example.com".into()), ("failurePolicy", "Ignore".into())]);
            patch.put(
                "webhooks",
                list([if random.chance(30) {
                    hook.with("$patch", "delete")
                } else {
                    hook
                }]),
            );
        }
        "Ingress" => {
            let rule = map([("host", random.pick(&["example.com", "other.example.com"]).into())]);
            patch.put("spec", map([("rules", list([rule]))]));
        }
        _ => patch.put("spec", odd_changes(random, 2)),
    }
    patch
}

/// Makes changes: keys that are set, and keys that are removed.
fn make_changes(random: &mut Random) -> Value {
    let mut changed = Vec::new();
    for _ in 0..random.between(1, 3) {
        let key = scalars::make_key(random);
        if changed.iter().all(|(known, _)| *known != key) {
            let value = if random.chance(25) {
                Value::Raw("null".to_owned())
            } else {
                make_label(random)
            };
            changed.push((key, value));
        }
    }
    Value::Map(changed)
}

fn odd_changes(random: &mut Random, depth: usize) -> Value {
    let mut value = map([]);
    for key in random.some(
        &["size", "mode", "items", "nested", "text", "list", "ref", "a/b", "new"],
        35,
    ) {
        let usual = match key {
            "nested" => 0,
            "items" => 1,
            "list" => 2,
            _ => 5,
        };
        let inner = match random.draw_below(100) {
            0..=7 => Value::Raw("null".to_owned()),
            8..=9 => map([("$patch", random.pick(&["delete", "replace"]).into())]),
            chance => match if chance < 14 { random.draw_below(6) } else { usual } {
                0 if depth > 0 => odd_changes(random, depth - 1),
                1 => Value::List(vec![scalars::make_line(random), scalars::make_line(random)]),
                2 => list([map([("name", "one".into()), ("value", scalars::make_line(random))])]),
                _ => scalars::make_odd(random),
            },
        };
        value.put(key, inner);
    }
    value
}

fn make_service(random: &mut Random) -> Value {
    let mut port = map([
        ("port", random.pick(&[80_usize, 443, 9090]).into()),
        ("name", random.pick(&["http", "https"]).into()),
    ]);
    if random.chance(30) {
        port.put("protocol", random.pick(&["TCP", "UDP"]));
    }
    if random.chance(15) {
        port.put("$patch", "delete");
    }
    let mut ports = vec![port];
    if random.chance(10) {
        ports.push(map([("$patch", "replace".into())]));
    }
    let mut spec = map([("ports", Value::List(ports))]);
    if random.chance(30) {
        spec.put("selector", make_changes(random));
    }
    if random.chance(15) {
        spec.put("type", Value::Raw(random.pick(&["LoadBalancer", "null"]).to_owned()));
    }
    spec
}

fn make_pod(random: &mut Random, known: &[Made]) -> Value {
    let mut spec = map([]);
    let containers = random.pick(&["containers", "containers", "containers", "initContainers"]);
    let mut list_of: Vec<Value> = Vec::new();
    for name in random.some(&["app", "sidecar", "new", "init"], 40) {
        let mut container = map([("name", name.into())]);
        if random.chance(10) {
            container.put("$patch", random.pick(&["delete", "replace", "merge"]));
        }
        if random.chance(50) {
            container.put("image", random.pick(IMAGES));
        }
        if random.chance(40) {
            let mut env = vec![map([
                ("name", random.pick(&["LEVEL", "NEW", "FROM"]).into()),
                ("value", make_label(random)),
            ])];
            if random.chance(20) {
                env.push(map([("name", "TOKEN".into()), ("$patch", "delete".into())]));
            }
            if random.chance(5) {
                env.push(map([("$patch", "replace".into())]));
            }
            container.put("env", Value::List(env));
        }
        if random.chance(20) {
            container.put(
                random.pick(&["args", "command"]),
                Value::List(vec![scalars::make_odd(random), scalars::make_line(random)]),
            );
        }
        if random.chance(20) {
            let mut port = map([("containerPort", random.pick(&[8080_usize, 9090]).into())]);
            if random.chance(50) {
                port.put("protocol", random.pick(&["TCP", "UDP"]));
            }
            if random.chance(30) {
                port.put("name", random.pick(&["http", "metrics"]));
            }
            container.put("ports", list([port]));
        }
        if random.chance(15) {
            container.put(
                "resources",
                Value::Raw(
                    random
                        .pick(&["null", "{}", "{limits: {cpu: 2}}", "{limits: null}"])
                        .to_owned(),
                ),
            );
        }
        if random.chance(15) {
            let mount = map([
                ("name", "data".into()),
                ("mountPath", random.pick(&["/etc/app", "/data"]).into()),
            ]);
            container.put("volumeMounts", list([mount]));
        }
        list_of.push(container);
    }
    if random.chance(4) {
        list_of.push(map([("$patch", "replace".into())]));
    }
    spec.put(containers, Value::List(list_of));
    if random.chance(25) {
        let volume = match random.draw_below(3) {
            0 => map([
                ("name", "config".into()),
                ("emptyDir", map([])),
                ("configMap", Value::Raw("null".to_owned())),
            ]),
            1 => map([
                ("name", "extra".into()),
                ("secret", map([("secretName", name_of(random, "Secret", known).into())])),
            ]),
            _ => map([("name", "config".into()), ("$patch", "delete".into())]),
        };
        spec.put("volumes", list([volume]));
    }
    if random.chance(10) {
        spec.put("nodeSelector", make_pairs(random, 2));
    }
    if random.chance(8) {
        let toleration = map([
            ("key", random.pick(&["gpu", "spot"]).into()),
            ("effect", "NoSchedule".into()),
        ]);
        spec.put("tolerations", list([toleration]));
    }
    if random.chance(5) {
        spec.put(
            "$setElementOrder/containers",
            list([map([("name", "sidecar".into())]), map([("name", "app".into())])]),
        );
    }
    if random.chance(8) {
        spec.put(
            "imagePullSecrets",
            list([map([("name", name_of(random, "Secret", known).into())])]),
        );
    }
    if random.chance(5) {
        spec.put("serviceAccountName", Value::Raw("null".to_owned()));
    }
    spec
}

/// Makes operations of a JSON patch, most of which fit the object.
pub(super) fn json_operations(random: &mut Random, made: &Made) -> Value {
    let mut operations = Vec::new();
    for _ in 0..random.between(1, 3) {
        operations.push(make_operation(random, made));
    }
    Value::List(operations)
}

fn make_operation(random: &mut Random, made: &Made) -> Value {
    let with =
        |verb: &str, path: &str, value: Value| map([("op", verb.into()), ("path", path.into()), ("value", value)]);
    let verb = if random.chance(10) { "replace" } else { "add" };
    let containers = match made.kind.as_str() {
        "Pod" => "/spec/containers",
        "CronJob" => "/spec/jobTemplate/spec/template/spec/containers",
        _ => "/spec/template/spec/containers",
    };
    match random.draw_below(10) {
        0 => with("add", "/metadata/labels", make_pairs(random, 2)),
        1 => with("add", "/metadata/annotations", make_pairs(random, 2)),
        2 if random.chance(50) => with(verb, "/metadata/name", "renamed".into()),
        3 if random.chance(20) => with(
            "add",
            "/metadata/annotations/example.com~1x",
            scalars::make_string(random),
        ),
        _ if made.is_workload() || containers.len() < 20 || made.kind == "CronJob" => match random.draw_below(7) {
            // No replacement: builds of kustomize differ if the image to replace is missing.
            0 => with("add", &format!("{containers}/0/image"), random.pick(IMAGES).into()),
            1 => with(
                "add",
                &format!("{containers}/0/args"),
                list([scalars::make_line(random), "x".into()]),
            ),
            2 => with(
                "add",
                &format!("{containers}/-"),
                map([("name", "late".into()), ("image", "late:1".into())]),
            ),
            3 => with("add", &format!("{containers}/0"), map([("name", "early".into())])),
            4 if random.chance(25) => map([
                ("op", "remove".into()),
                ("path", format!("{containers}/0/image").into()),
            ]),
            5 => map([
                ("op", "copy".into()),
                ("from", format!("{containers}/0/name").into()),
                ("path", format!("{containers}/0/image").into()),
            ]),
            _ => with(
                "add",
                "/spec/replicas",
                Value::Raw(random.pick(&["2", "1e2", "\"3\""]).to_owned()),
            ),
        },
        _ if made.kind == "ConfigMap" && random.chance(60) => {
            if random.chance(20) {
                with("add", "/data/added", scalars::make_odd(random))
            } else {
                with("add", "/data", map([("added", scalars::make_string(random))]))
            }
        }
        _ if ["Widget", "Gadget", "Service", "Ingress", "Certificate"].contains(&made.kind.as_str())
            && random.chance(60) =>
        {
            match random.draw_below(3) {
                0 => with(
                    "add",
                    "/spec/added",
                    list([scalars::make_line(random), map([("k", scalars::make_odd(random))])]),
                ),
                1 => with("add", "/spec/size", scalars::make_odd(random)),
                _ => with("test", "/metadata/name", made.name.as_str().into()),
            }
        }
        _ => match random.draw_below(9) {
            0..=3 => with("add", "/spec", map([("whole", scalars::make_line(random))])),
            4..=5 => map([
                ("op", "copy".into()),
                ("from", "/metadata/name".into()),
                ("path", "/kept".into()),
            ]),
            6 => with("replace", "/metadata/name", made.name.as_str().into()),
            7 if random.chance(20) => map([
                ("op", "move".into()),
                ("from", "/metadata/labels".into()),
                ("path", "/metadata/annotations".into()),
            ]),
            _ => with("add", "/metadata/labels", make_pairs(random, 2)),
        },
    }
}
