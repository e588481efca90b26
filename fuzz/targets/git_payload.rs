//! Any bytes as a commit or a tag, split into signed bytes and signature.
#![no_main]

use git_signatures::fuzzing;
use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{within_factor, write_seeds};

fuzz_target!(init: write_seeds("git_payload", fuzzing::payload_seeds()), |bytes: &[u8]| {
    within_factor(bytes, 8, || fuzzing::check_payload(bytes));
});
