//! Plans for a Tenant: the namespaces that it takes, the bindings in them, and the released objects.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_admission_rules::policy::{HandEditDenials, MintableAccounts, describe_namespace};
use tenure_planner::answer::{Answer, DeleteAnswer, Failure, Reason};
use tenure_planner::tenant::{Attempt, Memory, Plan, Snapshot, plan};
use tenure_planner::{Live, Next, Object, Request, WriteAnswer, invariants};
use tenure_tenancy::{FactIndex, TenancyFacts};

pub(crate) fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn make_tenancy(namespaces: Value) -> Arc<TenancyFacts> {
    let tenants = json!([{ "name": "blue", "uid": "t" }]);
    Arc::new(serde_json::from_value(json!({ "tenants": tenants, "namespaces": namespaces })).unwrap())
}

pub(crate) fn make_snapshot(spec: Value, namespaces: Value) -> Snapshot {
    let tenant: tenure_api::Tenant = serde_json::from_value(json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
        "metadata": { "name": "blue", "uid": "t", "generation": 1 },
        "spec": spec,
    }))
    .unwrap();
    Snapshot {
        tenancy: make_tenancy(namespaces),
        live: Default::default(),
        access_findings: None,
        creation_proof: "proof-1".to_owned(),
        are_policies_in_force: false,
        attempt: Attempt::new(now(), &tenant.metadata),
        memory: Memory::default(),
        tenant,
    }
}

/// The status that an earlier plan has left: with these namespaces, and their uids, as the record.
pub(crate) fn record_namespaces(snapshot: &mut Snapshot, namespaces: &[(&str, &str)]) {
    let spaces = namespaces.iter().map(|(name, uid)| json!({ "name": name, "uid": uid }));
    let names: Vec<&str> = namespaces.iter().map(|(name, _)| *name).collect();
    let status = json!({
        "size": names.len(), "state": "Active", "namespaces": names, "spaces": spaces.collect::<Value>(),
        "conditions": [{
            "type": "NamespacesRecorded", "status": "True", "reason": "Recorded", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "message": "the namespaces in status.spaces are the Tenant's"
        }]
    });
    snapshot.tenant.status = serde_json::from_value(status).unwrap();
}

/// Makes a snapshot in which admission checks the writers of a namespace's owner.
pub(crate) fn with_policies(mut snapshot: Snapshot) -> Snapshot {
    Arc::make_mut(&mut snapshot.tenancy).settings.is_guarded = true;
    snapshot
}

pub(crate) fn run_until_settled(snapshot: &mut Snapshot) -> (Vec<String>, Plan) {
    settle_at(snapshot, now())
}

