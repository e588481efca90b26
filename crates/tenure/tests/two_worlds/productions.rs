//! Objects that `evil` may certainly write, with one production for each kind. One change of such an object produces a request near the boundary.

use serde_json::{Value, json};
use tenure_testkit::Chance;

use crate::cast::Scene;
use crate::host::{PROVIDER, name_project};

pub(crate) const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// The image, the classes and the priority that its Tenant allows.
pub(crate) const IMAGE: &str = "registry.example/app:1";
pub(crate) const STORAGE_CLASS: &str = "two-worlds-fast";
pub(crate) const INGRESS_CLASS: &str = "two-worlds-web";
pub(crate) const PRIORITY_CLASS: &str = "two-worlds-small";

/// The namespaces in which a production writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Any namespace of the tenant's.
    Own,
    /// The home namespace, where an administrator bound the tenant's owner to the kinds of Flux and Tenure.
    Home,
}

/// A kind of objects that the tenant writes.
pub(crate) struct Production {
    /// The name in the table of counts.
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    draw: fn(&mut Chance, &Scene) -> Value,
}

impl Production {
    /// Returns an object that the tenant may write. The number makes names unique.
    pub(crate) fn draw(&self, chance: &mut Chance, scene: &Scene, namespace: &str, number: usize) -> Value {
        let mut object = (self.draw)(chance, scene);
        let name = object["metadata"]["name"].as_str().unwrap_or(self.name).to_owned();
        object["metadata"]["name"] = json!(format!("{}-{number}", name.to_lowercase()));
        object["metadata"]["namespace"] = json!(namespace);
        object
    }
}

const fn own(name: &'static str, draw: fn(&mut Chance, &Scene) -> Value) -> Production {
    Production {
        name,
        place: Place::Own,
        draw,
    }
}

const fn home(name: &'static str, draw: fn(&mut Chance, &Scene) -> Value) -> Production {
    Production {
        name,
        place: Place::Home,
        draw,
    }
}

