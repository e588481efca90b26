//! The policies and the facts that they read, evaluated without a server, beside the decisions of the
//! rules about the same requests.

use std::collections::BTreeMap;

use kubernetes_cel::{Check, Decision as Authorized, OBJECT_BUDGET, Type, Value as CelValue};
use serde_json::{Value, json};
use structured_merge::{FieldManager, Timestamp, Typing};
use tenure_admission_rules::{self as rules, ClusterQueries, Decision, Question, Request, policy};
use tenure_kinds::expressions::{Activation, Authorizer, Compiler, Conditions, Expression, Inputs, Match, Scope};
use tenure_tenancy::mentions::Mention;
use tenure_tenancy::{FactIndex, TenantFacts};

use crate::table::{Actor, Case, Object, Sent, Table, keep_managers};

/// A compiled policy.
struct Policy {
    spec: Value,
    /// True if the policy warns of a request instead of refusing it.
    warns: bool,
    conditions: Conditions,
    variables: BTreeMap<String, Expression>,
    validations: Vec<Expression>,
    /// The selector of its parameters, if it has any.
    parameters: Option<Value>,
}

impl Policy {
    fn read(object: &Value, binding: &Value, warns: bool) -> Self {
        let spec = object["spec"].clone();
        let has_parameters = spec["paramKind"].is_object();
        let scope = Scope::with_authorizer(has_parameters);
        let mut compiler = Compiler::composing();
        let mut variables = BTreeMap::new();
        let text = |value: &Value, key: &str| value[key].as_str().unwrap().to_owned();
        for variable in spec["variables"].as_array().into_iter().flatten() {
            let expression = compiler.compile(&text(variable, "expression"), scope, &[]);
            assert!(expression.output_type().is_some(), "{variable}");
            compiler.declare(&text(variable, "name"), expression.output_type());
            variables.insert(text(variable, "name"), expression);
        }
        let validations = spec["validations"].as_array().unwrap().iter().map(|validation| {
            let message = Scope::of_messages(has_parameters);
            compiler
                .check(&text(validation, "messageExpression"), message, &[Type::String])
                .unwrap();
            compiler
                .check(&text(validation, "expression"), scope, &[Type::Bool])
                .unwrap();
            compiler.compile(&text(validation, "expression"), scope, &[Type::Bool])
        });
        Self {
            validations: validations.collect(),
            conditions: Conditions::read(&spec, &compiler, has_parameters),
            parameters: has_parameters.then(|| binding["spec"]["paramRef"]["selector"].clone()),
            variables,
            spec,
            warns,
        }
    }

    /// Checks whether the policy's rules and its selector match a request.
    fn is_about(&self, review: &Value, labels: &Value) -> bool {
        let texts = |value: &Value| -> Vec<String> {
            let all = value.as_array().unwrap().iter();
            all.map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let (resource, part) = (
            review["resource"]["resource"].as_str().unwrap(),
            review["subResource"].as_str().unwrap_or_default(),
        );
        let is_namespace = resource == "namespaces";
        let constraints = &self.spec["matchConstraints"];
        let is_ruled = constraints["resourceRules"].as_array().unwrap().iter().any(|rule| {
            let has = |key: &str, wanted: &str| texts(&rule[key]).iter().any(|text| text == "*" || text == wanted);
            let is_named = texts(&rule["resources"]).iter().any(|text| {
                let (name, subresource) = text.split_once('/').unwrap_or((text, ""));
                let is_part = subresource == part || (subresource == "*");
                (name == "*" || name == resource) && is_part
            });
            let is_in_scope = rule["scope"] == "*" || !(is_namespace || review["namespace"] == "");
            has("apiGroups", review["resource"]["group"].as_str().unwrap())
                && has("operations", review["operation"].as_str().unwrap())
                && is_named
                && is_in_scope
        });
        let selects = |expression: &Value| {
            let value = labels.get(expression["key"].as_str().unwrap()).and_then(Value::as_str);
            match expression["operator"].as_str().unwrap() {
                "Exists" => value.is_some(),
                _ => value.is_none_or(|value| !texts(&expression["values"]).iter().any(|text| text == value)),
            }
        };
        let mut selectors = constraints["namespaceSelector"]["matchExpressions"]
            .as_array()
            .into_iter()
            .flatten();
        is_ruled && selectors.all(selects)
    }

    fn refuses(&self, inputs: Inputs<'_>, namespace: Option<&Value>) -> bool {
        match self.conditions.check(inputs, &self.variables, false) {
            Match::Yes => {}
            Match::No => return false,
            Match::Failed(_) => return true,
        }
        let inputs = Inputs { namespace, ..inputs };
        let activation = Activation::composing(inputs, &self.variables);
        let mut budget = OBJECT_BUDGET;
        self.validations.iter().any(|validation| {
            let answer = activation.evaluate(validation, &mut budget);
            !matches!(answer, Ok(Ok(CelValue::Bool(true))))
        })
    }
}

/// A cluster in memory: the annotations of namespaces, the rights of users, and the policies.
pub(crate) struct World {
    pub(crate) table: Table,
    pub(crate) facts: FactIndex,
    pub(crate) refusing: policy::HandEditDenials,
    mintable: policy::MintableAccounts,
    policies: Vec<Policy>,
    roles: Vec<Value>,
}

impl World {
    pub(crate) fn make() -> Self {
        Self::build(serde_saphyr::from_str(include_str!("../../../admission-rules/tests/admission.yaml")).unwrap())
    }

