//! The obstacles of a write: ValidatingAdmissionPolicies, which are evaluated, and validating webhooks, which can only be named.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use kubernetes_cel::{
    Check, Decision, EXPRESSION_BUDGET, Environment, Failure, Program, Type, Value as Cel, Variables,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::kinds::TENANT_LABEL;
use crate::node::Identity;
use crate::object::{list_texts, read_label, read_list, read_text};
use crate::rules::matches_labels;

/// The greatest depth of variables of a policy that name each other.
const DEEPEST: u32 = 32;

/// A hypothetical write.
pub(crate) struct Write {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The stored object; none for a creation.
    pub(crate) old_object: Option<Value>,
    pub(crate) object: Value,
}

impl Write {
    fn operation(&self) -> &'static str {
        match self.old_object {
            Some(_) => "UPDATE",
            None => "CREATE",
        }
    }

    fn resource_and_subresource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

/// A policy, webhook or built-in rule that can deny a write, with the result of writes while the program behind it is down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct WriteCheck {
    /// `ValidatingAdmissionPolicy/NAME`, `ValidatingWebhookConfiguration/NAME`, or a rule of a controller.
    pub name: String,
    /// The result of writes while the program behind the check is down.
    pub when_dead: FailurePolicy,
}

impl WriteCheck {
    /// Checks whether the check is an object of admission's configuration, so a user with rights on that object can remove it.
    pub(crate) fn is_configurable(&self) -> bool {
        self.name.starts_with("ValidatingAdmissionPolicy/") || self.name.starts_with("ValidatingWebhookConfiguration/")
    }
}

/// The result of a write while the program behind its [`WriteCheck`] is down, for example a webhook's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailurePolicy {
    /// The API server evaluates the rule itself.
    Holds,
    /// Every write is refused.
    Refuses,
    /// Every write is admitted.
    Admits,
    /// Nothing happens: the controller itself would act.
    Waits,
}

impl FailurePolicy {
    /// Returns a description.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Refuses => "refuses every write",
            Self::Admits => "admits every write",
            Self::Waits => "waits",
        }
    }
}

/// Admission's decision about a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No policy denies the write, and no check with an unknown answer sees it.
    Admitted,
    /// No policy denies the write, but these checks see it, and their answers can't be computed.
    Unknown(Vec<WriteCheck>),
    /// The policy that denies the write.
    Denied(WriteCheck),
}

/// A ValidatingAdmissionPolicy with its compiled expressions, and its bindings with the action `Deny`.
struct Policy {
    judge: WriteCheck,
    ignores_failures: bool,
    has_parameters: bool,
    matcher: Value,
    conditions: Vec<Result<Program, String>>,
    variables: BTreeMap<String, Result<Program, String>>,
    validations: Vec<Result<Program, String>>,
    /// `matchResources` of the bindings that deny.
    bindings: Vec<Value>,
}

/// A webhook of a ValidatingWebhookConfiguration with its compiled match conditions. The answer of its server is unknown.
struct Webhook {
    judge: WriteCheck,
    matcher: Value,
    conditions: Vec<Result<Program, String>>,
}

/// The checks of writes in the cluster: denying policies, validating webhooks, and a guard inside the API server.
#[derive(Default)]
pub(crate) struct Admission {
    policies: Vec<Policy>,
    webhooks: Vec<Webhook>,
    /// A guard inside the API server, which validates writes of namespaces. The guard is no object of the cluster.
    guard: Option<WriteCheck>,
}

/// The user of a hypothetical write, and a function that answers whether RBAC allows the user a request.
pub(crate) struct Requester<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) groups: &'a [String],
    pub(crate) may: &'a dyn Fn(&Check) -> bool,
}

impl Admission {
    pub(crate) fn read(policies: &[&Value], bindings: &[&Value], webhooks: &[&Value]) -> Self {
        let mut denying: HashMap<&str, Vec<Value>> = HashMap::new();
        for binding in bindings {
            if list_texts(binding, "/spec/validationActions")
                .iter()
                .any(|action| action == "Deny")
            {
                let matched = binding.pointer("/spec/matchResources").cloned().unwrap_or(Value::Null);
                denying
                    .entry(read_text(binding, "/spec/policyName"))
                    .or_default()
                    .push(matched);
            }
        }
        let environment = make_environment();
        let policies = policies.iter().filter_map(|policy| {
            let name = read_text(policy, "/metadata/name");
            let bindings = denying.get(name)?.clone();
            Some(read_policy(policy, name, bindings, &environment))
        });
        let mut read = Self {
            policies: policies.collect(),
            webhooks: Vec::new(),
            guard: None,
        };
        for configuration in webhooks {
            let name = read_text(configuration, "/metadata/name");
            for webhook in read_list(configuration, "/webhooks") {
                read.webhooks.push(Webhook {
                    judge: WriteCheck {
                        name: format!("ValidatingWebhookConfiguration/{name}"),
                        when_dead: match read_text(webhook, "/failurePolicy") {
                            "Ignore" => FailurePolicy::Admits,
                            _ => FailurePolicy::Refuses,
                        },
                    },
                    matcher: json!({
                        "resourceRules": webhook.get("rules"), "namespaceSelector": webhook.get("namespaceSelector"),
                        "objectSelector": webhook.get("objectSelector"),
                    }),
                    conditions: compile_all(read_list(webhook, "/matchConditions"), &environment),
                });
            }
        }
        read
    }

