//! What is written so that tenancy's policies hold: the facts on namespaces, and the policies with their bindings.
//!
//! Facts come first: a policy that finds none in a tenant's namespace refuses what owners write there. So the policies are put in force
//! by whoever writes the facts, once all are written, and not by who installs. What somebody deleted or changed of them is put back,
//! and told. It refuses to touch other policies, and annotations other than facts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value, json};
use tenure_api::ObjectView;
use tenure_tenancy::Facts;
use tenure_tenancy::admission::policy::{
    FACTS_PREFIX, POLICY_PREFIX, Refusing, describe_namespaces, is_bound, list_policies,
};

use crate::merge_patch::find_difference;
use crate::plan::{Event, EventKind, EventPlace};

/// What is known when it is decided.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Tenants and namespaces.
    pub facts: Facts,
    /// What refuses edits by hand, by namespace.
    pub refusing: Refusing,
    /// All namespaces, and what stands on them.
    pub namespaces: Vec<SeenNamespace>,
    /// The policies and bindings that bear names of ours, as they are stored.
    pub live: Vec<Value>,
    /// What could not be written when it was tried last.
    pub refused: BTreeSet<Target>,
}

/// What is written: the kind and the name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl Target {
    fn new(kind: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.name)
    }
}

/// A namespace as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenNamespace {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Its annotations; others than facts are passed over.
    pub annotations: BTreeMap<String, String>,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// The facts of a namespace, as a merge patch that names its uid.
    Facts {
        /// Name of the namespace.
        namespace: String,
        /// What is written.
        patch: Value,
    },
    /// A policy or a binding that isn't there.
    Create {
        /// The object.
        object: Value,
        /// What is told, where somebody deleted it.
        told: Option<Event>,
    },
    /// A policy or a binding that isn't as it should be, as a merge patch that names its uid.
    Repair {
        /// The object as it should be.
        object: Value,
        /// What is written.
        patch: Value,
        /// What is told.
        told: Event,
    },
}

impl Write {
    /// What it writes.
    #[must_use]
    pub fn target(&self) -> Target {
        match self {
            Self::Facts { namespace, .. } => Target::new("Namespace", namespace),
            Self::Create { object, .. } | Self::Repair { object, .. } => {
                let view = ObjectView::of(object);
                Target::new(view.read_text("/kind"), view.read_text("/metadata/name"))
            }
        }
    }
}

/// Whether a policy or a binding is one of ours, by its name. The one above the controllers is not theirs to keep.
#[must_use]
pub fn is_ours(name: &str) -> bool {
    name.starts_with(POLICY_PREFIX) && !is_bound(name)
}

/// What is to be written now; nothing where all is as it should be.
#[must_use]
pub fn plan(snapshot: &Snapshot) -> Vec<Write> {
    let names = snapshot.namespaces.iter().map(|namespace| namespace.name.as_str());
    let described = describe_namespaces(&snapshot.facts, &snapshot.refusing, names);
    let described = snapshot.namespaces.iter().zip(described);
    let facts: Vec<Write> = described
        .filter_map(|(namespace, wanted)| write_facts(namespace, &wanted))
        .collect();
    let is_first = snapshot.live.is_empty();
    // While it is the first time, nothing is refused yet. A namespace that takes no facts, as its owner may have filled it up, is not waited
    // for: without them its owners are refused there, and nobody else is.
    if is_first && facts.iter().any(|write| !snapshot.refused.contains(&write.target())) {
        return facts;
    }
    let wanted = list_policies(&snapshot.facts.settings().platform_namespace);
    let policies = wanted
        .into_iter()
        .filter_map(|wanted| put_back(&snapshot.live, wanted, is_first));
    policies.chain(facts).collect()
}