pub(crate) fn settle_at(snapshot: &mut Snapshot, at: Timestamp) -> (Vec<String>, Plan) {
    let mut steps = Vec::new();
    for _ in 0..10 {
        let plan = plan(snapshot, at);
        assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
        if plan.next != Next::Again {
            return (steps, plan);
        }
        for step in &plan.steps {
            if !matches!(step, Request::Read(_)) {
                steps.push(step.to_string());
            }
            match step {
                Request::Read(target) => {
                    snapshot.live.entry(target.id.clone()).or_insert(Live::Absent);
                }
                Request::Apply(apply) => {
                    let mut object = apply.object.0.clone();
                    // Existing namespaces keep their uids.
                    let known = snapshot
                        .tenancy
                        .namespaces
                        .iter()
                        .find(|known| known.name == apply.id.name);
                    let uid = known.map_or_else(|| format!("uid-{}", apply.id.name), |known| known.uid.clone());
                    object["metadata"]["uid"] = json!(uid);
                    let answer = Answer::Applied(apply.id.clone(), WriteAnswer::Done(Object(object)));
                    let implied = snapshot.attempt.record_answer(answer);
                    // Namespaces are known from the tenancy facts.
                    snapshot.live.extend(implied.filter(|(id, _)| id.kind != "Namespace"));
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

const OWNED: &str = r#"[
    { "name": "blue", "uid": "n1", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "t" }] }
]"#;

#[test]
fn new_tenant_gets_home_bindings_and_identity() {
    let spec = json!({
        "owners": [{ "kind": "User", "name": "alice" }, { "kind": "Group", "name": "devs", "clusterRoles": ["view"] }],
        "additionalRoleBindings": [{ "clusterRoleName": "logs", "subjects": [{ "kind": "Group", "name": "ops" }] }],
        "storageClasses": { "allowed": ["fast"] },
    });
    let namespaces =
        json!([{ "name": "blue-dev", "uid": "n2", "tenantLabel": "blue" }, { "name": "other", "uid": "n3" }]);
    let mut snapshot = with_policies(make_snapshot(spec, namespaces));
    let (steps, plan) = run_until_settled(&mut snapshot);
    insta::assert_snapshot!("tenant_new_steps", steps.join("\n"));
    insta::assert_snapshot!("tenant_new_plan", plan.to_string());
    let objects: Vec<&Value> = snapshot.live.values().filter_map(Live::object).collect();
    insta::assert_snapshot!("tenant_new_objects", serde_json::to_string_pretty(&objects).unwrap());
}

#[test]
fn removed_owner_loses_only_own_bindings() {
    let owner = json!({ "owners": [{ "kind": "User", "name": "alice", "clusterRoles": ["admin"] }] });
    let mut snapshot = make_snapshot(owner, serde_json::from_str(OWNED).unwrap());
    run_until_settled(&mut snapshot);
    // The labels match, but the uid is not this Tenant's: the object belongs to another owner.
    let foreign = json!({ "metadata": { "uid": "x", "labels": { "capsule.clastix.io/tenant": "blue", "app.kubernetes.io/managed-by": "tenure" } } });
    snapshot.live.insert(
        "other_mine_rbac.authorization.k8s.io_RoleBinding".parse().unwrap(),
        Live::Present(Object(foreign)),
    );
    snapshot.tenant.spec.owners.clear();
    snapshot.attempt = Attempt::new(now(), &snapshot.tenant.metadata);
    let (steps, _) = run_until_settled(&mut snapshot);
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(
        steps[0].starts_with("delete RoleBinding/blue/capsule:managed:"),
        "{steps:?}"
    );
    snapshot.attempt = Attempt::new(now(), &snapshot.tenant.metadata);
    assert_eq!(run_until_settled(&mut snapshot).0, Vec::<String>::new());
}

#[test]
fn namespaces_that_are_not_its_are_not_taken() {
    let cases = [
        (
            json!([{ "name": "blue", "uid": "n" }]),
            json!({}),
            "is not labelled capsule.clastix.io/tenant=blue",
        ),
        (
            json!([{ "name": "blue", "uid": "n", "tenantLabel": "blue", "tenantOwners": [{ "name": "blue", "uid": "older" }] }]),
            json!({}),
            "another Tenant owns it",
        ),
        (
            json!([{ "name": "kube-system", "uid": "n", "tenantLabel": "blue" }]),
            json!({}),
            "it belongs to Kubernetes",
        ),
        (
            json!([{ "name": "tenure-system", "uid": "n", "tenantLabel": "blue" }]),
            json!({}),
            "it is the platform namespace",
        ),
        (
            json!([{ "name": "more", "uid": "n", "tenantLabel": "blue" }]),
            json!({ "namespaceOptions": { "quota": 1 } }),
            "at most 1 namespace",
        ),
        (
            json!([]),
            json!({ "owners": [{ "kind": "ServiceAccount", "name": "robot" }] }),
            "system:serviceaccount:<namespace>:<name>",
        ),
        (
            json!([]),
            json!({ "owners": [{ "kind": "Robot", "name": "x" }] }),
            "is not a kind of owner",
        ),
    ];
    for (namespaces, spec, message) in cases {
        let mut snapshot = with_policies(make_snapshot(spec, namespaces));
        let (steps, plan) = run_until_settled(&mut snapshot);
        assert!(plan.to_string().contains(message), "{message}: {plan}");
        assert!(plan.to_string().contains("Ready=False"), "{plan}");
        for name in ["kube-system", "tenure-system", "more"] {
            assert!(
                !steps.iter().any(|step| step.contains(&format!("Namespace/{name} "))),
                "{steps:?}"
            );
        }
    }
}

#[test]
fn named_service_account_replaces_generated_one() {
    let spec = json!({ "owners": [{ "kind": "ServiceAccount", "name": "system:serviceaccount:blue:deployer", "clusterRoles": ["edit"] }] });
    let mut snapshot = make_snapshot(spec, serde_json::from_str(OWNED).unwrap());
    let (steps, plan) = run_until_settled(&mut snapshot);
    assert!(
        !steps
            .iter()
            .any(|step| step.contains("ServiceAccount/") || step.contains("tenure:gitops")),
        "{steps:?}"
    );
    assert!(plan.to_string().contains("Ready=True"), "{plan}");
}

#[test]
fn refused_write_waits_despite_wakes_of_tenant() {
    let mut snapshot = make_snapshot(json!({ "owners": [{ "kind": "User", "name": "alice" }] }), json!([]));
    let mut writes = 0;
    // Namespaces come and go elsewhere, a hundred times a second for a minute; the home namespace may not be made.
    for wake in 0..6_000_i64 {
        let at = now().checked_add(jiff::SignedDuration::from_millis(wake * 10)).unwrap();
        snapshot.attempt = Attempt::new(at, &snapshot.tenant.metadata);
        loop {
            let plan = plan(&snapshot, at);
            assert_eq!(invariants::check_plan(&plan), Vec::<String>::new(), "{plan}");
            snapshot.memory = plan.memory.clone();
            if plan.next != Next::Again {
                break;
            }
            for step in &plan.steps {
                let Request::Apply(apply) = step else { panic!("{step}") };
                writes += 1;
                let failure = Failure {
                    code: 403,
                    reason: Reason::Forbidden,
                    message: "cannot create namespaces".to_owned(),
                    ..Failure::default()
                };
                snapshot
                    .attempt
                    .applied
                    .insert(apply.id.clone(), WriteAnswer::Failed(failure));
            }
        }
    }
    assert_eq!(writes, 7, "pauses of 0.5, 1, 2, 4, 8, 16 and 30 seconds");
}

/// The administrator decides which ClusterRoles may be bound, so the Tenant's message says how.
#[test]
fn unbindable_role_is_reported_with_remedy() {
    let additional = json!([{ "clusterRoleName": "viewer", "subjects": [{ "kind": "User", "name": "bob" }] }]);
    let spec = json!({ "owners": [{ "kind": "User", "name": "alice" }], "additionalRoleBindings": additional });
    let owners = json!([{ "name": "blue", "uid": "t" }]);
    let mut snapshot = make_snapshot(
        spec,
        json!([{ "name": "blue", "uid": "n1", "tenantLabel": "blue", "tenantOwners": owners }]),
    );
    for _ in 0..10 {
        let plan = plan(&snapshot, now());
        snapshot.memory = plan.memory.clone();
        for step in &plan.steps {
            match step {
                Request::Read(target) => {
                    snapshot.live.insert(target.id.clone(), Live::Absent);
                }
                Request::Apply(apply) => {
                    let failure = Failure {
                        code: 403,
                        reason: Reason::Forbidden,
                        message: "attempting to grant RBAC permissions not currently held".to_owned(),
                        ..Failure::default()
                    };
                    let is_refused = apply.object.0["roleRef"]["name"] == "viewer";
                    let answer = if is_refused {
                        WriteAnswer::Failed(failure)
                    } else {
                        WriteAnswer::Done(apply.object.clone())
                    };
                    snapshot.attempt.applied.insert(apply.id.clone(), answer);
                }
                other => panic!("{other}"),
            }
        }
        if plan.next != Next::Again {
            let written = plan.to_string();
            assert!(
                written.contains("the verb bind on clusterroles by name, for viewer"),
                "{written}"
            );
            return;
        }
    }
    panic!("no end");
}

#[test]
fn changed_tenant_or_tenancy_facts_overtake_plan() {
    let known = json!([{ "name": "blue", "uid": "n1" }]);
    let snapshot = make_snapshot(json!({}), known.clone());
    let check = |change: fn(&mut tenure_api::Tenant), namespaces: &Value, expected: bool| {
        let mut tenant = snapshot.tenant.clone();
        change(&mut tenant);
        assert_eq!(
            snapshot.is_overtaken(&tenant, &make_tenancy(namespaces.clone())),
            expected
        );
    };
    assert!(!snapshot.is_overtaken(&snapshot.tenant, &snapshot.tenancy));
    check(|_| {}, &known, false);
    // The controller's own writes are no news.
    check(
        |tenant| tenant.metadata.resource_version = Some("7".to_owned()),
        &known,
        false,
    );
    check(|tenant| tenant.metadata.generation = Some(2), &known, true);
    check(|tenant| tenant.metadata.uid = Some("u".to_owned()), &known, true);
    check(|tenant| tenant.metadata.annotations = Some([].into()), &known, true);
    check(|_| {}, &json!([]), true);
}

fn find_unenforced(spec: &Value, (is_guarded, has_policies): (bool, bool)) -> String {
    let mut snapshot = make_snapshot(spec.clone(), serde_json::from_str(OWNED).unwrap());
    let tenancy = Arc::make_mut(&mut snapshot.tenancy);
    (tenancy.settings.is_guarded, tenancy.settings.has_policies) = (is_guarded, has_policies);
    let (_, plan) = run_until_settled(&mut snapshot);
    let status = plan.status.unwrap();
    // While no webhook answers, these marks say where no write is allowed.
    let marks = status.spaces[0].metadata.as_ref();
    let is_marked = marks.is_some_and(|marks| {
        marks
            .labels
            .get("tenure.dev/bounded")
            .is_some_and(|value| value == "true")
    });
    assert_eq!(is_marked, is_guarded);
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.unwrap().message.clone()
}

#[test]
fn fields_for_admission_are_unenforced_only_without_admission() {
    let spec = json!({
        "storageClasses": { "allowed": ["fast"], "matchLabels": { "a": "b" } },
        "imagePullPolicies": ["Always"],
        "ingressOptions": { "hostnameCollisionScope": "Tenant", "allowedHostnames": { "allowed": ["a.example.org"] } },
        "serviceOptions": { "externalIPs": { "allowed": [] }, "additionalMetadata": { "labels": { "a": "b" } } },
        "namespaceOptions": { "forbiddenLabels": { "denied": ["x"] } },
        "gatewayOptions": {}
    });
    let kept = "1 namespace; stored, but without effect: spec.gatewayOptions";
    assert_eq!(find_unenforced(&spec, (true, false)), kept);
    assert_eq!(
        find_unenforced(&spec, (false, true)),
        format!(
            "{kept}, spec.serviceOptions.additionalMetadata, spec.namespaceOptions.forbiddenLabels (of new namespaces); refused, since no policy can \
             decide what these would allow: spec.storageClasses.matchLabels, matchExpressions, spec.ingressOptions.hostnameCollisionScope; owners get their \
             RoleBindings as soon as policies enforce the Tenant's rules in namespaces blue"
        )
    );
    assert_eq!(
        find_unenforced(&spec, (false, false)),
        format!(
            "{kept}, spec.storageClasses, spec.ingressOptions, spec.imagePullPolicies, spec.serviceOptions, \
             spec.namespaceOptions.forbiddenLabels"
        )
    );
}

#[test]
fn an_unknown_scope_is_reported_as_unenforced() {
    let is_reported = |word: &str| {
        let spec = json!({ "ingressOptions": { "hostnameCollisionScope": word } });
        find_unenforced(&spec, (true, false))
    };
    for known in ["Cluster", "Tenant", "Namespace", "Disabled"] {
        assert_eq!(is_reported(known), "1 namespace", "{known}");
    }
    assert_eq!(
        is_reported("Galaxy"),
        "1 namespace; stored, but without effect: spec.ingressOptions.hostnameCollisionScope"
    );
}

#[test]
fn an_unreadable_expression_is_reported() {
    let spec = json!({
        "containerRegistries": { "allowedRegex": "(" },
        "serviceOptions": { "externalIPs": { "allowed": ["192.0.2.0/99"] }, "forbiddenLabels": { "deniedRegex": "[" } }
    });
    assert_eq!(
        find_unenforced(&spec, (true, false)).lines().collect::<Vec<_>>(),
        [
            "spec.containerRegistries.allowedRegex: missing closing ): `(`: nothing is allowed by it; correct it, or list names in allowed",
            "spec.serviceOptions.forbiddenLabels.deniedRegex: missing closing ]: `[`: everything is denied by it; correct it, or list names in \
             denied",
            "spec.serviceOptions.externalIPs.allowed: \"192.0.2.0/99\" is neither an address nor a network: nothing is allowed by it; write it \
             as 192.0.2.0/24 or 2001:db8::/64",
        ]
    );
    assert!(find_unenforced(&spec, (false, false)).contains("without effect: spec.containerRegistries"));
}

/// Makes a Tenant of an attestation that ends at this time.
fn make_attested(name: &str, end: &str, prevent_deletion: bool) -> Snapshot {
    let mut snapshot = make_snapshot(json!({ "preventDeletion": prevent_deletion }), json!([]));
    let metadata = &mut snapshot.tenant.metadata;
    metadata.name = Some(name.to_owned());
    metadata.labels = Some([("tenure.dev/attest".to_owned(), "true".to_owned())].into());
    metadata.annotations = Some([("tenure.dev/attest-expires".to_owned(), end.to_owned())].into());
    snapshot
}

#[test]
fn only_expired_attestation_tenants_are_deleted() {
    let ends = |snapshot: &Snapshot| {
        let is_of_tenant = |step: &Request| match step {
            Request::Delete(delete) => delete.target.id.kind == "Tenant" && delete.uid.as_deref() == Some("t"),
            Request::Apply(apply) => apply.id.kind == "Tenant",
            _ => false,
        };
        plan(snapshot, now()).steps.iter().any(is_of_tenant)
    };
    let past = "2025-12-31T23:59:59Z";
    assert!(ends(&make_attested("attest-0a", past, false)));
    assert!(ends(&make_attested("attest-0a", past, true)), "it is let go first");
    for other in [
        make_attested("blue", past, false),
        make_attested("attest-0a", "2026-01-01T00:00:01Z", false),
        make_attested("attest-0a", "whenever", false),
    ] {
        assert!(!ends(&other), "{:?}", other.tenant.metadata);
    }
    // A deletion without effect is requested again, but not at once.
    let mut asked = make_attested("attest-0a", past, false);
    let Some(Request::Delete(delete)) = plan(&asked, now()).steps.pop() else {
        panic!("it is deleted");
    };
    asked.attempt.deleted.insert(delete.target.id, DeleteAnswer::Accepted);
    let waits = plan(&asked, now());
    assert!(
        waits.steps.is_empty() && matches!(waits.next, Next::Done(Some(at)) if at > now()),
        "{waits:?}"
    );
}

/// The live namespace `blue`, with these annotations.
fn see_namespace(snapshot: &mut Snapshot, annotations: &Value) {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "blue", "uid": "n1", "annotations": annotations } });
    let id = "_blue__Namespace".parse().unwrap();
    snapshot.live.insert(id, Live::Present(Object(object)));
}

