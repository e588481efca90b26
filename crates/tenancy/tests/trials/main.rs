//! Every allow and every deny, as a table: `tests/matrix.yaml`, a trial for each case.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use std::process::ExitCode;
use std::sync::Arc;

use serde::Deserialize;
use tenure_api::ObjectId;
use tenure_tenancy::{
    Denial, FactIndex, TenancyFacts, TenancyIndex, check_takeable, identity, inventory, reference, write_scope,
};
use tenure_trials::{Suite, name_of_line};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Matrix {
    tenancy: TenancyFacts,
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

fn answer(tenancy: &TenancyFacts, case: &Case) -> Result<String, Denial> {
    let placement = tenancy.find_placement(&case.namespace);
    let namespace = case.namespace.as_str();
    let other = case.other.as_deref();
    let referrer = reference::Referrer {
        namespace,
        placement: &placement,
        grants: &tenancy.settings.reference_grants,
    };
    let yes = |result: Result<(), Denial>| result.map(|()| "yes".to_owned());
    match case.ask.as_str() {
        "surface" => identity::decide_for_surface(&placement, namespace, case.name.as_deref())
            .map(|identity| identity.to_string()),
        "kustomization" => identity::decide_for_kustomization(&placement, namespace, case.name.as_deref())
            .map(|identity| identity.to_string()),
        "gitSource" => identity::decide_for_source(&placement, namespace).map(|identity| identity.to_string()),
        "object" => yes(inventory::check_entry(&placement, case.object.as_ref().unwrap())),
        "targetNamespace" => yes(write_scope::check_target_namespace(&placement, other.unwrap())),
        "sourceReference" => yes(reference::check_source(
            referrer,
            "GitRepository",
            other,
            case.name.as_deref().unwrap_or("x"),
        )),
        "dependency" => yes(reference::check_dependency(
            referrer,
            other,
            case.name.as_deref().unwrap_or("x"),
        )),
        "eventSource" => {
            let target = ("GitRepository", "x");
            yes(reference::check_event_source(&placement, namespace, other, target))
        }
        "receiverResource" => {
            let target = ("GitRepository", "x");
            yes(reference::check_receiver_resource(&placement, namespace, other, target))
        }
        "healthCheck" => yes(reference::check_health_check(&placement, "Deployment", other, "x")),
        "ending" => Ok(format!("{:?}", tenancy.find_termination(namespace))),
        "take" => {
            let tenant = tenancy
                .tenants
                .iter()
                .find(|tenant| Some(&tenant.name) == case.name.as_ref())
                .unwrap();
            yes(check_takeable(tenancy, tenant, namespace))
        }
        other => panic!("unknown question {other}"),
    }
}

fn check(tenancy: &TenancyFacts, (atlas, facts): (&TenancyIndex, &FactIndex), case: &Case) -> Result<(), String> {
    let placement = tenancy.find_placement(&case.namespace);
    if atlas.find_placement(&case.namespace) != placement {
        return Err(format!("{case:?}\n    is placed elsewhere by the index"));
    }
    if facts.find_placement(&case.namespace) != placement {
        return Err(format!("{case:?}\n    is placed elsewhere by Facts"));
    }
    let answer = answer(tenancy, case);
    let right = match (&answer, &case.allow, &case.deny) {
        (Ok(text), Some(allow), None) => text == allow,
        (Err(denial), None, Some(part)) => denial.message.contains(part.as_str()),
        _ => false,
    };
    if right {
        Ok(())
    } else {
        Err(format!("{case:?}\n    gives {answer:?}"))
    }
}

/// Returns the question of a case, as a name.
fn name_case(index: usize, case: &Case) -> String {
    let object = case.object.as_ref().map(ToString::to_string).unwrap_or_default();
    let name = case.name.as_deref().unwrap_or_default();
    let other = case.other.as_deref().unwrap_or_default();
    let text = format!("{} in {} {name} {object} {other}", case.ask, case.namespace);
    name_of_line(index + 1, &text)
}

fn main() -> ExitCode {
    let matrix: Matrix = serde_saphyr::from_str(include_str!("../matrix.yaml")).unwrap();
    let tenancy = Arc::new(matrix.tenancy);
    let atlas = Arc::new(TenancyIndex::new(tenancy.clone()));
    let facts = Arc::new(FactIndex::from_facts(&tenancy));
    let cases = matrix.cases.into_iter().enumerate().map(|(index, case)| {
        let (tenancy, atlas, facts) = (tenancy.clone(), atlas.clone(), facts.clone());
        (name_case(index, &case), move || {
            check(&tenancy, (&atlas, &facts), &case)
        })
    });
    let mut suite = Suite::default();
    // The matrix only grows.
    suite.add("matrix", 137, cases);
    suite.run()
}
