//! Artifacts: the content of a commit as one archive, stored under its digest.
//!
//! Owns the folder they live in: `<root>/<kind>/<namespace>/<name>/<sha256>.tar.gz`. A path is always computed from the
//! source and the digest, never taken from a status, and a load verifies the digest, so nothing that is written into an
//! object can make the store give out another source's content. It serves nothing over a network.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::StorageError;
use crate::limits::Limits;
use crate::tree::Tree;

/// How many artifacts of a source are kept: the current one and the one before it.
const KEEP: usize = 2;

/// The object that an artifact belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceKey {
    kind: String,
    namespace: String,
    name: String,
}

impl SourceKey {
    /// Names a source by its kind (`GitRepository`), namespace and name.
    ///
    /// # Errors
    /// [`StorageError::InvalidName`] when one of them isn't a name that Kubernetes accepts, since they become folders.
    pub fn new(kind: &str, namespace: &str, name: &str) -> Result<Self, StorageError> {
        let kind = kind.to_ascii_lowercase();
        for (what, value) in [("kind", kind.as_str()), ("namespace", namespace), ("name", name)] {
            let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
            let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
            if value.len() > 253
                || !value.chars().all(known)
                || !edge(value.chars().next())
                || !edge(value.chars().last())
            {
                return Err(StorageError::InvalidName {
                    what,
                    value: value.to_owned(),
                });
            }
        }
        Ok(Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// The kind in lower case, as it stands in paths.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn folder(&self) -> PathBuf {
        Path::new(&self.kind).join(&self.namespace).join(&self.name)
    }
}

/// What `status.artifact` says about a stored artifact; the reconciler adds `url` and `lastUpdateTime`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Path inside the store, `gitrepository/<namespace>/<name>/<sha256>.tar.gz`; for people, never used to read.
    pub path: String,
    /// The revision in Flux's form, `main@sha1:…` or `sha1:…`.
    pub revision: String,
    /// `sha256:…` of the archive.
    pub digest: String,
    /// Bytes of the archive.
    pub size: u64,
    /// Further facts; [`FINGERPRINT`] says which request made it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// The key of [`Artifact::metadata`] that holds a digest of what, besides the commit, decided its content.
pub const FINGERPRINT: &str = "tenure.dev/request";

/// A folder of artifacts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ArtifactStore {
    root: Arc<Path>,
    next: Arc<AtomicU64>,
}

impl ArtifactStore {
    /// Opens the folder, making it if needed and clearing what an interrupted fetch left in it.
    ///
    /// # Errors
    /// [`StorageError::Io`] when the folder can't be made or cleared.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StorageError> {
        let root: PathBuf = root.into();
        let store = Self {
            root: root.into(),
            next: Arc::new(AtomicU64::new(0)),
        };
        let incoming = store.incoming();
        match fs::remove_dir_all(&incoming) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(store.io("clear", &incoming, source));
            }
            _ => {}
        }
        fs::create_dir_all(&incoming).map_err(|source| store.io("create", &incoming, source))?;
        Ok(store)
    }

    /// Looks into a folder that another process may be using: for reading only, and nothing is made or cleared.
    pub fn look_into(root: impl Into<PathBuf>) -> Self {
        let root: PathBuf = root.into();
        Self {
            root: root.into(),
            next: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Whether the archive of this digest is stored for the source. Its content is verified when it is loaded.
    pub fn contains(&self, source: &SourceKey, digest: &str) -> bool {
        self.file(source, digest).is_ok_and(|path| path.is_file())
    }

    /// Loads an artifact into memory, verifying its digest and bounding what it unpacks to.
    ///
    /// Blocks on the disk. A damaged file is removed, so that the next fetch brings it anew.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::DigestMismatch`], [`StorageError::InvalidArchive`],
    /// [`StorageError::TooLarge`] or [`StorageError::Io`].
    pub fn load(&self, source: &SourceKey, digest: &str, limits: &Limits) -> Result<Tree, StorageError> {
        let path = self.file(source, digest)?;
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StorageError::Missing {
                    digest: digest.to_owned(),
                });
            }
            Err(source) => return Err(self.io("read", &path, source)),
        };
        let found = format!("sha256:{}", hex::encode(Sha256::digest(&bytes)));
        if found != digest {
            // Removing is what mends it; that it can't be removed changes nothing about the error.
            let _ = fs::remove_file(&path);
            return Err(StorageError::DigestMismatch {
                expected: digest.to_owned(),
                found,
            });
        }
        Tree::from_archive(&bytes, digest, limits)
    }

    /// Removes every artifact of a source, for one that was deleted.
    ///
    /// # Errors
    /// [`StorageError::Io`] when the folder can't be removed.
    pub fn remove(&self, source: &SourceKey) -> Result<(), StorageError> {
        let folder = self.root.join(source.folder());
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.io("remove", &folder, error)),
            _ => Ok(()),
        }
    }

    /// A new empty file for a fetch in progress; it is removed when the guard is dropped.
    pub(crate) fn incoming_file(&self) -> Result<Incoming, StorageError> {
        let name = format!("{}-{}", std::process::id(), self.next.fetch_add(1, Ordering::Relaxed));
        let path = self.incoming().join(name);
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|source| self.io("create", &path, source))?;
        Ok(Incoming { file, path })
    }

    /// Moves a finished archive to its place and removes the source's oldest ones.
    pub(crate) fn keep(&self, source: &SourceKey, incoming: Incoming, digest: &str) -> Result<String, StorageError> {
        let target = self.file(source, digest)?;
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(|error| self.io("create", folder, error))?;
        }
        fs::rename(&incoming.path, &target).map_err(|error| self.io("write", &target, error))?;
        self.collect(source, &target)?;
        let relative = target.strip_prefix(&self.root).unwrap_or(&target);
        Ok(relative.to_string_lossy().into_owned())
    }

    fn collect(&self, source: &SourceKey, newest: &Path) -> Result<(), StorageError> {
        let folder = self.root.join(source.folder());
        let mut older: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&folder).map_err(|error| self.io("list", &folder, error))? {
            let entry = entry.map_err(|error| self.io("list", &folder, error))?;
            let path = entry.path();
            if path != newest {
                let modified = entry
                    .metadata()
                    .and_then(|data| data.modified())
                    .unwrap_or(SystemTime::UNIX_EPOCH);
                older.push((modified, path));
            }
        }
        older.sort_by(|a, b| b.cmp(a));
        for (_, path) in older.iter().skip(KEEP - 1) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.io("remove", path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn io(&self, action: &'static str, path: &Path, source: io::Error) -> StorageError {
        let path = path
            .strip_prefix(&self.root)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned();
        StorageError::Io { action, path, source }
    }

    fn incoming(&self) -> PathBuf {
        self.root.join(".incoming")
    }

    fn file(&self, source: &SourceKey, digest: &str) -> Result<PathBuf, StorageError> {
        let hex = digest
            .strip_prefix("sha256:")
            .filter(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
            .ok_or_else(|| StorageError::InvalidName {
                what: "digest",
                value: digest.to_owned(),
            })?;
        Ok(self.root.join(source.folder()).join(format!("{hex}.tar.gz")))
    }
}

/// A file of a fetch in progress.
#[derive(Debug)]
pub(crate) struct Incoming {
    file: fs::File,
    path: PathBuf,
}

impl Incoming {
    /// Where it is, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Another handle on the open file.
    pub(crate) fn file(&self) -> io::Result<fs::File> {
        self.file.try_clone()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // After it was kept there is nothing at this path any more.
        let _ = fs::remove_file(&self.path);
    }
}
