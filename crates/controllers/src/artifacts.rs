//! What the artifact store holds for each source.
//!
//! A status can be forged by whoever may write it, so what a source has fetched is remembered here, in a record beside the archive.
//! Refuses to serve another source's artifact: a record is found by the source's own name and uid, and names a digest in its own
//! folder. Who bears the name of a source that is gone finds nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tenure_planner::git_repository::StoredArtifact;
use tenure_sources::{Account, Artifact, ArtifactStore, ByteBudget, Limits, SourceKey, StorageError, remove_leftovers};

use crate::budgets::{self, Budgets};
use crate::trees::{TreeInUse, Trees};

/// A record: what to tell the planner, and what to hand to the next fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) stored: StoredArtifact,
    pub(crate) artifact: Artifact,
}

/// The disk and the memory that all artifacts share: the store and its records, the trees, and what bounds them.
#[derive(Debug)]
pub(crate) struct Depot {
    pub(crate) store: ArtifactStore,
    pub(crate) limits: Limits,
    records: PathBuf,
    trees: Arc<Trees>,
    fetches: ByteBudget,
    unpacking: ByteBudget,
    budgets: Budgets,
}

impl Depot {
    /// Opens the store below a folder.
    pub(crate) fn open(folder: &Path, limits: Limits, budgets: Budgets) -> Result<Self, StorageError> {
        let store = ArtifactStore::open(folder.join("store"), budgets.archives())?;
        Ok(Self::of(folder, store, limits, budgets))
    }

    /// Looks into the store below a folder that the controllers may be using: for reading only.
    pub(crate) fn look_into(folder: &Path, limits: Limits) -> Self {
        let store = ArtifactStore::look_into(folder.join("store"));
        Self::of(folder, store, limits, Budgets::default())
    }

    fn of(folder: &Path, store: ArtifactStore, limits: Limits, budgets: Budgets) -> Self {
        Self {
            trees: Trees::new(store.clone(), limits, budgets.trees()),
            store,
            limits,
            records: folder.join("records"),
            fetches: budgets.fetches(),
            unpacking: budgets::unpacking(),
            budgets,
        }
    }

    /// What the fetches of a lane are charged to.
    pub(crate) fn account(&self, lane: &str) -> Account {
        Account {
            lane: lane.to_owned(),
            memory: self.fetches.clone(),
            unpacking: self.unpacking.clone(),
            trees: self.budgets.trees().room(),
        }
    }

    /// Removes what belongs to no source of a kind that `keep` knows by namespace, name and uid.
    pub(crate) fn retain(&self, kind: &str, keep: impl Fn(&str, &str, &str) -> bool) -> Result<(), StorageError> {
        let records = self.records.join(kind.to_ascii_lowercase());
        // A record without an archive says nothing, so it does no harm if it stays.
        let _ = remove_leftovers(&records, &keep);
        self.store.retain(kind, keep)
    }

    /// Drops the trees that were not used lately.
    pub(crate) fn sweep(&self) {
        self.trees.sweep();
    }

    fn file(&self, source: &SourceKey) -> PathBuf {
        let folder = self.records.join(source.folder());
        folder.with_file_name(format!("{}.json", source.uid()))
    }
}

/// What is stored for the sources of one namespace.
#[derive(Debug)]
pub(crate) struct Artifacts {
    pub(crate) depot: Arc<Depot>,
    known: Mutex<HashMap<SourceKey, Option<Record>>>,
}

impl Artifacts {
    pub(crate) fn new(depot: Arc<Depot>) -> Self {
        Self {
            depot,
            known: Mutex::default(),
        }
    }

    /// What is stored for a source; nothing when its archive is gone.
    pub(crate) fn record(&self, source: &SourceKey) -> Option<Record> {
        let record = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known
                .entry(source.clone())
                .or_insert_with(|| read(&self.depot.file(source)))
                .clone()
        };
        record.filter(|record| self.depot.store.contains(source, &record.artifact.digest))
    }

    /// Remembers what was stored for a source.
    pub(crate) fn remember(&self, source: &SourceKey, record: &Record) -> std::io::Result<()> {
        let file = self.depot.file(source);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // A half-written record would be read as none, and the source fetched again; still, write it whole.
        let partial = file.with_extension("partial");
        std::fs::write(&partial, serde_json::to_vec(record)?)?;
        std::fs::rename(&partial, &file)?;
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(source.clone(), Some(record.clone()));
        Ok(())
    }

    /// Removes everything of a source that was deleted.
    pub(crate) fn remove(&self, source: &SourceKey) -> Result<(), StorageError> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(source);
        // A record without an archive says nothing, so it does no harm if it stays.
        let file = self.depot.file(source);
        let _ = std::fs::remove_file(&file);
        let _ = file.parent().map(std::fs::remove_dir);
        self.depot.store.remove(source)
    }

    /// The files of an artifact, charged to a lane, as soon as there is room for them.
    pub(crate) async fn tree(
        &self,
        artifact: (&SourceKey, &str),
        lane: &str,
        deadline: tokio::time::Instant,
    ) -> Result<TreeInUse, StorageError> {
        self.depot.trees.load(artifact, lane, deadline).await
    }

    /// Charges what is stored for a source from before to a lane; what there is no room for is fetched again when it is wanted.
    pub(crate) fn adopt(&self, source: &SourceKey, lane: &str) -> Result<(), StorageError> {
        match self.record(source) {
            Some(record) => self.depot.store.adopt(source, &record.artifact.digest, lane),
            None => Ok(()),
        }
    }
}

fn read(file: &Path) -> Option<Record> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// The key of a source in the artifact store: another object of the same name has another.
pub(crate) fn key_of_source(kind: &str, metadata: &tenure_api::ObjectMeta) -> Result<SourceKey, StorageError> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
    SourceKey::new(kind, &namespace, &name, &text(&metadata.uid))
}
