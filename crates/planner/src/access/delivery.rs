//! What is written for a credential: the Secret in the form that its clients read, without its value, and the Role and RoleBinding by which single accounts
//! read that one Secret. All three have one name, and bear the name of their request.
//!
//! Owns these forms, whether an object is ours, and what is wanted of a credential. Refuses values: who writes the Secret puts them in.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::access::request::{AskedIn, CredentialLedger, CredentialPhase, NextCredential};
use tenure_api::access::{FluxAccessRequest, FluxAccessRequestSpec, REQUEST_LABEL};
use tenure_api::metadata::{CREDENTIAL_ACCESS, CREDENTIAL_LABEL, MANAGED_BY, MANAGED_BY_TENURE};
use tenure_api::{ObjectView, Time};
use tenure_tenancy::access::approval::Verdict;

use super::host::{CredentialKind, Role};
use super::rotation::Wanted;
use super::rotation::schedule::{SETTLE, later};
use crate::dependents::is_written_by_tenure;

/// The type of a Secret that images are pulled with.
pub const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";
/// Its key.
pub const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";
/// The key of the certificates of the authority by which a host is known, as sources read it.
pub const CA_KEY: &str = "ca.crt";
/// The kind of what asks in an agent's configuration.
const AGENT: &str = "Agent";
/// The longest user name that GitLab takes.
const LONGEST_USERNAME: usize = 255;
/// Keys of a Secret with which a repository is fetched by HTTP.
pub const BASIC_KEYS: [&str; 2] = ["username", "password"];
/// Keys of a Secret with which it is fetched by ssh.
pub const SSH_KEYS: [&str; 3] = ["identity", "identity.pub", "known_hosts"];
/// The user name that goes with a token to which the host gives none.
pub const TOKEN_USER: &str = "x-access-token";
/// How long the host is asked to end what it has of an AccessProvider that is being deleted.
pub const FAREWELL_SECONDS: i64 = 600;
/// How long after a start it may take to read what is asked for, before it is said that it hasn't been read.
const UNREAD: Duration = Duration::from_secs(60);

const RBAC: &str = "rbac.authorization.k8s.io";

/// In which form a Secret has a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `username` and `password`.
    Basic,
    /// `identity`, `identity.pub` and `known_hosts`.
    Ssh,
    /// `.dockerconfigjson`.
    Docker,
}

impl Form {
    /// The form for a role of a kind of credentials.
    #[must_use]
    pub fn of(kind: CredentialKind, role: Role) -> Self {
        match (kind, role) {
            (CredentialKind::DeployKey, _) => Self::Ssh,
            (_, Role::ReadRepository) => Self::Basic,
            (_, Role::ReadRegistry) => Self::Docker,
        }
    }

    /// The type of the Secret.
    #[must_use]
    pub fn secret_type(self) -> &'static str {
        match self {
            Self::Basic | Self::Ssh => "Opaque",
            Self::Docker => DOCKER_CONFIG,
        }
    }

    /// The key whose value is the credential's own, or holds it.
    #[must_use]
    pub fn value_key(self) -> &'static str {
        match self {
            Self::Basic => "password",
            // The public half says which one it is.
            Self::Ssh => "identity.pub",
            Self::Docker => DOCKER_CONFIG_KEY,
        }
    }
}

/// The role of a request.
#[must_use]
pub fn read_role(spec: &FluxAccessRequestSpec) -> Option<Role> {
    [Role::ReadRepository, Role::ReadRegistry]
        .into_iter()
        .find(|role| super::request::name_role(*role) == spec.role)
}

fn labels(request: &str) -> Value {
    json!({
        CREDENTIAL_LABEL: CREDENTIAL_ACCESS,
        MANAGED_BY: MANAGED_BY_TENURE,
        REQUEST_LABEL: request,
    })
}

/// The metadata of what is written for a request.
#[must_use]
pub fn write_metadata(request: &str, namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "labels": labels(request) })
}

/// The patch that puts our mark on a Secret again.
#[must_use]
pub fn write_mark(request: &str, uid: &str, resource_version: &str) -> Value {
    json!({ "metadata": { "uid": uid, "resourceVersion": resource_version, "labels": labels(request) } })
}

