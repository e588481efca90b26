//! The rights that tenants can reach in a world, and those in one world only.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use kubernetes_reach::{Cluster, Coverage, Reach, Subject, list_beyond};
use serde_json::{Value, json};

use crate::cast::Scene;
use crate::servers::{Mode, Server};
use crate::snapshot::{Snapshot, list_namespaces_of_evil};

/// Lists the rights that `alpha` of each story reaches in only one world, and those that `evil` reaches without a grant of an administrator.
pub(crate) fn compare(mode: Mode, alone: &Snapshot, shared: &Snapshot, scenes: &[Scene]) -> Vec<String> {
    // The guard of the embedded control plane has no object.
    let guard = (mode == Mode::Embedded).then(|| "the guard".to_owned());
    let coverage = Coverage {
        guard,
        ..Coverage::default()
    };
    let read = |snapshot: &Snapshot| Cluster::read(&snapshot.raw, &coverage);
    let (alone, shared) = (read(alone), read(shared));
    let mut differences = Vec::new();
    for scene in scenes {
        let (one, other) = (list_reached(&alone, &scene.alpha), list_reached(&shared, &scene.alpha));
        let missing = one.difference(&other).map(|what| (what, "alone"));
        let added = other.difference(&one).map(|what| (what, "beside evil"));
        differences.extend(
            missing
                .chain(added)
                .map(|(what, world)| format!("{} reaches {what} only {world}", scene.alpha)),
        );
        match list_beyond(&shared, &scene.evil) {
            Ok(beyond) => differences.extend(beyond.iter().map(|reached| format!("{} reaches {reached}", scene.evil))),
            Err(error) => differences.push(format!("{}: {error}", scene.evil)),
        }
    }
    differences
}

/// Returns the rights of a tenant and everything that it reaches.
fn list_reached(cluster: &Cluster, tenant: &str) -> BTreeSet<String> {
    let reach = match Reach::search(cluster, &Subject::Tenant(tenant.to_owned())) {
        Ok(reach) => reach,
        Err(error) => return BTreeSet::from([error]),
    };
    // The requests of the stories themselves try paths that a guard or a webhook may stop.
    let certain = reach.list_reached().into_iter().filter(|reached| reached.is_certain);
    let nodes = certain.map(|reached| reached.node.to_string());
    let rights = reach.list_rights().into_iter().map(|right| {
        format!(
            "the rights of {} in {} for {} by {}",
            right.role, right.scope, right.identity, right.binding
        )
    });
    // A hostile tenant may give away its own rights.
    nodes.chain(rights).filter(|what| !what.contains("evil")).collect()
}

/// Asks the API server about the rights that the owner of each Tenant evil, and every account in its namespaces, have elsewhere. Also checks that no such tenant has a
/// namespace that an object outside of the tenant names.
pub(crate) async fn list_foreign(server: &Server, scenes: &[Scene]) -> Vec<String> {
    let mut found = Vec::new();
    for scene in scenes {
        let namespaces = list_namespaces_of_evil(server, std::slice::from_ref(scene)).await;
        let mentioned = scene
            .list_mentioned()
            .into_iter()
            .filter(|name| namespaces.contains(name));
        found.extend(
            mentioned.map(|name| format!("{} has namespace {name}, which something outside names", scene.evil)),
        );
        let mut subjects = BTreeMap::from([(scene.of_evil("owner"), vec!["capsule.clastix.io".to_owned()])]);
        for namespace in namespaces {
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
            let listed = server.admin.get(&path).await;
            let items = listed.body["items"].as_array().cloned().unwrap_or_default();
            let names = items.iter().filter_map(|item| item["metadata"]["name"].as_str());
            subjects.extend(names.map(|name| {
                let groups = vec![
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{namespace}"),
                ];
                (format!("system:serviceaccount:{namespace}:{name}"), groups)
            }));
        }
        for (user, groups) in &subjects {
            for asked in list_questions(scene) {
                let (namespace, verb, resource) = &asked;
                if is_allowed(server, (user, groups), (namespace, verb, resource)).await {
                    found.push(format!("{user} may {verb} {resource} in namespace {namespace:?}"));
                }
            }
        }
    }
    found
}

fn list_questions(scene: &Scene) -> Vec<(String, &'static str, &'static str)> {
    vec![
        (String::new(), "*", "*"),
        (String::new(), "get", "secrets"),
        (scene.alpha.clone(), "get", "secrets"),
        (scene.of_alpha("dev"), "create", "pods"),
        ("tenure-system".to_owned(), "get", "secrets"),
    ]
}

async fn is_allowed(
    server: &Server,
    (user, groups): (&str, &[String]),
    (namespace, verb, resource): (&str, &str, &str),
) -> bool {
    let mut groups = groups.to_vec();
    groups.push("system:authenticated".to_owned());
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": { "user": user, "groups": groups, "resourceAttributes": { "namespace": namespace, "verb": verb, "resource": resource } }
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = server.admin.send(Method::POST, path, &review).await;
    answer.body["status"]["allowed"] != Value::Bool(false)
}
