//! How the API server is reached. Owns the transports; refuses to let a kubeconfig's own credentials travel with another identity's request.

use bytes::Bytes;
use http::{Request, Response};
use kube::client::{AuthError, Body, ClientBuilder};
use tower::{BoxError, Service};

use crate::token::Token;

/// How the API server is reached, and what the controller itself authenticates with.
#[derive(Clone)]
pub struct Connection {
    /// Carries no credentials of its own: every request brings a token.
    pub(crate) bare: kube::Client,
    /// What the controller's own requests are made with.
    pub(crate) controller: ControllerCredentials,
}

/// What the controller authenticates with.
#[derive(Clone)]
pub(crate) enum ControllerCredentials {
    /// A token to begin with; it is renewed by TokenRequest, as the controller, for the same ServiceAccount.
    Token(Token),
    /// A transport that adds the credentials itself (a kubeconfig's, or the mounted token in a Pod).
    Transport(kube::Client),
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
            bare: kube::Client::new(service, "default"),
            controller: ControllerCredentials::Token(token),
        }
    }

    /// Reaches an API server over the network. The controller uses the configuration's credentials; requests of other identities
    /// are made over a second transport that has none, or a client certificate would speak for them.
    ///
    /// # Errors
    /// [`ConnectionError`] when the address, CA or credentials can't be used.
    pub fn over_network(mut configuration: kube::Config) -> Result<Self, ConnectionError> {
        configuration.default_retry = false;
        let mut without = configuration.clone();
        without.auth_info = kube::config::AuthInfo::default();
        without.headers.clear();
        Ok(Self {
            bare: client(without)?,
            controller: ControllerCredentials::Transport(client(configuration)?),
        })
    }
}

fn client(configuration: kube::Config) -> Result<kube::Client, ConnectionError> {
    match ClientBuilder::try_from(configuration) {
        Ok(builder) => Ok(builder.build()),
        Err(kube::Error::Auth(error)) => Err(ConnectionError::Credentials(Box::new(error))),
        Err(error) => Err(ConnectionError::Configuration(Box::new(error))),
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connection").finish_non_exhaustive()
    }
}
