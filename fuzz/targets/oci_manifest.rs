//! Any bytes as a manifest.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{within_factor, write_seeds};
use tenure_sources::fuzzing::manifest;

fuzz_target!(init: write_seeds("oci_manifest", manifest::seeds()), |bytes: &[u8]| {
    within_factor(bytes, 128, || manifest::check(bytes));
});
