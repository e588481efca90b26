//! The audit log: the user, the request, the identity it acts as, the decision, and the end. The log has an `Event`
//! of `audit.k8s.io/v1` for each stage of a request that the policy names.
//!
//! ```text
//!  request ─▶ authenticated ─▶ policy: a level and stages ─▶ RequestReceived
//!                 │   impersonation, decision, admission's notes, object and answer are added on the way
//!                 └────────▶ answered ─▶ ResponseStarted (watches) ─▶ ResponseComplete, or Panic
//! ```
//!
//! The server writes lines before the answer goes out. It never writes bodies of requests and answers about Secrets
//! and tokens, whatever the policy says, because a log has other readers than the objects. Webhooks and admission
//! policies choose themselves what they note about these objects.

mod event;
mod log;
mod policy;

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tenure_auth::authorization::{Attributes, Decision};
use tenure_auth::identity::UserInfo;
use tenure_kinds::schema::validation::metadata::qualified_name;

pub use self::log::LogConfig;
pub use self::policy::{Level, Policy, Stage};

use self::event::{Event, ObjectReference, source_ips, user_agent, without_managed_fields};
use self::log::Log;
use self::policy::Ruling;
use crate::http::{ApiError, Body, CONFIDENTIAL, RequestInfo, body};

/// The audit policy and the open log, for all requests of a server.
#[derive(Debug)]
pub struct Audit {
    policy: Policy,
    log: Log,
}

impl Audit {
    /// Reads the policy and opens the log.
    ///
    /// # Errors
    /// The fault of the policy or the log, with the file's name.
    pub fn open(policy: &Path, log: LogConfig) -> Result<Self, String> {
        let text = std::fs::read(policy).map_err(|error| format!("the audit policy {}: {error}", policy.display()))?;
        let policy = Policy::read(&text).map_err(|fault| format!("the audit policy {}: {fault}", policy.display()))?;
        let path = log.path.clone();
        let log = Log::open(log).map_err(|error| format!("the audit log {}: {error}", path.display()))?;
        Ok(Self { policy, log })
    }

    /// Writes an event. `false` if that failed.
    fn write(&self, event: &Event) -> bool {
        let written = serde_json::to_vec(event)
            .map_err(std::io::Error::other)
            .and_then(|mut line| {
                line.push(b'\n');
                self.log.write(&line, event.stage_timestamp)
            });
        match written {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, audit_id = event.audit_id, "an audit event could not be written");
                false
            }
        }
    }
}

/// Largest size in bytes of a successful answer that can be a Status.
const STATUS: usize = 2048;
/// Largest size in bytes of an answer in the log, as a larger one is never in memory as a whole. The log then has
/// this annotation instead.
const ANSWER: usize = 4 * 1024 * 1024;
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// Reads an answer if it has at most `most` bytes. Passes the answer on in any case.
async fn read_up_to(response: Response<Body>, most: usize) -> (Option<Bytes>, Response<Body>) {
    if response.body().size_hint().lower() > most as u64 {
        return (None, response);
    }
    let (head, mut rest) = response.into_parts();
    let (mut pieces, mut size) = (Vec::new(), 0);
    while size <= most {
        match rest.frame().await {
            Some(Ok(frame)) => {
                let Ok(bytes) = frame.into_data() else { continue };
                size += bytes.len();
                pieces.push(bytes);
            }
            Some(Err(error)) => {
                let response = Response::from_parts(head, body::make_failing_body(pieces, error));
                return (None, response);
            }
            None => {
                let whole = match pieces.as_slice() {
                    [one] => one.clone(),
                    several => several.concat().into(),
                };
                return (
                    Some(whole.clone()),
                    Response::from_parts(head, body::complete_body(whole)),
                );
            }
        }
    }
    (None, Response::from_parts(head, body::prepend_read_bytes(pieces, rest)))
}

/// The audit record of one request; `None` if auditing is off. Clones belong to the same request.
#[derive(Clone, Default)]
pub(crate) struct AuditRecord(Option<Arc<Request>>);

/// The audit record of a request, shared by its clones.
struct Request {
    audit: Arc<Audit>,
    state: Mutex<RecordState>,
}

