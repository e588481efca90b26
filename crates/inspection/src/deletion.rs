//! The consequences of a deletion, as far as the object and its neighbours report them. They follow from the policy and the inventory of Kustomizations, and from the
//! children of a Surface, the namespaces of a Tenant and the users of a source. The controllers decide later and may keep more objects, so the module promises nothing.

use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::metadata::{APPLY_MODE, SURFACE_LABEL};
use tenure_api::text::count_of;

/// The number of names in one line.
const MOST_NAMES: usize = 10;

/// Other objects that decide the consequences of a deletion, or the reason why they are unknown.
pub type Neighbours = Result<Vec<Value>, String>;

/// Returns the kind whose objects, in the namespace of a deleted object, say what its deletion concerns; `None` if only the object itself does.
#[must_use]
pub fn find_neighbour_kind(kind: &str) -> Option<&'static str> {
    match kind {
        "Surface" | "GitRepository" | "OCIRepository" | "Bucket" | "ExternalArtifact" | "ArtifactGenerator" => {
            Some("kustomizations.kustomize.toolkit.fluxcd.io")
        }
        "Provider" => Some("alerts.notification.toolkit.fluxcd.io"),
        _ => None,
    }
}

/// Describes what the deletion of an object takes along, a line for each part. `neighbours` are the objects of [`find_neighbour_kind`].
#[must_use]
pub fn describe_deletion(object: &Value, neighbours: &Neighbours) -> Vec<String> {
    let view = ObjectView::new(object);
    let mut lines = Vec::new();
    if view.is_being_deleted() {
        lines.push("it is already being deleted, and its finalizers keep it".to_owned());
    }
    match view.read_text("/kind") {
        "Kustomization" => lines.extend(describe_kustomization(view)),
        "Surface" => lines.extend(describe_surface(view, neighbours)),
        "Tenant" => lines.extend(describe_tenant(view)),
        "GitRepository" | "OCIRepository" | "Bucket" | "ExternalArtifact" | "ArtifactGenerator" => {
            lines.push(describe_users(view, neighbours));
        }
        "HelmRepository" => {
            lines.push("its HelmCharts get no new versions from then on; what they installed stays".to_owned())
        }
        "HelmChart" => lines
            .push("the HelmRelease that names it gets no new version from then on; what it installed stays".to_owned()),
        "Provider" => lines.push(describe_alerts(view, neighbours)),
        "Receiver" => {
            lines.push("requests to its path are refused from then on; nothing applied is deleted".to_owned())
        }
        "Alert" => lines.push("its Provider gets no events of it from then on; nothing applied is deleted".to_owned()),
        _ => lines.push("this command does not know which objects go with it".to_owned()),
    }
    lines
}

/// Describes the consequences for the applied objects of a Kustomization.
fn describe_kustomization(kustomization: ObjectView<'_>) -> Vec<String> {
    let entries = kustomization.list("/status/inventory/entries").len();
    let policy = kustomization.find_text("/spec/deletionPolicy").unwrap_or("MirrorPrune");
    let prunes = kustomization.is_true("/spec/prune");
    let verb = if entries == 1 { "stays" } else { "stay" };
    let stay = |why: String| vec![format!("{} {verb} in the cluster: {why}", count_objects(entries))];
    if kustomization.is_true("/spec/suspend") {
        return stay("it is suspended".to_owned());
    }
    if kustomization.find_annotation(APPLY_MODE) == Some("DetectOnly") {
        return stay(format!("{APPLY_MODE} is DetectOnly"));
    }
    let why = match (policy, prunes) {
        ("MirrorPrune", true) => "deletionPolicy MirrorPrune, prune true".to_owned(),
        ("Delete" | "WaitForTermination", _) => format!("deletionPolicy {policy}"),
        ("MirrorPrune", false) => return stay("deletionPolicy MirrorPrune, prune false".to_owned()),
        _ => return stay(format!("deletionPolicy {policy}")),
    };
    if entries == 0 {
        return vec![format!("its inventory names no object, so nothing else goes ({why})")];
    }
    let place = match kustomization.has("/spec/kubeConfig") {
        true => " in the cluster of its kubeConfig",
        false => "",
    };
    vec![
        format!("the controllers delete {}{place} of its inventory ({why})", count_objects(entries)),
        "guards, kustomize.toolkit.fluxcd.io/prune: disabled and other owners may keep some of them; spec.deletionPolicy: Orphan keeps all".to_owned(),
    ]
}

