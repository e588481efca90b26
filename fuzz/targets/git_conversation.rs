//! Any bytes as the answers of a Git server.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{within, write_seeds};
use tenure_sources::fuzzing::conversation;

fuzz_target!(init: write_seeds("git_conversation", conversation::seeds()), |bytes: &[u8]| {
    conversation::check(bytes, &within);
});
