//! Artifacts: the content of a commit as one archive, stored under its digest.
//!
//! The path is `<root>/<kind>/<namespace>/<name>/<uid>/<sha256>.tar.gz`. A path is always computed from the source and the digest, never taken from a status, and a load
//! verifies the digest. So no field of an object can make the store return another source's content. The uid in the path separates a source from a deleted one of the
//! same name. Files on disk are counted against a budget, and older revisions are removed in favour of newer ones. The store serves nothing over a network.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

pub(crate) use self::incoming::{IncomingFile, TaskWrite};
use crate::budget::{ByteBudget, HeldBytes, OverBudget};
use crate::deleted_sources::remove_deleted_sources;
use crate::error::StorageError;
use crate::fetch_budgets::GrowingCharge;
use crate::limits::Limits;
use crate::tree::Tree;

mod incoming;

/// Stored artifacts per source: the current one and the previous one.
const KEEP: usize = 2;
/// The first bytes of a gzip file (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The identity of the source that an artifact belongs to: kind, namespace, name and uid. It determines the artifact's folder in a store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceKey {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

impl SourceKey {
    /// Names a source by its kind (`GitRepository`), namespace, name and uid. Another object of the same name is another source.
    ///
    /// # Errors
    /// [`StorageError::InvalidName`] when a part isn't a name that Kubernetes accepts, since the parts become folders.
    pub fn new(kind: &str, namespace: &str, name: &str, uid: &str) -> Result<Self, StorageError> {
        let kind = kind.to_ascii_lowercase();
        for (what, value) in [
            ("kind", kind.as_str()),
            ("namespace", namespace),
            ("name", name),
            ("uid", uid),
        ] {
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
            uid: uid.to_owned(),
        })
    }

    /// Returns the kind in lower case, as in paths.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the uid.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Returns the folder of this source in a store, and in any other tree with a folder for each source.
    pub fn folder(&self) -> PathBuf {
        Path::new(&self.kind)
            .join(&self.namespace)
            .join(&self.name)
            .join(&self.uid)
    }

    /// Returns the path of the archive with this digest in a store.
    ///
    /// # Errors
    /// [`StorageError::InvalidName`] when the text is no digest.
    pub fn archive(&self, digest: &str) -> Result<PathBuf, StorageError> {
        let hex = digest
            .strip_prefix("sha256:")
            .filter(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
            .ok_or_else(|| StorageError::InvalidName {
                what: "digest",
                value: digest.to_owned(),
            })?;
        Ok(self.folder().join(format!("{hex}.tar.gz")))
    }
}

/// The artifacts of all sources in a folder on disk, counted against a disk budget. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ArtifactStore {
    root: Arc<Path>,
    next: Arc<AtomicU64>,
    disk: ByteBudget,
    /// The archives of each source's folder, the newest last.
    stored: Arc<Mutex<ArchivesByFolder>>,
}

/// The archives in each source's folder, the oldest first.
type ArchivesByFolder = HashMap<PathBuf, Vec<Stored>>;

/// An archive that is charged to a lane.
#[derive(Debug)]
struct Stored {
    path: PathBuf,
    lane: String,
    /// The charge; released when the archive is removed.
    _held: HeldBytes,
    written: SystemTime,
}

