//! ValidatingAdmissionPolicies: expressions that deny requests, warn, or add audit annotations, as their bindings
//! say.
//!
//! This module selects the policies for a request and their parameters, and applies the verdicts. [`verdict`]
//! computes the verdict of a policy on one request, without any other object. A policy and its bindings are in force
//! from the write that creates them until the write that removes them. Requests about policies and bindings are
//! exempt, and so are reviews of rights and identity: otherwise a policy could block its own removal.

mod parameters;
mod policy;
mod type_check;
mod verdict;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub(crate) use policy::{InForce, Policies};
use tenure_auth::identity::ObjectLookup;
use tenure_kinds::object::ObjectExt as _;
use tenure_kinds::schema::fit_for_html;
pub(crate) use type_check::{Schemas, list_warnings as type_warnings, without_references};

use self::policy::{Action, Binding, Policy};
use self::verdict::{Denial, Verdict};
use super::expression_inputs::ReviewedRequest;
use super::{Admission, Attributes};
use crate::catalog::Resource;
use crate::contents::Contents;
use crate::http::ApiError;

/// Number of evaluations after which the task yields to other requests.
const IN_A_ROW: usize = 16;

/// Checks whether requests about a resource are exempt from policies.
fn is_exempt(resource: &Resource) -> bool {
    resource.behavior.judges_requests || resource.behavior.review.is_some()
}

/// A request that a policy denies, and the binding for which it does.
struct Denied<'a> {
    policy: &'a str,
    binding: Option<&'a str>,
    denial: Denial,
}

impl Denied<'_> {
    /// Returns the error for the request.
    fn into_error(self, attributes: &Attributes<'_>, object: Option<&Value>) -> ApiError {
        let Denial { message, reason } = self.denial;
        let policy = self.policy;
        let message = match self.binding {
            Some(binding) => {
                format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}")
            }
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
        };
        let named = |object: &Value| !object.name().is_empty() || !object.meta_str("generateName").is_empty();
        let mut error = match object {
            _ if !attributes.name.is_empty() => attributes.denied_error(None, &message),
            Some(object) if named(object) => attributes.denied_error(Some(object), &message),
            _ => ApiError::denied(attributes.resource(), "Unknown", &message),
        };
        error.code = match reason.as_str() {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        error.reason = reason.into();
        error.details.insert("causes".to_owned(), json!([{"message": message}]));
        error
    }
}

/// Evaluates every policy for a request. All are evaluated before the first denial counts, so that every warning is
/// sent.
pub(super) async fn validate(
    admission: &Admission,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<(), ApiError> {
    if is_exempt(attributes.resource()) {
        return Ok(());
    }
    let contents = &admission.contents;
    let in_force = admission.policies();
    let mut first: Option<Denied<'_>> = None;
    let mut evaluations = 0;
    for InForce { policy, bindings } in &in_force {
        let misconfigured = |binding: Option<&'_ Binding>, why: String| {
            let what = if binding.is_some() { "binding" } else { "policy" };
            let denial = Denial::invalid(format!("failed to configure {what}: {why}"));
            (!policy.ignores_failures).then_some(denial)
        };
        let Some(resource) = policy.matcher.matched_resource(contents, attributes) else {
            continue;
        };
        let selected = policy.matcher.selects(contents, attributes, object);
        let configured = match selected {
            Ok(false) => continue,
            Ok(true) => parameters::find_parameter_resource(contents, policy),
            Err(error) => Err(error.message),
        };
        let kind = match configured {
            Ok(kind) => kind,
            Err(why) => {
                if let (None, Some(denial)) = (&first, misconfigured(None, why)) {
                    first = Some(Denied {
                        policy: &policy.name,
                        binding: None,
                        denial,
                    });
                }
                continue;
            }
        };
        let mut subject = None;
        let mut notes = AuditAnnotations::default();
        for binding in bindings {
            let found = match binding.selects(contents, attributes, object) {
                Ok(false) => continue,
                Ok(true) => {
                    parameters::collect_parameters(contents, kind.as_deref(), binding, attributes.namespace()).await
                }
                Err(error) => Err(error.message),
            };
            let denied = |denial: Denial| Denied {
                policy: &policy.name,
                binding: Some(&binding.name),
                denial,
            };
            let params = match found {
                Ok(params) => params,
                Err(why) => {
                    if let (None, Some(denial)) = (&first, misconfigured(Some(binding), why)) {
                        first = Some(denied(denial));
                    }
                    continue;
                }
            };
            if params.is_empty() {
                continue;
            }
            if subject.is_none() {
                subject = Some(PolicyRequest::from_attributes(contents, attributes, &resource, object).await?);
            }
            let Some(subject) = &subject else { continue };
            for params in params {
                evaluations += 1;
                if evaluations % IN_A_ROW == 0 {
                    tokio::task::yield_now().await;
                }
                let verdict = subject.evaluate_policy(contents, attributes, policy, params.as_ref());
                let denial = apply_verdict(attributes, policy, binding, verdict, &mut notes);
                if first.is_none() {
                    first = denial.map(denied);
                }
            }
        }
        for (key, values) in notes {
            let key = format!("{}/{key}", policy.name);
            attributes.op.trail.add_admission_annotation(&key, || values.join(", "));
        }
    }
    match first {
        Some(denied) => Err(denied.into_error(attributes, object)),
        None => Ok(()),
    }
}

