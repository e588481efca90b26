//! One request from its first byte to its answer: limits, authentication, authorization, reading the body, execution.

mod paths;

pub use paths::path_segments;

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body as _;
use tenure_auth::identity::UserInfo;
use tenure_checkpoint::Ended;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::audit::{Audit, AuditRecord, RequestFacts};
use crate::byte_ledger::{Account, ByteLedger, Charge};
use crate::cluster::Cluster;
use crate::connections::Activity;
use crate::fairness::{Bounds, Fairness, MemoryUse, OwnedUserPermit, PerMemoryUse, Rejected, UserPermit};
use crate::gate::{Peer, make_attributes};
use crate::http::query::Query;
use crate::http::{ApiError, Body, CONFIDENTIAL, RequestInfo, body, respond};
use crate::long_work::{self, Deadline, Stopped, WithDeadline};
use crate::metrics::{Counted, Metrics};
use crate::operation::Warnings;
use crate::program_hooks::ProgramHooks;
use crate::request_memory::{BodyRejection, IncomingBody, ReceivedBody, RequestMemoryBounds, WorkingMemory};
use crate::responses::{self, ResponseBounds, Route};
use crate::streams::StreamEnd;
use crate::{long_requests, routes};

/// Longest duration of a request. Watches have their own limit.
const REQUEST: Duration = Duration::from_secs(60);
/// The header with the audit id of a request, for the log and for the client.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Longest audit id that the server accepts from a client, in bytes.
const AUDIT_ID_LENGTH: usize = 64;

/// The state of a server that all its requests share.
pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    pub(crate) shutdown: CancellationToken,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) fairness: Fairness,
    pub(crate) answers: ResponseBounds,
    pub(crate) audit: Option<Arc<Audit>>,
    /// The address of this server for clients in the network, `host:port`, once it is known.
    pub(crate) address: parking_lot::RwLock<String>,
    /// Facts from the program that embeds this server.
    pub(crate) surroundings: ProgramHooks,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Drop for Shared {
    /// Ends the controllers, which then release the store: no client can reach the server any more.
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Shared {
    pub(crate) fn new(
        cluster: Cluster,
        audit: Option<Audit>,
        (answers, intake): (ResponseBounds, &RequestMemoryBounds),
        surroundings: ProgramHooks,
    ) -> Self {
        let ledgers = PerMemoryUse::new(|held| match held {
            MemoryUse::Answers => ByteLedger::new(answers.user_bytes, answers.total_bytes),
            MemoryUse::Bodies => {
                ByteLedger::for_growing(intake.user_body_bytes, intake.total_body_bytes, body::MAX_BODY)
            }
            MemoryUse::Objects => ByteLedger::new(intake.user_object_bytes, intake.total_object_bytes),
        });
        let registry = cluster.registry.clone();
        let find_tenant = Box::new(move |user: &UserInfo| registry.admission().find_tenant(user));
        Self {
            cluster,
            shutdown: CancellationToken::new(),
            metrics: Arc::default(),
            fairness: Fairness::new(Bounds::default(), ledgers, find_tenant),
            answers,
            audit: audit.map(Arc::new),
            address: parking_lot::RwLock::default(),
            surroundings,
        }
    }
}

/// The API as a tower service, for connections from the network and for clients in this process. The service
/// authenticates every request, by client certificate or bearer token, and authorizes it.
#[derive(Debug, Clone)]
pub struct ApiService {
    shared: Arc<Shared>,
    peer: Peer,
    activity: Option<Arc<Activity>>,
    remote: Option<IpAddr>,
}

/// The reason why a request was refused.
enum Refused {
    Status(ApiError),
    /// The user has too many requests, or no memory is free: the client should retry. The answer is 429 as plain text,
    /// as kube-apiserver's.
    ComeAgain,
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self::Status(error)
    }
}

impl From<Rejected> for Refused {
    fn from(_: Rejected) -> Self {
        Self::ComeAgain
    }
}

