//! Other users of a tenant's account: which RBAC rights count, and the message about them.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenure_planner::Next;
use tenure_planner::tenant::account_access::{
    AccessFacts, AccessFindings, HomeAccount, find_due, find_running, summarize_access,
};
use tenure_tenancy::access::bindings::{Bindings, Roles};

use crate::tenant::{make_snapshot, now, record_namespaces, run_until_settled};

fn make_account() -> HomeAccount {
    HomeAccount {
        home: "blue".to_owned(),
        account: "blue-gitops".to_owned(),
    }
}

/// ClusterRoles in their usual forms: an editor's rights, all rights, a proxy's rights, and fewer.
fn make_roles() -> Roles {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!([{ "apiGroups": groups, "resources": resources, "verbs": verbs }]);
    let tokens = json!([
        { "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"] },
        { "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"] },
        { "apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["*"] }
    ]);
    let named = json!([{ "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"], "resourceNames": ["other"] }]);
    let mut roles = Roles::default();
    for (name, rules) in [
        ("edit", tokens),
        ("cluster-admin", rule(&["*"], &["*"], &["*"])),
        ("capsule-proxy", rule(&[""], &["users", "groups"], &["impersonate"])),
        (
            "bind",
            rule(&["rbac.authorization.k8s.io"], &["clusterroles"], &["bind"]),
        ),
        (
            "view",
            rule(&[""], &["configmaps", "pods", "secrets"], &["get", "list", "watch"]),
        ),
        ("of-another", named),
    ] {
        roles.add(&json!({ "metadata": { "name": name }, "rules": rules }));
    }
    roles
}

fn make_bindings(all: &[(&str, &str, Value)]) -> Bindings {
    let mut bindings = Bindings::default();
    for (name, role, subject) in all {
        let reference = json!({ "kind": "ClusterRole", "name": role });
        let binding = json!({ "metadata": { "name": name }, "roleRef": reference, "subjects": [subject] });
        bindings.add(&binding, &Roles::default(), &make_roles());
    }
    bindings
}

fn make_user(name: &str) -> Value {
    json!({ "kind": "User", "name": name })
}

fn make_group(name: &str) -> Value {
    json!({ "kind": "Group", "name": name })
}

fn make_service_account(namespace: &str, name: &str) -> Value {
    json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
}

/// Lists the reported ways for bindings at home and in the cluster.
fn list_ways(own: &[(&str, &str, Value)], cluster: &[(&str, &str, Value)]) -> Vec<String> {
    let seen = AccessFacts {
        pods: Ok(Vec::new()),
        own: Ok(make_bindings(own)),
        cluster: &Ok(make_bindings(cluster)),
    };
    let findings = summarize_access(make_account(), &seen, "tenure-system", now());
    assert_eq!(findings.unseen, Vec::<String>::new());
    findings.ways
}