impl ArtifactStore {
    /// Opens the folder. Creates it if needed, and removes the files of interrupted fetches. Archives are charged to `disk`: new ones when they are stored, existing ones
    /// by [`ArtifactStore::adopt`].
    ///
    /// # Errors
    /// [`StorageError::Io`] when the folder can't be created or cleared.
    pub fn open(root: impl Into<PathBuf>, disk: ByteBudget) -> Result<Self, StorageError> {
        let store = Self::with_root(root.into(), disk);
        keep_private(&store.root).map_err(|source| store.io_error("make private", &store.root, source))?;
        let incoming = store.incoming_folder();
        match fs::remove_dir_all(&incoming) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(store.io_error("clear", &incoming, source));
            }
            _ => {}
        }
        fs::create_dir_all(&incoming).map_err(|source| store.io_error("create", &incoming, source))?;
        Ok(store)
    }

    /// Opens a folder that another process may be using, for reading only. Creates and removes nothing.
    pub fn look_into(root: impl Into<PathBuf>) -> Self {
        Self::with_root(
            root.into(),
            ByteBudget::new(crate::budget::BudgetLimits::unlimited("archives")),
        )
    }

    fn with_root(root: PathBuf, disk: ByteBudget) -> Self {
        Self {
            root: root.into(),
            next: Arc::default(),
            disk,
            stored: Arc::default(),
        }
    }

    /// Returns the disk budget of all archives.
    pub fn disk(&self) -> &ByteBudget {
        &self.disk
    }

    /// Counts the bytes of all archives on disk, charged or not.
    pub fn count_bytes(&self) -> u64 {
        let mut folders = vec![self.root.to_path_buf()];
        let mut bytes = 0_u64;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                // Files that disappear meanwhile count as nothing.
                match entry.metadata() {
                    Ok(found) if found.is_dir() => folders.push(entry.path()),
                    Ok(found) => bytes = bytes.saturating_add(found.len()),
                    Err(_) => {}
                }
            }
        }
        bytes
    }

    fn lock_archives(&self) -> MutexGuard<'_, ArchivesByFolder> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges an existing archive to a lane. The archive is removed if the budget has no capacity for it. Every other archive of the source is removed, too: it is
    /// fetched again when needed.
    ///
    /// # Errors
    /// [`StorageError::OverBudget`] when the archive was removed because of the budget, [`StorageError::Io`] when the removal failed.
    pub fn adopt(&self, source: &SourceKey, digest: &str, lane: &str) -> Result<(), StorageError> {
        let path = self.archive_path(source, digest)?;
        let folder = self.root.join(source.folder());
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.path() != path {
                self.remove_file(&entry.path())?;
            }
        }
        let Ok(metadata) = fs::metadata(&path) else {
            return Ok(());
        };
        match self.disk.try_acquire(lane, metadata.len()) {
            Ok(held) => {
                let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                self.record_archive(
                    &folder,
                    Stored {
                        path,
                        lane: lane.to_owned(),
                        _held: held,
                        written,
                    },
                );
                Ok(())
            }
            Err(refused) => {
                self.remove_file(&path)?;
                Err(refused.into())
            }
        }
    }

    /// Removes the artifacts of a kind whose source `keep` does not know by namespace, name and uid.
    ///
    /// # Errors
    /// [`StorageError::Io`] when something can't be removed; the rest is removed all the same.
    pub fn retain(&self, kind: &str, keep: impl Fn(&str, &str, &str) -> bool) -> Result<(), StorageError> {
        let folder = self.root.join(kind.to_ascii_lowercase());
        remove_deleted_sources(&folder, keep).map_err(|(path, error)| self.io_error("remove", &path, error))
    }

    /// Returns the most bytes that an artifact takes in memory, which [`ArtifactStore::load`] needs.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::Io`], or [`StorageError::InvalidArchive`] for a file that is no gzip archive, such as a copied layer.
    pub fn loaded_size(&self, source: &SourceKey, digest: &str) -> Result<u64, StorageError> {
        let path = self.archive_path(source, digest)?;
        let file = self.open_archive(&path, digest)?;
        match read_archive_size(&file) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                // A damaged file is removed first.
                self.open_verified(source, digest)?;
                Err(StorageError::InvalidArchive {
                    digest: digest.to_owned(),
                    problem: error.to_string(),
                })
            }
            size => size.map_err(|source| self.io_error("read", &path, source)),
        }
    }

    /// Opens an archive. A missing file is [`StorageError::Missing`].
    fn open_archive(&self, path: &Path, digest: &str) -> Result<fs::File, StorageError> {
        fs::File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StorageError::Missing {
                digest: digest.to_owned(),
            },
            _ => self.io_error("read", path, error),
        })
    }

    /// Removes the oldest archive that a newer one of its source has replaced, if that makes the missing capacity.
    fn make_room(&self, lane: &str, refused: &OverBudget) -> bool {
        let OverBudget::Full { setting, .. } = refused else {
            return false;
        };
        let own = *setting == self.disk.process_limits().lane_setting;
        let oldest = {
            let stored = self.lock_archives();
            let outdated = stored.values().flat_map(|archives| archives.iter().rev().skip(1));
            let of_use = outdated.filter(|stored| !own || stored.lane == lane);
            of_use
                .min_by_key(|stored| stored.written)
                .map(|stored| stored.path.clone())
        };
        oldest.is_some_and(|path| self.remove_file(&path).is_ok())
    }

    /// Adds a stored archive to the list of its source's folder.
    fn record_archive(&self, folder: &Path, new: Stored) {
        self.release_charge(&new.path);
        self.lock_archives().entry(folder.to_owned()).or_default().push(new);
    }

    /// Releases the charge of an archive.
    fn release_charge(&self, path: &Path) {
        let Some(folder) = path.parent() else { return };
        let mut stored = self.lock_archives();
        let Some(archives) = stored.get_mut(folder) else { return };
        let at = archives.iter().position(|stored| stored.path == path);
        let gone = at.map(|at| archives.remove(at));
        if archives.is_empty() {
            stored.remove(folder);
        }
        // The archive is dropped after the lock is released, because returning its bytes wakes waiters.
        drop(stored);
        drop(gone);
    }

    /// Removes an archive and its charge.
    fn remove_file(&self, path: &Path) -> Result<(), StorageError> {
        let removed = match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.io_error("remove", path, error)),
            _ => Ok(()),
        };
        if removed.is_ok() {
            self.release_charge(path);
        }
        removed
    }

    /// Checks whether the archive of this digest is stored for the source. Loading it verifies its content.
    pub fn contains(&self, source: &SourceKey, digest: &str) -> bool {
        self.archive_path(source, digest).is_ok_and(|path| path.is_file())
    }

    /// Loads an artifact into memory, verifies its digest and bounds its unpacked size.
    ///
    /// Blocks on the disk. A damaged file is removed, so that the next fetch replaces it.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::DigestMismatch`], [`StorageError::InvalidArchive`], [`StorageError::TooLarge`] or [`StorageError::Io`].
    pub fn load(&self, source: &SourceKey, digest: &str, limits: &Limits) -> Result<Tree, StorageError> {
        let mut file = self.open_verified(source, digest)?;
        let size = self.loaded_size(source, digest)?;
        let path = self.archive_path(source, digest)?;
        file.rewind().map_err(|source| self.io_error("read", &path, source))?;
        Tree::from_archive(&file, (digest, size), limits)
    }

    /// Opens an archive and verifies the digest of the open file. Blocks on the disk. A damaged file is removed.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::DigestMismatch`] or [`StorageError::Io`].
    pub(crate) fn open_verified(&self, source: &SourceKey, digest: &str) -> Result<fs::File, StorageError> {
        let path = self.archive_path(source, digest)?;
        let mut file = self.open_archive(&path, digest)?;
        let mut hash = Hashing(Sha256::new());
        io::copy(&mut file, &mut hash).map_err(|source| self.io_error("read", &path, source))?;
        let found = format!("sha256:{}", hex::encode(hash.0.finalize()));
        if found != digest {
            // Removing the file repairs the damage. A failed removal does not change the error.
            let _ = self.remove_file(&path);
            return Err(StorageError::DigestMismatch {
                expected: digest.to_owned(),
                found,
            });
        }
        Ok(file)
    }

    /// Removes every artifact of a deleted source.
    ///
    /// # Errors
    /// [`StorageError::Io`] when the folder can't be removed.
    pub fn remove(&self, source: &SourceKey) -> Result<(), StorageError> {
        let folder = self.root.join(source.folder());
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            self.remove_file(&entry.path())?;
        }
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.io_error("remove", &folder, error)),
            _ => Ok(()),
        }
    }

    /// Creates an empty file for a fetch in progress. The file is charged to a lane as it grows, and removed when the guard is dropped.
    pub(crate) fn incoming_file(&self, lane: &str) -> Result<IncomingFile, StorageError> {
        let held = self.disk.try_acquire(lane, 0)?;
        let name = format!("{}-{}", std::process::id(), self.next.fetch_add(1, Ordering::Relaxed));
        let path = self.incoming_folder().join(name);
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|source| self.io_error("create", &path, source))?;
        Ok(IncomingFile::new(file, path, lane, GrowingCharge::new_unused(held)))
    }

    /// Moves a finished archive to its place and removes the source's oldest archives.
    pub(crate) fn store_archive(
        &self,
        source: &SourceKey,
        incoming: IncomingFile,
        digest: &str,
    ) -> Result<String, StorageError> {
        let target = self.archive_path(source, digest)?;
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(|error| self.io_error("create", folder, error))?;
        }
        fs::rename(incoming.path(), &target).map_err(|error| self.io_error("write", &target, error))?;
        let (lane, held) = incoming.into_charge();
        if let (Some(folder), Some(held)) = (target.parent(), held) {
            let stored = Stored {
                path: target.clone(),
                lane,
                _held: held,
                written: SystemTime::now(),
            };
            self.record_archive(folder, stored);
        }
        self.remove_older(source, &target)?;
        let relative = target.strip_prefix(&self.root).unwrap_or(&target);
        Ok(relative.to_string_lossy().into_owned())
    }

    /// Removes all archives of a source except the newest [`KEEP`].
    fn remove_older(&self, source: &SourceKey, newest: &Path) -> Result<(), StorageError> {
        let folder = self.root.join(source.folder());
        let mut older: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&folder).map_err(|error| self.io_error("list", &folder, error))? {
            let entry = entry.map_err(|error| self.io_error("list", &folder, error))?;
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
            self.remove_file(path)?;
        }
        Ok(())
    }

    pub(crate) fn io_error(&self, action: &'static str, path: &Path, source: io::Error) -> StorageError {
        let path = path
            .strip_prefix(&self.root)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned();
        StorageError::Io { action, path, source }
    }

    fn incoming_folder(&self) -> PathBuf {
        self.root.join(".incoming")
    }

    fn archive_path(&self, source: &SourceKey, digest: &str) -> Result<PathBuf, StorageError> {
        Ok(self.root.join(source.archive(digest)?))
    }
}

