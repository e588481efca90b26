//! The assignment of Secrets: which entry has which Secret in which namespace.
//!
//! If two entries want the same Secret, one fixed order decides. It depends only on the content of the entries, and never on the time of the reading. So a Secret
//! doesn't change hands by itself. An entry without a right to a namespace claims nothing there, and takes nothing from other entries.

use std::collections::{BTreeMap, BTreeSet};

use super::{Entry, Place, Problem};
use tenure_remote_requests::git_host::{Role, Scope};

/// The maximum of namespaces in a message.
const NAMED: usize = 3;

/// The configuration that has an entry. The order decides between two claims: agents come before FluxAccess objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// An agent's configuration, which an administrator named.
    Agent(String),
    /// A FluxAccess: namespace and name.
    Object(String, String),
}

/// An entry of a configuration that claims a Secret in its namespaces, with its asker.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// The asker.
    pub asker: Asker,
    /// The entry.
    pub entry: &'a Entry,
}

/// The assignment of a Secret in one namespace to the claim that gets it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delivery {
    /// The position of the claim in the list of all claims.
    pub claim: usize,
    /// The namespace.
    pub namespace: String,
}

/// The result of the assignment: which claim gets its Secret in which namespace, and why others don't.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Sorted by namespace and Secret, so no Secret appears twice.
    pub deliveries: Vec<Delivery>,
    /// The problems: named namespaces that are missing or can't be reached, and Secrets that another entry has.
    pub problems: Vec<Problem>,
}

/// Assigns the Secret of each name in each namespace to one claim. `namespaces` are all existing ones. `may_reach` gets a claim with its position, and checks whether the
/// claim may have a Secret in a namespace.
#[must_use]
pub fn assign_secrets(
    claims: &[Claim<'_>],
    namespaces: &BTreeSet<&str>,
    platform: &str,
    may_reach: impl Fn(usize, &Claim<'_>, &str) -> Result<(), String>,
) -> Assignment {
    let mut assignment = Assignment::default();
    // The claims for each Secret: whether the claim names the namespace literally, and its position.
    let mut wanted: BTreeMap<(&str, &str), Vec<(bool, usize)>> = BTreeMap::new();
    for (index, claim) in claims.iter().enumerate() {
        let mut reached: BTreeMap<&str, bool> = BTreeMap::new();
        for pattern in &claim.entry.namespaces {
            if !pattern.is_name() {
                let matching = namespaces.iter().filter(|name| pattern.matches(name, platform));
                for name in matching.filter(|name| may_reach(index, claim, name).is_ok()) {
                    reached.entry(name).or_insert(false);
                }
                continue;
            }
            let Some(name) = namespaces.get(pattern.as_str()) else {
                let message = format!("namespace {pattern} does not exist: it is delivered there once it does");
                assignment.problems.push(make_problem(claim, message));
                continue;
            };
            match may_reach(index, claim, name) {
                Ok(()) => {
                    reached.insert(name, true);
                }
                Err(why) => assignment.problems.push(make_problem(claim, why)),
            }
        }
        for (namespace, is_named) in reached {
            let all = wanted.entry((namespace, &claim.entry.secret_name)).or_default();
            all.push((is_named, index));
        }
    }
    let mut lost: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
    for ((namespace, _), contenders) in &wanted {
        let rank = |(is_named, index): &(bool, usize)| claims.get(*index).map(|claim| rank_claim(claim, *is_named));
        let Some((_, winner)) = contenders.iter().min_by(|one, other| rank(one).cmp(&rank(other))) else {
            continue;
        };
        assignment.deliveries.push(Delivery {
            claim: *winner,
            namespace: (*namespace).to_owned(),
        });
        for (_, loser) in contenders.iter().filter(|(_, index)| index != winner) {
            lost.entry((*loser, *winner)).or_default().push(namespace);
        }
    }
    for ((loser, winner), namespaces) in lost {
        let (Some(loser), Some(winner)) = (claims.get(loser), claims.get(winner)) else {
            continue;
        };
        let mut named = namespaces.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        if namespaces.len() > NAMED {
            named = format!("{named} and {} more", namespaces.len() - NAMED);
        }
        let message = format!(
            "Secret {} in {named} is that of {}: choose another secret_name here",
            loser.entry.secret_name,
            describe_winner(&loser.asker, winner)
        );
        assignment.problems.push(make_problem(loser, message));
    }
    assignment
}

/// Returns the place of the winner, as far as the loser may know it. An object in another namespace is only mentioned.
fn describe_winner(loser: &Asker, winner: &Claim<'_>) -> String {
    match (loser, &winner.asker) {
        (Asker::Object(own, _), Asker::Object(other, _)) if own == other => winner.entry.place.to_string(),
        (Asker::Agent(_), _) => winner.entry.place.to_string(),
        (Asker::Object(..), Asker::Agent(_)) => "an agent's configuration".to_owned(),
        (Asker::Object(..), Asker::Object(..)) => "a FluxAccess in another namespace".to_owned(),
    }
}

fn make_problem(claim: &Claim<'_>, message: String) -> Problem {
    Problem {
        place: claim.entry.place.clone(),
        message,
    }
}

/// The order of claims for the same Secret, by the fields from first to last. The smallest claim gets the Secret.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'a> {
    /// Agents come before FluxAccess objects.
    is_object: bool,
    /// A literal namespace name comes before a pattern.
    is_pattern: bool,
    /// A project comes before a group.
    scope: Scope,
    path: &'a str,
    role: Role,
    /// The asker, which is compared after the content, so that no tenant wins by the name of its object.
    asker: &'a Asker,
    place: &'a Place,
}

/// Returns the rank of a claim. `is_named`: the entry names the namespace literally.
fn rank_claim<'a>(claim: &'a Claim<'_>, is_named: bool) -> Rank<'a> {
    let entry = claim.entry;
    Rank {
        is_object: matches!(claim.asker, Asker::Object(..)),
        is_pattern: !is_named,
        scope: entry.scope,
        path: &entry.path,
        role: entry.role,
        asker: &claim.asker,
        place: &entry.place,
    }
}
