//! The owners after a write: the rules of server-side apply on typed objects, without the conventions of an API server.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::conflict::Conflict;
use crate::converter::{Convert, ConvertError};
use crate::managed::{ManagerId, OwnedFields};
use crate::path::FieldPath;
use crate::reset::ResetFields;
use crate::schema::Typing;
use crate::set::FieldSet;
use crate::typed::{Comparison, Duplicates, Outcome, TypedObject};

/// The managers of an object, each with its fields.
pub(crate) type Managers = BTreeMap<ManagerId, OwnedFields>;

/// A write through an endpoint of version `api_version`.
pub(crate) struct Updater<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) typing: &'a Typing,
    pub(crate) converter: &'a dyn Convert,
    pub(crate) reset_fields: &'a [(String, ResetFields)],
}

/// The object after an apply, unless it is the live object.
pub(crate) enum Merged {
    Same,
    Changed(Value),
}

/// The reason why the owners after a write can't be determined.
pub(crate) enum Failure {
    Conflicts(Vec<Conflict>),
    InvalidConfig(String),
    Other(String),
}

impl Updater<'_> {
    /// Returns the managers after an update from `live` to `new` by a new writer, and the fields that this writer owns.
    pub(crate) fn update(
        &self,
        live: &TypedObject<'_>,
        new: &TypedObject<'_>,
        managers: Managers,
    ) -> Result<(Managers, FieldSet), Failure> {
        let mut managers = self.reconcile_managers(live, managers)?;
        let comparison = self.remove_changed_fields(live, new, &mut managers, None, true)?;
        let owned = comparison.modified.union(&comparison.added);
        Ok((managers, self.remove_reset_fields(self.api_version, owned)))
    }

    /// Returns the object after `id` applied `config` to `live`, and the managers after that.
    pub(crate) fn apply(
        &self,
        live: &TypedObject<'_>,
        config: &TypedObject<'_>,
        managers: Managers,
        id: &ManagerId,
        force: bool,
    ) -> Result<(Merged, Managers), Failure> {
        let mut managers = self.reconcile_managers(live, managers)?;
        let merged = match live.merge_outcome(config) {
            Outcome::Same => Cow::Borrowed(live.value()),
            Outcome::Changed(merged) => Cow::Owned(merged),
        };
        let set = self.remove_reset_fields(self.api_version, config.field_set());
        let last = managers.remove(id);
        let (last_time, last) = match last {
            Some(last) => (last.time, Some((last.api_version, last.fields))),
            None => (None, None),
        };
        let owned = OwnedFields {
            api_version: self.api_version.to_owned(),
            fields: set,
            time: last_time,
        };
        managers.insert(id.clone(), owned);
        let new = match &last {
            Some((version, last)) if !last.is_empty() => {
                self.prune_obsolete_fields(merged, &managers, id, version, last)?
            }
            _ => merged,
        };
        let same = matches!(&new, Cow::Borrowed(value) if std::ptr::eq(*value, live.value()));
        if same {
            // Without a difference, no manager loses a field.
            managers.retain(|_, owned| !owned.fields.is_empty());
            return Ok((Merged::Same, managers));
        }
        let new = new.into_owned();
        let typed = TypedObject {
            value: &new,
            typing: live.typing,
        };
        self.remove_changed_fields(live, &typed, &mut managers, Some(id), force)?;
        let merged = if crate::json::equal_values(live.value(), &new) {
            Merged::Same
        } else {
            Merged::Changed(new)
        };
        Ok((merged, managers))
    }

    /// Removes the fields that `new` changes or removes from all managers except `writer`. Without `force`, the change of another manager's
    /// field is a conflict.
    fn remove_changed_fields(
        &self,
        live: &TypedObject<'_>,
        new: &TypedObject<'_>,
        managers: &mut Managers,
        writer: Option<&ManagerId>,
        force: bool,
    ) -> Result<Comparison, Failure> {
        let mut comparisons: Vec<(String, Comparison)> = Vec::new();
        comparisons.push((self.api_version.to_owned(), self.compare(self.api_version, live, new)));
        let mut conflicts = Vec::new();
        let mut obsolete = BTreeSet::new();
        let mut changes = Vec::new();
        for (id, owned) in managers.iter() {
            if Some(id) == writer {
                continue;
            }
            let known = comparisons
                .iter()
                .position(|(version, _)| *version == owned.api_version);
            let at = match known {
                Some(at) => at,
                None => match self.compare_in(&owned.api_version, live, new) {
                    Ok(comparison) => {
                        comparisons.push((owned.api_version.clone(), comparison));
                        comparisons.len() - 1
                    }
                    Err(ConvertError::NoSuchVersion(_)) => {
                        obsolete.insert(id.clone());
                        continue;
                    }
                    Err(ConvertError::Failed(problem)) => {
                        return Err(Failure::Other(format!("failed to convert new object: {problem}")));
                    }
                },
            };
            let Some((_, comparison)) = comparisons.get(at) else {
                continue;
            };
            let taken = owned.fields.intersects(&comparison.modified) || owned.fields.intersects(&comparison.added);
            if taken && !force {
                let within = |changed| owned.fields.intersection(changed);
                let fields = within(&comparison.modified).union(&within(&comparison.added));
                conflicts.extend(fields.paths().into_iter().map(|path: FieldPath| Conflict {
                    manager: id.clone(),
                    path,
                }));
            }
            if taken || owned.fields.intersects(&comparison.removed) {
                let left = owned
                    .fields
                    .difference(&comparison.modified)
                    .difference(&comparison.added)
                    .difference(&comparison.removed);
                changes.push((id.clone(), left));
            }
        }
        if !conflicts.is_empty() {
            return Err(Failure::Conflicts(conflicts));
        }
        for (id, left) in changes {
            if let Some(owned) = managers.get_mut(&id) {
                owned.fields = left;
            }
        }
        managers.retain(|id, owned| !owned.fields.is_empty() && !obsolete.contains(id));
        Ok(comparisons.swap_remove(0).1)
    }

    fn compare(&self, version: &str, live: &TypedObject<'_>, new: &TypedObject<'_>) -> Comparison {
        let comparison = live.compare(new);
        Comparison {
            removed: self.remove_reset_fields(version, comparison.removed),
            modified: self.remove_reset_fields(version, comparison.modified),
            added: self.remove_reset_fields(version, comparison.added),
        }
    }

    fn compare_in(
        &self,
        version: &str,
        live: &TypedObject<'_>,
        new: &TypedObject<'_>,
    ) -> Result<Comparison, ConvertError> {
        let typing = self
            .typing_of(version)
            .ok_or_else(|| ConvertError::NoSuchVersion(version.to_owned()))?;
        let (live, new) = (
            self.convert(live.value(), version)?,
            self.convert(new.value(), version)?,
        );
        Ok(self.compare(
            version,
            &TypedObject { value: &live, typing },
            &TypedObject { value: &new, typing },
        ))
    }

    fn remove_reset_fields(&self, version: &str, set: FieldSet) -> FieldSet {
        match self
            .reset_fields
            .iter()
            .find(|(reset_version, _)| reset_version == version)
        {
            Some((_, reset)) => reset.filter(set),
            None => set,
        }
    }

    fn typing_of(&self, version: &str) -> Option<&Typing> {
        if version == self.api_version {
            Some(self.typing)
        } else {
            self.converter.typing(version)
        }
    }

    fn convert<'v>(&self, object: &'v Value, version: &str) -> Result<Cow<'v, Value>, ConvertError> {
        if object.get("apiVersion").and_then(Value::as_str) == Some(version) {
            return Ok(Cow::Borrowed(object));
        }
        let converted = self.converter.convert(object, version)?;
        let typing = self
            .typing_of(version)
            .ok_or_else(|| ConvertError::NoSuchVersion(version.to_owned()))?;
        TypedObject::new(&converted, typing, Duplicates::Refused)
            .map_err(|errors| ConvertError::Failed(errors.to_string()))?;
        Ok(converted)
    }

    /// Returns the managers with their fields adjusted to the current schemas. Managers of versions that are no longer
    /// served are dropped. The live object must be an object of each of their versions.
    fn reconcile_managers(&self, live: &TypedObject<'_>, mut managers: Managers) -> Result<Managers, Failure> {
        let mut foreign: Vec<&str> = managers.values().map(|owned| owned.api_version.as_str()).collect();
        foreign.sort_unstable();
        foreign.dedup();
        for version in foreign {
            if let Err(ConvertError::Failed(problem)) = self.convert(live.value(), version) {
                return Err(Failure::Other(problem));
            }
        }
        managers.retain(|_, owned| {
            let Some(typing) = self.typing_of(&owned.api_version) else {
                return false;
            };
            // The value is not read here, since the schema is enough.
            if let Some(fields) = (TypedObject {
                value: &Value::Null,
                typing,
            })
            .reconcile(&owned.fields)
            {
                owned.fields = fields;
            }
            true
        });
        Ok(managers)
    }

    /// Returns `merged` without obsolete fields: `id` applied them last time (`last`, in `version`), doesn't apply them now, and no other
    /// manager owns them.
    fn prune_obsolete_fields<'v>(
        &self,
        merged: Cow<'v, Value>,
        managers: &Managers,
        id: &ManagerId,
        version: &str,
        last: &FieldSet,
    ) -> Result<Cow<'v, Value>, Failure> {
        let same_version = version == self.api_version;
        if same_version
            && managers
                .get(id)
                .is_some_and(|owned| last.difference(&owned.fields).is_empty())
        {
            // The manager still owns all these fields.
            return Ok(merged);
        }
        let failed = |what: &str, error: ConvertError| Failure::Other(format!("failed to prune fields: {what}{error}"));
        let Some(typing) = self.typing_of(version) else {
            return Ok(merged);
        };
        let converted = match self.convert(&merged, version) {
            Ok(converted) => converted.into_owned(),
            Err(ConvertError::NoSuchVersion(_)) => return Ok(merged),
            Err(error) => {
                return Err(failed(
                    "failed to convert merged object to last applied version: ",
                    error,
                ));
            }
        };
        let whole = TypedObject {
            value: &converted,
            typing,
        };
        let last = whole.with_named_fields(last);
        let pruned = self
            .add_back_owned(&converted, whole.remove(&last), version, managers)
            .map_err(|error| failed("failed add back owned items: ", error))?;
        // Fields that the manager never owned stay too, even inside a field that it owned.
        let pruned = self.convert(&pruned, version).map_err(|error| {
            let what = "failed add back dangling items: failed to convert pruned object to last applied version: ";
            failed(what, error)
        })?;
        let whole_set = whole.with_named_fields(&whole.field_set());
        let pruned_set = whole.with_named_fields(&TypedObject { value: &pruned, typing }.field_set());
        let gone = whole_set.difference(&pruned_set).intersection(&last);
        if gone.is_empty() && same_version {
            return Ok(merged);
        }
        let left = whole.remove(&gone);
        if same_version {
            return Ok(Cow::Owned(left));
        }
        Ok(Cow::Owned(
            self.convert(&left, self.api_version)
                .map_err(|error| failed("", error))?
                .into_owned(),
        ))
    }

    /// Returns `pruned` with all fields of `merged` that a manager owns, version by version. The version of `pruned` comes first, because
    /// conversions may need fields that are owned in it.
    fn add_back_owned(
        &self,
        merged: &Value,
        pruned: Value,
        pruned_version: &str,
        managers: &Managers,
    ) -> Result<Value, ConvertError> {
        let mut sets: BTreeMap<&str, Vec<&FieldSet>> = BTreeMap::new();
        for owned in managers.values() {
            sets.entry(&owned.api_version).or_default().push(&owned.fields);
        }
        let mut owned_in: BTreeMap<&str, FieldSet> = sets
            .into_iter()
            .map(|(version, sets)| (version, FieldSet::union_of(sets)))
            .collect();
        let first = owned_in.remove(pruned_version).map(|set| (pruned_version, set));
        let (mut merged, mut pruned) = (Cow::Borrowed(merged), pruned);
        for (version, owned) in first.into_iter().chain(owned_in) {
            let Some(typing) = self.typing_of(version) else {
                continue;
            };
            let (whole, rest) = match (self.convert(&merged, version), self.convert(&pruned, version)) {
                (Ok(whole), Ok(rest)) => (whole.into_owned(), rest),
                (Err(ConvertError::NoSuchVersion(_)), _) | (_, Err(ConvertError::NoSuchVersion(_))) => continue,
                (Err(error), _) => return Err(at_version("merged", version, &error)),
                (_, Err(error)) => return Err(at_version("pruned", version, &error)),
            };
            let typed = TypedObject { value: &whole, typing };
            let rest = TypedObject { value: &rest, typing };
            let kept = typed
                .with_named_fields(&rest.field_set())
                .union(&typed.with_named_fields(&owned));
            pruned = typed.remove(&typed.with_named_fields(&typed.field_set()).difference(&kept));
            merged = Cow::Owned(whole);
        }
        Ok(pruned)
    }
}

fn at_version(which: &str, version: &str, error: &ConvertError) -> ConvertError {
    ConvertError::Failed(format!(
        "failed to convert {which} object at version {version}: {error}"
    ))
}
