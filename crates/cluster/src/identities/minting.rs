//! Sources of tokens: a TokenRequest, a token that another process hands over, or a file that is read again.
//!
//! The pool caches a token until its end, and makes a new one after a refusal. This module says which identity may request which token, and how long the pause after a
//! refusal is. It sends no other requests with these tokens.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use serde_json::json;
use tenure_admission_rules::minting;
use tenure_api::ObjectView;
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, PLATFORM_NAMESPACE};
use tenure_tenancy::{Identity, LaneAccount};

use super::{Sender, Shared, controller};
use crate::connection::{ControllerCredentials, IssueToken};
use crate::error::ClusterError;
use crate::path::write_path;
use crate::token::Token;
use crate::transport::{Call, JSON};

/// The requested lifetime of a token, in seconds.
const TOKEN_SECONDS: u64 = 3600;
/// The pause after a refused token before another one is made for the same identity. Each further refusal doubles the pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The pauses between retries while the hub doesn't know yet that an object names an account. The hub learns of the object at the same time as the lane, and records
/// the account a moment later.
const HEARING: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
];

impl Shared {
    /// Returns the token to send; `None` if the controller's transport brings its own credentials.
    pub(super) async fn token(&self, sender: &Sender) -> Result<Option<Token>, ClusterError> {
        let identity = &sender.identity;
        match (identity, &self.connection.elsewhere) {
            // The transport brings the user's credentials.
            (Identity::Elsewhere(_), Some(_)) => return Ok(None),
            (Identity::Elsewhere(_), None) | (_, Some(_)) => {
                return Err(ClusterError::Unauthorized {
                    identity: identity.clone(),
                    message: "it has no identity in this cluster".to_owned(),
                });
            }
            (_, None) => {}
        }
        match (identity, &self.connection.controller) {
            (Identity::Controller(_), ControllerCredentials::Transport(_)) => return Ok(None),
            (Identity::ServiceAccount(asked), ControllerCredentials::Account(account, _)) if asked == account => {
                return Ok(None);
            }
            (_, ControllerCredentials::Account(..)) => {
                return Err(ClusterError::Unauthorized {
                    identity: identity.clone(),
                    message: "this client has another account, and can't ask for a token".to_owned(),
                });
            }
            _ => {}
        }
        let slot = self.tokens().slot(identity, SystemTime::now());
        // The lock is held while a token is minted, so concurrent requests of one identity mint one token.
        let mut held = slot.lock().await;
        let now = SystemTime::now();
        if let Some(token) = held.as_ref().filter(|token| !token.stale(now)) {
            return Ok(Some(token.clone()));
        }
        match (identity, held.clone()) {
            (Identity::ServiceAccount(account), _) => {
                let Some(lane) = &sender.lane else {
                    return Err(ClusterError::Unauthorized {
                        identity: identity.clone(),
                        message: "no lane asks for a token for it".to_owned(),
                    });
                };
                let lane = Identity::from(lane.clone()).into();
                let target = (account.namespace(), account.name());
                let minted = self.mint_as(&lane, target, &[]).await?;
                *held = Some(minted.clone());
                Ok(Some(minted))
            }
            (Identity::Lane(account), _) if self.is_apart() => {
                let given = self.ask_for_token(account).await?;
                *held = Some(given.clone());
                Ok(Some(given))
            }
            (Identity::Lane(account), _) => {
                let target = (account.namespace(), account.name());
                let minted = self.mint_as(&controller().into(), target, &[]).await;
                let minted = minted.map_err(|error| match error {
                    // A missing account of the lane says nothing about the accounts whose tokens the lane requests.
                    ClusterError::IdentityMissing { .. } => ClusterError::Unauthorized {
                        identity: identity.clone(),
                        message: "its ServiceAccount does not exist (yet)".to_owned(),
                    },
                    other => other,
                })?;
                *held = Some(minted.clone());
                Ok(Some(minted))
            }
            // A lane in its own process has only its own token, and no way to request this one.
            (Identity::SecretWriter(_), _) if self.is_apart() => Err(ClusterError::Unauthorized {
                identity: identity.clone(),
                message: "no lane has a token of it".to_owned(),
            }),
            (Identity::SecretWriter(writer), _) => {
                let target = (writer.namespace(), writer.name());
                let minted = self.mint_as(&controller().into(), target, &[]).await?;
                *held = Some(minted.clone());
                Ok(Some(minted))
            }
            (Identity::Controller(_), old) if self.issuer().is_some() => self.issue(&mut held, old, now),
            (Identity::Controller(_), Some(old)) => {
                let target = (PLATFORM_NAMESPACE, CONTROLLER_SERVICE_ACCOUNT);
                match self.mint(&controller().into(), target, &[], Some(&old)).await {
                    Ok(minted) => {
                        *held = Some(minted.clone());
                        Ok(Some(minted))
                    }
                    // The old token is valid for some minutes more, and the next request tries again.
                    Err(error) => {
                        tracing::warn!(%error, "the controller's own token could not be renewed");
                        Ok(Some(old))
                    }
                }
            }
            (Identity::Controller(_) | Identity::Elsewhere(_), _) => Err(ClusterError::Unauthorized {
                identity: identity.clone(),
                message: "there is no token for it".to_owned(),
            }),
        }
    }

