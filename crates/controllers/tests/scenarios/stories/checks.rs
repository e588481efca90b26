//! The invariants of a story, checked from outside: by objects, events and the status of the Kustomization.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use super::objects::{ACCOUNT, FIXED, FREE, is_protected, list_secret_keys, list_wanted};
use super::plot::{Content, Lack, Slot};
use super::world::{Rest, World};
use crate::stage::CONFIG_MAP;

/// The kind and name of an object.
pub(super) type Key = (String, String);
pub(super) type Observed = BTreeMap<Key, Value>;

/// The facts of a story, beside the objects in the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Around {
    /// The content of the last commit.
    pub(super) content: Content,
    pub(super) force: bool,
    pub(super) prune: bool,
    pub(super) is_partial: bool,
    pub(super) lack: Option<Lack>,
    /// The objects with a finalizer of the story.
    pub(super) held: BTreeSet<Key>,
    /// Objects that existed before the first commit, with their uids.
    pub(super) adopted: BTreeMap<Key, String>,
    /// The uids of objects whose deletion an administrator has allowed.
    pub(super) permitted: BTreeSet<String>,
    /// Whether an administrator has allowed deletions in this turn.
    pub(super) has_allowed: bool,
    /// Objects that the Kustomization gave up, as `prune` was off.
    pub(super) given_up: BTreeSet<Key>,
}

/// The deletions by the Kustomization in a turn.
#[derive(Debug, Default)]
pub(super) struct Deletions {
    /// Objects of the last commit.
    recreated: BTreeSet<Key>,
    /// Objects that the last commit does not have.
    pruned: BTreeSet<Key>,
}

impl Deletions {
    pub(super) fn is_empty(&self) -> bool {
        self.recreated.is_empty() && self.pruned.is_empty()
    }
}

/// The number of things that happened in stories.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) recreated: usize,
    pub(super) pruned: usize,
    pub(super) guarded: usize,
    pub(super) refused: usize,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.recreated += other.recreated;
        self.pruned += other.pruned;
        self.guarded += other.guarded;
        self.refused += other.refused;
    }

    /// Counts a turn.
    pub(super) fn count(&mut self, deletions: &Deletions, rest: &Rest) {
        let is = |reason: &str| usize::from(rest.reason == reason);
        self.add(Self {
            recreated: deletions.recreated.len(),
            pruned: deletions.pruned.len(),
            guarded: is("DeletionGuarded"),
            refused: is("ReconciliationFailed") + is("PruneFailed"),
        });
    }
}

pub(super) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

pub(super) fn is_going(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

fn is_owned(object: &Value, namespace: &str) -> bool {
    let labels = &object["metadata"]["labels"];
    labels["kustomize.toolkit.fluxcd.io/name"] == "app" && labels["kustomize.toolkit.fluxcd.io/namespace"] == *namespace
}

fn annotation<'a>(object: &'a Value, key: &str) -> &'a Value {
    &object["metadata"]["annotations"][key]
}

