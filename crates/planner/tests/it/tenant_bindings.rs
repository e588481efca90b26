//! The bindings of a Tenant in its namespaces: owners have fewer rights in the namespace with the GitOps account.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use tenure_api::TenantStatus;
use tenure_planner::answer::Failure;
use tenure_planner::tenant::{Attempt, Snapshot};
use tenure_planner::{Live, Next, Object};

use crate::tenant::{now, record_namespaces, run_until_settled};

/// The home, and another namespace of Tenant blue.
fn make_namespaces() -> Value {
    let owners = json!([{ "name": "blue", "uid": "t" }]);
    let namespace = |name: &str| json!({ "name": name, "uid": format!("uid-{name}"), "tenantLabel": "blue", "tenantOwners": owners });
    json!([namespace("blue"), namespace("blue-dev")])
}

/// Tenant blue with this spec, and with both namespaces as its own.
fn make_snapshot(spec: Value) -> Snapshot {
    let mut snapshot = crate::tenant::make_snapshot(spec, make_namespaces());
    record_namespaces(&mut snapshot, &[("blue", "uid-blue"), ("blue-dev", "uid-blue-dev")]);
    snapshot
}

/// `namespace role subject`, of every RoleBinding that a Tenant of this spec makes.
fn list_bound(spec: Value, annotations: Value) -> Vec<String> {
    let mut snapshot = make_snapshot(spec);
    snapshot.tenant.metadata.annotations = serde_json::from_value(annotations).unwrap();
    run_until_settled(&mut snapshot);
    let objects = snapshot.live.values().filter_map(Live::object);
    // The binding with which the controllers see belongs to them.
    let is_meant = |object: &&Value| object["kind"] == "RoleBinding" && object["metadata"]["name"] != "tenure:witness";
    let bindings = objects.filter(is_meant);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut bound: Vec<String> = bindings
        .map(|binding| {
            let (metadata, role) = (&binding["metadata"], &binding["roleRef"]["name"]);
            let subject = &binding["subjects"][0]["name"];
            format!("{} {} {}", text(&metadata["namespace"]), text(role), text(subject))
        })
        .collect();
    bound.sort();
    bound
}

/// Lists the bindings of one subject.
fn list_bound_to(subject: &str, owners: Value) -> Vec<String> {
    let bound = list_bound(json!({ "owners": owners }), json!({}));
    let of_subject = |line: String| line.strip_suffix(&format!(" {subject}")).map(str::to_owned);
    bound.into_iter().filter_map(of_subject).collect()
}

#[test]
fn owner_without_own_roles_has_less_at_home() {
    let alice = json!({ "kind": "User", "name": "alice" });
    let named = json!({ "kind": "User", "name": "alice", "clusterRoles": ["admin"] });
    let less = [
        "blue capsule-namespace-deleter",
        "blue tenure-author",
        "blue tenure-home-owner",
        "blue-dev admin",
        "blue-dev capsule-namespace-deleter",
        "blue-dev tenure-author",
    ];
    assert_eq!(list_bound_to("alice", json!([alice])), less);
    assert_eq!(
        list_bound_to("alice", json!([named])),
        ["blue admin", "blue-dev admin"],
        "what an administrator names reaches everywhere"
    );
    // A user who is an owner twice gets both sets of rights, in either order.
    let both = [
        "blue admin",
        "blue capsule-namespace-deleter",
        "blue tenure-author",
        "blue tenure-home-owner",
        "blue-dev admin",
        "blue-dev capsule-namespace-deleter",
        "blue-dev tenure-author",
    ];
    assert_eq!(list_bound_to("alice", json!([alice, named])), both);
    assert_eq!(list_bound_to("alice", json!([named, alice])), both);
}

/// RBAC can't restrict labels, so owners change namespaces only where admission does.
#[test]
fn owners_change_namespaces_only_where_admission_checks() {
    let count = |is_guarded: bool, owner: Value| {
        let mut snapshot = make_snapshot(json!({ "owners": [owner] }));
        Arc::make_mut(&mut snapshot.tenancy).settings.is_guarded = is_guarded;
        run_until_settled(&mut snapshot);
        let is_editor = |live: &Live| {
            live.object().is_some_and(|object| {
                object["roleRef"]["name"] == "tenure-namespace-editor" && object["subjects"][0]["kind"] == "User"
            })
        };
        snapshot.live.values().filter(|live| is_editor(live)).count()
    };
    let alice = || json!({ "kind": "User", "name": "alice" });
    assert_eq!(count(false, alice()), 0);
    assert_eq!(count(true, alice()), 2);
    let named = json!({ "kind": "User", "name": "alice", "clusterRoles": ["admin"] });
    assert_eq!(count(true, named), 0);
}

