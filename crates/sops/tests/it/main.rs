//! What the real sops made and said, and what a stranger would try.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests read their files and fail loudly"
)]

mod hostile;
mod recorded;