    pub(crate) fn with_guard(mut self, name: Option<&str>) -> Self {
        self.guard = name.map(|name| WriteCheck {
            name: name.to_owned(),
            when_dead: FailurePolicy::Holds,
        });
        self
    }

    /// Checks whether the rules of any policy or webhook match a resource. For most resources, none does.
    pub(crate) fn checks_resource(&self, group: &str, resource: &str) -> bool {
        let mut matchers = self
            .policies
            .iter()
            .map(|policy| &policy.matcher)
            .chain(self.webhooks.iter().map(|webhook| &webhook.matcher));
        matchers.any(|matcher| {
            read_list(matcher, "/resourceRules")
                .iter()
                .any(|rule| has_resource(rule, group, resource))
        })
    }

    /// Checks whether any policy, webhook or guard may decide about a write.
    pub(crate) fn checks_write(&self, write: &Write, namespace: Option<&Value>) -> bool {
        self.checks_resource(write.group, write.resource) || self.guard.is_some() && self.guards_write(write, namespace)
    }

    /// Checks whether the guard validates a write: writes of namespaces, and writes of Flux's kinds in a tenant's namespace.
    fn guards_write(&self, write: &Write, namespace: Option<&Value>) -> bool {
        let is_tenants = || namespace.is_some_and(|namespace| !read_label(namespace, TENANT_LABEL).is_empty());
        write.resource == "namespaces" || write.group.ends_with(".toolkit.fluxcd.io") && is_tenants()
    }

    /// Returns whether a policy denies a creation or change, admission admits the write, or a check has an unknown answer.
    pub(crate) fn decide_write(&self, write: &Write, namespace: Option<&Value>, by: &Requester<'_>) -> Verdict {
        let request = describe_request(write, by);
        let inputs = Inputs {
            object: &write.object,
            old_object: write.old_object.as_ref(),
            request: &request,
            namespace,
            resource: Check::of_resource(
                write.group,
                write.resource,
                write.subresource,
                &write.namespace,
                &write.name,
            ),
            may: by.may,
        };
        let mut unknown = Vec::new();
        for policy in &self.policies {
            if !matches_write(&policy.matcher, write, namespace) {
                continue;
            }
            if !policy
                .bindings
                .iter()
                .any(|binding| binding.is_null() || matches_binding(binding, write, namespace))
            {
                continue;
            }
            match policy.is_admitted(&inputs) {
                Some(true) => {}
                Some(false) => return Verdict::Denied(policy.judge.clone()),
                None => unknown.push(policy.judge.clone()),
            }
        }
        for webhook in &self.webhooks {
            if !matches_write(&webhook.matcher, write, namespace) {
                continue;
            }
            let activation = Activation::new(&inputs, None);
            let is_skipped = webhook
                .conditions
                .iter()
                .any(|condition| activation.evaluate(condition) == Some(false));
            if !is_skipped && !unknown.contains(&webhook.judge) {
                unknown.push(webhook.judge.clone());
            }
        }
        if self.guards_write(write, namespace) {
            unknown.extend(self.guard.clone());
        }
        if unknown.is_empty() {
            Verdict::Admitted
        } else {
            Verdict::Unknown(unknown)
        }
    }
}

impl Policy {
    /// Checks whether the policy admits a request. Returns none if that can't be computed.
    fn is_admitted(&self, inputs: &Inputs<'_>) -> Option<bool> {
        let activation = Activation::new(inputs, Some(&self.variables));
        let mut is_unknown = false;
        for condition in &self.conditions {
            match activation.evaluate(condition) {
                Some(true) => {}
                Some(false) => return Some(true),
                None if self.ignores_failures => return Some(true),
                None => is_unknown = true,
            }
        }
        if is_unknown || self.has_parameters {
            return None;
        }
        let mut admits = Some(true);
        for validation in &self.validations {
            match activation.evaluate(validation) {
                Some(true) => {}
                Some(false) => return Some(false),
                None if self.ignores_failures => {}
                None => admits = None,
            }
        }
        admits
    }
}

