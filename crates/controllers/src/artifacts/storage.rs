//! The artifact store's content for each source.
//!
//! A status can be forged by any account that may write it, so a record beside the archive says what a source has fetched. A record is found by the
//! source's own name and uid, and names a digest in the source's own folder, so a source never gets another source's artifact. A new source with the
//! name of a deleted one finds nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use tenure_remote_requests::artifact::StoredArtifact;
use tenure_sources::{
    ArtifactStore, ByteBudget, FetchBudgets, HeldBytes, Limits, OverBudget, SourceKey, StorageError,
    remove_deleted_sources,
};

use crate::artifacts::tree_cache::{TreeCache, TreeInUse};
use crate::limits::budgets::{self, Budgets};

/// Below the folder for artifacts: the archives, and their records.
const STORE: &str = "store";
const RECORDS: &str = "records";

/// Returns the path of a source's record, below a folder for artifacts.
pub(crate) fn locate_record(source: &SourceKey) -> PathBuf {
    Path::new(RECORDS)
        .join(source.folder())
        .with_file_name(format!("{}.json", source.uid()))
}

/// Returns the path of a source's archive, below a folder for artifacts.
pub(crate) fn locate_archive(source: &SourceKey, digest: &str) -> Result<PathBuf, StorageError> {
    Ok(Path::new(STORE).join(source.archive(digest)?))
}

/// The artifacts of all sources: the store on disk with its records, the cached file trees, and the budgets of disk and memory.
#[derive(Debug)]
pub(crate) struct ArtifactStorage {
    pub(crate) store: ArtifactStore,
    pub(crate) limits: Limits,
    folder: PathBuf,
    trees: Arc<TreeCache>,
    fetches: ByteBudget,
    unpacking: ByteBudget,
}

impl ArtifactStorage {
    /// Opens the store below a folder.
    pub(crate) fn open(folder: &Path, limits: Limits, budgets: Budgets) -> Result<Self, StorageError> {
        let store = ArtifactStore::open(folder.join(STORE), budgets.archives())?;
        Ok(Self::with_budgets(folder, store, limits, budgets))
    }

    /// Opens the store below a folder read-only, while the controllers may be using the folder.
    pub(crate) fn open_read_only(folder: &Path, limits: Limits) -> Self {
        let store = ArtifactStore::look_into(folder.join(STORE));
        Self::with_budgets(folder, store, limits, Budgets::default())
    }

    fn with_budgets(folder: &Path, store: ArtifactStore, limits: Limits, budgets: Budgets) -> Self {
        Self {
            trees: TreeCache::new(store.clone(), limits, budgets.tree_budget()),
            store,
            limits,
            folder: folder.to_owned(),
            fetches: budgets.fetch_budget(),
            unpacking: budgets::make_unpacking(),
        }
    }

    /// Returns the folder with all artifacts.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the budgets to which the fetches of a lane are charged.
    pub(crate) fn account(&self, lane: &str) -> FetchBudgets {
        FetchBudgets {
            lane: lane.to_owned(),
            memory: self.fetches.clone(),
            unpacking: self.unpacking.clone(),
            trees: self.trees.budget().process_limits(),
        }
    }

    /// Removes artifacts of all sources of a kind that `keep` does not know by namespace, name and uid.
    pub(crate) fn retain(&self, kind: &str, keep: impl Fn(&str, &str, &str) -> bool) -> Result<(), StorageError> {
        let records = self.folder.join(RECORDS).join(kind.to_ascii_lowercase());
        // A record without an archive has no effect, so it may stay.
        let _ = remove_deleted_sources(&records, &keep);
        self.store.retain(kind, keep)
    }

    /// Drops the trees that were not used recently.
    pub(crate) fn sweep(&self) {
        self.trees.sweep();
    }

    /// Drops all unused trees. Called when the hub wants memory back for other lanes.
    pub(crate) fn drop_idle(&self) {
        self.trees.drop_idle();
    }

    /// Takes memory for files of several artifacts together, charged to a lane.
    pub(crate) async fn take_tree_room(
        &self,
        lane: &str,
        bytes: u64,
        deadline: tokio::time::Instant,
    ) -> Result<HeldBytes, OverBudget> {
        self.trees.take_room(lane, bytes, deadline).await
    }

    /// Returns the memory budget of trees.
    pub(crate) fn tree_room(&self) -> &ByteBudget {
        self.trees.budget()
    }

    /// Returns the memory budget of fetches.
    pub(crate) fn fetch_room(&self) -> &ByteBudget {
        &self.fetches
    }

    /// Returns the path of a source's record.
    fn file(&self, source: &SourceKey) -> PathBuf {
        self.folder.join(locate_record(source))
    }
}

