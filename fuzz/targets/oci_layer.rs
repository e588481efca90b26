//! Any bytes as a layer of an artifact.
#![no_main]

use std::cell::RefCell;
use std::fs::File;

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{within, write_seeds};
use tenure_sources::fuzzing::layer;

thread_local! {
    static FILE: RefCell<File> = RefCell::new(tempfile::tempfile().unwrap());
}

fuzz_target!(init: write_seeds("oci_layer", layer::seeds()), |bytes: &[u8]| {
    FILE.with_borrow_mut(|file| layer::check(bytes, file, &within));
});
