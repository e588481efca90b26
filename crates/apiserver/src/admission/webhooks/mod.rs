//! Admission webhooks: programs that allow or deny a request over HTTPS, and may change its object.
//!
//! This module selects the webhooks, orders the calls, and applies the answers. It calls no webhook about webhooks
//! and policies themselves, and follows no redirect. Connections are bounded in time and size. RBAC decides which
//! users may register a webhook, and so choose an address to which this server connects.

mod hook;
mod patch;
mod review;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tenure_kinds::expressions::Match;
use tenure_kinds::schema::fit_for_html;

use super::expression_inputs::ReviewedRequest;
use super::matching::GROUP;
use super::{Admission, Attributes, subject};
use crate::catalog::Resource;
use crate::contents::Contents;
use crate::http::ApiError;
use crate::webhook_client::{self, Bounds};

pub(super) use hook::{Hook, HookTable, Phase};

/// Longest answer that is read: the size limit of a request.
const ANSWER_BYTES: usize = 3 * 1024 * 1024;

/// The reason why the call of a webhook did not admit the request.
enum Failure {
    /// The call failed, or the answer was malformed: the webhook's failure policy decides.
    Call(String),
    /// The request ends with this error, whatever the failure policy says.
    Refused(ApiError),
}

impl Failure {
    /// Returns the error with which the request ends, if the failure ends it. A request that continues gets an audit
    /// annotation.
    fn into_error(self, annotator: &AuditAnnotator<'_>, phase: &str) -> Result<(), ApiError> {
        let hook = annotator.hook;
        match self {
            Self::Refused(error) => Err(error),
            Self::Call(reason) => {
                let message = format!("failed calling webhook {:?}: {reason}", hook.name);
                if hook.ignores_failures {
                    tracing::warn!(
                        webhook = hook.name,
                        reason,
                        "a webhook failed and its policy is to go on"
                    );
                    annotator.add_annotation(&format!("failed-open.{phase}"), || hook.name.clone());
                    return Ok(());
                }
                Err(ApiError::internal(message))
            }
        }
    }
}

/// Adds the audit annotations of one webhook call, under Kubernetes' keys.
struct AuditAnnotator<'a> {
    attributes: &'a Attributes<'a>,
    hook: &'a Hook,
    /// The call within the request: `round_0_index_2`.
    place: String,
}

impl AuditAnnotator<'_> {
    fn add_annotation(&self, what: &str, value: impl FnOnce() -> String) {
        let key = format!("{what}.webhook.admission.k8s.io/{}", self.place);
        self.attributes.op.trail.add_admission_annotation(&key, value);
    }

    /// Records that a mutating webhook was called.
    fn record_call(&self, mutated: bool) {
        self.add_annotation("mutation", || {
            let (configuration, webhook) = (
                Value::from(self.hook.configuration.as_str()),
                Value::from(self.hook.name.as_str()),
            );
            fit_for_html(&format!(
                "{{\"configuration\":{configuration},\"webhook\":{webhook},\"mutated\":{mutated}}}"
            ))
        });
    }

    /// Records the patch, if the audit policy also records request bodies.
    fn record_patch(&self, operations: &[Value]) {
        if !self.attributes.op.trail.wants_request() {
            return;
        }
        self.add_annotation("patch", || {
            let (configuration, webhook) = (Value::from(self.hook.configuration.as_str()), Value::from(self.hook.name.as_str()));
            let patch = serde_json::to_string(operations).unwrap_or_default();
            fit_for_html(&format!(
                "{{\"configuration\":{configuration},\"webhook\":{webhook},\"patch\":{patch},\"patchType\":\"JSONPatch\"}}"
            ))
        });
    }
}

/// Returns the webhooks that may be called for a request of this kind.
fn list_hooks(admission: &Admission, attributes: &Attributes<'_>, phase: Phase) -> Vec<Arc<Hook>> {
    if attributes.resource().group == GROUP {
        return Vec::new();
    }
    admission.hooks(phase)
}

/// Checks whether a validating webhook may be called for the request.
pub(super) fn has_validating_webhook(admission: &Admission, attributes: &Attributes<'_>) -> bool {
    list_hooks(admission, attributes, Phase::Validating)
        .iter()
        .any(|hook| hook.matcher.matched_resource(&admission.contents, attributes).is_some())
}

/// Returns the resource as which a webhook gets the request, if the webhook matches.
async fn find_resource(
    contents: &Contents,
    attributes: &Attributes<'_>,
    hook: &Hook,
    object: Option<&Value>,
) -> Result<Option<Arc<Resource>>, ApiError> {
    let Some(resource) = hook.matcher.matched_resource(contents, attributes) else {
        return Ok(None);
    };
    if !hook.matcher.selects(contents, attributes, object)? {
        return Ok(None);
    }
    if hook.conditions.is_empty() {
        return Ok(Some(resource));
    }
    let subject =
        ReviewedRequest::from_attributes(contents, attributes, &resource, attributes.resource(), object).await?;
    let matches = subject.with_inputs(contents, attributes, |inputs| {
        hook.conditions.check(inputs, &BTreeMap::new(), hook.ignores_failures)
    });
    match matches {
        Match::Yes => Ok(Some(resource)),
        Match::No => Ok(None),
        Match::Failed(why) => Err(ApiError::denied(attributes.resource(), attributes.name, &why)),
    }
}

