//! Any bytes as a data key that is encrypted with OpenPGP, and as the packets inside one, beside the crate pgp.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sops::fuzzing::{Recorded, literal_seeds, read_literal};
use tenure_fuzz::{oracles, within_factor, write_seeds};

thread_local! {
    static RECORDED: Recorded = Recorded::default();
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Recorded::default().pgp_seeds();
    seeds.extend(literal_seeds());
    seeds
}

fuzz_target!(init: write_seeds("sops_openpgp", seeds()), |bytes: &[u8]| {
    RECORDED.with(|recorded| drop(within_factor(bytes, 64, || recorded.open_pgp(bytes))));
    if let Some(content) = within_factor(bytes, 64, || read_literal(bytes)) {
        oracles::literal(bytes, &content);
    }
});