/// Finds and records the stored artifacts of the sources in one namespace. Records that were read are cached.
#[derive(Debug)]
pub(crate) struct ArtifactRecords {
    pub(crate) artifact_storage: Arc<ArtifactStorage>,
    known: Mutex<HashMap<SourceKey, Option<StoredArtifact>>>,
}

impl ArtifactRecords {
    pub(crate) fn new(artifact_storage: Arc<ArtifactStorage>) -> Self {
        Self {
            artifact_storage,
            known: Mutex::default(),
        }
    }

    /// Returns the stored artifact of a source; `None` if its archive is missing.
    pub(crate) fn record(&self, source: &SourceKey) -> Option<StoredArtifact> {
        let record = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known
                .entry(source.clone())
                .or_insert_with(|| read(&self.artifact_storage.file(source)))
                .clone()
        };
        record.filter(|record| self.artifact_storage.store.contains(source, &record.facts.digest))
    }

    /// Records the stored artifact of a source.
    pub(crate) fn remember(&self, source: &SourceKey, record: &StoredArtifact) -> std::io::Result<()> {
        let file = self.artifact_storage.file(source);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // A half-written record would count as missing, and the source would be fetched again. Writing it whole avoids that.
        let partial = file.with_extension("partial");
        std::fs::write(&partial, serde_json::to_vec(record)?)?;
        std::fs::rename(&partial, &file)?;
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(source.clone(), Some(record.clone()));
        Ok(())
    }

    /// Removes everything of a deleted source.
    pub(crate) fn remove(&self, source: &SourceKey) -> Result<(), StorageError> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(source);
        // A record without an archive has no effect, so it may stay.
        let file = self.artifact_storage.file(source);
        let _ = std::fs::remove_file(&file);
        let _ = file.parent().map(std::fs::remove_dir);
        self.artifact_storage.store.remove(source)
    }

    /// Returns the files of an artifact, charged to a lane, as soon as memory is available.
    pub(crate) async fn tree(
        &self,
        artifact: (&SourceKey, &str),
        lane: &str,
        deadline: tokio::time::Instant,
    ) -> Result<TreeInUse, StorageError> {
        self.artifact_storage.trees.load(artifact, lane, deadline).await
    }

    /// Charges a source's artifact from an earlier run to a lane. An artifact without capacity is fetched again when it is needed.
    pub(crate) fn adopt(&self, source: &SourceKey, lane: &str) -> Result<(), StorageError> {
        match self.record(source) {
            Some(record) => self.artifact_storage.store.adopt(source, &record.facts.digest, lane),
            None => Ok(()),
        }
    }
}

/// Reads a record; `None` if the file is missing or unreadable.
fn read(file: &Path) -> Option<StoredArtifact> {
    read_record(&std::fs::read(file).ok()?)
}

/// Reads a record, also in the previous form with a separate fingerprint, so that stored artifacts need not be fetched again.
pub(crate) fn read_record(bytes: &[u8]) -> Option<StoredArtifact> {
    #[derive(Deserialize)]
    struct Halves {
        stored: StoredArtifact,
        artifact: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        metadata: HashMap<String, String>,
    }
    if let Ok(record) = serde_json::from_slice(bytes) {
        return Some(record);
    }
    let Halves { stored, mut artifact } = serde_json::from_slice(bytes).ok()?;
    Some(StoredArtifact {
        fingerprint: artifact.metadata.remove("tenure.dev/request").unwrap_or_default(),
        ..stored
    })
}

/// Returns the key of a source in the artifact store. Another object of the same name has another key.
pub(crate) fn make_source_key(kind: &str, metadata: &tenure_api::ObjectMeta) -> Result<SourceKey, StorageError> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
    SourceKey::new(kind, &namespace, &name, &text(&metadata.uid))
}

#[cfg(test)]
mod tests {
    use super::read_record;

    #[test]
    fn record_in_earlier_form_is_read() {
        let now = r#"{"revision":"main@sha1:1","digest":"sha256:2","size":3,"path":"p","storedAt":"2026-01-01T00:00:00Z","ignore":null,
            "fingerprint":"sha256:4"}"#;
        let before = r#"{"stored":{"revision":"main@sha1:1","digest":"sha256:2","size":3,"path":"p","storedAt":"2026-01-01T00:00:00Z","ignore":null},
            "artifact":{"path":"p","revision":"main@sha1:1","digest":"sha256:2","size":3,"metadata":{"tenure.dev/request":"sha256:4"}}}"#;
        let read = read_record(now.as_bytes());
        assert!(read.is_some());
        assert_eq!(read_record(before.as_bytes()), read);
        assert_eq!(read_record(b"{}"), None);
    }
}
