//! Makes up pods and objects with a pod template: containers, volumes, and their references. They have the fields that images, references, selectors and merges use.

use super::objects::{IMAGES, Made, make_label, make_pairs, name_of};
use super::random::Random;
use super::scalars;
use super::writer::{Value, list, map};

/// Makes the spec of a kind with a pod template.
pub(super) fn make_workload(random: &mut Random, made: &Made, known: &[Made]) -> Value {
    let app = made.name.as_str();
    let mut spec = map([]);
    if random.chance(60) && !["DaemonSet", "Job"].contains(&made.kind.as_str()) {
        spec.put("replicas", random.draw_below(4));
    }
    if made.kind != "Job" {
        spec.put("selector", map([("matchLabels", map([("app", app.into())]))]));
    }
    if made.kind == "StatefulSet" {
        spec.put("serviceName", name_of(random, "Service", known));
        if random.chance(60) {
            let claim = map([
                (
                    "metadata",
                    map([("name", "data".into()), ("labels", make_pairs(random, 1))]),
                ),
                (
                    "spec",
                    map([
                        ("accessModes", vec!["ReadWriteOnce"].into()),
                        ("storageClassName", name_of(random, "StorageClass", known).into()),
                    ]),
                ),
            ]);
            spec.put("volumeClaimTemplates", list([claim]));
        }
    }
    if made.kind == "Deployment" && random.chance(20) {
        let rolling = map([("maxSurge", Value::Raw(random.pick(&["1", "25%"]).to_owned()))]);
        spec.put(
            "strategy",
            map([("type", "RollingUpdate".into()), ("rollingUpdate", rolling)]),
        );
    }
    spec.with("template", make_template(random, app, known))
}

/// Makes a pod template.
pub(super) fn make_template(random: &mut Random, app: &str, known: &[Made]) -> Value {
    let mut metadata = map([("labels", map([("app", app.into())]))]);
    if random.chance(20) {
        metadata.put("annotations", make_pairs(random, 2));
    }
    map([("metadata", metadata), ("spec", make_pod(random, known))])
}

/// Makes the spec of a pod.
pub(super) fn make_pod(random: &mut Random, known: &[Made]) -> Value {
    let mut containers = vec![make_container(random, "app", known)];
    if random.chance(30) {
        containers.push(make_container(random, "sidecar", known));
    }
    let mut spec = map([("containers", Value::List(containers))]);
    if random.chance(20) {
        spec.put("initContainers", list([make_container(random, "init", known)]));
    }
    if random.chance(30) {
        spec.put("serviceAccountName", name_of(random, "ServiceAccount", known));
    }
    if random.chance(40) {
        let mut volumes = Vec::new();
        for (name, kind) in random.some(
            &[
                ("config", "ConfigMap"),
                ("secret", "Secret"),
                ("data", "PersistentVolumeClaim"),
                ("all", ""),
            ],
            50,
        ) {
            let source = match kind {
                "ConfigMap" => map([(
                    "configMap",
                    map([
                        ("name", name_of(random, kind, known).into()),
                        ("defaultMode", file_mode(random)),
                    ]),
                )]),
                "Secret" => map([("secret", map([("secretName", name_of(random, kind, known).into())]))]),
                "" => {
                    let sources = list([
                        map([("configMap", map([("name", name_of(random, "ConfigMap", known).into())]))]),
                        map([("secret", map([("name", name_of(random, "Secret", known).into())]))]),
                    ]);
                    map([("projected", map([("sources", sources)]))])
                }
                _ => map([(
                    "persistentVolumeClaim",
                    map([("claimName", name_of(random, kind, known).into())]),
                )]),
            };
            let mut volume = map([("name", name.into())]);
            if let (Value::Map(volume), Value::Map(source)) = (&mut volume, source) {
                volume.extend(source);
            }
            volumes.push(volume);
        }
        if random.chance(30) {
            volumes.push(map([("name", "scratch".into()), ("emptyDir", map([]))]));
        }
        spec.put("volumes", Value::List(volumes));
    }
    if random.chance(15) {
        spec.put(
            "imagePullSecrets",
            list([map([("name", name_of(random, "Secret", known).into())])]),
        );
    }
    if random.chance(10) {
        spec.put("priorityClassName", name_of(random, "PriorityClass", known));
    }
    if random.chance(10) {
        let toleration = map([("key", "gpu".into()), ("operator", "Exists".into())]);
        spec.put("tolerations", list([toleration]));
    }
    if random.chance(8) {
        let constraint = map([
            ("maxSkew", 1.into()),
            ("topologyKey", "zone".into()),
            ("labelSelector", map([("matchLabels", make_pairs(random, 1))])),
        ]);
        spec.put("topologySpreadConstraints", list([constraint]));
    }
    if random.chance(8) {
        let term = map([
            ("labelSelector", map([("matchLabels", make_pairs(random, 1))])),
            ("topologyKey", "kubernetes.io/hostname".into()),
        ]);
        let required = map([("requiredDuringSchedulingIgnoredDuringExecution", list([term]))]);
        spec.put("affinity", map([("podAntiAffinity", required)]));
    }
    spec
}

fn file_mode(random: &mut Random) -> Value {
    Value::Raw(random.pick(&["420", "0644", "0o600", "256"]).to_owned())
}

fn make_container(random: &mut Random, name: &str, known: &[Made]) -> Value {
    let mut container = map([("name", name.into()), ("image", random.pick(IMAGES).into())]);
    if random.chance(40) {
        let mut env = vec![map([("name", "LEVEL".into()), ("value", make_label(random))])];
        if random.chance(50) {
            let reference = map([
                ("name", name_of(random, "ConfigMap", known).into()),
                ("key", "k1".into()),
            ]);
            env.push(map([
                ("name", "FROM".into()),
                ("valueFrom", map([("configMapKeyRef", reference)])),
            ]));
        }
        if random.chance(30) {
            let reference = map([("name", name_of(random, "Secret", known).into()), ("key", "k1".into())]);
            env.push(map([
                ("name", "TOKEN".into()),
                ("valueFrom", map([("secretKeyRef", reference)])),
            ]));
        }
        container.put("env", Value::List(env));
    }
    if random.chance(20) {
        let source = random.pick(&[("configMapRef", "ConfigMap"), ("secretRef", "Secret")]);
        container.put(
            "envFrom",
            list([map([(
                source.0,
                map([("name", name_of(random, source.1, known).into())]),
            )])]),
        );
    }
    if random.chance(30) {
        let mut ports = vec![map([("containerPort", 8080.into()), ("name", "http".into())])];
        if random.chance(30) {
            ports.push(map([("containerPort", 8080.into()), ("protocol", "UDP".into())]));
        }
        container.put("ports", Value::List(ports));
    }
    if random.chance(25) {
        let mut arguments = vec![
            Value::from("--name=$(NAME)"),
            Value::from("--level"),
            scalars::make_string(random),
        ];
        if random.chance(10) {
            arguments.push(scalars::make_odd(random));
        } else if random.chance(20) {
            arguments.push(scalars::make_block(random));
        }
        container.put(random.pick(&["args", "command"]), Value::List(arguments));
    }
    if random.chance(20) {
        container.put(
            "volumeMounts",
            list([map([("name", "config".into()), ("mountPath", "/etc/app".into())])]),
        );
    }
    if random.chance(20) {
        let limits = map([
            (
                "cpu",
                Value::Raw(random.pick(&["1", "500m", "0.5", "\"1\"", "1e3"]).to_owned()),
            ),
            ("memory", "1Gi".into()),
        ]);
        container.put("resources", map([("limits", limits)]));
    }
    container
}
