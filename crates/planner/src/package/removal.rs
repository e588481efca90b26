//! HelmReleases that a Package no longer plans. They stay, with everything that they installed, until an administrator allows their removal by a digest of exactly
//! these objects with their uids. A HelmRelease with `helm.sh/resource-policy: keep` is never deleted.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::digest::digest_bytes;
use tenure_api::metadata::ALLOW_DELETION;
use tenure_api::package::{KEEP, RESOURCE_POLICY};
use tenure_api::{ObjectId, ObjectView};

use super::records;
use super::writes::{Work, watch_release};
use crate::answer::Live;
use crate::outcome;
use crate::plan::{Delete, Propagation, Withheld};
use crate::recorded_objects::Ownership;

/// Bytes of the names in one message.
const SHOWN: usize = 2 << 10;

/// A recorded HelmRelease that is not planned.
pub(super) struct Leftover {
    id: ObjectId,
    component: String,
    uid: String,
    resource_version: Option<String>,
    is_kept: bool,
    is_removing: bool,
    is_being_deleted: bool,
    /// The HelmReleases that it waits for.
    awaits: Vec<ObjectId>,
}

/// The plan for the leftovers.
#[derive(Default)]
pub(super) struct Removal {
    /// The next deletions.
    pub(super) deletes: Vec<Delete>,
    /// The message of the condition; nothing if no leftover exists.
    pub(super) message: Option<String>,
    /// Whether an administrator has to allow something.
    pub(super) is_guarded: bool,
    /// The leftovers that exist and are not kept.
    pub(super) waiting: usize,
    /// The leftovers that are kept.
    pub(super) kept: Vec<String>,
}

/// Lists the leftovers that exist.
pub(super) fn list_leftovers(work: &Work<'_>, is_wanted: impl Fn(&ObjectId) -> bool) -> Vec<Leftover> {
    let live = &work.snapshot.live;
    let leftovers = work.records.iter().filter(|(id, _)| !is_wanted(id));
    let leftovers = leftovers.filter_map(|(id, record)| {
        let Ownership::Ours(uid) = records::judge(&work.records, id, live) else {
            return None;
        };
        let object = ObjectView::new(live.get(id).and_then(Live::object)?);
        let awaits = object.list_views("/spec/dependsOn").map(|entry| ObjectId {
            namespace: entry.find_text("/namespace").unwrap_or(&id.namespace).to_owned(),
            name: entry.read_text("/name").to_owned(),
            ..id.clone()
        });
        Some(Leftover {
            id: id.clone(),
            component: record.component.clone(),
            uid: uid.to_owned(),
            resource_version: object.find_text("/metadata/resourceVersion").map(str::to_owned),
            is_kept: object.has_annotation(RESOURCE_POLICY, KEEP),
            is_removing: record.removing,
            is_being_deleted: object.is_being_deleted(),
            awaits: awaits.collect(),
        })
    });
    leftovers.collect()
}

/// Plans the removal of the leftovers that an administrator has allowed. `disabled` has the disabled components, for the message.
pub(super) fn plan_removal(work: &mut Work<'_>, mut leftovers: Vec<Leftover>, disabled: &BTreeSet<String>) -> Removal {
    let asked: Vec<&Leftover> = leftovers.iter().filter(|leftover| leftover.is_asked()).collect();
    let digest = digest_leftovers(&asked);
    let is_allowed = !asked.is_empty() && is_allowed(work, &digest);
    if is_allowed {
        for leftover in leftovers.iter_mut().filter(|leftover| leftover.is_asked()) {
            leftover.is_removing = true;
        }
    }
    for leftover in &leftovers {
        if let Some(record) = work.records.get_mut(&leftover.id) {
            record.removing = leftover.is_removing && !leftover.is_kept;
        }
    }
    let kept = leftovers
        .iter()
        .filter(|leftover| leftover.is_kept)
        .map(|leftover| leftover.id.subject());
    let mut removal = Removal {
        kept: kept.collect(),
        waiting: leftovers.iter().filter(|leftover| !leftover.is_kept).count(),
        ..Removal::default()
    };
    let removing: Vec<&Leftover> = leftovers
        .iter()
        .filter(|leftover| leftover.is_removing && !leftover.is_kept)
        .collect();
    removal.deletes = list_deletes(&removing);
    let asked: Vec<&Leftover> = leftovers.iter().filter(|leftover| leftover.is_asked()).collect();
    removal.is_guarded = !asked.is_empty();
    let mut parts = Vec::new();
    if !asked.is_empty() {
        parts.push(describe_asked(work, &asked, &digest, disabled));
    }
    if !removing.is_empty() {
        let names = list_names(&removing);
        parts.push(format!("being removed, as allowed: {names}"));
    }
    if !removal.kept.is_empty() {
        parts.push(format!(
            "kept, since helm.sh/resource-policy is keep: {}; remove this annotation to allow a removal",
            outcome::join_names(&removal.kept, SHOWN)
        ));
    }
    if !parts.is_empty() {
        removal.message = Some(parts.join(". "));
    }
    for leftover in &asked {
        work.plan.withheld.push(Withheld {
            what: format!("deletion of {}", leftover.id.subject()),
            why: "it waits for the annotation that the condition RemovalPending names".to_owned(),
        });
    }
    removal
}

