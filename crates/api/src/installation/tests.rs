//! The rights of an installation, by the reconciled kinds.

use std::collections::BTreeSet;

use super::*;

fn list_rules(role: &Value) -> Vec<Value> {
    role["rules"].as_array().expect("rules").clone()
}

fn list_texts(rule: &Value, field: &str) -> Vec<String> {
    let texts = rule[field].as_array().into_iter().flatten();
    texts.map(|text| text.as_str().expect("text").to_owned()).collect()
}

fn all() -> ControllerChoice {
    ControllerChoice::from_definitions(&crds().expect("definitions"), &|_| true)
}

/// The invariant "no controller's rights for a tenant", as far as RBAC can express it.
#[test]
fn controller_and_lane_roles_exclude_secrets_and_workloads() {
    use crate::roles::{lane_books_cluster_role, lane_cluster_role};
    for role in [
        controller_cluster_role(&all()),
        lane_tokens_role(&all()),
        events_role(&all()),
        lane_cluster_role(&all()),
        lane_books_cluster_role(&all()),
    ] {
        for rule in list_rules(&role) {
            let has = |field: &str, refused: &[&str]| {
                list_texts(&rule, field)
                    .iter()
                    .any(|text| refused.contains(&text.as_str()))
            };
            assert!(!has("resources", &["*", "secrets", "configmaps", "roles"]), "{rule}");
            assert!(!has("apiGroups", &["*", "apps", "batch"]), "{rule}");
            assert!(!has("verbs", &["*", "impersonate", "escalate"]), "{rule}");
        }
    }
}

/// The controller can't do in place of lanes what they do with tokens of their own.
#[test]
fn the_controller_has_no_right_that_only_lanes_need() {
    for rule in list_rules(&controller_cluster_role(&all())) {
        let groups = list_texts(&rule, "apiGroups");
        let resources = list_texts(&rule, "resources");
        assert!(
            !resources.iter().any(|resource| resource == "serviceaccounts/token"),
            "{rule}"
        );
        assert!(!resources.iter().any(|resource| resource == "events"), "{rule}");
        // An Enforcement contains observations of the controllers, and no lane reads it.
        let is_enforcement = resources.iter().all(|resource| resource.starts_with("enforcements"));
        if !is_enforcement
            && groups
                .iter()
                .any(|group| group.ends_with(".fluxcd.io") || group == "tenure.dev")
        {
            assert_eq!(list_texts(&rule, "verbs"), ["get", "list", "watch"], "{rule}");
        }
        if list_texts(&rule, "verbs").iter().any(|verb| verb == "bind") {
            let names = list_texts(&rule, "resourceNames");
            assert_eq!(names, list_bound_cluster_roles(&all()), "{rule}");
            assert!(!names.iter().any(|name| name == "cluster-admin"), "{rule}");
        }
    }
}

#[test]
fn every_object_has_kind_and_name() {
    let objects = objects().expect("objects");
    assert!(
        objects
            .iter()
            .all(|object| object["kind"].is_string() && object["metadata"]["name"].is_string())
    );
}

/// Lists every single right of a set of objects: account, resource, verb, and name if it has one.
fn list_rights(objects: &[Value]) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    for role in objects.iter().filter(|object| object["rules"].is_array()) {
        let whose = format!("{} {}", role["metadata"]["name"], role["metadata"]["namespace"]);
        for rule in list_rules(role) {
            let names = list_texts(&rule, "resourceNames");
            assert!(
                rule.get("resourceNames").is_none() || !names.is_empty(),
                "no name is every name: {rule}"
            );
            let names = if names.is_empty() {
                vec!["any".to_owned()]
            } else {
                names
            };
            for group in list_texts(&rule, "apiGroups") {
                for resource in list_texts(&rule, "resources") {
                    for verb in list_texts(&rule, "verbs") {
                        rights.extend(
                            names
                                .iter()
                                .map(|name| format!("{whose} {group} {resource} {verb} {name}")),
                        );
                    }
                }
            }
        }
    }
    rights
}

fn write_names(objects: &[Value]) -> Vec<String> {
    let name = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    objects.iter().map(name).collect()
}

const KINDS: [&str; 5] = ["Tenant", "Surface", "GitRepository", "OCIRepository", "Kustomization"];

/// Whichever kinds are left out, the rights are no wider than before, and the objects are the same ones: a new installation takes earlier
/// grants back.
#[test]
fn fewer_controllers_never_have_more_rights() {
    let everything = objects().expect("objects");
    let all_rights = list_rights(&everything);
    for chosen in 0..1_u32 << KINDS.len() {
        let is_on = |kind: &str| {
            KINDS
                .iter()
                .position(|known| *known == kind)
                .is_none_or(|at| chosen & 1 << at != 0)
        };
        let some = objects_for(&is_on).expect("objects");
        assert_eq!(write_names(&some), write_names(&everything));
        // Granted in one place only, since without Tenants it isn't needed everywhere.
        let narrower = ["create", "patch"]
            .map(|verb| format!("\"tenure-lane-tokens\" \"tenure-system\"  serviceaccounts {verb} any"));
        let rights: Vec<_> = list_rights(&some)
            .into_iter()
            .filter(|right| !narrower.contains(right))
            .collect();
        let wider: Vec<_> = rights.iter().filter(|right| !all_rights.contains(*right)).collect();
        assert!(wider.is_empty(), "{chosen:b}: {wider:?}");
    }
}

