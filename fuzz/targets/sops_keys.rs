//! Any bytes as private keys for files of SOPS.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sops::fuzzing;
use tenure_fuzz::{within_factor, write_seeds};

fuzz_target!(init: write_seeds("sops_keys", fuzzing::key_seeds()), |bytes: &[u8]| {
    within_factor(bytes, 64, || fuzzing::check_keys(bytes));
});
