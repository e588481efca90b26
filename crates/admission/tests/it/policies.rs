//! The policies, evaluated without a server: every case of tenancy's table, and requests like them by chance.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use structured_merge::Timestamp;
use tenure_admission_rules::policy::{LEFT, PolicyGap, find_policy_gap};
use tenure_admission_rules::{Decision, Operation, Request, Rule};
use tenure_api::ObjectMeta;

use crate::expressions::{World, Writer, settle};
use crate::table::{Actor, ByPolicy, Case};

/// A writer that writes long after all others, and sends no field manager.
const PLAIN: Writer<'_> = Writer {
    manager: "probe",
    is_named: false,
    now: Timestamp::from_unix_seconds(1_800_000_000),
};

/// 2026-01-01T00:00:00Z: the time at which a chart wrote the existing object.
const AT_ONCE: Timestamp = Timestamp::from_unix_seconds(1_767_225_600);

#[test]
fn every_case_is_answered_as_the_table_says() {
    let world = World::make();
    let mut wrong = Vec::new();
    for (index, case) in world.table.cases.iter().enumerate() {
        let actor = &world.table.actors[&case.by];
        let mut review = world.review(case, actor);
        settle(&mut review, case.sent.as_ref(), PLAIN);
        let refuses = world.refuses(actor, &review);
        let wanted = match &case.policy {
            Some(ByPolicy::Server(_)) => continue,
            Some(ByPolicy::Refuses(_) | ByPolicy::Says(_)) => true,
            Some(ByPolicy::Leaves(_)) => false,
            None => case.deny.is_some(),
        };
        if refuses != wanted {
            wrong.push(format!("{}: refused: {refuses}", case.name(index)));
        }
        // Policies warn only of overridden fields.
        let allowed = case.allow.as_ref().and_then(|allowed| allowed.warning.as_deref());
        let is_overridden = allowed.is_some_and(|warning| warning.contains("you override"));
        let warns = world.matches_policy(actor, &review, true);
        if !refuses && warns != is_overridden {
            wrong.push(format!("{}: warned of: {warns}", case.name(index)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Random numbers, the same ones in every run.
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

/// Replacement words for texts of a request.
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

/// Changes a text, removes a value or adds one, at a random place.
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
    let (mut denied, mut left, mut allowed_by_both) = (BTreeMap::new(), 0, 0);
    for round in 0..20_000 {
        let case = chance.pick(&world.table.cases);
        let actor = if chance.draw(3) == 0 {
            *chance.pick(&actors)
        } else {
            &world.table.actors[&case.by]
        };
        let mut review = world.review(case, actor);
        // The stored form of a Tenant or a Namespace is the known one, and no server changes names.
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
            review["namespace"] = json!(chance.pick(&world.table.tenancy.namespaces).name);
        }
        keep_identity(&mut review, &world.review(case, actor));
        // No server sends invalid metadata of an object.
        let is_object = |part: &str| {
            let metadata = review[part].get("metadata").cloned().unwrap_or_default();
            review[part].is_null() || serde_json::from_value::<ObjectMeta>(metadata).is_ok()
        };
        if !is_object("object") || !is_object("oldObject") {
            continue;
        }
        let writer = Writer {
            manager: MANAGERS[chance.draw(MANAGERS.len())],
            is_named: chance.draw(2) == 0,
            now: *chance.pick(&[PLAIN.now, AT_ONCE]),
        };
        settle(&mut review, case.sent.as_ref(), writer);
        let Some(decision) = world.decide(actor, &review) else {
            continue;
        };
        let refuses = world.refuses(actor, &review);
        match decision {
            Decision::Allow { .. } => allowed_by_both += usize::from(!refuses),
            Decision::Deny(refusal) => {
                *denied.entry(refusal.rule).or_insert(0) += 1;
                let is_left = find_policy_gap(&Request::read(&review).unwrap(), &refusal).is_some();
                left += usize::from(is_left);
                assert!(refuses || is_left, "round {round}: {refusal}\n{review:#}");
            }
        }
    }
    println!("denied: {denied:?}, of which {left} are left; {allowed_by_both} allowed by both");
    let all: usize = denied.values().sum();
    assert!(
        all - left > 4_000 && allowed_by_both > 4_000,
        "{all} {left} {allowed_by_both}"
    );
    for rule in [Rule::GitManaged, Rule::FieldOwnership] {
        assert!(denied.get(&rule).is_some_and(|many| *many > 100), "{rule}: {denied:?}");
    }
}

/// The names that clients send as field manager.
const MANAGERS: [&str; 5] = ["probe", "probe", "kustomize-controller", "helm-controller", "helm"];

/// Restores kind, name and namespace of the object: no server changes them.
fn keep_identity(review: &mut Value, before: &Value) {
    let namespace = review["namespace"].clone();
    for part in ["object", "oldObject"] {
        if review[part].is_null() {
            continue;
        }
        for key in ["apiVersion", "kind"] {
            if let Some(value) = before[part].get(key) {
                review[part][key] = value.clone();
            }
        }
        let is_named = before[part]["metadata"].get("namespace").is_some();
        if let Some(metadata) = review[part]["metadata"].as_object_mut().filter(|_| is_named) {
            metadata.insert("namespace".to_owned(), namespace.clone());
        }
    }
}

/// Decides a case. Returns the entry of `LEFT` if the rules deny the case and no policy can.
fn find_what_is_left(world: &World, case: &Case) -> Option<&'static PolicyGap> {
    let actor = &world.table.actors[&case.by];
    let mut review = world.review(case, actor);
    settle(&mut review, case.sent.as_ref(), PLAIN);
    match world.decide(actor, &review).unwrap() {
        Decision::Deny(refusal) => find_policy_gap(&Request::read(&review).unwrap(), &refusal),
        Decision::Allow { .. } => None,
    }
}

/// The only entries without a case in the table. Two clients within one second have a test of their own.
const IN_NO_CASE: [Rule; 1] = [Rule::FieldOwnership];

#[test]
fn table_shows_every_policy_gap_with_reason() {
    let world = World::make();
    let mut shown = BTreeSet::new();
    for (index, case) in world.table.cases.iter().enumerate() {
        // The table makes no statement about a case that no server can be asked.
        let is_asked = case.pure_only.is_empty();
        assert!(is_asked || case.unanswered.is_none(), "{}", case.name(index));
        let Some(ByPolicy::Leaves(why)) = &case.policy else {
            continue;
        };
        assert_eq!(case.unanswered.is_some(), is_asked, "{}", case.name(index));
        let rule = case.deny.as_deref().expect("what is left is denied by the rules");
        // The rules leave a claim to their caller.
        let found = if case.claimed {
            LEFT.iter().find(|left| left.rule.as_str() == rule && left.why == why)
        } else {
            find_what_is_left(&world, case)
        };
        let found = found.map(|left| (left.rule.as_str(), left.why));
        assert_eq!(found, Some((rule, why.as_str())), "{}", case.name(index));
        shown.insert((rule, why.as_str()));
    }
    for left in LEFT.iter().filter(|left| !IN_NO_CASE.contains(&left.rule)) {
        assert!(shown.contains(&(left.rule.as_str(), left.why)), "{left:?}");
    }
}

#[test]
fn documentation_lists_every_policy_gap() {
    let page = include_str!("../../../../docs/reference/admission.md");
    let table = page
        .split_once("| rule | by policy | left to others |\n")
        .expect("a table")
        .1;
    let mut documented = BTreeSet::new();
    for row in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [rules, _, left] = cells.as_slice() else {
            panic!("{row}");
        };
        for rule in rules
            .split('`')
            .filter(|text| Rule::ALL.iter().any(|rule| rule.as_str() == *text))
        {
            documented.extend(left.split("; ").filter(|why| !why.is_empty()).map(|why| (rule, why)));
        }
    }
    let listed: BTreeSet<(&str, &str)> = LEFT.iter().map(|left| (left.rule.as_str(), left.why)).collect();
    assert_eq!(documented, listed);
}

/// The policy misses a writer that uses the chart's field manager only if the chart's entries are of
/// an older release, and only within one second.
#[test]
fn policy_misses_forged_chart_manager_for_one_second() {
    let world = World::make();
    let (actor, object) = (&world.table.actors["customizer"], |value: u8| {
        let fields = json!({ "f:spec": { "f:components": { "f:a": { "f:values": { "f:x": {} } } } } });
        json!({
            "metadata": { "name": "cozystack.metallb", "managedFields": [{
                "manager": "helm-controller", "operation": "Update", "apiVersion": "cozystack.io/v1alpha1",
                "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields
            }] },
            "spec": { "components": { "a": { "values": { "x": value } } } }
        })
    });
    let ask = |writer: Writer<'_>| {
        let mut review = json!({
            "operation": "UPDATE", "resource": { "group": "cozystack.io", "version": "v1alpha1", "resource": "packages" }, "subResource": "",
            "namespace": "", "name": "cozystack.metallb", "userInfo": { "username": actor.user, "groups": [] },
            "object": object(2), "oldObject": object(1)
        });
        settle(&mut review, None, writer);
        let request = Request::read(&review).unwrap();
        assert_eq!(request.operation, Operation::Update);
        let Some(Decision::Deny(refusal)) = world.decide(actor, &review) else {
            panic!("the rule sees everybody: {review:#}");
        };
        (
            world.refuses(actor, &review),
            find_policy_gap(&request, &refusal).is_some(),
        )
    };
    let chart = Writer {
        manager: "helm-controller",
        ..PLAIN
    };
    assert_eq!(ask(PLAIN), (true, false));
    assert_eq!(ask(chart), (true, false));
    assert_eq!(ask(Writer { now: AT_ONCE, ..chart }), (false, true));
    let named = Writer {
        now: AT_ONCE,
        is_named: true,
        ..chart
    };
    assert!(ask(named).0);
}