/// Describes the consequences for the Kustomizations of a Surface, and for their applied objects.
fn describe_surface(surface: ObjectView<'_>, kustomizations: &Neighbours) -> Vec<String> {
    let all = match kustomizations {
        Ok(all) => all,
        Err(why) => {
            return vec![format!(
                "its GitRepositories and Kustomizations go, too; the objects that go with these are unknown: {why}"
            )];
        }
    };
    let name = surface.read_text("/metadata/name");
    let children = all
        .iter()
        .map(ObjectView::new)
        .filter(|kustomization| kustomization.find_label(SURFACE_LABEL) == Some(name));
    let mut lines = Vec::new();
    for child in children {
        let of_child = describe_kustomization(child).into_iter().take(1);
        lines.extend(
            of_child.map(|line| format!("Kustomization {} goes, too: {line}", child.read_text("/metadata/name"))),
        );
    }
    if lines.is_empty() {
        return vec!["no Kustomization of it exists, so nothing that it applied is known".to_owned()];
    }
    lines.push("its GitRepositories go, too; guards may keep some of the applied objects".to_owned());
    lines
}

/// Describes the consequences for the namespaces of a Tenant.
fn describe_tenant(tenant: ObjectView<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if tenant.is_true("/spec/preventDeletion") {
        lines.push("spec.preventDeletion is true: where admission is in force, the deletion is refused".to_owned());
    }
    let names: Vec<&str> = tenant
        .list_views("/status/spaces")
        .map(|space| space.read_text("/name"))
        .collect();
    lines.push(match names.len() {
        0 => "its status records no namespace".to_owned(),
        1 => format!("its namespace goes with everything in it: {}", list_names(&names)),
        count => format!(
            "its {count} namespaces go with everything in them: {}",
            list_names(&names)
        ),
    });
    lines
}

/// Describes the consequences for the Kustomizations of a source.
fn describe_users(source: ObjectView<'_>, kustomizations: &Neighbours) -> String {
    let all = match kustomizations {
        Ok(all) => all,
        Err(why) => return format!("its artifact goes; the Kustomizations that use it are unknown: {why}"),
    };
    let (kind, name) = (source.read_text("/kind"), source.read_text("/metadata/name"));
    let namespace = source.read_text("/metadata/namespace");
    let uses = |kustomization: &ObjectView<'_>| {
        let text = |path: &str| kustomization.find_text(path);
        text("/spec/sourceRef/kind") == Some(kind)
            && text("/spec/sourceRef/name") == Some(name)
            && text("/spec/sourceRef/namespace").is_none_or(|named| named == namespace)
    };
    let users: Vec<&str> = all
        .iter()
        .map(ObjectView::new)
        .filter(uses)
        .map(|user| user.read_text("/metadata/name"))
        .collect();
    match users.len() {
        0 => format!("its artifact goes; no Kustomization of namespace {namespace} uses it"),
        _ => format!(
            "its artifact goes; these Kustomizations keep what they applied, and get no new revision: {}",
            list_names(&users)
        ),
    }
}

/// Describes the consequences for the Alerts of a Provider.
fn describe_alerts(provider: ObjectView<'_>, alerts: &Neighbours) -> String {
    let name = provider.read_text("/metadata/name");
    match alerts {
        Err(why) => format!("the Alerts that use it are unknown: {why}"),
        Ok(all) => {
            let users = all.iter().map(ObjectView::new);
            let users = users.filter(|alert| alert.read_text("/spec/providerRef/name") == name);
            let users: Vec<&str> = users.map(|alert| alert.read_text("/metadata/name")).collect();
            match users.len() {
                0 => "no Alert uses it".to_owned(),
                _ => format!("these Alerts send nothing any more: {}", list_names(&users)),
            }
        }
    }
}

fn count_objects(count: usize) -> String {
    count_of(count, "object")
}