#[test]
fn account_access_is_reported_with_subject_and_binding() {
    let alice = "alice asks for its tokens, speaks in its name, starts Pods as it (RoleBinding owner)";
    assert_eq!(list_ways(&[("owner", "edit", make_user("alice"))], &[]), [alice]);
    for (role, subject, expected) in [
        (
            "cluster-admin",
            make_service_account("flux-system", "kustomize-controller"),
            Some(
                "system:serviceaccount:flux-system:kustomize-controller starts Pods as it, asks for its tokens, speaks in its name, gives itself any right",
            ),
        ),
        (
            "capsule-proxy",
            make_service_account("capsule-system", "capsule-proxy"),
            Some("system:serviceaccount:capsule-system:capsule-proxy speaks in its name"),
        ),
        ("bind", make_user("bob"), Some("bob gives itself any right")),
        (
            "edit",
            make_group("system:authenticated"),
            Some("group system:authenticated starts"),
        ),
        (
            "edit",
            make_group("system:serviceaccounts:blue"),
            Some("group system:serviceaccounts:blue starts"),
        ),
        (
            "edit",
            make_group("system:serviceaccounts"),
            Some("group system:serviceaccounts starts"),
        ),
        // Users that repair every Tenant, Kubernetes' own accounts, Tenure's, and the account itself.
        ("cluster-admin", make_user("root"), None),
        ("cluster-admin", make_group("admins"), None),
        ("cluster-admin", make_group("system:masters"), None),
        ("edit", make_user("system:kube-controller-manager"), None),
        ("edit", make_service_account("kube-system", "job-controller"), None),
        (
            "edit",
            make_service_account("tenure-system", "tenure-lane-tenant-blue"),
            None,
        ),
        ("edit", make_group("system:serviceaccounts:tenure-system"), None),
        ("edit", make_service_account("blue", "blue-gitops"), None),
        // A user with read access, and a user with rights on another account.
        ("view", make_user("eve"), None),
        ("of-another", make_user("eve"), None),
    ] {
        let ways = list_ways(&[], &[("wide", role, subject.clone())]);
        match expected {
            None => assert_eq!(ways, Vec::<String>::new(), "{role} {subject}"),
            Some(words) => {
                // The order of the ways in a message is undefined.
                let who = words
                    .split_once(" starts")
                    .or_else(|| words.split_once(" speaks"))
                    .map_or(words, |(who, _)| who);
                assert_eq!(ways.len(), 1, "{role} {subject}: {ways:?}");
                assert!(
                    ways[0].starts_with(who) && ways[0].ends_with("(ClusterRoleBinding wide)"),
                    "{ways:?}"
                );
            }
        }
    }
}

/// A user with rights on bindings chooses their names and their number.
#[test]
fn reported_findings_are_bounded() {
    let long = "x".repeat(100_000);
    let many: Vec<(&str, &str, Value)> = (0..500)
        .map(|number| ("b", "edit", make_user(&format!("{number}-{long}"))))
        .collect();
    let seen = AccessFacts {
        pods: Ok((0..1000).map(|number| format!("pod-{number}")).collect()),
        own: Ok(make_bindings(&many)),
        cluster: &Err("the controllers may not list them".to_owned()),
    };
    let mut snapshot = at_home();
    let findings = summarize_access(make_account(), &seen, "tenure-system", now());
    assert!(
        findings.unseen.iter().any(|what| what.starts_with("some RoleBindings")),
        "{:?}",
        findings.unseen
    );
    assert!(serde_json::to_string(&findings).unwrap().len() < 64 << 10);
    snapshot.access_findings = Some(findings);
    let message = plan_condition(&mut snapshot);
    assert!(message.2.len() < 4096, "{}", message.2.len());
}

#[test]
fn a_pod_runs_as_the_account_that_it_names() {
    let pod = |spec: Value| find_running(&make_account(), &json!({ "metadata": { "name": "web" }, "spec": spec }));
    assert_eq!(
        pod(json!({ "serviceAccountName": "blue-gitops" })).as_deref(),
        Some("web")
    );
    assert_eq!(pod(json!({ "serviceAccount": "blue-gitops" })).as_deref(), Some("web"));
    assert_eq!(pod(json!({ "serviceAccountName": "other" })), None);
    assert_eq!(pod(json!({})), None);
}

/// A Tenant that has its home.
fn at_home() -> tenure_planner::tenant::Snapshot {
    let owners = json!([{ "name": "blue", "uid": "t" }]);
    let home = json!([{ "name": "blue", "uid": "n1", "tenantLabel": "blue", "tenantOwners": owners }]);
    let mut snapshot = make_snapshot(json!({}), home);
    record_namespaces(&mut snapshot, &[("blue", "n1")]);
    snapshot
}

/// Status, reason and message of the condition.
fn plan_condition(snapshot: &mut tenure_planner::tenant::Snapshot) -> (String, String, String) {
    let status = run_until_settled(snapshot).1.status.unwrap();
    let mut conditions = status.conditions.iter();
    let message = conditions
        .find(|condition| condition.type_ == "AccountExclusive")
        .unwrap();
    (
        message.status.as_str().to_owned(),
        message.reason.clone(),
        message.message.clone(),
    )
}

