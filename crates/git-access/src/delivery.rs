//! The objects that are written for a credential. The Secret has the form that its clients read; here it has no value. A Role and a RoleBinding let single accounts
//! read that one Secret. All three have one name, and a label with the name of their request.
//!
//! This module also decides whether an object is Tenure's, and which state of a credential is wanted. It never sees a value: the writer of the Secret adds it.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::access::request::{AskedIn, CredentialLedger, CredentialPhase, NextCredential};
use tenure_api::access::{FluxAccessRequest, FluxAccessRequestSpec, REQUEST_LABEL};
use tenure_api::metadata::{CREDENTIAL_ACCESS, CREDENTIAL_LABEL, MANAGED_BY, MANAGED_BY_TENURE};
use tenure_api::{ObjectView, Time};
use tenure_tenancy::access::approval::Verdict;

use super::rotation::WantedState;
use super::rotation::schedule::{SETTLE, add_duration};
use tenure_remote_requests::git_host::{CredentialKind, Role};

/// The type of a Secret for pulling images.
pub const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";
/// The key of such a Secret.
pub const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";
/// The key of the certificates of a host's certificate authority, as sources read them.
pub const CA_KEY: &str = "ca.crt";
/// The kind of an asker that is an agent's configuration.
const AGENT: &str = "Agent";
/// The maximum length of a user name at GitLab.
const LONGEST_USERNAME: usize = 255;
/// Keys of a Secret for fetching a repository by HTTP.
pub const BASIC_KEYS: [&str; 2] = ["username", "password"];
/// Keys of a Secret for fetching a repository by ssh.
pub const SSH_KEYS: [&str; 3] = ["identity", "identity.pub", "known_hosts"];
/// The user name for a token if the host assigns none.
pub const TOKEN_USER: &str = "x-access-token";
/// The period in which the controllers ask the host to end the credentials of an AccessProvider that is being deleted.
pub const FAREWELL_SECONDS: i64 = 600;
/// The time after a start during which unread requests are not reported as unread.
const UNREAD: Duration = Duration::from_secs(60);

const RBAC: &str = "rbac.authorization.k8s.io";

/// The form in which a credential is written into a Secret: its keys.
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
    /// Returns the form of a Secret for a kind of credential and its role.
    #[must_use]
    pub fn for_role(kind: CredentialKind, role: Role) -> Self {
        match (kind, role) {
            (CredentialKind::DeployKey, _) => Self::Ssh,
            (_, Role::ReadRepository) => Self::Basic,
            (_, Role::ReadRegistry) => Self::Docker,
        }
    }

    /// Returns the Kubernetes type of a Secret in this form.
    #[must_use]
    pub fn secret_type(self) -> &'static str {
        match self {
            Self::Basic | Self::Ssh => "Opaque",
            Self::Docker => DOCKER_CONFIG,
        }
    }

    /// Returns the key whose value is, or contains, the credential.
    #[must_use]
    pub fn value_key(self) -> &'static str {
        match self {
            Self::Basic => "password",
            // The public half identifies the key.
            Self::Ssh => "identity.pub",
            Self::Docker => DOCKER_CONFIG_KEY,
        }
    }
}

/// Reads the role in the spec of a request; `None` if it is unknown.
#[must_use]
pub fn read_role(spec: &FluxAccessRequestSpec) -> Option<Role> {
    [Role::ReadRepository, Role::ReadRegistry]
        .into_iter()
        .find(|role| super::request::name_role(*role) == spec.role)
}

fn make_labels(request: &str) -> Value {
    json!({
        CREDENTIAL_LABEL: CREDENTIAL_ACCESS,
        MANAGED_BY: MANAGED_BY_TENURE,
        REQUEST_LABEL: request,
    })
}

/// Returns the metadata of the objects for a request.
#[must_use]
pub fn write_metadata(request: &str, namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "labels": make_labels(request) })
}

/// Returns the patch that restores Tenure's labels on a Secret.
#[must_use]
pub fn write_mark(request: &str, uid: &str, resource_version: &str) -> Value {
    json!({ "metadata": { "uid": uid, "resourceVersion": resource_version, "labels": make_labels(request) } })
}

