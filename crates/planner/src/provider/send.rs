//! Requests to a Provider for an event: the Secrets to read and the identity for it, the request, and the meaning of an answer.

use std::collections::BTreeMap;
use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use sha2::Sha256;
use tenure_api::{Alert, Provider};
use tenure_remote_requests::address::Address;
use tenure_remote_requests::notification::{Answer, Method, NotificationRequest, ReceiverConnection, SecretData};
use tenure_tenancy::{Denial, Placement, ServiceAccount, identity, reference};

use super::access::SecretContent;
use super::check::ProviderType;
use super::commit::{self, CommitStatus, Repository};
use super::verdict::{Verdict, interpret_status};
use super::{alertmanager, expression, slack, teams};
use crate::alert_event::AlertEvent;
use crate::expression::EvaluationBudget;

/// The Secrets and other objects to read for a Provider, as the namespace's own account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredObjects {
    /// The account that reads.
    pub account: ServiceAccount,
    /// `spec.secretRef`.
    pub secret: Option<String>,
    /// `spec.certSecretRef`.
    pub certificates: Option<String>,
    /// `spec.proxySecretRef`.
    pub proxy: Option<String>,
}

/// Returns the objects to read for a Provider, and the account that reads them.
///
/// # Errors
/// No identity may act in the Provider's namespace.
fn find_needs(provider: &Provider, placement: &Placement) -> Result<RequiredObjects, Denial> {
    let namespace = provider.metadata.namespace.as_deref().unwrap_or_default();
    let name = |reference: &Option<tenure_api::reference::LocalObjectReference>| {
        reference.as_ref().map(|reference| reference.name.clone())
    };
    let spec = &provider.spec;
    Ok(RequiredObjects {
        account: identity::decide_for_source(placement, namespace)?,
        secret: name(&spec.secret_ref),
        certificates: name(&spec.cert_secret_ref),
        proxy: name(&spec.proxy_secret_ref),
    })
}

/// The HTTP request that sends an event to a Provider's receiver, and the facts to interpret the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedNotification {
    /// The receiver as messages name it: its address, or the Secret that holds the address.
    pub shown: String,
    /// A request to send first, which asks whether the Git host already has the status.
    pub inquiry: Option<NotificationRequest>,
    /// The request with its content.
    pub request: NotificationRequest,
    /// How the receiver is reached.
    pub connection: ReceiverConnection,
    is_slack_api: bool,
    status: Option<CommitStatus>,
}

/// The most bytes of an answer that lists statuses, or that Slack's API sends.
const ANSWER_BYTES: usize = 512 << 10;
/// The header with the reporting controller, which Flux's receivers read.
const COMPONENT: &str = "gotk-component";

/// Checks by the kind of an event whether a Provider gets it at all (Flux's rules).
fn wants_event(
    kind: ProviderType,
    provider: &Provider,
    news: &AlertEvent,
    metadata: &BTreeMap<String, String>,
) -> bool {
    if provider.spec.suspend {
        return false;
    }
    if kind.is_commit_status() {
        return commit::is_about_commit(kind, news, metadata);
    }
    kind.is_generic() || !news.is_commit_status()
}

/// Checks whether a Provider is known not to want an event before anything is read.
fn is_unwanted(provider: &Provider, news: &AlertEvent, metadata: &BTreeMap<String, String>) -> bool {
    ProviderType::read(&provider.spec.type_).is_some_and(|kind| !wants_event(kind, provider, news, metadata))
}

impl RequiredObjects {
    /// Finds the objects to read for a check of the address; nothing if the Provider is not used, or can't be used anyway.
    #[must_use]
    pub fn of_check(provider: &Provider, placement: &Placement) -> Option<Self> {
        let is_unused = provider.spec.suspend || provider.metadata.deletion_timestamp.is_some();
        if is_unused || super::find_problem(provider).is_some() {
            return None;
        }
        find_needs(provider, placement).ok()
    }

