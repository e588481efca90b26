//! Who writes where: `tests/admission.yaml` has a case of each of them in each kind of place, as Tenant `blue` sees it.

use std::sync::Arc;

use crate::table::{Case, Table};

/// The kinds of actors, and who of the table is one.
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

/// The kinds of places. Each actor can write in each of them as far as RBAC goes, so there is none that makes no sense.
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

/// How many combinations there are.
pub(crate) const COMBINATIONS: usize = ACTORS.len() * PLACES.len();

/// Whether a case writes something in one of these namespaces, or one of them.
fn is_in(case: &Case, namespaces: &[&str]) -> bool {
    let (_, object) = case.action();
    let place = object.namespace.as_deref().or(object.own.as_deref());
    place.is_some_and(|place| namespaces.contains(&place))
}

/// A check for each combination, with its name.
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
            // One that no server can be asked shows one door of four.
            let found = cases.any(|case| case.pure_only.is_empty() && is_meant(case));
            found
                .then_some(())
                .ok_or_else(|| format!("no case says what {who} may write in {place}: add one"))
        })
    })
}