/// Without webhooks, policies refuse objects whose check needs other objects: the labels of a class, and the hosts
/// of other Ingresses.
#[test]
fn policies_alone_refuse_undecidable_objects() {
    let (beside, alone) = (World::make(), World::without_webhooks());
    let mut refused = BTreeMap::new();
    for (index, case) in beside.table.cases.iter().enumerate() {
        let Some(ByPolicy::Leaves(why)) = &case.policy else {
            continue;
        };
        let rule = case.deny.as_deref().unwrap();
        let is_of_objects = why == "no namespace has the labels of a class" || rule == "ingress-options";
        if !is_of_objects {
            continue;
        }
        let actor = &beside.table.actors[&case.by];
        let mut review = beside.review(case, actor);
        settle(&mut review, case.sent.as_ref(), PLAIN);
        assert!(!beside.refuses(actor, &review), "{}", case.name(index));
        assert!(alone.refuses(actor, &review), "{}", case.name(index));
        *refused.entry(rule).or_insert(0) += 1;
    }
    assert!(
        refused.len() >= 4 && refused.contains_key("storage-classes"),
        "{refused:?}"
    );
    assert!(refused["ingress-options"] >= 2, "{refused:?}");
}

/// Owners may create only namespaces with that prefix. Webhooks look names up instead.
#[test]
fn policies_alone_require_tenant_name_as_prefix() {
    let (beside, alone) = (World::make(), World::without_webhooks());
    let ask = |world: &World, by: &str, name: &str| {
        let actor = &world.table.actors[by];
        let object = json!({ "metadata": { "name": name, "labels": { "capsule.clastix.io/tenant": "blue" } } });
        let review = json!({
            "operation": "CREATE", "resource": { "group": "", "version": "v1", "resource": "namespaces" },
            "subResource": "", "namespace": name, "name": name,
            "userInfo": { "username": actor.user, "groups": actor.groups }, "object": object
        });
        world.refuses(actor, &review)
    };
    for (name, is_refused) in [
        ("blue-x", false),
        ("blue", false),
        // Tenant blue-two exists.
        ("blue-two", true),
        ("blue-two-x", true),
        ("blue-twos", false),
        ("blues", true),
        ("x-blue", true),
        ("ci", true),
    ] {
        assert_eq!(ask(&alone, "dev", name), is_refused, "{name}");
        assert!(!ask(&beside, "dev", name), "webhooks look names up: {name}");
        assert!(!ask(&alone, "admin", name), "{name}");
    }
    for world in [&alone, &beside] {
        assert!(ask(world, "dev", "argocd") && !ask(world, "admin", "argocd"));
    }
}

