//! Owns how often private keys may be tried on one file, so that a file with many recipients and a Secret with many keys cost little.

use crate::error::Error;

/// What is left of the tries of one file.
pub(crate) struct Tries {
    left: usize,
    most: usize,
}

impl Tries {
    pub(crate) fn new(most: usize) -> Self {
        Self { left: most, most }
    }

    /// One more try, which counts as so many steps.
    ///
    /// # Errors
    /// When there were too many, or the budget is spent.
    pub(crate) fn one(&mut self, steps: usize) -> Result<(), Error> {
        go_yaml::meter::work(steps);
        go_yaml::meter::check().map_err(Error::Spent)?;
        self.left = self.left.checked_sub(1).ok_or(Error::TooMany {
            what: "tries of a key",
            most: self.most,
        })?;
        Ok(())
    }

    /// Whether there are none left.
    pub(crate) fn are_over(&self) -> bool {
        self.left == 0
    }
}
