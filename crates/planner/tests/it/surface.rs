//! Plans for a Surface: the generated objects at each tier, the refusals, and the summary in its status.

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_planner::answer::{Answer, DeleteAnswer, Failure, Reason};
use tenure_planner::surface::ownership::{self, TrialAnswer, TrialResult};
use tenure_planner::surface::{Attempt, Memory, Plan, Snapshot, plan};
use tenure_planner::{Live, Next, Object, Request, WriteAnswer, invariants};
use tenure_tenancy::TenancyFacts;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn make_snapshot(namespace: &str, spec: Value) -> Snapshot {
    snapshot_of(("apps", namespace), spec, now())
}

/// Makes the first snapshot of a Surface with this name at this time, in a namespace of tenant `blue`, of the platform, or without an owner.
pub(crate) fn snapshot_of((name, namespace): (&str, &str), spec: Value, at: Timestamp) -> Snapshot {
    let tenancy: TenancyFacts = serde_json::from_value(json!({
        "tenants": [{ "name": "blue", "uid": "t", "recorded": { "blue": "n-blue", "blue-dev": "n-blue-dev" } }],
        "namespaces": [
            { "name": "tenure-system" },
            { "name": "nobody" },
            { "name": "blue", "uid": "n-blue", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "t" }] },
            { "name": "blue-dev", "uid": "n-blue-dev", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "t" }] },
        ],
    }))
    .unwrap();
    let surface: tenure_api::Surface = serde_json::from_value(json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface",
        "metadata": { "name": name, "namespace": namespace, "uid": "s", "generation": 1 },
        "spec": spec,
    }))
    .unwrap();
    Snapshot {
        placement: tenancy.find_placement(namespace),
        live: std::collections::BTreeMap::new(),
        lane_trouble: None,
        judges_writes: true,
        ownership: None,
        keys: std::collections::BTreeMap::new(),
        access: std::collections::BTreeMap::new(),
        attempt: Attempt::new(at, &surface.metadata),
        memory: Memory::default(),
        surface,
    }
}

fn plan_now(snapshot: &Snapshot) -> Plan {
    let plan = plan(snapshot, now());
    assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
    plan
}

/// Executes plans on a cluster that accepts everything, until no immediate step is left.
fn run_until_settled(snapshot: &mut Snapshot) -> Plan {
    for _ in 0..10 {
        let plan = plan_now(snapshot);
        if plan.next != Next::Again {
            return plan;
        }
        for step in &plan.steps {
            match step {
                Request::Read(target) => {
                    snapshot.live.entry(target.id.clone()).or_insert(Live::Absent);
                }
                Request::Apply(apply) => {
                    let mut object = apply.object.0.clone();
                    object["metadata"]["generation"] = json!(1);
                    object["metadata"]["uid"] = json!("child");
                    object["metadata"]["managedFields"] =
                        json!([{ "manager": "tenure-controller", "fieldsV1": { "f:spec": {} } }]);
                    let answer = Answer::Applied(apply.id.clone(), WriteAnswer::Done(Object(object)));
                    snapshot.live.extend(snapshot.attempt.record_answer(answer));
                }
                Request::Delete(delete) => {
                    let answer = Answer::Deleted(delete.target.id.clone(), DeleteAnswer::Absent);
                    snapshot.attempt.record_answer(answer);
                    snapshot.live.insert(delete.target.id.clone(), Live::Absent);
                }
                other => panic!("{other}"),
            }
        }
    }
    panic!("it never ends")
}

fn describe_generated(snapshot: &Snapshot) -> String {
    let objects: Vec<&Value> = snapshot.live.values().filter_map(Live::object).collect();
    serde_json::to_string_pretty(&objects).unwrap()
}

#[test]
fn a_tenant_surface_acts_as_the_tenant_and_orphans() {
    let mut snapshot = make_snapshot(
        "blue",
        json!({ "sources": [
            { "name": "base", "url": "https://example.com/base.git", "path": "deploy", "wait": true,
              "decryption": { "provider": "sops", "secretRef": { "name": "keys" } } },
            { "name": "shop", "url": "https://example.com/shop.git", "ref": { "tag": "v1" }, "secretRef": { "name": "key" },
              "dependsOn": [{ "name": "base" }],
              "paths": [{ "name": "dev", "path": "dev", "targetNamespace": "blue-dev" }, { "name": "live", "path": "live" }] },
        ] }),
    );
    let plan = run_until_settled(&mut snapshot);
    insta::assert_snapshot!("surface_tenant_children", describe_generated(&snapshot));
    insta::assert_snapshot!("surface_tenant_plan", plan.to_string());

    // A new attempt has nothing more to write.
    snapshot.surface.status = plan.status;
    snapshot.attempt = Attempt::new(now(), &snapshot.surface.metadata);
    let again = plan_now(&snapshot);
    assert_eq!((again.steps.len(), again.status.as_ref()), (0, None), "{again}");

    // A source that is gone takes its Kustomizations first, then its repository.
    snapshot.surface.spec.sources.truncate(1);
    let removed = plan_now(&snapshot);
    let order: Vec<String> = removed.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        order,
        [
            "delete Kustomization/blue/apps-shop-dev: the surface no longer has this source",
            "delete Kustomization/blue/apps-shop-live: the surface no longer has this source",
            "delete GitRepository/blue/apps-shop: the surface no longer has this source",
        ]
    );
}