/// The event of a request so far, and the decision of the audit policy.
struct RecordState {
    event: Event,
    ruling: Ruling,
    /// Whether the bodies of request and answer are secret.
    confidential: bool,
    /// Whether the record is complete, so that no further event is written.
    ended: bool,
}

impl fmt::Debug for AuditRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bodies of request and answer must not appear in other logs.
        formatter.debug_tuple("AuditRecord").field(&self.0.is_some()).finish()
    }
}

/// The facts about a request that are known at its arrival and don't change.
pub(crate) struct RequestFacts<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) info: &'a RequestInfo,
    pub(crate) audit_id: &'a str,
    pub(crate) remote: Option<IpAddr>,
    pub(crate) now: Timestamp,
}

impl AuditRecord {
    /// Begins the record of a request, if auditing is on. Nothing is written before the user is known.
    pub(crate) fn begin_record(audit: Option<&Arc<Audit>>, arrival: &RequestFacts<'_>) -> Self {
        let Some(audit) = audit else { return Self(None) };
        let info = arrival.info;
        let object_ref = info.is_resource.then(|| ObjectReference {
            resource: info.resource.clone(),
            namespace: info.namespace.clone().unwrap_or_default(),
            name: info.name.clone().unwrap_or_default(),
            api_group: info.group.clone(),
            api_version: info.version.clone(),
            subresource: info.subresource.clone().unwrap_or_default(),
            ..ObjectReference::default()
        });
        let uri = &arrival.parts.uri;
        let event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: Level::None,
            audit_id: arrival.audit_id.to_owned(),
            stage: Stage::RequestReceived,
            request_uri: uri
                .path_and_query()
                .map_or_else(|| uri.path().to_owned(), ToString::to_string),
            verb: info.verb.clone(),
            user: json!({}),
            impersonated_user: None,
            authentication_metadata: None,
            source_ips: source_ips(&arrival.parts.headers, arrival.remote),
            user_agent: user_agent(&arrival.parts.headers),
            object_ref,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: arrival.now,
            stage_timestamp: arrival.now,
            annotations: std::collections::BTreeMap::new(),
        };
        let state = RecordState {
            event,
            ruling: Ruling {
                level: Level::None,
                omitted_stages: Vec::new(),
                omits_managed_fields: false,
            },
            confidential: false,
            ended: false,
        };
        Self(Some(Arc::new(Request {
            audit: audit.clone(),
            state: Mutex::new(state),
        })))
    }

    /// Records the user: selects the policy's rule, and writes the first event before the request does anything.
    ///
    /// # Errors
    /// A 500 if the event must be written and could not be.
    pub(crate) fn record_user(
        &self,
        user: &UserInfo,
        request: &Attributes,
        info: &RequestInfo,
    ) -> Result<(), ApiError> {
        let Some(this) = &self.0 else { return Ok(()) };
        let mut state = this.state.lock();
        this.apply_policy_rule(&mut state, Some(user), request, info);
        state.event.user = user.to_value();
        if this.write(&mut state, Stage::RequestReceived) || !this.audit.log.is_strict() {
            return Ok(());
        }
        // The request was not carried out, so the log has no event of its end.
        state.ended = true;
        Err(ApiError::internal("failed to store audit event"))
    }

    /// Records a request without a valid identity, and its answer.
    pub(crate) fn record_unauthenticated(&self, request: &Attributes, info: &RequestInfo, answer: &ApiError) {
        let Some(this) = &self.0 else { return };
        let mut state = this.state.lock();
        this.apply_policy_rule(&mut state, None, request, info);
        state.take_answer(answer.to_value());
        this.write(&mut state, Stage::ResponseStarted);
        state.ended = true;
    }

    /// Records that the request acts as another user. `constraint` is the verb of the mode that allowed this, empty
    /// for the general one.
    pub(crate) fn record_impersonation(&self, user: &UserInfo, constraint: &str) {
        self.change_at_level(Level::Metadata, |state| {
            state.event.impersonated_user = Some(user.to_value());
            if !constraint.is_empty() {
                state.event.authentication_metadata = Some(json!({"impersonationConstraint": constraint}));
            }
        });
    }

    /// Records the authorization decision.
    pub(crate) fn record_decision(&self, decision: &Decision) {
        let word = if decision.allowed { "allow" } else { "forbid" };
        self.add_annotation("authorization.k8s.io/decision", || word.to_owned());
        self.add_annotation("authorization.k8s.io/reason", || decision.reason.clone());
    }

    /// Adds an annotation; the first value of a key stays.
    pub(crate) fn add_annotation(&self, key: &str, value: impl FnOnce() -> String) {
        self.change_at_level(Level::Metadata, |state| {
            if !state.event.annotations.contains_key(key) {
                state.event.annotations.insert(key.to_owned(), value());
            }
        });
    }

    /// Adds an annotation like [`AuditRecord::add_annotation`], for keys that a webhook or policy chose. A key without a valid prefix
    /// is left out.
    pub(crate) fn add_admission_annotation(&self, key: &str, value: impl FnOnce() -> String) {
        if self.0.is_some() && key.split('/').count() == 2 && qualified_name(key).is_empty() {
            self.add_annotation(key, value);
        }
    }

    /// Checks whether the policy wants the request body.
    pub(crate) fn wants_request(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|this| this.state.lock().ruling.level >= Level::Request)
    }

    /// Records an object of the request; `shown` returns the form for the log.
    pub(crate) fn record_request_object(&self, object: &Value, shown: impl FnOnce() -> Value) {
        self.change_at_level(Level::Metadata, |state| {
            state.event.object_ref.get_or_insert_default().fill_from_object(object);
            if state.ruling.level >= Level::Request {
                state.event.request_object = Some(state.drop_omitted_fields(shown()));
            }
        });
    }

    /// Records a patch of the request.
    pub(crate) fn record_patch(&self, patch: impl FnOnce() -> Value) {
        self.change_at_level(Level::Request, |state| state.event.request_object = Some(patch()));
    }

    /// Changes the record if the policy records this request at least at `level`.
    fn change_at_level(&self, level: Level, change: impl FnOnce(&mut RecordState)) {
        if let Some(this) = &self.0 {
            let mut state = this.state.lock();
            if state.ruling.level >= level && !state.ended {
                change(&mut state);
            }
        }
    }

    /// Records the answer and returns it. If the body is streamed, `ending` records the end of the request when the
    /// body ends.
    pub(crate) async fn record_response(
        &self,
        response: Response<Body>,
        is_streamed: bool,
        ending: EndRecorder,
    ) -> Response<Body> {
        let Some(this) = &self.0 else { return response };
        let wanted = {
            let state = this.state.lock();
            if state.ended || state.ruling.level == Level::None {
                return response;
            }
            state.ruling.level == Level::RequestResponse
        };
        let code = response.status();
        if is_streamed && code.is_success() {
            {
                let mut state = this.state.lock();
                state.set_code(code);
                this.write(&mut state, Stage::ResponseStarted);
            }
            return body::hold_until_end(response, ending);
        }
        let is_json = response
            .headers()
            .get(http::header::CONTENT_TYPE)
            .is_some_and(|form| form.as_bytes().starts_with(b"application/json"));
        let mut answer = None;
        let mut response = response;
        // A streamed answer is read into memory only if the policy records answers.
        let is_there = response.body().size_hint().exact().is_some();
        let most = match (wanted, is_there && !code.is_success()) {
            (true, _) => ANSWER,
            // Every Status is recorded at every level, and each is small.
            (false, true) => ANSWER,
            (false, false) if is_there => STATUS,
            (false, false) => 0,
        };
        if is_json && most > 0 {
            let read;
            (read, response) = read_up_to(response, most).await;
            match read {
                Some(bytes) => answer = serde_json::from_slice::<Value>(&bytes).ok(),
                None if wanted => this.state.lock().mark_truncated(),
                None => {}
            }
        }
        let mut state = this.state.lock();
        if let Some(answer) = answer {
            state.take_answer(answer);
        }
        state.set_code(code);
        if is_streamed {
            this.write(&mut state, Stage::ResponseStarted);
        }
        this.write(&mut state, Stage::ResponseComplete);
        state.ended = true;
        drop(state);
        response
    }

    /// Records that a fault of the server ended the request.
    pub(crate) fn record_panic(&self, error: &ApiError) {
        let Some(this) = &self.0 else { return };
        let mut state = this.state.lock();
        if state.ended || state.ruling.level == Level::None {
            return;
        }
        state.take_status(&error.to_value());
        this.write(&mut state, Stage::Panic);
        state.ended = true;
    }

    /// Returns a guard that records the end of the request, even if the client disconnects.
    pub(crate) fn guard_end(&self) -> EndRecorder {
        EndRecorder(self.clone())
    }
}