    /// Returns a world in which only policies check writes.
    pub(crate) fn without_webhooks() -> Self {
        let table = include_str!("../../../admission-rules/tests/admission.yaml");
        let mut table: Table = serde_saphyr::from_str(table).unwrap();
        table.tenancy.settings.is_guarded = false;
        Self::build(table)
    }

    fn build(table: Table) -> Self {
        let facts = FactIndex::from_facts(&table.tenancy);
        let mut policies = policy::list_policies(&table.tenancy.settings);
        policies.extend(policy::list_bounds(&table.tenancy.settings));
        let (policies, bindings): (Vec<&Value>, Vec<&Value>) = policies
            .iter()
            .partition(|object| object["kind"] == "ValidatingAdmissionPolicy");
        let warns = |policy: &Value| {
            bindings.iter().any(|binding| {
                binding["spec"]["policyName"] == policy["metadata"]["name"]
                    && binding["spec"]["validationActions"] == json!(["Warn"])
            })
        };
        let mut roles = tenure_api::installation::list_owner_roles();
        roles.extend(table.tenancy.tenants.iter().flat_map(|tenant| {
            let has_room = policy::has_namespace_capacity(tenant, facts.settings(), facts.count_namespaces(tenant));
            policy::list_tenant_rights(tenant, has_room)
        }));
        Self {
            policies: policies
                .into_iter()
                .map(|policy| {
                    let is_its = |binding: &&&Value| binding["spec"]["policyName"] == policy["metadata"]["name"];
                    Policy::read(policy, bindings.iter().find(is_its).unwrap(), warns(policy))
                })
                .collect(),
            refusing: table.collect_refusing(&facts),
            mintable: table.collect_mintable(&facts),
            facts,
            roles,
            table,
        }
    }

    /// Returns a namespace in its stored form, if it exists.
    fn namespace(&self, name: &str) -> Option<Value> {
        let known = self.facts.find_namespace(name)?;
        let mut labels = json!({ "kubernetes.io/metadata.name": name });
        if let Some(label) = &known.tenant_label {
            labels["capsule.clastix.io/tenant"] = json!(label);
        }
        let mut written = self.describe(name);
        if !known.mintable.is_empty() {
            let named: Vec<&str> = known.mintable.iter().map(String::as_str).collect();
            written.insert("tenure.dev/mintable-accounts".to_owned(), named.join(", "));
        }
        Some(json!({ "metadata": { "name": name, "labels": labels, "annotations": written } }))
    }

    /// Returns the facts that the controllers write on a namespace.
    fn describe(&self, name: &str) -> BTreeMap<String, String> {
        policy::describe_namespace(&self.facts, (&self.refusing, &self.mintable), name)
    }

    /// Returns the actor for a ServiceAccount, if the table has one.
    fn find_account(&self, (namespace, name): (&str, &str)) -> Option<&Actor> {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        self.table.actors.values().find(|actor| actor.user == user)
    }

