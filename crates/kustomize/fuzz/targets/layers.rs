//! A tree that is valid more often than not, drawn from the bytes: resources, overlays and every field of a kustomization with
//! names that meet each other.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    shapes::build_all(&shapes::layers(bytes));
});
