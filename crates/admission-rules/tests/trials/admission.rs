//! The rules for writes: `tests/admission.yaml`, a trial for each case.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_admission_rules::{self as rules, Change, ClusterQueries, Decision, Question, Request};
use tenure_tenancy::mentions::Mention;
use tenure_tenancy::{FactIndex, TenancyFacts, TenantFacts};

use crate::table::{Actor, Allowed, Case, Object, Table, keep_managers};

pub(crate) fn collect_facts(tenancy: &TenancyFacts) -> FactIndex {
    let mut facts = FactIndex::new(tenancy.settings.clone());
    // A change of the tenancy for one case must not affect others.
    for tenant in &tenancy.tenants {
        let mut before = tenant.clone();
        before.home_namespace = Some("blue-dev".to_owned());
        facts.set_tenant(before);
        facts.set_tenant(tenant.clone());
    }
    for namespace in &tenancy.namespaces {
        let mut before = namespace.clone();
        before.tenant_owners.clear();
        facts.set_namespace(before);
        facts.set_namespace(namespace.clone());
    }
    facts
}

/// Checks whether an actor has a right.
fn has_right(actor: &Actor, question: &Question<'_>) -> bool {
    actor.rights.iter().any(|right| {
        let (verb, what) = right.split_once(' ').unwrap();
        let (resource, name) = what.split_once('/').unwrap_or((what, "*"));
        verb == question.verb
            && (resource == "*" || resource == question.resource)
            && (name == "*" || name == question.name)
    })
}

/// An actor, and the table with its objects and the other actors.
struct Around<'a>(&'a Actor, &'a Table);

impl ClusterQueries for Around<'_> {
    fn is_allowed(&self, question: &Question<'_>) -> bool {
        has_right(self.0, question)
    }

    fn may_account(&self, (namespace, name): (&str, &str), question: &Question<'_>) -> bool {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let mut known = self.1.actors.values().filter(|actor| actor.user == user);
        known.any(|actor| has_right(actor, question))
    }

    fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.1.find(group, plural, namespace, name).cloned().map(Arc::new)
    }

    fn find_mention(
        &self,
        facts: &FactIndex,
        tenant: &TenantFacts,
        namespace: &str,
    ) -> Result<Option<Mention>, String> {
        Ok(self.1.find_mention(facts, tenant, namespace))
    }
}