impl From<BodyRejection> for Refused {
    fn from(why: BodyRejection) -> Self {
        match why {
            BodyRejection::Wrong(error) => Self::Status(error),
            BodyRejection::NoRoom => Self::ComeAgain,
        }
    }
}

/// The bytes and permits that a request holds until its answer is sent, and the account for the answer; empty until
/// the user is known.
#[derive(Default)]
struct Holding {
    account: Option<Arc<Account>>,
    place: Option<OwnedUserPermit>,
}

/// Logs a request that failed with 500 or more. Kubernetes answers some invalid requests with 500 and no reason.
/// Their senders must not fill the log, and their errors quote the body, so the log repeats no secret.
fn log_failure(info: &RequestInfo, audit_id: &str, error: &ApiError) {
    let (code, verb, path) = (error.code, info.verb.as_str(), info.path.as_str());
    if error.reason.is_empty() {
        tracing::debug!(
            code,
            verb,
            path,
            audit_id,
            "an invalid request was answered with a server error, as in Kubernetes"
        );
        return;
    }
    let message = if info.is_confidential() {
        CONFIDENTIAL
    } else {
        &error.message
    };
    tracing::warn!(code, verb, path, audit_id, error = message, "a request failed");
}

/// Returns the error for a fault of the server.
fn server_fault() -> ApiError {
    ApiError::internal("the request could not be answered; the server's log says why")
}

/// Returns the error for a request that was stopped.
fn make_stopped_error(ended: Ended) -> ApiError {
    match ended {
        Ended::OutOfTime => ApiError::new(
            504,
            "Timeout",
            "Timeout: request did not complete within the allotted timeout",
        ),
        Ended::TooManyReports => ApiError::new(
            422,
            "Invalid",
            "this object has too many faults: the messages about them exceed the limit of a request",
        ),
    }
}

/// Returns the audit id that the client sent if it is valid, else a new one.
fn audit_id(headers: &http::HeaderMap) -> HeaderValue {
    let sent = headers.get(AUDIT_ID).filter(|sent| {
        let length = sent.as_bytes().len();
        (1..=AUDIT_ID_LENGTH).contains(&length) && sent.as_bytes().iter().all(u8::is_ascii_graphic)
    });
    if let Some(sent) = sent {
        return sent.clone();
    }
    let new = uuid::Uuid::new_v4().to_string();
    HeaderValue::try_from(new).unwrap_or(HeaderValue::from_static("none"))
}

/// Checks whether a request only reads, so that the client may send it again.
fn is_repeatable(info: &RequestInfo) -> bool {
    matches!(info.verb.as_str(), "get" | "head" | "list" | "watch")
}

fn is_apply(headers: &http::HeaderMap) -> bool {
    headers
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|form| form.as_bytes().starts_with(b"application/apply-patch+"))
}

impl ApiService {
    pub(crate) fn new(shared: Arc<Shared>, peer: Peer) -> Self {
        Self {
            shared,
            peer,
            activity: None,
            remote: None,
        }
    }

    /// Returns this service for one connection, and records the activity of that connection.
    pub(crate) fn on_connection(mut self, activity: Arc<Activity>, remote: Option<IpAddr>) -> Self {
        self.activity = Some(activity);
        self.remote = remote;
        self
    }

