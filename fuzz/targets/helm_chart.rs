//! Any bytes as the archive of a chart, read by both readers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{within_factor, write_seeds};
use tenure_sources::fuzzing::chart;

fuzz_target!(init: write_seeds("helm_chart", chart::seeds()), |bytes: &[u8]| {
    within_factor(bytes, 4096, || chart::check(bytes));
});
