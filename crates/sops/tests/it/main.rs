//! Recorded results of the real sops, and hostile input.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests read their files and fail loudly"
)]

mod hostile;
mod recorded;