/// A new host or path is refused if the Tenant compares hosts.
#[test]
fn ingress_keeps_existing_hosts_under_policies_alone() {
    let world = World::without_webhooks();
    let one = |host: &str, path: &str, to: &str| {
        json!({ "host": host, "http": { "paths": [
            { "path": path, "pathType": "Prefix", "backend": { "service": { "name": to, "port": { "number": 80 } } } }
        ] } })
    };
    let before = json!({ "rules": [one("a.example.org", "/", "s"), { "host": "b.example.org" }] });
    let ask = |by: &str, namespace: &str, spec: Value| {
        let write = |spec: &Value| json!({ "metadata": { "name": "x", "namespace": namespace }, "spec": spec });
        let actor = &world.table.actors[by];
        let review = json!({
            "operation": "UPDATE", "resource": { "group": "networking.k8s.io", "version": "v1", "resource": "ingresses" },
            "subResource": "", "namespace": namespace, "name": "x",
            "userInfo": { "username": actor.user, "groups": actor.groups }, "object": write(&spec), "oldObject": write(&before)
        });
        world.refuses(actor, &review)
    };
    let another_service = json!({ "rules": [one("a.example.org", "/", "t"), { "host": "b.example.org" }] });
    assert!(!ask("dev", "sum-a", before.clone()));
    assert!(!ask("dev", "sum-a", another_service));
    assert!(!ask(
        "dev",
        "sum-a",
        json!({ "rules": [one("a.example.org", "/", "s")] })
    ));
    assert!(!ask("dev", "sum-a", json!({})));
    // A rule without paths has the path `/`, and a default backend has no host that another Ingress
    // could have.
    assert!(!ask(
        "dev",
        "sum-a",
        json!({ "rules": [one("b.example.org", "/", "s"), { "host": "a.example.org" }] })
    ));
    let backend = json!({ "service": { "name": "s", "port": { "number": 80 } } });
    assert!(!ask(
        "dev",
        "sum-a",
        json!({ "rules": before["rules"], "defaultBackend": backend })
    ));
    for new in [
        json!({ "rules": [one("c.example.org", "/", "s")] }),
        json!({ "rules": [one("a.example.org", "/more", "s")] }),
        json!({ "rules": [one("", "/", "s")] }),
        json!({ "rules": [{}] }),
    ] {
        assert!(ask("dev", "sum-a", new.clone()), "{new}");
        assert!(!ask("admin", "sum-a", new.clone()), "who repairs goes on: {new}");
        assert!(
            !ask("dev", "blue", new.clone()),
            "a Tenant that says nothing of it: {new}"
        );
    }
}

#[test]
fn overlong_denial_list_refuses_more_edits() {
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
        // This policy refuses nothing.
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
fn large_objects_stay_within_cost_limit() {
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
