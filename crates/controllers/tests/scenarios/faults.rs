//! An API server that fails as a real one does: at named requests or at any request, before or after its effect, with or without an answer. Also a
//! process that is killed at a request. Random choices need a seed, so that a failure can be repeated.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::json;
use tenure_testkit::Reductions;
use tokio::sync::Notify;
use tower::{BoxError, Service};

/// The fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Refused with this status; the request has no effect.
    Refused(u16),
    /// The request has its effect, and is then answered with this status.
    DoneAndRefused(u16),
    /// The connection breaks before the request arrives.
    Lost,
    /// The request has its effect, and the connection breaks before the answer.
    CutAfterEffect,
}

/// The faults that are chosen at random.
const FAULTS: [Fault; 8] = [
    Fault::Refused(409),
    Fault::Refused(429),
    Fault::Refused(500),
    Fault::Refused(504),
    Fault::DoneAndRefused(504),
    Fault::DoneAndRefused(500),
    Fault::Lost,
    Fault::CutAfterEffect,
];

/// Active faults for requests of any process, until they are ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Arc<Mutex<Order>>);

#[derive(Debug, Default)]
struct Order {
    named: Vec<Named>,
    /// One request in this many fails at random; zero disables this.
    one_in: usize,
    random: u64,
    /// The place of the first random fault in [`FAULTS`].
    first: usize,
    dealt: BTreeMap<Fault, usize>,
    /// Counts of requests, by method and path.
    asked: BTreeMap<String, usize>,
    /// Counts of requests by kind, since this count was started.
    kinds: Option<BTreeMap<String, usize>>,
}

/// A fault of requests that a test names.
#[derive(Debug)]
struct Named {
    method: Method,
    /// The end of the path, without the query.
    path: String,
    fault: Fault,
    /// How often it occurred.
    times: usize,
}

impl Faults {
    /// Answers requests with this method and path ending with this code, and does not execute them.
    pub(crate) fn refuse(&self, method: Method, path: &str, code: u16) {
        self.name(method, path, Fault::Refused(code));
    }

    /// As [`Faults::refuse`], but the requests are executed.
    pub(crate) fn lose_answers(&self, method: Method, path: &str, code: u16) {
        self.name(method, path, Fault::DoneAndRefused(code));
    }

    fn name(&self, method: Method, path: &str, fault: Fault) {
        let path = path.to_owned();
        let times = 0;
        lock(&self.0).named.push(Named {
            method,
            path,
            fault,
            times,
        });
    }

    /// Lets one request in `one_in` fail from now on, chosen by the seed. The faults of consecutive seeds begin one place further.
    pub(crate) fn break_one_in(&self, one_in: usize, seed: u64) {
        let mut order = lock(&self.0);
        order.one_in = one_in;
        order.random = seed | 1;
        order.first = usize::try_from(seed % FAULTS.len() as u64).unwrap_or_default();
    }

    /// Returns how often a named fault occurred since the last [`Faults::end`].
    pub(crate) fn times(&self) -> usize {
        lock(&self.0).named.iter().map(|named| named.times).sum()
    }

    /// Counts the requests of this method to paths with this ending.
    pub(crate) fn count(&self, method: &Method, path: &str) -> usize {
        let order = lock(&self.0);
        let is_it = |asked: &&String| asked.starts_with(&format!("{method} ")) && asked.ends_with(path);
        order
            .asked
            .iter()
            .filter(|(asked, _)| is_it(asked))
            .map(|(_, times)| times)
            .sum()
    }

    /// Starts to count requests for single objects of a namespace by kind, and returns the previous counts.
    pub(crate) fn count_kinds(&self) -> BTreeMap<String, usize> {
        lock(&self.0).kinds.replace(BTreeMap::new()).unwrap_or_default()
    }

    /// Returns how often each random fault occurred.
    pub(crate) fn dealt(&self) -> BTreeMap<Fault, usize> {
        lock(&self.0).dealt.clone()
    }

    /// Ends all faults.
    pub(crate) fn clear(&self) {
        let mut order = lock(&self.0);
        order.named.clear();
        order.one_in = 0;
    }

    fn choose_fault(&self, request: &Request<Body>) -> Option<Fault> {
        let mut order = lock(&self.0);
        let asked = format!("{} {}", request.method(), request.uri().path());
        *order.asked.entry(asked).or_default() += 1;
        if let (Some(kinds), Some(kind)) = (&mut order.kinds, name_kind(request)) {
            *kinds.entry(kind).or_default() += 1;
        }
        let is_it =
            |named: &&mut Named| named.method == *request.method() && request.uri().path().ends_with(&named.path);
        if let Some(named) = order.named.iter_mut().find(is_it) {
            named.times += 1;
            return Some(named.fault);
        }
        // A failed list or watch restarts by itself, and says nothing about the next step of a reconciliation.
        let reads_all = request.method() == Method::GET && request.uri().query().is_some();
        if order.one_in == 0 || reads_all {
            return None;
        }
        order.random ^= order.random << 13;
        order.random ^= order.random >> 7;
        order.random ^= order.random << 17;
        let number = usize::try_from(order.random >> 33).unwrap_or_default();
        if number % order.one_in != 0 {
            return None;
        }
        // The time is random, but the faults take turns, so that none is left out.
        let dealt: usize = order.dealt.values().sum();
        let fault = FAULTS[(order.first + dealt) % FAULTS.len()];
        *order.dealt.entry(fault).or_default() += 1;
        Some(fault)
    }
}

