//! Any bytes as a page of a listing, beside another reader of XML.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{oracles, within_factor, write_seeds};
use tenure_sources::fuzzing::listing;

fuzz_target!(init: write_seeds("s3_listing", listing::seeds()), |bytes: &[u8]| {
    let read = within_factor(bytes, 64, || listing::check(bytes));
    oracles::listing(bytes, read.as_ref());
});