/// Returns the Role and the RoleBinding: only `get` of this one Secret, for these accounts of its namespace.
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

/// Returns the request for which an object was written, if any.
#[must_use]
pub fn find_request(object: &Value) -> Option<&str> {
    let view = ObjectView::new(object);
    let is_ours = view.find_label(CREDENTIAL_LABEL) == Some(CREDENTIAL_ACCESS)
        && view.find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE);
    view.find_label(REQUEST_LABEL).filter(|_| is_ours)
}

/// Chooses the user name of a token: the agent's name, if an agent's configuration asks. GitLab takes letters, digits and `._+-` in user names, so other characters
/// become hyphens.
#[must_use]
pub fn choose_username(asked_in: &AskedIn) -> Option<String> {
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "._+-".contains(*letter);
    let name = asked_in.name.chars().take(LONGEST_USERNAME);
    let name: String = name
        .map(|letter| if is_plain(&letter) { letter } else { '-' })
        .collect();
    (asked_in.kind == AGENT && !name.is_empty()).then_some(name)
}

/// Checks whether an object was written for a request. If its labels were removed, `managedFields` decide.
#[must_use]
pub fn belongs_to(object: &Value, request: &str) -> bool {
    match find_request(object) {
        Some(found) => found == request,
        None => ObjectView::new(object).is_written_by_tenure(),
    }
}

/// Checks whether an existing Role or RoleBinding has the same rules, role and subjects as the wanted one.
#[must_use]
pub fn grants_as_wanted(live: &Value, wanted: &Value) -> bool {
    ["rules", "roleRef", "subjects"]
        .iter()
        .all(|field| live.get(field) == wanted.get(field))
}

/// Whether the AccessProvider of a request exists, is suspended or is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderState {
    /// The AccessProvider is missing.
    Gone,
    /// The AccessProvider has been in deletion for this number of seconds.
    Ending(i64),
    /// The AccessProvider is suspended: nothing new is made.
    Suspended,
    /// The AccessProvider exists.
    Active,
}

/// The facts of a request that apply to all of its namespaces.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// The request.
    pub request: &'a FluxAccessRequest,
    /// The answer to the request.
    pub verdict: &'a Verdict,
    /// The state of its AccessProvider.
    pub provider_state: ProviderState,
    /// True if admission checks writes.
    pub judges_writes: bool,
    /// The namespaces of the deliveries. Unset until the controllers have determined them.
    pub deliveries: Option<&'a BTreeSet<String>>,
}

/// Decides whether a request's credential in a namespace should be delivered, held back, revoked or abandoned.
#[must_use]
pub fn decide_wanted(case: RequestFacts<'_>, namespace: &str) -> WantedState {
    let provider = &case.request.spec.provider;
    match case.provider_state {
        ProviderState::Gone => return WantedState::Abandoned(format!("AccessProvider {provider} is gone")),
        ProviderState::Ending(seconds) if seconds >= FAREWELL_SECONDS => {
            return WantedState::Abandoned(format!(
                "AccessProvider {provider} is being deleted, and its host could not be asked"
            ));
        }
        ProviderState::Ending(_) => return WantedState::Revoked(format!("AccessProvider {provider} is being deleted")),
        ProviderState::Suspended | ProviderState::Active => {}
    }
    if case.request.metadata.deletion_timestamp.is_some() {
        return WantedState::Revoked("no entry asks for it any more".to_owned());
    }
    match case.verdict {
        Verdict::Denied(word) => return WantedState::Revoked(format!("{} denied it", word.by)),
        // Without checks by admission, no grant counts. So the missing approval is no revocation.
        Verdict::Pending(reasons) if !case.judges_writes => {
            return WantedState::HeldBack(reasons.first().cloned().unwrap_or_default());
        }
        Verdict::Pending(_) => return WantedState::Revoked("its grant is gone, or counts no more".to_owned()),
        Verdict::Approved(_) => {}
    }
    let Some(deliveries) = case.deliveries else {
        return WantedState::HeldBack("the requested entries have not been read yet since the start".to_owned());
    };
    if !deliveries.contains(namespace) {
        return WantedState::Revoked("it is not asked for in this namespace any more".to_owned());
    }
    match case.provider_state {
        ProviderState::Suspended => WantedState::HeldBack(format!("AccessProvider {provider} is suspended")),
        _ => WantedState::Delivered,
    }
}

