//! Disk space that is reserved for a full disk: a file without content. It is deleted so that the tables can take in
//! the records of the log.

use std::path::{Path, PathBuf};

use crate::JournalError;
use crate::log::allocate_zeros;

/// Size of the reserved space: the pages that the tables write when they drop their history, and some more.
const SIZE: u64 = 4 << 20;

/// The file of zeros that reserves [`SIZE`] bytes of disk space for the tables.
#[derive(Debug)]
pub(crate) struct Ballast {
    path: PathBuf,
}

impl Ballast {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
        }
    }

    /// Creates the file with its full size, or leaves no file if the disk lacks the space.
    pub(crate) fn fill(&self) -> Result<(), JournalError> {
        if self.is_there() {
            return Ok(());
        }
        crate::store::make_file_private(&self.path)?;
        let file = std::fs::File::options().read(true).write(true).open(&self.path)?;
        allocate_zeros(&file, 0, SIZE).map_err(|error| {
            self.release_space();
            error.into()
        })
    }

    /// Checks that the disk has another [`SIZE`] bytes of free space beside the file.
    pub(crate) fn check_free_space(&self) -> Result<(), JournalError> {
        let probe = self.path.with_extension("probe");
        crate::store::make_file_private(&probe)?;
        let file = std::fs::File::options().read(true).write(true).open(&probe);
        let found = file.and_then(|file| allocate_zeros(&file, 0, SIZE));
        std::fs::remove_file(&probe)?;
        Ok(found?)
    }

    fn is_there(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| file.len() >= SIZE)
    }

    /// Deletes the file, which frees its space. Returns whether the file had its full size.
    pub(crate) fn release_space(&self) -> bool {
        let was_there = self.is_there();
        let _nothing_to_give = std::fs::remove_file(&self.path);
        was_there
    }
}
