//! The attacks on tenancy that admission and RBAC have to meet, as data: what each tries, as whom, which rule should stop it, and what has to succeed
//! beside it, so that a refusal says something.
//!
//! Owns the table ([`list_attacks`]), what is made for it ([`list_scene`]), what an answer means ([`judge`]), the report ([`Report`]), and when what was made
//! ends ([`remains`]). Refuses to call anything held whose control did not succeed, and to try anything that would reach beyond what was made for it
//! without a dry run.

mod access;
mod endpoints;
mod finalizers;
mod flux;
mod html;
mod managed;
mod namespaces;
mod objects;
mod parts;
mod pattern;
mod reach;
pub mod remains;
mod rights;
mod scene;
mod templates;
mod tenure;
mod verdict;

pub use html::write_html;
use serde_json::Value;
use tenure_tenancy::admission::Rule;

pub use self::managed::list_managed_props;
pub use self::pattern::{find_pattern_status, judge_pattern, list_pattern_props};
pub use self::reach::judge_reach;
pub use self::scene::{CONTROLLER, Names, list_props, list_scene};
pub use self::verdict::{Judged, Outcome, Report, Tried, judge};

/// Who tries something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// Whoever runs the attestation: an administrator.
    Administrator,
    /// The owner of the tenant that was made.
    Owner,
    /// The account that the tenant's surfaces act as.
    Account,
    /// The owner of the other tenant, which is cordoned.
    Neighbour,
    /// The owner, who speaks in the name of the account.
    OwnerAsAccount,
    /// The owner, who speaks as one of the group of all administrators.
    OwnerAsMaster,
    /// Kubernetes' StatefulSet controller, which acts on a template that an owner wrote. The administrator speaks in its name.
    Controller,
    /// Tenure's controller: what a thief does with its token. The administrator speaks in its name.
    Tenure,
    /// The lane that works for the tenant, which an administrator bound to more than a lane needs: what a thief does with its token. The administrator
    /// speaks in its name.
    Lane,
    /// A user that may approve requests for credentials, and can speak as the tenant's accounts in one way.
    Approver(Way),
}

/// A right by which one user speaks as another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// It creates the other one's token.
    Token,
    /// It impersonates the other one.
    Impersonation,
    /// It enters Pods that run as the other one.
    Exec,
    /// It creates Pods that run as the other one.
    Pod,
}

/// What is sent.
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
    /// PATCH, what is applied by the server; as which manager, says the path.
    Apply,
    /// DELETE.
    Delete,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// As whom.
    pub who: Who,
    /// What.
    pub verb: Verb,
    /// Of which object or collection, with what is asked for besides.
    pub path: String,
    /// What is sent with it.
    pub body: Value,
    /// Whether it is a dry run.
    pub dry_run: bool,
}

impl Ask {
    fn new(who: Who, verb: Verb, path: impl Into<String>, body: Value) -> Self {
        Self {
            who,
            verb,
            path: path.into(),
            body,
            dry_run: verb != Verb::Read,
        }
    }

    /// For real: what it writes, if it may, is of the tenant that was made, and goes with it.
    fn for_real(mut self) -> Self {
        self.dry_run = false;
        self
    }
}

/// What should stop an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A rule of admission.
    Rule(Rule),
    /// Kubernetes' RBAC.
    Rbac,
}

impl Stop {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rule(rule) => rule.as_str(),
            Self::Rbac => "rbac",
        }
    }

    /// What to do where it didn't.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Rule(_) => {
                "let the API server judge what is written: tenure install --admission, or --policies (docs/howto/admission-webhooks.md)"
            }
            Self::Rbac => {
                "find the binding that gives it: kubectl auth can-i --list --as USER; take away ClusterRoleBindings of wide groups, as system:serviceaccounts"
            }
        }
    }
}

/// One attack.
#[derive(Clone, Debug, PartialEq)]
pub struct Attack {
    /// Its name, which stays the same.
    pub name: &'static str,
    /// What it tries, in a sentence.
    pub tries: &'static str,
    /// What should stop it.
    pub stop: Stop,
    /// How often the attempt is sent at the same time, and how many of them there is room for at most; once, and none, but for bursts.
    pub burst: Option<Burst>,
    /// What stands in the answer where it had success, by its JSON pointer: some requests are accepted without doing what they say.
    pub effect: Option<(&'static str, Value)>,
    /// The attempt.
    pub attempt: Ask,
    /// The same within the rights of who tries it.
    pub control: Ask,
}

/// Several at once, of which some may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// How many are sent: in the path and the body, `{n}` is the number of each.
    pub count: u32,
    /// How many may succeed.
    pub room: u32,
}

impl Attack {
    fn new(name: &'static str, tries: &'static str, stop: Stop, attempt: Ask, control: Ask) -> Self {
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

    /// It has succeeded only where the answer says so.
    fn seen_by(mut self, pointer: &'static str, value: Value) -> Self {
        self.effect = Some((pointer, value));
        self
    }

    /// Whether what it is about is known to whoever judges only a moment after it was made: policies read of Kustomizations what the controllers write on
    /// their namespace.
    #[must_use]
    pub fn takes_time(&self) -> bool {
        self.stop == Stop::Rule(Rule::GitManaged)
    }

    /// Whether an answer that says that the request was done shows what it was to do.
    #[must_use]
    pub fn has_effect(&self, answer: &Value) -> bool {
        let effect = self.effect.as_ref();
        effect.is_none_or(|(pointer, value)| answer.pointer(pointer).unwrap_or(&Value::Null) == value)
    }
}

/// All attacks, in the order in which they are tried: what [takes time](Attack::takes_time) comes late, and what fills the quota last.
#[must_use]
pub fn list_attacks(names: &Names) -> Vec<Attack> {
    let mut attacks = namespaces::list(names);
    attacks.extend(rights::list(names));
    attacks.extend(access::list(names));
    attacks.extend(endpoints::list(names));
    attacks.extend(flux::list(names));
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
    fn there_are_many_and_each_has_a_name_of_its_own() {
        let attacks = list_attacks(&names());
        assert!(attacks.len() >= 60, "{}", attacks.len());
        let known: BTreeSet<&str> = attacks.iter().map(|attack| attack.name).collect();
        assert_eq!(known.len(), attacks.len());
    }

    /// What is for real stays in what was made: it is removed with it.
    #[test]
    fn what_is_no_dry_run_is_of_the_tenant_that_was_made() {
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

    /// No attempt is what the control is: a refusal of one and a success of the other would be chance.
    #[test]
    fn a_control_is_another_request() {
        for attack in list_attacks(&names()) {
            assert!(
                attack.attempt != attack.control || attack.burst.is_some(),
                "{}",
                attack.name
            );
        }
    }
}
