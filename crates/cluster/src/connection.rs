//! How the API server is reached. Owns the transports; refuses to let a kubeconfig's own credentials travel with another identity's request.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::{AuthError, Body};
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use crate::elsewhere::Terms;
use crate::health::ControllerHealth;
use crate::requests::RequestCounts;
use crate::server_clock::ServerClock;
use crate::token::Token;
use crate::wire::Wire;
use tenure_tenancy::{LaneAccount, ServiceAccount};

/// How the API server is reached, and what the controller itself authenticates with.
#[derive(Clone)]
pub struct Connection {
    /// Carries no credentials of its own: every request brings a token.
    pub(crate) bare: Wire,
    /// What the controller's own requests are made with.
    pub(crate) controller: ControllerCredentials,
    pub(crate) health: ControllerHealth,
    pub(crate) requests: RequestCounts,
    /// What time it is for the API server.
    pub(crate) clock: ServerClock,
    /// Of another cluster's API server: what its watches are opened by, and how much of it is read.
    pub(crate) elsewhere: Option<Elsewhere>,
}

/// What is different about another cluster's API server.
#[derive(Clone)]
pub(crate) struct Elsewhere {
    pub(crate) watches: Wire,
    pub(crate) terms: Terms,
}

/// Makes a token of the controller's ServiceAccount, or says why there is none.
pub(crate) type Issue = Arc<dyn Fn() -> Result<Token, String> + Send + Sync>;

/// What the controller authenticates with.
#[derive(Clone)]
pub(crate) enum ControllerCredentials {
    /// A token to begin with. The next ones come from whoever can make them, or else by TokenRequest, as the controller: then
    /// one that has ended is the last one.
    Token(Token, Option<Issue>),
    /// A transport that adds the credentials itself (a kubeconfig's, or the mounted token in a Pod).
    Transport(Arc<OwnTransport>),
    /// A transport whose credentials make it one ServiceAccount, and nobody else: here is no controller.
    Account(ServiceAccount, Arc<OwnTransport>),
    /// None: in another cluster the controller is nobody.
    Nothing,
    /// None: here is one lane, apart from the controller, which is asked for the lane's token and whether the last one was refused.
    Lane(LaneAccount, AskForToken),
}

/// Asks whoever may make it for a lane's token; says first whether the last one was refused.
pub(crate) type AskForToken = Arc<dyn Fn(bool) -> BoxFuture<'static, Result<Token, String>> + Send + Sync>;

/// A transport with credentials of its own, which can be read again.
pub(crate) struct OwnTransport {
    configuration: kube::Config,
    wire: RwLock<Wire>,
}

impl OwnTransport {
    pub(crate) fn wire(&self) -> Wire {
        self.wire.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads what the configuration names (a mounted token, a certificate, a program's answer) once more: what was read when
    /// the clock stood elsewhere may count as fresh for a long time yet.
    pub(crate) fn read_again(&self) -> Result<(), ConnectionError> {
        let wire = Wire::over_network(self.configuration.clone())?;
        *self.wire.write().unwrap_or_else(PoisonError::into_inner) = wire;
        Ok(())
    }
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The kubeconfig, or the environment of a Pod, can't be used.
    #[error("the kubeconfig can't be used: {0}")]
    Configuration(#[source] Box<kube::Error>),
    /// Its credentials can't be used.
    #[error("the credentials of the kubeconfig can't be used: {0}")]
    Credentials(#[source] Box<AuthError>),
}

impl From<kube::Error> for ConnectionError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Auth(error) => Self::Credentials(Box::new(error)),
            other => Self::Configuration(Box::new(other)),
        }
    }
}

impl Connection {
    /// Reaches an API server by its service in this process. The controller begins with `token`, which must be that of its
    /// ServiceAccount; nothing is trusted because it is near.
    pub fn in_process<S, B>(service: S, token: Token) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self {
            bare: Wire::Service(kube::Client::new(service, "default")),
            controller: ControllerCredentials::Token(token, None),
            health: ControllerHealth::default(),
            requests: RequestCounts::default(),
            clock: ServerClock::default(),
            elsewhere: None,
        }
    }