/// Returns the time until which the controllers neither act on a request nor report about it. It applies to an approved request with deliveries that are still
/// unknown since the start (`since`). The earlier status holds until then. Otherwise each start would report the request as held back, and as approved a moment
/// later.
#[must_use]
pub fn find_grace_end(case: RequestFacts<'_>, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let is_going = case.request.metadata.deletion_timestamp.is_some();
    let is_running = matches!(case.provider_state, ProviderState::Active | ProviderState::Suspended) && !is_going;
    let was_approved = case
        .request
        .status
        .as_ref()
        .is_some_and(|status| status.state.as_deref() == Some("Approved"));
    let waits = is_running && was_approved && case.deliveries.is_none() && matches!(case.verdict, Verdict::Approved(_));
    let until = add_duration(since, UNREAD);
    (waits && until > now).then_some(until)
}

/// Returns the time by which an order for a new credential must be given up: ten seconds before the controllers search the host for its result.
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

/// Returns the ledger of a namespace, or an empty ledger if nothing was made yet.
#[must_use]
pub fn find_ledger(request: &FluxAccessRequest, namespace: &str) -> CredentialLedger {
    let ledgers = request.status.iter().flat_map(|status| &status.credentials);
    let mut ledgers = ledgers.filter(|ledger| ledger.namespace == namespace);
    ledgers.next().cloned().unwrap_or_else(|| CredentialLedger {
        namespace: namespace.to_owned(),
        ..CredentialLedger::default()
    })
}

/// Lists the namespaces in which a request has its Secret: it was distributed there and not revoked.
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

/// Returns the targets for which an order may be in transit. A list of such a target may lack the new credential. All requests are of one provider.
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

/// Checks whether the host may still execute an order for a credential of this request.
fn is_ordering(request: &FluxAccessRequest, now: Timestamp) -> bool {
    let ledgers = request.status.iter().flat_map(|status| &status.credentials);
    let mut begun = ledgers.filter_map(|ledger| ledger.next.as_ref());
    begun.any(|next| {
        let settled = next.begun_at.0.checked_add(SETTLE).unwrap_or(Timestamp::MAX);
        next.phase == CredentialPhase::Intent && now < settled
    })
}

/// Checks whether two URLs lead to the same repository: equal scheme, host, port and path, and over ssh equal user. An HTTP URL with a user, or a URL with a query,
/// matches no repository.
#[must_use]
pub fn is_same_repository(one: &str, other: &str) -> bool {
    read_address(one).is_some_and(|one| Some(one) == read_address(other))
}

/// Splits a repository's URL into scheme, user and host, and path, in a form that can be compared.
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