/// The change of a namespace's facts, if there is one.
fn write_facts(namespace: &SeenNamespace, wanted: &BTreeMap<String, String>) -> Option<Write> {
    let standing = namespace
        .annotations
        .iter()
        .filter(|(key, _)| key.starts_with(FACTS_PREFIX));
    let mut annotations = Map::new();
    for (key, value) in wanted {
        if namespace.annotations.get(key) != Some(value) {
            annotations.insert(key.clone(), json!(value));
        }
    }
    for (key, _) in standing.filter(|(key, _)| !wanted.contains_key(*key)) {
        annotations.insert(key.clone(), Value::Null);
    }
    (!annotations.is_empty()).then(|| Write::Facts {
        namespace: namespace.name.clone(),
        patch: json!({ "metadata": { "uid": namespace.uid, "annotations": annotations } }),
    })
}

fn put_back(live: &[Value], wanted: Value, is_first: bool) -> Option<Write> {
    let (kind, name) = {
        let view = ObjectView::of(&wanted);
        (
            view.read_text("/kind").to_owned(),
            view.read_text("/metadata/name").to_owned(),
        )
    };
    let is_it = |object: &&Value| {
        let view = ObjectView::of(object);
        view.read_text("/kind") == kind && view.read_text("/metadata/name") == name
    };
    let Some(found) = live.iter().find(is_it) else {
        let told = (!is_first).then(|| {
            tell(format!(
                "{kind} {name} was not there, and is made again: what it refuses was allowed meanwhile"
            ))
        });
        return Some(Write::Create { object: wanted, told });
    };
    if ObjectView::of(found).is_being_deleted() {
        // It is made again once it is gone.
        return None;
    }
    let part = |object: &Value, path: &str| object.pointer(path).cloned().unwrap_or(Value::Null);
    let spec = find_difference(&part(found, "/spec"), &part(&wanted, "/spec"));
    let fields: Vec<String> = match &spec {
        Some(Value::Object(fields)) => fields.keys().map(|field| format!("spec.{field}")).collect(),
        _ => Vec::new(),
    };
    let spec = spec?;
    let told = tell(format!(
        "{kind} {name} was changed ({}), and is put back: what it refuses may have been allowed meanwhile",
        fields.join(", ")
    ));
    let patch = json!({ "metadata": { "uid": part(found, "/metadata/uid") }, "spec": spec });
    Some(Write::Repair {
        object: wanted,
        patch,
        told,
    })
}

