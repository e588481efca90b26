//! The policies, evaluated without a server: every case of tenancy's table, and requests like them by chance.

use std::collections::BTreeMap;

use kubernetes_cel::{Check, Decision as Authorized, OBJECT_BUDGET, Type, Value as CelValue};
use serde_json::{Value, json};
use tenure_api::ObjectMeta;
use tenure_kinds::expressions::{Activation, Authorizer, Compiler, Conditions, Expression, Inputs, Match, Scope};
use tenure_tenancy::Facts;
use tenure_tenancy::admission::{self, Decision, Question, Request, Rule, Surroundings, policy};

use crate::table::{Actor, ByPolicy, Case, Object, Table, keep_managers};

/// What the rules deny and no policy knows: a part of the message of each. The table has a case of each.
const UNKNOWN: [(Rule, &str); 15] = [
    (Rule::NamespaceOptions, "of at most"),
    (Rule::NamespaceOptions, "begin with"),
    (Rule::NamespaceOptions, "on its namespaces"),
    (Rule::PriorityClasses, "nor by its labels"),
    (Rule::RuntimeClasses, "nor by its labels"),
    (Rule::StorageClasses, "nor by its labels"),
    (Rule::IngressOptions, "nor by its labels"),
    (Rule::NamespaceMembership, "has another uid than the Tenant"),
    (Rule::NamespaceMembership, "is the home namespace of another Tenant"),
    (Rule::NamespaceMembership, "is being deleted"),
    (Rule::Tenant, "it is that of Tenant"),
    (Rule::Tenant, "it is a namespace of Tenant"),
    (Rule::GitManaged, "is managed by Git"),
    // A server tells of it in managedFields, which change with it.
    (Rule::FieldOwnership, "spec.components"),
    (Rule::Cordoned, "its owners make nothing in it"),
];

/// A policy, compiled.
struct Policy {
    spec: Value,
    /// Whether what it refuses goes on, and is warned of.
    warns: bool,
    conditions: Conditions,
    variables: BTreeMap<String, Expression>,
    validations: Vec<Expression>,
}

impl Policy {
    fn read(object: &Value, warns: bool) -> Self {
        let spec = object["spec"].clone();
        let scope = Scope::with_authorizer(false);
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
            let message = Scope::of_messages(false);
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
            conditions: Conditions::read(&spec, &compiler, false),
            variables,
            spec,
            warns,
        }
    }

    /// Whether its rules and its selector are about a request.
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
                let (name, of) = text.split_once('/').unwrap_or((text, ""));
                let is_part = of == part || (of == "*");
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

/// A cluster in the head: what stands on namespaces, who may what, and the policies.
struct World {
    table: Table,
    facts: Facts,
    refusing: policy::Refusing,
    mintable: policy::Mintable,
    policies: Vec<Policy>,
    roles: Vec<Value>,
}

impl World {
    fn make() -> Self {
        let table: Table = serde_saphyr::from_str(include_str!("../../../tenancy/tests/admission.yaml")).unwrap();
        let facts = Facts::of(&table.realm);
        let platform = &table.realm.settings.platform_namespace;
        let mut policies = policy::list_policies(&table.realm.settings);
        policies.extend(policy::list_bounds(platform));
        let (policies, bindings): (Vec<&Value>, Vec<&Value>) = policies
            .iter()
            .partition(|object| object["kind"] == "ValidatingAdmissionPolicy");
        let warns = |policy: &Value| {
            bindings.iter().any(|binding| {
                binding["spec"]["policyName"] == policy["metadata"]["name"]
                    && binding["spec"]["validationActions"] == json!(["Warn"])
            })
        };
        let mut roles = policy::list_roles();
        roles.extend(table.realm.tenants.iter().flat_map(policy::list_tenant_rights));
        Self {
            policies: policies
                .into_iter()
                .map(|policy| Policy::read(policy, warns(policy)))
                .collect(),
            refusing: table.collect_refusing(&facts),
            mintable: table.collect_mintable(&facts),
            facts,
            roles,
            table,
        }
    }

    /// A namespace as it is stored, if it is there.
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