fn make_findings(pods: &[&str], ways: &[&str], unseen: &[&str]) -> AccessFindings {
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
    AccessFindings {
        at: now(),
        place: make_account(),
        pods: texts(pods),
        ways: texts(ways),
        unseen: texts(unseen),
    }
}

#[test]
fn findings_are_reported_with_the_state_of_admission() {
    let way = ["alice asks for its tokens (RoleBinding owner)"];
    let (found, nothing) = (make_findings(&[], &way, &[]), make_findings(&[], &[], &[]));
    let running = make_findings(&["web"], &[], &[]);
    let blind = make_findings(&[], &[], &["Pods (the controllers may not list them)"]);
    for (seen, is_guarded, is_exclusive, status, words) in [
        (
            &nothing,
            true,
            false,
            "True",
            "no other account is known to be able to act as ServiceAccount blue-gitops, the account of the tenant's surfaces",
        ),
        (&found, false, false, "False", "Admission is off here"),
        (
            &found,
            true,
            false,
            "False",
            "To refuse them: kubectl annotate tenant blue tenure.dev/gitops-account=exclusive",
        ),
        (&found, true, true, "True", "Admission refuses attempts of others"),
        // The annotation alone refuses nothing.
        (&found, false, true, "False", "Admission is off here"),
        (&running, true, true, "False", "Pods run as it: web"),
        (
            &blind,
            true,
            false,
            "Unknown",
            "Not checked: Pods (the controllers may not list them), Secrets",
        ),
        (
            &nothing,
            true,
            false,
            "True",
            "kubectl get secrets -n blue --field-selector type=kubernetes.io/service-account-token",
        ),
    ] {
        let mut snapshot = at_home();
        Arc::make_mut(&mut snapshot.tenancy).settings.is_guarded = is_guarded;
        if is_exclusive {
            let annotations = json!({ "tenure.dev/gitops-account": "exclusive" });
            snapshot.tenant.metadata.annotations = serde_json::from_value(annotations).unwrap();
        }
        snapshot.access_findings = Some(seen.clone());
        let (value, reason, message) = plan_condition(&mut snapshot);
        assert_eq!(value, status, "{reason}: {message}");
        assert!(message.contains(words), "{words}: {message}");
    }
}

/// Before the first look nothing is reported, and the look comes soon. The next look comes when the result is old, or is about another account.
#[test]
fn account_access_is_checked_in_time() {
    let mut snapshot = at_home();
    let plan = run_until_settled(&mut snapshot).1;
    let soon = now().checked_add(SignedDuration::from_secs(2)).unwrap();
    assert_eq!(plan.next, Next::Done(Some(soon)));
    let at = |seconds: i64| now().checked_add(SignedDuration::from_secs(seconds)).unwrap();
    let due = |snapshot: &tenure_planner::tenant::Snapshot, seconds: i64| {
        find_due(
            &snapshot.tenant,
            &snapshot.tenancy,
            snapshot.access_findings.as_ref(),
            at(seconds),
        )
    };
    assert_eq!(due(&snapshot, 0), Some(make_account()));
    snapshot.access_findings = Some(make_findings(&[], &[], &[]));
    assert_eq!(run_until_settled(&mut snapshot).1.next, Next::Done(Some(at(600))));
    assert_eq!((due(&snapshot, 599), due(&snapshot, 600)), (None, Some(make_account())));
    snapshot.access_findings = Some(make_findings(&[], &[], &["Pods (no)"]));
    assert_eq!((due(&snapshot, 29), due(&snapshot, 30)), (None, Some(make_account())));
    let mut other = make_findings(&[], &[], &[]);
    other.place.account = "robot".to_owned();
    snapshot.access_findings = Some(other);
    assert_eq!(due(&snapshot, 0), Some(make_account()));
    // A home that isn't recorded, or isn't there, has no account.
    record_namespaces(&mut snapshot, &[]);
    assert_eq!(due(&snapshot, 0), None);
}