/// Writes the end of a request on drop, unless the end is written already.
pub(crate) struct EndRecorder(AuditRecord);

impl Drop for EndRecorder {
    fn drop(&mut self) {
        let Some(this) = &self.0.0 else { return };
        let mut state = this.state.lock();
        if state.ended || state.ruling.level == Level::None {
            return;
        }
        if state.event.response_status.is_none() {
            let mut status = empty_metadata();
            status.insert("status".to_owned(), "Success".into());
            status.insert("message".to_owned(), "Connection closed early".into());
            status.insert("code".to_owned(), 200.into());
            state.event.response_status = Some(status);
        }
        this.write(&mut state, Stage::ResponseComplete);
        state.ended = true;
    }
}

impl Request {
    /// Selects the rule of the audit policy for a request. Secret bodies lower the level to `Metadata`.
    fn apply_policy_rule(
        &self,
        state: &mut RecordState,
        user: Option<&UserInfo>,
        request: &Attributes,
        info: &RequestInfo,
    ) {
        state.ruling = self.audit.policy.judge(user, request);
        state.confidential = info.is_confidential();
        if state.confidential {
            state.ruling.level = state.ruling.level.min(Level::Metadata);
        }
        state.event.level = state.ruling.level;
    }

    /// Writes the event of a stage if the policy wants it. `false` if writing failed.
    fn write(&self, state: &mut RecordState, stage: Stage) -> bool {
        if state.ruling.level == Level::None || state.ruling.omitted_stages.contains(&stage) {
            return true;
        }
        state.event.stage = stage;
        state.event.stage_timestamp = match stage {
            Stage::RequestReceived => state.event.request_received_timestamp,
            _ => Timestamp::now(),
        };
        self.audit.write(&state.event)
    }
}

