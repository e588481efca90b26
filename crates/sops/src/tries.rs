//! Limits the tries of private keys on one file. So a file with many recipients and a Secret with many keys stay cheap.

use crate::error::Error;

/// The number of tries of private keys that are left for one file.
pub(crate) struct Tries {
    left: usize,
    most: usize,
}

impl Tries {
    pub(crate) fn new(most: usize) -> Self {
        Self { left: most, most }
    }

    /// Counts one more try, which costs this many steps.
    ///
    /// # Errors
    /// When the tries are used up, or the budget is spent.
    pub(crate) fn count_try(&mut self, steps: usize) -> Result<(), Error> {
        go_yaml::meter::count_steps(steps);
        go_yaml::meter::check().map_err(Error::Spent)?;
        self.left = self.left.checked_sub(1).ok_or(Error::TooMany {
            what: "tries of a key",
            most: self.most,
        })?;
        Ok(())
    }

    /// Checks whether no tries are left.
    pub(crate) fn are_over(&self) -> bool {
        self.left == 0
    }
}
