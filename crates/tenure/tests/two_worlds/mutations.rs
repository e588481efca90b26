//! One change of an object towards another tenant, the platform or the cluster.

use serde_json::{Value, json};
use tenure_testkit::Chance;

use crate::cast::Scene;
use crate::host::name_project;
use crate::metadata::{draw_annotation, draw_finalizer, draw_label, draw_owner};
use crate::productions::{claim_spec, reference, user};

/// Changes one field of an object. Returns the changed part.
pub(crate) fn mutate(chance: &mut Chance, scene: &Scene, object: &mut Value) -> String {
    let fields = list_fields(scene, object);
    if !fields.is_empty() && !chance.once_in(3) {
        let (pointer, value) = chance.pick(&fields).cloned().unwrap();
        set(object, &pointer, value);
        return pointer;
    }
    match chance.draw_below(6) {
        0 => {
            let (key, value) = draw_label(chance, scene);
            object["metadata"]["labels"][&key] = value;
            format!("label {key}")
        }
        1 => {
            let (key, value) = draw_annotation(chance, scene);
            object["metadata"]["annotations"][&key] = value;
            format!("annotation {key}")
        }
        2 => {
            object["metadata"]["ownerReferences"] = json!([draw_owner(chance, scene)]);
            "an ownerReference".to_owned()
        }
        3 => {
            object["metadata"]["finalizers"] = json!([draw_finalizer(chance)]);
            "a finalizer".to_owned()
        }
        4 => {
            let names = [
                "kube-root-ca.crt",
                "tenure:lane",
                "tenure-lane",
                "default",
                "evil-gitops",
                "app",
            ];
            object["metadata"]["name"] = json!(chance.pick(&names).unwrap());
            "the name".to_owned()
        }
        _ => {
            let mut namespaces = scene.list_foreign();
            namespaces.extend(scene.list_mentioned());
            object["metadata"]["namespace"] = json!(chance.pick(&namespaces).unwrap());
            "the namespace".to_owned()
        }
    }
}

/// Sets a field, and creates missing parent objects.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for part in pointer.trim_start_matches('/').split('/') {
        place = match (part.parse::<usize>(), place.is_array()) {
            (Ok(index), true) => &mut place[index],
            _ => &mut place[part],
        };
    }
    *place = value;
}

