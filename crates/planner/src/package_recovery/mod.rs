//! The recovery of a Package whose fields other writers took from the platform's chart: what comes back, what goes, what stays, and the two writes that do it.
//!
//! ```text
//! Package, with managedFields ─┐                ┌─▶ 1. other managers lose fields (managedFields only)
//! manifest of the release ─────┼─▶ plan ─▶ rows ┤
//! managers to reset ───────────┘                └─▶ 2. server-side apply of the chart's object, as the chart's manager
//! ```
//!
//! The rule: each field that the chart renders comes back, and is the chart's alone. A field beside them is an administrator's, and stays, unless the caller names its manager.
//! The plan simulates both writes, so that its rows are what the API server will do. After a kill between the writes, the next plan has the second one.

mod chart;
mod fields;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use structured_merge::owners::value_at;
use structured_merge::{
    ApplyError, FieldManager, FieldPath, FieldSet, Managed, ManagedFieldsError, ManagerId, Operation, OwnedFields,
    Timestamp, Typing,
};
use tenure_admission_rules::CHART_MANAGERS;
use tenure_api::ObjectView;
use tenure_api::metadata::{KUSTOMIZE_CONTROLLER, OWNER_NAME, OWNER_NAMESPACE};

pub use chart::{LONGEST_MANIFEST, ManifestProblem, ReleaseName, ReleaseProblem, find_release, find_rendered};
use fields::{Leaf, is_guarded, is_same, list_leaves};

/// The label that helm-controller adds to each object of a release.
const FLUX_LABEL: &str = "helm.toolkit.fluxcd.io/name";

/// The managers whose fields beside the chart's are removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reset {
    /// No fields beside the chart's are removed.
    #[default]
    Nothing,
    /// Fields of these managers.
    Managers(BTreeSet<String>),
    /// Every field of spec that the chart does not render.
    All,
}

/// The effect of a recovery on a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The field gets the chart's value.
    Restored,
    /// The value stays, and the chart's manager becomes the owner.
    Returned,
    /// The field goes.
    Removed,
    /// The chart doesn't render the field, and it stays.
    Kept,
}

impl Effect {
    /// Returns the effect as a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restored => "restore",
            Self::Returned => "hand back",
            Self::Removed => "remove",
            Self::Kept => "keep",
        }
    }
}

/// A field of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoveredField {
    /// The path of the field.
    pub path: FieldPath,
    /// The effect on the field.
    pub effect: Effect,
    /// The value now; `None` if the field is missing.
    pub before: Option<Value>,
    /// The value after the recovery; `None` if the field is missing then.
    pub after: Option<Value>,
    /// The field managers that own the field now, sorted.
    pub owners: Vec<String>,
}

/// The plan of a recovery.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovery {
    /// The field manager of the chart.
    pub manager: String,
    /// The fields, ordered by path. Fields that are as in the chart are left out.
    pub fields: Vec<RecoveredField>,
    /// Namespace and name of the Kustomization that applies fields of this plan. It would apply them again.
    pub kustomization: Option<(String, String)>,
    /// The first write, a JSON patch with the object's version, if one is needed. It changes managedFields alone.
    pub transfer: Option<Value>,
    /// The field managers of the Package, sorted.
    pub managers: Vec<String>,
    /// Managers to reset that own nothing of the Package.
    pub unknown_managers: Vec<String>,
    chart: Value,
}

