//! Tokens of this cluster for another cluster, cached until they end.
//!
//! Each token is tried here before it is sent anywhere, and a token that this cluster's API server accepts is thrown away. `tenancy` decides for each new token whether
//! it may be sent.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::HeaderValue;
use tenure_tenancy::{Denial, Identity, OwnAnswer, TokenClaims, TokenOrder, foreign_token};

use super::{ClientPool, LaneAccess, Sender};
use crate::error::ClusterError;
use crate::token::Token;
use crate::transport::{self, Call};
use crate::wire::Purpose;

/// The least age of a token before it is replaced because the other cluster refused it.
const REFUSED_AFTER: Duration = Duration::from_secs(60);
/// A path for which every API server checks a credential if one is sent, and refuses an invalid one.
const TRIED_ON: &str = "/api";
/// The number of sent tokens that are remembered.
const REMEMBERED: usize = 2;

/// The reason why no token can be sent.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The token may not be sent to another cluster.
    #[error("{0}")]
    Denied(Denial),
    /// The token can't be obtained, or its effect in this cluster is unknown.
    #[error("{0}")]
    Failed(ClusterError),
}

/// A token for another cluster, which is replaced before its end.
pub struct ForeignToken {
    clients: ClientPool,
    order: TokenOrder,
    /// The lane that requests the token.
    lane: Mutex<LaneAccess>,
    held: tokio::sync::Mutex<Option<(Token, Instant)>>,
    /// The tokens that were sent last.
    sent: Mutex<Vec<Token>>,
}

impl std::fmt::Debug for ForeignToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ForeignToken({})", self.order)
    }
}

impl ForeignToken {
    /// Returns a token for an order, without a request yet.
    #[must_use]
    pub fn new(clients: ClientPool, order: TokenOrder, lane: LaneAccess) -> Self {
        Self {
            clients,
            order,
            lane: Mutex::new(lane),
            held: tokio::sync::Mutex::default(),
            sent: Mutex::default(),
        }
    }

    /// Returns the order.
    #[must_use]
    pub fn order(&self) -> &TokenOrder {
        &self.order
    }

    /// Sets the lane that requests the next tokens, because a namespace can move to another lane.
    pub fn set_lane(&self, lane: LaneAccess) {
        *self.lane.lock().unwrap_or_else(PoisonError::into_inner) = lane;
    }

    /// Makes sure that a token is available.
    ///
    /// # Errors
    /// When no token is available, or the token may not be sent.
    pub async fn prepare(&self) -> Result<(), TokenError> {
        self.obtain_token().await.map(|_| ())
    }

    /// Returns the header with the token. A token that is about to end is replaced first.
    ///
    /// # Errors
    /// As [`ForeignToken::prepare`].
    pub async fn header(&self) -> Result<HeaderValue, TokenError> {
        let token = self.obtain_token().await?;
        let header = token.header().ok_or_else(|| {
            TokenError::Failed(ClusterError::Unauthorized {
                identity: self.order.account().clone().into(),
                message: "its token can't be sent".to_owned(),
            })
        })?;
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if !sent.iter().any(|before| before.is(&token)) {
            sent.push(token);
            if sent.len() > REMEMBERED {
                sent.remove(0);
            }
        }
        Ok(header)
    }

    /// Whether a text quotes a sent token.
    #[must_use]
    pub fn is_quoted_in(&self, text: &str) -> bool {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.iter().any(|token| token.is_in(text))
    }

    /// Handles a refusal by the other cluster: unless the token is new, the next request makes another one.
    pub async fn forget_refused(&self) {
        let mut held = self.held.lock().await;
        if held.as_ref().is_some_and(|(_, made)| made.elapsed() >= REFUSED_AFTER) {
            *held = None;
        }
    }

    async fn obtain_token(&self) -> Result<Token, TokenError> {
        // The lock is held while a token is made, so concurrent requests make one token.
        let mut held = self.held.lock().await;
        if let Some((token, _)) = held.as_ref().filter(|(token, _)| !token.stale(SystemTime::now())) {
            return Ok(token.clone());
        }
        *held = None;
        let made = self.make().await?;
        *held = Some((made.clone(), Instant::now()));
        Ok(made)
    }