#[test]
fn rights_follow_from_enabled_controllers() {
    let rights = |on: &[&str]| list_rights(&objects_for(&|kind| on.contains(&kind)).expect("objects"));
    let has = |rights: &BTreeSet<String>, words: &str| rights.iter().any(|right| right.contains(words));
    let hub = "\"tenure-controller\" null";
    let lane = "\"tenure-lane\" null";

    let sources = rights(&["GitRepository"]);
    assert!(has(
        &sources,
        &format!("{hub} source.toolkit.fluxcd.io gitrepositories watch")
    ));
    assert!(has(
        &sources,
        &format!("{lane} source.toolkit.fluxcd.io gitrepositories/status patch")
    ));
    assert!(has(&sources, &format!("{lane}  serviceaccounts/token create")));
    assert!(has(&sources, &format!("{hub} capsule.clastix.io tenants watch")));
    assert!(has(
        &sources,
        "\"tenure-lane-tokens\" \"tenure-system\"  serviceaccounts create"
    ));
    for absent in [
        &format!("{hub} source.toolkit.fluxcd.io gitrepositories create"),
        &format!("{lane} source.toolkit.fluxcd.io gitrepositories create"),
        &format!("{lane} source.toolkit.fluxcd.io gitrepositories delete"),
        &format!("{hub} kustomize.toolkit.fluxcd.io"),
        &format!("{hub} tenure.dev"),
        &format!("{lane} kustomize.toolkit.fluxcd.io"),
        &format!("{lane} tenure.dev"),
        " ocirepositories/status",
        " tenants patch",
        " tenants/status",
        &format!("{hub}  namespaces create"),
        &format!("{hub}  namespaces delete"),
        &format!("{hub}  serviceaccounts create"),
        " bind admin",
        "kustomize-controller",
        "42c733ea",
        "\"tenure-events\"",
    ] {
        assert!(!has(&sources, absent), "{absent}");
    }

    // Flux reconciles the objects that a Surface generates. They are created and read, and nothing is written into their
    // status.
    let surfaces = rights(&["Surface"]);
    assert!(has(
        &surfaces,
        &format!("{lane} kustomize.toolkit.fluxcd.io kustomizations create")
    ));
    assert!(has(
        &surfaces,
        &format!("{hub} kustomize.toolkit.fluxcd.io kustomizations watch")
    ));
    assert!(!has(&surfaces, "kustomizations/status") && !has(&surfaces, &format!("{lane}  serviceaccounts/token")));

    let tenants = rights(&["Tenant"]);
    assert!(has(&tenants, " tenants/status patch") && has(&tenants, "\"tenure-events\""));
    assert!(has(&tenants, " bind admin") && has(&tenants, &format!("{hub}  namespaces create")));
    assert!(has(&tenants, &format!("{hub}  namespaces delete")));
    assert!(!has(&tenants, &format!("{hub} source.toolkit.fluxcd.io")));
    assert!(!has(&tenants, &format!("{lane} source.toolkit.fluxcd.io")));
}