impl World<'_> {
    fn fail(&self, what: &str, subject: impl std::fmt::Debug) -> String {
        format!("{what}: {subject:?}")
    }

    /// Checks each deletion of a turn: the commit asked for it, and an administrator allowed it if it takes data along.
    pub(super) fn check_deletions(
        &self,
        before: &Observed,
        after: &Observed,
        rest: &Rest,
    ) -> Result<Deletions, String> {
        let around = &self.around;
        let wanted = list_wanted(&around.content, &self.namespace);
        let mut deletions = Deletions::default();
        for (key, old) in before.iter().filter(|(_, old)| !is_going(old)) {
            let new = after.get(key);
            if new.is_some_and(|new| uid(new) == uid(old) && !is_going(new)) {
                continue;
            }
            if !is_owned(old, &self.namespace) {
                return Err(self.fail("deleted, although it is not the Kustomization's", key));
            }
            if let Some((_, object)) = wanted.get(key) {
                if !around.force {
                    return Err(self.fail("deleted without force, although the commit has it", key));
                }
                if annotation(old, FIXED) == annotation(object, FIXED) {
                    return Err(self.fail("deleted, although it needed no recreation", key));
                }
                deletions.recreated.insert(key.clone());
            } else {
                if !around.prune {
                    return Err(self.fail("pruned without prune", key));
                }
                deletions.pruned.insert(key.clone());
            }
            let owns_claims = key.0 == "Keeper";
            if (is_protected(&key.0) || owns_claims) && !around.permitted.contains(uid(old)) {
                return Err(self.fail("deleted without permission, although it holds data", key));
            }
        }
        self.check_size(before, &wanted.keys().collect(), &deletions)?;
        self.check_refused(&deletions, after, rest)?;
        self.check_own_rights(before, after, &deletions)?;
        Ok(deletions)
    }

    /// Checks that a prune of everything, or of most objects, was allowed.
    fn check_size(&self, before: &Observed, wanted: &BTreeSet<&Key>, deletions: &Deletions) -> Result<(), String> {
        let tracked = before
            .iter()
            .filter(|(key, old)| is_owned(old, &self.namespace) && !self.around.given_up.contains(*key));
        let tracked: Vec<(&Key, &Value)> = tracked.collect();
        let threatened = tracked
            .iter()
            .filter(|(key, old)| !wanted.contains(key) && !is_going(old))
            .count();
        let is_large = threatened >= 10 && threatened * 2 > tracked.len();
        let unasked: Vec<&Key> = deletions
            .pruned
            .iter()
            .filter(|key| !self.around.permitted.contains(uid(&before[*key])))
            .collect();
        if (is_large || wanted.is_empty()) && !unasked.is_empty() {
            let what = format!(
                "{threatened} of {} were threatened, and no administrator was asked",
                tracked.len()
            );
            return Err(self.fail(&what, unasked));
        }
        Ok(())
    }

    /// Checks that an attempt that was refused has deleted nothing.
    fn check_refused(&self, deletions: &Deletions, after: &Observed, rest: &Rest) -> Result<(), String> {
        let around = &self.around;
        let has_rights = self.has_own_rights(after);
        if rest.is_ready() || around.is_partial || around.has_allowed || !around.held.is_empty() || !has_rights {
            return Ok(());
        }
        let is_prune = rest.message.contains("prune stopped");
        let is_refused = ["ReconciliationFailed", "DeletionGuarded"].contains(&&*rest.reason);
        if is_refused && !is_prune && !deletions.is_empty() {
            return Err(self.fail("deleted, although the attempt was refused", deletions));
        }
        // An owner of claims waits alone.
        let only_owners = !rest.message.contains("Keeper/");
        if is_refused && is_prune && only_owners && !deletions.pruned.is_empty() {
            return Err(self.fail("pruned, although the prune was stopped", deletions));
        }
        Ok(())
    }

    pub(super) fn has_own_rights(&self, observed: &Observed) -> bool {
        ["ServiceAccount", "RoleBinding"].iter().all(|kind| {
            let found = observed.get(&((*kind).to_owned(), ACCOUNT.to_owned()));
            found.is_some_and(|object| !is_going(object))
        })
    }

    /// Checks that the account lost its rights only after everything else that the commit removed was deleted.
    fn check_own_rights(&self, before: &Observed, after: &Observed, deletions: &Deletions) -> Result<(), String> {
        let is_own = |key: &Key| key.1 == ACCOUNT;
        if !deletions.pruned.iter().any(is_own) {
            return Ok(());
        }
        let wanted = list_wanted(&self.around.content, &self.namespace);
        let left = before.iter().filter(|(key, old)| {
            let is_tracked = is_owned(old, &self.namespace) && !self.around.given_up.contains(*key);
            let stays = after
                .get(*key)
                .is_some_and(|new| uid(new) == uid(old) && !is_going(new));
            is_tracked && !is_own(key) && !wanted.contains_key(*key) && stays
        });
        let left: Vec<&Key> = left.map(|(key, _)| key).collect();
        match left.is_empty() {
            true => Ok(()),
            false => Err(self.fail("the account's rights went before these", left)),
        }
    }

    /// Waits until the cluster is as the Kustomization says, and checks that. Returns the objects.
    pub(super) async fn check_rest(&mut self, before: &Observed, rest: &Rest) -> Result<Observed, String> {
        if rest.is_ready() && !self.around.prune {
            let wanted = list_wanted(&self.around.content, &self.namespace);
            let given_up = before
                .iter()
                .filter(|(key, old)| is_owned(old, &self.namespace) && !wanted.contains_key(*key));
            self.around.given_up.extend(given_up.map(|(key, _)| key.clone()));
        }
        if rest.is_ready() {
            let content = &self.around.content;
            let wanted = list_wanted(content, &self.namespace);
            self.around.given_up.retain(|key| !wanted.contains_key(key));
        }
        let world = &*self;
        eventually(SOON, || async {
            let now = world.observe(&world.namespace).await;
            // The inventory is read last, since it grows before an object is applied.
            let inventory = world.read_inventory().await;
            world.compare(before, &now, &inventory, rest)?;
            Ok(now)
        })
        .await
    }

    fn compare(&self, before: &Observed, now: &Observed, inventory: &BTreeSet<Key>, rest: &Rest) -> Result<(), String> {
        let wanted = list_wanted(&self.around.content, &self.namespace);
        // Nothing is forgotten.
        for (key, object) in now {
            let is_known = inventory.contains(key) || self.around.given_up.contains(key);
            if is_owned(object, &self.namespace) && !is_known {
                return Err(self.fail("the inventory has lost it", key));
            }
        }
        // Nothing goes for ever that the commit has.
        for key in before.keys().filter(|key| wanted.contains_key(*key)) {
            let is_here = now.get(key).is_some_and(|object| !is_going(object));
            if !is_here && !self.around.held.contains(key) {
                return Err(self.fail("it went and did not come back", key));
            }
        }
        if !rest.is_ready() {
            return Ok(());
        }
        for (key, (slot, object)) in &wanted {
            let Some(live) = now.get(key) else {
                return Err(self.fail("the commit has it, and the cluster does not", key));
            };
            if self.around.held.contains(key) {
                continue;
            }
            for name in [FIXED, FREE] {
                if annotation(live, name) != annotation(object, name) {
                    return Err(self.fail("it is not as the commit has it", (key, name, annotation(live, name))));
                }
            }
            if *slot == Slot::Secret {
                let keys = live["data"].as_object().map(|data| data.keys().cloned().collect());
                let keys: Vec<String> = keys.unwrap_or_default();
                if keys != list_secret_keys(self.around.content[slot]) {
                    return Err(self.fail("the Secret has other keys", keys));
                }
            }
            if !inventory.contains(key) {
                return Err(self.fail("the inventory does not have it", key));
            }
        }
        for (key, live) in now.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
            let is_left = self.around.given_up.contains(key) || self.around.held.contains(key);
            if is_owned(live, &self.namespace) && !is_left {
                return Err(self.fail("the commit does not have it, and the cluster does", key));
            }
        }
        let unknown: Vec<&Key> = inventory.iter().filter(|key| !wanted.contains_key(*key)).collect();
        if self.around.held.is_empty() && unknown.iter().any(|key| !before.contains_key(*key)) {
            return Err(self.fail("the inventory names what never existed", unknown));
        }
        Ok(())
    }

    /// Checks that a child that is gone has taken its objects along.
    pub(super) async fn check_child(&self, observed: &Observed) -> Result<(), String> {
        if observed.contains_key(&("Kustomization".to_owned(), "child".to_owned())) {
            return Ok(());
        }
        let of_child = (&*self.namespace, "of-child");
        eventually(SOON, || async {
            match self.stage.get(CONFIG_MAP, of_child).await {
                None => Ok(()),
                Some(_) => Err("the child is gone, and its object is left".to_owned()),
            }
        })
        .await
    }

    /// Returns the versions of all events of the Kustomization.
    pub(super) async fn mark_events(&self) -> BTreeMap<String, String> {
        let events = self.stage.admin.list(("v1", "Event"), &self.namespace).await.unwrap();
        let version = |event: &Value| event["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        events
            .iter()
            .map(|event| (uid(event).to_owned(), version(event)))
            .collect()
    }

    /// Checks that an event since then tells of each deletion.
    pub(super) async fn check_events(
        &self,
        marks: &BTreeMap<String, String>,
        deletions: &Deletions,
    ) -> Result<(), String> {
        if deletions.is_empty() {
            return Ok(());
        }
        eventually(SOON, || async {
            let events = self.stage.admin.list(("v1", "Event"), &self.namespace).await.unwrap();
            let mut messages = String::new();
            for event in &events {
                let version = event["metadata"]["resourceVersion"].as_str();
                if marks.get(uid(event)).map(String::as_str) != version {
                    writeln!(messages, "{}", event["message"].as_str().unwrap_or_default()).unwrap();
                }
            }
            for key in deletions.recreated.iter().chain(&deletions.pruned) {
                let subject = match key.0.as_str() {
                    "Namespace" => format!("Namespace/{} ", key.1),
                    kind => format!("{kind}/{}/{} ", self.namespace, key.1),
                };
                let lines = ["deleted", "recreated"].map(|word| format!("{subject}{word}"));
                if !lines.iter().any(|line| messages.contains(line)) {
                    return Err(self.fail("no event tells of the deletion", (key, &messages)));
                }
            }
            Ok(())
        })
        .await
    }

    /// Checks whether everything is in place for the commit, so that it has to be applied.
    pub(super) fn must_succeed(&self, before: &Observed, allows: bool) -> bool {
        let around = &self.around;
        let can_be_applied = |key: &Key, object: &Value| {
            let Some(live) = before.get(key) else { return true };
            let is_fixed = annotation(live, FIXED) != annotation(object, FIXED);
            !is_going(live) && (!is_fixed || (around.force && is_owned(live, &self.namespace)))
        };
        let wanted = list_wanted(&around.content, &self.namespace);
        let drops_own = !wanted.keys().any(|key| key.1 == ACCOUNT)
            && before
                .iter()
                .any(|(key, live)| key.1 == ACCOUNT && is_owned(live, &self.namespace));
        allows
            && !drops_own
            && around.lack.is_none()
            && around.held.is_empty()
            && around.content.values().all(|version| !version.is_broken)
            && self.has_own_rights(before)
            && wanted.iter().all(|(key, (_, object))| can_be_applied(key, object))
    }

    /// Checks that the objects are as a new Kustomization applies them in another namespace.
    pub(super) async fn check_against_fresh(&self, observed: &Observed) -> Result<(), String> {
        let fresh = self.apply_afresh().await;
        let beside = self.observe(&fresh).await;
        let wanted = list_wanted(&self.around.content, &self.namespace);
        for (key, (slot, _)) in &wanted {
            if matches!(slot, Slot::Space) || key.0 == "Kustomization" {
                continue;
            }
            let (one, other) = (observed.get(key), beside.get(key));
            let (Some(one), Some(other)) = (one, other) else {
                return Err(self.fail("one of them is missing", (key, one.is_some(), other.is_some())));
            };
            let (one, other) = (strip(one, &self.namespace), strip(other, &fresh));
            if one != other {
                return Err(format!("{key:?} is not as if applied afresh:\n{one:#}\n{other:#}"));
            }
        }
        Ok(())
    }

    /// Checks the end of the Kustomization: its objects are gone, and data that it did not create is left.
    pub(super) async fn check_end(&self, before: &Observed) -> Result<(), String> {
        eventually(SOON, || async {
            let now = self.observe(&self.namespace).await;
            for (key, old) in before {
                let is_adopted = self.around.adopted.get(key).map(String::as_str) == Some(uid(old));
                let stays = !is_owned(old, &self.namespace)
                    || self.around.given_up.contains(key)
                    || (is_adopted && is_protected(&key.0));
                let is_here = now.get(key).is_some_and(|new| uid(new) == uid(old) && !is_going(new));
                // A namespace takes its time.
                let is_gone = now.get(key).is_none_or(|new| key.0 == "Namespace" && is_going(new));
                if stays && !is_here {
                    return Err(self.fail("it was not the Kustomization's to delete", key));
                }
                if !stays && !is_gone {
                    return Err(self.fail("it is left", key));
                }
            }
            Ok(())
        })
        .await?;
        self.check_child(&Observed::new()).await
    }
}

/// Returns the fields of an object that the API server does not choose.
fn strip(object: &Value, namespace: &str) -> Value {
    let text = object
        .to_string()
        .replace(uid(object), "UID")
        .replace(namespace, "NAMESPACE");
    let mut object: Value = serde_json::from_str(&text).unwrap();
    object.as_object_mut().unwrap().remove("status");
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
    ] {
        metadata.remove(field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !key.starts_with("deployment.kubernetes.io/"));
    }
    for field in ["finalizers", "annotations"] {
        if metadata.get(field) == Some(&json!({})) || metadata.get(field) == Some(&json!([])) {
            metadata.remove(field);
        }
    }
    object
}
