//! The attacks on tenancy that admission and RBAC have to stop, as data. Each attack says what it tries, as which identity, and which rule should stop it. Each has a
//! control: a request that must succeed, so that a refusal of the attack proves something.
//!
//! The module has the table ([`list_attacks`]), the objects that are created for it ([`list_fixtures`]), the meaning of an answer ([`assess_attack`]), the report ([`Report`]),
//! and the end of the created objects ([`tenure_planner::attestation_cleanup`]). An attack is never reported as held if its control did not succeed. A request that would reach beyond the created
//! objects is always a dry run.

mod access;
mod authors;
mod endpoints;
mod finalizers;
mod fixtures;
mod flux;
mod html;
mod managed;
mod namespaces;
mod objects;
mod packages;
mod parts;
mod pattern;
mod reach;
mod rights;
mod templates;
mod tenure;
mod verdict;

pub use html::write_html;
use serde_json::Value;
use tenure_admission_rules::Rule;

pub use self::fixtures::{CONTROLLER, Names, list_attack_targets, list_fixtures};
pub use self::managed::list_managed_attack_targets;
pub use self::pattern::{assess_pattern, find_pattern_status, list_pattern_attack_targets};
pub use self::reach::assess_reach;
pub use self::verdict::{AttackResult, AttemptResult, Outcome, Report, assess_attack};

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sender {
    /// The administrator that runs the attestation.
    Administrator,
    /// The owner of the tenant that was made.
    Owner,
    /// A user with ClusterRole `tenure-author` in the home namespace of the tenant, and no other right.
    Author,
    /// The account that the tenant's surfaces act as.
    Account,
    /// The owner of the other tenant, which is cordoned.
    Neighbour,
    /// The owner, who impersonates the account.
    OwnerAsAccount,
    /// The owner, who impersonates a member of the group of all administrators.
    OwnerAsMaster,
    /// Kubernetes' StatefulSet controller, which acts on a template that an owner wrote. The administrator speaks in its name.
    Controller,
    /// Tenure's controller: a thief with its token could do this. The administrator impersonates it.
    Tenure,
    /// The lane of the tenant, which an administrator bound to more rights than a lane needs: a thief with its token could do this. The administrator impersonates it.
    Lane,
    /// A user that may approve requests for credentials, and can speak as the tenant's accounts in one way.
    Approver(ImpersonationRight),
}

/// A right by which one user speaks as another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImpersonationRight {
    /// The attacker creates a token of the other account.
    Token,
    /// The attacker impersonates the other account.
    Impersonation,
    /// The attacker enters Pods that run as the other account.
    Exec,
    /// The attacker creates Pods that run as the other account.
    Pod,
}

/// The kind of an [`AttackRequest`], which decides its HTTP method and media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET.
    Read,
    /// POST.
    Create,
    /// PUT.
    Replace,
    /// PATCH, a merge patch.
    Change,
    /// PATCH as a server-side apply; the path names the manager.
    Apply,
    /// DELETE.
    Delete,
}

/// A request to the API server that is part of an attack, of its control, or of its preparation.
#[derive(Clone, Debug, PartialEq)]
pub struct AttackRequest {
    /// The sender.
    pub who: Sender,
    /// The kind of the request.
    pub verb: Verb,
    /// The path of the object or collection, with query parameters.
    pub path: String,
    /// The body of the request.
    pub body: Value,
    /// Whether it is a dry run.
    pub dry_run: bool,
}

impl AttackRequest {
    fn new(who: Sender, verb: Verb, path: impl Into<String>, body: Value) -> Self {
        Self {
            who,
            verb,
            path: path.into(),
            body,
            dry_run: verb != Verb::Read,
        }
    }

    /// Makes the request for real: a successful write goes into the attestation's own tenant, and is removed with it.
    fn for_real(mut self) -> Self {
        self.dry_run = false;
        self
    }
}

/// The mechanism that should stop an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedDefense {
    /// A rule of admission.
    Rule(Rule),
    /// Kubernetes' RBAC.
    Rbac,
}

impl ExpectedDefense {
    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rule(rule) => rule.as_str(),
            Self::Rbac => "rbac",
        }
    }

    /// Returns the advice if the attack was not stopped.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Rule(_) => {
                "let the API server check writes: tenure install --admission, or --policies (docs/howto/admission-webhooks.md)"
            }
            Self::Rbac => {
                "find the binding that gives it: kubectl auth can-i --list --as USER; take away ClusterRoleBindings of wide groups, as system:serviceaccounts"
            }
        }
    }
}

