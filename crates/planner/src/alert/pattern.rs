//! Regular expressions of an Alert, as Go reads them, compiled within a bound: matching takes time in proportion to what one compiles to,
//! and to the message.

use regex::{Regex, RegexBuilder};

/// Bytes that one may become.
pub(super) const COMPILED: usize = 64 << 10;

/// Compiles one.
///
/// # Errors
/// What is wrong with it.
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
