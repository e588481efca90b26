//! How much of something a test tries.

/// The variable by which tests try everything: `cargo xtask long` sets it.
const LONG: &str = "TENURE_TEST_LONG";

/// Chooses between what a test tries in CI, and what it tries in a long run.
pub fn choose_length<T>(short: T, long: T) -> T {
    if std::env::var_os(LONG).is_some() { long } else { short }
}
