//! The limits of the controllers' account if each lane has its own Pod: it may run lanes, and nothing that looks like a lane.

use serde_json::{Value, json};
use tenure_api::workload::{LanePods, lane_deployment};
use tenure_testkit::{LANE_IMAGE, SOON, eventually};

use super::lanes::{account, binding};
use crate::stage::{DEPLOYMENT, Stage};

const PLATFORM: &str = "tenure-system";
const NAME: &str = "tenure-lane-tenant-lane-pods";
const POD: &str = "/spec/template/spec";
const CONTAINER: &str = "/spec/template/spec/containers/0";

/// Returns a lane's Deployment, as the controllers write it.
fn lane() -> Value {
    let pods = LanePods {
        image: LANE_IMAGE.to_owned(),
        hub: "tenure-lanes.tenure-system.svc:9643".to_owned(),
        memory: 700 << 20,
        disk: 2 << 30,
        ..LanePods::default()
    };
    lane_deployment(&pods, "tenant/lane-pods", NAME)
}

/// Returns the Deployment with changes at these paths, or with additions at the end of a list.
fn change_lane(changes: &[(&str, Value)]) -> Value {
    let mut object = lane();
    for (path, value) in changes {
        let (parent, key) = path.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/");
        match object.pointer_mut(parent).unwrap() {
            Value::Array(items) if key == "-" => items.push(value.clone()),
            Value::Array(items) => items[key.parse::<usize>().unwrap()] = value.clone(),
            Value::Object(fields) => drop(fields.insert(key, value.clone())),
            other => panic!("{other}"),
        }
    }
    object
}

fn in_pod(field: &str, value: Value) -> Value {
    change_lane(&[(&format!("{POD}/{field}"), value)])
}

fn in_container(field: &str, value: Value) -> Value {
    change_lane(&[(&format!("{CONTAINER}/{field}"), value)])
}

/// Returns the Deployment with an additional label in its Pods and their selector.
fn label_lane(label: &str, value: &str) -> Value {
    let places = ["/spec/selector/matchLabels", "/spec/template/metadata/labels"];
    let paths = places.map(|place| format!("{place}/{label}"));
    change_lane(&[(&paths[0], json!(value)), (&paths[1], json!(value))])
}

fn rename_lane(namespace: &str, name: &str) -> Value {
    change_lane(&[
        ("/metadata/namespace", json!(namespace)),
        ("/metadata/name", json!(name)),
        (&format!("{POD}/serviceAccountName"), json!(name)),
    ])
}

