//! Any bytes as a data key that is encrypted with age, beside the crate age.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sops::fuzzing::Recorded;
use tenure_fuzz::{oracles, within_factor, write_seeds};

thread_local! {
    static RECORDED: (Recorded, oracles::Age) = (Recorded::default(), oracles::Age::default());
}

fuzz_target!(init: write_seeds("sops_age", Recorded::default().age_seeds()), |bytes: &[u8]| {
    RECORDED.with(|(recorded, age)| {
        let opened = within_factor(bytes, 64, || recorded.open_age(bytes));
        age.compare(bytes, opened.as_ref().map(|opened| opened.as_slice()));
    });
});
