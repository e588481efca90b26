//! The objects that go, and the protection that stays, as data.

use serde_json::json;
use tenure_api::metadata::TENANT_LABEL;

use super::tests::{find, list_lines, make_object, make_observed, make_snapshot, set_value};
use super::*;

/// The API server deletes these services with the last definition of their group.
#[test]
fn services_of_groups_without_definitions_are_listed() {
    let service = |name: &str| make_observed(make_object("APIService", "", name));
    let snapshot = Snapshot {
        installed: vec![make_observed(set_value(
            make_object("CustomResourceDefinition", "", "surfaces.tenure.dev"),
            "/spec",
            json!({"group": "tenure.dev", "names": {"kind": "Surface"}}),
        ))],
        definitions: vec![
            "surfaces.tenure.dev".to_owned(),
            "tenants.capsule.clastix.io".to_owned(),
        ],
        group_services: vec![
            service("v1alpha1.tenure.dev"),
            service("v1beta2.capsule.clastix.io"),
            service("v1.apps"),
        ],
        ..Snapshot::default()
    };
    let plan = plan(&snapshot, KindChoice::Own).unwrap();
    assert_eq!(
        plan.goes,
        [
            "APIService v1alpha1.tenure.dev",
            "CustomResourceDefinition surfaces.tenure.dev"
        ]
    );
}

/// Returns a Tenant's limits and its owners' bindings, as Tenure writes them.
pub(super) fn make_protected() -> Snapshot {
    let of_tenant = |object: Value| {
        let labels = json!({ MANAGED_BY: MANAGED_BY_TENURE, TENANT_LABEL: "shop" });
        let object = set_value(object, "/metadata/labels", labels);
        let owner = json!([{"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": "shop", "uid": "t"}]);
        make_observed(set_value(object, "/metadata/ownerReferences", owner))
    };
    let bounds = [
        of_tenant(make_object("NetworkPolicy", "shop", "capsule-shop-0")),
        of_tenant(make_object("ResourceQuota", "shop", "capsule-shop-0")),
        of_tenant(make_object("LimitRange", "shop", "capsule-shop-0")),
    ];
    let binding = of_tenant(make_object("RoleBinding", "shop", "capsule:shop:admin"));
    let own = of_tenant(make_object("ClusterRole", "", "tenure:shop:own"));
    let fact = set_value(
        make_object("Namespace", "", "shop"),
        "/metadata/annotations",
        json!({ "facts.tenure.dev/account": "shop-gitops" }),
    );
    let mut snapshot = make_snapshot();
    snapshot.owned.extend(bounds.clone());
    snapshot.owned.extend([binding.clone(), own.clone()]);
    snapshot.bounds = bounds.into();
    snapshot.role_bindings = vec![binding];
    snapshot.tenant_rights = vec![own];
    snapshot.policies = vec![make_observed(make_object(
        "ValidatingAdmissionPolicy",
        "",
        "tenure-namespaces",
    ))];
    for object in [
        make_object("ValidatingAdmissionPolicy", "", "tenure-controller-rights"),
        make_object("ValidatingAdmissionPolicyBinding", "", "tenure-controller-rights"),
        make_object("RoleBinding", PLATFORM_NAMESPACE, "tenure-leader"),
    ] {
        let labels = json!({ MANAGED_BY: MANAGED_BY_TENURE });
        snapshot
            .installed
            .push(make_observed(set_value(object, "/metadata/labels", labels)));
    }
    snapshot.stated = vec![make_observed(fact)];
    snapshot
}

#[test]
fn protection_and_bindings_outlive_the_kinds() {
    for kinds in [KindChoice::None, KindChoice::Own, KindChoice::All] {
        let plan = plan(&make_protected(), kinds).unwrap();
        for kept in [
            "NetworkPolicy shop/capsule-shop-0",
            "ResourceQuota shop/capsule-shop-0",
            "LimitRange shop/capsule-shop-0",
            "RoleBinding shop/capsule:shop:admin",
            "ClusterRole tenure:shop:own",
            "ValidatingAdmissionPolicy tenure-namespaces",
            "ValidatingAdmissionPolicy tenure-controller-rights",
            "Namespace shop",
        ] {
            assert!(!plan.goes.contains(&kept.to_owned()), "{kinds:?}: {kept}");
            let released = list_lines(&plan)
                .concat()
                .contains(&format!("{kept}: without its owner"));
            let is_owned = !kept.starts_with("Validating");
            assert_eq!(released, is_owned && kinds == KindChoice::All, "{kinds:?}: {kept}");
        }
        let facts = list_lines(&plan)
            .concat()
            .iter()
            .any(|step| step.contains("the facts for policies"));
        assert!(!facts, "policies that stay need their facts");
        assert!(
            plan.stays.iter().any(|line| line.starts_with("1 NetworkPolicy")),
            "{:?}",
            plan.stays
        );
    }
}

#[test]
fn rights_go_before_the_bounds_of_tenants() {
    let choice = RemovalChoice {
        kinds: KindChoice::All,
        with_protection: true,
    };
    let plan = plan(&make_protected(), choice).unwrap();
    let stage = |says: &str| {
        let is_it = |step: &Step| step.says == says;
        plan.stages
            .iter()
            .position(|stage| stage.iter().any(is_it))
            .unwrap_or_else(|| panic!("no {says}"))
    };
    let binding = stage("RoleBinding shop/capsule:shop:admin: deleted");
    for bound in [
        "ValidatingAdmissionPolicy tenure-namespaces: deleted",
        "NetworkPolicy shop/capsule-shop-0: deleted",
        "ResourceQuota shop/capsule-shop-0: deleted",
        "LimitRange shop/capsule-shop-0: deleted",
        "Namespace shop: without the facts for policies",
    ] {
        assert!(stage(bound) > binding, "{bound}");
    }
    assert!(stage("ValidatingAdmissionPolicy tenure-controller-rights: deleted") > binding);
    assert!(plan.goes.contains(&"NetworkPolicy shop/capsule-shop-0".to_owned()));
    assert!(!plan.goes.contains(&"Namespace shop".to_owned()));
}