/// The Role and the RoleBinding: nothing but `get` of this one Secret, for these accounts of its namespace.
#[must_use]
pub fn write_access(request: &str, namespace: &str, name: &str, accounts: &BTreeSet<String>) -> [Value; 2] {
    let metadata = write_metadata(request, namespace, name);
    let subjects: Vec<Value> = accounts
        .iter()
        .map(|account| json!({ "kind": "ServiceAccount", "name": account, "namespace": namespace }))
        .collect();
    [
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get"] }],
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": name },
            "subjects": subjects,
        }),
    ]
}

/// For which request an object was written, if it was written for one.
#[must_use]
pub fn find_request(object: &Value) -> Option<&str> {
    let view = ObjectView::of(object);
    let is_ours = view.find_label(CREDENTIAL_LABEL) == Some(CREDENTIAL_ACCESS)
        && view.find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE);
    view.find_label(REQUEST_LABEL).filter(|_| is_ours)
}

/// Chooses the user name of a token: the agent's name, if an agent's configuration asks. GitLab takes letters, digits and `._+-` in user names, so other
/// characters become hyphens.
#[must_use]
pub fn choose_username(asked_in: &AskedIn) -> Option<String> {
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "._+-".contains(*letter);
    let name = asked_in.name.chars().take(LONGEST_USERNAME);
    let name: String = name
        .map(|letter| if is_plain(&letter) { letter } else { '-' })
        .collect();
    (asked_in.kind == AGENT && !name.is_empty()).then_some(name)
}

/// Whether an object was written for a request. If somebody has removed its labels, `managedFields` tell.
#[must_use]
pub fn belongs_to(object: &Value, request: &str) -> bool {
    match find_request(object) {
        Some(found) => found == request,
        None => is_written_by_tenure(object),
    }
}

/// Whether an object that is there grants what is wanted, of a Role or RoleBinding.
#[must_use]
pub fn grants_as_wanted(live: &Value, wanted: &Value) -> bool {
    ["rules", "roleRef", "subjects"]
        .iter()
        .all(|field| live.get(field) == wanted.get(field))
}

/// What holds for the AccessProvider of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is none.
    Gone,
    /// It is being deleted, since so many seconds.
    Ending(i64),
    /// Nothing new is made.
    Suspended,
    /// It is there.
    Active,
}

/// What is known of a request, beside a single namespace.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The request.
    pub request: &'a FluxAccessRequest,
    /// What holds for it.
    pub verdict: &'a Verdict,
    /// Of its AccessProvider.
    pub standing: Standing,
    /// Whether somebody judges what is written.
    pub judges_writes: bool,
    /// Where it delivers; none as long as nobody has found out.
    pub deliveries: Option<&'a BTreeSet<String>>,
}

/// What is wanted of the credential in a namespace.
#[must_use]
pub fn decide_wanted(case: Case<'_>, namespace: &str) -> Wanted {
    let provider = &case.request.spec.provider;
    match case.standing {
        Standing::Gone => return Wanted::Abandoned(format!("AccessProvider {provider} is gone")),
        Standing::Ending(seconds) if seconds >= FAREWELL_SECONDS => {
            return Wanted::Abandoned(format!(
                "AccessProvider {provider} is being deleted, and its host could not be asked"
            ));
        }
        Standing::Ending(_) => return Wanted::Revoked(format!("AccessProvider {provider} is being deleted")),
        Standing::Suspended | Standing::Active => {}
    }
    if case.request.metadata.deletion_timestamp.is_some() {
        return Wanted::Revoked("nobody asks for it any more".to_owned());
    }
    match case.verdict {
        Verdict::Denied(word) => return Wanted::Revoked(format!("{} denied it", word.by)),
        // Nobody has taken anything back.
        Verdict::Pending(reasons) if !case.judges_writes => {
            return Wanted::HeldBack(reasons.first().cloned().unwrap_or_default());
        }
        Verdict::Pending(_) => return Wanted::Revoked("its grant is gone, or counts no more".to_owned()),
        Verdict::Approved(_) => {}
    }
    let Some(deliveries) = case.deliveries else {
        return Wanted::HeldBack("what is asked for has not been read yet, since the start".to_owned());
    };
    if !deliveries.contains(namespace) {
        return Wanted::Revoked("it is not asked for in this namespace any more".to_owned());
    }
    match case.standing {
        Standing::Suspended => Wanted::HeldBack(format!("AccessProvider {provider} is suspended")),
        _ => Wanted::Delivered,
    }
}