fn read_policy(policy: &Value, name: &str, bindings: Vec<Value>, environment: &Environment) -> Policy {
    let variables = read_list(policy, "/spec/variables").iter().map(|variable| {
        let name = read_text(variable, "/name").to_owned();
        (name, compile_expression(variable, environment))
    });
    Policy {
        judge: WriteCheck {
            name: format!("ValidatingAdmissionPolicy/{name}"),
            when_dead: FailurePolicy::Holds,
        },
        ignores_failures: read_text(policy, "/spec/failurePolicy") == "Ignore",
        has_parameters: policy.pointer("/spec/paramKind").is_some_and(Value::is_object),
        matcher: policy.pointer("/spec/matchConstraints").cloned().unwrap_or(Value::Null),
        conditions: compile_all(read_list(policy, "/spec/matchConditions"), environment),
        variables: variables.collect(),
        validations: compile_all(read_list(policy, "/spec/validations"), environment),
        bindings,
    }
}

fn make_environment() -> Environment {
    let mut environment = Environment::new();
    for name in [
        "object",
        "oldObject",
        "request",
        "namespaceObject",
        "params",
        "variables",
    ] {
        environment = environment.with_variable(name, Type::Dyn);
    }
    environment
        .with_variable("authorizer", Type::object("kubernetes.authorization.Authorizer"))
        .with_variable(
            "authorizer.requestResource",
            Type::object("kubernetes.authorization.ResourceCheck"),
        )
}

fn compile_expression(expression: &Value, environment: &Environment) -> Result<Program, String> {
    environment
        .compile(read_text(expression, "/expression"))
        .map_err(|error| error.to_string())
}

fn compile_all(expressions: &[Value], environment: &Environment) -> Vec<Result<Program, String>> {
    expressions
        .iter()
        .map(|expression| compile_expression(expression, environment))
        .collect()
}

fn has_resource(rule: &Value, group: &str, resource: &str) -> bool {
    let has = |pointer: &str, wanted: &str| {
        let values = read_list(rule, pointer).iter().filter_map(Value::as_str);
        values
            .into_iter()
            .any(|value| value == "*" || value == "*/*" || value == wanted)
    };
    let with_any_subresource = || {
        resource.split_once('/').is_some_and(|(main, sub)| {
            has("/resources", &format!("{main}/*")) || has("/resources", &format!("*/{sub}"))
        })
    };
    has("/apiGroups", group) && (has("/resources", resource) || with_any_subresource())
}

fn has_operation(rule: &Value, operation: &str) -> bool {
    let operations = read_list(rule, "/operations");
    operations
        .iter()
        .filter_map(Value::as_str)
        .any(|known| known == "*" || known == operation)
}

/// Checks whether one of the rules at `pointer` matches the operation, the resource, the scope and the name of a write.
fn matches_rules(matcher: &Value, pointer: &str, write: &Write) -> bool {
    let resource = write.resource_and_subresource();
    read_list(matcher, pointer).iter().any(|rule| {
        let names = list_texts(rule, "/resourceNames");
        let is_in_scope = match read_text(rule, "/scope") {
            "Cluster" => write.namespace.is_empty() || write.resource == "namespaces",
            "Namespaced" => !write.namespace.is_empty() && write.resource != "namespaces",
            _ => true,
        };
        has_operation(rule, write.operation())
            && has_resource(rule, write.group, &resource)
            && is_in_scope
            && (names.is_empty() || names.contains(&write.name))
    })
}

/// Checks whether a policy or a webhook sees a write.
fn matches_write(matcher: &Value, write: &Write, namespace: Option<&Value>) -> bool {
    matches_rules(matcher, "/resourceRules", write) && selects_objects(matcher, write, namespace)
}

/// Checks whether `matchResources` of a policy's binding match a write. Without rules, only the selectors decide.
fn matches_binding(matcher: &Value, write: &Write, namespace: Option<&Value>) -> bool {
    let has_rules = !read_list(matcher, "/resourceRules").is_empty();
    (!has_rules || matches_rules(matcher, "/resourceRules", write)) && selects_objects(matcher, write, namespace)
}

