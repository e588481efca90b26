//! One request from its first byte to its answer: limits, who, may they, read the body, do it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::access::{Gate, Peer};
use crate::http::query::Query;
use crate::http::{ApiError, Body, RequestInfo, body, respond};
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::routes;

/// Requests that may be worked on at once, watches apart.
const IN_FLIGHT: usize = 600;
/// Watches that may be open at once.
const WATCHES: usize = 20_000;
/// How long a request waits for its turn before it is told to come again.
const QUEUE: Duration = Duration::from_secs(10);

/// How long a request's body may take to arrive.
const BODY: Duration = Duration::from_secs(30);
/// The share of `IN_FLIGHT` that one user may have, so that nobody starves the others.
const IN_FLIGHT_PER_USER: usize = 200;

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) registry: Registry,
    pub(crate) gate: Arc<Gate>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) metrics: Metrics,
    /// Where clients in the network find this server, `host:port`, once it is known.
    pub(crate) address: parking_lot::RwLock<String>,
    in_flight: Semaphore,
    in_flight_by_user: Mutex<HashMap<String, Weak<Semaphore>>>,
    watches: Arc<Semaphore>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// The places of one user; forgotten when none of them is taken.
    fn places_of(&self, user: &str) -> Arc<Semaphore> {
        let mut users = self.in_flight_by_user.lock();
        if let Some(places) = users.get(user).and_then(Weak::upgrade) {
            return places;
        }
        if users.len() > IN_FLIGHT {
            users.retain(|_, places| places.strong_count() > 0);
        }
        let places = Arc::new(Semaphore::new(IN_FLIGHT_PER_USER));
        users.insert(user.to_owned(), Arc::downgrade(&places));
        places
    }
}

impl Drop for Shared {
    /// Nobody can reach the server any more: its controllers end, and let go of the store.
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Shared {
    pub(crate) fn new(registry: Registry, gate: Gate) -> Self {
        Self {
            registry,
            gate: Arc::new(gate),
            shutdown: CancellationToken::new(),
            metrics: Metrics::default(),
            address: parking_lot::RwLock::default(),
            in_flight: Semaphore::new(IN_FLIGHT),
            in_flight_by_user: Mutex::default(),
            watches: Arc::new(Semaphore::new(WATCHES)),
        }
    }
}

/// The API as a tower service: for connections of the network and for clients in this process alike. Every request is
/// authenticated, by client certificate or bearer token, and authorized.
#[derive(Debug, Clone)]
pub struct ApiService {
    shared: Arc<Shared>,
    peer: Peer,
}

impl ApiService {
    pub(crate) fn new(shared: Arc<Shared>, peer: Peer) -> Self {
        Self { shared, peer }
    }

    /// Answers one request. Never fails: what goes wrong is a Status.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let started = std::time::Instant::now();
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query.0);
        let answering = std::panic::AssertUnwindSafe(self.answer(&info, query, &parts.headers, body)).catch_unwind();
        let answer = answering.await.unwrap_or_else(|_| {
            // A fault of ours ends this request, not the connection that others share.
            Err(ApiError::internal(
                "the request could not be answered; the server's log says why",
            ))
        });
        let response = match answer {
            Ok(response) => response,
            Err(error) => {
                if error.code >= 500 {
                    tracing::warn!(
                        code = error.code,
                        verb = info.verb,
                        path = info.path,
                        error = error.message,
                        "a request failed"
                    );
                }
                respond::error(&error)
            }
        };
        self.shared
            .metrics
            .count(&info, response.status().as_u16(), started.elapsed());
        response
    }

    async fn answer<B>(
        &self,
        info: &RequestInfo,
        query: Query,
        headers: &http::HeaderMap,
        request_body: B,
    ) -> Result<Response<Body>, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let shared = &self.shared;
        let registry = &shared.registry;
        let caller = shared.gate.authenticate(registry, &self.peer, headers, &info.path)?;
        let user = shared.gate.admit(caller, headers, info)?;
        if info.is_resource {
            let request = routes::ObjectRequest {
                registry: registry.clone(),
                gate: shared.gate.clone(),
                info: info.clone(),
                query,
                headers: headers.clone(),
                user,
                shutdown: shared.shutdown.clone(),
            };
            if info.verb == "watch" {
                let permit = shared
                    .watches
                    .clone()
                    .try_acquire_owned()
                    .map_err(|_| ApiError::too_many_requests())?;
                let response = routes::serve_objects(&request, Bytes::new()).await?;
                return Ok(body::holding(response, permit));
            }
            let places = shared.places_of(&request.user.name);
            let _permits = tokio::time::timeout(QUEUE, async {
                (places.acquire().await, shared.in_flight.acquire().await)
            })
            .await
            .map_err(|_| ApiError::too_many_requests())?;
            // A body that trickles in would hold the place of others.
            let bytes = tokio::time::timeout(BODY, body::read(request_body))
                .await
                .map_err(|_| ApiError::new(408, "Timeout", "the request's body did not arrive in time"))??;
            return routes::serve_objects(&request, bytes).await;
        }
        Ok(self.answer_path(info, &query, headers))
    }

    fn answer_path(&self, info: &RequestInfo, query: &Query, headers: &http::HeaderMap) -> Response<Body> {
        let shared = &self.shared;
        let registry = &shared.registry;
        let path = info.path.as_str();
        if !matches!(info.verb.as_str(), "get" | "head") {
            return respond::error(&ApiError::method_not_allowed());
        }
        let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let found = match first {
            "version" => Some(routes::serve_version()),
            "healthz" | "livez" | "readyz" => {
                routes::serve_health(path, query, registry, shared.shutdown.is_cancelled())
            }
            "api" | "apis" => routes::serve_discovery(path, headers, &registry.catalog(), &shared.address.read()),
            "openapi" => routes::serve_openapi(path, query, headers, registry),
            "metrics" => Some(shared.metrics.serve(registry)),
            ".well-known" | "openid" => self.openid(path),
            _ => None,
        };
        found.unwrap_or_else(respond::not_found)
    }

    /// What verifiers of ServiceAccount tokens ask for.
    fn openid(&self, path: &str) -> Option<Response<Body>> {
        let tokens = self.shared.gate.authenticator().tokens();
        let value = match path {
            "/.well-known/openid-configuration" => {
                let address = self.shared.address.read().clone();
                tokens.openid_configuration(&format!("https://{address}/openid/v1/jwks"))
            }
            "/openid/v1/jwks" => tokens.json_web_keys(),
            _ => return None,
        };
        Some(respond::value(http::StatusCode::OK, &value))
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.handle(request).await) })
    }
}