/// Returns the earliest end among the approvals.
#[must_use]
pub fn find_end(verdict: &Verdict) -> Option<&Time> {
    match verdict {
        Verdict::Approved(word) | Verdict::Denied(word) => word.not_after.as_ref(),
        Verdict::Pending(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use tenure_tenancy::access::approval::ApproverAnswer;

    use super::*;

    fn make_answer() -> ApproverAnswer {
        ApproverAnswer {
            object: "grant".to_owned(),
            by: "alice".to_owned(),
            reason: None,
            not_after: None,
            is_standing: false,
        }
    }

    fn make_request() -> FluxAccessRequest {
        let spec = FluxAccessRequestSpec {
            provider: "work".to_owned(),
            role: "read_registry".to_owned(),
            ..FluxAccessRequestSpec::default()
        };
        FluxAccessRequest::new("work-42-a", spec)
    }

    #[test]
    fn order_is_in_progress_until_recorded_or_timed_out() {
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

    /// A request that was approved before stays as it is until its entries are read, or until the grace period ends.
    #[test]
    fn approved_request_has_grace_until_entries_are_read() {
        let word = make_answer();
        let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
        let mut request = make_request();
        request.status = serde_json::from_value(json!({ "state": "Approved" })).unwrap();
        let (approved, there) = (Verdict::Approved(word.clone()), BTreeSet::new());
        let case = RequestFacts {
            request: &request,
            verdict: &approved,
            provider_state: ProviderState::Active,
            judges_writes: true,
            deliveries: None,
        };
        let end = add_duration(now, UNREAD);
        assert_eq!(find_grace_end(case, now, now), Some(end));
        // After this long, an unread request is reported.
        assert_eq!(find_grace_end(case, now, end), None);
        let new = FluxAccessRequest::new("work-42-a", FluxAccessRequestSpec::default());
        let (pending, denied) = (Verdict::Pending(Vec::new()), Verdict::Denied(word));
        let known = Some(&there);
        for other in [
            RequestFacts {
                deliveries: known,
                ..case
            },
            RequestFacts { request: &new, ..case },
            RequestFacts {
                verdict: &pending,
                ..case
            },
            RequestFacts {
                verdict: &denied,
                ..case
            },
            RequestFacts {
                provider_state: ProviderState::Gone,
                ..case
            },
            RequestFacts {
                provider_state: ProviderState::Ending(1),
                ..case
            },
        ] {
            assert_eq!(find_grace_end(other, now, now), None, "{other:?}");
        }
    }

    #[test]
    fn wanted_state_follows_from_verdict_provider_and_deliveries() {
        let word = make_answer();
        let (approved, denied) = (Verdict::Approved(word.clone()), Verdict::Denied(word));
        let pending = Verdict::Pending(vec!["nobody judges".to_owned()]);
        let there: BTreeSet<String> = ["team-a".to_owned()].into();
        let request = make_request();
        let decide = |verdict: &Verdict,
                      provider_state: ProviderState,
                      judges_writes: bool,
                      deliveries: Option<&BTreeSet<String>>| {
            let case = RequestFacts {
                request: &request,
                verdict,
                provider_state,
                judges_writes,
                deliveries,
            };
            match decide_wanted(case, "team-a") {
                WantedState::Delivered => "delivered",
                WantedState::HeldBack(_) => "held back",
                WantedState::Revoked(_) => "revoked",
                WantedState::Abandoned(_) => "abandoned",
            }
        };
        let (none, all) = (BTreeSet::new(), Some(&there));
        for (verdict, provider_state, judges, deliveries, expected) in [
            (&approved, ProviderState::Active, true, all, "delivered"),
            (&approved, ProviderState::Suspended, true, all, "held back"),
            (&approved, ProviderState::Active, true, None, "held back"),
            (&approved, ProviderState::Active, true, Some(&none), "revoked"),
            (&denied, ProviderState::Active, true, all, "revoked"),
            (&pending, ProviderState::Active, true, all, "revoked"),
            // Admission was turned off: nothing is revoked for this reason, and nothing new is made.
            (&pending, ProviderState::Active, false, all, "held back"),
            (&approved, ProviderState::Ending(5), true, all, "revoked"),
            (
                &approved,
                ProviderState::Ending(FAREWELL_SECONDS),
                true,
                all,
                "abandoned",
            ),
            (&approved, ProviderState::Gone, true, all, "abandoned"),
            // A revocation also takes effect while the AccessProvider is suspended.
            (&denied, ProviderState::Suspended, true, all, "revoked"),
        ] {
            assert_eq!(
                decide(verdict, provider_state, judges, deliveries),
                expected,
                "{verdict:?} {provider_state:?}"
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
    fn role_belongs_by_labels_and_grants_one_secret() {
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
        // Its labels were removed.
        let bare = |manager: &str| json!({ "metadata": { "managedFields": [{ "manager": "kubectl" }, { "manager": manager }] } });
        assert!(belongs_to(&bare("tenure-controller"), "work-42-a") && !belongs_to(&bare("helm"), "work-42-a"));
        assert!(belongs_to(&role, "work-42-a") && !belongs_to(&role, "work-42-b"));
    }

    #[test]
    fn address_matches_only_its_own_repository() {
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
        let request = make_request();
        assert_eq!(read_role(&request.spec), Some(Role::ReadRegistry));
        assert_eq!(
            Form::for_role(CredentialKind::DeployToken, Role::ReadRegistry).secret_type(),
            DOCKER_CONFIG
        );
    }
}
