//! Any bytes as the SSH signature of a recorded object, beside the crate ssh-key.
#![no_main]

use git_signatures::fuzzing::Recorded;
use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{oracles, within_factor, write_seeds};

thread_local! {
    static RECORDED: Recorded = Recorded::default();
}

fuzz_target!(init: write_seeds("ssh_signature", Recorded::default().ssh_signature_seeds()), |bytes: &[u8]| {
    RECORDED.with(|recorded| {
        if let Some((input, is_accepted)) = within_factor(bytes, 64, || recorded.check_ssh_signature(bytes)) {
            oracles::ssh(&input, is_accepted);
        }
    });
});
