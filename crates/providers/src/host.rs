//! A host that can be asked: the shell around its API.
//!
//! Owns what is shown to whom, and how many requests a question may take. Each is sent once. It refuses to wait for a limit, and to go where a
//! redirect leads: both are said to who asked.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenure_planner::access::host::{Ask, Capabilities, CredentialKind, HostKind, Told, Trouble};
use tenure_sources::{
    BaseUrl, Credentials, GitHubApp, Hidden, HostClient, HostRequest, Installation, Reach, TlsOptions,
};
use tokio::sync::Mutex;

use crate::answer::{Outcome, explain, judge, later};
use crate::api::{Api, Progress, Step, go_on};
use crate::call::{Body, Call, Reply};
use crate::gitea::Gitea;
use crate::github::{self, Github};
use crate::gitlab::Gitlab;

/// Bytes of an answer: a hundred keys with long names take less than half of it.
pub(crate) const ANSWER_BYTES: u64 = 1 << 20;
/// So many such answers may arrive for a question, all pages together.
const ANSWERS: u64 = 32;
/// How long an answer is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long before its end the token of an installation is used no more.
const SPARE: SignedDuration = SignedDuration::from_mins(5);

/// What a host answered.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The answer.
    pub told: Told,
    /// The value of the token that was made, if one was. A key's is where it was made.
    pub value: Option<Hidden>,
    /// How late it is for the host.
    pub date: Option<Timestamp>,
}

/// Who can be asked about credentials.
pub trait Host: Send + Sync {
    /// Which API it speaks.
    fn kind(&self) -> HostKind;

    /// What a kind of credential can do there; nothing where there are none.
    fn capabilities(&self, kind: CredentialKind) -> Option<Capabilities>;

    /// Asks, once. `now` is by the clock of who asks, and so is every time in a [`Trouble`].
    fn ask<'a>(&'a self, ask: &'a Ask, now: Timestamp) -> BoxFuture<'a, Result<Answered, Trouble>>;
}

/// With what a host is asked.
#[derive(Clone, Debug)]
pub enum Authoriser {
    /// A token of somebody's, or of a project or group.
    Token(Hidden),
    /// An App of GitHub's: it asks as one of its installations.
    App(Box<GitHubApp>),
}

/// A host behind the network.
pub struct RemoteHost {
    api: Box<dyn Api>,
    base: BaseUrl,
    authoriser: Authoriser,
    tls: TlsOptions,
    reach: Reach,
    /// The token of the App's installation that asks, and when it ends. It is awaited by who needs one, so that one is made for all.
    session: Mutex<Option<(Hidden, Timestamp)>>,
}

/// No host at all: somebody writes Secrets by hand.
#[derive(Clone, Copy, Debug, Default)]
pub struct StaticHost;

impl Host for StaticHost {
    fn kind(&self) -> HostKind {
        HostKind::Static
    }

    fn capabilities(&self, _: CredentialKind) -> Option<Capabilities> {
        None
    }

    fn ask<'a>(&'a self, _: &'a Ask, _: Timestamp) -> BoxFuture<'a, Result<Answered, Trouble>> {
        let message = "credentials of this kind are written by hand".to_owned();
        Box::pin(std::future::ready(Err(Trouble::Refused { status: 0, message })))
    }
}

