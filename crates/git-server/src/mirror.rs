//! Mirrors a local folder into a repository: its content becomes commits on `main`. The folder is only read. If the folder is a Git repository itself, the mirror follows
//! its HEAD, not its files.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use crate::error::GitServerError;
use crate::repository::Repository;

/// A repository whose branch `main` follows the content of a local folder.
#[derive(Debug)]
pub struct Mirror {
    repository: Repository,
    folder: PathBuf,
    /// A hash of the folder's state at the last read: names, lengths and times.
    seen: Option<u64>,
}

impl Mirror {
    /// Creates a mirror. Reads nothing before the first [`Mirror::update`].
    #[must_use]
    pub fn new(repository: Repository, folder: impl Into<PathBuf>) -> Self {
        Self {
            repository,
            folder: folder.into(),
            seen: None,
        }
    }

    /// Reads the folder and updates `main`. Returns the new commit, in hex; `None` if nothing changed.
    ///
    /// # Errors
    /// [`GitServerError::Io`] when the folder can't be read, or an error of git.
    pub async fn update(&mut self) -> Result<Option<String>, GitServerError> {
        if is_repository(&self.folder) {
            return self.repository.fetch_head_of(&self.folder).await;
        }
        let looks = hash_folder_state(&self.folder)?;
        if self.seen == Some(looks) {
            return Ok(None);
        }
        let commit = self
            .repository
            .commit_whole(&self.folder, "the folder as it is")
            .await?;
        self.seen = Some(looks);
        Ok(commit)
    }
}

/// Checks whether the folder is a work tree or a bare repository.
fn is_repository(folder: &Path) -> bool {
    folder.join(".git").exists() || (folder.join("HEAD").is_file() && folder.join("objects").is_dir())
}

/// Hashes the names, lengths and times of all entries in a folder. A different hash means that something has changed.
fn hash_folder_state(folder: &Path) -> Result<u64, GitServerError> {
    let mut hasher = DefaultHasher::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let failed = |source| GitServerError::Io {
            action: "list",
            path: folder.clone(),
            source,
        };
        let mut entries: Vec<_> = std::fs::read_dir(&folder)
            .map_err(failed)?
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            // An editor's temporary file that is already gone will be missing the next time, too.
            let Ok(metadata) = entry.metadata() else { continue };
            entry.path().hash(&mut hasher);
            metadata.len().hash(&mut hasher);
            metadata.modified().ok().hash(&mut hasher);
            if metadata.is_dir() && entry.file_name() != ".git" {
                folders.push(entry.path());
            }
        }
    }
    Ok(hasher.finish())
}