/// Until when nothing is done or said about a request that was let through before, and of which nobody has found out since the start (`since`) where it delivers:
/// what its status says held until then, and whoever begins anew would say of each that it is held back, and a moment later that it isn't.
#[must_use]
pub fn find_patience(case: Case<'_>, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let is_going = case.request.metadata.deletion_timestamp.is_some();
    let is_running = matches!(case.standing, Standing::Active | Standing::Suspended) && !is_going;
    let was_said = case
        .request
        .status
        .as_ref()
        .is_some_and(|status| status.state.as_deref() == Some("Approved"));
    let waits = is_running && was_said && case.deliveries.is_none() && matches!(case.verdict, Verdict::Approved(_));
    let until = later(since, UNREAD);
    (waits && until > now).then_some(until)
}

/// By when an order to the host has to be given up: before anybody looks for what it made.
#[must_use]
pub fn order_deadline(next: &NextCredential) -> Timestamp {
    let patience = SETTLE.as_secs().saturating_sub(10);
    let seconds = next
        .begun_at
        .0
        .as_second()
        .saturating_add(i64::try_from(patience).unwrap_or(i64::MAX));
    Timestamp::from_second(seconds).unwrap_or(next.begun_at.0)
}

/// The ledger of a namespace; an empty one where nothing was made yet.
#[must_use]
pub fn find_ledger(request: &FluxAccessRequest, namespace: &str) -> CredentialLedger {
    let ledgers = request.status.iter().flat_map(|status| &status.credentials);
    let mut ledgers = ledgers.filter(|ledger| ledger.namespace == namespace);
    ledgers.next().cloned().unwrap_or_else(|| CredentialLedger {
        namespace: namespace.to_owned(),
        ..CredentialLedger::default()
    })
}

/// The namespaces in which a request has its Secret: there it was spread, and nobody has taken it back.
#[must_use]
pub fn list_delivered(request: &FluxAccessRequest) -> BTreeSet<String> {
    let Some(status) = request
        .status
        .as_ref()
        .filter(|status| status.state.as_deref() == Some("Approved"))
    else {
        return BTreeSet::new();
    };
    let is_there = |ledger: &&CredentialLedger| {
        let is_spread = |next: &NextCredential| next.phase == CredentialPhase::Distributed;
        ledger.current.is_some() || ledger.next.as_ref().is_some_and(is_spread)
    };
    status
        .credentials
        .iter()
        .filter(is_there)
        .map(|ledger| ledger.namespace.clone())
        .collect()
}

/// The numbers of what an order may be on its way for: a list of theirs that is taken meanwhile may lack what it makes. All requests are of one provider.
#[must_use]
pub fn list_ordering<'a>(
    requests: impl Iterator<Item = &'a FluxAccessRequest>,
    now: Timestamp,
) -> BTreeSet<(String, u64)> {
    let ordering = requests.filter(|request| is_ordering(request, now));
    ordering
        .map(|request| (request.spec.target.scope.clone(), request.spec.target.id))
        .collect()
}

fn is_ordering(request: &FluxAccessRequest, now: Timestamp) -> bool {
    let ledgers = request.status.iter().flat_map(|status| &status.credentials);
    let mut begun = ledgers.filter_map(|ledger| ledger.next.as_ref());
    begun.any(|next| {
        let settled = next.begun_at.0.checked_add(SETTLE).unwrap_or(Timestamp::MAX);
        next.phase == CredentialPhase::Intent && now < settled
    })
}

/// Whether two URLs are of one repository: scheme, host, port and path are the same, and over ssh the user. One by HTTP that names a user, or one that asks a
/// question, is of none.
#[must_use]
pub fn is_same_repository(one: &str, other: &str) -> bool {
    read_address(one).is_some_and(|one| Some(one) == read_address(other))
}

fn read_address(url: &str) -> Option<(String, String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let (authority, path) = rest.split_once('/')?;
    let default = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        "ssh" => ":22",
        _ => return None,
    };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_user = user.is_empty() || scheme == "ssh" && !user.contains([':', '@']);
    let is_plain = !host.is_empty() && is_user && !path.contains(['?', '#', '\\', '%']);
    let host = host.to_ascii_lowercase();
    let host = host.strip_suffix(default).unwrap_or(&host);
    let host = format!("{user}@{host}");
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path).to_owned();
    (is_plain && !path.is_empty()).then_some((scheme, host, path))
}