/// Everything is applied, and a Deployment is not healthy yet: the Surface names it.
#[test]
fn surface_names_the_object_whose_health_it_waits_for() {
    let source = |name: &str| json!({ "name": name, "url": "https://example.com/app.git", "wait": true });
    let check = |sources: Value, expected: &str| {
        let mut snapshot = make_snapshot("blue", json!({ "sources": sources }));
        run_until_settled(&mut snapshot);
        let condition = |type_: &str, message: &str| json!({ "type": type_, "status": "Unknown", "reason": "Progressing", "message": message });
        for live in snapshot.live.values_mut() {
            if let Live::Present(object) = live
                && object.0["kind"] == "Kustomization"
            {
                object.0["status"] = json!({ "observedGeneration": 1, "conditions": [
                    condition("Ready", "Reconciliation in progress"),
                    condition("Healthy", "applied; waiting for Deployment team-a/api to be healthy"),
                ] });
            }
        }
        let plan = run_until_settled(&mut snapshot).to_string();
        assert!(
            plan.contains(&format!("Ready=Unknown Progressing: {expected}\n")),
            "{plan}"
        );
    };
    check(
        json!([source("app")]),
        "applied; waiting for Deployment team-a/api to be healthy",
    );
    check(
        json!([source("app"), source("db")]),
        "0 of 2 sources are ready; source app: applied; waiting for Deployment team-a/api to be healthy",
    );
}

#[test]
fn a_platform_surface_names_its_identity() {
    let mut snapshot = make_snapshot(
        "tenure-system",
        json!({ "serviceAccountName": "admin", "sources": [{ "name": "platform", "url": "https://example.com/p.git" }] }),
    );
    run_until_settled(&mut snapshot);
    let text = describe_generated(&snapshot);
    assert!(
        text.contains("\"serviceAccountName\": \"admin\"") && !text.contains("deletionPolicy"),
        "{text}"
    );
}

#[test]
fn invalid_surface_is_refused_and_generates_nothing() {
    let source = json!({ "name": "a", "url": "https://example.com/a.git" });
    let with = |fields: Value| {
        let mut source = source.clone();
        for (key, value) in fields.as_object().unwrap() {
            source[key] = value.clone();
        }
        json!({ "sources": [source] })
    };
    let cases = [
        ("blue-dev", with(json!({})), "create the Surface there"),
        ("nobody", with(json!({})), "has no identity"),
        ("tenure-system", with(json!({})), "must name its account"),
        (
            "blue",
            json!({ "serviceAccountName": "admin", "sources": [source] }),
            "can't choose another",
        ),
        ("blue", json!({ "sources": [] }), "spec.sources is empty"),
        ("blue", json!({ "sources": [source, source] }), "two sources called a"),
        (
            "blue",
            with(json!({ "targetNamespace": "tenure-system" })),
            "does not belong to tenant blue",
        ),
        (
            "blue",
            with(json!({ "paths": [{ "name": "x", "path": "x", "targetNamespace": "nobody" }] })),
            "does not belong to tenant blue",
        ),
        (
            "blue",
            with(json!({ "path": "x", "paths": [{ "name": "x", "path": "x" }] })),
            "path and paths are both set",
        ),
        (
            "blue",
            with(json!({ "dependsOn": [{ "name": "a" }] })),
            "leads back to itself",
        ),
        (
            "blue",
            with(json!({ "dependsOn": [{ "name": "b" }] })),
            "there is no source called b",
        ),
        ("blue", with(json!({ "name": "A_b" })), "is not a valid name"),
        (
            "blue",
            with(json!({ "secretRef": { "name": "../x" } })),
            "not a valid object name",
        ),
        (
            "blue",
            with(json!({ "decryption": { "provider": "sops", "secretRef": { "name": "../x" } } })),
            "is not the name of a Secret",
        ),
        (
            "blue",
            with(json!({ "decryption": { "provider": "vault", "secretRef": { "name": "keys" } } })),
            "decryption.provider must be sops",
        ),
        ("blue", with(json!({ "interval": "soon" })), "is not a duration"),
        (
            "blue",
            with(json!({ "name": "a".repeat(60) })),
            "longer than 63 characters",
        ),
    ];
    for (namespace, spec, message) in cases {
        let plan = plan_now(&make_snapshot(namespace, spec));
        assert!(
            plan.steps.is_empty() && plan.to_string().contains(message),
            "{message}: {plan}"
        );
        assert!(plan.to_string().contains("Stalled=True"), "{plan}");
    }
}