fn tell(message: String) -> Event {
    Event {
        kind: EventKind::Warning,
        reason: "PolicyPutBack".to_owned(),
        message,
        annotations: BTreeMap::new(),
        place: EventPlace::Beside,
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::allow_attributes,
        reason = "tests may panic"
    )]

    use tenure_tenancy::realm::TenantOwnerReference;
    use tenure_tenancy::{NamespaceFacts, Settings, TenantFacts};

    use super::*;

    fn snapshot() -> Snapshot {
        let mut facts = Facts::new(Settings::default());
        facts.set_tenant(TenantFacts {
            name: "blue".to_owned(),
            uid: "t".to_owned(),
            recorded: BTreeMap::from([("blue".to_owned(), "n".to_owned())]),
            ..TenantFacts::default()
        });
        facts.set_namespace(NamespaceFacts {
            name: "blue".to_owned(),
            uid: "n".to_owned(),
            tenant_label: Some("blue".to_owned()),
            tenant_owners: vec![TenantOwnerReference {
                name: "blue".to_owned(),
                uid: "t".to_owned(),
            }],
            ..NamespaceFacts::default()
        });
        let seen = |name: &str| SeenNamespace {
            name: name.to_owned(),
            uid: "n".to_owned(),
            annotations: BTreeMap::from([("others".to_owned(), "stay".to_owned())]),
        };
        Snapshot {
            facts,
            namespaces: vec![seen("blue"), seen("nobody")],
            ..Snapshot::default()
        }
    }

    /// The snapshot after what was planned was done.
    fn carry_out(snapshot: &mut Snapshot, writes: Vec<Write>) {
        for write in writes {
            match write {
                Write::Facts { namespace, patch } => {
                    let seen = snapshot
                        .namespaces
                        .iter_mut()
                        .find(|seen| seen.name == namespace)
                        .unwrap();
                    for (key, value) in patch["metadata"]["annotations"].as_object().unwrap() {
                        match value.as_str() {
                            Some(value) => seen.annotations.insert(key.clone(), value.to_owned()),
                            None => seen.annotations.remove(key),
                        };
                    }
                }
                Write::Create { object, told } => {
                    assert_eq!(told, None);
                    snapshot.live.push(object);
                }
                Write::Repair { .. } => panic!("nothing was changed"),
            }
        }
    }

    #[test]
    fn policies_come_after_the_facts_and_both_are_written_once() {
        let mut snapshot = snapshot();
        let first = plan(&snapshot);
        let [Write::Facts { namespace, patch }] = first.as_slice() else {
            panic!("{first:?}")
        };
        assert_eq!((namespace.as_str(), &patch["metadata"]["uid"]), ("blue", &json!("n")));
        assert_eq!(
            patch["metadata"]["annotations"]["facts.tenure.dev/account"],
            "blue-gitops"
        );
        // Who makes the server refuse the facts keeps no policy from coming.
        let mut full = snapshot.clone();
        full.refused = first.iter().map(Write::target).collect();
        let creates = |writes: &[Write]| {
            writes
                .iter()
                .filter(|write| matches!(write, Write::Create { .. }))
                .count()
        };
        assert!(creates(&first) == 0 && creates(&plan(&full)) >= 30);
        carry_out(&mut snapshot, first);
        let second = plan(&snapshot);
        assert!(second.len() >= 30 && second.iter().all(|write| matches!(write, Write::Create { .. })));
        carry_out(&mut snapshot, second);
        assert_eq!(plan(&snapshot), []);
        // What is no fact any more goes, and nothing else.
        snapshot.namespaces[1]
            .annotations
            .insert("facts.tenure.dev/tenant".to_owned(), "blue".to_owned());
        let stale = plan(&snapshot);
        let [Write::Facts { patch, .. }] = stale.as_slice() else {
            panic!("{stale:?}")
        };
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({ "facts.tenure.dev/tenant": null })
        );
    }

    #[test]
    fn what_was_deleted_or_weakened_is_put_back_and_told() {
        let mut snapshot = snapshot();
        let facts = plan(&snapshot);
        carry_out(&mut snapshot, facts);
        let policies = plan(&snapshot);
        carry_out(&mut snapshot, policies);
        let gone = snapshot.live.remove(3);
        let weakened = |object: &mut Value| {
            object["spec"]["matchConstraints"]["excludeResourceRules"] = json!([{ "resources": ["*"] }])
        };
        weakened(&mut snapshot.live[0]);
        snapshot.live[1]["spec"]["validationActions"] = json!(["Audit"]);
        let writes = plan(&snapshot);
        let [
            Write::Repair {
                patch: rules,
                told: one,
                ..
            },
            Write::Repair {
                patch: actions,
                told: other,
                ..
            },
            Write::Create {
                object,
                told: Some(third),
            },
        ] = writes.as_slice()
        else {
            panic!("{writes:#?}");
        };
        assert_eq!(
            rules["spec"],
            json!({ "matchConstraints": { "excludeResourceRules": null } })
        );
        assert_eq!(actions["spec"], json!({ "validationActions": ["Deny"] }));
        assert_eq!(*object, gone);
        assert_eq!(
            one.message,
            "ValidatingAdmissionPolicy tenure-namespaces was changed (spec.matchConstraints), and is put back: what it refuses may have been \
             allowed meanwhile"
        );
        assert!(
            other
                .message
                .contains("Binding tenure-namespaces was changed (spec.validationActions)")
        );
        assert!(third.message.contains("was not there, and is made again"));
    }
}