fn list_names(names: &[&str]) -> String {
    let shown = names.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(MOST_NAMES).filter(|more| *more > 0) {
        Some(more) => format!("{shown} and {more} more"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kustomization(name: &str, spec: Value, entries: usize) -> Value {
        let entries = vec![json!({"id": "a", "v": "v1"}); entries];
        json!({
            "kind": "Kustomization", "metadata": {"name": name, "namespace": "team-a", "labels": {SURFACE_LABEL: "app"}},
            "spec": spec, "status": {"inventory": {"entries": entries}}
        })
    }

    fn describe(object: &Value, neighbours: Neighbours) -> String {
        describe_deletion(object, &neighbours).join("\n")
    }

    #[test]
    fn the_policy_decides_what_goes_with_a_kustomization() {
        for (spec, entries, expected) in [
            (
                json!({"prune": true}),
                3,
                "the controllers delete 3 objects of its inventory (deletionPolicy MirrorPrune, prune true)",
            ),
            (
                json!({"prune": false}),
                3,
                "3 objects stay in the cluster: deletionPolicy MirrorPrune, prune false",
            ),
            (
                json!({"prune": true, "deletionPolicy": "Orphan"}),
                1,
                "1 object stays in the cluster: deletionPolicy Orphan",
            ),
            (
                json!({"prune": false, "deletionPolicy": "Delete"}),
                2,
                "the controllers delete 2 objects of its inventory (deletionPolicy Delete)",
            ),
            (
                json!({"prune": true, "suspend": true}),
                2,
                "2 objects stay in the cluster: it is suspended",
            ),
            (
                json!({"prune": true, "deletionPolicy": "Unknown"}),
                2,
                "2 objects stay in the cluster: deletionPolicy Unknown",
            ),
            (json!({"prune": true}), 0, "its inventory names no object"),
            (
                json!({"prune": true, "kubeConfig": {}}),
                2,
                "2 objects in the cluster of its kubeConfig",
            ),
        ] {
            let object = kustomization("app", spec, entries);
            let described = describe(&object, Ok(Vec::new()));
            assert!(described.contains(expected), "{object}: {described}");
        }
        let mut object = kustomization("app", json!({"prune": true}), 2);
        object["metadata"]["annotations"] = json!({APPLY_MODE: "DetectOnly"});
        assert!(describe(&object, Ok(Vec::new())).contains("2 objects stay"));
    }

    #[test]
    fn a_surface_takes_its_kustomizations_along() {
        let surface = json!({"kind": "Surface", "metadata": {"name": "app", "namespace": "team-a"}});
        let mut other = kustomization("other", json!({"prune": true}), 9);
        other["metadata"]["labels"] = json!({});
        let child = kustomization("app-app", json!({"prune": true, "deletionPolicy": "Orphan"}), 2);
        let described = describe(&surface, Ok(vec![child, other]));
        assert!(
            described.contains("Kustomization app-app goes, too: 2 objects stay") && !described.contains("other goes"),
            "{described}"
        );
        let unknown = describe(&surface, Err("you may not list kustomizations".to_owned()));
        assert!(
            unknown.contains("are unknown: you may not list kustomizations"),
            "{unknown}"
        );
    }

    #[test]
    fn a_tenant_takes_its_namespaces_along() {
        let spaces: Vec<Value> = (0..12)
            .map(|number| json!({"name": format!("team-{number}")}))
            .collect();
        let tenant = json!({"kind": "Tenant", "metadata": {"name": "team"}, "spec": {"preventDeletion": true}, "status": {"spaces": spaces}});
        let described = describe(&tenant, Ok(Vec::new()));
        assert!(
            described.contains("its 12 namespaces go with everything in them: team-0, "),
            "{described}"
        );
        assert!(
            described.contains("team-9 and 2 more") && described.contains("preventDeletion"),
            "{described}"
        );
    }

    #[test]
    fn users_of_a_source_are_named() {
        let source = json!({"kind": "GitRepository", "metadata": {"name": "app", "namespace": "team-a"}});
        let user = |name: &str, namespace: Option<&str>| {
            let mut reference = json!({"kind": "GitRepository", "name": "app"});
            if let Some(namespace) = namespace {
                reference["namespace"] = json!(namespace);
            }
            kustomization(name, json!({"sourceRef": reference}), 1)
        };
        let users = vec![
            user("web", None),
            user("api", Some("team-a")),
            user("far", Some("team-b")),
        ];
        let described = describe(&source, Ok(users));
        assert!(described.ends_with("no new revision: web, api"), "{described}");
        assert!(describe(&source, Ok(Vec::new())).contains("no Kustomization of namespace team-a uses it"));
        assert!(describe(&source, Err("no answer".to_owned())).contains("unknown: no answer"));
        let provider = json!({"kind": "Provider", "metadata": {"name": "chat"}});
        let alert = json!({"metadata": {"name": "all"}, "spec": {"providerRef": {"name": "chat"}}});
        assert!(describe(&provider, Ok(vec![alert])).contains("these Alerts send nothing any more: all"));
    }
}