    /// Reaches another cluster's API server by services that bring the credentials of its user: one for requests, one for watches. No
    /// token of this cluster goes there.
    pub fn elsewhere<S, B>(requests: S, watches: S, terms: Terms) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self {
            bare: Wire::Service(kube::Client::new(requests, "default")),
            controller: ControllerCredentials::Nothing,
            health: ControllerHealth::default(),
            requests: RequestCounts::default(),
            clock: ServerClock::default(),
            elsewhere: Some(Elsewhere {
                watches: Wire::Service(kube::Client::new(watches, "default")),
                terms,
            }),
        }
    }

    /// Where the controller's next tokens come from, in place of a request that needs the last one: after a jump of the clock,
    /// or a sleep of the machine, that one has ended.
    #[must_use]
    pub fn issued_by(mut self, issue: impl Fn() -> Result<Token, String> + Send + Sync + 'static) -> Self {
        if let ControllerCredentials::Token(_, issuer) = &mut self.controller {
            *issuer = Some(Arc::new(issue));
        }
        self
    }

    /// Reaches an API server over the network as one lane, which has no controller beside it. `ask` brings the lane's token, and is told
    /// whether the last one was refused; `connect` opens each connection to the server, which is verified here. Whatever the configuration has
    /// of credentials is left out.
    ///
    /// # Errors
    /// [`ConnectionError`] when the address or the CA can't be used.
    pub fn of_lane(
        configuration: kube::Config,
        account: LaneAccount,
        ask: impl Fn(bool) -> BoxFuture<'static, Result<Token, String>> + Send + Sync + 'static,
        connect: impl Fn() -> BoxFuture<'static, std::io::Result<TcpStream>> + Send + Sync + 'static,
    ) -> Result<Self, ConnectionError> {
        Ok(Self {
            bare: Wire::over_streams(without_credentials(configuration), Arc::new(connect))?,
            controller: ControllerCredentials::Lane(account, Arc::new(ask)),
            health: ControllerHealth::default(),
            requests: RequestCounts::default(),
            clock: ServerClock::default(),
            elsewhere: None,
        })
    }

    /// Reaches an API server over the network as one ServiceAccount, which the configuration's credentials speak for: its own token, or
    /// those of somebody who impersonates it. Requests of every other identity are refused before they are sent.
    ///
    /// # Errors
    /// [`ConnectionError`] when the address, CA or credentials can't be used.
    pub fn of_account(mut configuration: kube::Config, account: ServiceAccount) -> Result<Self, ConnectionError> {
        configuration.default_retry = false;
        let transport = OwnTransport {
            wire: RwLock::new(Wire::over_network(configuration.clone())?),
            configuration: configuration.clone(),
        };
        Ok(Self {
            bare: Wire::over_network(without_credentials(configuration))?,
            controller: ControllerCredentials::Account(account, Arc::new(transport)),
            health: ControllerHealth::default(),
            requests: RequestCounts::default(),
            clock: ServerClock::default(),
            elsewhere: None,
        })
    }

    /// Whether the controllers can do their work; it goes on telling after the connection is used up.
    #[must_use]
    pub fn health(&self) -> ControllerHealth {
        self.health.clone()
    }

    /// How many requests are sent over it, by all that it is made for; it goes on counting after the connection is used up.
    #[must_use]
    pub fn requests(&self) -> RequestCounts {
        self.requests.clone()
    }

    /// Reaches an API server over the network. Of each lane, and of the controller, many requests share a connection where the server speaks
    /// HTTP/2. The controller uses the configuration's credentials; requests of other identities
    /// are made over a second transport that has none, or a client certificate would speak for them.
    ///
    /// # Errors
    /// [`ConnectionError`] when the address, CA or credentials can't be used.
    pub fn over_network(mut configuration: kube::Config) -> Result<Self, ConnectionError> {
        configuration.default_retry = false;
        Ok(Self {
            bare: Wire::over_network(without_credentials(configuration.clone()))?,
            controller: ControllerCredentials::Transport(Arc::new(OwnTransport {
                wire: RwLock::new(Wire::over_network(configuration.clone())?),
                configuration,
            })),
            health: ControllerHealth::default(),
            requests: RequestCounts::default(),
            clock: ServerClock::default(),
            elsewhere: None,
        })
    }
}

fn without_credentials(mut configuration: kube::Config) -> kube::Config {
    configuration.default_retry = false;
    configuration.auth_info = kube::config::AuthInfo::default();
    configuration.headers.clear();
    configuration
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connection").finish_non_exhaustive()
    }
}
