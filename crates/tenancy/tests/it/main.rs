//! Ownership and precedence in the table `tests/matrix.yaml`. Its cases are trials (`tests/trials`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod facts;

use serde::Deserialize;
use tenure_tenancy::{DenialReason, TenancyFacts, identity, inventory, owner};

/// The part of the table that these tests read.
#[derive(Deserialize)]
struct Matrix {
    tenancy: TenancyFacts,
}

#[test]
fn ownership_needs_both_labels() {
    let object = |name: &str, namespace: &str| {
        serde_json::json!({ "metadata": { "labels": {
            "kustomize.toolkit.fluxcd.io/name": name, "kustomize.toolkit.fluxcd.io/namespace": namespace,
        } } })
    };
    assert!(inventory::is_owned(&object("apps", "team"), "team", "apps"));
    assert!(!inventory::is_owned(&object("apps", "other"), "team", "apps"));
    assert!(!inventory::is_owned(&object("other", "team"), "team", "apps"));
    assert!(!inventory::is_owned(&serde_json::json!({}), "", ""));
}

/// A disputed namespace writes to no cluster.
#[test]
fn remote_cluster_lifts_tenant_limits_but_no_dispute() {
    let matrix: Matrix = serde_saphyr::from_str(include_str!("../matrix.yaml")).unwrap();
    let tenant = matrix
        .tenancy
        .namespaces
        .iter()
        .map(|facts| matrix.tenancy.find_placement(facts.name.as_str()))
        .find(|placement| matches!(placement, tenure_tenancy::Placement::Tenant(_)))
        .unwrap();
    let check = |placement: &tenure_tenancy::Placement| {
        let id = "kube-system_a__ConfigMap".parse().unwrap();
        tenure_tenancy::write_scope::check_object(placement, tenure_tenancy::write_scope::Scope::Namespaced, &id)
    };
    assert!(check(&tenant).is_err());
    assert!(check(&tenant.elsewhere()).is_ok());
    let disputed = tenure_tenancy::Placement::Disputed {
        message: "two tenants".to_owned(),
    };
    assert!(check(&disputed.elsewhere()).is_err());
}

#[test]
fn platform_takes_ownership_and_others_keep_theirs() {
    let matrix: Matrix = serde_saphyr::from_str(include_str!("../matrix.yaml")).unwrap();
    let check = |asker: &str, owner: &str, expected: owner::Precedence| {
        let places = [asker, owner].map(|namespace| matrix.tenancy.find_placement(namespace));
        let answer = owner::decide_precedence((&places[0], asker), (&places[1], owner));
        assert_eq!(answer, expected, "{asker} asks for what {owner} has");
    };
    use owner::Precedence::{Asker, Owner, OwnerByName};
    check("tenure-system", "tenure-system", OwnerByName);
    check("tenure-system", "blue", Asker);
    check("tenure-system", "nobody", Asker);
    check("tenure-system", "label-differs", Asker);
    check("blue", "tenure-system", Owner);
    check("nobody", "tenure-system", Owner);
    check("blue", "blue-dev", OwnerByName);
    check("blue", "red", Owner);
    check("blue", "nobody", Owner);
    check("nobody", "blue", Owner);
    check("nobody", "nobody", OwnerByName);
    check("nobody", "blue-prefix-proves-nothing", Owner);
    // A namespace in dispute loses nothing.
    check("blue", "label-differs", Owner);
}

#[test]
fn an_owner_is_believed_within_its_reach_only() {
    let matrix: Matrix = serde_saphyr::from_str(include_str!("../matrix.yaml")).unwrap();
    let check = |namespace: &str, id: &str, expected: bool| {
        let believed = owner::is_believed(&matrix.tenancy.find_placement(namespace), &id.parse().unwrap());
        assert_eq!(believed, expected, "{id} of {namespace}");
    };
    check("blue", "blue-dev_a__ConfigMap", true);
    check("blue", "red_a__ConfigMap", false);
    check("blue", "_a_rbac.authorization.k8s.io_ClusterRole", false);
    check("tenure-system", "red_a__ConfigMap", true);
    check("label-differs", "blue_a__ConfigMap", true);
}

#[test]
fn nothing_from_a_repository_acts_as_tenure_itself() {
    let matrix: Matrix = serde_saphyr::from_str(include_str!("../matrix.yaml")).unwrap();
    let find_placement = |namespace: &str| matrix.tenancy.find_placement(namespace);
    for name in [
        "tenure-controller",
        "tenure-lane-pool",
        "tenure-secret-writer",
        "tenure-lane-tenant-blue",
    ] {
        let decided = identity::decide_for_kustomization(&find_placement("tenure-system"), "tenure-system", Some(name));
        let denial = decided.unwrap_err();
        assert_eq!(denial.reason, DenialReason::AccessDenied, "{name}");
        assert!(denial.message.contains("Tenure's own"), "{denial:?}");
        let decided = identity::decide_for_surface(&find_placement("tenure-system"), "tenure-system", Some(name));
        assert_eq!(decided.unwrap_err().reason, DenialReason::AccessDenied, "{name}");
        // In other namespaces every user may use the name.
        identity::decide_for_kustomization(&find_placement("blue"), "blue", Some(name)).unwrap();
    }
    let others = identity::decide_for_kustomization(
        &find_placement("tenure-system"),
        "tenure-system",
        Some("platform-gitops"),
    );
    others.unwrap();
}

#[test]
fn surface_objects_use_flux_account_where_flux_applies() {
    let matrix: Matrix = serde_saphyr::from_str(include_str!("../matrix.yaml")).unwrap();
    let mut tenancy = matrix.tenancy;
    let ask = |tenancy: &TenancyFacts, namespace: &str| {
        let account = identity::decide_for_surface(&tenancy.find_placement(namespace), namespace, None);
        account.map(|account| account.to_string())
    };
    let is = |name: &str| Ok(format!("system:serviceaccount:{name}"));
    let accounts = &mut tenancy.settings.default_service_accounts;
    accounts.insert("red-home".to_owned(), "flux".to_owned());
    assert_eq!(ask(&tenancy, "red-home"), is("red-home:red-gitops"));
    tenancy.settings.leaves_kustomizations = true;
    assert_eq!(ask(&tenancy, "red-home"), is("red-home:flux"));
    assert_eq!(ask(&tenancy, "blue"), is("blue:blue-gitops"));
    // Sources are still read here, and a tenant without a GitOps account has no Surfaces.
    let source = identity::decide_for_source(&tenancy.find_placement("red-home"), "red-home").unwrap();
    assert_eq!(source.to_string(), "system:serviceaccount:red-home:red-gitops");
    let accounts = &mut tenancy.settings.default_service_accounts;
    accounts.insert("torn".to_owned(), "flux".to_owned());
    assert!(
        ask(&tenancy, "torn")
            .unwrap_err()
            .message
            .contains("several ServiceAccount owners")
    );
}
