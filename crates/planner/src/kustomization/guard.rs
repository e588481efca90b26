//! What is not deleted before somebody has said so: much of an inventory at once, and objects of protected kinds.
//!
//! A commit that empties a folder, or moves it, is a commit like any other, so a deletion that would hurt stops with a condition. It names
//! the objects and a digest of exactly them, incarnations included; the annotation with that digest lets these go and nothing else,
//! also when it takes more than one attempt. Deleting the Kustomization itself is not guarded: it says by itself what is meant.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure_api::ObjectId;
use tenure_api::metadata::ALLOW_DELETION;

use super::context::Context;
use crate::digest;
use crate::plan::Delete;

/// How many objects a message names.
const NAMED: usize = 20;

/// What is guarded; set by whoever runs the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Guards {
    /// A prune of more than this share of the inventory is guarded, in percent; 100 guards none.
    pub prune_percent: u8,
    /// A prune of fewer objects is not, whatever their share.
    pub prune_least: usize,
    /// Kinds that are neither pruned nor recreated unasked.
    pub protected: Vec<ProtectedKind>,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            prune_percent: 50,
            prune_least: 10,
            protected: PROTECTED.iter().map(|kind| ProtectedKind::from(*kind)).collect(),
        }
    }
}

impl Guards {
    fn protect(&self, delete: &Delete) -> bool {
        self.protected.iter().any(|kind| kind.covers(&delete.target.id))
    }
}

/// The kinds that are protected unless somebody says otherwise: with one of these, data or everything in it goes.
pub const PROTECTED: [&str; 5] = [
    "PersistentVolumeClaim",
    "PersistentVolume",
    "Namespace",
    "CustomResourceDefinition.apiextensions.k8s.io",
    "Tenant.capsule.clastix.io",
];

/// `Kind`, in any group, or `Kind.group`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ProtectedKind {
    kind: String,
    group: Option<String>,
}

impl ProtectedKind {
    fn covers(&self, id: &ObjectId) -> bool {
        self.kind == id.kind && self.group.as_ref().is_none_or(|group| *group == id.group)
    }
}

impl From<&str> for ProtectedKind {
    fn from(text: &str) -> Self {
        let (kind, group) = match text.split_once('.') {
            Some((kind, group)) => (kind, Some(group.to_owned())),
            None => (text, None),
        };
        Self {
            kind: kind.to_owned(),
            group,
        }
    }
}

impl From<String> for ProtectedKind {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<ProtectedKind> for String {
    fn from(kind: ProtectedKind) -> Self {
        match kind.group {
            Some(group) => format!("{}.{group}", kind.kind),
            None => kind.kind,
        }
    }
}

/// Objects whose deletion was allowed, by their uids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// The digest that allowed it.
    pub digest: String,
    /// The objects.
    pub objects: BTreeMap<ObjectId, String>,
}

/// What came of looking at deletions.
#[derive(Default)]
pub(super) struct Guarded {
    /// These may go, in the order in which they were to.
    pub(super) free: Vec<Delete>,
    /// Why others may not.
    pub(super) held: Option<String>,
}

/// Which deletions of a prune may happen. `threatened` is how many objects this attempt would take, those included that could not be read.
pub(super) fn guard_prune(
    context: &mut Context<'_>,
    deletes: Vec<Delete>,
    threatened: usize,
    inventory: usize,
) -> Guarded {
    let guards = &context.snapshot.guards;
    let share = usize::from(guards.prune_percent);
    let most =
        threatened >= guards.prune_least.max(1) && threatened.saturating_mul(100) > inventory.saturating_mul(share);
    if most {
        let why = format!(
            "prune stopped: {threatened} of the {inventory} objects of the inventory would go, more than {share} %"
        );
        return hold(context, deletes, |_| true, &why);
    }
    let why = "prune stopped: these would go and are of protected kinds";
    hold(context, deletes, |delete| guards.protect(delete), why)
}

/// Which objects may be deleted to be made anew.
pub(super) fn guard_recreation(context: &mut Context<'_>, deletes: Vec<Delete>) -> Guarded {
    let guards = &context.snapshot.guards;
    let why = "recreation stopped: these would go and are of protected kinds";
    hold(context, deletes, |delete| guards.protect(delete), why)
}

/// Holds back what is guarded unless exactly that was allowed.
fn hold(context: &mut Context<'_>, deletes: Vec<Delete>, is_guarded: impl Fn(&Delete) -> bool, why: &str) -> Guarded {
    let objects: BTreeMap<ObjectId, String> = deletes
        .iter()
        .filter(|delete| is_guarded(delete))
        .map(|delete| (delete.target.id.clone(), delete.uid.clone().unwrap_or_default()))
        .collect();
    if objects.is_empty() || is_allowed(context, &objects) {
        return Guarded {
            free: deletes,
            held: None,
        };
    }
    let subjects: Vec<String> = objects.keys().take(NAMED).map(ObjectId::subject).collect();
    let more = match objects.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "{why}: {}{more}. If they are to go: kubectl -n {} annotate kustomization {} --overwrite {ALLOW_DELETION}={}",
        subjects.join(", "),
        context.namespace,
        context.name,
        digest_of(&objects),
    );
    Guarded {
        free: deletes.into_iter().filter(|delete| !is_guarded(delete)).collect(),
        held: Some(message),
    }
}

/// Whether the annotation names these objects. What is left of a list that it named goes too, as long as it stands.
fn is_allowed(context: &mut Context<'_>, objects: &BTreeMap<ObjectId, String>) -> bool {
    let allowed = context.snapshot.attempt.allowed.as_deref().unwrap_or_default();
    let is_named = |digest: &str| {
        let mut digests = allowed.split(|character: char| character == ',' || character.is_whitespace());
        digests.any(|named| named == digest)
    };
    if let Some(before) = &context.memory.allowed
        && is_named(&before.digest)
        && objects.iter().all(|(id, uid)| before.objects.get(id) == Some(uid))
    {
        return true;
    }
    let digest = digest_of(objects);
    let named = is_named(&digest);
    if named {
        context.memory.allowed = Some(Allowed {
            digest,
            objects: objects.clone(),
        });
    }
    named
}

fn digest_of(objects: &BTreeMap<ObjectId, String>) -> String {
    let lines: String = objects.iter().map(|(id, uid)| format!("{id} {uid}\n")).collect();
    digest::digest_bytes(lines.as_bytes())
}
