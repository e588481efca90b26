//! Checks the coverage of `tests/admission.yaml`. It has a case of each kind of actor in each kind of place, as Tenant `blue` sees it. Each rule denies a
//! creation and an update. Beside each denied case, a request of the same kind is allowed, made in the same way.

use std::sync::Arc;

use tenure_admission_rules::Rule;

use crate::table::{Case, Table};

/// Rules and operations without anything to deny, with the reason.
const NOTHING_TO_REFUSE: [(Rule, &str, &str); 7] = [
    (Rule::GitManaged, "CREATE", "nothing is Git's that isn't there yet"),
    (Rule::Minting, "UPDATE", "a token is only ever made"),
    (Rule::PriorityClasses, "UPDATE", "a Pod keeps its class"),
    (Rule::RuntimeClasses, "UPDATE", "a Pod keeps its class"),
    (
        Rule::ResourceQuotas,
        "UPDATE",
        "what grows is shown with the sums: growth_counts_for_difference_and_shrinking_for_nothing",
    ),
    // Policies of every installation enforce these rules, and have tests of their own.
    (
        Rule::ControllerRights,
        "",
        "no request of this table is Tenure's own account's beyond its rights",
    ),
    (
        Rule::ValueReferences,
        "",
        "the table has no PackageValues: value_reference_needs_right_to_read",
    ),
];

/// The operations of the trials.
const OPERATIONS: [&str; 2] = ["CREATE", "UPDATE"];

/// The kinds of actors, with the actors of the table.
const ACTORS: [(&str, &[&str]); 8] = [
    ("an administrator", &["admin"]),
    ("an owner", &["alice", "dev", "robot"]),
    ("the account of its surfaces", &["blue-account"]),
    ("another tenant", &["rita", "red-account"]),
    ("nobody who is known", &["anonymous"]),
    ("tenure's controllers", &["controller"]),
    ("kubernetes' controllers", &["replicaset", "node"]),
    // In Cozystack, helm-controller acts as Flux's one account.
    ("helm-controller", &["chart"]),
];

/// The kinds of places. Each actor can write in each of them as far as RBAC goes, so every combination makes sense.
const PLACES: [(&str, &[&str]); 4] = [
    ("its namespaces", &["blue", "blue-dev"]),
    (
        "another tenant's",
        &["red-home", "red-dev", "still", "tight", "picky", "sum-a"],
    ),
    (
        "the platform's",
        &["tenure-system", "kube-system", "default", "cozy-system"],
    ),
    ("what is nobody's", &["nobody", "managed"]),
];

/// The number of combinations.
pub(crate) const COMBINATIONS: usize = ACTORS.len() * PLACES.len();

/// Checks whether a case writes an object in one of these namespaces, or one of them.
fn is_in(case: &Case, namespaces: &[&str]) -> bool {
    let (_, object) = case.action();
    let place = object.namespace.as_deref().or(object.own.as_deref());
    place.is_some_and(|place| namespaces.contains(&place))
}

/// Lists a check for each combination, with its name.
pub(crate) fn list(
    table: &Arc<Table>,
) -> impl Iterator<Item = (String, impl FnOnce() -> Result<(), String> + Send + 'static)> {
    let combinations = ACTORS.into_iter().flat_map(|actor| PLACES.map(|place| (actor, place)));
    let table = Arc::clone(table);
    combinations.map(move |((who, actors), (place, namespaces))| {
        let table = Arc::clone(&table);
        let name = tenure_trials::name_of(&format!("{who} in {place}"));
        (name, move || {
            let mut cases = table.cases.iter();
            let is_meant = |case: &Case| actors.contains(&case.by.as_str()) && is_in(case, namespaces);
            // A case that no server can be asked tests one admission point of four.
            let found = cases.any(|case| case.pure_only.is_empty() && is_meant(case));
            found
                .then_some(())
                .ok_or_else(|| format!("no case says what {who} may write in {place}: add one"))
        })
    })
}

/// Lists a check for each rule, for creations and for updates.
pub(crate) fn list_operations(
    table: &Arc<Table>,
) -> impl Iterator<Item = (String, impl FnOnce() -> Result<(), String> + Send + 'static)> {
    let all = Rule::ALL
        .into_iter()
        .flat_map(|rule| OPERATIONS.map(|operation| (rule, operation)));
    let table = Arc::clone(table);
    all.map(move |(rule, operation)| {
        let table = Arc::clone(&table);
        let name = tenure_trials::name_of(&format!("{} on {}", rule.as_str(), operation.to_lowercase()));
        (name, move || {
            let is_tried = |case: &&Case| case.deny.as_deref() == Some(rule.as_str()) && case.action().0 == operation;
            let tried = table.cases.iter().filter(is_tried).count();
            let excused = NOTHING_TO_REFUSE
                .iter()
                .any(|(known, when, _)| *known == rule && (when.is_empty() || *when == operation));
            match (tried, excused) {
                (0, false) => Err(format!("no case says what {} refuses there: add one", rule.as_str())),
                (1.., true) => Err("NOTHING_TO_REFUSE lists it, although a case denies it: remove it there".to_owned()),
                _ => Ok(()),
            }
        })
    })
}

/// The number of these checks.
pub(crate) const TRIED: usize = Rule::ALL.len() * OPERATIONS.len();

/// Lists a check for each denied case: a request of the same kind is allowed, made in the same way.
pub(crate) fn list_controls(
    table: &Arc<Table>,
) -> impl Iterator<Item = (String, impl FnOnce() -> Result<(), String> + Send + 'static)> {
    let refused = table.cases.iter().enumerate().filter(|(_, case)| case.deny.is_some());
    let named: Vec<(usize, String)> = refused.map(|(index, case)| (index, case.name(index))).collect();
    let table = Arc::clone(table);
    named.into_iter().map(move |(index, name)| {
        let table = Arc::clone(&table);
        (name, move || {
            let Some(refused) = table.cases.get(index) else {
                return Ok(());
            };
            let is_alike = |case: &Case| case.allow.is_some() && describe(case) == describe(refused);
            let found = table.cases.iter().any(is_alike);
            found.then_some(()).ok_or_else(|| {
                format!("nothing of the kind is let through, so that a refusal says nothing: {refused:?}")
            })
        })
    })
}

/// Returns the operation, kind and subresource of a case.
fn describe(case: &Case) -> (&str, &str, &str, &str) {
    let (operation, object) = case.action();
    let (group, resource, _) = object.what();
    (operation, group, resource, case.subresource())
}