    pub(super) fn issuer(&self) -> Option<&IssueToken> {
        match &self.connection.controller {
            ControllerCredentials::Token(_, issuer) => issuer.as_ref(),
            ControllerCredentials::Transport(_)
            | ControllerCredentials::Account(..)
            | ControllerCredentials::Nothing
            | ControllerCredentials::Lane(..) => None,
        }
    }

    /// Whether this process is one lane, apart from the controller.
    pub(super) fn is_apart(&self) -> bool {
        matches!(self.connection.controller, ControllerCredentials::Lane(..))
    }

    /// Requests the token of this process's lane. A token of another lane is refused.
    pub(super) async fn ask_for_token(&self, account: &LaneAccount) -> Result<Token, ClusterError> {
        let refuse = |message: String| ClusterError::Unauthorized {
            identity: account.clone().into(),
            message,
        };
        match &self.connection.controller {
            ControllerCredentials::Lane(own, ask) if own == account => {
                let refused = self.lane_refused.swap(false, Ordering::AcqRel);
                ask(refused).await.map_err(refuse)
            }
            _ => Err(refuse("it is another lane's".to_owned())),
        }
    }

    /// Takes the controller's next token from its issuer.
    fn issue(
        &self,
        held: &mut Option<Token>,
        old: Option<Token>,
        now: SystemTime,
    ) -> Result<Option<Token>, ClusterError> {
        let issued = self
            .issuer()
            .map_or_else(|| Err("there is no token for it".to_owned()), |issue| issue());
        match (issued, old.filter(|old| !old.has_ended(now))) {
            (Ok(issued), _) => {
                *held = Some(issued.clone());
                Ok(Some(issued))
            }
            (Err(problem), Some(old)) => {
                tracing::warn!(%problem, "the controller's own token could not be renewed");
                Ok(Some(old))
            }
            (Err(message), None) => {
                self.connection.health.set_accepted(false);
                Err(ClusterError::Unauthorized {
                    identity: controller(),
                    message,
                })
            }
        }
    }

    /// Requests the token of a ServiceAccount as a lane or as the controller. If the requester's own token is refused, it retries with a new one. Without audiences,
    /// the token is for this cluster's API server.
    pub(super) async fn mint_as(
        &self,
        minter: &Sender,
        target: (&str, &str),
        audiences: &[String],
    ) -> Result<Token, ClusterError> {
        let may_pass = |error: &ClusterError| matches!(error, ClusterError::Forbidden { message, .. } if minting::may_pass(message));
        for pause in HEARING {
            match self.mint_once(minter, target, audiences).await {
                Err(error) if may_pass(&error) => tokio::time::sleep(pause).await,
                minted => return minted,
            }
        }
        self.mint_once(minter, target, audiences).await
    }