impl Table {
    pub(crate) fn check(&self, case: &Case) -> Result<(), String> {
        let facts = collect_facts(&self.tenancy);
        let actor = self.actors.get(&case.by).ok_or("no such actor")?;
        let (operation, object) = case.action();
        let (group, resource, name) = object.what();
        let part = case.subresource();
        let namespace = if resource == "namespaces" {
            name
        } else {
            object.namespace.as_deref().unwrap_or_default()
        };
        let write = |object: &Object| object.write(name, namespace, (resource, part));
        let mut new = write(object);
        let old = if operation == "UPDATE" {
            write(&case.from)
        } else {
            new.clone()
        };
        keep_managers(&mut new, &old);
        let extra = if actor.token {
            json!({ "authentication.kubernetes.io/credential-id": ["JTI=x"] })
        } else {
            json!({})
        };
        let review = json!({
            "operation": operation,
            "resource": { "group": group, "version": "v1", "resource": resource },
            "subResource": part,
            "namespace": namespace,
            "name": if object.generated { "" } else { name },
            "userInfo": { "username": actor.user, "groups": actor.groups, "extra": extra },
            "dryRun": case.dry_run,
            "object": (operation != "DELETE").then_some(&new),
            "oldObject": (operation != "CREATE").then_some(&old),
        });
        let request = Request::read(&review).map_err(|error| error.to_string())?;
        let concerns = rules::concerns(
            &facts,
            request.actor.user,
            request.resource,
            namespace,
            request.old_object,
        );
        if concerns == case.outside {
            return Err(format!("{case:?}\n    is asked about: {concerns}"));
        }
        let decision = rules::decide(&facts, &request, &Around(actor, self));
        check_changes(&facts, &request, &decision);
        let is_right = match (&decision, &case.allow, &case.deny) {
            (Decision::Allow { changes, warnings, .. }, Some(allowed), None) => {
                is_expected(changes, allowed) && check_warnings(warnings, allowed)
            }
            // Admission also makes a claim.
            (Decision::Allow { .. }, None, Some(_)) => case.claimed,
            (Decision::Deny(refusal), None, Some(rule)) => {
                refusal.rule.as_str() == rule && refusal.to_string().contains(&case.saying)
            }
            _ => false,
        };
        // With any other value in any place: the rules answer, and twice with the same answer.
        for seed in 1..=40 {
            let mut broken = review.clone();
            break_somewhere(&mut broken, &mut u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
            if let Ok(request) = Request::read(&broken) {
                let around = Around(actor, self);
                let _asked = rules::concerns(
                    &facts,
                    request.actor.user,
                    request.resource,
                    request.namespace,
                    request.old_object,
                );
                let answers = [(); 2].map(|()| rules::decide(&facts, &request, &around));
                assert_eq!(answers[0], answers[1]);
                check_changes(&facts, &request, &answers[0]);
            }
        }
        if is_right && settles(&facts, &review, &decision, &Around(actor, self)) {
            Ok(())
        } else {
            Err(format!("{case:?}\n    gives {decision:?}"))
        }
    }
}

/// Checks that a resource which needs only one check gets no changes.
fn check_changes(facts: &FactIndex, request: &Request<'_>, decision: &Decision) {
    if let Decision::Allow { changes, .. } = decision {
        let resource = request.resource;
        let may_change =
            rules::changes(resource.group, resource.name) && rules::may_change(facts, resource, request.namespace);
        assert!(may_change || changes.is_empty(), "{request:?} gives {changes:?}");
    }
}

/// The fields that get a Tenant's default.
const FIELDS: [&str; 6] = [
    "ingressClassName",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "runtimeClassName",
    "storageClassName",
];

fn is_expected(changes: &[Change], allowed: &Allowed) -> bool {
    let label = |key: &'static str, value: &Option<String>| value.clone().map(|value| Change::Label { key, value });
    let account = allowed.account.clone().map(|value| Change::SpecField {
        key: "serviceAccountName",
        value: Value::from(value),
    });
    let defaults = [
        label("capsule.clastix.io/tenant", &allowed.label),
        label("sharding.fluxcd.io/key", &allowed.shard),
        account,
    ];
    let defaults = defaults.into_iter().flatten();
    let mut fields: Vec<Change> = Vec::new();
    for (key, value) in &allowed.fields {
        let known = FIELDS.into_iter().find(|known| known == key).expect("a known field");
        fields.push(Change::SpecField {
            key: known,
            value: value.clone(),
        });
    }
    let marks = allowed.marks.iter().map(|mark| {
        let (part, pair) = mark.split_once(' ').expect("what is marked");
        let part = ["labels", "annotations"].into_iter().find(|known| *known == part);
        let (key, value) = pair.split_once('=').expect("a value");
        Change::Metadata {
            part: part.expect("a known part"),
            key: key.to_owned(),
            value: value.to_owned(),
        }
    });
    defaults.chain(fields).chain(marks).eq(changes.iter().cloned())
}

fn check_warnings(warnings: &[String], allowed: &Allowed) -> bool {
    match (warnings, &allowed.warning) {
        ([], None) => true,
        ([one], Some(part)) => one.contains(part),
        _ => false,
    }
}

/// Checks whether the changed object is allowed without another change.
fn settles(facts: &FactIndex, review: &Value, decision: &Decision, around: &Around<'_>) -> bool {
    let Decision::Allow { changes, .. } = decision else {
        return true;
    };
    let mut again = review.clone();
    for change in changes {
        change.make(&mut again["object"]);
    }
    let request = Request::read(&again).unwrap();
    let next = rules::decide(facts, &request, around);
    matches!(next, Decision::Allow { changes, .. } if changes.is_empty())
}

/// Replaces a value at a random place.
fn break_somewhere(value: &mut Value, chance: &mut u64) {
    let mut draw = |below: usize| {
        *chance ^= *chance << 13;
        *chance ^= *chance >> 7;
        *chance ^= *chance << 17;
        usize::try_from(*chance % u64::try_from(below.max(1)).unwrap()).unwrap()
    };
    let others = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(""),
        json!("\u{0}../é"),
        json!([]),
        json!([null, 1, "a", {}]),
        json!({}),
        json!({ "a": [{ "b": null }] }),
    ];
    let stay = draw(4) == 0;
    let choice = draw(others.len());
    let inner = match value {
        Value::Object(map) if !stay && !map.is_empty() => {
            let position = draw(map.len());
            map.values_mut().nth(position)
        }
        Value::Array(list) if !stay && !list.is_empty() => {
            let position = draw(list.len());
            list.get_mut(position)
        }
        _ => None,
    };
    match inner {
        Some(inner) => break_somewhere(inner, chance),
        None => *value = others[choice].clone(),
    }
}