    /// Requests a token and tries it in this cluster.
    async fn make(&self) -> Result<Token, TokenError> {
        let shared = &self.clients.shared;
        let lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lane: Sender = Identity::from(lane.account).into();
        // The lane's own token is for this cluster's API server, so its claims name the audiences that this server accepts.
        let own = shared.token(&lane).await.map_err(TokenError::Failed)?;
        let own = own.and_then(|token| token.claims()).unwrap_or_default();
        foreign_token::check_order(&self.order, &own).map_err(TokenError::Denied)?;
        let account = self.order.account();
        let target = (account.namespace(), account.name());
        let made = shared.mint_as(&lane, target, self.order.audiences()).await;
        let made = made.map_err(TokenError::Failed)?;
        let identity = account.clone().into();
        let call = Call::get(TRIED_ON.to_owned());
        let channel = lane.channel(Purpose::Requests);
        let route = shared.route(&shared.connection.bare, &channel);
        let tried = transport::send_request(route, &identity, Some(&made), &call, None).await;
        let answer = match tried {
            Err(ClusterError::Unauthorized { .. }) => OwnAnswer::Refused,
            Err(
                error @ (ClusterError::Unreachable { .. }
                | ClusterError::Timeout { .. }
                | ClusterError::Throttled { .. }
                | ClusterError::Request { .. }),
            ) => return Err(TokenError::Failed(error)),
            Ok(_) | Err(_) => OwnAnswer::Accepted,
        };
        let claims = made.claims().unwrap_or_else(|| TokenClaims {
            audiences: self.order.audiences().to_vec(),
            issuer: None,
        });
        foreign_token::check_token(&self.order, &own, &claims, answer).map_err(TokenError::Denied)?;
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tenure_tenancy::{Placement, identity};

    use super::*;
    use crate::connection::Connection;

    /// An API server that makes numbered tokens, and answers whether it accepts a token.
    #[derive(Default)]
    struct Issuer {
        made: AtomicUsize,
        /// The seconds that are left of a token's hour.
        seconds: AtomicUsize,
        /// Whether the server accepts every token, for any audience.
        accepts: AtomicBool,
    }

    impl Issuer {
        async fn answer(&self, request: http::Request<Body>) -> http::Response<Body> {
            let answer = |status: u16, body: Value| {
                let mut answer = http::Response::new(Body::from(body.to_string().into_bytes()));
                *answer.status_mut() = http::StatusCode::from_u16(status).unwrap();
                answer
            };
            if !request.uri().path().ends_with("/token") {
                let refused = json!({ "kind": "Status", "status": "Failure", "reason": "Unauthorized", "code": 401 });
                return match self.accepts.load(Ordering::SeqCst) {
                    true => answer(200, json!({})),
                    false => answer(401, refused),
                };
            }
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let asked: Value = serde_json::from_slice(&body).unwrap();
            let own = json!(["own"]);
            let audiences = asked["spec"].get("audiences").unwrap_or(&own);
            let end = jiff::Timestamp::now().as_second() + i64::try_from(self.seconds.load(Ordering::SeqCst)).unwrap();
            let number = self.made.fetch_add(1, Ordering::SeqCst);
            let claims = json!({ "aud": audiences, "iss": "issuer", "iat": end - 3600, "n": number });
            let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
            let end = jiff::Timestamp::from_second(end).unwrap().to_string();
            answer(
                201,
                json!({ "status": { "token": format!("head.{claims}.tail"), "expirationTimestamp": end } }),
            )
        }
    }

    fn order(audience: &str) -> (Arc<Issuer>, ForeignToken) {
        let issuer = Arc::new(Issuer::default());
        issuer.seconds.store(3600, Ordering::SeqCst);
        let service = tower::service_fn({
            let issuer = Arc::clone(&issuer);
            move |request| {
                let issuer = Arc::clone(&issuer);
                async move { Ok::<_, Infallible>(issuer.answer(request).await) }
            }
        });
        let clients = ClientPool::new(Connection::in_process(service, Token::new("t", None)));
        let placement = Placement::Unclaimed {
            default_service_account: "default".to_owned(),
            is_protected: false,
        };
        let acting = identity::decide_for_kustomization(&placement, "team", None).unwrap();
        let order = foreign_token::order_token(&placement, "team", &acting, None, vec![audience.to_owned()]).unwrap();
        let lane = LaneAccess {
            account: identity::decide_for_lane(&placement, "team"),
            turns: clients.turns().of_lane(),
        };
        (issuer, ForeignToken::new(clients, order, lane))
    }

    #[tokio::test]
    async fn foreign_token_is_reused_until_expiry_and_never_shown() {
        let (issuer, token) = order("there");
        let first = token.header().await.unwrap();
        assert_eq!(token.header().await.unwrap(), first);
        assert!(token.is_quoted_in(first.to_str().unwrap()) && !token.is_quoted_in("something else"));
        assert!(!format!("{token:?}").contains("tail"));
        // The lane's token and the outgoing token.
        assert_eq!(issuer.made.load(Ordering::SeqCst), 2);
        // A refusal by the other cluster doesn't cause a new token for each request.
        token.forget_refused().await;
        assert_eq!(token.header().await.unwrap(), first);
        // A token that is about to end is not sent any more.
        let (issuer, token) = order("there");
        issuer.seconds.store(60, Ordering::SeqCst);
        let first = token.header().await.unwrap();
        assert_ne!(token.header().await.unwrap(), first);
    }

    #[tokio::test]
    async fn token_accepted_here_is_not_sent_elsewhere() {
        // The server's own tokens show the audience, so no request is made.
        for audience in ["own", "issuer"] {
            let (issuer, token) = order(audience);
            assert!(matches!(token.header().await, Err(TokenError::Denied(_))));
            assert_eq!(issuer.made.load(Ordering::SeqCst), 1, "the lane's alone");
        }
        // The server's answer about the token decides, and the token's claims don't count. Each new token is checked again.
        let (issuer, token) = order("there");
        issuer.accepts.store(true, Ordering::SeqCst);
        assert!(matches!(token.header().await, Err(TokenError::Denied(_))));
        issuer.accepts.store(false, Ordering::SeqCst);
        issuer.seconds.store(60, Ordering::SeqCst);
        token.header().await.unwrap();
        issuer.accepts.store(true, Ordering::SeqCst);
        assert!(matches!(token.header().await, Err(TokenError::Denied(_))));
    }
}
