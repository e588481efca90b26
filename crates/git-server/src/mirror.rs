//! A folder of this machine as a repository: what is in it becomes commits on `main`. Owns nothing of the folder: it only reads, and a
//! folder that is a Git repository itself is followed by its HEAD, not by its files.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use crate::error::GitServerError;
use crate::repository::Repository;

/// A repository that follows a folder.
#[derive(Debug)]
pub struct Mirror {
    repository: Repository,
    folder: PathBuf,
    /// What the folder looked like when it was last read: names, lengths and times.
    seen: Option<u64>,
}

impl Mirror {
    /// Nothing is read before the first [`Mirror::update`].
    #[must_use]
    pub fn new(repository: Repository, folder: impl Into<PathBuf>) -> Self {
        Self {
            repository,
            folder: folder.into(),
            seen: None,
        }
    }

    /// Looks at the folder, and brings `main` up to date. Returns the new commit, in hex; nothing when there is none.
    ///
    /// # Errors
    /// [`GitServerError::Io`] when the folder can't be read, or what git says.
    pub async fn update(&mut self) -> Result<Option<String>, GitServerError> {
        if is_repository(&self.folder) {
            return self.repository.fetch_head_of(&self.folder).await;
        }
        let looks = look_of(&self.folder)?;
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

/// A work tree, or a bare repository.
fn is_repository(folder: &Path) -> bool {
    folder.join(".git").exists() || (folder.join("HEAD").is_file() && folder.join("objects").is_dir())
}

/// Names, lengths and times of all that is in a folder. It says that something changed, not what.
fn look_of(folder: &Path) -> Result<u64, GitServerError> {
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
            // An editor's file that is gone already will be missing the next time, too.
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
