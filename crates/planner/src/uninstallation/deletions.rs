//! The objects that an uninstallation deletes, and those that Kubernetes deletes with them. The latter are the objects of a deleted kind, the contents of a deleted
//! namespace, objects whose owners are all gone, and the APIServices of groups without definitions.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;
use tenure_api::ObjectView;

use super::{Action, KindChoice, ObservedObject, Snapshot, Step, name_object};

/// The kinds whose CustomResourceDefinitions an uninstallation deletes, as group and kind.
pub(super) struct DeletedKinds(BTreeSet<(String, String)>);

impl DeletedKinds {
    pub(super) fn from_snapshot(snapshot: &Snapshot, kinds: KindChoice) -> Self {
        let definitions = snapshot
            .installed
            .iter()
            .filter_map(|seen| read_definition(&seen.object));
        let going = definitions.filter(|(group, kind)| is_deleted_kind((group, kind), kinds));
        Self(going.map(|(group, kind)| (group.to_owned(), kind.to_owned())).collect())
    }

    /// Checks whether an object is of one of these kinds.
    pub(super) fn has(&self, object: &Value) -> bool {
        self.contains(ObjectView::new(object))
    }

    /// Checks whether an ownerReference names an object of one of these kinds.
    pub(super) fn has_owner(&self, owner: &Value) -> bool {
        self.contains(ObjectView::new(owner))
    }

    fn contains(&self, named: ObjectView<'_>) -> bool {
        let (group, _) = named.read_text("/apiVersion").split_once('/').unwrap_or_default();
        self.0
            .contains(&(group.to_owned(), named.read_text("/kind").to_owned()))
    }
}

/// Checks whether a kind is deleted. helm-controller would uninstall the chart of each deleted HelmRelease, so its kinds always stay.
pub(super) fn is_deleted_kind((group, kind): (&str, &str), kinds: KindChoice) -> bool {
    match kinds {
        KindChoice::All => !kind.starts_with("Helm"),
        KindChoice::Own => group == "tenure.dev",
        KindChoice::None => false,
    }
}

/// Returns the group and the kind that a CustomResourceDefinition defines.
pub(super) fn read_definition(object: &Value) -> Option<(&str, &str)> {
    let view = ObjectView::new(object);
    let is_definition = view.read_text("/kind") == "CustomResourceDefinition";
    is_definition.then(|| (view.read_text("/spec/group"), view.read_text("/spec/names/kind")))
}

/// Lists the names of all objects that go, sorted. Owner references that the plan removes neither keep an object nor cause its deletion.
pub(super) fn list_deleted(
    snapshot: &Snapshot,
    stages: &[Vec<Step>],
    going: &DeletedKinds,
    namespace_goes: bool,
) -> Vec<String> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    let mut uids: HashSet<&str> = HashSet::new();
    for step in stages.iter().flatten() {
        if let Action::Delete { uid } = &step.action {
            names.extend(step.says.strip_suffix(": deleted").map(str::to_owned));
            uids.insert(uid);
        }
    }
    let of_kinds = snapshot.custom.iter().filter(|seen| going.has(&seen.object));
    let inside = snapshot.inside.iter().filter(|_| namespace_goes);
    for seen in of_kinds.chain(inside) {
        names.insert(name_object(&seen.object));
        uids.insert(ObjectView::new(&seen.object).read_text("/metadata/uid"));
    }
    names.extend(list_group_services(snapshot, &names));
    loop {
        let orphans: Vec<&ObservedObject> = snapshot
            .owned
            .iter()
            .filter(|seen| !uids.contains(ObjectView::new(&seen.object).read_text("/metadata/uid")))
            .filter(|seen| is_orphan(&seen.object, going, &uids))
            .collect();
        if orphans.is_empty() {
            return names.into_iter().collect();
        }
        for seen in orphans {
            names.insert(name_object(&seen.object));
            uids.insert(ObjectView::new(&seen.object).read_text("/metadata/uid"));
        }
    }
}

/// Lists the APIServices of groups without remaining definitions. The API server deletes them by itself.
fn list_group_services(snapshot: &Snapshot, going: &BTreeSet<String>) -> Vec<String> {
    let staying = snapshot
        .definitions
        .iter()
        .filter(|definition| !going.contains(&format!("CustomResourceDefinition {definition}")));
    let groups: HashSet<&str> = staying
        .filter_map(|definition| definition.split_once('.'))
        .map(|(_, group)| group)
        .collect();
    let defined: HashSet<&str> = snapshot
        .definitions
        .iter()
        .filter_map(|definition| definition.split_once('.'))
        .map(|(_, group)| group)
        .collect();
    let is_left = |seen: &&ObservedObject| {
        let service = ObjectView::new(&seen.object).read_text("/metadata/name");
        let group = service.split_once('.').map(|(_, group)| group);
        group.is_some_and(|group| defined.contains(group) && !groups.contains(group))
    };
    let left = snapshot.group_services.iter().filter(is_left);
    left.map(|seen| name_object(&seen.object)).collect()
}

/// Checks whether all remaining owners of an object are gone.
fn is_orphan(object: &Value, going: &DeletedKinds, gone: &HashSet<&str>) -> bool {
    let owners = ObjectView::new(object).list("/metadata/ownerReferences");
    let mut kept = owners.iter().filter(|owner| !going.has_owner(owner)).peekable();
    kept.peek().is_some() && kept.all(|owner| gone.contains(ObjectView::new(owner).read_text("/uid")))
}
