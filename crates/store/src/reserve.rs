//! Space that is kept for the day on which the disk is full: a file with nothing in it, which is given up so that the
//! tables can take in what is in the log. Owns its size; refuses to be in the way of anything else.

use std::path::{Path, PathBuf};

use crate::JournalError;
use crate::log::allocate;

/// How much: the pages that the tables touch when they drop their history, and some more.
const SIZE: u64 = 4 << 20;

/// The file.
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

    /// Takes the space again, all of it or none.
    pub(crate) fn fill(&self) -> Result<(), JournalError> {
        if self.is_there() {
            return Ok(());
        }
        crate::store::keep_private(&self.path)?;
        let file = std::fs::File::options().read(true).write(true).open(&self.path)?;
        allocate(&file, 0, SIZE).map_err(|error| {
            self.give_up();
            error.into()
        })
    }

    /// Whether the disk has as much space as this beside what it holds.
    pub(crate) fn look_for_space(&self) -> Result<(), JournalError> {
        let probe = self.path.with_extension("probe");
        crate::store::keep_private(&probe)?;
        let file = std::fs::File::options().read(true).write(true).open(&probe);
        let found = file.and_then(|file| allocate(&file, 0, SIZE));
        std::fs::remove_file(&probe)?;
        Ok(found?)
    }

    fn is_there(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| file.len() >= SIZE)
    }

    /// Gives the space back, and says whether there was any.
    pub(crate) fn give_up(&self) -> bool {
        let was_there = self.is_there();
        let _nothing_to_give = std::fs::remove_file(&self.path);
        was_there
    }
}
