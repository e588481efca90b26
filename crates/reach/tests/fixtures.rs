//! Clusters with a known weakness each, and the path that `reach` has to find there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use kubernetes_reach::{Cluster, Coverage, Reach, Reached, Subject, list_beyond};
use serde::Deserialize;
use serde_json::Value;

/// A cluster, and the expected results for subjects there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fixture {
    /// The topic of the cluster.
    #[expect(dead_code, reason = "for readers of the file")]
    about: String,
    objects: Vec<Value>,
    /// Kinds that could not be read.
    #[serde(default)]
    unread: Vec<String>,
    expect: Vec<Expected>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    subject: String,
    /// Nodes, each with the names of the edges that lead to it.
    #[serde(default)]
    reaches: Vec<Path>,
    /// Nodes that are out of reach.
    #[serde(default)]
    misses: Vec<String>,
    /// `EDGE to NODE by JUDGE`.
    #[serde(default)]
    stopped: Vec<String>,
    /// The nodes that a tenant reaches beyond its namespaces. Not checked if absent.
    beyond: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Path {
    node: String,
    by: Vec<String>,
    /// Texts that the path's steps must contain.
    #[serde(default)]
    mentions: Vec<String>,
    /// Judges with an unknown answer.
    #[serde(default)]
    judged_by: Vec<String>,
}

fn check(text: &str) {
    let fixture: Fixture = serde_saphyr::from_str(text).expect("a fixture");
    let coverage = Coverage {
        unread: fixture.unread.iter().cloned().collect(),
        guard: None,
    };
    let cluster = Cluster::read(&fixture.objects, &coverage);
    for expected in &fixture.expect {
        let subject: Subject = expected.subject.parse().expect("a subject");
        let reach = Reach::search(&cluster, &subject).expect("a subject of the cluster");
        let reached = reach.list_reached();
        let all: Vec<String> = reached.iter().map(|reached| reached.node.to_string()).collect();
        for path in &expected.reaches {
            let found = reached.iter().find(|reached| reached.node.to_string() == path.node);
            let found = found.unwrap_or_else(|| panic!("{}: {} is not reached: {all:#?}", expected.subject, path.node));
            check_path(&expected.subject, found, path);
        }
        for node in &expected.misses {
            let found = reached.iter().find(|reached| reached.node.to_string() == *node);
            assert!(found.is_none(), "{}: {found:#?}", expected.subject);
        }
        let stopped: Vec<String> = reach
            .list_stopped()
            .iter()
            .map(|stopped| format!("{} to {} by {}", stopped.edge, stopped.to, stopped.by.name))
            .collect();
        for wanted in &expected.stopped {
            assert!(
                stopped.contains(wanted),
                "{}: {wanted} is not in {stopped:#?}",
                expected.subject
            );
        }
        if let Some(wanted) = &expected.beyond {
            let Subject::Tenant(name) = &subject else {
                panic!("{}: only a tenant reaches beyond", expected.subject)
            };
            let found = list_beyond(&cluster, name).expect("a tenant");
            let found: Vec<String> = found.iter().map(|reached| reached.node.to_string()).collect();
            assert_eq!(&found, wanted, "{}", expected.subject);
        }
    }
}

fn check_path(subject: &str, found: &Reached, path: &Path) {
    let edges: Vec<&str> = found.path.iter().map(|step| step.edge.as_str()).collect();
    assert_eq!(edges, path.by, "{subject} to {}: {found:#?}", path.node);
    let text = format!("{found:?}");
    for mention in &path.mentions {
        assert!(text.contains(mention.as_str()), "{mention}: {found:#?}");
    }
    let judges: Vec<&str> = found
        .path
        .iter()
        .flat_map(|step| &step.judged_by)
        .map(|judge| judge.name.as_str())
        .collect();
    assert_eq!(judges, path.judged_by, "{found:#?}");
    assert_eq!(found.is_certain, path.judged_by.is_empty(), "{found:#?}");
}

#[test]
fn a_tenant_of_a_bounded_cluster_reaches_nothing_beyond() {
    check(include_str!("fixtures/clean.yaml"));
}