#[test]
fn foreign_object_is_not_taken_over() {
    let mut snapshot = make_snapshot(
        "blue",
        json!({ "sources": [{ "name": "a", "url": "https://example.com/a.git" }] }),
    );
    let id = "blue_apps-a_kustomize.toolkit.fluxcd.io_Kustomization".parse().unwrap();
    // The label alone does not make it the surface's.
    let other = json!({ "metadata": { "labels": { "tenure.dev/surface": "apps" } } });
    snapshot.live.insert(id, Live::Present(Object(other)));
    let plan = run_until_settled(&mut snapshot);
    assert!(
        plan.to_string().contains("exists and was not made by this surface"),
        "{plan}"
    );
}

#[test]
fn the_status_says_what_the_failing_source_says() {
    let mut snapshot = make_snapshot(
        "blue",
        json!({ "sources": [{ "name": "a", "url": "https://example.com/a.git" }] }),
    );
    run_until_settled(&mut snapshot);
    let condition = |status: &str, reason: &str, message: &str| json!({ "observedGeneration": 1, "conditions": [{ "type": "Ready", "status": status, "reason": reason, "message": message }] });
    let set = |snapshot: &mut Snapshot, id: &str, status: Value| {
        let Some(Live::Present(object)) = snapshot.live.get_mut(&id.parse().unwrap()) else {
            panic!("{id}")
        };
        object.0["status"] = status;
    };
    let (repository, kustomization) = (
        "blue_apps-a_source.toolkit.fluxcd.io_GitRepository",
        "blue_apps-a_kustomize.toolkit.fluxcd.io_Kustomization",
    );
    let mut good = condition("True", "Succeeded", "stored");
    good["artifact"] = json!({ "revision": "main@sha1:1" });
    set(&mut snapshot, repository, good);
    set(
        &mut snapshot,
        kustomization,
        condition("False", "AccessDenied", "Namespace/x is cluster-scoped"),
    );
    let failed = plan_now(&snapshot).to_string();
    assert!(
        failed.contains("Ready=False AccessDenied: source a: Namespace/x is cluster-scoped"),
        "{failed}"
    );
    let mut applied = condition("True", "ReconciliationSucceeded", "Applied revision: main@sha1:1");
    applied["lastAppliedRevision"] = json!("main@sha1:1");
    set(&mut snapshot, kustomization, applied);
    let ready = plan_now(&snapshot).to_string();
    assert!(
        ready.contains("Ready=True ReconciliationSucceeded: 1 source is applied"),
        "{ready}"
    );
}

#[test]
fn refused_write_waits_despite_wakes_of_surface() {
    let spec = json!({ "sources": [{ "name": "base", "url": "https://example.com/base.git", "path": "deploy" }] });
    let mut snapshot = make_snapshot("blue", spec);
    let start = now();
    let mut writes = 0;
    let mut events = 0;
    // A wake every ten milliseconds for a minute; every write is refused.
    for wake in 0..6_000_i64 {
        let at = start.checked_add(jiff::SignedDuration::from_millis(wake * 10)).unwrap();
        snapshot.attempt = Attempt::new(at, &snapshot.surface.metadata);
        loop {
            let plan = plan(&snapshot, at);
            assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
            snapshot.memory = plan.memory.clone();
            events += plan.events.len();
            if let Some(status) = plan.status {
                snapshot.surface.status = Some(status);
            }
            if plan.next != Next::Again {
                break;
            }
            for step in &plan.steps {
                match step {
                    Request::Read(target) => drop(snapshot.live.insert(target.id.clone(), Live::Absent)),
                    Request::Apply(apply) => {
                        writes += 1;
                        let failure = Failure {
                            code: 403,
                            reason: Reason::Forbidden,
                            message: "exceeded quota".to_owned(),
                            ..Failure::default()
                        };
                        snapshot
                            .attempt
                            .applied
                            .insert(apply.id.clone(), WriteAnswer::Failed(failure));
                    }
                    other => panic!("{other}"),
                }
            }
        }
    }
    // Two objects; pauses of 0.5, 1, 2, 4, 8, 16 and 30 seconds.
    assert_eq!((writes, events), (2 * 7, 1));

    // The spec changed: the plan acts at once.
    snapshot.surface.metadata.generation = Some(2);
    snapshot.attempt = Attempt::new(start, &snapshot.surface.metadata);
    let plan = plan_now(&snapshot);
    assert_eq!(plan.steps.len(), 2, "{plan}");
}