    /// Finds the objects to read for an event with this metadata; nothing if the Provider doesn't get the event.
    ///
    /// # Errors
    /// The reason for which nothing can be sent.
    pub fn of_event(
        provider: &Provider,
        placement: &Placement,
        (news, metadata): (&AlertEvent, &BTreeMap<String, String>),
    ) -> Result<Option<Self>, String> {
        if let Some(problem) = super::find_problem(provider) {
            return Err(problem);
        }
        if is_unwanted(provider, news, metadata) {
            return Ok(None);
        }
        // The namespace's tenant may have changed since the Alert was selected.
        let namespace = provider.metadata.namespace.as_deref().unwrap_or_default();
        let object = (news.object.kind.as_str(), news.object.name.as_str());
        reference::check_event_source(placement, namespace, Some(news.object.namespace.as_str()), object)
            .map_err(|denial| denial.message)?;
        find_needs(provider, placement)
            .map(Some)
            .map_err(|denial| denial.message)
    }
}

/// The Secrets of a Provider, as they were read.
#[derive(Default)]
pub struct Secrets {
    /// The Secret of `spec.secretRef`.
    pub secret: Option<SecretData>,
    /// The Secret of `spec.certSecretRef`.
    pub certificates: Option<SecretData>,
    /// The Secret of `spec.proxySecretRef`.
    pub proxy: Option<SecretData>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secrets(hidden)")
    }
}

/// Writes the request to a Provider for an event with this `metadata`.
///
/// # Errors
/// The problem with the Provider or its Secrets, without any content of a Secret.
pub fn write_sending(
    (provider, alert): (&Provider, &Alert),
    (news, metadata): (&AlertEvent, &BTreeMap<String, String>),
    secrets: Secrets,
    (budget, now): (&mut EvaluationBudget, Timestamp),
) -> Result<PreparedNotification, String> {
    let opened = OpenedProvider::read(provider, &secrets)?;
    let draft = Draft {
        kind: opened.kind,
        provider,
        alert,
        news,
        metadata,
        access: &opened.access,
    };
    let mut sending = match opened.read_address()? {
        ReceiverAddress::Repository(repository) => {
            let password = opened
                .access
                .password
                .as_deref()
                .filter(|password| !password.is_empty());
            let token = opened.access.find_token().or(password);
            let missing =
                || opened.name_secret("the key token is missing, with which the host identifies Tenure".to_owned());
            draft.write_status(&repository, token.ok_or_else(missing)?, (budget, now))?
        }
        ReceiverAddress::Endpoint(address) => draft
            .write_notification(address)
            .map_err(|problem| opened.name_secret(problem))?,
    };
    if let Some(shown) = opened.name_hidden_address() {
        sending.shown = shown;
    }
    sending.connection = opened.connect(secrets);
    Ok(sending)
}

/// The server that a Provider's requests go to.
#[derive(Debug)]
pub struct Destination {
    /// The address of the server.
    pub address: Address,
    /// How the server is reached.
    pub connection: ReceiverConnection,
    /// The Secret with the address, or with the address of the proxy. Then no message may contain an address.
    hidden: Option<String>,
}

impl Destination {
    /// Finds the server that the requests of a Provider go to.
    ///
    /// # Errors
    /// The problem with the Provider or its Secrets, without any content of a Secret.
    pub fn find(provider: &Provider, secrets: Secrets) -> Result<Self, String> {
        let opened = OpenedProvider::read(provider, &secrets)?;
        let address = match opened.read_address()? {
            ReceiverAddress::Repository(repository) => repository.locate_api(opened.kind),
            ReceiverAddress::Endpoint(address) => address,
        };
        Ok(Self {
            address,
            hidden: opened.name_hidden_address().or_else(|| opened.name_hidden_proxy()),
            connection: opened.connect(secrets),
        })
    }

    /// Describes a denied connection: with the address, or without it if a Secret holds the address.
    #[must_use]
    pub fn describe_denial(&self, message: &str, discreet: &str) -> String {
        match &self.hidden {
            Some(secret) => format!("{secret}: {discreet}"),
            None => format!("spec.address: {message}"),
        }
    }
}

/// A Provider with the content of its Secret.
struct OpenedProvider<'a> {
    provider: &'a Provider,
    kind: ProviderType,
    access: SecretContent,
}

/// The address of a receiver: a repository at a Git host, or the endpoint itself.
enum ReceiverAddress {
    Repository(Repository),
    Endpoint(Address),
}

impl<'a> OpenedProvider<'a> {
    fn read(provider: &'a Provider, secrets: &Secrets) -> Result<Self, String> {
        let mut opened = Self {
            provider,
            kind: ProviderType::read(&provider.spec.type_).ok_or("spec.type is unknown")?,
            access: SecretContent::default(),
        };
        if let Some(data) = &secrets.secret {
            opened.access = SecretContent::read(data).map_err(|problem| opened.name_secret(problem))?;
        }
        Ok(opened)
    }

