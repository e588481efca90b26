//! Common parts of the targets: the first inputs, the bound of memory, and the comparison with independent readers.

pub mod oracles;

use std::path::Path;

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Bytes that are not counted: messages of errors, and tables that are made once.
const SLACK: u64 = 256 << 10;

/// Writes the first inputs of a target into its corpus, before libFuzzer reads the corpus.
pub fn write_seeds(target: &str, seeds: Vec<Vec<u8>>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    std::fs::create_dir_all(&folder).unwrap();
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number:03}")), seed).unwrap();
    }
}

/// Runs work that may hold this many bytes at a time, and fails if it holds more.
pub fn within(bytes: u64, work: &mut dyn FnMut()) {
    within_bytes(bytes, work);
}

/// Runs work that may hold this many bytes at a time, and returns its result.
pub fn within_bytes<T>(bytes: u64, work: impl FnOnce() -> T) -> T {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let result = work();
    let held = ALLOCATOR.peak_usage().saturating_sub(before) as u64;
    assert!(
        held <= bytes + SLACK,
        "{held} bytes of memory are held, where {bytes} are allowed"
    );
    result
}

/// Runs work that may hold this many times the input.
pub fn within_factor<T>(input: &[u8], factor: u64, work: impl FnOnce() -> T) -> T {
    within_bytes(input.len() as u64 * factor, work)
}
