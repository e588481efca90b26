//! Connections to an API server. A kubeconfig's own credentials never travel with the request of another identity.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::{AuthError, Body};
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use crate::health::ControllerHealth;
use crate::remote_cluster::RemoteClusterLimits;
use crate::requests::RequestCounts;
use crate::server_clock::ServerClock;
use crate::token::Token;
use crate::wire::Wire;
use tenure_tenancy::{LaneAccount, ServiceAccount};

/// The transport to an API server, and the credentials of the controller's own requests, with the health, the request counts and the clock that its clients share.
#[derive(Clone)]
pub struct Connection {
    /// A wire without credentials of its own: every request brings a token.
    pub(crate) bare: Wire,
    /// The credentials of the controller's own requests.
    pub(crate) controller: ControllerCredentials,
    pub(crate) health: ControllerHealth,
    pub(crate) requests: RequestCounts,
    /// The clock of the API server.
    pub(crate) clock: ServerClock,
    /// Only for another cluster's API server: the wire for watches, and the bounds for answers.
    pub(crate) elsewhere: Option<RemoteCluster>,
}

/// The parts of a connection to another cluster's API server: the wire for watches, and the limits for untrusted answers.
#[derive(Clone)]
pub(crate) struct RemoteCluster {
    pub(crate) watches: Wire,
    pub(crate) terms: RemoteClusterLimits,
}

/// Makes a token of the controller's ServiceAccount, or returns the reason why none can be made.
pub(crate) type IssueToken = Arc<dyn Fn() -> Result<Token, String> + Send + Sync>;

/// The credentials of this process's own requests: those of the controller, of one ServiceAccount or of one lane, or none.
#[derive(Clone)]
pub(crate) enum ControllerCredentials {
    /// A first token. The next ones come from the issuer if one is given, else from a TokenRequest as the controller. Without an issuer, a token that has ended can't
    /// be replaced.
    Token(Token, Option<IssueToken>),
    /// A transport that adds the credentials itself (a kubeconfig's, or the mounted token in a Pod).
    Transport(Arc<OwnTransport>),
    /// A transport with the credentials of one ServiceAccount. This process has no controller.
    Account(ServiceAccount, Arc<OwnTransport>),
    /// No credentials: the controller has no identity in another cluster.
    Nothing,
    /// No credentials: the process is one lane, apart from the controller. The function asks the controller for the lane's token, and reports whether the last one was
    /// refused.
    Lane(LaneAccount, RequestLaneToken),
}

/// Requests a lane's token from its maker. The argument says whether the last token was refused.
pub(crate) type RequestLaneToken = Arc<dyn Fn(bool) -> BoxFuture<'static, Result<Token, String>> + Send + Sync>;

/// A transport with credentials of its own, which can be read again.
pub(crate) struct OwnTransport {
    configuration: kube::Config,
    wire: RwLock<Wire>,
}

impl OwnTransport {
    pub(crate) fn wire(&self) -> Wire {
        self.wire.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the credentials of the configuration again (a mounted token, a certificate, a program's answer). After a change of the clock, kube may treat the old
    /// credentials as fresh for a long time.
    pub(crate) fn read_again(&self) -> Result<(), ConnectionError> {
        let wire = Wire::over_network(self.configuration.clone())?;
        *self.wire.write().unwrap_or_else(PoisonError::into_inner) = wire;
        Ok(())
    }
}

/// The reason why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The kubeconfig, or the environment of a Pod, can't be used.
    #[error("the kubeconfig can't be used: {0}")]
    Configuration(#[source] Box<kube::Error>),
    /// The credentials can't be used.
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
    /// Connects to an API server by its service in this process. The controller begins with `token`, which must be that of its ServiceAccount. The server trusts no
    /// client because it is in the same process.
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

    /// Connects to another cluster's API server by services that bring the credentials of its user: one for requests, one for watches. No token of this cluster goes to
    /// the other cluster.
    pub fn elsewhere<S, B>(requests: S, watches: S, terms: RemoteClusterLimits) -> Self
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
            elsewhere: Some(RemoteCluster {
                watches: Wire::Service(kube::Client::new(watches, "default")),
                terms,
            }),
        }
    }

    /// Sets the issuer of the controller's next tokens. Without an issuer, a TokenRequest needs the last token, which has ended after a jump of the clock or a sleep of
    /// the machine.
    #[must_use]
    pub fn issued_by(mut self, issue: impl Fn() -> Result<Token, String> + Send + Sync + 'static) -> Self {
        if let ControllerCredentials::Token(_, issuer) = &mut self.controller {
            *issuer = Some(Arc::new(issue));
        }
        self
    }

    /// Connects over the network as one lane without a controller. `ask` brings the lane's token, and learns whether the last one was refused. `connect` opens each
    /// connection to the server, which this process verifies. Credentials in the configuration are left out.
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

    /// Connects over the network as one ServiceAccount. The configuration's credentials are the account's token, or those of a user that impersonates the account.
    /// Requests of every other identity are refused before they are sent.
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

    /// Returns the health of the controllers. The value stays current after the connection is used up.
    #[must_use]
    pub fn health(&self) -> ControllerHealth {
        self.health.clone()
    }

    /// Returns the counts of requests over this connection, by all clients made from it. The counts stay current after the connection is used up.
    #[must_use]
    pub fn requests(&self) -> RequestCounts {
        self.requests.clone()
    }

    /// Connects to an API server over the network. If the server speaks HTTP/2, many requests of one lane, or of the controller, share a connection. The controller
    /// uses the configuration's credentials. Requests of other identities use a second transport without credentials, since a client certificate would authenticate
    /// them as the controller.
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
