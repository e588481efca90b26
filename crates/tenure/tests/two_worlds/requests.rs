//! Objects that `evil` draws: of each kind that an owner may write, and of some that none may. Most mention what is not `evil`'s.

use serde_json::{Value, json};
use tenure_testkit::Chance;

use crate::metadata::{Scene, lay_metadata};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Draws an object of this namespace.
pub(crate) fn draw_object(chance: &mut Chance, scene: &Scene, namespace: &str) -> Value {
    const DRAWS: [fn(&mut Chance, &Scene) -> Value; 9] = [
        draw_core,
        draw_claim,
        draw_workload,
        draw_workload,
        draw_rights,
        draw_rights,
        draw_network,
        draw_flux,
        draw_tenure,
    ];
    let draw = chance.pick(&DRAWS).copied().unwrap();
    let mut object = draw(chance, scene);
    object["metadata"]["namespace"] = json!(namespace);
    lay_metadata(chance, scene, &mut object);
    object
}

fn pick(chance: &mut Chance, names: &[&'static str]) -> &'static str {
    chance.pick(names).copied().unwrap()
}

fn named(version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

fn draw_core(chance: &mut Chance, _: &Scene) -> Value {
    let account = pick(
        chance,
        &[
            "default",
            "evil-gitops",
            "alpha-gitops",
            "argocd-application-controller",
            "robot",
            "deployer",
        ],
    );
    match chance.below(6) {
        0 => named(
            "v1",
            "ConfigMap",
            pick(chance, &["settings", "app", "kube-root-ca.crt"]),
            json!({ "data": { "by": "evil" } }),
        ),
        1 => json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "token", "annotations": { "kubernetes.io/service-account.name": account } },
            "type": "kubernetes.io/service-account-token"
        }),
        2 => named(
            "v1",
            "Secret",
            pick(chance, &["data", "credentials"]),
            json!({ "stringData": { "by": "evil" } }),
        ),
        3 => named(
            "v1",
            "ServiceAccount",
            account,
            json!({ "imagePullSecrets": [{ "name": "credentials" }] }),
        ),
        4 => named(
            "v1",
            "ResourceQuota",
            "evil",
            json!({ "spec": { "hard": { "pods": "0" } } }),
        ),
        _ => named(
            "v1",
            "LimitRange",
            "evil",
            json!({ "spec": { "limits": [{ "type": "Container", "max": { "cpu": "1m" } }] } }),
        ),
    }
}

fn claim_spec(chance: &mut Chance) -> Value {
    let mut spec = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": { "requests": { "storage": "1Gi" } } });
    match chance.below(4) {
        0 => spec["volumeName"] = json!("alpha-old"),
        1 => spec["selector"] = json!({ "matchLabels": { "capsule.clastix.io/tenant": "alpha" } }),
        2 => spec["volumeName"] = json!("platform-data"),
        _ => spec["storageClassName"] = json!("absent"),
    }
    spec
}

fn draw_claim(chance: &mut Chance, _: &Scene) -> Value {
    named(
        "v1",
        "PersistentVolumeClaim",
        pick(chance, &["data", "old"]),
        json!({ "spec": claim_spec(chance) }),
    )
}

fn pod_spec(chance: &mut Chance) -> Value {
    let image = pick(chance, &["registry.example/app:1", "other.example/app:1"]);
    let mut spec = json!({ "containers": [{ "name": "main", "image": image }] });
    match chance.below(8) {
        0 => spec["serviceAccountName"] = json!("evil-gitops"),
        1 => spec["serviceAccountName"] = json!("alpha-gitops"),
        2 => spec["hostNetwork"] = json!(true),
        3 => spec["nodeName"] = json!("node-1"),
        4 => spec["volumes"] = json!([{ "name": "root", "hostPath": { "path": "/" } }]),
        5 => {
            spec["volumes"] =
                json!([{ "name": "data", "ephemeral": { "volumeClaimTemplate": { "spec": claim_spec(chance) } } }]);
        }
        6 => spec["priorityClassName"] = json!("system-cluster-critical"),
        _ => {}
    }
    spec
}