impl Leftover {
    /// Checks whether an administrator has to allow the removal.
    fn is_asked(&self) -> bool {
        !self.is_kept && !self.is_removing && !self.is_being_deleted
    }
}

/// Returns the deletions of one stage: releases that wait for others go first. Releases that wait for each other go together.
fn list_deletes(removing: &[&Leftover]) -> Vec<Delete> {
    let awaited: BTreeSet<&ObjectId> = removing
        .iter()
        .flat_map(|leftover| leftover.awaits.iter().filter(|id| **id != leftover.id))
        .collect();
    let is_free = |leftover: &&&Leftover| !awaited.contains(&leftover.id);
    let mut stage: Vec<&&Leftover> = removing.iter().filter(is_free).collect();
    if stage.is_empty() {
        stage = removing.iter().collect();
    }
    let deletes = stage.into_iter().filter(|leftover| !leftover.is_being_deleted);
    let deletes = deletes.map(|leftover| Delete {
        target: watch_release(&leftover.id),
        uid: Some(leftover.uid.clone()),
        resource_version: leftover.resource_version.clone(),
        propagation: Propagation::Background,
        why: format!(
            "component {} is not planned any more, and its removal was allowed",
            leftover.component
        ),
    });
    deletes.collect()
}

/// Returns the digest of leftovers, with their uids.
fn digest_leftovers(leftovers: &[&Leftover]) -> String {
    let lines = leftovers
        .iter()
        .map(|leftover| format!("{} {}\n", leftover.id, leftover.uid));
    digest_bytes(lines.collect::<String>().as_bytes())
}

fn is_allowed(work: &Work<'_>, digest: &str) -> bool {
    let annotations = work.snapshot.package.metadata.annotations.as_ref();
    let allowed = annotations.and_then(|annotations| annotations.get(ALLOW_DELETION));
    allowed.is_some_and(|allowed| allowed.split(',').any(|allowed| allowed.trim() == digest))
}

fn list_names(leftovers: &[&Leftover]) -> String {
    let names: Vec<String> = leftovers.iter().map(|leftover| leftover.id.subject()).collect();
    outcome::join_names(&names, SHOWN)
}

/// Describes what stays, how it is removed, and what stays even then.
fn describe_asked(work: &Work<'_>, asked: &[&Leftover], digest: &str, disabled: &BTreeSet<String>) -> String {
    let package = work.snapshot.package.metadata.name.as_deref().unwrap_or_default();
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let is_going = work.snapshot.package.metadata.deletion_timestamp.is_some();
    for leftover in asked {
        let why = match disabled.contains(&leftover.component) {
            _ if is_going => "of the deleted Package",
            true => "of disabled components",
            false => "that the variant no longer has",
        };
        reasons.entry(why).or_default().push(leftover.id.subject());
    }
    let left = reasons
        .iter()
        .map(|(why, names)| format!("{} ({why})", outcome::join_names(names, SHOWN)));
    let left: Vec<String> = left.collect();
    let namespaces: BTreeSet<&str> = asked.iter().map(|leftover| leftover.id.namespace.as_str()).collect();
    let namespaces: Vec<String> = namespaces.into_iter().map(|name| format!("Namespace/{name}")).collect();
    let orphan = if is_going {
        format!(
            "; to leave them: kubectl annotate packages.cozystack.io {package} --overwrite tenure.dev/deletion-policy=Orphan"
        )
    } else {
        String::new()
    };
    format!(
        "still installed: {}. To uninstall: kubectl annotate packages.cozystack.io {package} --overwrite {ALLOW_DELETION}={digest}{orphan}. \
         An uninstallation leaves {}, the CRDs of the charts, and objects with helm.sh/resource-policy: keep",
        left.join(", "),
        outcome::join_names(&namespaces, SHOWN)
    )
}