/// The mutating webhooks that were called for one request. A webhook is called a second time if the object changes
/// after its call and its reinvocation policy wants that.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// The ids of called webhooks with a reinvocation policy; the object has not changed since their calls.
    asked: Vec<String>,
    /// The ids of webhooks that the second round calls, because the object changed after their calls.
    again: Vec<String>,
    /// The object after the last call.
    left: Option<Value>,
}

impl Rounds {
    /// Marks the called webhooks with a reinvocation policy: the object changed after their calls.
    fn mark_reinvocations(&mut self) {
        self.again.append(&mut self.asked);
    }
}

/// Calls the mutating webhooks one after the other. Returns whether the object was changed.
pub(super) async fn mutate(
    admission: &Admission,
    attributes: &Attributes<'_>,
    object: &mut Option<Value>,
    rounds: &mut Rounds,
    reinvoke: bool,
) -> Result<bool, ApiError> {
    let contents = &admission.contents;
    let hooks = list_hooks(admission, attributes, Phase::Mutating);
    if hooks.is_empty() {
        return Ok(false);
    }
    if reinvoke && rounds.left != *object {
        // The server's own rules changed the object after the last call.
        rounds.mark_reinvocations();
    }
    let mut changed = false;
    for (index, hook) in hooks.into_iter().enumerate() {
        let Some(resource) = find_resource(contents, attributes, &hook, object.as_ref()).await? else {
            continue;
        };
        if reinvoke && !rounds.again.contains(&hook.id) {
            continue;
        }
        let annotator = AuditAnnotator {
            attributes,
            hook: &hook,
            place: format!("round_{}_index_{index}", u8::from(reinvoke)),
        };
        match call_webhook(contents, attributes, &hook, &resource, object.as_ref()).await {
            Ok(answer) => {
                let mut changes = false;
                if let Some(operations) = answer {
                    let new =
                        patch::apply(contents, attributes, &hook, &resource, object.as_ref(), &operations).await?;
                    annotator.record_patch(&operations);
                    if object.as_ref() != Some(&new) {
                        changes = true;
                        changed = true;
                        rounds.mark_reinvocations();
                        *object = Some(new);
                    }
                }
                annotator.record_call(changes);
            }
            Err(failure) => {
                annotator.record_call(false);
                failure.into_error(&annotator, "mutation")?;
            }
        }
        if hook.reinvoked && !rounds.asked.contains(&hook.id) {
            rounds.asked.push(hook.id.clone());
        }
    }
    rounds.left.clone_from(object);
    Ok(changed)
}

/// Calls the validating webhooks, all at once.
pub(super) async fn validate(
    admission: &Admission,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<(), ApiError> {
    let contents = &admission.contents;
    let mut calls = Vec::new();
    for hook in list_hooks(admission, attributes, Phase::Validating) {
        if let Some(resource) = find_resource(contents, attributes, &hook, object).await? {
            let place = format!("round_0_index_{}", calls.len());
            calls.push(async move {
                match call_webhook(contents, attributes, &hook, &resource, object).await {
                    Ok(_) => Ok(()),
                    Err(failure) => {
                        let annotator = AuditAnnotator {
                            attributes,
                            hook: &hook,
                            place,
                        };
                        failure.into_error(&annotator, "validating")
                    }
                }
            });
        }
    }
    futures::future::join_all(calls).await.into_iter().collect()
}

/// Calls one webhook. Returns the operations of its patch.
async fn call_webhook(
    contents: &Contents,
    attributes: &Attributes<'_>,
    hook: &Hook,
    resource: &Resource,
    object: Option<&Value>,
) -> Result<Option<Vec<Value>>, Failure> {
    if attributes.dry_run() && !hook.allows_dry_run {
        return Err(Failure::Refused(ApiError::bad_request(format!(
            "admission webhook {:?} does not support dry run",
            hook.name
        ))));
    }
    let version = hook.review_version.ok_or_else(|| {
        Failure::Call(
            "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"
                .to_owned(),
        )
    })?;
    let uid = uuid::Uuid::new_v4().to_string();
    let sent = review::make_review(
        attributes,
        resource,
        version,
        &uid,
        show(contents, attributes, resource, object).await?.as_deref(),
        show(contents, attributes, resource, attributes.old).await?.as_deref(),
    );
    let bounds = Bounds {
        seconds: hook.timeout_seconds,
        out_of_time: "context deadline exceeded",
        bytes: ANSWER_BYTES,
    };
    let answer = webhook_client::post_review(contents.view(), &hook.endpoint, bounds, &sent)
        .await
        .map_err(|reason| Failure::Call(format!("failed to call webhook: {reason}")))?;
    let answer = review::read(hook, version, &uid, &answer).map_err(Failure::Call)?;
    for (key, value) in answer.notes {
        attributes
            .op
            .trail
            .add_admission_annotation(&format!("{}/{key}", hook.name), || value);
    }
    for warning in answer.warnings {
        attributes.op.warn(warning);
    }
    if !answer.allowed {
        return Err(Failure::Refused(review::make_denial(hook, answer.status)));
    }
    answer
        .patch
        .map(|bytes| {
            patch::read(&bytes)
                .map_err(|error| Failure::Call(format!("received undecodable patch in webhook response: {error}")))
        })
        .transpose()
}

/// Returns an object of the request in the form that the webhook gets; `None` without an object.
async fn show<'a>(
    contents: &Contents,
    attributes: &Attributes<'_>,
    resource: &Resource,
    object: Option<&'a Value>,
) -> Result<Option<Cow<'a, Value>>, Failure> {
    let Some(object) = object else { return Ok(None) };
    let shown = subject::convert_for_review(contents, attributes, resource, object).await;
    shown.map(Some).map_err(Failure::Refused)
}
