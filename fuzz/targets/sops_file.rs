//! Any bytes as a file of SOPS.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sops::fuzzing::{ALLOWANCE, Recorded};
use tenure_fuzz::{oracles, within_bytes, write_seeds};

thread_local! {
    static RECORDED: Recorded = Recorded::default();
}

fuzz_target!(init: write_seeds("sops_file", Recorded::default().file_seeds()), |bytes: &[u8]| {
    RECORDED.with(|recorded| {
        if let Some(clear) = within_bytes(ALLOWANCE.0, || recorded.check_file(bytes)) {
            oracles::clear_file(&clear);
        }
    });
});
