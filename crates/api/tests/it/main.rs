//! The kinds round-trip, the CRDs have Flux's shape, and names, ids and durations refuse what they must.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod crds;
mod helm;
mod round_trip;
mod text_forms;