/// Returns fields of this object's kind, with values that lead out of the tenant.
fn list_fields(scene: &Scene, object: &Value) -> Vec<(String, Value)> {
    let fields = match object["kind"].as_str().unwrap_or_default() {
        "Pod" => list_pod_fields(scene, ""),
        "Deployment" | "ReplicaSet" | "DaemonSet" | "Job" => list_pod_fields(scene, "/spec/template"),
        "CronJob" => list_pod_fields(scene, "/spec/jobTemplate/spec/template"),
        "StatefulSet" => {
            let mut fields = list_pod_fields(scene, "/spec/template");
            fields.extend(list_claim_fields(scene, "/spec/volumeClaimTemplates/0/spec"));
            let metadata = json!({ "name": "data", "namespace": scene.alpha });
            fields.push(("/spec/volumeClaimTemplates/0/metadata".to_owned(), metadata));
            fields
        }
        "PersistentVolumeClaim" => list_claim_fields(scene, "/spec"),
        "Secret" => vec![make_change(
            "/metadata/annotations",
            json!({ "kubernetes.io/service-account.name": format!("{}-gitops", scene.evil) }),
        )],
        "ServiceAccount" => vec![
            make_change(
                "/secrets",
                json!([{ "name": "api-key", "namespace": scene.of_alpha("dev") }]),
            ),
            make_change("/imagePullSecrets", json!([{ "name": "api-key" }])),
        ],
        "Service" => vec![
            make_change("/spec/externalIPs", json!(["192.0.2.7"])),
            make_change("/spec/type", json!("NodePort")),
            make_change("/spec/type", json!("LoadBalancer")),
            make_change("/spec/loadBalancerIP", json!("192.0.2.7")),
            make_change(
                "/spec",
                json!({ "type": "ExternalName", "externalName": format!("web.{}.svc", scene.alpha) }),
            ),
        ],
        "Ingress" => vec![
            make_change("/spec/rules/0/host", json!(format!("{}.example", scene.alpha))),
            make_change("/spec/rules/0/host", json!("*.example")),
            make_change("/spec/rules/0/host", json!("")),
            make_change(
                "/spec/defaultBackend",
                json!({ "service": { "name": "web", "port": { "number": 80 } } }),
            ),
            make_change("/spec/ingressClassName", json!("of-the-platform")),
            make_change(
                "/spec/tls",
                json!([{ "hosts": [format!("{}.example", scene.alpha)], "secretName": "api-key" }]),
            ),
        ],
        "Role" => vec![
            make_change("/rules/0/verbs", json!(["*"])),
            make_change("/rules/0/resources", json!(["endpoints"])),
            make_change(
                "/rules",
                json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]),
            ),
            make_change(
                "/rules",
                json!([{ "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["create"] }]),
            ),
            make_change(
                "/rules",
                json!([{ "apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["*"] }]),
            ),
        ],
        "RoleBinding" => list_binding_fields(scene),
        kind => list_flux_fields(scene, kind),
    };
    // A merge over an array can't create a missing field.
    fields.into_iter().filter(|(pointer, _)| !pointer.is_empty()).collect()
}

fn make_change(pointer: &str, value: Value) -> (String, Value) {
    (pointer.to_owned(), value)
}

fn list_pod_fields(scene: &Scene, template: &str) -> Vec<(String, Value)> {
    let mut claim = claim_spec();
    claim["volumeName"] = json!(scene.of_alpha("old"));
    let token = json!({ "serviceAccountToken": { "path": "token", "audience": "https://kubernetes.default.svc" } });
    let fields = [
        ("/spec/serviceAccountName", json!(format!("{}-gitops", scene.evil))),
        ("/spec/serviceAccountName", json!(format!("{}-gitops", scene.alpha))),
        ("/spec/hostNetwork", json!(true)),
        ("/spec/hostPID", json!(true)),
        ("/spec/nodeName", json!("node-1")),
        ("/spec/priorityClassName", json!("system-cluster-critical")),
        ("/spec/tolerations", json!([{ "operator": "Exists" }])),
        ("/spec/containers/0/image", json!("other.example/app:1")),
        ("/spec/containers/0/securityContext", json!({ "privileged": true })),
        (
            "/spec/initContainers",
            json!([{ "name": "first", "image": "other.example/app:1" }]),
        ),
        ("/spec/schedulerName", json!("of-the-platform")),
        (
            "/spec/volumes",
            json!([{ "name": "root", "hostPath": { "path": "/" } }]),
        ),
        (
            "/spec/volumes",
            json!([{ "name": "key", "secret": { "secretName": "api-key" } }]),
        ),
        (
            "/spec/volumes",
            json!([{ "name": "token", "projected": { "sources": [token] } }]),
        ),
        (
            "/spec/volumes",
            json!([{ "name": "data", "ephemeral": { "volumeClaimTemplate": { "spec": claim } } }]),
        ),
        (
            "/metadata/ownerReferences",
            json!([
                { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": scene.alpha_uid, "controller": true }
            ]),
        ),
        (
            "/metadata/annotations",
            json!({ "scheduler.alpha.kubernetes.io/node-selector": "pool=alpha" }),
        ),
    ];
    fields
        .map(|(field, value)| (format!("{template}{field}"), value))
        .into()
}

fn list_claim_fields(scene: &Scene, spec: &str) -> Vec<(String, Value)> {
    let source = json!({ "kind": "PersistentVolumeClaim", "name": "data", "namespace": scene.of_alpha("dev") });
    let fields = [
        ("/volumeName", json!(scene.of_alpha("old"))),
        ("/volumeName", json!("platform-data")),
        (
            "/selector",
            json!({ "matchLabels": { "capsule.clastix.io/tenant": scene.alpha } }),
        ),
        ("/selector", json!({ "matchLabels": { "any": "thing" } })),
        ("/storageClassName", json!("of-the-platform")),
        ("/storageClassName", json!("")),
        ("/dataSourceRef", source),
        (
            "/dataSource",
            json!({ "kind": "PersistentVolumeClaim", "name": "data" }),
        ),
    ];
    fields.map(|(field, value)| (format!("{spec}{field}"), value)).into()
}

fn list_binding_fields(scene: &Scene) -> Vec<(String, Value)> {
    let account =
        |namespace: &str, name: &str| json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name });
    let group = |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name });
    let subjects = [
        user(&format!("{}-owner", scene.alpha)),
        account(&scene.alpha, &format!("{}-gitops", scene.alpha)),
        account(&scene.evil, &format!("{}-gitops", scene.evil)),
        account(&scene.of_alpha("dev"), "default"),
        account("tenure-system", "tenure-secret-writer"),
        account("tenure-system", "tenure-controller"),
        account("tenure-system", &format!("tenure-lane-tenant-{}", scene.alpha)),
        account("kube-system", "generic-garbage-collector"),
        group("system:authenticated"),
        group("system:masters"),
        group(&format!("system:serviceaccounts:{}", scene.alpha)),
    ];
    let roles = [
        "cluster-admin",
        "tenure-lane",
        "tenure-secret-writer",
        "tenure-tenant-gitops",
        "tenure-home-owner",
        "tenure-author",
        "system:controller:endpoint-controller",
    ];
    let subjects = subjects.map(|subject| ("/subjects/0".to_owned(), subject));
    let roles = roles.map(|role| ("/roleRef".to_owned(), reference("ClusterRole", role)));
    subjects.into_iter().chain(roles).collect()
}

fn list_flux_fields(scene: &Scene, kind: &str) -> Vec<(String, Value)> {
    let account = json!(format!("{}-gitops", scene.alpha));
    let url = json!(format!("{}/{}", scene.git, scene.alpha));
    match kind {
        "GitRepository" => vec![
            make_change("/spec/url", url),
            make_change("/spec/url", json!("https://127.0.0.1:6443/evil")),
            make_change("/spec/secretRef", json!({ "name": "api-key" })),
            make_change(
                "/spec/include",
                json!([{ "repository": { "name": "app", "namespace": scene.alpha } }]),
            ),
        ],
        "Kustomization" => vec![
            make_change(
                "/spec/sourceRef",
                json!({ "kind": "GitRepository", "name": "app", "namespace": scene.alpha }),
            ),
            make_change("/spec/serviceAccountName", account),
            make_change("/spec/targetNamespace", json!(scene.alpha)),
            make_change("/spec/targetNamespace", json!("kube-system")),
            make_change("/spec/dependsOn", json!([{ "name": "app", "namespace": scene.alpha }])),
            make_change("/spec/kubeConfig", json!({ "secretRef": { "name": "api-key" } })),
            make_change(
                "/spec/healthChecks",
                json!([{ "apiVersion": "v1", "kind": "Secret", "name": "api-key", "namespace": scene.of_alpha("dev") }]),
            ),
            make_change(
                "/spec/postBuild",
                json!({ "substituteFrom": [{ "kind": "Secret", "name": "api-key" }] }),
            ),
        ],
        "Receiver" => vec![
            make_change("/spec/resources/0/namespace", json!(scene.alpha)),
            make_change("/spec/secretRef/name", json!("api-key")),
        ],
        "Alert" => vec![make_change("/spec/eventSources/0/namespace", json!(scene.alpha))],
        "Provider" => vec![
            make_change("/spec/address", json!("http://127.0.0.1:10250/run")),
            make_change("/spec/secretRef", json!({ "name": "api-key" })),
        ],
        "Surface" => vec![
            make_change("/spec/sources/0/url", url),
            make_change("/spec/sources/0/targetNamespace", json!(scene.alpha)),
            make_change("/spec/sources/0/targetNamespace", json!("tenure-system")),
            make_change("/spec/serviceAccountName", account),
        ],
        "FluxAccess" => vec![
            make_change("/spec/projects/0/id", json!(name_project(&scene.alpha))),
            make_change("/spec/projects/0/namespaces", json!([scene.alpha])),
            make_change("/spec/projects/0/namespaces", json!(["*"])),
            make_change("/spec/provider", json!("tenure-system/host")),
        ],
        _ => Vec::new(),
    }
}
