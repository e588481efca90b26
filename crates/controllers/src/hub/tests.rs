//! Whom a change of Tenants and namespaces wakes.

#![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

use std::convert::Infallible;

use serde_json::json;
use tenure_api::Tenant;
use tenure_cluster::{Connection, Token};

use super::*;
use crate::config::Config;
use crate::kinds;
use crate::mailbox::Mailbox;

/// A hub that knows two tenants, each with a namespace of its name, and what is nobody's; everybody has a mailbox.
struct Scene {
    hub: Arc<Hub>,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn set() -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        });
        let config = Config::new(
            Connection::in_process(service, Token::new("t", None)),
            folder.path().join("artifacts"),
        );
        let table = kinds::list_kinds();
        let hub = Hub::new(Means::new(config).unwrap(), table.hub.into(), table.lane.into());
        let scene = Self { hub, _folder: folder };
        scene.record("green", &["green", "more"], "1");
        scene.record("mauve", &["mauve"], "1");
        scene.show("green", Some("green"), "2");
        scene.show("mauve", Some("mauve"), "3");
        scene.show("shared", None, "4");
        scene
    }

    /// A watch tells of a Tenant that has recorded these namespaces.
    fn record(&self, tenant: &str, namespaces: &[&str], revision: &str) {
        let spaces: Vec<_> = namespaces
            .iter()
            .map(|name| json!({ "name": name, "uid": name }))
            .collect();
        let object = json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
            "metadata": { "name": tenant, "uid": format!("uid-{tenant}"), "resourceVersion": revision }, "spec": { "owners": [] },
            "status": { "spaces": spaces, "size": namespaces.len(), "state": "Active" } });
        let object: Tenant = serde_json::from_value(object).unwrap();
        self.hub.caches.of::<Tenant>().observe(object);
        self.hub.take_tenant(tenant);
    }

    /// A watch tells of a namespace.
    fn show(&self, name: &str, tenant: Option<&str>, revision: &str) -> bool {
        let labels = tenant.map(|tenant| json!({ TENANT_LABEL: tenant }));
        let owners = tenant.map(|tenant| {
            json!([{ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": tenant, "uid": format!("uid-{tenant}") }])
        });
        let metadata = json!({ "name": name, "uid": name, "resourceVersion": revision, "labels": labels, "ownerReferences": owners });
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
        self.hub.namespaces.observe(serde_json::from_value(namespace).unwrap());
        self.hub.take_namespace(name)
    }

    fn mailbox(&self, key: &Key) -> Arc<Mailbox> {
        self.hub.means.mailboxes.get_or_add(key).0
    }

    fn of(&self, namespace: &str) -> Arc<Mailbox> {
        self.mailbox(&Key::new(Kustomization::KIND, namespace, "app"))
    }
}

/// Whether it was woken since somebody looked last.
fn is_woken(mailbox: &Mailbox) -> bool {
    mailbox.notified().now_or_never().is_some()
}

#[tokio::test]
async fn what_a_tenant_does_to_its_namespaces_wakes_its_own() {
    let scene = Scene::set();
    // What has led here may still be told.
    let everything = scene.of("shared");
    everything.notified().await;
    let (green, mauve) = (scene.of("green"), scene.of("mauve"));
    let tenants = ["green", "mauve"].map(|name| scene.mailbox(&Key::new(Tenant::KIND, "", name)));
    let rights = scene.mailbox(&Key::of_rights("green"));

    assert!(scene.show("more", Some("green"), "5"));
    green.notified().await;
    // Whoever is told with it has been told once somebody new finds the table free.
    scene.mailbox(&Key::of_rights("new"));
    assert!(is_woken(&tenants[0]) && is_woken(&rights));
    assert!(!is_woken(&mauve) && !is_woken(&tenants[1]));
    // What is nobody's may write there, and waits a while longer.
    assert!(!is_woken(&everything));
    everything.notified().await;
    assert!(!is_woken(&mauve) && !is_woken(&tenants[1]));

    // What tells nothing of whose it is concerns nobody.
    assert!(!scene.show("more", Some("green"), "6"));
    assert!(
        matches!(scene.hub.find_placement("more"), Placement::Tenant(placement) if placement.namespaces.len() == 2)
    );
    // One that goes from one to the other concerns both.
    scene.record("mauve", &["mauve", "more"], "8");
    mauve.notified().await;
    assert!(scene.show("more", Some("mauve"), "7"));
    mauve.notified().await;
    green.notified().await;
    assert!(
        matches!(scene.hub.find_placement("green"), Placement::Tenant(placement) if placement.namespaces.len() == 1)
    );
    assert!(
        matches!(scene.hub.find_placement("mauve"), Placement::Tenant(placement) if placement.namespaces.len() == 2)
    );
}
