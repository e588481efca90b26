//! What the artifact store holds for each source, and the file trees that are being rendered from.
//!
//! A status can be forged by whoever may write it, so what a source has fetched is remembered here, in a record beside the archive.
//! Refuses to serve another source's artifact: a record is found by the source's own name, and names a digest in its own folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tenure_planner::gitrepository::StoredArtifact;
use tenure_sources::{Artifact, ArtifactStore, Limits, SourceKey, StorageError, Tree};

/// How long a tree that nothing renders from is kept.
const TREE_KEPT: Duration = Duration::from_secs(30);

/// A record: what to tell the planner, and what to hand to the next fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) stored: StoredArtifact,
    pub(crate) artifact: Artifact,
}

type TreeSlot = Arc<tokio::sync::OnceCell<Arc<Tree>>>;

/// The store, the records and the trees.
#[derive(Debug)]
pub(crate) struct Artifacts {
    pub(crate) store: ArtifactStore,
    pub(crate) limits: Limits,
    records: PathBuf,
    known: Mutex<HashMap<SourceKey, Option<Record>>>,
    trees: Mutex<HashMap<(SourceKey, String), (TreeSlot, Instant)>>,
}

impl Artifacts {
    /// Opens the store below a folder.
    pub(crate) fn open(folder: &Path, limits: Limits) -> Result<Self, StorageError> {
        let store = ArtifactStore::open(folder.join("store"))?;
        Ok(Self {
            store,
            limits,
            records: folder.join("records"),
            known: Mutex::new(HashMap::new()),
            trees: Mutex::new(HashMap::new()),
        })
    }

    /// Looks into the store below a folder that the controllers may be using: for reading only.
    pub(crate) fn look_into(folder: &Path, limits: Limits) -> Self {
        Self {
            store: ArtifactStore::look_into(folder.join("store")),
            limits,
            records: folder.join("records"),
            known: Mutex::new(HashMap::new()),
            trees: Mutex::new(HashMap::new()),
        }
    }

    /// What is stored for a source; nothing when its archive is gone.
    pub(crate) fn record(&self, source: &SourceKey) -> Option<Record> {
        let record = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known
                .entry(source.clone())
                .or_insert_with(|| read(&self.file(source)))
                .clone()
        };
        record.filter(|record| self.store.contains(source, &record.artifact.digest))
    }

    /// Remembers what was stored for a source.
    pub(crate) fn remember(&self, source: &SourceKey, record: &Record) -> std::io::Result<()> {
        let file = self.file(source);
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
        let _ = std::fs::remove_file(self.file(source));
        self.store.remove(source)
    }

    /// The files of an artifact. Those who ask at the same time share one loading.
    pub(crate) async fn tree(&self, source: &SourceKey, digest: &str) -> Result<Arc<Tree>, StorageError> {
        let slot = {
            let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let (slot, used) = trees
                .entry((source.clone(), digest.to_owned()))
                .or_insert_with(|| (TreeSlot::default(), now));
            *used = now;
            Arc::clone(slot)
        };
        let load = || async {
            let (store, limits) = (self.store.clone(), self.limits);
            let (source, digest) = (source.clone(), digest.to_owned());
            let loading = tokio::task::spawn_blocking(move || store.load(&source, &digest, &limits));
            let tree = loading.await.map_err(|problem| StorageError::InvalidArchive {
                digest: String::new(),
                problem: problem.to_string(),
            })??;
            Ok(Arc::new(tree))
        };
        slot.get_or_try_init(load).await.cloned()
    }

    /// Namespaces and names of the sources of a kind that there are records of.
    pub(crate) fn recorded(&self, kind: &str) -> Vec<(String, String)> {
        let names = |folder: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect()
        };
        let folder = self.records.join(kind.to_ascii_lowercase());
        let mut found = Vec::new();
        for namespace in names(&folder) {
            for file in names(&folder.join(&namespace)) {
                if let Some(name) = file.strip_suffix(".json") {
                    found.push((namespace.clone(), name.to_owned()));
                }
            }
        }
        found
    }

    /// Drops the trees that were not used lately.
    pub(crate) fn sweep(&self) {
        let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        trees.retain(|_, (_, used)| used.elapsed() < TREE_KEPT);
    }

    fn file(&self, source: &SourceKey) -> PathBuf {
        let folder = self.records.join(source.kind()).join(source.namespace());
        folder.join(format!("{}.json", source.name()))
    }
}

fn read(file: &Path) -> Option<Record> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}
