//! Owns the budget of a build: what it makes is counted in bytes, what it does in steps, and when either is spent, or the caller
//! wants it to end, everything that could go on asks here and stops.
//!
//! The counters are [`go_yaml::meter`]'s, which belong to the thread and count where nodes and texts are made, so a transformer that is
//! added later can't forget it. Here are the words: a loop that may run long calls [`check`] and hands its error up. [`crate::build_each`]
//! looks once more at the end, so that a spent build never looks complete, whatever became of the error on its way.

use go_yaml::meter::Allowance;
pub(crate) use go_yaml::meter::{Spent, in_passing, made, spent, text, work};

use crate::error::Error;
use crate::options::{Budget, Stop};

/// What is said of a build that is given up.
pub(crate) fn message(spent: Spent) -> String {
    match spent {
        Spent::Bytes(limit) => format!(
            "the build makes more than {}: copy less, or shorter texts, into fewer fields, split the build, or raise its budget \
             of bytes",
            shown(limit)
        ),
        Spent::Steps(limit) => format!(
            "the build takes more than {limit} steps: use fewer or simpler transformers on fewer resources, split the build, or \
             raise its budget of steps"
        ),
        Spent::Stopped => "the build was stopped by its caller".to_owned(),
    }
}

/// The error of a build that is given up; `met` is what it ended with, which says where.
pub(crate) fn error(spent: Spent, met: Option<&Error>, directory: &str) -> Error {
    let place = met.and_then(Error::place);
    let place = place.unwrap_or_else(|| crate::error::shown(directory).to_owned());
    match spent {
        Spent::Stopped => Error::Stopped { place },
        Spent::Bytes(limit) | Spent::Steps(limit) => Error::Budget {
            place,
            message: message(spent),
            limit,
        },
    }
}

/// Counts a build until it is dropped.
pub(crate) struct Metering(go_yaml::meter::Metering);

/// Begins to count a build on this thread.
pub(crate) fn begin(budget: Budget, stop: &Stop) -> Metering {
    let Budget { bytes, steps } = budget;
    Metering(go_yaml::meter::begin(Allowance { bytes, steps }, stop.flag()))
}

impl Metering {
    /// What the build has made and done so far.
    pub(crate) fn used(&self) -> Budget {
        let Allowance { bytes, steps } = self.0.used();
        Budget { bytes, steps }
    }
}

/// Tells whether to go on.
///
/// # Errors
/// When the build is given up; says why.
#[inline]
pub(crate) fn check() -> Result<(), String> {
    match spent() {
        None => Ok(()),
        Some(why) => Err(message(why)),
    }
}

/// Bytes as people write them.
fn shown(bytes: u64) -> String {
    [(30, "GiB"), (20, "MiB"), (10, "KiB")]
        .into_iter()
        .find(|(shift, _)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift))
        .map_or_else(
            || format!("{bytes} bytes"),
            |(shift, unit)| format!("{} {unit}", bytes >> shift),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_said_in_words() {
        let budget = Budget {
            bytes: 3 << 20,
            steps: 10_000,
        };
        let metering = begin(budget, &Stop::NEVER);
        made(2 << 20);
        assert_eq!((metering.used().bytes, check()), (2 << 20, Ok(())));
        made(2 << 20);
        assert!(check().unwrap_err().contains("makes more than 3 MiB"));
        drop(metering);
        assert_eq!(check(), Ok(()));
        let stop = Stop::new();
        stop.stop();
        let _metering = begin(budget, &stop);
        assert!(check().unwrap_err().contains("stopped"));
    }
}
