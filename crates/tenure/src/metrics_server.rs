//! Serves `/metrics` where the controllers run alone. The metrics name objects of all tenants, so the cluster decides who may read them, as on a kube-apiserver: the
//! user of the token needs the verb `get` on the path. The module asks the API server and caches the answers. It decides nothing itself.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, StatusCode};
use serde_json::json;
use tenure_controllers::Metrics;
use tokio::sync::Semaphore;

use crate::failure::Failure;
use crate::plain_http::{self, Answer, write_text};
use crate::reviews::{NoReviewAnswer, Reviewer, read_token};

/// The timeout for writing and sending the metrics, which are long with many tenants.
const PATIENCE: Duration = Duration::from_secs(30);
/// The timeout for a TokenReview or a SubjectAccessReview.
const ASKING: Duration = Duration::from_secs(10);
/// The time for which an allowed and a denied answer is cached.
const REMEMBERED: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(10));
/// The number of cached tokens. A client with many invalid tokens evicts only invalid tokens.
const TOKENS: usize = 64;

/// Listens, and answers until the future is dropped. The client is the controllers' own.
pub(crate) async fn serve_metrics(
    address: SocketAddr,
    figures: Metrics,
    client: kube::Client,
) -> Result<impl Future<Output = ()>, Failure> {
    let listener = plain_http::open_listener(address, "--metrics-address").await?;
    let gate = Arc::new(Gate::new(client));
    let started = SystemTime::now();
    Ok(plain_http::serve(listener, PATIENCE, move |request| {
        let (gate, figures) = (Arc::clone(&gate), figures.clone());
        async move {
            if request.uri().path() != "/metrics" {
                return write_text(StatusCode::NOT_FOUND, "there is /metrics");
            }
            if let Err(refusal) = gate.admit(request.headers()).await {
                return refusal.write();
            }
            // The metrics are written on another thread, because they take long with many objects.
            let written = tokio::task::spawn_blocking(move || {
                let mut out = String::new();
                tenure_apiserver::write_process_figures(&mut out, started);
                figures.write(&mut out);
                out
            });
            match written.await {
                Ok(text) => write_text(StatusCode::OK, text),
                Err(_) => write_text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written"),
            }
        }
    }))
}

/// The reason why a client gets no metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MetricsRefusal {
    /// The client is unauthenticated.
    Unknown,
    /// The user is known and lacks the right.
    Forbidden(String),
    /// The API server gave no answer.
    Unanswered,
}

impl MetricsRefusal {
    fn write(&self) -> Answer {
        match self {
            Self::Unknown => write_text(
                StatusCode::UNAUTHORIZED,
                "show a token of this cluster: Authorization: Bearer TOKEN",
            ),
            Self::Forbidden(user) => write_text(
                StatusCode::FORBIDDEN,
                format!(
                    "User {user:?} cannot get path \"/metrics\": a ClusterRole with nonResourceURLs [/metrics] and verbs [get] allows it, such as system:monitoring"
                ),
            ),
            Self::Unanswered => write_text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the controllers can't identify the client; see their log",
            ),
        }
    }
}

impl From<NoReviewAnswer> for MetricsRefusal {
    fn from(NoReviewAnswer: NoReviewAnswer) -> Self {
        Self::Unanswered
    }
}

/// The API server's answer about a token, and the time of the answer.
type Verdict = (Instant, Result<(), MetricsRefusal>);

/// Asks the API server about tokens, and caches its answers for a while.
struct Gate {
    reviewer: Reviewer,
    known: Mutex<HashMap<String, Verdict>>,
    asking: Semaphore,
}

impl Gate {
    fn new(client: kube::Client) -> Self {
        Self {
            reviewer: Reviewer::new(client, "metrics"),
            known: Mutex::default(),
            asking: Semaphore::new(2),
        }
    }

    async fn admit(&self, headers: &HeaderMap) -> Result<(), MetricsRefusal> {
        let token = read_token(headers).ok_or(MetricsRefusal::Unknown)?;
        if let Some(verdict) = self.recall(token, Instant::now()) {
            return verdict;
        }
        let asked = async {
            let _turn = self.asking.acquire().await.ok();
            match self.recall(token, Instant::now()) {
                Some(verdict) => verdict,
                None => self.ask(token).await,
            }
        };
        let verdict = tokio::time::timeout(ASKING, asked)
            .await
            .unwrap_or(Err(MetricsRefusal::Unanswered));
        if verdict != Err(MetricsRefusal::Unanswered) {
            self.remember(token, verdict.clone(), Instant::now());
        }
        verdict
    }

