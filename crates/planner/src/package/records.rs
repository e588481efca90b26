//! The records of a Package's HelmReleases, as its status has them.

use std::collections::BTreeMap;

use tenure_api::package::PackageRelease;
use tenure_api::{ObjectId, Package};

use super::Snapshot;
use super::selection::ReleaseName;
use crate::answer::Live;
use crate::recorded_objects::{Ownership, Record, judge_ownership};

/// The records, by the ids of their HelmReleases.
pub(super) type Records = BTreeMap<ObjectId, PackageRelease>;

/// Reads the records of a status. Invalid names have no record.
pub(super) fn read_records(package: &Package) -> Records {
    let releases = package.status.as_ref().map(|status| status.releases.as_slice());
    let releases = releases.unwrap_or_default().iter();
    releases.map(|release| (make_id(release), release.clone())).collect()
}

fn make_id(release: &PackageRelease) -> ObjectId {
    ReleaseName {
        namespace: release.namespace.clone(),
        name: release.name.clone(),
    }
    .id()
}

/// Judges whether a live HelmRelease is the recorded one.
pub(super) fn judge<'a>(records: &Records, id: &ObjectId, live: &'a BTreeMap<ObjectId, Live>) -> Ownership<'a> {
    let record = records.get(id).map(|release| Record {
        uid: release.uid.as_deref(),
        proof_digests: &release.proof_digests,
    });
    judge_ownership(record, live.get(id))
}

/// Updates the records by the live objects: uids that became known, and releases that are gone and not wanted.
pub(super) fn update_records(snapshot: &Snapshot, is_wanted: impl Fn(&ObjectId) -> bool) -> Records {
    let stored = read_records(&snapshot.package);
    let mut records = Records::new();
    for (id, release) in &stored {
        match judge(&stored, id, &snapshot.live) {
            Ownership::Ours(uid) => {
                let mut release = release.clone();
                release.uid = Some(uid.to_owned());
                release.proof_digests.clear();
                release.removing &= !is_wanted(id);
                records.insert(id.clone(), release);
            }
            // An object with another uid proves that the recorded one is gone.
            Ownership::Missing | Ownership::Foreign if !is_wanted(id) => {}
            _ => {
                records.insert(id.clone(), release.clone());
            }
        }
    }
    records
}

/// Returns the records in their order in the status: by component, then by name.
pub(super) fn list_records(records: &Records) -> Vec<PackageRelease> {
    let mut releases: Vec<PackageRelease> = records.values().cloned().collect();
    releases.sort_by(|one, other| {
        let key = |release: &PackageRelease| {
            (
                release.component.clone(),
                release.namespace.clone(),
                release.name.clone(),
            )
        };
        key(one).cmp(&key(other))
    });
    releases
}