/// The reason for which there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// managedFields can't be read.
    #[error("metadata.managedFields can't be read: {0}")]
    ManagedFields(#[from] ManagedFieldsError),
    /// The API server would refuse the chart's object.
    #[error("the chart's version can't be applied: {0}")]
    Apply(#[from] ApplyError),
}

impl Recovery {
    /// Whether something has to be written.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.fields.iter().any(|field| field.effect != Effect::Kept)
    }

    /// Whether this plan changes only values that another plan changes, too, and in the same way. The owners may differ: they do after the first write.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let changes = |field: &&RecoveredField| matches!(field.effect, Effect::Restored | Effect::Removed);
        let by_path = |plan: &Self| -> BTreeMap<FieldPath, (Effect, Option<Value>)> {
            let changed = plan.fields.iter().filter(changes);
            changed
                .map(|field| (field.path.clone(), (field.effect, field.after.clone())))
                .collect()
        };
        let shown = by_path(other);
        by_path(self)
            .iter()
            .all(|(path, change)| shown.get(path) == Some(change))
    }

    /// Returns the second write: the chart's object, for a server-side apply by force onto exactly this version of the Package.
    #[must_use]
    pub fn write_apply(&self, package: &Value) -> Value {
        let mut object = self.chart.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["resourceVersion", "uid"] {
                if let Some(value) = package.get("metadata").and_then(|metadata| metadata.get(field)) {
                    metadata.insert(field.to_owned(), value.clone());
                }
            }
        }
        object
    }
}

/// Plans the recovery of a Package. `chart`: the Package as [`find_rendered`] returns it.
///
/// # Errors
/// [`RecoveryError`].
pub fn plan(package: &Value, chart: &Value, reset: &Reset) -> Result<Recovery, RecoveryError> {
    let managed = Managed::of_object(package)?;
    let manager = name_manager(&managed, chart);
    let managers = list_managers(&managed);
    let situation = Situation::new(package, chart, &managed);
    let removed = situation.list_removed(reset);
    let transferred = situation.transfer(&manager, &removed);
    let mut after = package.clone();
    let transfer = (transferred != managed).then(|| write_transfer(package, &transferred));
    if let Some(metadata) = after.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("managedFields".to_owned(), transferred.to_value());
    }
    let api_version = ObjectView::new(package).read_text("/apiVersion");
    let fields = FieldManager::new(Typing::deduced(), api_version, "Package").for_custom_resource();
    let now = Timestamp::from_unix_seconds(0);
    let applied = fields.apply(Some(&after), chart, &manager, true, now)?;
    let after = applied.into_object(Some(&after));
    let fields = situation.compare(&after)?;
    let is_applied = |field: &RecoveredField| {
        field.effect != Effect::Kept && field.owners.iter().any(|owner| owner == KUSTOMIZE_CONTROLLER)
    };
    let view = ObjectView::new(package);
    let kustomization = view.find_label(OWNER_NAMESPACE).zip(view.find_label(OWNER_NAME));
    Ok(Recovery {
        manager,
        kustomization: kustomization
            .filter(|_| fields.iter().any(is_applied))
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
        fields,
        transfer,
        unknown_managers: match reset {
            Reset::Managers(names) => names.iter().filter(|name| !managers.contains(name)).cloned().collect(),
            Reset::Nothing | Reset::All => Vec::new(),
        },
        managers,
        chart: chart.clone(),
    })
}

/// Returns the names of the managers that own a field besides the status, sorted.
fn list_managers(managed: &Managed) -> Vec<String> {
    let ids = managed.managers.keys().filter(|id| id.subresource.is_empty());
    let names: BTreeSet<&String> = ids.map(|id| &id.manager).collect();
    names.into_iter().cloned().collect()
}

/// Returns the field manager of the chart, by managedFields or by the labels.
fn name_manager(managed: &Managed, chart: &Value) -> String {
    let is_known = |name: &str, operation| {
        let mut ids = managed.managers.keys();
        ids.any(|id| id.manager == name && id.operation == operation && id.subresource.is_empty())
    };
    let operations = [Operation::Apply, Operation::Update].into_iter();
    let mut candidates = operations.flat_map(|operation| CHART_MANAGERS.map(|name| (name, operation)));
    let [flux, helm] = CHART_MANAGERS;
    let by_label = match ObjectView::new(chart).find_label(FLUX_LABEL) {
        Some(_) => flux,
        None => helm,
    };
    let found = candidates.find(|(name, operation)| is_known(name, *operation));
    found.map_or(by_label, |(name, _)| name).to_owned()
}

