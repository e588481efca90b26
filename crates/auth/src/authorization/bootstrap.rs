//! The roles and bindings of every new cluster, recorded from kube-apiserver 1.36.3 (`bootstrap.jsonl`, one object a
//! line), and their update at a start. An update never removes rights: an administrator's additions stay. An object
//! annotated `rbac.authorization.kubernetes.io/autoupdate: "false"` stays unchanged.

use serde_json::{Map, Value, json};

use super::aggregation::aggregate_rules;
use super::rbac::RbacKind;
use super::rule_coverage::find_missing;
use super::rules::PolicyRule;

const RECORDED: &str = include_str!("bootstrap.jsonl");
const AUTOUPDATE: &str = "/metadata/annotations/rbac.authorization.kubernetes.io~1autoupdate";

/// A role or binding that every new cluster has, in the form that the server expects.
#[derive(Debug, Clone, PartialEq)]
pub struct BootstrapObject {
    /// Its kind.
    pub kind: RbacKind,
    /// The object, without fields that the server sets. Aggregated roles contain the rules that they gather from
    /// others, so that they are effective at once.
    pub object: Value,
}

/// Returns all bootstrap objects: first roles, then bindings, so that no binding refers to a missing role. The
/// namespaces `kube-system` and `kube-public` have to exist before.
#[must_use]
pub fn bootstrap_objects() -> Vec<BootstrapObject> {
    let mut objects: Vec<BootstrapObject> = RECORDED
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|object| {
            let kind = match object.get("kind").and_then(Value::as_str)? {
                "ClusterRole" => RbacKind::ClusterRole,
                "ClusterRoleBinding" => RbacKind::ClusterRoleBinding,
                "Role" => RbacKind::Role,
                "RoleBinding" => RbacKind::RoleBinding,
                _ => return None,
            };
            Some(BootstrapObject { kind, object })
        })
        .collect();
    // `admin` gathers from `edit`, which gathers from `view`: as many rounds as the chain is long.
    loop {
        let roles: Vec<Value> = objects
            .iter()
            .filter(|object| object.kind == RbacKind::ClusterRole)
            .map(|object| object.object.clone())
            .collect();
        let mut changed = false;
        for object in &mut objects {
            if let Some(rules) = aggregate_rules(&object.object, &roles)
                && let Some(fields) = object.object.as_object_mut()
            {
                fields.insert("rules".to_owned(), Value::Array(rules));
                changed = true;
            }
        }
        if !changed {
            return objects;
        }
    }
}

/// The write that brings one bootstrap object up to date when the server starts.
#[derive(Debug, Clone, PartialEq)]
pub enum Reconciled {
    /// No write: the object is correct, or an administrator has disabled its update.
    Unchanged,
    /// The object is missing: create this object.
    Create(Value),
    /// The object lacks rules, subjects, labels or annotations: update it to this object.
    Update(Value),
    /// A binding refers to another role, and a `roleRef` can't be changed: delete the binding and create this one.
    Replace(Value),
}

/// Returns the write for a bootstrap object; `live` is the stored object.
#[must_use]
pub fn reconcile_object(expected: &BootstrapObject, live: Option<&Value>) -> Reconciled {
    let Some(live) = live else {
        return Reconciled::Create(expected.object.clone());
    };
    if live.pointer(AUTOUPDATE).and_then(Value::as_str) == Some("false") {
        return Reconciled::Unchanged;
    }
    let mut wanted = live.clone();
    for map in ["labels", "annotations"] {
        add_missing_keys(&mut wanted, &expected.object, map);
    }
    match expected.kind {
        RbacKind::ClusterRole | RbacKind::Role => {
            if expected.object.get("aggregationRule").is_some() {
                add_missing_items(&mut wanted, &expected.object, "aggregationRule", "clusterRoleSelectors");
            } else {
                let lacking = find_missing(&PolicyRule::of_role(live), &PolicyRule::of_role(&expected.object));
                append_items(&mut wanted, "rules", lacking.iter().map(PolicyRule::to_value));
            }
        }
        RbacKind::ClusterRoleBinding | RbacKind::RoleBinding => {
            if live.get("roleRef") != expected.object.get("roleRef") {
                let mut object = expected.object.clone();
                let subjects = list_items(live, "subjects").to_vec();
                append_absent(&mut object, "subjects", &subjects);
                return Reconciled::Replace(object);
            }
            append_absent(&mut wanted, "subjects", list_items(&expected.object, "subjects"));
        }
    }
    if wanted == *live {
        Reconciled::Unchanged
    } else {
        Reconciled::Update(wanted)
    }
}

fn list_items<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object
        .get(key)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Appends `new` to the list under `key`. An object that gets no new item stays unchanged.
fn append_items(object: &mut Value, key: &str, new: impl Iterator<Item = Value>) {
    let mut all = list_items(object, key).to_vec();
    let before = all.len();
    all.extend(new);
    if all.len() > before
        && let Some(fields) = object.as_object_mut()
    {
        fields.insert(key.to_owned(), Value::Array(all));
    }
}

/// Appends those of the `wanted` items that the list under `key` lacks.
fn append_absent(object: &mut Value, key: &str, wanted: &[Value]) {
    let held = list_items(object, key).to_vec();
    append_items(object, key, wanted.iter().filter(|item| !held.contains(item)).cloned());
}