/// Checks whether the namespace selector and the object selector match a write, and no exclusion does.
fn selects_objects(matcher: &Value, write: &Write, namespace: Option<&Value>) -> bool {
    let nothing = json!({});
    let labels = |object: &Value| object.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    let selector = |pointer: &str| matcher.pointer(pointer).filter(|selector| selector.is_object());
    let of_namespace = match (write.resource, namespace) {
        ("namespaces", _) => Some(add_name_label(labels(&write.object), &write.name)),
        (_, Some(namespace)) => Some(add_name_label(labels(namespace), &write.namespace)),
        _ => None,
    };
    let selects_namespace =
        of_namespace.is_none_or(|labels| matches_labels(selector("/namespaceSelector").unwrap_or(&nothing), &labels));
    selects_namespace
        && matches_labels(selector("/objectSelector").unwrap_or(&nothing), &labels(&write.object))
        && !matches_rules(matcher, "/excludeResourceRules", write)
}

/// Adds the label `kubernetes.io/metadata.name`, which the API server sets on every namespace.
fn add_name_label(mut labels: Value, name: &str) -> Value {
    if let Some(labels) = labels.as_object_mut() {
        labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
    }
    labels
}

/// Returns the variable `request` of expressions, as an AdmissionRequest.
fn describe_request(write: &Write, by: &Requester<'_>) -> Value {
    let kind = json!({ "group": write.group, "version": write.version, "kind": write.kind });
    let resource = json!({ "group": write.group, "version": write.version, "resource": write.resource });
    json!({
        "kind": kind, "resource": resource, "subResource": write.subresource,
        "requestKind": kind, "requestResource": resource, "requestSubResource": write.subresource,
        "name": write.name, "namespace": write.namespace, "operation": write.operation(), "dryRun": false, "options": {},
        "userInfo": { "username": by.identity.user_name(), "uid": "", "groups": by.groups, "extra": {} },
    })
}

/// The variables of expressions about one write, and the answers of its `authorizer`.
struct Inputs<'a> {
    object: &'a Value,
    old_object: Option<&'a Value>,
    request: &'a Value,
    namespace: Option<&'a Value>,
    resource: Check,
    may: &'a dyn Fn(&Check) -> bool,
}

/// The evaluation of one policy's or webhook's expressions, with the computed values of the policy's own `variables`.
struct Activation<'a> {
    inputs: &'a Inputs<'a>,
    variables: Option<&'a BTreeMap<String, Result<Program, String>>>,
    known: RefCell<HashMap<String, Result<Cel<'a>, Failure>>>,
    depth: Cell<u32>,
}

impl<'a> Activation<'a> {
    fn new(inputs: &'a Inputs<'a>, variables: Option<&'a BTreeMap<String, Result<Program, String>>>) -> Self {
        Self {
            inputs,
            variables,
            known: RefCell::default(),
            depth: Cell::default(),
        }
    }

    /// Returns the value of a condition. Returns none if it does not compile, fails, or is no
    /// boolean.
    fn evaluate(&self, program: &Result<Program, String>) -> Option<bool> {
        let program = program.as_ref().ok()?;
        match program.evaluate(self, EXPRESSION_BUDGET).result {
            Ok(Cel::Bool(value)) => Some(value),
            _ => None,
        }
    }
}

impl<'a> Variables<'a> for Activation<'a> {
    fn get(&self, name: &str) -> Option<Cel<'a>> {
        Some(match name {
            "object" => Cel::json(self.inputs.object),
            "oldObject" => self.inputs.old_object.map_or(Cel::Null, Cel::json),
            "request" => Cel::json(self.inputs.request),
            "namespaceObject" => self.inputs.namespace.map_or(Cel::Null, Cel::json),
            "authorizer" => Check::authorizer().into_value(),
            "authorizer.requestResource" => self.inputs.resource.clone().into_value(),
            _ => return None,
        })
    }

    fn field(&self, variable: &str, field: &str) -> Option<Result<Cel<'a>, Failure>> {
        if variable != "variables" {
            return None;
        }
        let program = self.variables?.get(field)?;
        if let Some(known) = self.known.borrow().get(field) {
            return Some(known.clone());
        }
        let program = match program {
            Ok(program) => program,
            Err(problem) => return Some(Err(Failure::new(problem.clone()))),
        };
        if self.depth.get() >= DEEPEST {
            return Some(Err(Failure::new("variables nest too deep".to_owned())));
        }
        self.depth.set(self.depth.get() + 1);
        let value = program.evaluate(self, EXPRESSION_BUDGET).result;
        self.depth.set(self.depth.get() - 1);
        self.known.borrow_mut().insert(field.to_owned(), value.clone());
        Some(value)
    }

    fn authorize(&self, check: &Check) -> Decision {
        Decision {
            allowed: (self.inputs.may)(check),
            ..Decision::default()
        }
    }
}
