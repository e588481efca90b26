//! The number of cases that a test tries.

/// The variable with which tests try everything: `cargo xtask long` sets it.
const LONG: &str = "TENURE_TEST_LONG";

/// Returns `long` if `TENURE_TEST_LONG` is set, and else `short`.
pub fn choose_length<T>(short: T, long: T) -> T {
    if std::env::var_os(LONG).is_some() { long } else { short }
}