/// The word of an approval that ends soonest, in time.
#[must_use]
pub fn find_end(verdict: &Verdict) -> Option<&Time> {
    match verdict {
        Verdict::Approved(word) | Verdict::Denied(word) => word.not_after.as_ref(),
        Verdict::Pending(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use tenure_tenancy::access::approval::Word;

    use super::*;

    fn word() -> Word {
        Word {
            object: "grant".to_owned(),
            by: "alice".to_owned(),
            reason: None,
            not_after: None,
            is_standing: false,
        }
    }

    fn request() -> FluxAccessRequest {
        let spec = FluxAccessRequestSpec {
            provider: "work".to_owned(),
            role: "read_registry".to_owned(),
            ..FluxAccessRequestSpec::default()
        };
        FluxAccessRequest::new("work-42-a", spec)
    }

    #[test]
    fn an_order_is_on_its_way_until_its_answer_is_recorded_or_it_is_given_up() {
        let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
        let ordering = |phase: &str, begun: &str| {
            let mut request = FluxAccessRequest::new("work-42-a", FluxAccessRequestSpec::default());
            let next = json!({ "phase": phase, "generation": 1, "nonce": "n", "name": "fa/1", "cause": "First", "begunAt": begun });
            request.status = serde_json::from_value(
                json!({ "credentials": [{ "namespace": "a" }, { "namespace": "b", "next": next }] }),
            )
            .unwrap();
            is_ordering(&request, now)
        };
        assert!(ordering("Intent", "2026-06-01T11:59:30Z"));
        assert!(!ordering("Intent", "2026-06-01T11:59:00Z"));
        assert!(!ordering("Staged", "2026-06-01T11:59:30Z"));
        assert!(!is_ordering(
            &FluxAccessRequest::new("work-42-a", FluxAccessRequestSpec::default()),
            now
        ));
    }

    #[test]
    fn what_was_let_through_before_is_left_as_it_is_until_what_is_asked_for_was_read() {
        let word = word();
        let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
        let mut request = request();
        request.status = serde_json::from_value(json!({ "state": "Approved" })).unwrap();
        let (approved, there) = (Verdict::Approved(word.clone()), BTreeSet::new());
        let case = Case {
            request: &request,
            verdict: &approved,
            standing: Standing::Active,
            judges_writes: true,
            deliveries: None,
        };
        let end = later(now, UNREAD);
        assert_eq!(find_patience(case, now, now), Some(end));
        // What can't be read for so long is said.
        assert_eq!(find_patience(case, now, end), None);
        let new = FluxAccessRequest::new("work-42-a", FluxAccessRequestSpec::default());
        let (pending, denied) = (Verdict::Pending(Vec::new()), Verdict::Denied(word));
        let known = Some(&there);
        for other in [
            Case {
                deliveries: known,
                ..case
            },
            Case { request: &new, ..case },
            Case {
                verdict: &pending,
                ..case
            },
            Case {
                verdict: &denied,
                ..case
            },
            Case {
                standing: Standing::Gone,
                ..case
            },
            Case {
                standing: Standing::Ending(1),
                ..case
            },
        ] {
            assert_eq!(find_patience(other, now, now), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_wanted_follows_from_who_says_so() {
        let word = word();
        let (approved, denied) = (Verdict::Approved(word.clone()), Verdict::Denied(word));
        let pending = Verdict::Pending(vec!["nobody judges".to_owned()]);
        let there: BTreeSet<String> = ["team-a".to_owned()].into();
        let request = request();
        let decide =
            |verdict: &Verdict, standing: Standing, judges_writes: bool, deliveries: Option<&BTreeSet<String>>| {
                let case = Case {
                    request: &request,
                    verdict,
                    standing,
                    judges_writes,
                    deliveries,
                };
                match decide_wanted(case, "team-a") {
                    Wanted::Delivered => "delivered",
                    Wanted::HeldBack(_) => "held back",
                    Wanted::Revoked(_) => "revoked",
                    Wanted::Abandoned(_) => "abandoned",
                }
            };
        let (none, all) = (BTreeSet::new(), Some(&there));
        for (verdict, standing, judges, deliveries, expected) in [
            (&approved, Standing::Active, true, all, "delivered"),
            (&approved, Standing::Suspended, true, all, "held back"),
            (&approved, Standing::Active, true, None, "held back"),
            (&approved, Standing::Active, true, Some(&none), "revoked"),
            (&denied, Standing::Active, true, all, "revoked"),
            (&pending, Standing::Active, true, all, "revoked"),
            // Admission was turned off: nothing is taken away for that, and nothing made.
            (&pending, Standing::Active, false, all, "held back"),
            (&approved, Standing::Ending(5), true, all, "revoked"),
            (&approved, Standing::Ending(FAREWELL_SECONDS), true, all, "abandoned"),
            (&approved, Standing::Gone, true, all, "abandoned"),
            // What was revoked while it is suspended is revoked.
            (&denied, Standing::Suspended, true, all, "revoked"),
        ] {
            assert_eq!(
                decide(verdict, standing, judges, deliveries),
                expected,
                "{verdict:?} {standing:?}"
            );
        }
    }

    #[test]
    fn a_token_bears_the_name_of_the_agent() {
        let name = |kind: &str, name: &str| {
            choose_username(&AskedIn {
                kind: kind.to_owned(),
                name: name.to_owned(),
                ..AskedIn::default()
            })
        };
        assert_eq!(name("Agent", "prod").as_deref(), Some("prod"));
        assert_eq!(
            name("Agent", "infra/agents:my-agent").as_deref(),
            Some("infra-agents-my-agent")
        );
        assert_eq!(name("Agent", &"é".repeat(300)).map(|name| name.len()), Some(255));
        assert_eq!(name("Agent", ""), None);
        assert_eq!(name("FluxAccess", "prod"), None);
    }

    #[test]
    fn an_object_is_ours_by_its_labels_and_gives_no_more_than_one_secret() {
        let accounts: BTreeSet<String> = ["flux".to_owned(), "default".to_owned()].into();
        let [role, binding] = write_access("work-42-a", "team-a", "git", &accounts);
        assert_eq!(find_request(&role), Some("work-42-a"));
        assert_eq!(role["rules"][0]["resourceNames"], json!(["git"]));
        assert_eq!(binding["subjects"].as_array().unwrap().len(), 2);
        assert!(grants_as_wanted(&role, &role) && !grants_as_wanted(&role, &binding));
        let mut other = role.clone();
        other["metadata"]["labels"][MANAGED_BY] = json!("somebody");
        assert_eq!(find_request(&other), None);
        assert_eq!(find_request(&json!({})), None);
        // Its labels were taken off.
        let bare = |manager: &str| json!({ "metadata": { "managedFields": [{ "manager": "kubectl" }, { "manager": manager }] } });
        assert!(belongs_to(&bare("tenure-controller"), "work-42-a") && !belongs_to(&bare("helm"), "work-42-a"));
        assert!(belongs_to(&role, "work-42-a") && !belongs_to(&role, "work-42-b"));
    }

    #[test]
    fn an_address_is_one_repositorys_or_none() {
        let same = |one: &str, other: &str| is_same_repository(one, other) && is_same_repository(other, one);
        let project = "https://gitlab.example.org/group-1/app.git";
        for other in [
            "https://gitlab.example.org/group-1/app",
            "https://GitLab.example.org:443/group-1/app/",
            "HTTPS://gitlab.example.org/group-1/app.git",
        ] {
            assert!(same(project, other), "{other}");
        }
        for other in [
            "http://gitlab.example.org/group-1/app.git",
            "https://gitlab.example.org:8443/group-1/app.git",
            "https://gitlab.example.org.evil.example/group-1/app.git",
            "https://gitlab.example.org/group-1/app-2",
            "https://gitlab.example.org/group-1/other/../app",
            "https://user@gitlab.example.org/group-1/app",
            "https://gitlab.example.org@evil.example/group-1/app",
            "https://gitlab.example.org/group-1/app?x",
            "ssh://gitlab.example.org/group-1/app",
            "",
        ] {
            assert!(!same(project, other), "{other}");
        }
        let project = "ssh://git@gitlab.example.org/group-1/app.git";
        assert!(same(project, "ssh://git@GitLab.example.org:22/group-1/app"));
        for other in [
            "ssh://gitlab.example.org/group-1/app",
            "ssh://git@gitlab.example.org:2222/group-1/app",
            "ssh://git:x@gitlab.example.org/group-1/app",
            "ssh://git@evil.example@gitlab.example.org/group-1/app",
            "https://git@gitlab.example.org/group-1/app",
        ] {
            assert!(!same(project, other), "{other}");
        }
    }

    #[test]
    fn a_secret_has_the_form_of_its_role() {
        let request = request();
        assert_eq!(read_role(&request.spec), Some(Role::ReadRegistry));
        assert_eq!(
            Form::of(CredentialKind::DeployToken, Role::ReadRegistry).secret_type(),
            DOCKER_CONFIG
        );
    }
}