    /// Returns the address in the Secret, which wins over the one in the spec.
    fn find_secret_address(&self) -> Option<&str> {
        self.access.address.as_deref().filter(|address| !address.is_empty())
    }

    /// Describes the Secret that holds the receiver's address, if a Secret holds it.
    fn name_hidden_address(&self) -> Option<String> {
        self.find_secret_address()?;
        let namespace = self.provider.metadata.namespace.as_deref().unwrap_or_default();
        let secret = self.provider.spec.secret_ref.as_ref()?;
        Some(format!("the address in Secret {namespace}/{}", secret.name))
    }

    /// Describes the Secret that holds the proxy's address, if a Secret holds it.
    fn name_hidden_proxy(&self) -> Option<String> {
        let spec = &self.provider.spec;
        let of_secret = spec.secret_ref.as_ref().filter(|_| self.access.find_proxy().is_some());
        let secret = spec.proxy_secret_ref.as_ref().or(of_secret)?;
        let namespace = self.provider.metadata.namespace.as_deref().unwrap_or_default();
        Some(format!(
            "spec.address, or the proxy in Secret {namespace}/{}",
            secret.name
        ))
    }

    /// Prefixes a problem with the name of the Secret in which it is.
    fn name_secret(&self, problem: String) -> String {
        let namespace = self.provider.metadata.namespace.as_deref().unwrap_or_default();
        match &self.provider.spec.secret_ref {
            Some(secret) => format!("invalid '{namespace}/{}' secret data: {problem}", secret.name),
            None => problem,
        }
    }

    fn read_address(&self) -> Result<ReceiverAddress, String> {
        let hidden = self.find_secret_address();
        let address = hidden.or(self.provider.spec.address.as_deref()).unwrap_or_default();
        let wrong = |problem: &str| match hidden {
            Some(_) => self.name_secret(format!("address: {problem}")),
            None => format!("spec.address: {problem}"),
        };
        if self.kind.is_commit_status() {
            let repository = Repository::read(address, self.kind).map_err(wrong)?;
            return Ok(ReceiverAddress::Repository(repository));
        }
        Ok(ReceiverAddress::Endpoint(Address::read(address).map_err(wrong)?))
    }

    fn connect(&self, secrets: Secrets) -> ReceiverConnection {
        let proxy = secrets.proxy.or_else(|| {
            let address = self.access.find_proxy().or(self.provider.spec.proxy.as_deref());
            let address = address.filter(|proxy| !proxy.is_empty());
            address.map(|address| BTreeMap::from([("address".to_owned(), address.as_bytes().to_vec())]))
        });
        let has_authority = |data: &SecretData| data.contains_key("ca.crt") || data.contains_key("tls.crt");
        // Flux's rule: the certificates of a Git host may be in the Secret with its token.
        let of_host = secrets
            .secret
            .filter(|data| self.kind.is_commit_status() && has_authority(data));
        ReceiverConnection {
            proxy,
            tls: secrets.certificates.or(of_host),
        }
    }
}

/// The inputs for the request about one event.
struct Draft<'a> {
    kind: ProviderType,
    provider: &'a Provider,
    alert: &'a Alert,
    news: &'a AlertEvent,
    metadata: &'a BTreeMap<String, String>,
    access: &'a SecretContent,
}