/// A writer that hashes the written bytes and stores none.
struct Hashing(Sha256);

/// Returns the size that an open archive declares for its content in memory: the most that [`read_archive`] needs. Blocks on the disk.
///
/// # Errors
/// When the file can't be read; [`io::ErrorKind::InvalidData`] when it is no gzip file, such as a layer that was copied unchanged.
pub fn read_archive_size(mut archive: &fs::File) -> io::Result<u64> {
    let mut begin = [0; 2];
    archive.rewind()?;
    let is_gzip = archive.read_exact(&mut begin).is_ok() && begin == GZIP_MAGIC;
    if !is_gzip {
        let problem = "it is no tar archive that is compressed with gzip";
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let mut size = [0; 4];
    archive.seek(SeekFrom::End(-4))?;
    archive.read_exact(&mut size)?;
    Ok(u64::from(u32::from_le_bytes(size)))
}

/// Reads an open archive of another store if it has this digest, within the bounds of an artifact. Blocks on the disk.
///
/// # Errors
/// [`StorageError`] when the archive can't be read, or has another digest.
pub fn read_archive(mut archive: &fs::File, digest: &str, limits: &Limits) -> Result<Tree, StorageError> {
    let invalid = |error: io::Error| StorageError::InvalidArchive {
        digest: digest.to_owned(),
        problem: error.to_string(),
    };
    let size = read_archive_size(archive).map_err(invalid)?;
    archive.rewind().map_err(invalid)?;
    let mut hash = Hashing(Sha256::new());
    io::copy(&mut archive, &mut hash).map_err(invalid)?;
    let found = format!("sha256:{}", hex::encode(hash.0.finalize()));
    if found != digest {
        return Err(StorageError::DigestMismatch {
            expected: digest.to_owned(),
            found,
        });
    }
    archive.rewind().map_err(invalid)?;
    Tree::from_archive(archive, (digest, size), limits)
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a folder, new or existing, accessible to its owner only: no other user may read fetched content.
fn keep_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if fs::metadata(folder)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}