#[test]
fn owners_are_bound_once_policies_know_the_namespace() {
    let spec = json!({
        "owners": [{ "kind": "User", "name": "alice" }],
        "containerRegistries": { "allowed": ["docker.io"] }, "nodeSelector": { "pool": "blue" }
    });
    let namespaces: Value = serde_json::from_str(OWNED).unwrap();
    let check = |annotations: &dyn Fn(&Snapshot) -> Value, are_in_force: bool, bound: bool| {
        let mut snapshot = make_snapshot(spec.clone(), namespaces.clone());
        let tenancy = Arc::make_mut(&mut snapshot.tenancy);
        tenancy.settings.has_policies = true;
        tenancy.tenants = vec![tenure_tenancy::TenantFacts::from(&snapshot.tenant)];
        snapshot.are_policies_in_force = are_in_force;
        let annotations = annotations(&snapshot);
        see_namespace(&mut snapshot, &annotations);
        let (steps, plan) = run_until_settled(&mut snapshot);
        let is_bound = steps
            .iter()
            .any(|step| step.contains("RoleBinding/blue/capsule:managed:"));
        assert_eq!(is_bound, bound, "{annotations}: {steps:?}");
        let is_early = steps.iter().any(|step| step.contains("RoleBinding/blue/tenure:gitops"));
        assert_eq!(is_early, bound, "{steps:?}");
        let waits = "owners get their RoleBindings as soon as policies enforce the Tenant's rules in namespaces blue";
        assert_eq!(plan.to_string().contains(waits), !bound, "{plan}");
    };
    let facts = |snapshot: &Snapshot| {
        let facts = FactIndex::from_facts(&snapshot.tenancy);
        let mut written = json!(describe_namespace(
            &facts,
            (&HandEditDenials::default(), &MintableAccounts::default()),
            "blue"
        ));
        written["scheduler.alpha.kubernetes.io/node-selector"] = json!("pool=blue");
        written
    };
    let with = |key: &'static str, value: Value| {
        move |snapshot: &Snapshot| {
            let mut written = facts(snapshot);
            match value.is_null() {
                true => drop(written.as_object_mut().unwrap().remove(key)),
                false => written[key] = value.clone(),
            }
            written
        }
    };
    check(&|_| json!({}), true, false);
    check(&facts, true, true);
    check(&facts, false, false);
    // The facts are from a time without an owner, or of a Tenant that allowed more.
    check(&|_| json!({ "facts.tenure.dev/tenant": "" }), true, false);
    check(&with("facts.tenure.dev/container-registries", Value::Null), true, false);
    check(&with("facts.tenure.dev/wildcard-hostnames", json!("true")), true, false);
    // The namespace lacks an annotation that another controller obeys.
    check(
        &with("scheduler.alpha.kubernetes.io/node-selector", Value::Null),
        true,
        false,
    );
    // No owner has to wait for the facts about other namespaces or about Kustomizations.
    check(&with("facts.tenure.dev/namespaces", json!("blue,gone")), true, true);
    check(&with("facts.tenure.dev/refusing", json!("blue/x ")), true, true);
}