    /// Answers one request. Never fails: every error becomes a Status.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        match self.clone().handle_boxed(request.map(body::box_body)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Answers a request with a boxed body. The body type is fixed, so this code is compiled once, and not for each
    /// type of body in each crate that sends requests.
    fn handle_boxed(self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
        Box::pin(async move { Ok(self.respond(request).await) })
    }

    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        let started = Instant::now();
        let running = self.activity.as_ref().map(Activity::count_request);
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query.0);
        let mut audit_id = audit_id(&parts.headers);
        let counted = Counted {
            info: &info,
            apply: is_apply(&parts.headers),
            dry_run: info.is_resource && query.get("dryRun").is_some(),
        };
        let warnings = Warnings::default();
        let arrival = RequestFacts {
            parts: &parts,
            info: &info,
            audit_id: audit_id.to_str().unwrap_or_default(),
            remote: self.remote,
            now: self.shared.cluster.registry.now(),
        };
        let trail = AuditRecord::begin_record(self.shared.audit.as_ref(), &arrival);
        let ending = trail.guard_end();
        let mut holding = Holding::default();
        let answering = self.answer_request(counted, query, &arrival, body, (&warnings, &trail), &mut holding);
        let answering = std::panic::AssertUnwindSafe(answering).catch_unwind();
        let answer = answering.await.unwrap_or_else(|payload| {
            if let Some(ended) = payload.downcast_ref::<Ended>() {
                return Err(Refused::Status(make_stopped_error(*ended)));
            }
            // A fault of the server ends this request, and not the connection, which other requests share.
            trail.record_panic(&server_fault());
            Err(Refused::Status(server_fault()))
        });
        let mut response = match answer {
            Ok(response) => response,
            Err(Refused::ComeAgain) => respond::too_many_requests(),
            Err(Refused::Status(error)) => {
                if error.code >= 500 {
                    log_failure(&info, audit_id.to_str().unwrap_or_default(), &error);
                }
                respond::with_error(&error)
            }
        };
        let account = holding.account.take();
        let account = account.unwrap_or_else(|| self.shared.fairness.account(&UserInfo::anonymous()));
        let prepaid = response.extensions_mut().remove::<Arc<Charge>>();
        // A streamed answer begins with at most one piece, and a watch with nothing.
        let bytes = response.body().size_hint().exact();
        let bytes = bytes.map_or(responses::PIECE, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX / 2)
        });
        let charge = match prepaid {
            Some(prepaid) => Some(prepaid),
            None if bytes == 0 || info.verb == "watch" && response.status().is_success() => None,
            None => {
                let charge = account.charge_within(bytes, self.shared.fairness.patience()).await;
                if charge.is_none() && is_repeatable(&info) {
                    response = respond::too_many_requests();
                }
                // The answer to a write is sent even if its bytes exceed the limit, because the client can't repeat the
                // write safely.
                Some(Arc::new(charge.unwrap_or_else(|| account.charge(bytes))))
            }
        };
        respond::add_warning_headers(&mut response, &warnings.lock());
        let mut response = trail.record_response(response, info.verb == "watch", ending).await;
        respond::remove_forbidden_body(&mut response, &parts.method);
        let (code, took) = (response.status().as_u16(), started.elapsed());
        tracing::debug!(
            code,
            verb = info.verb,
            path = info.path,
            audit_id = audit_id.to_str().unwrap_or_default(),
            micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            "a request was answered"
        );
        // The audit id differs in each answer, so HTTP/2 must not store it in the table of repeated headers.
        audit_id.set_sensitive(true);
        response.headers_mut().insert(AUDIT_ID, audit_id);
        self.shared.metrics.count_answer(counted, code, took);
        let route = match &self.activity {
            Some(activity) => Route::Connection(activity.unread.clone(), StreamEnd::of_polled_stream()),
            None => Route::Process,
        };
        responses::track_sending(response, account, charge, &route, (running, holding.place))
    }

    async fn answer_request(
        &self,
        counted: Counted<'_>,
        query: Query,
        arrival: &RequestFacts<'_>,
        request_body: Body,
        (warnings, trail): (&Warnings, &AuditRecord),
        holding: &mut Holding,
    ) -> Result<Response<Body>, Refused> {
        let shared = &self.shared;
        let info = counted.info;
        let registry = &shared.cluster.registry;
        let headers = &arrival.parts.headers;
        let attributes = make_attributes(info);
        let caller = shared
            .cluster
            .gate
            .authenticate(registry, &self.peer, headers, &info.path);
        let caller = caller.inspect_err(|answer| trail.record_unauthenticated(&attributes, info, answer))?;
        trail.record_user(&caller, &attributes, info)?;
        if let Some(activity) = &self.activity {
            activity.mark_authenticated(&caller);
        }
        let weighs_much = shared.cluster.gate.is_long_to_admit(&caller, headers, &attributes);
        let user = if weighs_much {
            let place = shared.fairness.wait_for_permit(&caller).await?;
            let (gate, headers, trail) = (shared.cluster.gate.clone(), headers.clone(), trail.clone());
            let admitting = async move { gate.admit(caller, &headers, &attributes, &trail) };
            self.run_long(admitting, &place, |_| false).await??
        } else {
            shared.cluster.gate.admit(caller, headers, &attributes, trail)?
        };
        let account = shared.fairness.account(&user);
        holding.account = Some(account.clone());
        if !info.is_resource {
            if !info.path.starts_with("/openapi/") {
                return Ok(self.answer_path(info, &query, headers));
            }
            // An OpenAPI document is large, and is unpacked and written for each request. So the request needs permits,
            // and runs as long work.
            let place = shared.fairness.wait_for_permit(&user).await?;
            let (service, info, headers) = (self.clone(), info.clone(), headers.clone());
            let describing = async move { service.answer_path(&info, &query, &headers) };
            let described = self.run_long(describing, &place, |_| false).await;
            holding.place = place.into_permit();
            return described;
        }
        let request = routes::ObjectRequest {
            registry: registry.clone(),
            gate: shared.cluster.gate.clone(),
            info: info.clone(),
            query,
            headers: headers.clone(),
            shutdown: shared.shutdown.clone(),
            warnings: warnings.clone(),
            trail: trail.clone(),
            turns: match info.verb.as_str() {
                "list" | "watch" | "deletecollection" => shared.fairness.step_limiter(&user),
                _ => None,
            },
            account,
            user,
        };
        if info.verb == "watch" {
            let watching = shared.fairness.watch(&request.user)?;
            let (response, charge) = self.begin_watch(request).await?;
            let open = shared.metrics.watch(counted);
            return Ok(body::hold_until_end(response, (watching, open, charge)));
        }
        let _counted = shared.metrics.count_in_flight(info);
        let place = shared.fairness.wait_for_permit(&request.user).await?;
        // While a slow body arrives, the request holds only a permit of its user, and none that all users share.
        let arriving = IncomingBody::new(place.account(MemoryUse::Bodies).clone(), shared.fairness.patience());
        let taken = arriving
            .read_body(request_body)
            .await
            .inspect_err(|why| self.count_refused(why))?;
        let served = self.serve(request, taken, &place).await;
        holding.place = place.into_permit();
        served
    }

    /// Starts a watch. Its selectors may be long to read. They are charged until the watch ends.
    async fn begin_watch(&self, request: routes::ObjectRequest) -> Result<(Response<Body>, Option<Charge>), Refused> {
        let (selectors, has_long_head) = {
            let parts = request.parts(&[]);
            (parts.weigh_selectors(), parts.has_long_head())
        };
        if selectors == 0 && !has_long_head {
            return Ok((routes::serve_objects(&request, Bytes::new()).await?, None));
        }
        let fairness = &self.shared.fairness;
        let place = fairness.wait_for_permit(&request.user).await?;
        let account = place.account(MemoryUse::Objects);
        let charge = account.charge_within(selectors, fairness.patience()).await;
        let charge = charge.ok_or_else(|| fairness.count_rejected())?;
        let beginning = async move { routes::serve_objects(&request, Bytes::new()).await };
        let begun = if has_long_head {
            self.run_long(beginning, &place, is_error_of_client).await?
        } else {
            beginning.await
        };
        Ok((begun?, Some(charge)))
    }

    /// Counts a request that is rejected with the advice to retry.
    fn count_refused(&self, why: &BodyRejection) {
        if matches!(why, BodyRejection::NoRoom) {
            self.shared.fairness.count_rejected();
        }
    }

    /// Answers a request about objects, after its body has arrived.
    async fn serve(
        &self,
        request: routes::ObjectRequest,
        taken: ReceivedBody,
        place: &UserPermit<'_>,
    ) -> Result<Response<Body>, Refused> {
        let is_list = request.info.verb == "list";
        let asked = long_requests::measure_request(&request.registry, &request.parts(&taken.bytes));
        let is_long = asked.is_long;
        let burden = WorkingMemory::new(taken, asked, &request.headers, &request.info.verb);
        let (objects, patience) = (
            place.account(MemoryUse::Objects).clone(),
            self.shared.fairness.patience(),
        );
        if is_long {
            let serving = async move {
                let (bytes, room) = burden.charge_decoded(&objects, patience).await?;
                let served = routes::serve_objects(&request, bytes).await;
                // A list applies its selectors while it is sent, so the charge for the request stays until then.
                let served = served.map(|response| match is_list {
                    true => body::hold_until_end(response, room),
                    false => response,
                });
                Ok::<_, BodyRejection>(served)
            };
            let served = self.run_long(serving, place, is_refusal).await?;
            let served = served.inspect_err(|why| self.count_refused(why))?;
            return served.map_err(Refused::Status);
        }
        // The charge comes before the permit that all users share: a request that waits for bytes must not hold such a
        // permit.
        let (bytes, room) = burden
            .charge_decoded(&objects, patience)
            .await
            .inspect_err(|why| self.count_refused(why))?;
        let serving = async move {
            let served = routes::serve_objects(&request, bytes).await;
            drop(room);
            served
        };
        let _working = place.wait_for_work_permit().await?;
        let serving = async move {
            let serving = WithDeadline::new(Deadline::new(Instant::now() + REQUEST), serving);
            if !is_list {
                return serving.await;
            }
            // A long computation must not delay the other streams of its connection.
            match AbortOnDropHandle::new(tokio::spawn(serving)).await {
                Ok(answer) => answer,
                Err(failed) => match failed.try_into_panic() {
                    Ok(payload) => std::panic::resume_unwind(payload),
                    Err(_) => Err(server_fault()),
                },
            }
        };
        tokio::time::timeout(REQUEST, serving)
            .await
            .map_err(|_| make_stopped_error(Ended::OutOfTime))?
            .map_err(Refused::Status)
    }

    /// Runs a request that may compute for long on other threads, within its user's share.
    async fn run_long<F>(
        &self,
        work: F,
        place: &UserPermit<'_>,
        is_refusal: fn(&F::Output) -> bool,
    ) -> Result<F::Output, Refused>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let deadline = Deadline::new(Instant::now() + REQUEST);
        let working = long_work::run(place.long_work(), deadline, work, is_refusal);
        match tokio::time::timeout(REQUEST, working).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Stopped::NoTurn)) => Err(self.shared.fairness.count_rejected().into()),
            Ok(Err(Stopped::Ended(ended))) => Err(make_stopped_error(ended).into()),
            Err(_) => Err(make_stopped_error(Ended::OutOfTime).into()),
        }
    }
}

/// Checks whether a request was refused because of its content: a retry would be refused, too.
fn is_refusal(served: &Result<Result<Response<Body>, ApiError>, BodyRejection>) -> bool {
    match served {
        Ok(served) => is_error_of_client(served),
        Err(BodyRejection::NoRoom) => false,
        Err(BodyRejection::Wrong(error)) => is_refused_again(error),
    }
}

/// Checks whether the answer is an error that an equal request would get again.
fn is_error_of_client(served: &Result<Response<Body>, ApiError>) -> bool {
    served.as_ref().is_err_and(is_refused_again)
}

/// Checks whether the error is about the content of the request, so that an equal request would get it again.
fn is_refused_again(error: &ApiError) -> bool {
    matches!(error.code, 400 | 413 | 415 | 422)
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.clone().handle_boxed(request.map(body::box_body))
    }
}

#[cfg(test)]
mod tests;