    /// What the controllers write on a namespace.
    fn describe(&self, name: &str) -> BTreeMap<String, String> {
        policy::describe_namespace(&self.facts, (&self.refusing, &self.mintable), name)
    }

    /// The one who is a ServiceAccount, if the table has him.
    fn find_account(&self, (namespace, name): (&str, &str)) -> Option<&Actor> {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        self.table.actors.values().find(|actor| actor.user == user)
    }

    /// Whether somebody may do something: by the table, and by what Tenants give.
    fn may(&self, actor: &Actor, verb: &str, resource: &str, name: &str) -> bool {
        let by_table = actor.rights.iter().any(|right| {
            let (known, what) = right.split_once(' ').unwrap();
            let (of, only) = what.split_once('/').unwrap_or((what, "*"));
            known == verb && (of == "*" || of == resource) && (only == "*" || only == name)
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

    /// Whether a policy refuses a review of this actor's.
    fn refuses(&self, actor: &Actor, review: &Value) -> bool {
        self.tells(actor, review, false)
    }

    /// Whether a policy refuses a review, or warns of it.
    fn tells(&self, actor: &Actor, review: &Value, warns: bool) -> bool {
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
                allowed: who.is_some_and(|who| self.may(who, &check.verb, &check.resource, &check.name)),
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
        about.any(|policy| policy.refuses(inputs, holder.as_ref()))
    }

    /// What the rules say to the same.
    fn decide(&self, actor: &Actor, review: &Value) -> Option<Decision> {
        let request = Request::read(review).ok()?;
        Some(admission::decide(&self.facts, &request, &Around(self, actor)))
    }

    /// A case as a review: of a Namespace with what stands on it.
    fn review(&self, case: &Case, actor: &Actor) -> Value {
        let (operation, object) = case.action();
        let (group, resource, name) = object.what();
        let is_namespace = resource == "namespaces";
        let namespace = if is_namespace {
            name
        } else {
            object.namespace.as_deref().unwrap_or_default()
        };
        let write = |object: &Object| {
            let mut written = object.to_value(name);
            if resource == "configmaps" {
                written["apiVersion"] = json!("v1");
                written["kind"] = json!("ConfigMap");
                written["metadata"]["namespace"] = json!(namespace);
            }
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

/// What the rules ask. What manages something is in no policy's sight.
struct Around<'a>(&'a World, &'a Actor);

impl Surroundings for Around<'_> {
    fn may(&self, question: &Question<'_>) -> bool {
        self.0.may(self.1, question.verb, question.resource, question.name)
    }

    fn may_account(&self, account: (&str, &str), question: &Question<'_>) -> bool {
        let who = self.0.find_account(account);
        who.is_some_and(|who| self.0.may(who, question.verb, question.resource, question.name))
    }

    fn find(&self, _: &str, _: &str, _: &str, _: &str) -> Option<std::sync::Arc<Value>> {
        None
    }
}

#[test]
fn every_case_is_answered_as_the_table_says() {
    let world = World::make();
    let mut wrong = Vec::new();
    for (index, case) in world.table.cases.iter().enumerate() {
        let actor = &world.table.actors[&case.by];
        let refuses = world.refuses(actor, &world.review(case, actor));
        // What a server makes of managedFields is in no review here.
        let is_managed = case.action().1.applied_by.is_some();
        let wanted = match &case.policy {
            _ if is_managed => continue,
            Some(ByPolicy::Server(_)) => continue,
            Some(ByPolicy::Refuses(_) | ByPolicy::Says(_)) => true,
            Some(ByPolicy::Leaves(_)) => false,
            None => case.deny.is_some(),
        };
        if refuses != wanted {
            wrong.push(format!("{}: refused: {refuses}", case.name(index)));
        }
        // Only of what is overridden do policies warn.
        let allowed = case.allow.as_ref().and_then(|allowed| allowed.warning.as_deref());
        let is_overridden = allowed.is_some_and(|warning| warning.contains("you override"));
        let warns = world.tells(actor, &world.review(case, actor), true);
        if !refuses && warns != is_overridden {
            wrong.push(format!("{}: warned of: {warns}", case.name(index)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Numbers by chance, the same ones in every run.
struct Chance(u64);

impl Chance {
    fn draw(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(below.max(1)).unwrap()).unwrap()
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.draw(from.len());
        &from[index]
    }
}

/// What a request may say in place of what it says.
const WORDS: [&str; 16] = [
    "blue",
    "blue-dev",
    "red",
    "red-home",
    "red-dev",
    "still",
    "nobody",
    "left-over",
    "kube-system",
    "default",
    "tenure-system",
    "blue-gitops",
    "red-gitops",
    "two",
    "admin",
    "",
];

/// Changes a text, takes something away or adds something, wherever chance leads.
fn change(value: &mut Value, chance: &mut Chance) {
    let word = *chance.pick(&WORDS);
    match value {
        Value::Object(map) if !map.is_empty() => {
            let position = chance.draw(map.len());
            let key = map.keys().nth(position).unwrap().clone();
            match chance.draw(8) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert("namespace".to_owned(), json!(word))),
                2 => drop(map.insert("serviceAccountName".to_owned(), json!(word))),
                _ => change(map.get_mut(&key).unwrap(), chance),
            }
        }
        Value::Array(list) if !list.is_empty() => {
            let position = chance.draw(list.len());
            match chance.draw(6) {
                0 => drop(list.remove(position)),
                1 => list.push(list[position].clone()),
                _ => change(&mut list[position], chance),
            }
        }
        other => *other = json!(word),
    }
}

#[test]
fn no_policy_allows_what_the_rules_deny() {
    let world = World::make();
    let actors: Vec<&Actor> = world.table.actors.values().collect();
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let (mut denied, mut unknown, mut allowed_by_both) = (0, 0, 0);
    for round in 0..20_000 {
        let case = chance.pick(&world.table.cases);
        let actor = if chance.draw(3) == 0 {
            *chance.pick(&actors)
        } else {
            &world.table.actors[&case.by]
        };
        let mut review = world.review(case, actor);
        // A Tenant or a Namespace as it is stored is what is known of it, and no server changes names.
        let is_namespaced = !matches!(review["resource"]["resource"].as_str(), Some("namespaces" | "tenants"));
        for _ in 0..chance.draw(3) {
            let part = *chance.pick(&["object", "object", "oldObject"]);
            if !review[part].is_null() && (is_namespaced || part == "object") {
                let name = review[part].pointer("/metadata/name").cloned();
                change(&mut review[part], &mut chance);
                if let (Some(name), Some(metadata)) = (name, review[part]["metadata"].as_object_mut()) {
                    metadata.insert("name".to_owned(), name);
                }
            }
        }
        if is_namespaced && chance.draw(4) == 0 {
            review["namespace"] = json!(chance.pick(&world.table.realm.namespaces).name);
        }
        // What is no metadata of an object comes from no server.
        let is_object = |part: &str| {
            let metadata = review[part].get("metadata").cloned().unwrap_or_default();
            review[part].is_null() || serde_json::from_value::<ObjectMeta>(metadata).is_ok()
        };
        if !is_object("object") || !is_object("oldObject") {
            continue;
        }
        let Some(decision) = world.decide(actor, &review) else {
            continue;
        };
        let refuses = world.refuses(actor, &review);
        match decision {
            Decision::Allow { .. } => allowed_by_both += usize::from(!refuses),
            Decision::Deny(refusal) => {
                denied += 1;
                let is_unknown = UNKNOWN
                    .iter()
                    .any(|(rule, part)| *rule == refusal.rule && refusal.why.contains(part));
                unknown += usize::from(is_unknown);
                assert!(refuses || is_unknown, "round {round}: {refusal}\n{review:#}");
            }
        }
    }
    println!("{denied} denied, of which {unknown} by what no policy knows; {allowed_by_both} allowed by both");
    assert!(
        denied - unknown > 4_000 && allowed_by_both > 4_000,
        "{denied} {unknown} {allowed_by_both}"
    );
}

#[test]
fn what_no_policy_knows_is_in_the_table() {
    let world = World::make();
    let left: Vec<&Case> = world
        .table
        .cases
        .iter()
        .filter(|case| matches!(case.policy, Some(ByPolicy::Leaves(_))))
        .collect();
    for case in &left {
        let rule = case.deny.as_deref().expect("what is left is denied by the rules");
        assert!(
            UNKNOWN.iter().any(|(known, _)| known.as_str() == rule),
            "{}",
            case.name(0)
        );
    }
    assert!(left.len() >= 10, "{}", left.len());
}

/// Who may write Kustomizations can't have the platform's refusals forgotten, nor his own by what he adds to them.
#[test]
fn a_list_that_is_too_long_refuses_more_and_never_less() {
    let mut world = World::make();
    let edit = |by: &str, owner: (&str, &str)| {
        let labels = json!({
            "kustomize.toolkit.fluxcd.io/namespace": owner.0, "kustomize.toolkit.fluxcd.io/name": owner.1
        });
        let object =
            json!({ "metadata": { "name": "x", "namespace": "blue", "labels": labels }, "data": { "git": "2" } });
        let mut old = object.clone();
        old["metadata"]["managedFields"] = json!([{
            "manager": "kustomize-controller", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:data": { "f:git": {} } }
        }]);
        json!({
            "operation": "UPDATE", "resource": { "group": "", "version": "v1", "resource": "configmaps" }, "subResource": "",
            "namespace": "blue", "name": "x", "userInfo": { "username": by, "groups": [] }, "object": object, "oldObject": old
        })
    };
    let account = "system:serviceaccount:blue:blue-gitops";
    let all = [
        ("dora", ("tenure-system", "base")),
        ("dora", ("blue", "strict")),
        ("system:serviceaccount:ci:robot", ("blue", "strict")),
        (account, ("blue", "strict")),
        // It refuses nothing.
        ("dora", ("blue", "app")),
        ("dora", ("nobody", "app")),
    ];
    let ask = |world: &World| all.map(|(by, owner)| world.refuses(&world.table.actors["dev"], &edit(by, owner)));
    assert_eq!(ask(&world), [true, true, false, false, false, false]);
    for number in 0..500 {
        let writers = format!("dora,{}", "x".repeat(200_000));
        let many = json!({
            "metadata": { "name": format!("more-{number}"), "namespace": "blue", "annotations": {
                "tenure.dev/hand-edits": "refuse", "tenure.dev/other-writers": writers
            } },
            "spec": { "serviceAccountName": "blue-gitops" },
            "status": { "inventory": { "entries": [{ "id": "blue_x__ConfigMap", "v": "v1" }] } }
        });
        world.refusing.add(&world.facts, &many, None);
    }
    assert_eq!(ask(&world), [true, true, true, false, true, false]);
}

#[test]
fn what_is_large_costs_no_more_than_it_may() {
    let world = World::make();
    let actor = &world.table.actors["dev"];
    let many: Vec<Value> = (0..500)
        .map(|number| json!({ "name": format!("dependency-{number}"), "namespace": "blue-dev" }))
        .collect();
    let large = "x".repeat(1 << 20);
    let review = json!({
        "operation": "UPDATE", "resource": { "group": "kustomize.toolkit.fluxcd.io", "version": "v1", "resource": "kustomizations" },
        "subResource": "", "namespace": "blue", "name": "a", "userInfo": { "username": actor.user, "groups": actor.groups },
        "object": { "metadata": { "name": "a" }, "spec": {
            "serviceAccountName": "blue-gitops", "sourceRef": { "kind": "GitRepository", "name": "s" }, "dependsOn": many,
            "patches": [{ "patch": large }]
        } },
        "oldObject": { "metadata": { "name": "a" }, "spec": {
            "serviceAccountName": "blue-gitops", "sourceRef": { "kind": "GitRepository", "name": "s" }, "patches": [{ "patch": large }]
        } }
    });
    assert!(!world.refuses(actor, &review));
    let mut one_leads_out = review;
    one_leads_out["object"]["spec"]["dependsOn"][499]["namespace"] = json!("red-dev");
    assert!(world.refuses(actor, &one_leads_out));
}
