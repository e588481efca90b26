//! Any bytes as a request to a Receiver.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{within_factor, write_seeds};
use tenure_planner::receiver::fuzzing;

fuzz_target!(init: write_seeds("receiver_body", fuzzing::seeds()), |bytes: &[u8]| {
    within_factor(bytes, 256, || fuzzing::check(bytes));
});