/// Returns the action and the kind of a request, such as `dry-run configmaps`; `None` unless it is for one object in a namespace.
fn name_kind(request: &Request<Body>) -> Option<String> {
    let (_, path) = request.uri().path().split_once("/namespaces/")?;
    let mut parts = path.split('/').skip(1);
    let (resource, _name) = (parts.next()?, parts.next()?);
    let subresource = parts.next().map(|part| format!("/{part}")).unwrap_or_default();
    let is_dry_run = request.uri().query().is_some_and(|query| query.contains("dryRun=All"));
    let word = if is_dry_run {
        "dry-run"
    } else {
        request.method().as_str()
    };
    Some(format!("{word} {resource}{subresource}"))
}

/// Checks whether a request changes an object. Dry-runs, reviews, tokens, events and leases do not count.
fn is_write(request: &Request<Body>) -> bool {
    let is_dry_run = request.uri().query().is_some_and(|query| query.contains("dryRun=All"));
    let path = request.uri().path();
    let beside = ["/token", "reviews", "/events", "/leases"];
    *request.method() != Method::GET && !is_dry_run && !beside.iter().any(|part| path.contains(part))
}

/// The time at which the process is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kill {
    /// At this request, counted from one.
    pub(crate) at: usize,
    /// Whether that request still has its effect.
    pub(crate) after_effect: bool,
}

/// The life of one process, until it is killed, if ever.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life(Arc<(Mutex<Days>, Notify)>);

#[derive(Debug, Default)]
struct Days {
    kill: Option<Kill>,
    /// Whether only writes count.
    only_writes: bool,
    requests: usize,
    /// The last request has begun.
    dying: bool,
    /// The process is dead, and no request is answered any more.
    dead: bool,
}

impl Life {
    /// Kills the process at a request, counted from now.
    pub(crate) fn kill(&self, kill: Kill) {
        self.order(kill, false);
    }

    /// Kills the process at a request, of which only those count that change a recorded or delivered object.
    pub(crate) fn kill_at_write(&self, kill: Kill) {
        self.order(kill, true);
    }

    fn order(&self, kill: Kill, only_writes: bool) {
        let mut days = lock(&self.0.0);
        days.requests = 0;
        days.only_writes = only_writes;
        days.kill = Some(kill);
    }

    /// Cancels the kill. Returns true if it came too late: then the process has been killed.
    pub(crate) async fn spare(&self) -> bool {
        let dying = {
            let mut days = lock(&self.0.0);
            days.kill = None;
            days.dying
        };
        if dying {
            self.until_dead().await;
        }
        dying
    }

    /// Waits until the process is dead.
    pub(crate) async fn until_dead(&self) {
        loop {
            let died = self.0.1.notified();
            if lock(&self.0.0).dead {
                return;
            }
            died.await;
        }
    }

    fn is_over(&self) -> bool {
        lock(&self.0.0).dead
    }

    /// Returns `None` unless this request is the last one; then returns whether it has its effect.
    fn ends(&self, request: &Request<Body>) -> Option<bool> {
        let mut days = lock(&self.0.0);
        let kill = days.kill?;
        if days.only_writes && !is_write(request) {
            return None;
        }
        days.requests += 1;
        let last = days.requests == kill.at;
        // The process stays dying if another request comes before this one has ended.
        days.dying |= last;
        last.then_some(kill.after_effect)
    }

    fn mark_dead(&self) {
        lock(&self.0.0).dead = true;
        self.0.1.notify_waiters();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An API server as one process reaches it.
#[derive(Clone)]
pub(crate) struct Faulty {
    pub(crate) server: kube::Client,
    pub(crate) faults: Faults,
    pub(crate) life: Life,
    pub(crate) reductions: Reductions,
}

impl Service<Request<Body>> for Faulty {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self {
            server,
            faults,
            life,
            reductions,
        } = self.clone();
        Box::pin(async move {
            if life.is_over() {
                return std::future::pending().await;
            }
            if let Some(has_effect) = life.ends(&request) {
                if has_effect {
                    let _nobody_reads_it = server.send(request).await;
                }
                life.mark_dead();
                return std::future::pending().await;
            }
            match faults.choose_fault(&request) {
                None => {
                    reductions
                        .pass(request, move |request| async move { Ok(server.send(request).await?) })
                        .await
                }
                Some(Fault::Refused(code)) => refusal(code),
                Some(Fault::DoneAndRefused(code)) => {
                    let _nobody_reads_it = server.send(request).await;
                    refusal(code)
                }
                Some(Fault::Lost) => Err("the connection broke before the request arrived".into()),
                Some(Fault::CutAfterEffect) => {
                    let _nobody_reads_it = server.send(request).await;
                    Err("the connection broke before the answer arrived".into())
                }
            }
        })
    }
}

fn refusal(code: u16) -> Result<Response<Body>, BoxError> {
    let reason = match code {
        403 => "Forbidden",
        409 => "Conflict",
        429 => "TooManyRequests",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "it fails, as the test says",
    });
    Ok(Response::builder()
        .status(StatusCode::from_u16(code)?)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(status.to_string().into_bytes()))?)
}
