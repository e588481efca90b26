//! The check whether a Provider can be used: its fields are implemented and valid, its Secrets can be read, and its address may be reached. The content of its Secrets is
//! checked when something is sent.

use std::time::Duration;

use tenure_api::names::ObjectName;
use tenure_api::{Provider, ProviderSpec, condition, reason};
use tenure_tenancy::identity;

use super::{ObservedReceiver, Snapshot, commit, expression};
use crate::list_limits;
use crate::receiver::TokenFailure;
use crate::validation_plan::NotReady;
use tenure_remote_requests::address::Address;

/// The time limit of an attempt if the spec sets none (Flux's).
const TIMEOUT: Duration = Duration::from_secs(15);
/// The longest that an attempt may take.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The type of a Provider (`spec.type`), which decides the form of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderType {
    /// Flux's event, unchanged.
    Generic,
    /// Flux's event, with an HMAC.
    GenericHmac,
    /// A message to Slack.
    Slack,
    /// A card for Teams.
    Teams,
    /// A message to Discord, which takes Slack's.
    Discord,
    /// An alert for Prometheus' Alertmanager.
    Alertmanager,
    /// The status of a commit at GitHub.
    GitHub,
    /// The status of a commit at GitLab.
    GitLab,
    /// The status of a commit at Gitea or Forgejo.
    Gitea,
}

/// The supported types, by their names in `spec.type`.
const KINDS: [(&str, ProviderType); 9] = [
    ("generic", ProviderType::Generic),
    ("generic-hmac", ProviderType::GenericHmac),
    ("slack", ProviderType::Slack),
    ("msteams", ProviderType::Teams),
    ("discord", ProviderType::Discord),
    ("alertmanager", ProviderType::Alertmanager),
    ("github", ProviderType::GitHub),
    ("gitlab", ProviderType::GitLab),
    ("gitea", ProviderType::Gitea),
];

/// Flux's types that Tenure doesn't support.
const UNSUPPORTED: [&str; 25] = [
    "rocket",
    "giteapullrequestcomment",
    "bitbucketserver",
    "bitbucket",
    "azuredevops",
    "googlechat",
    "googlepubsub",
    "webex",
    "sentry",
    "azureeventhub",
    "telegram",
    "lark",
    "matrix",
    "opsgenie",
    "grafana",
    "githubdispatch",
    "githubpullrequestcomment",
    "gitlabmergerequestcomment",
    "pagerduty",
    "datadog",
    "nats",
    "zulip",
    "otel",
    "zoom",
    "incident.io",
];

impl ProviderType {
    /// Reads `spec.type`.
    #[must_use]
    pub fn read(name: &str) -> Option<Self> {
        KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Checks whether a Provider of this type sets the status of commits at a Git host.
    #[must_use]
    pub fn is_commit_status(self) -> bool {
        matches!(self, Self::GitHub | Self::GitLab | Self::Gitea)
    }

    /// Checks whether a Provider of this type sends Flux's event unchanged.
    #[must_use]
    pub fn is_generic(self) -> bool {
        matches!(self, Self::Generic | Self::GenericHmac)
    }
}

/// Returns the problem with a Provider's spec, without the checks of its tenancy.
#[must_use]
pub fn find_problem(provider: &Provider) -> Option<String> {
    check(provider).err().map(|refusal| refusal.message)
}

/// Returns the time limit of one request to the receiver.
#[must_use]
pub fn find_timeout(spec: &ProviderSpec) -> Duration {
    read_timeout(spec).unwrap_or(TIMEOUT)
}

fn read_timeout(spec: &ProviderSpec) -> Result<Duration, String> {
    let Some(text) = &spec.timeout else {
        return Ok(TIMEOUT);
    };
    let timeout = text.parse().map_err(|error| format!("spec.timeout: {error}"))?;
    if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
        let seconds = LONGEST_TIMEOUT.as_secs();
        return Err(format!(
            "spec.timeout: {} must be more than 0s and at most {seconds}s",
            text.0
        ));
    }
    Ok(timeout)
}

/// Checks whether a Provider can be used: its spec, its tenancy, and the last check of its Secrets and address.
pub(super) fn validate(snapshot: &Snapshot) -> Result<(), NotReady> {
    let provider = &snapshot.provider;
    check(provider)?;
    let namespace = provider.metadata.namespace.as_deref().unwrap_or_default();
    identity::decide_for_source(&snapshot.placement, namespace)?;
    match &snapshot.receiver {
        ObservedReceiver::NoProblem => Ok(()),
        ObservedReceiver::DeniedAddress(denial) => Err(NotReady::waiting(reason::ADDRESS_DENIED, denial.clone())),
        ObservedReceiver::UnreadableSecret(failure) if failure.is_known => {
            let message = format!("{}: create the Secret, or let this account get it", failure.message);
            Err(NotReady::waiting(reason::AUTHENTICATION_FAILED, message))
        }
        // It is unknown whether the Secret can be read, so the last report stays.
        ObservedReceiver::UnreadableSecret(_) => match find_observed(provider) {
            Some((reason, message)) => Err(NotReady::waiting(reason, message)),
            None => Ok(()),
        },
    }
}

