//! Garbage collection on an open server: in the background, in the foreground, orphaned, and for kinds that are
//! defined later.

use serde_json::json;

use crate::cluster::{Cluster, definition, make_named, make_owned, uid};

#[tokio::test(flavor = "multi_thread")]
async fn dependents_go_after_their_last_owner() {
    let cluster = Cluster::with_namespace(false).await;
    let one = cluster.create("", "configmaps", Some("shop"), make_named("one")).await;
    let two = cluster.create("", "configmaps", Some("shop"), make_named("two")).await;
    let (first, second) = (
        ("ConfigMap", "one", uid(&one), false),
        ("ConfigMap", "two", uid(&two), false),
    );
    cluster
        .create("", "configmaps", Some("shop"), make_owned("child", &[first]))
        .await;
    let child = cluster.config_map("child").unwrap();
    cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            make_owned("grandchild", &[("ConfigMap", "child", uid(&child), false)]),
        )
        .await;
    cluster
        .create("", "configmaps", Some("shop"), make_owned("both", &[first, second]))
        .await;
    cluster
        .delete("", "configmaps", Some("shop"), "one", "Background")
        .await;
    cluster.until_gone("", "configmaps", Some("shop"), "child").await;
    cluster.until_gone("", "configmaps", Some("shop"), "grandchild").await;
    cluster
        .wait_for("the reference to the owner that is gone is removed", |cluster| {
            let both = cluster.config_map("both")?;
            (both["metadata"]["ownerReferences"].as_array()?.len() == 1).then_some(())
        })
        .await;
    cluster
        .delete("", "configmaps", Some("shop"), "two", "Background")
        .await;
    cluster.until_gone("", "configmaps", Some("shop"), "both").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_owner_with_matching_uid_and_namespace_counts() {
    let cluster = Cluster::with_namespace(false).await;
    let owner = cluster
        .create("", "configmaps", Some("shop"), make_named("owner"))
        .await;
    let namespace = cluster.get("", "namespaces", None, "shop").unwrap();
    // An owner with another UID, in another namespace, or missing: the object is deleted.
    cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            make_owned("wrong-uid", &[("ConfigMap", "owner", "other", false)]),
        )
        .await;
    cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            make_owned("absent", &[("ConfigMap", "nobody", "x", false)]),
        )
        .await;
    cluster
        .create(
            "",
            "configmaps",
            Some("default"),
            make_owned("elsewhere", &[("ConfigMap", "owner", uid(&owner), false)]),
        )
        .await;
    // A cluster-scoped owner, or one of an unknown kind: the object stays.
    cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            make_owned("of-namespace", &[("Namespace", "shop", uid(&namespace), false)]),
        )
        .await;
    cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            make_owned("of-unknown", &[("Gizmo", "g", "x", false)]),
        )
        .await;
    // A cluster-scoped object can't have an owner in a namespace, so it is never collected.
    cluster
        .create("rbac.authorization.k8s.io", "clusterroles", None, {
            let mut role = make_owned("cluster-wide", &[("ConfigMap", "nobody", "x", false)]);
            role["rules"] = json!([]);
            role
        })
        .await;
    cluster.until_gone("", "configmaps", Some("shop"), "wrong-uid").await;
    cluster.until_gone("", "configmaps", Some("shop"), "absent").await;
    cluster.until_gone("", "configmaps", Some("default"), "elsewhere").await;
    cluster.wait_until_settled().await;
    assert!(cluster.config_map("of-namespace").is_some());
    assert!(cluster.config_map("of-unknown").is_some());
    assert!(
        cluster
            .get("rbac.authorization.k8s.io", "clusterroles", None, "cluster-wide")
            .is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_foreground_dependents_go_first() {
    let cluster = Cluster::with_namespace(false).await;
    let owner = cluster
        .create("", "configmaps", Some("shop"), make_named("owner"))
        .await;
    let mut held = make_owned("held", &[("ConfigMap", "owner", uid(&owner), true)]);
    held["metadata"]["finalizers"] = json!(["acme.io/keep"]);
    cluster.create("", "configmaps", Some("shop"), held).await;
    cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            make_owned("free", &[("ConfigMap", "owner", uid(&owner), true)]),
        )
        .await;
    cluster
        .delete("", "configmaps", Some("shop"), "owner", "Foreground")
        .await;
    cluster.until_gone("", "configmaps", Some("shop"), "free").await;
    let held = cluster
        .wait_for("the dependent that is held is being deleted", |cluster| {
            cluster
                .config_map("held")
                .filter(|held| !held["metadata"]["deletionTimestamp"].is_null())
        })
        .await;
    cluster.wait_until_settled().await;
    assert!(cluster.config_map("owner").is_some());
    let mut released = (*held).clone();
    released["metadata"]["finalizers"] = json!([]);
    cluster.update("", "configmaps", Some("shop"), released).await;
    cluster.until_gone("", "configmaps", Some("shop"), "owner").await;
    assert!(cluster.config_map("held").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_in_the_foreground_goes_from_its_end() {
    let cluster = Cluster::with_namespace(false).await;
    let mut last = cluster
        .create("", "configmaps", Some("shop"), make_named("link-0"))
        .await;
    for index in 1..6 {
        let name = format!("link-{index}");
        let owner = format!("link-{}", index - 1);
        last = cluster
            .create(
                "",
                "configmaps",
                Some("shop"),
                make_owned(&name, &[("ConfigMap", &owner, uid(&last), true)]),
            )
            .await;
    }
    cluster
        .delete("", "configmaps", Some("shop"), "link-0", "Foreground")
        .await;
    for index in (0..6).rev() {
        cluster
            .until_gone("", "configmaps", Some("shop"), &format!("link-{index}"))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_stay_without_their_owner() {
    let cluster = Cluster::with_namespace(false).await;
    let owner = cluster
        .create("", "configmaps", Some("shop"), make_named("owner"))
        .await;
    let child = cluster
        .create(
            "",
            "configmaps",
            Some("shop"),
            make_owned("child", &[("ConfigMap", "owner", uid(&owner), true)]),
        )
        .await;
    cluster.delete("", "configmaps", Some("shop"), "owner", "Orphan").await;
    cluster.until_gone("", "configmaps", Some("shop"), "owner").await;
    cluster.wait_until_settled().await;
    let orphan = cluster.config_map("child").unwrap();
    assert_eq!(uid(&orphan), uid(&child));
    assert!(orphan["metadata"].get("ownerReferences").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn new_kinds_are_collected_and_emptied_like_old_ones() {
    let cluster = Cluster::with_namespace(false).await;
    let definitions = ("apiextensions.k8s.io", "customresourcedefinitions");
    let mut early = make_owned("early", &[("Widget", "nobody", "x", false)]);
    early["metadata"]["ownerReferences"][0]["apiVersion"] = json!("acme.io/v1");
    cluster.create("", "configmaps", Some("shop"), early).await;
    cluster.wait_until_settled().await;
    assert!(cluster.config_map("early").is_some(), "its owner's kind is not known");
    cluster
        .create(definitions.0, definitions.1, None, definition("widgets", "Widget"))
        .await;
    cluster.until_gone("", "configmaps", Some("shop"), "early").await;

    cluster
        .wait_for("widgets are served", |cluster| {
            let catalog = cluster.server.registry().catalog();
            catalog.find_any_version("acme.io", "widgets").map(|_| ())
        })
        .await;
    let owner = cluster
        .create("acme.io", "widgets", Some("shop"), make_named("owner"))
        .await;
    let mut child = make_owned("child", &[("Widget", "owner", uid(&owner), true)]);
    child["metadata"]["ownerReferences"][0]["apiVersion"] = json!("acme.io/v1");
    cluster.create("", "configmaps", Some("shop"), child).await;
    cluster
        .delete("acme.io", "widgets", Some("shop"), "owner", "Foreground")
        .await;
    cluster.until_gone("acme.io", "widgets", Some("shop"), "owner").await;
    assert!(cluster.config_map("child").is_none());

    cluster
        .create("acme.io", "widgets", Some("shop"), make_named("last"))
        .await;
    cluster.delete("", "namespaces", None, "shop", "Background").await;
    cluster.until_gone("", "namespaces", None, "shop").await;
    assert!(cluster.get("acme.io", "widgets", Some("shop"), "last").is_none());
}

/// Each reference would read a megabyte, and each reference that goes would be compared with all others.
#[tokio::test(flavor = "multi_thread")]
async fn large_owner_with_many_references_is_read_once() {
    let cluster = Cluster::with_namespace(false).await;
    let mut owner = make_named("large");
    owner["data"] = json!({ "a": "x".repeat(1 << 20) });
    let owner = cluster.create("", "configmaps", Some("shop"), owner).await;
    let uids: Vec<String> = (0..20_000).map(|number| format!("u{number}")).collect();
    let strange = uids.iter().map(|uid| ("ConfigMap", "large", uid.as_str(), false));
    let strange: Vec<_> = strange.collect();
    cluster
        .create("", "configmaps", Some("shop"), make_owned("of-strangers", &strange))
        .await;
    let mut also_own = strange.clone();
    also_own.push(("ConfigMap", "large", uid(&owner), false));
    cluster
        .create("", "configmaps", Some("shop"), make_owned("of-both", &also_own))
        .await;
    cluster.until_gone("", "configmaps", Some("shop"), "of-strangers").await;
    cluster
        .wait_for("the references to strangers are removed", |cluster| {
            let both = cluster.config_map("of-both")?;
            (both["metadata"]["ownerReferences"].as_array()?.len() == 1).then_some(())
        })
        .await;
}