/// Adds the items of the expected list `outer.inner` that the object's list lacks.
fn add_missing_items(object: &mut Value, expected: &Value, outer: &str, inner: &str) {
    let wanted = expected.get(outer).cloned().unwrap_or_else(|| json!({}));
    if let Some(fields) = object.as_object_mut() {
        let held = fields.entry(outer).or_insert_with(|| json!({}));
        append_absent(held, inner, list_items(&wanted, inner));
    }
}

/// Adds the expected keys of `metadata.MAP` that the object lacks. Existing values stay.
fn add_missing_keys(object: &mut Value, expected: &Value, map: &str) {
    let Some(wanted) = expected
        .pointer("/metadata")
        .and_then(|metadata| metadata.get(map))
        .and_then(Value::as_object)
    else {
        return;
    };
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let held = metadata.entry(map).or_insert_with(|| Value::Object(Map::new()));
    if let Some(held) = held.as_object_mut() {
        for (key, value) in wanted {
            held.entry(key.as_str()).or_insert_with(|| value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn make_named(name: &str) -> BootstrapObject {
        bootstrap_objects()
            .into_iter()
            .find(|object| object.object["metadata"]["name"] == name)
            .unwrap()
    }

    #[test]
    fn all_bootstrap_objects_are_read_and_roles_exist() {
        let objects = bootstrap_objects();
        assert_eq!(objects.len(), RECORDED.lines().count());
        let roles: BTreeSet<(String, String)> = objects
            .iter()
            .filter(|object| matches!(object.kind, RbacKind::ClusterRole | RbacKind::Role))
            .map(|object| {
                let text = |key: &str| object.object["metadata"][key].as_str().unwrap_or_default().to_owned();
                (text("namespace"), text("name"))
            })
            .collect();
        for object in &objects {
            let reference = &object.object["roleRef"];
            let namespace = match reference["kind"].as_str() {
                Some("Role") => object.object["metadata"]["namespace"].as_str().unwrap(),
                Some("ClusterRole") => "",
                _ => continue,
            };
            let role = (namespace.to_owned(), reference["name"].as_str().unwrap().to_owned());
            assert!(roles.contains(&role), "{role:?}");
        }
    }

    #[test]
    fn aggregated_roles_have_their_rules_from_the_start() {
        let rules = |name: &str| PolicyRule::of_role(&make_named(name).object);
        for (more, less) in [("admin", "edit"), ("edit", "view")] {
            assert!(
                find_missing(&rules(more), &rules(less)).is_empty(),
                "{more} covers {less}"
            );
            assert!(
                !find_missing(&rules(less), &rules(more)).is_empty(),
                "{less} does not cover {more}"
            );
        }
    }

    #[test]
    fn a_start_adds_what_is_missing_and_takes_nothing() {
        let expected = make_named("system:basic-user");
        assert_eq!(
            reconcile_object(&expected, None),
            Reconciled::Create(expected.object.clone())
        );
        assert_eq!(
            reconcile_object(&expected, Some(&expected.object)),
            Reconciled::Unchanged
        );
        let own = json!({ "apiGroups": ["acme.io"], "resources": ["gizmos"], "verbs": ["get"] });
        let mut live = expected.object.clone();
        live["rules"] = json!([own]);
        live["metadata"]["labels"] = json!({ "mine": "yes" });
        let Reconciled::Update(updated) = reconcile_object(&expected, Some(&live)) else {
            unreachable!("rules are missing");
        };
        assert_eq!(updated["rules"][0], own);
        assert!(find_missing(&PolicyRule::of_role(&updated), &PolicyRule::of_role(&expected.object)).is_empty());
        assert_eq!(updated["metadata"]["labels"]["mine"], "yes");
        assert_eq!(
            updated["metadata"]["labels"]["kubernetes.io/bootstrapping"],
            "rbac-defaults"
        );
        assert_eq!(reconcile_object(&expected, Some(&updated)), Reconciled::Unchanged);
        live["metadata"]["annotations"] = json!({ "rbac.authorization.kubernetes.io/autoupdate": "false" });
        assert_eq!(reconcile_object(&expected, Some(&live)), Reconciled::Unchanged);
    }

    #[test]
    fn binding_to_another_role_is_replaced_keeping_its_subjects() {
        let expected = make_named("system:discovery");
        let binding = bootstrap_objects()
            .into_iter()
            .find(|object| {
                object.kind == RbacKind::ClusterRoleBinding && object.object["metadata"] == expected.object["metadata"]
            })
            .unwrap();
        let mut live = binding.object.clone();
        let extra = json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "extra" });
        live["subjects"] = json!([extra]);
        let Reconciled::Update(updated) = reconcile_object(&binding, Some(&live)) else {
            unreachable!("a subject is missing");
        };
        assert_eq!(list_items(&updated, "subjects").len(), 2);
        live["roleRef"]["name"] = json!("view");
        let Reconciled::Replace(replaced) = reconcile_object(&binding, Some(&live)) else {
            unreachable!("the role is another");
        };
        assert_eq!(replaced["roleRef"], binding.object["roleRef"]);
        assert!(list_items(&replaced, "subjects").contains(&extra));
    }
}
