//! Any text as a list of SSH keys, beside the crate ssh-key.
#![no_main]

use git_signatures::fuzzing;
use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{oracles, within_factor, write_seeds};

fuzz_target!(init: write_seeds("ssh_keys", fuzzing::ssh_key_seeds()), |bytes: &[u8]| {
    let is_accepted = within_factor(bytes, 64, || fuzzing::check_ssh_keys(bytes));
    oracles::ssh_keys(bytes, is_accepted);
});