fn draw_workload(chance: &mut Chance, _: &Scene) -> Value {
    let template = json!({ "metadata": { "labels": { "app": "evil" } }, "spec": pod_spec(chance) });
    let selector = json!({ "matchLabels": { "app": "evil" } });
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    match chance.below(7) {
        0 => named("v1", "Pod", "evil", json!({ "spec": template["spec"] })),
        1 => named(
            "apps/v1",
            "Deployment",
            "evil",
            json!({ "spec": { "selector": selector, "template": template } }),
        ),
        2 => named(
            "apps/v1",
            "DaemonSet",
            "evil",
            json!({ "spec": { "selector": selector, "template": template } }),
        ),
        3 => named(
            "apps/v1",
            "ReplicaSet",
            "evil",
            json!({ "spec": { "selector": selector, "template": template } }),
        ),
        4 => named("batch/v1", "Job", "evil", json!({ "spec": { "template": once } })),
        5 => named(
            "batch/v1",
            "CronJob",
            "evil",
            json!({ "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": { "template": once } } } }),
        ),
        _ => named(
            "apps/v1",
            "StatefulSet",
            "evil",
            json!({ "spec": {
                "serviceName": "evil", "replicas": 1 + chance.below(2), "selector": selector, "template": template,
                "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim_spec(chance) }]
            } }),
        ),
    }
}

fn draw_rights(chance: &mut Chance, _: &Scene) -> Value {
    if chance.once_in(4) {
        let rules = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
        return named(RBAC, "Role", pick(chance, &["all", "flux"]), json!({ "rules": rules }));
    }
    let role = pick(
        chance,
        &[
            "admin",
            "view",
            "cluster-admin",
            "tenure-lane",
            "tenure-secret-writer",
            "tenure-tenant-gitops",
            "all",
        ],
    );
    let kind = if role == "all" { "Role" } else { "ClusterRole" };
    let user = |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name });
    let account =
        |namespace: &str, name: &str| json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name });
    let subjects = [
        user("evil-owner"),
        user("alpha-owner"),
        account("alpha", "alpha-gitops"),
        account("alpha", "default"),
        account("tenure-system", "tenure-secret-writer"),
        account("tenure-system", "tenure-controller"),
        account("tenure-system", "tenure-lane-tenant-alpha"),
        account("evil", "default"),
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated" }),
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:alpha" }),
    ];
    let subject = chance.pick(&subjects).cloned().unwrap();
    let name = pick(chance, &["extra", "flux", "tenure:lane", "tenure-lane"]);
    let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role });
    named(
        RBAC,
        "RoleBinding",
        name,
        json!({ "roleRef": reference, "subjects": [subject] }),
    )
}

fn draw_network(chance: &mut Chance, _: &Scene) -> Value {
    match chance.below(7) {
        0 => named(
            "networking.k8s.io/v1",
            "Ingress",
            "evil",
            json!({ "spec": { "rules": [{ "host": pick(chance, &["alpha.example", "evil.example"]), "http": { "paths": [{
                "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "web", "port": { "number": 80 } } }
            }] } }] } }),
        ),
        1 => named(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "all",
            json!({ "spec": { "podSelector": {}, "ingress": [{}] } }),
        ),
        2 => named(
            "v1",
            "Service",
            "web",
            json!({ "spec": { "ports": [{ "port": 80 }], "externalIPs": ["192.0.2.7"] } }),
        ),
        3 => named(
            "v1",
            "Service",
            "web",
            json!({ "spec": { "type": "ExternalName", "externalName": "web.alpha.svc" } }),
        ),
        4 => named(
            "v1",
            "Service",
            "node",
            json!({ "spec": { "type": "NodePort", "ports": [{ "port": 80 }] } }),
        ),
        5 => named(
            "v1",
            "Service",
            "web",
            json!({ "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } }),
        ),
        _ => json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": "web-evil", "labels": { "kubernetes.io/service-name": "web" } },
            "endpoints": [{ "addresses": ["192.0.2.9"] }], "ports": [{ "port": 80 }]
        }),
    }
}