/// The keeper of policies changes and deletes those with their names and no others, and puts no right into a role that it doesn't
/// have.
#[test]
fn policy_keeper_changes_only_policies_with_given_names() {
    let policy = json!({"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "tenure-a"}});
    let objects = policing(&[policy]);
    let rights = list_rights(&objects);
    let of = |words: &str| -> Vec<&String> { rights.iter().filter(|right| right.contains(words)).collect() };
    assert_eq!(of(" validatingadmissionpolicies patch").len(), 1);
    assert!(
        of(" patch tenure-a").len() == 2 && of(" bind tenure-namespace-applier").len() == 1,
        "{rights:?}"
    );
    assert!(
        of(" delete ").len() == 2 && of(" delete tenure-a").len() == 2,
        "{rights:?}"
    );
    for refused in [" escalate ", " impersonate ", " * "] {
        assert!(of(refused).is_empty(), "{refused}: {rights:?}");
    }
}

/// An administrator decides where it may write Secrets: nothing of an installation binds it, it lists and watches nothing, and without
/// Surfaces and access it has nothing to do.
#[test]
fn credential_writer_lists_nothing_and_is_bound_nowhere() {
    let objects = objects().expect("objects");
    let named = |objects: &[Value]| -> Vec<Value> {
        let is_named = |object: &&Value| object["metadata"]["name"] == SECRET_WRITER;
        objects.iter().filter(is_named).cloned().collect()
    };
    let kinds: Vec<Value> = named(&objects).iter().map(|object| object["kind"].clone()).collect();
    assert_eq!(kinds, ["ClusterRole", "ServiceAccount"]);
    let is_bound = |object: &Value| {
        let subjects = object["subjects"].as_array().into_iter().flatten();
        object["roleRef"]["name"] == SECRET_WRITER
            || subjects.into_iter().any(|subject| subject["name"] == SECRET_WRITER)
    };
    assert!(!objects.iter().any(is_bound));
    let rights: Vec<String> = list_rights(&named(&objects)).into_iter().collect();
    assert_eq!(rights.len(), 13, "{rights:?}");
    // Without the verb that owners lack, RBAC would let an owner bind this role.
    let (permission, rights): (Vec<String>, Vec<String>) = rights
        .into_iter()
        .partition(|right| right.contains(" write-credentials "));
    assert_eq!(permission.len(), 1, "{permission:?}");
    assert!(permission[0].contains(" accessproviders "), "{permission:?}");
    for right in rights {
        let resources = [" secrets ", " roles ", " rolebindings "];
        assert!(resources.iter().any(|resource| right.contains(resource)), "{right}");
        let verbs = ["get", "create", "patch", "delete"].map(|verb| format!(" {verb} any"));
        assert!(verbs.iter().any(|verb| right.ends_with(verb)), "{right}");
    }
    let without = objects_for(&|kind| !["AccessProvider", "Surface"].contains(&kind)).expect("objects");
    assert!(list_rights(&named(&without)).is_empty());
}

/// The controller of access writes its records. Accounts that an administrator names do the rest.
#[test]
fn access_controller_reads_no_secrets_and_writes_no_grants() {
    let rights = |on: bool| {
        let objects = objects_for(&|kind| on || kind != "AccessProvider").expect("objects");
        let rights = list_rights(&objects).into_iter();
        rights
            .filter(|right| right.starts_with("\"tenure-access"))
            .collect::<Vec<String>>()
    };
    assert!(rights(false).is_empty());
    let rights = rights(true);
    for right in &rights {
        let is_event = right.contains("\"tenure-access-records\" \"tenure-system\"  events ");
        let is_role = right.ends_with(" clusterroles get any");
        assert!(is_event || is_role || right.contains(" tenure.dev "), "{right}");
        // The controller is never the requester or the approver.
        let is_word = [" fluxaccesses ", " fluxaccessgrants ", " fluxaccessstandinggrants "];
        if is_word.iter().any(|word| right.contains(word)) {
            assert!(
                [" get ", " list ", " watch "].iter().any(|verb| right.contains(verb)),
                "{right}"
            );
        }
        assert!(!right.contains(" approve ") && !right.contains(" vouch "), "{right}");
    }
    assert!(rights.iter().any(|right| right.contains(" fluxaccesstargets record ")));
}

/// Returns the writing verbs that rules of the controller grant, as `RESOURCE VERB`.
fn list_writes(roles: &[&Value]) -> BTreeSet<String> {
    let mut writes = BTreeSet::new();
    for rule in roles.iter().flat_map(|role| list_rules(role)) {
        let group = list_texts(&rule, "apiGroups").concat();
        for resource in list_texts(&rule, "resources") {
            let (name, part) = resource.split_once('/').map_or((resource.as_str(), ""), |found| found);
            let mut shown = if group.is_empty() {
                name.to_owned()
            } else {
                format!("{name}.{group}")
            };
            if !part.is_empty() {
                shown = format!("{shown}/{part}");
            }
            for verb in list_texts(&rule, "verbs") {
                if !["get", "list", "watch"].contains(&verb.as_str()) {
                    writes.insert(format!("{shown} {verb}"));
                }
            }
        }
    }
    writes
}

/// An auditor compares the page with `kubectl auth can-i --list`.
#[test]
fn page_lists_every_writing_right_of_the_controller() {
    let page = include_str!("../../../../docs/concepts/identities.md");
    let (_, section) = page
        .split_once("### Remaining rights of the controller")
        .expect("a section");
    let (section, _) = section.split_once("\n### ").expect("an end");
    let (everywhere, inside) = section.split_once("Roles add:").expect("two tables");
    let read = |text: &str| {
        let mut writes = BTreeSet::new();
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.split('|').collect();
            let names = |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
            for resource in names(cells[1]) {
                writes.extend(names(cells[2]).into_iter().map(|verb| format!("{resource} {verb}")));
            }
        }
        writes
    };
    let objects = objects().expect("an installation");
    let is_controllers = |object: &&Value| {
        objects.iter().any(|binding| {
            binding["subjects"][0]["name"] == CONTROLLER_SERVICE_ACCOUNT
                && binding["roleRef"]["name"] == object["metadata"]["name"]
                && binding["roleRef"]["kind"] == object["kind"]
        })
    };
    let of_kind = |kind: &str| -> Vec<&Value> {
        let roles = objects.iter().filter(|object| object["kind"] == kind);
        roles.filter(is_controllers).collect()
    };
    assert_eq!(read(everywhere), list_writes(&of_kind("ClusterRole")));
    assert_eq!(read(inside), list_writes(&of_kind("Role")));
}
