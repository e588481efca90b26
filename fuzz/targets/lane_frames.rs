//! Any bytes as messages between the hub, the lanes' processes and their Pods.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_controllers::fuzzing;
use tenure_fuzz::{within_factor, write_seeds};

fuzz_target!(init: write_seeds("lane_frames", fuzzing::seeds()), |bytes: &[u8]| {
    within_factor(bytes, 512, || fuzzing::check(bytes));
});
