//! Any text as one of the small files and headers of sources.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{within_factor, write_seeds};
use tenure_sources::fuzzing::texts;

fuzz_target!(init: write_seeds("source_texts", texts::seeds()), |bytes: &[u8]| {
    within_factor(bytes, 64, || texts::check(bytes));
});
