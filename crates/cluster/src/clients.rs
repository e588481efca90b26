//! Clients for identities: tokens by TokenRequest, cached, renewed before they end. Refuses to serve an identity whose ServiceAccount does not exist.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use http::Method;
use serde_json::{Value, json};
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, PLATFORM_NAMESPACE};

use crate::client::Client;
use crate::connection::{Connection, ControllerCredentials};
use crate::error::ClusterError;
use crate::mapping::Mapping;
use crate::path::path;
use crate::token::Token;
use crate::transport::{self, Answer, Call, JSON};
use tenure_tenancy::Identity;

/// How long a token is asked for, in seconds.
const TOKEN_SECONDS: u64 = 3600;

/// How often a request is sent again when it was throttled or no answer came, before the caller hears of it.
const RETRIES: u32 = 2;

/// The longest that a throttled request waits for its retry.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Clients for every identity, over one connection. Cheap to clone.
#[derive(Clone)]
pub struct Clients {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    connection: Connection,
    tokens: Mutex<HashMap<Identity, Arc<tokio::sync::Mutex<Option<Token>>>>>,
    pub(crate) mapping: Mapping,
}

impl Clients {
    /// Clients over a connection. Sends nothing yet.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        let mut tokens = HashMap::new();
        if let ControllerCredentials::Token(token) = &connection.controller {
            tokens.insert(
                Identity::Controller,
                Arc::new(tokio::sync::Mutex::new(Some(token.clone()))),
            );
        }
        Self {
            shared: Arc::new(Shared {
                connection,
                tokens: Mutex::new(tokens),
                mapping: Mapping::default(),
            }),
        }
    }

    /// The client of the controller itself: for its own kinds, their status, events and discovery.
    #[must_use]
    pub fn controller(&self) -> Client {
        Client::new(Arc::clone(&self.shared), Identity::Controller)
    }

    /// The client of an identity, after making sure that there is a token for it.
    ///
    /// # Errors
    /// [`ClusterError::IdentityMissing`] when the ServiceAccount does not exist; whatever else TokenRequest can fail with. It
    /// never falls back to another identity.
    pub async fn for_identity(&self, identity: &Identity) -> Result<Client, ClusterError> {
        self.shared.token(identity).await?;
        Ok(Client::new(Arc::clone(&self.shared), identity.clone()))
    }

    /// Says that kinds were installed or removed, so that the next unknown kind is looked for at once.
    pub fn kinds_changed(&self) {
        self.shared.mapping.invalidate();
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl Shared {
    fn slots(&self) -> std::sync::MutexGuard<'_, HashMap<Identity, Arc<tokio::sync::Mutex<Option<Token>>>>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn transport(&self, identity: &Identity) -> &kube::Client {
        match (&self.connection.controller, identity) {
            (ControllerCredentials::Transport(transport), Identity::Controller) => transport,
            _ => &self.connection.bare,
        }
    }

    /// The token to send; none when the controller's transport brings its own credentials.
    async fn token(&self, identity: &Identity) -> Result<Option<Token>, ClusterError> {
        if matches!(
            (identity, &self.connection.controller),
            (Identity::Controller, ControllerCredentials::Transport(_))
        ) {
            return Ok(None);
        }
        let slot = Arc::clone(self.slots().entry(identity.clone()).or_default());
        // Held while a token is minted, so that concurrent requests of one identity mint one.
        let mut held = slot.lock().await;
        let now = SystemTime::now();
        if let Some(token) = held.as_ref().filter(|token| !token.stale(now)) {
            return Ok(Some(token.clone()));
        }
        match (identity, held.clone()) {
            (Identity::ServiceAccount(account), _) => {
                let credentials = Box::pin(self.token(&Identity::Controller)).await?;
                let minted = self
                    .mint(account.namespace(), account.name(), credentials.as_ref())
                    .await?;
                *held = Some(minted.clone());
                Ok(Some(minted))
            }
            (Identity::Controller, Some(old)) => {
                match self
                    .mint(PLATFORM_NAMESPACE, CONTROLLER_SERVICE_ACCOUNT, Some(&old))
                    .await
                {
                    Ok(minted) => {
                        *held = Some(minted.clone());
                        Ok(Some(minted))
                    }
                    // The old one is good for some minutes more; the next request tries again.
                    Err(error) => {
                        tracing::warn!(%error, "the controller's own token could not be renewed");
                        Ok(Some(old))
                    }
                }
            }
            (Identity::Controller, None) => Err(ClusterError::Unauthorized {
                identity: Identity::Controller,
                message: "there is no token for it".to_owned(),
            }),
        }
    }

    async fn mint(&self, namespace: &str, name: &str, credentials: Option<&Token>) -> Result<Token, ClusterError> {
        let resource = crate::mapping::Resource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ServiceAccount".to_owned(),
            plural: "serviceaccounts".to_owned(),
            namespaced: true,
            watchable: true,
        };
        let path = path(&resource, Some(namespace), Some(name), Some("token"))?;
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": TOKEN_SECONDS }
        });
        let call = Call::with_body(Method::POST, path, JSON, &request);
        let transport = self.transport(&Identity::Controller);
        let answer = transport::ask(transport, &Identity::Controller, credentials, &call).await;
        let answer = answer.map_err(|error| match error {
            ClusterError::NotFound { .. } => ClusterError::IdentityMissing {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            other => other,
        })?;
        let text = |pointer: &str| answer.value.pointer(pointer).and_then(Value::as_str);
        // The answer itself must not be quoted: it holds the token.
        let Some(token) = text("/status/token").filter(|token| !token.is_empty()) else {
            return Err(ClusterError::Decode {
                what: format!("the TokenRequest for ServiceAccount {namespace}/{name}"),
                problem: "it has no status.token".to_owned(),
            });
        };
        let expires = text("/status/expirationTimestamp")
            .and_then(|text| text.parse::<jiff::Timestamp>().ok())
            .map(SystemTime::from);
        Ok(Token::new(token, expires))
    }

    /// Forgets a token that the API server refused; answers whether another one can be had.
    async fn renewable(&self, identity: &Identity) -> bool {
        if *identity == Identity::Controller {
            return false;
        }
        let slot = Arc::clone(self.slots().entry(identity.clone()).or_default());
        *slot.lock().await = None;
        true
    }

    /// Sends a request as an identity: again with a new token when the old one is refused (its ServiceAccount was made anew), and
    /// again after a pause when it was throttled or no answer came, if it does no harm twice.
    pub(crate) async fn ask(&self, identity: &Identity, call: &Call) -> Result<Answer, ClusterError> {
        let mut renewed = false;
        let mut retries = 0;
        loop {
            let token = self.token(identity).await?;
            let error = match transport::ask(self.transport(identity), identity, token.as_ref(), call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match &error {
                ClusterError::Unauthorized { .. } if !renewed && self.renewable(identity).await => renewed = true,
                ClusterError::Throttled { .. } | ClusterError::Unreachable { .. }
                    if retries < RETRIES && call.method != Method::POST =>
                {
                    let pause = match &error {
                        ClusterError::Throttled {
                            retry_after: Some(pause),
                            ..
                        } => (*pause).min(LONGEST_WAIT),
                        _ => Duration::from_millis(100 << retries),
                    };
                    retries += 1;
                    tokio::time::sleep(pause).await;
                }
                _ => return Err(error),
            }
        }
    }

    /// Opens a stream as an identity.
    pub(crate) async fn open(
        &self,
        identity: &Identity,
        call: &Call,
    ) -> Result<http::Response<kube::client::Body>, ClusterError> {
        let token = self.token(identity).await?;
        let opened = transport::open(self.transport(identity), identity, token.as_ref(), call).await;
        match opened {
            Err(ClusterError::Unauthorized { .. }) if self.renewable(identity).await => {
                let token = self.token(identity).await?;
                transport::open(self.transport(identity), identity, token.as_ref(), call).await
            }
            other => other,
        }
    }
}