fn draw_flux(chance: &mut Chance, scene: &Scene) -> Value {
    let repository = pick(chance, &["evil", "alpha"]);
    let url = format!("{}/{repository}", scene.git);
    let target = pick(chance, &["alpha", "evil", "kube-system", "tenure-system"]);
    match chance.below(6) {
        0 => named(
            "source.toolkit.fluxcd.io/v1",
            "GitRepository",
            pick(chance, &["evil", "app"]),
            json!({ "spec": { "url": url, "interval": "5s", "ref": { "branch": "main" } } }),
        ),
        1 | 2 => {
            let mut spec = json!({
                "interval": "5s", "retryInterval": "1s", "prune": true, "path": "./", "targetNamespace": target,
                "sourceRef": { "kind": "GitRepository", "name": "evil" }
            });
            match chance.below(5) {
                0 => spec["sourceRef"] = json!({ "kind": "GitRepository", "name": "app", "namespace": "alpha" }),
                1 => {
                    spec["serviceAccountName"] = json!(pick(
                        chance,
                        &["alpha-gitops", "evil-gitops", "argocd-application-controller"]
                    ))
                }
                2 => spec["dependsOn"] = json!([{ "name": "app", "namespace": "alpha" }]),
                3 => spec["targetNamespace"] = json!("evil"),
                _ => spec["kubeConfig"] = json!({ "secretRef": { "name": "credentials" } }),
            }
            named(
                "kustomize.toolkit.fluxcd.io/v1",
                "Kustomization",
                pick(chance, &["evil", "app"]),
                json!({ "spec": spec }),
            )
        }
        3 => named(
            "notification.toolkit.fluxcd.io/v1",
            "Receiver",
            "evil",
            json!({ "spec": { "type": "generic", "secretRef": { "name": "data" }, "resources": [
                { "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "name": "app", "namespace": "alpha" }
            ] } }),
        ),
        4 => named(
            "notification.toolkit.fluxcd.io/v1beta3",
            "Alert",
            "evil",
            json!({ "spec": { "providerRef": { "name": "evil" }, "eventSources": [{ "kind": "Kustomization", "name": "*", "namespace": "alpha" }] } }),
        ),
        _ => named(
            "notification.toolkit.fluxcd.io/v1beta3",
            "Provider",
            "evil",
            json!({ "spec": { "type": "generic", "address": "https://evil.example/hook" } }),
        ),
    }
}

fn draw_tenure(chance: &mut Chance, scene: &Scene) -> Value {
    let target = pick(chance, &["alpha", "evil", "tenure-system"]);
    match chance.below(3) {
        0 | 1 => named(
            "tenure.dev/v1alpha1",
            "Surface",
            pick(chance, &["evil", "app"]),
            json!({ "spec": { "sources": [{
                "name": "app", "url": format!("{}/evil", scene.git), "ref": { "branch": "main" }, "interval": "1s",
                "retryInterval": "1s", "targetNamespace": target
            }] } }),
        ),
        _ => named(
            "coordination.k8s.io/v1",
            "Lease",
            "tenure-controller",
            json!({ "spec": { "holderIdentity": "evil", "leaseDurationSeconds": 3600 } }),
        ),
    }
}

/// Draws an object of the whole cluster. No owner may write one; what lets one through is a hole.
pub(crate) fn draw_cluster_object(chance: &mut Chance, scene: &Scene) -> Value {
    let subject = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "evil-owner" });
    let reference =
        |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
    let mut object = match chance.below(4) {
        0 => named(
            RBAC,
            "ClusterRoleBinding",
            "tenure:evil:more",
            json!({ "roleRef": reference("cluster-admin"), "subjects": [subject] }),
        ),
        1 => named(
            "v1",
            "PersistentVolume",
            "evil-root",
            json!({ "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/" } } }),
        ),
        2 => named(
            "capsule.clastix.io/v1beta2",
            "Tenant",
            pick(chance, &["evil", "alpha", "third"]),
            json!({ "spec": { "owners": [{ "kind": "User", "name": "evil-owner" }] } }),
        ),
        _ => named(
            RBAC,
            "ClusterRole",
            pick(chance, &["admin", "tenure-lane"]),
            json!({ "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] }),
        ),
    };
    lay_metadata(chance, scene, &mut object);
    object
}