/// Returns a patch of managedFields, with the version of the object that it was decided on.
fn write_transfer(package: &Value, managed: &Managed) -> Value {
    let mut patch = vec![json!({ "op": "replace", "path": "/metadata/managedFields", "value": managed.to_value() })];
    if let Some(version) = ObjectView::new(package).find_text("/metadata/resourceVersion") {
        patch.push(json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version }));
    }
    Value::Array(patch)
}

/// A Package, the chart's version and their fields.
struct Situation<'a> {
    package: &'a Value,
    managed: &'a Managed,
    chart: Vec<Leaf<'a>>,
    /// Fields of the Package that the chart does not render, and could.
    beside: Vec<Leaf<'a>>,
}

impl<'a> Situation<'a> {
    fn new(package: &'a Value, chart: &'a Value, managed: &'a Managed) -> Self {
        let chart = list_leaves(chart);
        let rendered = FieldSet::from_paths(chart.iter().map(|leaf| &leaf.path));
        let values = chart.iter().filter(|leaf| !leaf.is_empty_map());
        let values = FieldSet::from_paths(values.map(|leaf| &leaf.path));
        let is_beside = |leaf: &Leaf<'_>| {
            let is_relevant = !leaf.is_metadata() || is_guarded(&leaf.path);
            // The chart's value replaces the map.
            let mut parents = (1..leaf.path.0.len()).filter_map(|length| leaf.path.0.get(..length));
            is_relevant
                && !parents.any(|parent| values.contains(parent))
                && !fields::has_at_or_below(&rendered, &leaf.path.0)
        };
        let beside = list_leaves(package).into_iter().filter(is_beside).collect();
        Self {
            package,
            managed,
            chart,
            beside,
        }
    }

    /// Returns the fields beside the chart's that go.
    fn list_removed(&self, reset: &Reset) -> Vec<&Leaf<'a>> {
        let goes = |leaf: &&Leaf<'_>| match reset {
            Reset::Nothing => false,
            Reset::All => true,
            Reset::Managers(names) => {
                let owners = list_owners(self.managed, &leaf.path);
                !owners.is_empty() && owners.iter().all(|owner| names.contains(owner))
            }
        };
        self.beside.iter().filter(goes).collect()
    }

    /// Returns the managers after the first write. Fields that go become the chart's, so that its apply removes them. Fields that the chart renders are left to the chart.
    fn transfer(&self, manager: &str, removed: &[&Leaf<'a>]) -> Managed {
        let is_chart = |id: &ManagerId| CHART_MANAGERS.contains(&id.manager.as_str());
        let own = ManagerId::new(manager, Operation::Apply, "", "");
        let of_chart = self
            .managed
            .managers
            .iter()
            .filter(|(id, _)| is_chart(id) && id.subresource.is_empty());
        let of_chart = FieldSet::union_of(of_chart.map(|(_, owned)| &owned.fields));
        let (mut returned, mut restored) = (FieldSet::new(), FieldSet::new());
        for leaf in &self.chart {
            if !is_same(value_at(self.package, &leaf.path), leaf.value) {
                restored.insert(&leaf.path.0);
            } else if is_guarded(&leaf.path) || !of_chart.contains(&leaf.path.0) {
                returned.insert(&leaf.path.0);
            }
        }
        let mut gone = FieldSet::from_paths(removed.iter().map(|leaf| &leaf.path));
        self.add_emptied_parents(&mut gone);
        let mut managed = self.managed.clone();
        for (id, owned) in &mut managed.managers {
            if *id == own || !id.subresource.is_empty() {
                continue;
            }
            let before = owned.fields.clone();
            owned.fields = owned.fields.difference(&gone);
            if !is_chart(id) {
                owned.fields = owned.fields.difference(&returned);
                // The second write takes these fields.
                let left = owned.fields.difference(&restored);
                if left != before {
                    owned.fields = owned.fields.difference(&self.list_bare_maps(&left));
                }
            }
        }
        if !gone.is_empty() {
            let api_version = ObjectView::new(self.package).read_text("/apiVersion").to_owned();
            let entry = managed.managers.entry(own).or_insert_with(|| OwnedFields {
                api_version,
                fields: FieldSet::new(),
                time: None,
            });
            entry.fields = entry.fields.union(&gone);
        }
        managed.managers.retain(|_, owned| !owned.fields.is_empty());
        managed
    }

    /// Returns the maps of a set that have no fields in the set. An owner of a map alone would keep the empty map after the chart removes it.
    fn list_bare_maps(&self, set: &FieldSet) -> FieldSet {
        let mut paths = set.paths();
        paths.sort_by_key(|path| std::cmp::Reverse(path.0.len()));
        let (mut bare, mut kept) = (FieldSet::new(), FieldSet::new());
        for path in paths {
            let map = value_at(self.package, &path).and_then(Value::as_object);
            let has_fields = map.is_some_and(|map| !map.is_empty());
            match has_fields && !fields::has_at_or_below(&kept, &path.0) {
                true => bare.insert(&path.0),
                false => kept.insert(&path.0),
            }
        }
        bare
    }

    /// Adds the maps that lose all their fields.
    fn add_emptied_parents(&self, gone: &mut FieldSet) {
        let mut kept = FieldSet::from_paths(self.chart.iter().map(|leaf| &leaf.path));
        let removed = gone.paths();
        for leaf in self.beside.iter().filter(|leaf| !gone.contains(&leaf.path.0)) {
            kept.insert(&leaf.path.0);
        }
        for path in removed {
            // The map `spec` and the maps of the metadata stay.
            for length in (2..path.0.len()).rev() {
                let Some(parent) = path.0.get(..length) else { break };
                if fields::is_metadata(parent) || fields::has_at_or_below(&kept, parent) {
                    break;
                }
                gone.insert(parent);
            }
        }
    }

    /// Returns the rows: what differs between the Package and its state after both writes, and what stays beside the chart's fields.
    fn compare(&self, after: &Value) -> Result<Vec<RecoveredField>, ManagedFieldsError> {
        let owned_after = Managed::of_object(after)?;
        let is_map = |object: &Value, path: &FieldPath| value_at(object, path).is_some_and(Value::is_object);
        let is_emptied = |value: &Option<Value>| value.as_ref().and_then(Value::as_object).is_some_and(Map::is_empty);
        let whole = after;
        let (before, left) = (list_leaves(self.package), list_leaves(after));
        let mut paths: Vec<&FieldPath> = before.iter().chain(&left).map(|leaf| &leaf.path).collect();
        paths.sort();
        paths.dedup();
        let beside = FieldSet::from_paths(self.beside.iter().map(|leaf| &leaf.path));
        let mut rows = Vec::new();
        for path in paths {
            let find = |leaves: &[Leaf<'_>]| {
                let found = leaves.binary_search_by(|leaf| leaf.path.cmp(path)).ok();
                found.and_then(|at| leaves.get(at)).map(|leaf| leaf.value.clone())
            };
            let (before, after) = (find(&before), find(&left));
            let owners = list_owners(self.managed, path);
            // The map stays, with other fields than before.
            if (is_emptied(&before) || is_emptied(&after)) && is_map(self.package, path) && is_map(whole, path) {
                continue;
            }
            let effect = match (&before, &after) {
                (Some(_), None) => Effect::Removed,
                (before, Some(after)) if !is_same(before.as_ref(), after) => Effect::Restored,
                _ if beside.contains(&path.0) => Effect::Kept,
                _ if owners != list_owners(&owned_after, path) => Effect::Returned,
                _ => continue,
            };
            rows.push(RecoveredField {
                path: path.clone(),
                effect,
                before,
                after,
                owners,
            });
        }
        Ok(rows)
    }
}

/// Returns the names of the managers of a field, sorted.
fn list_owners(managed: &Managed, path: &FieldPath) -> Vec<String> {
    let entries = managed.managers.iter();
    let owning = entries.filter(|(id, owned)| id.subresource.is_empty() && owned.fields.contains(&path.0));
    let names: BTreeSet<&String> = owning.map(|(id, _)| &id.manager).collect();
    names.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests;
