//! Lends one lane's process objects of another lane, as far as an administrator grants it: a Kustomization as it is, and of a source its facts and
//! its artifact. Each time, `tenancy` decides, from the placements that the hub itself knows.
//!
//! The content of a lane's folder (`crate::artifacts::untrusted_folder`) is not trusted, and neither is the content that a lane's Pod sends. The
//! borrower verifies it.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use tenure_api::{Kustomization, ObjectView};
use tenure_planner::artifact_address::ArtifactAddress;
use tenure_remote_requests::artifact::StoredArtifact;
use tenure_sources::{ConnectFailure, ConnectRefusal, SourceKey};
use tenure_tenancy::lane::decide_lane;
use tenure_tenancy::{Referrer, reference};

use super::supervision::LaneHandle;
use super::{LaneFleet, ProcessLocation, lock};
use crate::artifacts::storage::{locate_archive, locate_record, read_record};
use crate::artifacts::untrusted_folder::open_beneath;
use crate::cluster_view::key::Key;
use crate::endpoints::artifact_endpoint::OpenArchive;
use crate::lane::lane_references::{BorrowedObject, Reference, ReferenceAnswer};
use crate::lane::lane_table::name_lane;
use crate::lane_kinds::served_source::ServedSource;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// The size limit of a record, in bytes.
const RECORD: u64 = 256 << 10;

/// The lane that can lend the target of a reference, if a lane of this process has the target.
#[derive(Debug)]
enum Lender {
    /// The lane of this name.
    Lane(String),
    /// The namespace is on its way from one lane to another.
    Nobody,
    /// No lane of this process has the object.
    Elsewhere,
}

impl LaneFleet {
    /// Returns what a lane may know of the target of a reference from one of its namespaces.
    pub(super) async fn lend(&self, to: &LaneHandle, reference: &Reference) -> ReferenceAnswer {
        let Some((key, lender)) = self.find_lent(to, reference) else {
            return ReferenceAnswer::Nothing;
        };
        let lender = match lender {
            Lender::Lane(name) if name == to.name => return ReferenceAnswer::Own,
            Lender::Lane(name) => Some(name),
            Lender::Nobody => None,
            Lender::Elsewhere => return self.lend_from_elsewhere(&reference.from, &key).await,
        };
        let Some(object) = self.write_object(&key) else {
            return ReferenceAnswer::Nothing;
        };
        if key.kind == Kustomization::KIND {
            return ReferenceAnswer::Kustomization(object);
        }
        let uid = ObjectView::new(&object).read_text("/metadata/uid").to_owned();
        let conditions = object.pointer("/status/conditions").cloned();
        let conditions = conditions.and_then(|conditions| serde_json::from_value(conditions).ok());
        let artifact = match (lender, make_key(&key, &uid)) {
            (Some(lender), Some(source)) => match self.read_artifact(&lender, source).await {
                Ok(artifact) => artifact,
                Err(why) => return ReferenceAnswer::Unknown(why),
            },
            _ => None,
        };
        ReferenceAnswer::Source {
            uid,
            artifact: artifact.map(|stored| stored.facts),
            conditions: conditions.unwrap_or_default(),
        }
    }

    /// Returns the facts that this process sees of an object that none of its lanes reconciles: another instance of the controllers may.
    async fn lend_from_elsewhere(&self, from: &str, key: &Key) -> ReferenceAnswer {
        let Some(hub) = self.hub.upgrade() else {
            return ReferenceAnswer::Nothing;
        };
        match hub.borrow(from, key).await {
            BorrowedObject::Kustomization(found) => match serde_json::to_value(found.as_ref()) {
                Ok(object) => ReferenceAnswer::Kustomization(object),
                Err(error) => ReferenceAnswer::Unknown(error.to_string()),
            },
            BorrowedObject::Unknown(why) => ReferenceAnswer::Unknown(why),
            BorrowedObject::Nothing | BorrowedObject::Source { .. } => ReferenceAnswer::Nothing,
        }
    }