/// While its lane is down, a Surface reports the reason and does nothing. A Ready Surface stays Ready, and everything is as before when the lane is back.
#[test]
fn a_surface_says_why_its_lane_is_down() {
    let mut snapshot = make_snapshot(
        "blue",
        json!({ "sources": [{ "name": "app", "url": "https://git.example/app" }] }),
    );
    snapshot.surface.status = serde_json::from_value(json!({ "observedGeneration": 1, "conditions": [{
        "type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "all is well",
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }] }))
    .unwrap();
    let placement = snapshot.placement.clone();
    let words = "Waiting for lane tenant/blue: it was killed";
    assert!(snapshot.is_overtaken(&snapshot.surface, &placement, Some(words)));
    snapshot.lane_trouble = Some(words.to_owned());
    assert!(!snapshot.is_overtaken(&snapshot.surface, &placement, Some(words)));
    let plan = plan_now(&snapshot);
    assert_eq!((plan.steps.len(), &plan.next), (0, &Next::Done(None)));
    let messages: Vec<&str> = plan.events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(messages, [words]);
    let status = plan.status.expect("a status");
    let conditions: Vec<(&str, &str)> = status
        .conditions
        .iter()
        .map(|condition| (condition.type_.as_str(), condition.message.as_str()))
        .collect();
    assert_eq!(conditions, [("Ready", "all is well"), ("Reconciling", words)]);
    // The reason is reported once.
    snapshot.surface.status = Some(status);
    let again = plan_now(&snapshot);
    assert_eq!((again.status, again.events.len()), (None, 0));
    assert!(snapshot.is_overtaken(&snapshot.surface, &placement, None));
    snapshot.lane_trouble = None;
    assert!(!plan_now(&snapshot).steps.is_empty(), "it goes on");
}

