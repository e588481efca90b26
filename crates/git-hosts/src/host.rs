//! A host that answers questions: the shell around its API.
//!
//! The shell chooses the credential for each request, bounds the number of requests for a question, and sends each request once. It waits for no limit and follows no
//! redirect. It reports both to the caller.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenure_remote_requests::git_host::{Capabilities, CredentialKind, HostError, HostKind, HostQuery, HostReply};
use tenure_sources::{
    BaseUrl, Connector, Credentials, GitHubApp, HostClient, HostRequest, Installation, SecretBytes, TlsOptions,
};
use tokio::sync::Mutex;

use crate::answer::{Outcome, add_wait, check_answer, explain_failure};
use crate::api::{Api, ApiStep, Progress, find_next_step};
use crate::call::{Body, Call, Reply};
use crate::gitea::Gitea;
use crate::github::{self, Github};
use crate::gitlab::Gitlab;

/// The largest size of an answer. A hundred keys with long names need less than half of it.
pub(crate) const ANSWER_BYTES: u64 = 1 << 20;
/// The number of such answers that may arrive for one question, with all pages.
const ANSWERS: u64 = 32;
/// The timeout for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The time before the end of an installation's token when the shell stops using the token.
const SPARE: SignedDuration = SignedDuration::from_mins(5);

/// The result of a question or order to a Git host: the content of the answer, the value of a new token, and the host's time.
#[derive(Clone, Debug)]
pub struct HostResponse {
    /// The content of the answer.
    pub reply: HostReply,
    /// The value of a new token. Unset for a new deploy key: its private half stays at the place of its creation.
    pub value: Option<SecretBytes>,
    /// The time by the host's clock.
    pub date: Option<Timestamp>,
}

/// A Git host that answers questions about credentials and executes orders to make and revoke them.
pub trait Host: Send + Sync {
    /// Returns the API that the host speaks.
    fn kind(&self) -> HostKind;

    /// Returns the capabilities of a kind of credential; `None` if the host has no such kind.
    fn capabilities(&self, kind: CredentialKind) -> Option<Capabilities>;

    /// Sends one question or order, without retries. `now` and every time in a [`HostError`] are by the caller's clock.
    fn ask<'a>(&'a self, query: &'a HostQuery, now: Timestamp) -> BoxFuture<'a, Result<HostResponse, HostError>>;
}

/// The authoriser's credential, with which Tenure makes and revokes credentials at a Git host.
#[derive(Clone, Debug)]
pub enum AuthoriserCredential {
    /// A token of a person, a project or a group.
    Token(SecretBytes),
    /// A GitHub App, which sends requests as one of its installations.
    App(Box<GitHubApp>),
}

/// A Git host that has an API: its address, and the connection settings and the authoriser's credential for requests to it.
pub struct RemoteHost {
    api: Box<dyn Api>,
    base: BaseUrl,
    authoriser: AuthoriserCredential,
    tls: TlsOptions,
    reach: Connector,
    /// The token of the App's installation, and its end. Callers wait on the lock, so one token is made for all of them.
    session: Mutex<Option<(SecretBytes, Timestamp)>>,
}

/// The host of an AccessProvider of kind `static`. It has no API and fails every query, because an administrator writes the Secrets by hand.
#[derive(Clone, Copy, Debug, Default)]
pub struct StaticHost;

impl Host for StaticHost {
    fn kind(&self) -> HostKind {
        HostKind::Static
    }

    fn capabilities(&self, _: CredentialKind) -> Option<Capabilities> {
        None
    }

    fn ask<'a>(&'a self, _: &'a HostQuery, _: Timestamp) -> BoxFuture<'a, Result<HostResponse, HostError>> {
        let message = "credentials of this kind are written by hand".to_owned();
        Box::pin(std::future::ready(Err(HostError::Refused { status: 0, message })))
    }
}