/// If admission checks writes, the GitOps account changes the tenant's namespaces, and deletes them, except its own. With a role that an administrator chose, it has no
/// other right.
#[test]
fn the_account_keeps_namespaces_only_where_admission_checks() {
    let list = |is_guarded: bool, annotations: Value| {
        let mut snapshot = make_snapshot(json!({ "owners": [{ "kind": "User", "name": "alice" }] }));
        Arc::make_mut(&mut snapshot.tenancy).settings.is_guarded = is_guarded;
        let added: BTreeMap<String, String> = serde_json::from_value(annotations).unwrap();
        snapshot
            .tenant
            .metadata
            .annotations
            .get_or_insert_default()
            .extend(added);
        run_until_settled(&mut snapshot);
        let objects = snapshot.live.values().filter_map(Live::object);
        let bound = objects.filter(|object| {
            let subjects = object["subjects"].as_array().into_iter().flatten();
            subjects.into_iter().any(|subject| subject["name"] == "blue-gitops")
        });
        let lines = bound.map(|object| {
            let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("*").to_owned();
            format!("{} {}", text("/metadata/namespace"), text("/roleRef/name"))
        });
        lines.collect::<BTreeSet<String>>()
    };
    let set = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| (*line).to_owned())
            .collect::<BTreeSet<String>>()
    };
    let usual = ["blue tenure-tenant-gitops-home", "blue-dev tenure-tenant-gitops"];
    assert_eq!(list(false, json!({})), set(&usual));
    let more = [
        "* capsule-namespace-provisioner",
        "* tenure-namespace-applier",
        "blue tenure-namespace-editor",
        "blue-dev capsule-namespace-deleter",
        "blue-dev tenure-namespace-editor",
    ];
    assert_eq!(
        list(true, json!({})),
        set(&[usual.as_slice(), more.as_slice()].concat())
    );
    let chosen = json!({ "tenure.dev/gitops-cluster-role": "viewer" });
    assert_eq!(list(true, chosen), set(&["blue viewer", "blue-dev viewer"]));
}

/// A repository may be applied as an owner that is a ServiceAccount, and must not add another identity's work.
#[test]
fn only_people_are_authors_by_default() {
    let is_author = |kind: &str, name: &str, tenant: Value, roles: Value| {
        let mut owner = json!({ "kind": kind, "name": name });
        if !roles.is_null() {
            owner["clusterRoles"] = roles;
        }
        let bound = list_bound(json!({ "owners": [owner] }), tenant);
        bound.iter().filter(|line| line.contains(" tenure-author ")).count() == 2
    };
    for (kind, name, expected) in [
        ("User", "alice", true),
        ("Group", "blue-devs", true),
        ("ServiceAccount", "system:serviceaccount:blue:robot", false),
        ("ServiceAccount", "system:serviceaccount:ci:robot", false),
        ("User", "system:serviceaccount:ci:robot", false),
        ("Group", "system:serviceaccounts:blue", false),
        ("Group", "system:authenticated", false),
    ] {
        assert_eq!(is_author(kind, name, json!({}), Value::Null), expected, "{kind} {name}");
    }
    let none = || json!({ "tenure.dev/author-role": "none" });
    assert!(!is_author("User", "alice", none(), Value::Null));
    // An administrator may name the role.
    let named = || json!(["tenure-author"]);
    assert!(is_author("User", "alice", none(), named()));
    assert!(is_author(
        "ServiceAccount",
        "system:serviceaccount:ci:robot",
        json!({}),
        named()
    ));
    assert!(!is_author("User", "alice", json!({}), json!(["admin"])));
}

/// The account that surfaces act as can't be a way to itself, so it has at home the rights that it has elsewhere. If several accounts exist, the right one is unknown.
#[test]
fn tenant_account_has_same_rights_at_home() {
    let account =
        |name: &str| json!({ "kind": "ServiceAccount", "name": format!("system:serviceaccount:blue:{name}") });
    let elsewhere = json!({ "kind": "ServiceAccount", "name": "system:serviceaccount:blue-dev:robot" });
    assert_eq!(
        list_bound_to("robot", json!([account("robot")])),
        [
            "blue admin",
            "blue capsule-namespace-deleter",
            "blue-dev admin",
            "blue-dev capsule-namespace-deleter",
        ]
    );
    let others = [
        json!([account("robot"), account("second")]),
        json!([account("robot"), account("blue-gitops")]),
        json!([elsewhere]),
    ];
    for owners in others {
        let bound = list_bound_to("robot", owners.clone());
        assert!(
            bound.contains(&"blue tenure-home-owner".to_owned()),
            "{owners}: {bound:?}"
        );
        assert!(!bound.contains(&"blue admin".to_owned()), "{owners}: {bound:?}");
    }
}

