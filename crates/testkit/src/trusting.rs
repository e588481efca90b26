//! An API server that accepts the tokens of another cluster, like one that trusts the other cluster's issuer. A
//! request with a token for its audience acts as the ServiceAccount in the token. The server records the received
//! tokens.

use std::sync::Arc;

use anyhow::Context as _;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_apiserver::ApiService;
use tower::Service as _;

use crate::admin::Admin;
use crate::front::{Answer, Front};

/// A listener in front of a cluster that also accepts the tokens of another cluster. Dropping it closes the listener.
pub struct TrustingFront {
    /// The port on 127.0.0.1.
    pub port: u16,
    /// The certificate of its CA, in PEM.
    pub authority: String,
    shown: Arc<Mutex<Vec<String>>>,
    front: Front,
}

/// The state that all connections of a [`TrustingFront`] share.
#[derive(Clone)]
struct Trust {
    behind: ApiService,
    issuer: Admin,
    audience: String,
    shown: Arc<Mutex<Vec<String>>>,
}

impl TrustingFront {
    /// Starts a front of an API server that accepts tokens of the issuer's cluster for this audience.
    pub(crate) fn start(
        behind: ApiService,
        issuer: Admin,
        audience: &str,
        listener: std::net::TcpListener,
    ) -> anyhow::Result<Self> {
        let shown = Arc::default();
        let trust = Trust {
            behind,
            issuer,
            audience: audience.to_owned(),
            shown: Arc::clone(&shown),
        };
        let front = Front::start(listener, move |request| {
            let trust = trust.clone();
            async move { trust.answer(request).await }
        })?;
        Ok(Self {
            port: front.port,
            authority: front.authority.clone(),
            shown,
            front,
        })
    }

    /// Returns its address.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.front.endpoint()
    }

    /// Returns the tokens that were received since the last call, each once.
    #[must_use]
    pub fn take_shown(&self) -> Vec<String> {
        let mut shown = std::mem::take(&mut *self.shown.lock());
        shown.sort();
        shown.dedup();
        shown
    }
}

impl Trust {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        match self.forward(request).await {
            Ok(answer) => answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync()),
            Err(why) => {
                let body = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized", "code": 401,
                    "message": format!("{why:#}"),
                });
                let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
                let mut answer = Response::new(body.boxed_unsync());
                *answer.status_mut() = StatusCode::UNAUTHORIZED;
                answer
            }
        }
    }

    /// Checks the token with a TokenReview of the issuing cluster, and forwards the request as the ServiceAccount in
    /// the token.
    async fn forward(&self, request: Request<Incoming>) -> anyhow::Result<Response<tenure_apiserver::Body>> {
        let token = request
            .headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let token = token
            .and_then(|value| value.strip_prefix("Bearer "))
            .context("no token")?;
        let token = token.to_owned();
        self.shown.lock().push(token.clone());
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": { "token": token, "audiences": [self.audience] },
        });
        let review = Request::post("/apis/authentication.k8s.io/v1/tokenreviews")
            .header("content-type", "application/json")
            .body(review.to_string().into_bytes())?;
        let review: Value = self.issuer.client().request(review).await?;
        let find = |path: &str| review.pointer(path);
        if find("/status/authenticated").and_then(Value::as_bool) != Some(true) {
            anyhow::bail!("the token is not for {}: {:?}", self.audience, find("/status/error"));
        }
        let user = find("/status/user/username")
            .and_then(Value::as_str)
            .context("the token names nobody")?;
        let user = HeaderValue::from_str(user)?;
        let (mut head, body) = request.into_parts();
        head.headers.remove(AUTHORIZATION);
        head.headers.insert("impersonate-user", user);
        let body = Full::new(body.collect().await?.to_bytes());
        let mut behind = self.behind.clone();
        match behind.call(Request::from_parts(head, body)).await {
            Ok(answer) => Ok(answer),
            Err(never) => match never {},
        }
    }
}