/// Packages are tried only as the platform's surfaces, once and then from time to time. The result is reported as long as nothing refuses the trial.
#[test]
fn protection_of_a_charts_fields_is_tried_and_reported() {
    let spec =
        json!({ "serviceAccountName": "admin", "sources": [{ "name": "a", "url": "https://git.example.org/a" }] });
    let mut of_platform = make_snapshot("tenure-system", spec.clone());
    let account = ownership::find_due(&of_platform, now()).expect("it is due");
    assert_eq!(account.to_string(), "system:serviceaccount:tenure-system:admin");
    let mut of_tenant = spec;
    of_tenant.as_object_mut().unwrap().remove("serviceAccountName");
    assert!(ownership::find_due(&make_snapshot("blue", of_tenant), now()).is_none());
    let answered = |refusal: Option<&str>| TrialAnswer::Answered {
        package: "cozystack.a".to_owned(),
        refusal: refusal.map(str::to_owned),
    };
    let failed = TrialAnswer::Failed {
        why: "no answer".to_owned(),
    };
    for (answer, message, minutes) in [
        (answered(None), Some("cozystack.a was not refused"), 5),
        (answered(Some("no: do that (field-ownership)")), None, 60),
        (
            answered(Some("packages is forbidden")),
            Some("met something else: packages is forbidden"),
            5,
        ),
        (failed, Some("it can't be tried: no answer"), 5),
        (TrialAnswer::WritesNone, None, 60),
    ] {
        of_platform.ownership = Some(TrialResult {
            at: now(),
            account: account.to_string(),
            answer,
        });
        assert!(ownership::find_due(&of_platform, now()).is_none());
        let plan = run_until_settled(&mut of_platform);
        let status = serde_json::to_value(plan.status.as_ref().unwrap()).unwrap();
        let conditions = status["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|found| found["type"] == "OwnershipNotEnforced");
        match message {
            Some(message) => assert!(
                found.unwrap()["message"].as_str().unwrap().contains(message),
                "{found:?}"
            ),
            None => assert!(found.is_none(), "{found:?}"),
        }
        let Next::Done(Some(at)) = plan.next else {
            panic!("{plan}")
        };
        assert_eq!(at.duration_since(now()).as_secs(), minutes * 60);
        assert!(ownership::find_due(&of_platform, at).is_some());
    }
    of_platform.surface.spec.service_account_name = Some("other".to_owned());
    assert!(ownership::find_due(&of_platform, now()).is_some());
    assert_eq!(
        ownership::choose_package(["cozystack.cozystack-platform", "b", "a"].into_iter()),
        "a"
    );
    assert_eq!(
        ownership::choose_package(["cozystack.cozystack-platform"].into_iter()),
        "cozystack.tenure-trial"
    );
    let rule = |verbs: &[&str], names: &[&str]| json!({ "apiGroups": ["cozystack.io"], "resources": ["packages"], "verbs": verbs, "resourceNames": names });
    let review = json!({ "status": { "resourceRules": [
        rule(&["get", "patch"], &["cozystack.b", "cozystack.cozystack-platform"]), rule(&["get"], &["cozystack.a"])
    ] } });
    let named: Vec<String> = ownership::list_package_candidates(&review).into_iter().collect();
    assert_eq!(named, ["cozystack.b"], "the one that is free proves nothing");
    let many: Vec<String> = (0..1000).map(|number| format!("cozystack.{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let review = json!({ "status": { "resourceRules": [rule(&["*"], &many)] } });
    assert_eq!(ownership::list_package_candidates(&review).len(), 32);
}

/// A named Secret stays; a source without one gets the Secret of its approved project.
#[test]
fn source_without_secret_gets_secret_of_approved_project() {
    let spec = json!({ "serviceAccountName": "deployer", "sources": [
        { "name": "app", "url": "https://git.example/group-1/app.git" },
        { "name": "named", "url": "https://git.example/group-1/app.git", "secretRef": { "name": "mine" } },
        { "name": "public", "url": "https://git.example/group-1/other.git" },
    ] });
    let mut snapshot = make_snapshot("tenure-system", spec);
    snapshot.access = ["app", "named"]
        .map(|source| (source.to_owned(), "gitlab-flux-token".to_owned()))
        .into();
    run_until_settled(&mut snapshot);
    let secret = |source: &str| {
        let live = snapshot
            .live
            .iter()
            .find(|(id, _)| id.kind == "GitRepository" && id.name == format!("apps-{source}"));
        match live.map(|(_, live)| live) {
            Some(Live::Present(Object(object))) => object["spec"]["secretRef"]["name"].clone(),
            other => panic!("{source}: {other:?}"),
        }
    };
    assert_eq!(secret("app"), json!("gitlab-flux-token"));
    assert_eq!(secret("named"), json!("mine"));
    assert_eq!(secret("public"), Value::Null);
}

/// Later requests of other clients stay.
/// A Receiver, or a user of `tenure reconcile` for a child, made a later request than the Surface did.
#[test]
fn reconcile_request_is_passed_on_once() {
    let spec = json!({ "sources": [{ "name": "shop", "url": "https://example.com/shop.git" }] });
    let mut snapshot = make_snapshot("blue", spec);
    let ask = |snapshot: &mut Snapshot, token: &str| {
        let annotations = snapshot.surface.metadata.annotations.get_or_insert_default();
        annotations.insert("reconcile.fluxcd.io/requestedAt".to_owned(), token.to_owned());
        snapshot.attempt = Attempt::new(now(), &snapshot.surface.metadata);
    };
    let read = |snapshot: &Snapshot| {
        let objects = snapshot.live.values().filter_map(Live::object);
        let annotations = objects.map(|object| &object["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"]);
        annotations.cloned().collect::<Vec<_>>()
    };
    run_until_settled(&mut snapshot);
    assert_eq!(read(&snapshot), [Value::Null, Value::Null]);
    ask(&mut snapshot, "1");
    run_until_settled(&mut snapshot);
    assert_eq!(read(&snapshot), ["1", "1"]);

    for live in snapshot.live.values_mut() {
        if let Live::Present(object) = live {
            object.0["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"] = json!("2 of a Receiver");
        }
    }
    snapshot.attempt = Attempt::new(now(), &snapshot.surface.metadata);
    let again = plan_now(&snapshot);
    assert_eq!(again.steps.len(), 0, "{again}");
    // A write for another reason does not change it.
    snapshot.surface.spec.sources[0].wait = true;
    run_until_settled(&mut snapshot);
    assert_eq!(read(&snapshot), ["2 of a Receiver", "2 of a Receiver"]);

    ask(&mut snapshot, "3");
    run_until_settled(&mut snapshot);
    assert_eq!(read(&snapshot), ["3", "3"]);
}