#[test]
fn an_owner_inherits_the_rights_of_a_namespace_name() {
    check(include_str!("fixtures/named-namespace.yaml"));
}

#[test]
fn a_policy_stops_a_namespace_that_something_names() {
    check(include_str!("fixtures/named-namespace-stopped.yaml"));
}

#[test]
fn a_policy_limits_patches_to_new_namespaces() {
    check(include_str!("fixtures/namespace-applier.yaml"));
}

#[test]
fn a_webhook_is_named_and_not_believed() {
    check(include_str!("fixtures/named-namespace-webhook.yaml"));
}

#[test]
fn the_controller_binds_itself_to_an_administrator() {
    check(include_str!("fixtures/controller.yaml"));
}

#[test]
fn the_shared_lane_mints_an_administrator() {
    check(include_str!("fixtures/shared-lane.yaml"));
}

#[test]
fn a_policy_keeps_the_shared_lane_from_administrators() {
    check(include_str!("fixtures/shared-lane-bounded.yaml"));
}

#[test]
fn a_namespace_name_receives_a_credential() {
    check(include_str!("fixtures/credential-by-name.yaml"));
}

#[test]
fn a_role_that_owners_cannot_bind_gives_no_credential() {
    check(include_str!("fixtures/credential-trusted-role.yaml"));
}

#[test]
fn an_owner_approves_its_own_account() {
    check(include_str!("fixtures/four-eyes.yaml"));
}

#[test]
fn flux_without_lockdown_acts_as_its_controller() {
    check(include_str!("fixtures/flux.yaml"));
}

#[test]
fn every_power_leads_where_kubernetes_lets_it() {
    check(include_str!("fixtures/powers.yaml"));
}

#[test]
fn unread_kinds_are_unknown() {
    check(include_str!("fixtures/unread.yaml"));
}

/// A cluster that is made to be slow: wildcards, thousands of roles, bindings and namespaces, and roles that aggregate
/// each other.
#[test]
fn a_hostile_cluster_is_searched_in_time() {
    let mut objects = Vec::new();
    let object = |text: String| serde_json::from_str::<Value>(&text).expect("an object");
    for number in 0..2000 {
        objects.push(object(format!(
            r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"n{number}"}}}}"#
        )));
        objects.push(object(format!(
            r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{{"name":"r{number}","labels":{{"a":"b"}}}},
               "rules":[{{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"resourceNames":["x{number}"]}}]}}"#
        )));
        objects.push(object(format!(
            r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{{"namespace":"n{number}","name":"b"}},
               "roleRef":{{"kind":"ClusterRole","name":"everything"}},
               "subjects":[{{"kind":"User","name":"mallory"}},{{"kind":"ServiceAccount","namespace":"n{}","name":"default"}}]}}"#,
            (number + 1) % 2000
        )));
        objects.push(object(format!(
            r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{{"name":"c{number}"}},
               "roleRef":{{"kind":"ClusterRole","name":"r{number}"}},"subjects":[{{"kind":"Group","name":"system:authenticated"}}]}}"#
        )));
    }
    for (name, selects) in [("cycle-a", "cycle-b"), ("cycle-b", "cycle-a"), ("everything", "b")] {
        objects.push(object(format!(
            r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{{"name":"{name}","labels":{{"a":"{name}"}}}},
               "aggregationRule":{{"clusterRoleSelectors":[{{"matchLabels":{{"a":"{selects}"}}}}]}}}}"#
        )));
    }
    // A search that grows with the number of paths would never end. The speed of the machine doesn't
    // matter.
    let patience = std::time::Duration::from_secs(600);
    let (sender, receiver) = std::sync::mpsc::channel();
    #[expect(clippy::disallowed_methods, reason = "the test bounds the time")]
    std::thread::spawn(move || {
        let cluster = Cluster::read(&objects, &Coverage::default());
        let subject: Subject = "user/mallory".parse().expect("a subject");
        let count = Reach::search(&cluster, &subject).map(|reach| reach.list_reached().len());
        let _ended = sender.send(count);
    });
    let count = receiver
        .recv_timeout(patience)
        .expect("an answer in time")
        .expect("a subject");
    assert!(count > 2000, "{count}");
}