    /// Opens the archive of a source for a lane, if an administrator granted the lane's reference to the source.
    pub(super) async fn open_lent(
        &self,
        to: &LaneHandle,
        reference: &Reference,
        digest: &str,
    ) -> Result<File, ConnectRefusal> {
        let refuse = |what: &str| ConnectRefusal {
            failure: ConnectFailure::Denied,
            message: format!("{}/{}/{}: {what}", reference.kind, reference.namespace, reference.name),
        };
        let nothing = || refuse("there is no such artifact, or it is not granted");
        let Some((key, Lender::Lane(lender))) = self.find_lent(to, reference) else {
            return Err(nothing());
        };
        let object = self.write_object(&key).ok_or_else(nothing)?;
        let source = make_key(&key, ObjectView::new(&object).read_text("/metadata/uid")).ok_or_else(nothing)?;
        let archive = locate_archive(&source, digest).map_err(|error| refuse(&error.to_string()))?;
        let opened = self.open_of(&lender, archive, self.count_archive_bytes()).await;
        match opened {
            Ok(Some(file)) => Ok(file),
            Ok(None) => Err(refuse("the artifact can't be opened")),
            Err(why) => Err(refuse(&why)),
        }
    }

    /// Opens a served artifact, with the time when its lane recorded it; `None` if it is not served.
    pub(crate) async fn open_served(&self, address: &ArtifactAddress) -> Option<OpenArchive> {
        let (shard, lane) = {
            let homes = lock(&self.homes);
            let home = homes.get(&address.namespace)?;
            (Arc::clone(&home.shard), home.lane.as_ref()?.name.clone())
        };
        let named = ServedSource::find(&shard, address)?;
        let stored = self.read_artifact(&lane, named.source.clone()).await.ok().flatten();
        let stored_at = named.check(address, stored.as_ref())?;
        let archive = locate_archive(&named.source, &address.digest).ok()?;
        let opened = self.open_of(&lane, archive, self.count_archive_bytes()).await;
        Some((opened.ok().flatten()?, stored_at))
    }

    /// Returns the object to which one of a lane's namespaces may refer, and the lane that has it.
    fn find_lent(&self, to: &LaneHandle, reference: &Reference) -> Option<(Key, Lender)> {
        let hub = self.hub.upgrade()?;
        let Reference {
            from,
            kind,
            namespace,
            name,
        } = reference;
        let placement = hub.place_known(from);
        // Check both the namespaces that the lane was given and the current placement: the namespace may have moved a moment ago.
        if !to.outgoing.has_namespace(from) || name_lane(&decide_lane(&placement, from)) != to.name {
            return None;
        }
        let grants = self.process_config.config.settings.reference_grants.as_slice();
        let referrer = Referrer {
            namespace: from,
            placement: &placement,
            grants,
        };
        let entry = self.kinds.iter().find(|entry| entry.kind.name == kind.as_str())?;
        let is_granted = if entry.kind == Kustomization::KIND {
            reference::check_dependency(referrer, Some(namespace), name)
        } else {
            reference::check_source(referrer, kind, Some(namespace), name)
        };
        is_granted.ok()?;
        let lender = match lock(&self.homes).get(namespace) {
            Some(home) => home
                .lane
                .as_ref()
                .map_or(Lender::Nobody, |lane| Lender::Lane(lane.name.clone())),
            None => Lender::Elsewhere,
        };
        Some((Key::new(entry.kind, namespace, name), lender))
    }

    /// Reads a lane's record of a fetched artifact. The error says why the existence of the record is unknown.
    async fn read_artifact(&self, lender: &str, source: SourceKey) -> Result<Option<StoredArtifact>, String> {
        let Some(file) = self.open_of(lender, locate_record(&source), RECORD).await? else {
            return Ok(None);
        };
        let reading = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            file.take(RECORD).read_to_end(&mut bytes).ok()?;
            read_record(&bytes)
        });
        Ok(reading.await.ok().flatten())
    }

    /// Opens a file of a lane's folder, on this machine or from its Pod. A file from a Pod has at most `most` bytes. The error says why the existence
    /// of the file is unknown.
    async fn open_of(&self, lender: &str, path: PathBuf, most: u64) -> Result<Option<File>, String> {
        let folder = match &self.location {
            ProcessLocation::Here(home) => home.folders.find(lender),
            ProcessLocation::Pods(home) => {
                let lane = lock(&self.lanes).get(lender).cloned();
                let lane = lane.ok_or("its lane is ending")?;
                return home.fetch(&lane.pod, path, most).await;
            }
        };
        let opening = tokio::task::spawn_blocking(move || open_beneath(&folder, &path).ok());
        Ok(opening.await.ok().flatten())
    }

    /// Returns the size limit of an archive.
    pub(super) fn count_archive_bytes(&self) -> u64 {
        self.process_config.config.budgets.archives.tenant
    }
}

fn make_key(key: &Key, uid: &str) -> Option<SourceKey> {
    SourceKey::new(key.kind.name, &key.namespace, &key.name, uid).ok()
}

#[cfg(test)]
mod tests;
