//! Any bytes as a tar archive, beside the crate tar.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{within_factor, write_seeds};
use tenure_sources::fuzzing::tar;

fuzz_target!(init: write_seeds("tar", tar::seeds()), |bytes: &[u8]| {
    within_factor(bytes, 16, || tar::check(bytes));
});