impl RemoteHost {
    /// A host at an address: GitLab's and Gitea's is what people open in a browser, GitHub's is that of its API.
    ///
    /// # Errors
    /// When the address is none, there is no such API, or what is to be shown isn't for it.
    pub fn new(
        kind: HostKind,
        address: &str,
        authoriser: Authoriser,
        tls: TlsOptions,
        reach: Reach,
    ) -> Result<Self, &'static str> {
        let base = BaseUrl::parse(address).ok_or("a host's address is an http or https URL without user and query")?;
        let api: Box<dyn Api> = match (kind, &authoriser) {
            (HostKind::Gitlab, Authoriser::Token(_)) => Box::new(Gitlab),
            (HostKind::Gitea, Authoriser::Token(_)) => Box::new(Gitea),
            (HostKind::Github, Authoriser::Token(_)) => Box::new(Github { installation: None }),
            (HostKind::Github, Authoriser::App(app)) => Box::new(Github {
                installation: match app.installation() {
                    Installation::Id(id) => Some(*id),
                    Installation::Owner(_) => {
                        return Err("an App needs the number of its installation, githubAppInstallationID");
                    }
                },
            }),
            (_, Authoriser::App(_)) => return Err("only GitHub has Apps"),
            (HostKind::Static, _) => return Err("what is written by hand has no API"),
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

    async fn converse(&self, ask: &Ask, now: Timestamp) -> Result<Answered, Trouble> {
        let mut call = self.api.begin(ask)?;
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
            let shown = self.credentials(&call, &mut client, now).await?;
            progress.call = call;
            let reply = send(&mut client, self.api.headers(), &progress.call).await?;
            let secrets: Vec<&Hidden> = shown.iter().collect();
            match go_on(&*self.api, ask, &mut progress, &reply, (now, &secrets))? {
                Step::Next(next) => call = next,
                Step::Done(told, value) => {
                    let date = reply.date();
                    return Ok(Answered { told, value, date });
                }
            }
        }
    }

    /// Has the client show what belongs to a request; what of it is secret.
    async fn credentials(
        &self,
        call: &Call,
        client: &mut HostClient,
        now: Timestamp,
    ) -> Result<Option<Hidden>, Trouble> {
        let token = match &self.authoriser {
            Authoriser::Token(token) => token.clone(),
            Authoriser::App(app) if call.is_by_app => {
                client.set_credentials(sign_in(app, now)?);
                return Ok(None);
            }
            Authoriser::App(app) => self.log_in(app, client, now).await?,
        };
        client.set_credentials(Credentials::Bearer(token.clone()));
        Ok(Some(token))
    }

    /// A token of the installation that asks: the one that is there, or a new one. It may manage deploy keys, and no more.
    async fn log_in(&self, app: &GitHubApp, client: &mut HostClient, now: Timestamp) -> Result<Hidden, Trouble> {
        let mut session = self.session.lock().await;
        if let Some((token, end)) = &*session
            && later(now, SPARE) < *end
        {
            return Ok(token.clone());
        }
        let Installation::Id(installation) = app.installation() else {
            return Err(Trouble::NotUnderstood(
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
            match judge(&reply, true, now, &[])? {
                Outcome::Success => github::read_token(&progress, &reply),
                Outcome::Missing(message) => Err(Trouble::Refused { status: 404, message }),
            }
        };
        // Nothing of what was asked for has been sent yet.
        let (token, end) = asked.await.map_err(|trouble| match trouble {
            Trouble::Unknown(why) => Trouble::Unreachable(why),
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

    fn ask<'a>(&'a self, ask: &'a Ask, now: Timestamp) -> BoxFuture<'a, Result<Answered, Trouble>> {
        Box::pin(self.converse(ask, now))
    }
}

fn sign_in(app: &GitHubApp, now: Timestamp) -> Result<Credentials, Trouble> {
    app.sign_in(now).map_err(|_| Trouble::Refused {
        status: 0,
        message: "the App's private key can't sign".to_owned(),
    })
}

/// Sends a request; the answer, or what it means that there is none.
pub(crate) async fn send(
    client: &mut HostClient,
    headers: &[(&'static str, &'static str)],
    call: &Call,
) -> Result<Reply, Trouble> {
    let request = HostRequest {
        method: call.method.clone(),
        below: call.below.clone(),
        headers: headers.to_vec(),
        body: call.body.as_ref().map(Body::write),
    };
    let answer = client.send(&request).await;
    let answer = answer.map_err(|failure| explain(failure, call.is_order()))?;
    Ok(Reply {
        status: answer.status,
        headers: answer.headers,
        body: answer.body,
    })
}