impl RemoteHost {
    /// Returns the host at an address. For GitLab and Gitea, the address is the one for browsers; for GitHub, it is that of the API.
    ///
    /// # Errors
    /// When the address is invalid, the API is unknown, or the authoriser doesn't fit the host.
    pub fn new(
        kind: HostKind,
        address: &str,
        authoriser: AuthoriserCredential,
        tls: TlsOptions,
        reach: Connector,
    ) -> Result<Self, &'static str> {
        let base = BaseUrl::parse(address).ok_or("a host's address is an http or https URL without user and query")?;
        let api: Box<dyn Api> = match (kind, &authoriser) {
            (HostKind::Gitlab, AuthoriserCredential::Token(_)) => Box::new(Gitlab),
            (HostKind::Gitea, AuthoriserCredential::Token(_)) => Box::new(Gitea),
            (HostKind::Github, AuthoriserCredential::Token(_)) => Box::new(Github { installation: None }),
            (HostKind::Github, AuthoriserCredential::App(app)) => Box::new(Github {
                installation: match app.installation() {
                    Installation::Id(id) => Some(*id),
                    Installation::Owner(_) => {
                        return Err("an App needs the number of its installation, githubAppInstallationID");
                    }
                },
            }),
            (_, AuthoriserCredential::App(_)) => return Err("only GitHub has Apps"),
            (HostKind::Static, _) => return Err("kind static has no host with an API"),
        };
        Ok(Self {
            base: base.join(api.prefix()),
            api,
            authoriser,
            tls,
            reach,
            session: Mutex::new(None),
        })
    }

    /// Sends the requests of one question or order, until the answer is complete.
    async fn exchange(&self, query: &HostQuery, now: Timestamp) -> Result<HostResponse, HostError> {
        let mut call = self.api.first_call(query)?;
        let mut progress = Progress {
            call: call.clone(),
            calls: 0,
            listed: Vec::new(),
        };
        let mut client = HostClient::new(
            &self.reach,
            &self.base,
            &Credentials::Anonymous,
            &self.tls,
            (ANSWER_BYTES, ANSWERS, PATIENCE),
        );
        loop {
            progress.calls += 1;
            let shown = self.set_credentials(&call, &mut client, now).await?;
            progress.call = call;
            let reply = send(&mut client, self.api.headers(), &progress.call).await?;
            let secrets: Vec<&SecretBytes> = shown.iter().collect();
            match find_next_step(&*self.api, query, &mut progress, &reply, (now, &secrets))? {
                ApiStep::Next(next) => call = next,
                ApiStep::Done(content, value) => {
                    let date = reply.date();
                    return Ok(HostResponse {
                        reply: content,
                        value,
                        date,
                    });
                }
            }
        }
    }

    /// Sets the client's credentials for a request, and returns the secrets among them.
    async fn set_credentials(
        &self,
        call: &Call,
        client: &mut HostClient,
        now: Timestamp,
    ) -> Result<Option<SecretBytes>, HostError> {
        let token = match &self.authoriser {
            AuthoriserCredential::Token(token) => token.clone(),
            AuthoriserCredential::App(app) if call.is_by_app => {
                client.set_credentials(sign_in(app, now)?);
                return Ok(None);
            }
            AuthoriserCredential::App(app) => self.log_in(app, client, now).await?,
        };
        client.set_credentials(Credentials::Bearer(token.clone()));
        Ok(Some(token))
    }

    /// Returns a token of the App's installation: the cached one, or a new one. The token may only manage deploy keys.
    async fn log_in(&self, app: &GitHubApp, client: &mut HostClient, now: Timestamp) -> Result<SecretBytes, HostError> {
        let mut session = self.session.lock().await;
        if let Some((token, end)) = &*session
            && add_wait(now, SPARE) < *end
        {
            return Ok(token.clone());
        }
        let Installation::Id(installation) = app.installation() else {
            return Err(HostError::NotUnderstood(
                "the App's installation has no number".to_owned(),
            ));
        };
        client.set_credentials(sign_in(app, now)?);
        let permissions = json!({ "administration": "write", "metadata": "read" });
        let progress = Progress {
            call: github::give_token(*installation, None, &permissions),
            calls: 1,
            listed: Vec::new(),
        };
        let asked = async {
            let reply = send(client, self.api.headers(), &progress.call).await?;
            match check_answer(&reply, true, now, &[])? {
                Outcome::Success => github::read_token(&progress, &reply),
                Outcome::Missing(message) => Err(HostError::Refused { status: 404, message }),
            }
        };
        // Only the request for the token failed, and the order has not been sent. So the effect of the order is known: none.
        let (token, end) = asked.await.map_err(|trouble| match trouble {
            HostError::Unknown(why) => HostError::Unreachable(why),
            other => other,
        })?;
        *session = Some((token.clone(), end));
        Ok(token)
    }
}

impl Host for RemoteHost {
    fn kind(&self) -> HostKind {
        self.api.kind()
    }

    fn capabilities(&self, kind: CredentialKind) -> Option<Capabilities> {
        self.api.capabilities(kind)
    }

    fn ask<'a>(&'a self, query: &'a HostQuery, now: Timestamp) -> BoxFuture<'a, Result<HostResponse, HostError>> {
        Box::pin(self.exchange(query, now))
    }
}

/// Returns the App's own credentials for GitHub's API, signed with the App's private key.
fn sign_in(app: &GitHubApp, now: Timestamp) -> Result<Credentials, HostError> {
    app.sign_in(now).map_err(|_| HostError::Refused {
        status: 0,
        message: "the App's private key can't sign".to_owned(),
    })
}

/// Sends a request. Returns the answer, or the [`HostError`] that a missing answer means.
pub(crate) async fn send(
    client: &mut HostClient,
    headers: &[(&'static str, &'static str)],
    call: &Call,
) -> Result<Reply, HostError> {
    let request = HostRequest {
        method: call.method.clone(),
        below: call.below.clone(),
        headers: headers.to_vec(),
        body: call.body.as_ref().map(Body::write),
    };
    let answer = client.send(&request).await;
    let answer = answer.map_err(|failure| explain_failure(failure, call.is_order()))?;
    Ok(Reply {
        status: answer.status,
        headers: answer.headers,
        body: answer.body,
    })
}
