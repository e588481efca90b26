//! Any text as the index of a Helm repository, beside a reader of the whole document.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{within_factor, write_seeds};
use tenure_sources::fuzzing::index;

fuzz_target!(init: write_seeds("helm_index", index::seeds()), |bytes: &[u8]| {
    within_factor(bytes, 4096, || index::check(bytes));
});
