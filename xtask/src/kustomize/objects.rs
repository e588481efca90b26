//! Makes up Kubernetes objects: built-in kinds with references to each other, and kinds nobody knows. Owns what an object
//! looks like; refuses to be complete: a field is here when a transformer, a merge or a reference treats it specially.

use super::pods::{pod, template, workload};
use super::random::Random;
use super::scalars;
use super::writer::{Value, list, map};

/// What is known about an object that was made up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) api: String,
    pub(super) kind: String,
    pub(super) name: String,
    /// Empty when the object says none.
    pub(super) namespace: String,
}

impl Made {
    /// The group of its apiVersion, empty for the core.
    pub(super) fn group(&self) -> &str {
        self.api.split_once('/').map_or("", |(group, _)| group)
    }

    /// The version of its apiVersion.
    pub(super) fn version(&self) -> &str {
        self.api.split_once('/').map_or(&self.api, |(_, version)| version)
    }

    /// Whether it has a pod template at spec.template.
    pub(super) fn is_workload(&self) -> bool {
        ["Deployment", "StatefulSet", "DaemonSet", "Job", "ReplicaSet"].contains(&self.kind.as_str())
    }
}

/// apiVersion and kind, often used ones more than once.
const KINDS: &[(&str, &str)] = &[
    ("apps/v1", "Deployment"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("batch/v1beta1", "CronJob"),
    ("v1", "Pod"),
    ("v1", "ConfigMap"),
    ("v1", "ConfigMap"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "Namespace"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "PersistentVolume"),
    ("v1", "LimitRange"),
    ("networking.k8s.io/v1", "Ingress"),
    ("extensions/v1beta1", "Ingress"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("policy/v1", "PodDisruptionBudget"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
    ("apiregistration.k8s.io/v1", "APIService"),
    ("example.com/v1", "Widget"),
    ("example.com/v1", "Widget"),
    ("example.com/v1alpha1", "Gadget"),
    ("cert-manager.io/v1", "Certificate"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("argoproj.io/v1alpha1", "Rollout"),
];

const NAMES: &[&str] = &[
    "web",
    "api",
    "db",
    "cache",
    "queue",
    "worker",
    "front-end",
    "app",
    "x",
    "a.b",
    "job-1",
];
const NAMESPACES: &[&str] = &["prod", "default", "kube-system", "team-a"];
/// Images in every form that their names take.
pub(super) const IMAGES: &[&str] = &[
    "nginx",
    "nginx:1.25",
    "nginx:1.25-alpine",
    "registry.example.com/team/app:v1",
    "registry.example.com:5000/app",
    "localhost:5000/app:v2",
    "busybox@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "ghcr.io/org/app:v1@sha256:abcdef",
    "app",
    "redis:7",
    "my/app:latest",
    "docker.io/library/redis",
    "nginx:1.25:odd",
    "registry/app:$(TAG)",
];

/// Makes up the identity of an object that isn't among those that there are.
pub(super) fn identity(random: &mut Random, taken: &[Made]) -> Made {
    let (api, kind) = random.pick(KINDS);
    let namespace = if random.chance(25) { random.pick(NAMESPACES) } else { "" };
    let mut made = Made {
        api: api.to_owned(),
        kind: kind.to_owned(),
        name: random.pick(NAMES).to_owned(),
        namespace: namespace.to_owned(),
    };
    if kind == "CustomResourceDefinition" {
        made.name = "widgets.example.com".to_owned();
    } else if random.chance(2) {
        made.name = random.pick(&["123", "true", "1.0", "0x1", "null", "1e3"]).to_owned();
    }
    let clashes = |made: &Made| {
        taken
            .iter()
            .any(|other| other.kind == made.kind && other.name == made.name)
    };
    let mut number = 2;
    while clashes(&made) && !random.chance(2) {
        made.name = format!("{}-{number}", random.pick(NAMES));
        number += 1;
    }
    made
}

/// The name of an object of a kind, or one that isn't there.
pub(super) fn name_of(random: &mut Random, kind: &str, known: &[Made]) -> String {
    let names: Vec<String> = known
        .iter()
        .filter(|made| made.kind == kind)
        .map(|made| made.name.clone())
        .collect();
    if names.is_empty() || random.chance(5) {
        random.pick(&["missing", "web", "db", "app"]).to_owned()
    } else {
        random.pick(&names)
    }
}

/// Labels or annotations.
pub(super) fn pairs(random: &mut Random, most: usize) -> Value {
    let mut pairs: Vec<(String, Value)> = Vec::new();
    for _ in 0..random.between(1, most) {
        let key = scalars::key(random);
        if !pairs.iter().any(|(known, _)| *known == key) {
            pairs.push((key, label(random)));
        }
    }
    Value::Map(pairs)
}

/// A string that may look like something else.
pub(super) fn label(random: &mut Random) -> Value {
    Value::Text(
        random
            .pick(&[
                "web",
                "backend",
                "v1",
                "true",
                "1",
                "no",
                "0644",
                "1e3",
                "",
                "a-b_c.d",
                "2020-01-01",
                "$(NAME)",
                "null",
            ])
            .to_owned(),
    )
}

/// The whole object.
pub(super) fn object(random: &mut Random, made: &Made, known: &[Made]) -> Value {
    let mut metadata = map([("name", made.name.as_str().into())]);
    if !made.namespace.is_empty() {
        metadata.put("namespace", made.namespace.as_str());
    }
    if random.chance(40) {
        metadata.put("labels", pairs(random, 3));
    }
    if random.chance(30) {
        let mut annotations = pairs(random, 3);
        if random.chance(20) {
            annotations.put("notes", scalars::string(random));
        }
        if random.chance(6) {
            annotations.put("config.kubernetes.io/local-config", random.pick(&["true", "false"]));
        }
        if random.chance(4) {
            annotations.put("kustomize.config.k8s.io/needs-hash", "true");
        }
        metadata.put("annotations", annotations);
    }
    if random.chance(5) {
        let (field, value) = random.pick(&[
            ("creationTimestamp", "null"),
            ("annotations", "{}"),
            ("labels", "null"),
            ("annotations", ""),
            ("namespace", "\"\""),
            ("namespace", ""),
            ("finalizers", "[a, b]"),
            ("generateName", "x-"),
        ]);
        if !matches!(&metadata, Value::Map(entries) if entries.iter().any(|(key, _)| key == field)) {
            metadata.put(field, Value::Raw(value.to_owned()));
        }
    }
    let mut head = vec![
        ("apiVersion".to_owned(), Value::from(made.api.as_str())),
        ("kind".to_owned(), Value::from(made.kind.as_str())),
        ("metadata".to_owned(), metadata),
    ];
    if random.chance(20) {
        head.rotate_left(1);
    }
    if let Value::Map(body) = body(random, made, known) {
        head.extend(body);
    }
    if random.chance(3) {
        head.push(("status".to_owned(), Value::Map(Vec::new())));
    }
    Value::Map(head)
}

fn body(random: &mut Random, made: &Made, known: &[Made]) -> Value {
    let app = made.name.as_str();
    let spec = |spec: Value| map([("spec", spec)]);
    match made.kind.as_str() {
        "Deployment" | "ReplicaSet" | "DaemonSet" | "Job" | "StatefulSet" | "Rollout" => {
            spec(workload(random, made, known))
        }
        "CronJob" => {
            let job = map([("template", template(random, app, known))]);
            spec(map([
                ("schedule", "*/5 * * * *".into()),
                ("jobTemplate", map([("spec", job)])),
            ]))
        }
        "Pod" => spec(pod(random, known)),
        "ConfigMap" | "Secret" => data(random, made),
        "Service" => spec(service(random, app)),
        "ServiceAccount" => {
            let mut body = map([]);
            if random.chance(50) {
                body.put(
                    "secrets",
                    list([map([("name", name_of(random, "Secret", known).into())])]),
                );
            }
            if random.chance(50) {
                body.put(
                    "imagePullSecrets",
                    list([map([("name", name_of(random, "Secret", known).into())])]),
                );
            }
            body
        }
        "Ingress" => spec(ingress(random, made, known)),
        "NetworkPolicy" => {
            let selector = map([("matchLabels", pairs(random, 2))]);
            let from = list([map([("podSelector", map([("matchLabels", pairs(random, 2))]))])]);
            spec(map([
                ("podSelector", selector),
                ("ingress", list([map([("from", from)])])),
            ]))
        }
        "Role" | "ClusterRole" => {
            let secret = name_of(random, "Secret", known);
            let rule = map([
                ("apiGroups", vec![""].into()),
                ("resources", vec!["secrets"].into()),
                ("resourceNames", vec![secret].into()),
                ("verbs", vec!["get", "list"].into()),
            ]);
            map([("rules", list([rule]))])
        }
        "RoleBinding" | "ClusterRoleBinding" => binding(random, made, known),
        "HorizontalPodAutoscaler" => {
            let target = random.pick(&["Deployment", "StatefulSet", "ReplicaSet", "Widget"]);
            let reference = map([
                (
                    "apiVersion",
                    random.pick(&["apps/v1", "apps/v1", "example.com/v1"]).into(),
                ),
                ("kind", target.into()),
                ("name", name_of(random, target, known).into()),
            ]);
            spec(map([
                ("scaleTargetRef", reference),
                ("minReplicas", 1.into()),
                ("maxReplicas", 5.into()),
            ]))
        }
        "PodDisruptionBudget" => spec(map([
            ("minAvailable", 1.into()),
            ("selector", map([("matchLabels", pairs(random, 2))])),
        ])),
        "PersistentVolumeClaim" => spec(map([
            ("accessModes", vec!["ReadWriteOnce"].into()),
            ("storageClassName", name_of(random, "StorageClass", known).into()),
            ("volumeName", name_of(random, "PersistentVolume", known).into()),
            ("resources", map([("requests", map([("storage", "1Gi".into())]))])),
        ])),
        "PersistentVolume" => spec(map([
            ("storageClassName", name_of(random, "StorageClass", known).into()),
            (
                "claimRef",
                map([
                    ("name", name_of(random, "PersistentVolumeClaim", known).into()),
                    ("namespace", "prod".into()),
                ]),
            ),
        ])),
        "StorageClass" => map([
            ("provisioner", "example.com/disk".into()),
            ("parameters", data_map(random, false)),
        ]),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            let mut webhooks = Vec::new();
            for name in ["one.example.com", "two.example.com"] {
                let service = map([
                    ("name", name_of(random, "Service", known).into()),
                    ("namespace", random.pick(&["prod", "system", "default"]).into()),
                    ("path", "/validate".into()),
                ]);
                webhooks.push(map([
                    ("name", name.into()),
                    ("clientConfig", map([("service", service), ("caBundle", "Cg==".into())])),
                ]));
            }
            map([("webhooks", Value::List(webhooks))])
        }
        "APIService" => {
            let service = map([
                ("name", name_of(random, "Service", known).into()),
                ("namespace", random.pick(&["prod", "system"]).into()),
            ]);
            spec(map([("service", service), ("group", "metrics.example.com".into())]))
        }
        "CustomResourceDefinition" => spec(definition(random, known)),
        "Certificate" => spec(map([
            (
                "dnsNames",
                vec![
                    "$(SERVICE_NAME).$(SERVICE_NAMESPACE).svc".to_owned(),
                    format!("{app}.example.com"),
                ]
                .into(),
            ),
            (
                "issuerRef",
                map([("kind", "Issuer".into()), ("name", "selfsigned-issuer".into())]),
            ),
            ("secretName", name_of(random, "Secret", known).into()),
        ])),
        "Widget" | "Gadget" | "ServiceMonitor" => spec(custom(random, known, 3)),
        _ => map([]),
    }
}

/// A map of odd things, as a custom resource may have.
fn custom(random: &mut Random, known: &[Made], depth: usize) -> Value {
    let mut value = map([]);
    for key in random.some(
        &[
            "size",
            "mode",
            "items",
            "nested",
            "text",
            "list",
            "ref",
            "selector",
            "a/b",
            "'quoted key'",
        ],
        35,
    ) {
        let inner = match random.below(9) {
            0 if depth > 0 => custom(random, known, depth - 1),
            1 if depth > 0 => Value::List((0..random.below(4)).map(|_| scalars::odd(random)).collect()),
            2 if depth > 0 => Value::List(
                ["one", "two"]
                    .iter()
                    .map(|name| map([("name", (*name).into()), ("value", scalars::odd(random))]))
                    .collect(),
            ),
            3 => Value::Text(name_of(random, "ConfigMap", known)),
            4 => map([("matchLabels", pairs(random, 2))]),
            5 => Value::List(Vec::new()),
            6 => map([]),
            _ => scalars::odd(random),
        };
        value.put(key, inner);
    }
    if depth == 3 && random.chance(10) {
        value.put(
            "anchored",
            Value::Raw(
                random
                    .pick(&["&one text", "&one 0644", "&one \"1\"", "&one [a, 1]", "&one {k: v}"])
                    .to_owned(),
            ),
        );
        value.put("alias", Value::Raw("*one".to_owned()));
        value.put(
            "aliases",
            list([
                Value::Raw("*one".to_owned()),
                map([("in", Value::Raw("*one".to_owned()))]),
            ]),
        );
    }
    if depth == 3 && random.chance(5) {
        value.put("shared", Value::Raw("&two {a: 1, b: x}".to_owned()));
        value.put(
            "merged",
            map([("<<", Value::Raw("*two".to_owned())), ("b", scalars::line(random))]),
        );
    }
    if random.chance(30) {
        value.put("image", random.pick(IMAGES));
    }
    if random.chance(20) {
        value.put("replicas", 1);
    }
    value
}

fn definition(random: &mut Random, known: &[Made]) -> Value {
    let names = map([("kind", "Widget".into()), ("plural", "widgets".into())]);
    let text = map([
        ("description", scalars::string(random)),
        ("type", "string".into()),
        ("default", scalars::string(random)),
    ]);
    let schema = map([(
        "openAPIV3Schema",
        map([("type", "object".into()), ("properties", map([("size", text)]))]),
    )]);
    let version = map([
        ("name", "v1".into()),
        ("served", true.into()),
        ("storage", true.into()),
        ("schema", schema),
    ]);
    let mut spec = map([
        ("group", "example.com".into()),
        ("names", names),
        ("scope", random.pick(&["Namespaced", "Cluster"]).into()),
        ("versions", list([version])),
    ]);
    if random.chance(50) {
        let service = map([
            ("name", name_of(random, "Service", known).into()),
            ("namespace", "system".into()),
        ]);
        let webhook = map([
            ("clientConfig", map([("service", service)])),
            ("conversionReviewVersions", vec!["v1"].into()),
        ]);
        spec.put(
            "conversion",
            map([("strategy", "Webhook".into()), ("webhook", webhook)]),
        );
    }
    spec
}

fn data(random: &mut Random, made: &Made) -> Value {
    let mut body = map([]);
    if random.chance(90) {
        body.put(
            if made.kind == "Secret" && random.chance(50) {
                "stringData"
            } else {
                "data"
            },
            data_map(random, made.kind == "ConfigMap"),
        );
    }
    if random.chance(10) {
        body.put("immutable", true);
    }
    if made.kind == "Secret" && random.chance(60) {
        body.put("type", "Opaque");
    }
    body
}

fn data_map(random: &mut Random, odd: bool) -> Value {
    let mut data: Vec<(String, Value)> = Vec::new();
    for _ in 0..random.between(1, 4) {
        let key = scalars::key(random);
        if !data.iter().any(|(known, _)| *known == key) {
            let value = if odd && random.chance(35) {
                scalars::odd(random)
            } else {
                scalars::string(random)
            };
            data.push((key, value));
        }
    }
    Value::Map(data)
}

fn service(random: &mut Random, app: &str) -> Value {
    let mut ports = vec![map([
        ("name", "http".into()),
        ("port", 80.into()),
        ("targetPort", random.pick(&["http", "8080"]).into()),
    ])];
    if random.chance(40) {
        ports.push(map([
            ("name", "metrics".into()),
            ("port", 9090.into()),
            ("protocol", "TCP".into()),
        ]));
    }
    let mut spec = map([("selector", map([("app", app.into())])), ("ports", Value::List(ports))]);
    if random.chance(20) {
        spec.put("type", random.pick(&["ClusterIP", "LoadBalancer", "NodePort"]));
    }
    spec
}

fn ingress(random: &mut Random, made: &Made, known: &[Made]) -> Value {
    let name = name_of(random, "Service", known);
    let backend = if made.version() == "v1" {
        map([(
            "service",
            map([("name", name.into()), ("port", map([("number", 80.into())]))]),
        )])
    } else {
        map([("serviceName", name.into()), ("servicePort", 80.into())])
    };
    let path = map([
        ("path", "/".into()),
        ("pathType", "Prefix".into()),
        ("backend", backend),
    ]);
    let rule = map([("host", "example.com".into()), ("http", map([("paths", list([path]))]))]);
    let tls = map([
        ("hosts", vec!["example.com"].into()),
        ("secretName", name_of(random, "Secret", known).into()),
    ]);
    map([("rules", list([rule])), ("tls", list([tls]))])
}

fn binding(random: &mut Random, made: &Made, known: &[Made]) -> Value {
    let kind = if made.kind == "RoleBinding" {
        random.pick(&["Role", "ClusterRole"])
    } else {
        "ClusterRole"
    };
    let role = map([
        ("apiGroup", "rbac.authorization.k8s.io".into()),
        ("kind", kind.into()),
        ("name", name_of(random, kind, known).into()),
    ]);
    let mut subject = map([
        ("kind", "ServiceAccount".into()),
        (
            "name",
            if random.chance(20) {
                "default".into()
            } else {
                name_of(random, "ServiceAccount", known).into()
            },
        ),
    ]);
    if random.chance(70) {
        subject.put("namespace", random.pick(NAMESPACES));
    }
    let mut subjects = vec![subject];
    if random.chance(30) {
        subjects.push(map([("kind", "User".into()), ("name", "jane".into())]));
    }
    map([("roleRef", role), ("subjects", Value::List(subjects))])
}