    /// Checks whether an actor has a right, by the table or by a Tenant.
    fn has_right(&self, actor: &Actor, verb: &str, resource: &str, name: &str) -> bool {
        let by_table = actor.rights.iter().any(|right| {
            let (known, what) = right.split_once(' ').unwrap();
            let (kind, only) = what.split_once('/').unwrap_or((what, "*"));
            known == verb && (kind == "*" || kind == resource) && (only == "*" || only == name)
        });
        by_table
            || self
                .roles
                .iter()
                .filter(|object| object["kind"] == "ClusterRoleBinding")
                .any(|binding| {
                    let is_bound = binding["subjects"].as_array().unwrap().iter().any(|subject| {
                        let name = subject["name"].as_str().unwrap();
                        match subject["kind"].as_str().unwrap() {
                            "Group" => actor.groups.iter().any(|group| group == name),
                            "User" => actor.user == name,
                            _ => {
                                actor.user
                                    == format!(
                                        "system:serviceaccount:{}:{name}",
                                        subject["namespace"].as_str().unwrap()
                                    )
                            }
                        }
                    });
                    let mut roles = self.roles.iter().filter(|role| {
                        role["kind"] == "ClusterRole" && role["metadata"]["name"] == binding["roleRef"]["name"]
                    });
                    is_bound
                        && roles.any(|role| {
                            role["rules"].as_array().unwrap().iter().any(|rule| {
                                let has = |key: &str, wanted: &str| {
                                    rule[key].as_array().unwrap().iter().any(|text| text == wanted)
                                };
                                let is_named = rule.get("resourceNames").is_none() || has("resourceNames", name);
                                has("verbs", verb) && has("resources", resource) && is_named
                            })
                        })
                })
    }

    /// Checks whether a policy refuses a review of this actor.
    pub(crate) fn refuses(&self, actor: &Actor, review: &Value) -> bool {
        self.matches_policy(actor, review, false)
    }

    /// Checks whether a policy refuses a review, or warns of it.
    pub(crate) fn matches_policy(&self, actor: &Actor, review: &Value, warns: bool) -> bool {
        let namespace = review["namespace"].as_str().unwrap_or_default();
        let is_namespace = review["resource"]["resource"] == "namespaces";
        let holder = self.namespace(namespace).filter(|_| !is_namespace);
        let labels = holder
            .as_ref()
            .map_or_else(|| json!({}), |holder| holder["metadata"]["labels"].clone());
        let resource = Check::of_resource("", "", "", "", "");
        let decide = |check: &Check| {
            let account = check.service_account.as_ref();
            let who = match account {
                Some((namespace, name)) => self.find_account((namespace, name)),
                None => Some(actor),
            };
            Authorized {
                allowed: who.is_some_and(|who| self.has_right(who, &check.verb, &check.resource, &check.name)),
                ..Authorized::default()
            }
        };
        let present = |key: &str| review.get(key).filter(|value| !value.is_null());
        let mut request = review.clone();
        let fields = request.as_object_mut().unwrap();
        fields.retain(|key, value| !["object", "oldObject"].contains(&key.as_str()) && *value != "");
        let inputs = Inputs {
            object: present("object"),
            old_object: present("oldObject"),
            request: Some(&request),
            authorizer: Some(Authorizer {
                resource: &resource,
                decide: &decide,
            }),
            ..Inputs::default()
        };
        let policies = self.policies.iter().filter(|policy| policy.warns == warns);
        let mut about = policies.filter(|policy| policy.is_about(review, &labels));
        about.any(|policy| match self.list_parameters(policy) {
            None => policy.refuses(inputs, holder.as_ref()),
            Some(all) => all.iter().any(|parameters| {
                let inputs = Inputs {
                    params: Some(parameters),
                    ..inputs
                };
                policy.refuses(inputs, holder.as_ref())
            }),
        })
    }