    fn recall(&self, token: &str, now: Instant) -> Option<Result<(), MetricsRefusal>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, verdict) = known.get(token)?;
        is_fresh(*since, verdict, now).then(|| verdict.clone())
    }

    fn remember(&self, token: &str, verdict: Result<(), MetricsRefusal>, now: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= TOKENS {
            known.retain(|_, (since, verdict)| verdict.is_ok() && is_fresh(*since, verdict, now));
        }
        if known.len() < TOKENS {
            known.insert(token.to_owned(), (now, verdict));
        }
    }

    async fn ask(&self, token: &str) -> Result<(), MetricsRefusal> {
        let user = self.reviewer.identify(token).await?.ok_or(MetricsRefusal::Unknown)?;
        let attributes = json!({"path": "/metrics", "verb": "get"});
        match self
            .reviewer
            .is_allowed(&user, ("nonResourceAttributes", attributes))
            .await?
        {
            true => Ok(()),
            false => Err(MetricsRefusal::Forbidden(user.name)),
        }
    }
}

fn is_fresh(since: Instant, verdict: &Result<(), MetricsRefusal>, now: Instant) -> bool {
    let (allowed, refused) = REMEMBERED;
    let kept = if verdict.is_ok() { allowed } else { refused };
    now.saturating_duration_since(since) < kept
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::header::AUTHORIZATION;
    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::Value;

    use super::*;

    /// Starts an API server that knows two tokens, one of them allowed; counts the questions.
    fn make_gate() -> (Gate, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&asked);
        let client = serve(move |path: String, sent: Value| {
            counting.fetch_add(1, Ordering::Relaxed);
            let text = |path: &str| {
                sent.pointer(path)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            match (
                path.rsplit('/').next(),
                text("/spec/token").as_str(),
                text("/spec/user").as_str(),
            ) {
                (Some("tokenreviews"), "broken", _) => None,
                (Some("tokenreviews"), token @ ("prometheus" | "tenant"), _) => {
                    Some(json!({"status": {"authenticated": true, "user": {"username": token, "groups": ["g"]}}}))
                }
                (Some("tokenreviews"), ..) => Some(json!({"status": {"error": "invalid"}})),
                (_, _, user) => {
                    let asked_for = sent.pointer("/spec/nonResourceAttributes").cloned();
                    let is_metrics = asked_for == Some(json!({"path": "/metrics", "verb": "get"}));
                    Some(json!({"status": {"allowed": user == "prometheus" && is_metrics}}))
                }
            }
        });
        (Gate::new(client), asked)
    }

    fn serve(answer: impl Fn(String, Value) -> Option<Value> + Clone + Send + 'static) -> kube::Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = answer.clone();
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.expect("a body").to_bytes();
                let sent = serde_json::from_slice(&body).expect("JSON");
                let mut response = Response::new(Body::empty());
                match answer(path, sent) {
                    Some(answer) => *response.body_mut() = Body::from(answer.to_string().into_bytes()),
                    None => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
                }
                Ok::<_, Infallible>(response)
            }
        });
        kube::Client::new(service, "default")
    }

    async fn ask(gate: &Gate, header: Option<&str>) -> Result<(), MetricsRefusal> {
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert(AUTHORIZATION, header.parse().expect("a header"));
        }
        gate.admit(&headers).await
    }

    #[tokio::test]
    async fn metrics_are_only_for_clients_with_right() {
        let (gate, asked) = make_gate();
        for header in [None, Some("Basic eDp5"), Some("Bearer "), Some("Bearer nobody")] {
            assert_eq!(ask(&gate, header).await, Err(MetricsRefusal::Unknown), "{header:?}");
        }
        let tenant = ask(&gate, Some("Bearer tenant")).await;
        assert_eq!(tenant, Err(MetricsRefusal::Forbidden("tenant".to_owned())));
        assert_eq!(ask(&gate, Some("bearer prometheus")).await, Ok(()));
        let before = asked.load(Ordering::Relaxed);
        assert_eq!(ask(&gate, Some("Bearer prometheus")).await, Ok(()));
        assert_eq!(asked.load(Ordering::Relaxed), before, "it is remembered");
        // A failed question is not cached, and is asked again.
        assert_eq!(ask(&gate, Some("Bearer broken")).await, Err(MetricsRefusal::Unanswered));
        assert!(gate.recall("broken", Instant::now()).is_none());
    }

    /// The answer about the right token is forgotten only when its time is over.
    #[tokio::test]
    async fn wrong_tokens_do_not_displace_right_token() {
        let (gate, _) = make_gate();
        let now = Instant::now();
        gate.remember("right", Ok(()), now);
        for number in 0..10 * TOKENS {
            gate.remember(&format!("wrong-{number}"), Err(MetricsRefusal::Unknown), now);
        }
        assert_eq!(gate.recall("right", now), Some(Ok(())));
        assert!(gate.known.lock().expect("known").len() <= TOKENS);
        assert_eq!(gate.recall("right", now + REMEMBERED.0), None);
    }
}