impl Draft<'_> {
    /// Writes the request to an endpoint, in the form of the Provider's type.
    fn write_notification(&self, mut address: Address) -> Result<PreparedNotification, String> {
        let (spec, news) = (&self.provider.spec, self.news);
        let username = spec.username.as_deref().filter(|name| !name.is_empty());
        let mut headers = Headers::default();
        headers.set("content-type", "application/json");
        let mut user = address.user.take();
        let is_slack_api = self.kind == ProviderType::Slack && is_slack_api(&address);
        let content = match self.kind {
            ProviderType::Slack => {
                if let Some(token) = self.access.find_token() {
                    headers.set("authorization", &format!("Bearer {token}"));
                }
                slack::write_message(spec, username, news, self.metadata, true)
            }
            ProviderType::Discord => {
                if !address.path.ends_with("/slack") {
                    let path = format!("{}/slack", address.path.trim_end_matches('/'));
                    address = address.with_path(&path, address.query.clone());
                }
                slack::write_message(spec, username, news, self.metadata, false)
            }
            ProviderType::Teams => teams::write_card(&address, news, self.metadata),
            ProviderType::Alertmanager => {
                let access = self.access;
                if let (Some(name), Some(password)) = (&access.username, &access.password) {
                    user = Some((name.clone(), password.clone()));
                } else if let Some(token) = access.find_token() {
                    headers.set("authorization", &format!("Bearer {token}"));
                }
                alertmanager::write_alerts(news, self.metadata)
            }
            _ => news.write(self.metadata),
        };
        let body = serde_json::to_vec(&content).map_err(|_| "the event can't be written as JSON")?;
        if self.kind.is_generic() {
            headers.set(COMPONENT, &news.reporter);
            for (name, value) in &self.access.headers {
                headers.set(name, value);
            }
        }
        if self.kind == ProviderType::GenericHmac {
            let key = self.access.token.as_deref().filter(|key| !key.is_empty());
            let key = key.ok_or("the key token is missing or empty, and is what the HMAC is made with")?;
            headers.set("x-signature", &format!("sha256={}", sign_body(&body, key.as_bytes())?));
        }
        // A header from a Secret takes precedence over the credentials in an address.
        if headers.has("authorization") {
            user = None;
        }
        Ok(PreparedNotification {
            shown: address.describe_server(),
            inquiry: None,
            request: NotificationRequest {
                method: Method::Post,
                address,
                headers: headers.0,
                body,
                user,
                answer_bytes: if is_slack_api { ANSWER_BYTES } else { 0 },
            },
            connection: ReceiverConnection::default(),
            is_slack_api,
            status: None,
        })
    }

    /// Writes the requests that read and set a commit's status at a Git host.
    fn write_status(
        &self,
        repository: &Repository,
        token: &str,
        budget: (&mut EvaluationBudget, Timestamp),
    ) -> Result<PreparedNotification, String> {
        let event = self.news.write(self.metadata);
        let name = expression::evaluate(self.provider, self.alert, &event, budget)?;
        let uid = self.provider.metadata.uid.as_deref().unwrap_or_default();
        let status = CommitStatus::from_event(self.kind, self.news, self.metadata, (name, uid))?;
        let headers = status.write_headers(token);
        let list = status.locate_list(repository);
        let address = status.find_status_address(repository);
        let body = serde_json::to_vec(&status.write()).map_err(|_| "the status can't be written as JSON")?;
        let mut telling = Headers(headers.clone());
        telling.set("content-type", "application/json");
        Ok(PreparedNotification {
            shown: address.describe_server(),
            inquiry: Some(NotificationRequest {
                method: Method::Get,
                address: list,
                headers,
                body: Vec::new(),
                user: None,
                answer_bytes: ANSWER_BYTES,
            }),
            request: NotificationRequest {
                method: Method::Post,
                address,
                headers: telling.0,
                body,
                user: None,
                answer_bytes: 0,
            },
            connection: ReceiverConnection::default(),
            is_slack_api: false,
            status: Some(status),
        })
    }
}

impl PreparedNotification {
    /// Reads the answer to the inquiry: `Ok` says whether the receiver knows the event already.
    ///
    /// # Errors
    /// The action to take instead of the notification.
    pub fn judge_inquiry(&self, answer: &Answer) -> Result<bool, Verdict> {
        match interpret_status(answer) {
            Verdict::Done => Ok(self.status.as_ref().is_some_and(|status| status.is_in(&answer.body))),
            other => Err(other),
        }
    }

    /// Judges an answer.
    #[must_use]
    pub fn interpret_answer(&self, answer: &Answer) -> Verdict {
        match interpret_status(answer) {
            Verdict::Done if self.is_slack_api => slack::interpret_answer(answer),
            verdict => verdict,
        }
    }
}

fn is_slack_api(address: &Address) -> bool {
    let written = format!("{}{}", address.describe_server(), address.target());
    written == slack::POST_MESSAGE
}

/// Headers, each once: a later value replaces an earlier one.
#[derive(Default)]
struct Headers(Vec<(String, String)>);

impl Headers {
    fn set(&mut self, name: &str, value: &str) {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), value.to_owned()));
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }
}

fn sign_body(body: &[u8], key: &[u8]) -> Result<String, String> {
    let mut code = Hmac::<Sha256>::new_from_slice(key).map_err(|_| "the key token can't be used")?;
    code.update(body);
    Ok(hex::encode(code.finalize().into_bytes()))
}