    /// Returns the parameters with which an API server evaluates a policy, one after another. `None` for a
    /// policy without parameters.
    fn list_parameters(&self, policy: &Policy) -> Option<Vec<Value>> {
        let selector = policy.parameters.as_ref()?;
        if policy.spec["paramKind"]["kind"] == "Namespace" {
            let is_of_unlabelled = selector["matchExpressions"][0]["operator"] == "DoesNotExist";
            assert!(is_of_unlabelled || *selector == json!({}), "{selector}");
            let all = self.table.tenancy.namespaces.iter();
            let meant = all.filter(|known| !is_of_unlabelled || known.tenant_label.is_none());
            return Some(meant.filter_map(|known| self.namespace(&known.name)).collect());
        }
        let tenants = self.table.tenancy.tenants.iter().map(|tenant| {
            let owners = tenant
                .owners
                .iter()
                .map(|owner| json!({ "kind": owner.kind, "name": owner.name }));
            let mut metadata = json!({ "name": tenant.name, "uid": tenant.uid, "annotations": {} });
            if let Some(home) = &tenant.home_namespace {
                metadata["annotations"]["tenure.dev/home-namespace"] = json!(home);
            }
            if tenant.deleting {
                metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            json!({ "metadata": metadata, "spec": { "owners": owners.collect::<Vec<_>>() } })
        });
        Some(tenants.collect())
    }

    /// Returns the decision of the rules about the same review.
    pub(crate) fn decide(&self, actor: &Actor, review: &Value) -> Option<Decision> {
        let request = Request::read(review).ok()?;
        Some(rules::decide(&self.facts, &request, &Around(self, actor)))
    }

    /// Returns a case as a review. A Namespace has its annotations.
    pub(crate) fn review(&self, case: &Case, actor: &Actor) -> Value {
        let (operation, object) = case.action();
        let (group, resource, name) = object.what();
        let is_namespace = resource == "namespaces";
        let namespace = if is_namespace {
            name
        } else {
            object.namespace.as_deref().unwrap_or_default()
        };
        let write = |object: &Object| {
            let mut written = object.write(name, namespace, (resource, case.subresource()));
            if is_namespace && operation != "CREATE" {
                let stored = self.describe(name);
                let annotations = written["metadata"]["annotations"].as_object_mut().unwrap();
                annotations.extend(stored.into_iter().map(|(key, value)| (key, json!(value))));
            }
            written
        };
        let mut new = write(object);
        let old = if operation == "UPDATE" {
            write(&case.from)
        } else {
            new.clone()
        };
        keep_managers(&mut new, &old);
        let mut user = json!({ "username": actor.user, "groups": actor.groups });
        if actor.token {
            user["extra"] = json!({ "authentication.kubernetes.io/credential-id": ["JTI=x"] });
        }
        json!({
            "operation": operation,
            "resource": { "group": group, "version": "v1", "resource": resource },
            "subResource": case.subresource(),
            "namespace": namespace,
            "name": if object.generated { "" } else { name },
            "userInfo": user,
            "dryRun": case.dry_run,
            "object": (operation != "DELETE").then_some(&new),
            "oldObject": (operation != "CREATE").then_some(&old),
        })
    }
}

/// The answers to questions of the rules.
struct Around<'a>(&'a World, &'a Actor);

impl ClusterQueries for Around<'_> {
    fn is_allowed(&self, question: &Question<'_>) -> bool {
        self.0
            .has_right(self.1, question.verb, question.resource, question.name)
    }

    fn may_account(&self, account: (&str, &str), question: &Question<'_>) -> bool {
        let who = self.0.find_account(account);
        who.is_some_and(|who| self.0.has_right(who, question.verb, question.resource, question.name))
    }

    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<std::sync::Arc<Value>> {
        let found = self.0.table.find(group, plural, namespace, name);
        found.cloned().map(std::sync::Arc::new)
    }

    fn find_mention(
        &self,
        facts: &FactIndex,
        tenant: &TenantFacts,
        namespace: &str,
    ) -> Result<Option<Mention>, String> {
        Ok(self.0.table.find_mention(facts, tenant, namespace))
    }
}

/// The field manager of a write, and its time.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    /// True if the request names the manager. Otherwise the manager is the beginning of the user agent, which
    /// no policy sees.
    pub(crate) is_named: bool,
    pub(crate) now: Timestamp,
}

/// Sets the managedFields of an update as a server does before policies see them. For an apply, sets the merged object,
/// too.
pub(crate) fn settle(review: &mut Value, sent: Option<&Sent>, writer: Writer<'_>) {
    let is_of_whole = review["subResource"] == "" && review["operation"] == "UPDATE";
    let entry = review.pointer("/oldObject/metadata/managedFields/0/apiVersion");
    let Some(version) = entry.and_then(Value::as_str).filter(|_| is_of_whole).map(str::to_owned) else {
        return;
    };
    for part in ["object", "oldObject"] {
        review[part]["apiVersion"] = json!(version);
        if review[part].get("kind").is_none() {
            review[part]["kind"] = json!("Package");
        }
    }
    let kind = review["object"]["kind"].as_str().unwrap().to_owned();
    let fields = FieldManager::new(Typing::deduced(), &version, &kind);
    let (manager, is_named) = match sent {
        Some(Sent::As(manager) | Sent::Applied(manager)) => (manager.as_str(), true),
        Some(Sent::Managers(_)) | None => (writer.manager, writer.is_named),
    };
    let old = review["oldObject"].clone();
    let mut new = review["object"].take();
    review["object"] = match sent {
        Some(Sent::Applied(_)) => {
            new["metadata"].as_object_mut().unwrap().remove("managedFields");
            match fields.apply(Some(&old), &new, manager, true, writer.now) {
                Ok(applied) => applied.into_object(Some(&old)),
                // The apply fails and changes nothing.
                Err(_) => old,
            }
        }
        Some(Sent::Managers(entries)) => {
            new["metadata"]["managedFields"] = json!(entries);
            fields.update(Some(&old), new, manager, writer.now)
        }
        Some(Sent::As(_)) | None => fields.update(Some(&old), new, manager, writer.now),
    };
    if is_named {
        review["options"] = json!({ "fieldManager": manager });
    }
}
