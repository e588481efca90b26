//! Makes up the content of objects beside their metadata, kind by kind: fields that refer to other objects, and fields of unknown kinds.

use super::objects::{IMAGES, Made, NAMESPACES, make_pairs, name_of};
use super::pods::{make_pod, make_template, make_workload};
use super::random::Random;
use super::scalars;
use super::writer::{Value, list, map};

/// Makes the fields of an object beside apiVersion, kind and metadata.
pub(super) fn make_body(random: &mut Random, made: &Made, known: &[Made]) -> Value {
    let app = made.name.as_str();
    let spec = |spec: Value| map([("spec", spec)]);
    match made.kind.as_str() {
        "Deployment" | "ReplicaSet" | "DaemonSet" | "Job" | "StatefulSet" | "ReplicationController" | "Rollout" => {
            spec(make_workload(random, made, known))
        }
        "CronJob" => {
            let job = map([("template", make_template(random, app, known))]);
            spec(map([
                ("schedule", "*/5 * * * *".into()),
                ("jobTemplate", map([("spec", job)])),
            ]))
        }
        "Pod" => spec(make_pod(random, known)),
        "PodTemplate" => map([("template", make_template(random, app, known))]),
        "Service" if made.group() == "serving.knative.dev" => {
            spec(map([("template", make_template(random, app, known))]))
        }
        "ConfigMap" | "Secret" => make_data(random, made),
        "Service" => spec(make_service(random, app)),
        "ServiceAccount" => {
            let mut body = map([]);
            if random.chance(20) {
                body.put("automountServiceAccountToken", false);
            }
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
        "Ingress" => spec(make_ingress(random, made, known)),
        "NetworkPolicy" => {
            let selector = map([("matchLabels", make_pairs(random, 2))]);
            let from = list([map([("podSelector", map([("matchLabels", make_pairs(random, 2))]))])]);
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
        "RoleBinding" | "ClusterRoleBinding" => make_binding(random, made, known),
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
            ("selector", map([("matchLabels", make_pairs(random, 2))])),
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
            (
                "parameters",
                if random.chance(40) {
                    let field = random.pick(&["secretName", "adminSecretName", "userSecretName", "secretRef"]);
                    map([(field, name_of(random, "Secret", known).into())])
                } else {
                    data_map(random, false)
                },
            ),
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
        "CustomResourceDefinition" => spec(make_definition(random, known)),
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
        "IngressClass" => spec(map([("controller", "example.com/ingress".into())])),
        "Node" => spec(map([(
            "configSource",
            map([(
                "configMap",
                map([
                    ("name", name_of(random, "ConfigMap", known).into()),
                    ("namespace", "kube-system".into()),
                    ("kubeletConfigKey", "kubelet".into()),
                ]),
            )]),
        )])),
        "ValidatingAdmissionPolicyBinding" => spec(map([
            ("policyName", name_of(random, "ValidatingAdmissionPolicy", known).into()),
            ("validationActions", vec!["Deny"].into()),
        ])),
        "ValidatingAdmissionPolicy" => {
            let validation = map([
                ("expression", "object.spec.replicas <= 5 && !has(object.x)".into()),
                ("message", scalars::make_string(random)),
            ]);
            spec(map([("validations", list([validation]))]))
        }
        "Widget" | "Gadget" | "ServiceMonitor" | "ClusterWidget" | "Kustomization" => {
            spec(make_custom(random, known, 3))
        }
        _ => map([]),
    }
}

/// Returns the usual shape of a custom resource's field, an arm of [`make_custom`], so that a patch nearly always fits the object.
fn choose_shape(random: &mut Random, key: &str, shapes: usize) -> usize {
    if random.chance(8) {
        return random.draw_below(shapes);
    }
    match key {
        "nested" => 0,
        "items" => 1,
        "list" => 2,
        "ref" => 3,
        "selector" => 4,
        _ => shapes,
    }
}

/// Makes a map of odd values, as a custom resource may have.
fn make_custom(random: &mut Random, known: &[Made], depth: usize) -> Value {
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
        let inner = match choose_shape(random, key, 9) {
            0 if depth > 0 => make_custom(random, known, depth - 1),
            1 if depth > 0 => Value::List((0..random.draw_below(4)).map(|_| scalars::make_odd(random)).collect()),
            2 if depth > 0 => Value::List(
                ["one", "two"]
                    .iter()
                    .map(|name| map([("name", (*name).into()), ("value", scalars::make_odd(random))]))
                    .collect(),
            ),
            3 => Value::Text(name_of(random, "ConfigMap", known)),
            4 => map([("matchLabels", make_pairs(random, 2))]),
            5 => Value::List(Vec::new()),
            6 => map([]),
            _ => scalars::make_odd(random),
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
            map([("<<", Value::Raw("*two".to_owned())), ("b", scalars::make_line(random))]),
        );
    }
    if random.chance(30) {
        value.put("image", random.pick(IMAGES));
    }
    if random.chance(20) {
        value.put("replicas", 1);
    }
    if random.chance(25) {
        let kind = random.pick(&["ConfigMap", "Secret", "Gadget"]);
        value.put("target", map([("name", name_of(random, kind, known).into())]));
    }
    if depth == 3 && random.chance(12) {
        // A whole object in an object, as in templates of other tools.
        let made = Made {
            api: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: "inner".to_owned(),
            namespace: String::new(),
        };
        value.put(
            "embedded",
            map([
                ("apiVersion", "apps/v1".into()),
                ("kind", "Deployment".into()),
                ("metadata", map([("name", "inner".into())])),
                ("spec", make_workload(random, &made, known)),
            ]),
        );
    }
    value
}

fn make_definition(random: &mut Random, known: &[Made]) -> Value {
    let names = map([("kind", "Widget".into()), ("plural", "widgets".into())]);
    let text = map([
        ("description", scalars::make_string(random)),
        ("type", "string".into()),
        ("default", scalars::make_string(random)),
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

fn make_data(random: &mut Random, made: &Made) -> Value {
    let mut body = map([]);
    if random.chance(90) {
        let mut data = data_map(random, made.kind == "ConfigMap");
        if made.kind == "ConfigMap" && random.chance(15) {
            data.put("config.json", make_structured_text(random));
        }
        let field = if made.kind == "Secret" && random.chance(50) {
            "stringData"
        } else {
            "data"
        };
        body.put(field, data);
    }
    if random.chance(5) {
        body.put("binaryData", map([("bytes", "aGVsbG8=".into())]));
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
        let key = scalars::make_key(random);
        if !data.iter().any(|(known, _)| *known == key) {
            let value = if odd && random.chance(35) {
                scalars::make_odd(random)
            } else {
                scalars::make_string(random)
            };
            data.push((key, value));
        }
    }
    Value::Map(data)
}

fn make_service(random: &mut Random, app: &str) -> Value {
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

fn make_ingress(random: &mut Random, made: &Made, known: &[Made]) -> Value {
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
    let host = random.pick(&["example.com", "$(NAME).example.com"]);
    let rule = map([("host", host.into()), ("http", map([("paths", list([path]))]))]);
    let tls = map([
        ("hosts", vec!["example.com"].into()),
        ("secretName", name_of(random, "Secret", known).into()),
    ]);
    let mut spec = map([("rules", list([rule])), ("tls", list([tls]))]);
    if random.chance(25) {
        spec.put("ingressClassName", name_of(random, "IngressClass", known));
    }
    if random.chance(25) {
        let name = name_of(random, "Service", known);
        if made.version() == "v1" {
            let service = map([("name", name.into()), ("port", map([("name", "http".into())]))]);
            spec.put("defaultBackend", map([("service", service)]));
        } else {
            spec.put(
                "backend",
                map([("serviceName", name.into()), ("servicePort", 80.into())]),
            );
        }
    }
    spec
}

fn make_binding(random: &mut Random, made: &Made, known: &[Made]) -> Value {
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

/// Makes a text that is JSON or YAML itself, into which replacements may write.
fn make_structured_text(random: &mut Random) -> Value {
    Value::Text(
        random
            .pick(&[
                "{\"a\": {\"b\": 1, \"c\": \"x\"}, \"list\": [1, {\"name\": \"one\", \"value\": true}]}",
                "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n",
                "a:\n  b: 1\n  c: x\nlist:\n- 1\n- name: one\n  value: true\n",
                "# comment\na:\n    b: '1' # why\n\n    c: \"x\"\n",
                "a: {b: 1, c: x}\nlist: [a, b]\n",
            ])
            .to_owned(),
    )
}