/// Lists attempts of an attacker with the controllers' token to run something else.
#[expect(clippy::too_many_lines, reason = "a table")]
fn list_attempts() -> Vec<(&'static str, Value)> {
    let asks = |address: Value| json!({ "httpGet": address });
    let mut second = lane().pointer(CONTAINER).unwrap().clone();
    second["name"] = json!("second");
    for field in ["livenessProbe", "ports", "readinessProbe"] {
        second.as_object_mut().unwrap().remove(field);
    }
    let mut gpu = lane().pointer(&format!("{CONTAINER}/resources")).unwrap().clone();
    for amounts in ["limits", "requests"] {
        gpu[amounts]["example.com/gpu"] = json!("1");
    }
    let secret = |name: &str| json!({ "name": name, "secret": { "secretName": "tenure-lanes" } });
    vec![
        ("another image", in_container("image", json!("example.invalid/other:1"))),
        ("another program", in_container("command", json!(["/bin/sh"]))),
        ("the hub in place of a lane", in_container("args/0", json!("run"))),
        ("a folder that is another's", in_container("args/5", json!("--data=/"))),
        ("one argument more", in_container("args/-", json!("--data=/"))),
        ("no arguments", in_container("args", json!([]))),
        ("a second container", in_pod("containers/-", second.clone())),
        ("a container before it", in_pod("initContainers", json!([second]))),
        (
            "as the controllers",
            in_pod("serviceAccountName", json!("tenure-controller")),
        ),
        (
            "as who writes credentials",
            in_pod("serviceAccountName", json!("tenure-secret-writer")),
        ),
        (
            "as another lane",
            in_pod("serviceAccountName", json!("tenure-lane-platform")),
        ),
        ("with any token", in_pod("automountServiceAccountToken", json!(true))),
        ("the node's network", in_pod("hostNetwork", json!(true))),
        ("the node's processes", in_pod("hostPID", json!(true))),
        ("the node's memory", in_pod("hostIPC", json!(true))),
        ("a node of its choice", in_pod("nodeName", json!("control-plane"))),
        (
            "the nodes of the control plane",
            in_pod("nodeSelector/node-role.kubernetes.io~1control-plane", json!("")),
        ),
        (
            "a node that tolerates nobody",
            in_pod("tolerations", json!([{ "operator": "Exists" }])),
        ),
        (
            "before everybody else",
            in_pod("priorityClassName", json!("system-cluster-critical")),
        ),
        (
            "a folder of the node",
            in_pod("volumes/-", json!({ "name": "host", "hostPath": { "path": "/" } })),
        ),
        ("a Secret besides", in_pod("volumes/-", secret("more"))),
        ("a Secret for its folder", in_pod("volumes/0", secret("data"))),
        (
            "another authority",
            in_pod("volumes/1/configMap/name", json!("kube-root-ca.crt")),
        ),
        (
            "a token for somebody else",
            in_pod(
                "volumes/2/projected/sources/0/serviceAccountToken/audience",
                json!("vault"),
            ),
        ),
        (
            "a Secret beside its tokens",
            in_pod(
                "volumes/2/projected/sources/-",
                json!({ "secret": { "name": "tenure-lanes" } }),
            ),
        ),
        (
            "a Secret in a variable",
            in_container(
                "env/0",
                json!({ "name": "TENURE_LOG", "valueFrom": { "secretKeyRef": { "name": "tenure-lanes", "key": "tls.key" } } }),
            ),
        ),
        (
            "a variable that the program loads by",
            in_container("env/-", json!({ "name": "LD_PRELOAD", "value": "/x.so" })),
        ),
        (
            "a Secret as variables",
            in_container("envFrom", json!([{ "secretRef": { "name": "tenure-lanes" } }])),
        ),
        (
            "all of the node",
            in_container("securityContext", json!({ "privileged": true })),
        ),
        (
            "a capability",
            in_container("securityContext/capabilities", json!({ "add": ["NET_ADMIN"] })),
        ),
        ("as root", in_pod("securityContext", json!({ "runAsUser": 0 }))),
        ("a port of the node", in_container("ports/0/hostPort", json!(9440))),
        (
            "a program as a probe",
            in_container("livenessProbe", json!({ "exec": { "command": ["/tenure", "run"] } })),
        ),
        (
            "a probe of somebody else",
            in_container(
                "readinessProbe",
                asks(json!({ "path": "/", "port": 80, "host": "169.254.169.254" })),
            ),
        ),
        (
            "a program at the start",
            in_container(
                "lifecycle",
                json!({ "postStart": { "exec": { "command": ["/tenure", "run"] } } }),
            ),
        ),
        ("without bounds", in_container("resources", json!({}))),
        ("a device", in_container("resources", gpu)),
        ("fifty of them", change_lane(&[("/spec/replicas", json!(50))])),
        (
            "requests to the hub",
            label_lane("app.kubernetes.io~1component", "controllers"),
        ),
        (
            "what the platform's lane reaches",
            label_lane("tenure.dev~1lane", "platform"),
        ),
        ("a label that others select by", label_lane("app", "helm-controller")),
        (
            "an annotation by which others add to it",
            change_lane(&[(
                "/spec/template/metadata/annotations",
                json!({ "sidecar.istio.io/inject": "true" }),
            )]),
        ),
        ("the controllers' own", rename_lane(PLATFORM, "tenure-controller-more")),
        ("another namespace", rename_lane("lane-pods", NAME)),
    ]
}

