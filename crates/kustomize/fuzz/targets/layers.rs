//! A tree that is usually valid, generated from the bytes: resources, overlays and every field of a kustomization, with names that refer to
//! each other.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    shapes::build_all(&shapes::layers(bytes));
});
