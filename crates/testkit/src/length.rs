//! The number of cases that a test tries.

/// The variable with which tests try everything: `cargo xtask long` sets it.
const LONG: &str = "TENURE_TEST_LONG";

/// Chooses between the cases of a test in CI and in a long run.
pub fn choose_length<T>(short: T, long: T) -> T {
    if std::env::var_os(LONG).is_some() { long } else { short }
}
