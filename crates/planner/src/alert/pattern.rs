//! Regular expressions of an Alert, as Go reads them, compiled within a bound: the time of a match is in proportion to the size of the compiled program and of the
//! message.

use regex::{Regex, RegexBuilder};

/// The largest size of a compiled expression, in bytes.
pub(super) const COMPILED: usize = 64 << 10;

/// Compiles an expression.
///
/// # Errors
/// The problem of the expression.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = go_words::pattern::translate(pattern)
        .map_err(|error| format!("failed to compile regex: error parsing regexp: {error}"))?;
    RegexBuilder::new(&translated)
        .size_limit(COMPILED)
        .dfa_size_limit(COMPILED)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "failed to compile regex: it becomes too large: repeat less".to_owned(),
            _ => "failed to compile regex".to_owned(),
        })
}