/// Returns the problem outside the spec that a Provider's status reports for its present generation: a Secret that can't be read, or a denied address.
#[must_use]
pub fn find_reported_problem(provider: &Provider) -> Option<&str> {
    find_observed(provider).map(|(_, message)| message)
}

/// Checks whether a Provider needs a new check after its Secrets were read for an event, because its status reports another result of that read. `failure`: the
/// failure of the read.
#[must_use]
pub fn needs_check(provider: &Provider, failure: Option<&TokenFailure>) -> bool {
    let is_reported = find_observed(provider).is_some_and(|(reason, _)| reason == reason::AUTHENTICATION_FAILED);
    failure.map_or(is_reported, |failure| failure.is_known && !is_reported)
}

/// Returns the reason and message of Ready, if they are about the present generation and report a problem outside the spec.
fn find_observed(provider: &Provider) -> Option<(&'static str, &str)> {
    let conditions = provider.status.as_ref().map(|status| status.conditions.as_slice());
    let ready = condition::find(conditions.unwrap_or_default(), condition::READY)?;
    let is_current = ready.observed_generation == provider.metadata.generation;
    let mut observed = [reason::ADDRESS_DENIED, reason::AUTHENTICATION_FAILED].into_iter();
    let reason = observed.find(|reason| is_current && ready.reason == *reason)?;
    Some((reason, ready.message.as_str()))
}

fn check(provider: &Provider) -> Result<(), NotReady> {
    let spec = &provider.spec;
    let kind = check_type(spec)?;
    let is_set = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    if is_set(&spec.service_account_name) {
        let message = "spec.serviceAccountName is for cloud providers, which are not supported yet: remove the field";
        return Err(NotReady::unsupported(message));
    }
    if is_set(&spec.proxy) && spec.proxy_secret_ref.is_some() {
        let message = "spec.proxy and spec.proxySecretRef can't be used together";
        return Err(NotReady::invalid(message));
    }
    let references = [
        ("spec.secretRef.name", &spec.secret_ref),
        ("spec.certSecretRef.name", &spec.cert_secret_ref),
        ("spec.proxySecretRef.name", &spec.proxy_secret_ref),
    ];
    for (field, reference) in references {
        if let Some(reference) = reference {
            ObjectName::new(reference.name.clone()).map_err(|error| NotReady::invalid(format!("{field}: {error}")))?;
        }
    }
    read_timeout(spec).map_err(NotReady::invalid)?;
    check_address(spec, kind)?;
    let needs_token = kind.is_commit_status() || kind == ProviderType::GenericHmac;
    if needs_token && spec.secret_ref.is_none() {
        let message = format!(
            "spec.secretRef is missing: type {} needs a Secret with the key token",
            spec.type_
        );
        return Err(NotReady::new(reason::VALIDATION_FAILED, message));
    }
    if let Some(text) = spec.commit_status_expr.as_deref().filter(|text| !text.is_empty()) {
        if !kind.is_commit_status() {
            let message = "spec.commitStatusExpr is allowed only with the types github, gitlab and gitea";
            return Err(NotReady::invalid(message));
        }
        list_limits::check_expressions(
            "spec.commitStatusExpr",
            [("spec.commitStatusExpr".to_owned(), text)].into_iter(),
        )
        .map_err(NotReady::invalid)?;
        expression::compile(text).map_err(|problem| NotReady::new(reason::INVALID_CEL_EXPRESSION, problem))?;
    }
    Ok(())
}

fn check_type(spec: &ProviderSpec) -> Result<ProviderType, NotReady> {
    let name = spec.type_.as_str();
    let list = || KINDS.map(|(name, _)| name).join(", ");
    match ProviderType::read(name) {
        Some(kind) => Ok(kind),
        None if UNSUPPORTED.contains(&name) => Err(NotReady::unsupported(format!(
            "spec.type: {name} is not supported yet: use one of {}",
            list()
        ))),
        None => Err(NotReady::invalid(format!(
            "spec.type: {name:?} is unknown: use one of {}",
            list()
        ))),
    }
}

/// Checks the address in the spec. An address in a Secret is checked when the Secret is read.
fn check_address(spec: &ProviderSpec, kind: ProviderType) -> Result<(), NotReady> {
    let invalid = |problem: String| NotReady::invalid(format!("spec.address: {problem}"));
    match spec.address.as_deref().filter(|address| !address.is_empty()) {
        Some(address) if kind.is_commit_status() => {
            commit::Repository::read(address, kind).map_err(|problem| invalid(problem.to_owned()))?;
        }
        Some(address) => {
            Address::read(address).map_err(|problem| invalid(problem.to_owned()))?;
        }
        None if spec.secret_ref.is_some() => {}
        None => {
            let message = "spec.address is missing: set it, or set spec.secretRef to a Secret with the key address";
            return Err(NotReady::new(reason::VALIDATION_FAILED, message));
        }
    }
    Ok(())
}
