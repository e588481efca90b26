//! Any bytes as packets of OpenPGP and as armor, beside the crate pgp.
#![no_main]

use libfuzzer_sys::fuzz_target;
use openpgp_packets::fuzzing;
use tenure_fuzz::{oracles, within_factor, write_seeds};

fuzz_target!(init: write_seeds("openpgp_packets", fuzzing::seeds()), |bytes: &[u8]| {
    let (packets, is_whole) = within_factor(bytes, 64, || fuzzing::check_packets(bytes));
    oracles::packets(bytes, &packets, is_whole);
    within_factor(bytes, 64, || fuzzing::check_armor(bytes));
});