#[test]
fn an_administrator_chooses_what_the_account_may_write() {
    let named = |role: &str| json!({ "tenure.dev/gitops-cluster-role": role });
    let of_role = |role: &str| {
        [
            format!("blue {role} blue-gitops"),
            format!("blue-dev {role} blue-gitops"),
        ]
    };
    let chosen = list_bound(json!({}), named("tenure-tenant-gitops-cozystack"));
    assert_eq!(chosen, of_role("tenure-tenant-gitops-cozystack"), "and nothing besides");
    let default = list_bound(json!({}), json!({}));
    assert_eq!(list_bound(json!({}), named("")), default);

    // A later choice makes another RoleBinding, and the first one is deleted.
    let mut snapshot = make_snapshot(json!({}));
    run_until_settled(&mut snapshot);
    snapshot.tenant.metadata.annotations = serde_json::from_value(named("mine")).unwrap();
    snapshot.attempt = Attempt::new(now(), &snapshot.tenant.metadata);
    let (steps, plan) = run_until_settled(&mut snapshot);
    let count = |verb: &str| {
        steps
            .iter()
            .filter(|step| step.starts_with(&format!("{verb} RoleBinding/")))
            .count()
    };
    assert_eq!((count("apply"), count("delete")), (2, 2), "{steps:?}");
    assert!(plan.to_string().contains("Ready=True"), "{plan}");
}

/// An account that an administrator made has the roles that the Tenant names for it as an owner.
#[test]
fn role_for_existing_account_is_reported_as_unbound() {
    let owners =
        json!([{ "kind": "ServiceAccount", "name": "system:serviceaccount:blue:robot", "clusterRoles": ["edit"] }]);
    let mut snapshot = make_snapshot(json!({ "owners": owners }));
    let named = json!({ "tenure.dev/gitops-cluster-role": "mine" });
    snapshot.tenant.metadata.annotations = serde_json::from_value(named).unwrap();
    let plan = run_until_settled(&mut snapshot).1.to_string();
    assert!(plan.contains("mine is not bound"), "{plan}");
    assert!(plan.contains("name it in that owner's clusterRoles"), "{plan}");
}

