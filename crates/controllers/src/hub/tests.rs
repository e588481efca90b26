//! Tests which objects a change of Tenants and namespaces wakes.

#![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

use tenure_api::Tenant;

use super::*;
use crate::cluster_view::mailbox::Mailbox;
use crate::test_hub::TestHub;

/// A hub with two tenants, each with a namespace of its name, and a namespace without a tenant. Each object has a mailbox.
struct Scene(TestHub);

impl Scene {
    fn set() -> Self {
        let stage = TestHub::set(|_| {});
        stage.show_tenant("green", &["green", "more"], "1");
        stage.show_tenant("mauve", &["mauve"], "1");
        stage.show_namespace("green", Some("green"), "2");
        stage.show_namespace("mauve", Some("mauve"), "3");
        stage.show_namespace("shared", None, "4");
        Self(stage)
    }

    fn mailbox(&self, key: &Key) -> Arc<Mailbox> {
        self.0.hub.context.mailboxes.get_or_add(key).0
    }

    fn mailbox_in(&self, namespace: &str) -> Arc<Mailbox> {
        self.mailbox(&Key::new(Kustomization::KIND, namespace, "app"))
    }
}

/// Returns whether the mailbox was woken since the previous call.
fn is_woken(mailbox: &Mailbox) -> bool {
    mailbox.wait_for_notification().now_or_never().is_some()
}

#[tokio::test]
async fn namespace_change_wakes_objects_of_affected_tenants() {
    let scene = Scene::set();
    // Notifications of the setup may still arrive.
    let everything = scene.mailbox_in("shared");
    everything.wait_for_notification().await;
    let (green, mauve) = (scene.mailbox_in("green"), scene.mailbox_in("mauve"));
    let tenants = ["green", "mauve"].map(|name| scene.mailbox(&Key::new(Tenant::KIND, "", name)));
    let rights = scene.mailbox(&Key::of_rights("green"));

    assert!(scene.0.show_namespace("more", Some("green"), "5"));
    green.wait_for_notification().await;
    // Locking the table proves that all notifications for this change were sent.
    scene.mailbox(&Key::of_rights("new"));
    assert!(is_woken(&tenants[0]) && is_woken(&rights));
    assert!(!is_woken(&mauve) && !is_woken(&tenants[1]));
    // Objects without a tenant may write there, and are notified later.
    assert!(!is_woken(&everything));
    everything.wait_for_notification().await;
    assert!(!is_woken(&mauve) && !is_woken(&tenants[1]));

    // An update that does not change the owner wakes nobody.
    assert!(!scene.0.show_namespace("more", Some("green"), "6"));
    assert!(
        matches!(scene.0.hub.find_placement("more"), Placement::Tenant(placement) if placement.namespaces.len() == 2)
    );
    // A namespace that moves between tenants wakes both.
    scene.0.show_tenant("mauve", &["mauve", "more"], "8");
    mauve.wait_for_notification().await;
    assert!(scene.0.show_namespace("more", Some("mauve"), "7"));
    mauve.wait_for_notification().await;
    green.wait_for_notification().await;
    assert!(
        matches!(scene.0.hub.find_placement("green"), Placement::Tenant(placement) if placement.namespaces.len() == 1)
    );
    assert!(
        matches!(scene.0.hub.find_placement("mauve"), Placement::Tenant(placement) if placement.namespaces.len() == 2)
    );
}
