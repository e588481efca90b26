//! Any text as a file `known_hosts`, beside the crate ssh-key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{within_factor, write_seeds};
use tenure_sources::fuzzing::known_hosts;

fuzz_target!(init: write_seeds("known_hosts", known_hosts::seeds()), |bytes: &[u8]| {
    within_factor(bytes, 64, || known_hosts::check(bytes));
});
