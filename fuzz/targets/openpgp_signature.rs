//! Any bytes as the signature of a recorded object. The crate pgp must accept each accepted input, too.
#![no_main]

use git_signatures::fuzzing::Recorded;
use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{oracles, within_factor, write_seeds};

thread_local! {
    static RECORDED: Recorded = Recorded::default();
}

fuzz_target!(init: write_seeds("openpgp_signature", Recorded::default().openpgp_signature_seeds()), |bytes: &[u8]| {
    RECORDED.with(|recorded| {
        if let Some(accepted) = within_factor(bytes, 64, || recorded.check_openpgp_signature(bytes)) {
            oracles::openpgp(&accepted);
        }
    });
});