    /// Requests a token with the requester's current token, without retry.
    async fn mint_once(
        &self,
        minter: &Sender,
        target: (&str, &str),
        audiences: &[String],
    ) -> Result<Token, ClusterError> {
        let credentials = Box::pin(self.token(minter)).await?;
        match self.mint(minter, target, audiences, credentials.as_ref()).await {
            Err(ClusterError::Unauthorized { .. }) if self.renewable(&minter.identity, credentials.as_ref()).await => {
                let credentials = Box::pin(self.token(minter)).await?;
                self.mint(minter, target, audiences, credentials.as_ref()).await
            }
            minted => minted,
        }
    }

    /// Sends one TokenRequest for a ServiceAccount, and reads the token from the answer.
    async fn mint(
        &self,
        minter: &Sender,
        (namespace, name): (&str, &str),
        audiences: &[String],
        credentials: Option<&Token>,
    ) -> Result<Token, ClusterError> {
        let resource = crate::discovery::Resource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ServiceAccount".to_owned(),
            plural: "serviceaccounts".to_owned(),
            namespaced: true,
            watchable: true,
        };
        let path = write_path(&resource, Some(namespace), Some(name), Some("token"))?;
        let mut spec = json!({ "expirationSeconds": TOKEN_SECONDS });
        if let Some(spec) = spec.as_object_mut().filter(|_| !audiences.is_empty()) {
            spec.insert("audiences".to_owned(), json!(audiences));
        }
        let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
        let call = Call::with_body(Method::POST, path, JSON, &request);
        let answer = self.ask_once(minter, credentials, &call).await;
        let answer = answer.map_err(|error| match error {
            // The answer names the account or its namespace.
            ClusterError::NotFound { .. } => ClusterError::IdentityMissing {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            other => other,
        })?;
        let answer = answer.read(&call)?;
        let text = |path: &str| ObjectView::new(&answer).find_text(path);
        // The error must not quote the answer, which holds the token.
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

    /// Forgets the token `used`, which the API server refused, and returns whether another token is available now. If new tokens are refused as well, growing pauses
    /// follow, and the pool makes no token during a pause.
    pub(super) async fn renewable(&self, identity: &Identity, used: Option<&Token>) -> bool {
        if self.connection.elsewhere.is_some() {
            // A new kubeconfig brings new credentials.
            return false;
        }
        let slot = self.tokens().slot(identity, SystemTime::now());
        let mut held = slot.lock().await;
        if let (Some(used), Some(held)) = (used, held.as_ref())
            && !held.is(used)
        {
            // Another request has replaced the token already.
            return true;
        }
        {
            let now = Instant::now();
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            let (count, until) = refused.entry(identity.clone()).or_insert((0, now));
            if now < *until {
                return false;
            }
            let pause = FIRST_PAUSE.saturating_mul(1 << (*count).min(6)).min(LONGEST_PAUSE);
            (*count, *until) = (*count + 1, now + pause);
        }
        match (identity, &self.connection.controller) {
            // A connection for one account has no other credentials.
            (Identity::ServiceAccount(_), ControllerCredentials::Account(..)) => false,
            (Identity::ServiceAccount(_) | Identity::Lane(_) | Identity::SecretWriter(_), _)
            | (_, ControllerCredentials::Token(_, Some(_))) => {
                if matches!(identity, Identity::Lane(_)) {
                    self.lane_refused.store(true, Ordering::Release);
                }
                *held = None;
                true
            }
            (
                Identity::Controller(_),
                ControllerCredentials::Token(_, None)
                | ControllerCredentials::Account(..)
                | ControllerCredentials::Nothing
                | ControllerCredentials::Lane(..),
            )
            | (Identity::Elsewhere(_), _) => false,
            (Identity::Controller(_), ControllerCredentials::Transport(transport)) => {
                let read = transport.read_again();
                if let Err(error) = &read {
                    tracing::warn!(%error, "the controller's credentials could not be read again");
                }
                read.is_ok()
            }
        }
    }
}
