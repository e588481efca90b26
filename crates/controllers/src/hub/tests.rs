//! Whom a change of Tenants and namespaces wakes.

#![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

use tenure_api::Tenant;

use super::*;
use crate::mailbox::Mailbox;
use crate::stage::Stage;

/// A hub that knows two tenants, each with a namespace of its name, and what is nobody's; everybody has a mailbox.
struct Scene(Stage);

impl Scene {
    fn set() -> Self {
        let stage = Stage::set(|_| {});
        stage.show_tenant("green", &["green", "more"], "1");
        stage.show_tenant("mauve", &["mauve"], "1");
        stage.show_namespace("green", Some("green"), "2");
        stage.show_namespace("mauve", Some("mauve"), "3");
        stage.show_namespace("shared", None, "4");
        Self(stage)
    }

    fn mailbox(&self, key: &Key) -> Arc<Mailbox> {
        self.0.hub.means.mailboxes.get_or_add(key).0
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

    assert!(scene.0.show_namespace("more", Some("green"), "5"));
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
    assert!(!scene.0.show_namespace("more", Some("green"), "6"));
    assert!(
        matches!(scene.0.hub.find_placement("more"), Placement::Tenant(placement) if placement.namespaces.len() == 2)
    );
    // One that goes from one to the other concerns both.
    scene.0.show_tenant("mauve", &["mauve", "more"], "8");
    mauve.notified().await;
    assert!(scene.0.show_namespace("more", Some("mauve"), "7"));
    mauve.notified().await;
    green.notified().await;
    assert!(
        matches!(scene.0.hub.find_placement("green"), Placement::Tenant(placement) if placement.namespaces.len() == 1)
    );
    assert!(
        matches!(scene.0.hub.find_placement("mauve"), Placement::Tenant(placement) if placement.namespaces.len() == 2)
    );
}
