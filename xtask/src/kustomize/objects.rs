//! Makes up Kubernetes objects: built-in kinds with references to each other, and unknown kinds. The fields are not complete: a field is here if a transformer, a merge
//! or a reference treats it specially.

use super::bodies::make_body;
use super::random::Random;
use super::scalars;
use super::writer::{Value, map};

/// The apiVersion, kind, name and namespace of a generated object, by which other objects refer to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) api: String,
    pub(super) kind: String,
    pub(super) name: String,
    /// Empty if the object names none.
    pub(super) namespace: String,
}

impl Made {
    /// Returns the group of its apiVersion, empty for the core group.
    pub(super) fn group(&self) -> &str {
        self.api.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the version of its apiVersion.
    pub(super) fn version(&self) -> &str {
        self.api.split_once('/').map_or(&self.api, |(_, version)| version)
    }

    /// Checks whether it has a pod template at spec.template.
    pub(super) fn is_workload(&self) -> bool {
        [
            "Deployment",
            "StatefulSet",
            "DaemonSet",
            "Job",
            "ReplicaSet",
            "ReplicationController",
        ]
        .contains(&self.kind.as_str())
    }
}

/// apiVersion and kind; common ones occur more than once.
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
    ("networking.k8s.io/v1", "Ingress"),
    ("networking.k8s.io/v1", "IngressClass"),
    ("v1", "ReplicationController"),
    ("v1", "PodTemplate"),
    ("v1", "Node"),
    ("v1", "Endpoints"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
    ("serving.knative.dev/v1", "Service"),
    ("example.com/v1", "ClusterWidget"),
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
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
/// The namespaces of objects.
pub(super) const NAMESPACES: &[&str] = &["prod", "default", "kube-system", "team-a"];
/// Images in every form of their names.
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

/// Makes a new identity that differs from the existing ones.
pub(super) fn choose_identity(random: &mut Random, taken: &[Made]) -> Made {
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

/// Returns the name of an object of a kind, or a name that does not exist.
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

/// Makes labels or annotations.
pub(super) fn make_pairs(random: &mut Random, most: usize) -> Value {
    let mut pairs: Vec<(String, Value)> = Vec::new();
    for _ in 0..random.between(1, most) {
        let key = scalars::make_key(random);
        if !pairs.iter().any(|(known, _)| *known == key) {
            pairs.push((key, make_label(random)));
        }
    }
    Value::Map(pairs)
}

/// Makes a string that may look like another type.
pub(super) fn make_label(random: &mut Random) -> Value {
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

/// Makes the whole object.
pub(super) fn make_object(random: &mut Random, made: &Made, known: &[Made]) -> Value {
    let mut metadata = map([("name", made.name.as_str().into())]);
    if !made.namespace.is_empty() {
        metadata.put("namespace", made.namespace.as_str());
    }
    if random.chance(40) {
        metadata.put("labels", make_pairs(random, 3));
    }
    if random.chance(30) {
        let mut annotations = make_pairs(random, 3);
        if random.chance(20) {
            annotations.put("notes", scalars::make_string(random));
        }
        if random.chance(6) {
            annotations.put("config.kubernetes.io/local-config", random.pick(&["true", "false"]));
        }
        if random.chance(4) {
            annotations.put("kustomize.config.k8s.io/needs-hash", "true");
        }
        if made.kind == "Ingress" && random.chance(40) {
            let (annotation, kind) = random.pick(&[
                ("nginx.ingress.kubernetes.io/auth-secret", "Secret"),
                ("nginx.ingress.kubernetes.io/auth-tls-secret", "Secret"),
                ("nginx.ingress.kubernetes.io/fastcgi-params-configmap", "ConfigMap"),
            ]);
            annotations.put(annotation, name_of(random, kind, known));
        }
        if random.chance(5) {
            annotations.put("config.kubernetes.io/depends-on", "/namespaces/prod/Service/web");
        }
        metadata.put("annotations", annotations);
    }
    if random.chance(5) {
        let (field, value) = random.pick(&[
            ("creationTimestamp", "null"),
            ("annotations", "{}"),
            ("labels", "{}"),
            ("labels", "{}"),
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
    if let Value::Map(body) = make_body(random, made, known) {
        head.extend(body);
    }
    if random.chance(3) {
        head.push(("status".to_owned(), Value::Map(Vec::new())));
    }
    Value::Map(head)
}
