//! Policies and bindings: reading from the store, compilation once per stored version, and the selection of those in
//! force.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubernetes_cel::Type;
use serde_json::Value;
use tenure_kinds::expressions::{Compiler, Conditions, Expression, Scope};
use tenure_kinds::object::ObjectExt as _;

use super::super::Attributes;
use super::super::cache::Cache;
use super::super::matching::{GROUP, Matcher};
use crate::contents::Contents;
use crate::http::ApiError;
use crate::keys;
use crate::selectors::Selectors;
use crate::view::View;

/// A stored ValidatingAdmissionPolicy with its compiled expressions.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(super) name: String,
    pub(super) ignores_failures: bool,
    pub(super) matcher: Matcher,
    /// apiVersion and kind of its parameters.
    pub(super) param_kind: Option<(String, String)>,
    pub(super) conditions: Conditions,
    pub(super) variables: BTreeMap<String, Expression>,
    pub(super) validations: Vec<Validation>,
    /// Audit annotations: key and value.
    pub(super) notes: Vec<(String, Expression)>,
}

/// A validation of a policy: the expression that must be true, and the message for a denial.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) check: Expression,
    pub(super) source: String,
    pub(super) message_expression: Option<Expression>,
    pub(super) message: String,
    pub(super) reason: String,
}

/// The action of a binding for a failed validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Deny,
    Warn,
    Audit,
}

impl Action {
    /// Returns the action's name in a binding.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }
}

/// A ValidatingAdmissionPolicyBinding: the scope, the parameters and the actions with which a policy is in force.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(super) name: String,
    policy: String,
    matcher: Option<Matcher>,
    pub(super) params: Option<ParamRef>,
    pub(super) actions: Vec<Action>,
}

/// The `paramRef` of a binding: it selects the objects that are the parameters.
#[derive(Debug)]
pub(super) struct ParamRef {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) selector: Option<Selectors>,
    pub(super) denies_if_missing: bool,
}

fn get_text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list_items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

impl Policy {
    /// Reads a stored policy. An expression that does not compile is an error at its evaluation.
    pub(super) fn read(object: &Value) -> Self {
        let nothing = Value::Null;
        let spec = object.get("spec").unwrap_or(&nothing);
        let param_kind = spec.get("paramKind").filter(|kind| kind.is_object()).map(|kind| {
            (
                get_text(kind, "/apiVersion").to_owned(),
                get_text(kind, "/kind").to_owned(),
            )
        });
        let scope = Scope::with_authorizer(param_kind.is_some());
        let mut compiler = Compiler::composing();
        let mut variables = BTreeMap::new();
        for variable in list_items(spec, "/variables") {
            let name = get_text(variable, "/name");
            let expression = compiler.compile(get_text(variable, "/expression"), scope, &[]);
            compiler.declare(name, expression.output_type());
            variables.insert(name.to_owned(), expression);
        }
        let validations = list_items(spec, "/validations").map(|validation| Validation {
            check: compiler.compile(get_text(validation, "/expression"), scope, &[Type::Bool]),
            source: get_text(validation, "/expression").to_owned(),
            message_expression: Some(get_text(validation, "/messageExpression"))
                .filter(|source| !source.is_empty())
                .map(|source| compiler.compile(source, Scope::of_messages(scope.params), &[Type::String])),
            message: get_text(validation, "/message").to_owned(),
            reason: get_text(validation, "/reason").to_owned(),
        });
        let notes = list_items(spec, "/auditAnnotations").map(|note| {
            let value = get_text(note, "/valueExpression");
            let value = compiler.compile(value, scope, &[Type::String, Type::Null]);
            (get_text(note, "/key").to_owned(), value)
        });
        Self {
            name: object.name().to_owned(),
            ignores_failures: get_text(spec, "/failurePolicy") == "Ignore",
            matcher: Matcher::read(spec.get("matchConstraints").unwrap_or(&nothing)),
            conditions: Conditions::read(spec, &compiler, scope.params),
            validations: validations.collect(),
            notes: notes.collect(),
            param_kind,
            variables,
        }
    }
}

impl Binding {
    pub(super) fn read(object: &Value) -> Self {
        let nothing = Value::Null;
        let spec = object.get("spec").unwrap_or(&nothing);
        let written = |field: &str| spec.get(field).filter(|value| value.is_object());
        let actions = list_items(spec, "/validationActions").filter_map(Value::as_str);
        Self {
            name: object.name().to_owned(),
            policy: get_text(spec, "/policyName").to_owned(),
            matcher: written("matchResources").map(Matcher::of_binding),
            params: written("paramRef").map(|reference| ParamRef {
                name: get_text(reference, "/name").to_owned(),
                namespace: get_text(reference, "/namespace").to_owned(),
                selector: reference.get("selector").map(Selectors::from_label_selector),
                denies_if_missing: get_text(reference, "/parameterNotFoundAction") == "Deny",
            }),
            actions: actions
                .filter_map(|action| match action {
                    "Deny" => Some(Action::Deny),
                    "Warn" => Some(Action::Warn),
                    "Audit" => Some(Action::Audit),
                    _ => None,
                })
                .collect(),
        }
    }

    /// Checks whether the binding matches a request that its policy matches.
    pub(super) fn selects(
        &self,
        contents: &Contents,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<bool, ApiError> {
        let Some(matcher) = &self.matcher else {
            return Ok(true);
        };
        Ok(
            matcher.matched_resource(contents, attributes).is_some()
                && matcher.selects(contents, attributes, object)?,
        )
    }
}

/// A policy with at least one binding, so that it is in force; and its bindings.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(super) policy: Arc<Policy>,
    pub(super) bindings: Vec<Arc<Binding>>,
}

/// The stored policies and bindings, decoded and cached.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    policies: Cache<Policy>,
    bindings: Cache<Binding>,
}

impl Policies {
    /// Returns the policies with bindings, sorted by name. Without bindings nothing else is read.
    pub(crate) fn list_in_force(&self, view: &View) -> Vec<InForce> {
        let prefix = keys::resource_prefix(GROUP, "validatingadmissionpolicybindings", None);
        let bindings = self.bindings.read_all(view, &prefix, Binding::read);
        if bindings.is_empty() {
            return Vec::new();
        }
        let prefix = keys::resource_prefix(GROUP, "validatingadmissionpolicies", None);
        let policies = self.policies.read_all(view, &prefix, Policy::read);
        let bound = policies.into_iter().map(|policy| InForce {
            bindings: bindings
                .iter()
                .filter(|binding| binding.policy == policy.name)
                .cloned()
                .collect(),
            policy,
        });
        bound.filter(|policy| !policy.bindings.is_empty()).collect()
    }
}
