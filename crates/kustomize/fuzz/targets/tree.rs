//! Any bytes as a tree of files: a line `-- PATH --` begins a file, `-- PATH -> TARGET --` is a link. The target builds the tree and writes
//! the result.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    shapes::build_all(&shapes::tree(bytes));
});
