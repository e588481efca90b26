//! The budget of a build: bytes that it makes, and steps that it does. Every loop that could continue asks this module, and stops when the
//! budget is exhausted or the caller wants the build to end.
//!
//! The counters are those of [`go_yaml::meter`]. They belong to the thread and count where nodes and texts are made, so a new transformer
//! can't forget them. This module adds the messages. A loop that may run long calls [`check`] and returns its error. [`crate::build_each`]
//! checks again at the end, so an aborted build never looks complete, even if an error was lost on the way.

use go_yaml::meter::Allowance;
pub(crate) use go_yaml::meter::{Spent, count_bytes, count_steps, count_text, exhausted_limit, in_passing};

use crate::error::Error;
use crate::options::{Budget, Stop};

/// Returns the message of a build that exceeded its budget.
pub(crate) fn spent_message(spent: Spent) -> String {
    match spent {
        Spent::Bytes(limit) => format!(
            "the build makes more than {}: copy less, or shorter texts, into fewer fields, split the build, or raise its budget \
             of bytes",
            format_bytes(limit)
        ),
        Spent::Steps(limit) => format!(
            "the build takes more than {limit} steps: use fewer or simpler transformers on fewer resources, split the build, or \
             raise its budget of steps"
        ),
        Spent::Stopped => "the build was stopped by its caller".to_owned(),
    }
}

/// Returns the error of a build that exceeded its budget. `met` is the error that ended the build, which tells the place.
pub(crate) fn spent_error(spent: Spent, met: Option<&Error>, directory: &str) -> Error {
    let place = met.and_then(Error::describe_place);
    let place = place.unwrap_or_else(|| crate::error::show_directory(directory).to_owned());
    match spent {
        Spent::Stopped => Error::Stopped { place },
        Spent::Bytes(limit) | Spent::Steps(limit) => Error::Budget {
            place,
            message: spent_message(spent),
            limit,
        },
    }
}

/// Counts a build until it is dropped.
pub(crate) struct Metering(go_yaml::meter::Metering);

/// Begins to count a build on this thread.
pub(crate) fn start_metering(budget: Budget, stop: &Stop) -> Metering {
    let Budget { bytes, steps } = budget;
    Metering(go_yaml::meter::start_metering(Allowance { bytes, steps }, stop.flag()))
}

impl Metering {
    /// Returns the bytes and steps that the build has used so far.
    pub(crate) fn usage(&self) -> Budget {
        let Allowance { bytes, steps } = self.0.usage();
        Budget { bytes, steps }
    }
}

/// Checks whether the build may continue.
///
/// # Errors
/// If the budget is exhausted or the build is stopped, with the reason.
#[inline]
pub(crate) fn check() -> Result<(), String> {
    match exhausted_limit() {
        None => Ok(()),
        Some(why) => Err(spent_message(why)),
    }
}

/// Returns a number of bytes in readable units.
fn format_bytes(bytes: u64) -> String {
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
    fn exceeded_budgets_are_reported_in_words() {
        let budget = Budget {
            bytes: 3 << 20,
            steps: 10_000,
        };
        let metering = start_metering(budget, &Stop::NEVER);
        count_bytes(2 << 20);
        assert_eq!((metering.usage().bytes, check()), (2 << 20, Ok(())));
        count_bytes(2 << 20);
        assert!(check().unwrap_err().contains("makes more than 3 MiB"));
        drop(metering);
        assert_eq!(check(), Ok(()));
        let stop = Stop::new();
        stop.stop();
        let _metering = start_metering(budget, &stop);
        assert!(check().unwrap_err().contains("stopped"));
    }
}
