//! Any bytes as a pack.
#![no_main]

use std::cell::RefCell;
use std::fs::File;

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::{within, write_seeds};
use tenure_sources::fuzzing::pack;

thread_local! {
    static FILE: RefCell<File> = RefCell::new(tempfile::tempfile().unwrap());
}

fuzz_target!(init: write_seeds("git_pack", pack::seeds()), |bytes: &[u8]| {
    FILE.with_borrow_mut(|file| pack::check(bytes, file, &within));
});