/// An attack on tenancy, with its control and the mechanism that should stop it.
#[derive(Clone, Debug, PartialEq)]
pub struct Attack {
    /// The stable name of the attack.
    pub name: &'static str,
    /// A sentence about the goal of the attack.
    pub tries: &'static str,
    /// The mechanism that should stop the attack.
    pub stop: ExpectedDefense,
    /// The number of simultaneous tries and of the allowed successes. Without a burst, the attack is tried once, and no success is allowed.
    pub burst: Option<ConcurrentRequests>,
    /// The JSON pointer and value that prove success in an answer: some requests are accepted without doing what they say.
    pub effect: Option<(&'static str, Value)>,
    /// The attempt.
    pub attempt: AttackRequest,
    /// The control: nearly the same request, within the rights of its sender.
    pub control: AttackRequest,
}

/// Requests of one attack that are sent at the same time, of which a limited number may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConcurrentRequests {
    /// The number of requests: in the path and the body, `{n}` is the number of each.
    pub count: u32,
    /// The number of requests that may succeed.
    pub room: u32,
}

impl Attack {
    fn new(
        name: &'static str,
        tries: &'static str,
        stop: ExpectedDefense,
        attempt: AttackRequest,
        control: AttackRequest,
    ) -> Self {
        Self {
            name,
            tries,
            stop,
            burst: None,
            effect: None,
            attempt,
            control,
        }
    }

    /// Sets the proof of success: the attack has succeeded only if the answer has this value.
    fn seen_by(mut self, pointer: &'static str, value: Value) -> Self {
        self.effect = Some((pointer, value));
        self
    }

    /// Checks whether the API server can judge the attack only a moment after its objects were created. Policies read facts about Kustomizations that the controllers
    /// write on their namespace.
    #[must_use]
    pub fn takes_time(&self) -> bool {
        self.stop == ExpectedDefense::Rule(Rule::GitManaged)
    }

    /// Checks whether an answer that reports success shows the effect of the request.
    #[must_use]
    pub fn has_effect(&self, answer: &Value) -> bool {
        let effect = self.effect.as_ref();
        effect.is_none_or(|(pointer, value)| answer.pointer(pointer).unwrap_or(&Value::Null) == value)
    }
}

/// The attacks that policies alone don't stop: an expression sees neither sums nor other objects, nor fields of a Tenant that its namespaces don't have.
pub const LEFT_BY_POLICIES: [&str; 5] = [
    "home-of-another",
    "namespace-that-a-binding-names",
    "namespace-with-a-denied-label",
    "quota-by-burst",
    "quota-by-dry-run",
];

/// Lists all attacks in the order of the tries: those that [take time](Attack::takes_time) come late, and those that fill the quota come last.
#[must_use]
pub fn list_attacks(names: &Names) -> Vec<Attack> {
    let mut attacks = namespaces::list(names);
    attacks.extend(rights::list(names));
    attacks.extend(authors::list(names));
    attacks.extend(access::list(names));
    attacks.extend(endpoints::list(names));
    attacks.extend(flux::list(names));
    attacks.extend(packages::list(names));
    attacks.extend(objects::list(names));
    attacks.extend(parts::list(names));
    attacks.extend(templates::list(names));
    attacks.extend(tenure::list(names));
    attacks.extend(finalizers::list(names));
    attacks.extend(managed::list(names));
    attacks.extend(namespaces::list_quota(names));
    attacks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    pub(super) fn names() -> Names {
        Names {
            suffix: "0a1b2c".to_owned(),
            platform: "tenure-system".to_owned(),
            tenant_uid: "u1".to_owned(),
            neighbour_uid: "u2".to_owned(),
            expires: "2026-01-01T01:00:00Z".to_owned(),
        }
    }

    #[test]
    fn attacks_are_many_and_have_unique_names() {
        let attacks = list_attacks(&names());
        assert!(attacks.len() >= 60, "{}", attacks.len());
        let known: BTreeSet<&str> = attacks.iter().map(|attack| attack.name).collect();
        assert_eq!(known.len(), attacks.len());
    }

    /// A request that is no dry run writes only into the objects that were made for the attestation, and is removed with them.
    #[test]
    fn real_writes_stay_in_tenant_of_attestation() {
        let names = names();
        for attack in list_attacks(&names) {
            for ask in [&attack.attempt, &attack.control] {
                if ask.verb == Verb::Read || ask.dry_run {
                    continue;
                }
                let at_home = ask.path.starts_with(&format!("/api/v1/namespaces/{}/", names.tenant()));
                let is_own = ask.path == "/api/v1/namespaces"
                    && ask.body["metadata"]["labels"]["capsule.clastix.io/tenant"] == names.tenant();
                assert!(at_home || is_own, "{}: {ask:?}", attack.name);
            }
        }
    }

    /// No attack equals its control: otherwise a refusal of one and a success of the other would be chance.
    #[test]
    fn control_differs_from_attack() {
        for attack in list_attacks(&names()) {
            assert!(
                attack.attempt != attack.control || attack.burst.is_some(),
                "{}",
                attack.name
            );
        }
    }
}