/// RBAC lets the controllers write any Deployment of the platform's namespace, because it can't know the names of lanes. A policy above the
/// controllers prevents misuse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controllers_token_runs_nothing_but_lanes() {
    let mut stage = Stage::set("lane-pods").await.planting(&[]).await;
    // Running controllers would delete the Deployment of a lane without work.
    stage.pause().await;
    stage.install_lane_pods().await;
    stage.send_guard_away();
    let admin = stage.admin.clone();
    let itself = account(PLATFORM, "tenure-controller");
    let more = binding("RoleBinding", Some("lane-pods"), "lane-pods", "edit", &itself);
    admin.apply(more).await.unwrap();
    let hub = stage.bearing(PLATFORM, "tenure-controller").await;

    let mut wrong = Vec::new();
    for (what, object) in list_attempts() {
        // The server follows policies and roles with a watch. The next attempt changes an object that was admitted before, or it is removed below.
        let asked = eventually(SOON, || async {
            match hub.apply(object.clone()).await {
                Err(error) if error.to_string().contains("(controller-rights)") => Ok(None),
                // An invalid object is no attempt at all.
                Err(error) if error.to_string().contains("is invalid") => Ok(Some(format!("{what}: {error}"))),
                other => Err(format!("{what}: {other:?}")),
            }
        });
        wrong.extend(asked.await.unwrap_or_else(Some));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    admin.delete(DEPLOYMENT, (PLATFORM, NAME)).await.unwrap();

    // The control: the intended use works, also after another writer has added something.
    hub.apply(lane()).await.unwrap();
    let added = json!({ "spec": { "template": {
        "metadata": { "annotations": { "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z" } },
        "spec": { "tolerations": [{ "key": "lanes", "operator": "Exists" }] }
    } } });
    admin.patch(DEPLOYMENT, (PLATFORM, NAME), added).await.unwrap();
    let again = in_container("env/-", json!({ "name": "TENURE_LOG", "value": "debug" }));
    let written = hub.apply(again).await.unwrap();
    assert_eq!(written["spec"]["template"]["spec"]["tolerations"][0]["key"], "lanes");
    // An existing Deployment can't become another one, and the controllers can't change additions of other writers.
    let mut other = lane().pointer(CONTAINER).unwrap().clone();
    other["image"] = json!("example.invalid/other:1");
    for (what, spec) in [
        ("another image", json!({ "containers": [other] })),
        (
            "other tolerations",
            json!({ "tolerations": [{ "operator": "Exists" }] }),
        ),
    ] {
        let patch = json!({ "spec": { "template": { "spec": spec } } });
        let refused = hub.patch(DEPLOYMENT, (PLATFORM, NAME), patch).await;
        let message = refused.expect_err(what).to_string();
        assert!(message.contains("(controller-rights)"), "{what}: {message}");
    }
    // Deployments of others are neither changed nor deleted. An administrator may do everything.
    admin.apply(rename_lane(PLATFORM, "lane-pods-other")).await.unwrap();
    let scaled = json!({ "spec": { "replicas": 0 } });
    let refused = hub.patch(DEPLOYMENT, (PLATFORM, "lane-pods-other"), scaled).await;
    assert!(refused.unwrap_err().to_string().contains("(controller-rights)"));
    let refused = hub.delete(DEPLOYMENT, (PLATFORM, "lane-pods-other")).await;
    assert!(refused.unwrap_err().to_string().contains("(controller-rights)"));
    admin.delete(DEPLOYMENT, (PLATFORM, "lane-pods-other")).await.unwrap();
    hub.delete(DEPLOYMENT, (PLATFORM, NAME)).await.unwrap();
    stage.resume();
    stage.shut_down().await;
}