impl RecordState {
    /// Returns the value without managedFields, if the policy omits them.
    fn drop_omitted_fields(&self, value: Value) -> Value {
        if self.ruling.omits_managed_fields {
            without_managed_fields(value)
        } else {
            value
        }
    }

    /// Records that the answer is too long for the log.
    fn mark_truncated(&mut self) {
        let annotations = &mut self.event.annotations;
        annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
    }

    /// Copies a Status into the event, and the whole answer if the level wants it.
    fn take_answer(&mut self, answer: Value) {
        if answer.get("kind").and_then(Value::as_str) == Some("Status") {
            self.take_status(&answer);
        }
        // Beside objects, discovery documents are recorded, but texts and metrics are not.
        let is_object = self.event.object_ref.is_some() || self.event.request_uri.starts_with("/api");
        if self.ruling.level == Level::RequestResponse && is_object {
            self.event.response_object = Some(self.drop_omitted_fields(answer));
        }
    }

    /// Copies the fields of a Status into the event. A secret message is replaced.
    fn take_status(&mut self, answer: &Value) {
        let mut status = empty_metadata();
        for key in ["status", "message", "reason", "details", "code"] {
            if let Some(value) = answer.get(key) {
                status.insert(key.to_owned(), value.clone());
            }
        }
        // Errors without a reason quote the request body.
        if self.confidential && status.contains_key("message") && !status.contains_key("reason") {
            status.insert("message".to_owned(), CONFIDENTIAL.into());
        }
        self.event.response_status = Some(status);
    }

    fn set_code(&mut self, code: StatusCode) {
        let status = self.event.response_status.get_or_insert_with(empty_metadata);
        status.insert("code".to_owned(), code.as_u16().into());
    }
}

/// Returns a Status with empty metadata.
fn empty_metadata() -> Map<String, Value> {
    Map::from_iter([("metadata".to_owned(), json!({}))])
}