#[test]
fn a_namespace_keeps_a_stricter_pod_security_level() {
    let key = "pod-security.kubernetes.io/enforce";
    // The parameters are: the Tenant's level, the installation's, the record, the live label; the written and the recorded level.
    let check = |level: Option<&str>,
                 default: &str,
                 recorded: Option<Option<&str>>,
                 live: Option<&str>,
                 expected: (Option<&str>, Option<&str>)| {
        let mut snapshot = make_snapshot(json!({}), serde_json::from_str(OWNED).unwrap());
        Arc::make_mut(&mut snapshot.tenancy).settings.pod_security = default.parse().unwrap();
        if let Some(level) = level {
            let annotations = json!({ "tenure.dev/pod-security": level });
            snapshot.tenant.metadata.annotations = serde_json::from_value(annotations).unwrap();
        }
        if let Some(level) = recorded {
            record_namespaces(&mut snapshot, &[("blue", "n1")]);
            let metadata = level.map(|level| json!({ "labels": { key: level } }));
            let spaces = &mut snapshot.tenant.status.as_mut().unwrap().spaces;
            spaces[0].metadata = serde_json::from_value(json!(metadata)).unwrap();
        }
        snapshot.attempt = Attempt::new(now(), &snapshot.tenant.metadata);
        let labels = live.map_or(json!({}), |live| json!({ key: live }));
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "blue", "uid": "n1", "labels": labels } });
        snapshot
            .live
            .insert("_blue__Namespace".parse().unwrap(), Live::Present(Object(object)));
        let first = plan(&snapshot, now());
        let written = first.steps.iter().find_map(|step| match step {
            Request::Apply(apply) if apply.id.kind == "Namespace" => {
                let label = apply.object.0["metadata"]["labels"][key].as_str();
                Some(label.unwrap_or_default().to_owned())
            }
            _ => None,
        });
        let (_, end) = run_until_settled(&mut snapshot);
        let status = end.status.or(snapshot.tenant.status).unwrap();
        let recorded_level = status.spaces[0]
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.labels.get(key).cloned());
        assert_eq!(
            (written.as_deref(), recorded_level.as_deref()),
            expected,
            "{level:?} {default} {recorded:?} {live:?}"
        );
    };
    let (baseline, restricted) = (Some("baseline"), Some("restricted"));
    // A new namespace, and one that was there before levels were set.
    check(None, "baseline", None, None, (baseline, baseline));
    check(None, "baseline", Some(None), None, (None, None));
    check(restricted, "baseline", Some(None), None, (restricted, restricted));
    check(None, "privileged", None, None, (None, None));
    let privileged = Some("privileged");
    check(privileged, "baseline", None, None, (privileged, privileged));
    // An unknown level is the strictest.
    check(Some("basline"), "baseline", None, None, (restricted, restricted));
    // A stricter level of an owner stays, and a weaker one doesn't.
    check(None, "baseline", Some(baseline), restricted, (None, baseline));
    check(
        None,
        "baseline",
        Some(baseline),
        Some("privileged"),
        (baseline, baseline),
    );
    // A level that Tenure wrote is lowered with the Tenant's.
    check(
        Some("baseline"),
        "baseline",
        Some(restricted),
        restricted,
        (baseline, baseline),
    );
}