/// The garbage collector deletes objects without another owner, and the objects that these own.
#[test]
fn garbage_collection_is_listed() {
    let owned_by = |object: Value, owners: &[(&str, &str, &ObservedObject)]| {
        let owners: Vec<Value> = owners
            .iter()
            .map(|(version, kind, owner)| {
                json!({"apiVersion": version, "kind": kind, "name": "x", "uid": owner.object["metadata"]["uid"]})
            })
            .collect();
        make_observed(set_value(object, "/metadata/ownerReferences", json!(owners)))
    };
    let mut snapshot = make_snapshot();
    let deployment = snapshot.deployments[0].clone();
    let set = owned_by(
        make_object("ReplicaSet", "elsewhere", "a"),
        &[("apps/v1", "Deployment", &deployment)],
    );
    let pod = owned_by(
        make_object("Pod", "elsewhere", "a-1"),
        &[("apps/v1", "ReplicaSet", &set)],
    );
    let other = make_observed(make_object("Deployment", "elsewhere", "other"));
    let shared = owned_by(
        make_object("Pod", "elsewhere", "shared"),
        &[("apps/v1", "ReplicaSet", &set), ("apps/v1", "Deployment", &other)],
    );
    let surface = snapshot.custom[0].clone();
    let key = owned_by(
        make_object("Secret", "shop", "deploy-key"),
        &[("tenure.dev/v1alpha1", "Surface", &surface)],
    );
    snapshot.owned.extend([pod, set, shared, key]);
    let plan = plan(&snapshot, KindChoice::Own).unwrap();
    let goes = |name: &str| plan.goes.contains(&name.to_owned());
    assert!(
        goes("ReplicaSet elsewhere/a") && goes("Pod elsewhere/a-1"),
        "{:?}",
        plan.goes
    );
    assert!(!goes("Pod elsewhere/shared"));
    // A remaining source continues to use its deploy key.
    assert!(!goes("Secret shop/deploy-key"));
    assert_eq!(
        find(&plan, "Secret shop/deploy-key").says,
        "Secret shop/deploy-key: without its owner"
    );
}

/// A tenant sets a finalizer. Without this step, its owner would lose the limits before the rights.
#[test]
fn held_binding_loses_subjects_before_bounds_go() {
    let labels = json!({ "app.kubernetes.io/managed-by": "tenure", "capsule.clastix.io/tenant": "shop" });
    let binding = set_value(
        make_object("RoleBinding", "shop", "capsule:managed:shop:0"),
        "/metadata/labels",
        labels.clone(),
    );
    let binding = set_value(binding, "/metadata/finalizers", json!(["example.org/hold"]));
    let binding = set_value(binding, "/subjects", json!([{ "kind": "User", "name": "mallory" }]));
    let mut snapshot = make_snapshot();
    snapshot.bounds = vec![make_observed(set_value(
        make_object("NetworkPolicy", "shop", "capsule-shop-0"),
        "/metadata/labels",
        labels,
    ))];
    let choice = RemovalChoice {
        kinds: KindChoice::Own,
        with_protection: true,
    };
    let find_order = |snapshot: &Snapshot| {
        let lines = list_lines(&plan(snapshot, choice).unwrap());
        let find = |kind: &str| {
            let stages = lines.iter().enumerate();
            let mut found =
                stages.filter_map(|(index, stage)| Some((index, stage.iter().find(|step| step.starts_with(kind))?)));
            found.next().map(|(index, step)| (index, step.clone()))
        };
        (find("RoleBinding shop"), find("NetworkPolicy"))
    };
    snapshot.role_bindings = vec![make_observed(binding.clone())];
    let (rights, bounds) = find_order(&snapshot);
    assert_eq!(
        rights.as_ref().unwrap().1,
        "RoleBinding shop/capsule:managed:shop:0: deleted"
    );
    assert!(rights < bounds, "{rights:?} {bounds:?}");

    // The binding still exists, with its rights.
    let going = set_value(binding, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    snapshot.role_bindings = vec![make_observed(going.clone())];
    let held = "RoleBinding shop/capsule:managed:shop:0: without its subjects, since finalizers hold it";
    let (rights, bounds) = find_order(&snapshot);
    assert_eq!(rights.as_ref().unwrap().1, held);
    assert!(rights < bounds, "{rights:?} {bounds:?}");
    let held = plan(&snapshot, choice).unwrap();
    let Action::Patch(patch) = &find(&held, "RoleBinding shop/capsule").action else {
        panic!("a patch")
    };
    assert_eq!(patch["subjects"], json!([]));
    let seen_binding = &snapshot.role_bindings[0].object;
    assert_eq!(patch["metadata"]["uid"], seen_binding["metadata"]["uid"]);
    let is_reported = |plan: &Plan| plan.stays.iter().any(|line| line.contains("example.org/hold"));
    assert!(!is_reported(&held), "it still gives rights: {:?}", held.stays);

    // Without subjects, the binding needs no further step.
    snapshot.role_bindings = vec![make_observed(set_value(going, "/subjects", json!([])))];
    let (rights, bounds) = find_order(&snapshot);
    assert!(rights.is_none() && bounds.is_some(), "{rights:?} {bounds:?}");
    assert!(is_reported(&plan(&snapshot, choice).unwrap()));
}