/// All productions of namespaced objects.
pub(crate) const PRODUCTIONS: [Production; 27] = [
    own("ConfigMap", |_, _| {
        make_object("v1", "ConfigMap", json!({ "data": { "by": "evil" } }))
    }),
    own("Secret", |_, _| {
        make_object("v1", "Secret", json!({ "stringData": { "by": "evil" } }))
    }),
    own("Secret of a token", |_, _| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": { "name": "token", "annotations": { "kubernetes.io/service-account.name": "robot" } }
        })
    }),
    own("ServiceAccount", |_, _| make_object("v1", "ServiceAccount", json!({}))),
    own("Pod", |_, _| make_object("v1", "Pod", json!({ "spec": pod_spec() }))),
    own("Deployment", |_, _| {
        make_object("apps/v1", "Deployment", json!({ "spec": with_template() }))
    }),
    own("ReplicaSet", |_, _| {
        make_object("apps/v1", "ReplicaSet", json!({ "spec": with_template() }))
    }),
    own("DaemonSet", |_, _| {
        make_object("apps/v1", "DaemonSet", json!({ "spec": with_template() }))
    }),
    own("StatefulSet", |chance, _| {
        let mut spec = with_template();
        spec["serviceName"] = json!("web");
        spec["replicas"] = json!(1 + chance.draw_below(2));
        spec["volumeClaimTemplates"] = json!([{ "metadata": { "name": "data" }, "spec": claim_spec() }]);
        make_object("apps/v1", "StatefulSet", json!({ "spec": spec }))
    }),
    own("Job", |_, _| {
        make_object("batch/v1", "Job", json!({ "spec": { "template": once() } }))
    }),
    own("CronJob", |_, _| {
        let job = json!({ "spec": { "template": once() } });
        make_object(
            "batch/v1",
            "CronJob",
            json!({ "spec": { "schedule": "0 0 1 1 *", "jobTemplate": job } }),
        )
    }),
    own("PersistentVolumeClaim", |_, _| {
        make_object("v1", "PersistentVolumeClaim", json!({ "spec": claim_spec() }))
    }),
    own("Service", |_, _| {
        let spec = json!({ "selector": { "app": "evil" }, "ports": [{ "port": 80 }] });
        make_object("v1", "Service", json!({ "spec": spec }))
    }),
    own("Service without a selector", |_, _| {
        make_object("v1", "Service", json!({ "spec": { "ports": [{ "port": 443 }] } }))
    }),
    own("Ingress", |chance, scene| {
        let backend = json!({ "service": { "name": "web", "port": { "number": 80 } } });
        let path =
            json!({ "path": format!("/{}", chance.draw_below(1 << 20)), "pathType": "Prefix", "backend": backend });
        let rule = json!({ "host": format!("{}.example", scene.evil), "http": { "paths": [path] } });
        let spec = json!({ "ingressClassName": INGRESS_CLASS, "rules": [rule] });
        make_object("networking.k8s.io/v1", "Ingress", json!({ "spec": spec }))
    }),
    own("NetworkPolicy", |chance, _| {
        let rules = if chance.once_in(2) { json!([{}]) } else { json!([]) };
        let spec = json!({ "podSelector": {}, "policyTypes": ["Ingress"], "ingress": rules });
        make_object("networking.k8s.io/v1", "NetworkPolicy", json!({ "spec": spec }))
    }),
    own("PodDisruptionBudget", |_, _| {
        let spec = json!({ "maxUnavailable": 1, "selector": { "matchLabels": { "app": "evil" } } });
        make_object("policy/v1", "PodDisruptionBudget", json!({ "spec": spec }))
    }),
    own("Role", |_, _| {
        let rules =
            json!([{ "apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["get", "list", "create"] }]);
        make_object(RBAC, "Role", json!({ "rules": rules }))
    }),
    own("RoleBinding", |chance, scene| {
        let roles = ["admin", "edit", "view"];
        let subjects = [
            user(&scene.of_evil("guest")),
            json!({ "kind": "ServiceAccount", "namespace": scene.evil, "name": "robot" }),
        ];
        let role = chance.pick(&roles).copied().unwrap();
        binding("ClusterRole", role, chance.pick(&subjects).cloned().unwrap())
    }),
    own("RoleBinding to a Role", |_, scene| {
        binding("Role", "reader", user(&scene.of_evil("guest")))
    }),
    home("GitRepository", |_, scene| {
        let spec =
            json!({ "url": format!("{}/{}", scene.git, scene.evil), "interval": "1h", "ref": { "branch": "main" } });
        make_object("source.toolkit.fluxcd.io/v1", "GitRepository", json!({ "spec": spec }))
    }),
    home("Kustomization", |_, scene| {
        let spec = json!({
            "interval": "1h", "retryInterval": "5s", "prune": true, "path": "./", "targetNamespace": scene.evil,
            "serviceAccountName": format!("{}-gitops", scene.evil), "sourceRef": { "kind": "GitRepository", "name": "app" }
        });
        make_object(
            "kustomize.toolkit.fluxcd.io/v1",
            "Kustomization",
            json!({ "spec": spec }),
        )
    }),
    home("Receiver", |_, _| {
        let resources =
            json!([{ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "name": "app" }]);
        let spec = json!({ "type": "generic", "secretRef": { "name": "hook" }, "resources": resources });
        make_object("notification.toolkit.fluxcd.io/v1", "Receiver", json!({ "spec": spec }))
    }),
    home("Alert", |_, _| {
        let spec =
            json!({ "providerRef": { "name": "hook" }, "eventSources": [{ "kind": "Kustomization", "name": "*" }] });
        make_object(
            "notification.toolkit.fluxcd.io/v1beta3",
            "Alert",
            json!({ "spec": spec }),
        )
    }),
    home("Provider", |_, scene| {
        let spec = json!({ "type": "generic", "address": format!("https://{}.example/hook", scene.evil) });
        make_object(
            "notification.toolkit.fluxcd.io/v1beta3",
            "Provider",
            json!({ "spec": spec }),
        )
    }),
    home("Surface", |_, scene| {
        let source = json!({
            "name": "app", "url": format!("{}/{}", scene.git, scene.evil), "ref": { "branch": "main" }, "interval": "1h",
            "retryInterval": "5s", "targetNamespace": scene.evil
        });
        make_object(
            "tenure.dev/v1alpha1",
            "Surface",
            json!({ "spec": { "sources": [source] } }),
        )
    }),
    home("FluxAccess", |_, scene| {
        let project = json!({ "id": name_project(&scene.evil), "namespaces": [scene.evil] });
        // Policies set no annotation, so an object without the annotation is denied there.
        json!({
            "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccess",
            "metadata": { "name": "fluxaccess", "annotations": { "tenure.dev/requested-by": scene.of_evil("owner") } },
            "spec": { "provider": PROVIDER, "role": "read_repository", "projects": [project] }
        })
    }),
];

/// Returns an object of this kind, named by its kind.
fn make_object(version: &str, kind: &str, rest: Value) -> Value {
    let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": kind.to_lowercase() } });
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

fn pod_spec() -> Value {
    json!({ "priorityClassName": PRIORITY_CLASS, "containers": [{ "name": "main", "image": IMAGE }] })
}

fn with_template() -> Value {
    json!({
        "selector": { "matchLabels": { "app": "evil" } },
        "template": { "metadata": { "labels": { "app": "evil" } }, "spec": pod_spec() }
    })
}

fn once() -> Value {
    let mut template = json!({ "metadata": { "labels": { "job": "evil" } }, "spec": pod_spec() });
    template["spec"]["restartPolicy"] = json!("Never");
    template
}

pub(crate) fn claim_spec() -> Value {
    json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": STORAGE_CLASS, "resources": { "requests": { "storage": "1Gi" } } })
}

pub(crate) fn user(name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name })
}

pub(crate) fn reference(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name })
}

fn binding(kind: &str, role: &str, subject: Value) -> Value {
    make_object(
        RBAC,
        "RoleBinding",
        json!({ "roleRef": reference(kind, role), "subjects": [subject] }),
    )
}