/// If any admission checks writes, owners can read their Tenant by name, with their other rights in the whole cluster.
#[test]
fn owners_read_their_tenant_wherever_something_judges() {
    let list = |is_guarded: bool, has_policies: bool| {
        let owners = json!([
            { "kind": "User", "name": "alice" }, { "kind": "ServiceAccount", "name": "system:serviceaccount:ci:no such" }, { "kind": "Group", "name": "" }
        ]);
        let mut snapshot = make_snapshot(json!({ "owners": owners }));
        let settings = &mut Arc::make_mut(&mut snapshot.tenancy).settings;
        (settings.is_guarded, settings.has_policies) = (is_guarded, has_policies);
        snapshot.are_policies_in_force = has_policies;
        run_until_settled(&mut snapshot);
        let objects = snapshot.live.values().filter_map(Live::object);
        let wide = objects.filter(|object| object["metadata"]["namespace"].is_null());
        let wide: Vec<Value> = wide
            .filter(|object| object["metadata"]["name"] != "blue")
            .cloned()
            .collect();
        let names = wide.iter().map(|object| {
            // A part that an API server would refuse doesn't prevent the rest.
            let subjects = object["subjects"].as_array().map_or(0, Vec::len);
            format!(
                "{} {} {subjects}",
                object["kind"].as_str().unwrap(),
                object["metadata"]["name"].as_str().unwrap()
            )
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        let rules = wide
            .iter()
            .find(|object| object["kind"] == "ClusterRole" && object["metadata"]["name"] == "tenure:blue:view");
        (names, rules.map(|role| role["rules"].clone()))
    };
    assert_eq!(
        list(false, false),
        (Vec::new(), None),
        "who judges nothing gives nothing"
    );
    let (names, rules) = list(true, false);
    assert_eq!(
        names,
        [
            "ClusterRole tenure:blue:view 0",
            // The owner and the GitOps account.
            "ClusterRoleBinding capsule:blue:namespace-provisioner 2",
            "ClusterRoleBinding tenure:blue:namespace-applier 2",
            "ClusterRoleBinding tenure:blue:show-token 0",
            "ClusterRoleBinding tenure:blue:view 1",
        ]
    );
    let expected = json!([{ "apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": ["get", "be-owner"], "resourceNames": ["blue"] }]);
    assert_eq!(rules, Some(expected));
    for is_guarded in [false, true] {
        let with_policies = list(is_guarded, true).0;
        assert_eq!(with_policies.len(), 7, "{with_policies:?}");
        assert!(
            names.iter().all(|name| with_policies.contains(name)),
            "{with_policies:?}"
        );
    }
}

/// The right to apply new namespaces is one to patch all. So it waits for the policies, and stays while they are tested again.
#[test]
fn owners_apply_namespaces_only_under_policies() {
    let mut snapshot = make_snapshot(json!({ "owners": [{ "kind": "User", "name": "alice" }] }));
    Arc::make_mut(&mut snapshot.tenancy).settings.has_policies = true;
    let is_bound = |snapshot: &Snapshot| {
        let mut objects = snapshot.live.values().filter_map(Live::object);
        objects.any(|object| object["metadata"]["name"] == "tenure:blue:namespace-applier")
    };
    for (in_force, expected) in [(false, false), (true, true), (false, true)] {
        snapshot.are_policies_in_force = in_force;
        run_until_settled(&mut snapshot);
        assert_eq!(is_bound(&snapshot), expected, "in force: {in_force}");
    }
}

/// Each ServiceAccount owner is looked up, and reported as long as it is missing; users and groups are in no API.
#[test]
fn a_missing_owner_is_reported() {
    let account = |namespace: &str| json!({ "kind": "ServiceAccount", "name": format!("system:serviceaccount:{namespace}:robot") });
    let user = json!({ "kind": "User", "name": "alice" });
    let id = |namespace: &str| format!("{namespace}_robot__ServiceAccount").parse().unwrap();
    let present = || Live::Present(Object(json!({ "metadata": { "uid": "u" } })));
    let failed = || Live::Failed(Failure::default());
    let cases = [
        (json!([user]), Vec::new(), None),
        (
            json!([user, account("ci")]),
            vec![],
            Some(("False", "ci/robot. An account that may create it")),
        ),
        (
            json!([account("ci")]),
            vec![("ci", present())],
            Some(("True", "in spec.owners exist")),
        ),
        (
            json!([account("ci"), account("cd")]),
            vec![("ci", present())],
            Some(("False", "ServiceAccount: cd/robot.")),
        ),
        (
            json!([account("ci")]),
            vec![("ci", failed())],
            Some(("Unknown", "can't find out whether")),
        ),
        (
            json!([account("ci"), account("cd")]),
            vec![("ci", failed())],
            Some(("False", "ServiceAccount: cd/robot.")),
        ),
        (
            json!([{ "kind": "ServiceAccount", "name": "system:serviceaccount:no such:robot" }]),
            vec![],
            None,
        ),
    ];
    for (owners, known, expected) in cases {
        let mut snapshot = make_snapshot(json!({ "owners": owners }));
        snapshot
            .live
            .extend(known.into_iter().map(|(namespace, live)| (id(namespace), live)));
        let (_, plan) = run_until_settled(&mut snapshot);
        let status = plan.status.clone().unwrap();
        let condition = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "OwnersFound");
        let is_reported = plan.events.iter().any(|event| event.reason == "OwnerMissing");
        match (condition, expected) {
            (None, None) => {}
            (Some(condition), Some((value, words))) => {
                assert_eq!(condition.status.as_str(), value, "{owners}: {}", condition.message);
                assert!(condition.message.contains(words), "{owners}: {}", condition.message);
                assert_eq!(is_reported, value == "False", "{owners}");
                assert!(matches!(plan.next, Next::Done(Some(_))), "it is looked again: {owners}");
            }
            other => panic!("{owners}: {other:?}"),
        }
        // The report disappears with its subject.
        snapshot.tenant.status = Some(status);
        snapshot.tenant.spec.owners.clear();
        snapshot.attempt = Attempt::new(now(), &snapshot.tenant.metadata);
        let status = run_until_settled(&mut snapshot).1.status;
        let has_condition = |status: TenantStatus| status.conditions.iter().any(|known| known.type_ == "OwnersFound");
        assert!(!status.is_some_and(has_condition), "{owners}");
    }
}

#[test]
fn the_account_has_another_role_where_its_keys_are() {
    assert_eq!(
        list_bound(json!({}), json!({})),
        [
            "blue tenure-tenant-gitops-home blue-gitops",
            "blue-dev tenure-tenant-gitops blue-gitops"
        ]
    );
}
