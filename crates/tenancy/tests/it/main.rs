//! Every allow and every deny, as a table: `tests/matrix.yaml`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use std::sync::Arc;

use serde::Deserialize;
use tenure_api::ObjectId;
use tenure_tenancy::{Atlas, Denial, Realm, identity, inventory, owner, reach, reference, takeable};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Matrix {
    realm: Realm,
    cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    ask: String,
    #[serde(rename = "in")]
    namespace: String,
    #[serde(rename = "as", default)]
    name: Option<String>,
    #[serde(default)]
    object: Option<ObjectId>,
    #[serde(default)]
    other: Option<String>,
    #[serde(default)]
    allow: Option<String>,
    #[serde(default)]
    deny: Option<String>,
}

fn answer(realm: &Realm, case: &Case) -> Result<String, Denial> {
    let placement = realm.place(&case.namespace);
    let namespace = case.namespace.as_str();
    let other = case.other.as_deref();
    let yes = |result: Result<(), Denial>| result.map(|()| "yes".to_owned());
    match case.ask.as_str() {
        "surface" => {
            identity::of_surface(&placement, namespace, case.name.as_deref()).map(|identity| identity.to_string())
        }
        "kustomization" => {
            identity::of_kustomization(&placement, namespace, case.name.as_deref()).map(|identity| identity.to_string())
        }
        "gitSource" => identity::of_source(&placement, namespace).map(|identity| identity.to_string()),
        "object" => yes(inventory::entry(&placement, case.object.as_ref().unwrap())),
        "targetNamespace" => yes(reach::target_namespace(&placement, other.unwrap())),
        "sourceReference" => yes(reference::source(namespace, "GitRepository", other, "x")),
        "dependency" => yes(reference::dependency(namespace, other, "x")),
        "healthCheck" => yes(reference::health_check(&placement, "Deployment", other, "x")),
        "ending" => Ok(format!("{:?}", realm.ending(namespace))),
        "take" => {
            let tenant = realm
                .tenants
                .iter()
                .find(|tenant| Some(&tenant.name) == case.name.as_ref())
                .unwrap();
            yes(takeable(realm, tenant, namespace))
        }
        other => panic!("unknown question {other}"),
    }
}

#[test]
fn the_matrix_holds() {
    let matrix: Matrix = serde_saphyr::from_str(include_str!("../matrix.yaml")).unwrap();
    let mut wrong = Vec::new();
    let atlas = Atlas::new(Arc::new(matrix.realm.clone()));
    for case in &matrix.cases {
        assert_eq!(
            atlas.place(&case.namespace),
            matrix.realm.place(&case.namespace),
            "{case:?}"
        );
        let answer = answer(&matrix.realm, case);
        let right = match (&answer, &case.allow, &case.deny) {
            (Ok(text), Some(allow), None) => text == allow,
            (Err(denial), None, Some(part)) => denial.message.contains(part.as_str()),
            _ => false,
        };
        if !right {
            wrong.push(format!("{case:?}\n    gives {answer:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(matrix.cases.len() > 80, "the matrix only grows");
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

#[test]
fn kubeconfig_is_refused_always() {
    assert!(reference::kubeconfig(false).is_ok());
    assert!(reference::kubeconfig(true).is_err());
}

#[test]
fn the_platform_goes_first_and_others_keep_what_they_have() {
    let matrix: Matrix = serde_saphyr::from_str(include_str!("../matrix.yaml")).unwrap();
    let check = |asker: &str, owner: &str, expected: owner::Precedence| {
        let places = [asker, owner].map(|namespace| matrix.realm.place(namespace));
        let answer = owner::precedence((&places[0], asker), (&places[1], owner));
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
    // Nothing is taken from who is in dispute.
    check("blue", "label-differs", Owner);
}

#[test]
fn an_owner_is_believed_within_its_reach_only() {
    let matrix: Matrix = serde_saphyr::from_str(include_str!("../matrix.yaml")).unwrap();
    let check = |namespace: &str, id: &str, expected: bool| {
        let believed = owner::is_believed(&matrix.realm.place(namespace), &id.parse().unwrap());
        assert_eq!(believed, expected, "{id} of {namespace}");
    };
    check("blue", "blue-dev_a__ConfigMap", true);
    check("blue", "red_a__ConfigMap", false);
    check("blue", "_a_rbac.authorization.k8s.io_ClusterRole", false);
    check("tenure-system", "red_a__ConfigMap", true);
    check("label-differs", "blue_a__ConfigMap", true);
}