/// A request in the versions that one policy's rules ask for, with its namespace.
struct PolicyRequest<'a> {
    /// The request, described with the resource that matched the rules.
    matched: ReviewedRequest<'a>,
    /// The request, described with its original resource, for match conditions.
    made: ReviewedRequest<'a>,
    namespace: Option<Value>,
}

impl<'a> PolicyRequest<'a> {
    async fn from_attributes(
        contents: &Contents,
        attributes: &Attributes<'a>,
        resource: &Resource,
        object: Option<&'a Value>,
    ) -> Result<Self, ApiError> {
        let namespace = match attributes.namespace() {
            "" => None,
            _ if attributes.is_part_of_namespace() => None,
            name => {
                let found = contents.view().get("", "namespaces", None, name);
                let missing = || ApiError::new(404, "NotFound", format!("namespaces {name:?} not found"));
                Some(Value::clone(found.ok_or_else(missing)?.as_ref()))
            }
        };
        let matched = ReviewedRequest::from_attributes(contents, attributes, resource, resource, object).await?;
        Ok(Self {
            made: matched.matched_as(attributes, resource, attributes.resource()),
            matched,
            namespace,
        })
    }

    fn evaluate_policy(
        &self,
        contents: &Contents,
        attributes: &Attributes<'_>,
        policy: &Policy,
        params: Option<&Value>,
    ) -> Verdict {
        self.made.with_inputs(contents, attributes, |made| {
            let matches = policy.matches(verdict::with_params(made, params));
            self.matched.with_inputs(contents, attributes, |matched| {
                policy.judge(matches, verdict::with_params(matched, params), self.namespace.as_ref())
            })
        })
    }
}

/// The audit annotations that one policy adds for one request: the distinct values of each key.
type AuditAnnotations = BTreeMap<String, Vec<String>>;

/// Longest audit annotation in bytes; longer ones are cut.
const LONGEST_NOTE: usize = 10 * 1024;

/// The audit annotation for a failed validation, if its binding wants one.
const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Returns the audit annotation of a failed validation.
fn make_failure_annotation(policy: &Policy, binding: &Binding, validation: usize, message: &str) -> String {
    let [message, policy, binding_name] = [message, &policy.name, &binding.name].map(Value::from);
    let actions: Vec<Value> = binding
        .actions
        .iter()
        .map(|action| Value::from(action.name()))
        .collect();
    let actions = Value::from(actions);
    fit_for_html(&format!(
        "[{{\"message\":{message},\"policy\":{policy},\"binding\":{binding_name},\"expressionIndex\":{validation},\"validationActions\":{actions}}}]"
    ))
}

/// Applies a verdict by the actions of a binding: adds warnings and audit annotations. Returns the denial of the
/// request, if the actions include `Deny`.
fn apply_verdict(
    attributes: &Attributes<'_>,
    policy: &Policy,
    binding: &Binding,
    verdict: Verdict,
    notes: &mut AuditAnnotations,
) -> Option<Denial> {
    let mut first = None;
    for (index, denial) in verdict.denials {
        for action in &binding.actions {
            match action {
                Action::Deny => first = first.or_else(|| Some(denial.clone())),
                Action::Warn => attributes.op.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                    policy.name, binding.name, denial.message
                )),
                Action::Audit => attributes.op.trail.add_admission_annotation(FAILURE, || {
                    make_failure_annotation(policy, binding, index, &denial.message)
                }),
            }
        }
    }
    for (key, mut value) in verdict.notes {
        let end = (0..=LONGEST_NOTE.min(value.len()))
            .rev()
            .find(|end| value.is_char_boundary(*end));
        value.truncate(end.unwrap_or_default());
        let values = notes.entry(key).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    }
    first.or_else(|| verdict.failed_notes.into_iter().next().map(Denial::invalid))
}
