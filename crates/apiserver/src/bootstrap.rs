//! The objects of every new cluster: namespaces, priority classes, roles and bindings, and the API server's address.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use serde_json::{Value, json};
use tenure_auth::authorization::{Reconciled, bootstrap_objects, reconcile_object};
use tenure_auth::identity::{ObjectLookup, UserInfo};

use crate::catalog::Resource;
use crate::http::ApiError;
use crate::operation::{DeleteOptions, Operation};
use crate::registry::{OWN_MANAGER, ObjectExt, Registry};

const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];
/// The name of the API server's own Service.
const ADVERTISED: &str = "kubernetes";
const SCHEDULING: &str = "scheduling.k8s.io";
/// The priority classes of a cluster's essential Pods.
const PRIORITIES: [(&str, u32, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

/// Creates missing objects and updates roles; additions of an administrator stay.
pub(crate) async fn run(registry: &Registry) -> Result<(), ApiError> {
    let user = UserInfo::loopback();
    let view = registry.view();
    let mut first = Vec::new();
    for name in NAMESPACES {
        if !view.exists("", "namespaces", None, name) {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            first.push((
                make_operation(registry, &user, "", "v1", "namespaces", None)?,
                namespace,
            ));
        }
    }
    for (name, value, description) in PRIORITIES {
        if !view.exists(SCHEDULING, "priorityclasses", None, name) {
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": value, "description": description,
            });
            let op = make_operation(registry, &user, SCHEDULING, "v1", "priorityclasses", None)?;
            first.push((op, class));
        }
    }
    let writes = first
        .into_iter()
        .map(|(op, object)| async move { registry.create(&op, object).await });
    // All writes share one transaction of the store.
    for outcome in futures::future::join_all(writes).await {
        outcome?;
    }
    let mut roles = Vec::new();
    for expected in bootstrap_objects() {
        let namespace = Some(expected.object.namespace().to_owned()).filter(|namespace| !namespace.is_empty());
        let plural = expected.kind.resource();
        let live = registry.view().get(
            "rbac.authorization.k8s.io",
            plural,
            namespace.as_deref(),
            expected.object.name(),
        );
        let op = make_operation(registry, &user, "rbac.authorization.k8s.io", "v1", plural, namespace)?;
        let wanted = reconcile_object(&expected, live.as_deref());
        roles.push(async move { write(registry, &op, wanted).await });
    }
    for outcome in futures::future::join_all(roles).await {
        outcome?;
    }
    Ok(())
}

/// Writes the API server's address for clients within the cluster: the Service `kubernetes`, and its endpoints unless
/// only this machine can reach the address.
pub(crate) async fn advertise_address(registry: &Registry, address: SocketAddr) -> Result<(), ApiError> {
    let port = address.port();
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": ADVERTISED, "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            "type": "ClusterIP", "sessionAffinity": "None", "clusterIP": registry.view().services().first(),
        },
    });
    publish_object(registry, "", "services", service, "/spec/ports").await?;
    let Some(ip) = reachable_address(address.ip()) else {
        return Ok(());
    };
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": ADVERTISED, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": ip.to_string()}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}],
    });
    publish_object(registry, "", "endpoints", endpoints, "/subsets").await?;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": ADVERTISED, "labels": {"kubernetes.io/service-name": ADVERTISED}},
        "addressType": if ip.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [ip.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    let slices = "discovery.k8s.io";
    publish_object(registry, slices, "endpointslices", slice.clone(), "/endpoints").await?;
    publish_object(registry, slices, "endpointslices", slice, "/ports").await
}

/// Creates an object, or updates the part of it at `pointer`. Changes of other writers to the rest stay.
async fn publish_object(
    registry: &Registry,
    group: &str,
    plural: &str,
    wanted: Value,
    pointer: &str,
) -> Result<(), ApiError> {
    let user = UserInfo::loopback();
    let namespace = Some("default".to_owned());
    let op = make_operation(registry, &user, group, "v1", plural, namespace.clone())?;
    let Some(live) = registry.view().get(group, plural, namespace.as_deref(), ADVERTISED) else {
        registry.create(&op, wanted).await?;
        return Ok(());
    };
    let mut new = Value::clone(&live);
    if let (Some(part), Some(value)) = (new.pointer_mut(pointer), wanted.pointer(pointer))
        && part != value
    {
        *part = value.clone();
        registry.update(&op, ADVERTISED, new).await?;
    }
    Ok(())
}

/// Returns the address at which other machines reach a listener; `None` if it listens on the loopback.
fn reachable_address(bound: IpAddr) -> Option<IpAddr> {
    if !bound.is_unspecified() {
        return (!bound.is_loopback()).then_some(bound);
    }
    // This sends nothing: the system only reports which of its addresses it would use.
    let socket = UdpSocket::bind((bound, 0)).ok()?;
    let anywhere = if bound.is_ipv4() {
        "192.0.2.1:9"
    } else {
        "[2001:db8::1]:9"
    };
    socket.connect(anywhere).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

async fn write(registry: &Registry, op: &Operation, wanted: Reconciled) -> Result<(), ApiError> {
    let named = |object: &Value| object.name().to_owned();
    match wanted {
        Reconciled::Unchanged => {}
        Reconciled::Create(object) => {
            registry.create(op, object).await?;
        }
        Reconciled::Update(object) => {
            registry.update(op, &named(&object), object).await?;
        }
        Reconciled::Replace(object) => {
            registry.delete(op, &named(&object), &DeleteOptions::default()).await?;
            registry.create(op, object).await?;
        }
    }
    Ok(())
}

fn make_operation(
    registry: &Registry,
    user: &UserInfo,
    group: &str,
    version: &str,
    plural: &str,
    namespace: Option<String>,
) -> Result<Operation, ApiError> {
    let catalog = registry.catalog();
    let resource: &std::sync::Arc<Resource> = catalog
        .find(group, version, plural)
        .ok_or_else(|| ApiError::internal(format!("{plural} are not in the table of resources")))?;
    Ok(Operation::new(resource.clone(), namespace, user.clone(), OWN_MANAGER))
}
