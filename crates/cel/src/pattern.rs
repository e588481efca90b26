//! Regular expressions as Go's RE2 reads them, on Rust's engine, which also runs in linear time.

use go_words::pattern::translate;
use regex::Regex;

/// The maximum size of a compiled pattern, in bytes. A short hostile pattern could become very large.
const LARGEST: usize = 1 << 20;

/// Compiles a pattern. `\d`, `\w`, `\s` and `\b` mean ASCII, as in Go.
///
/// # Errors
/// If the text is no pattern or is too large, with the reason.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate(pattern).map_err(|problem| problem.to_string())?;
    regex::RegexBuilder::new(&translated)
        .size_limit(LARGEST)
        .dfa_size_limit(LARGEST)
        .build()
        .map_err(|problem| in_words_of_go(&problem, pattern))
}

/// Translates an error that only the engine reports: a pattern that is too large when compiled, or an unknown Unicode class.
fn in_words_of_go(problem: &regex::Error, pattern: &str) -> String {
    match problem {
        regex::Error::CompiledTooBig(_) => format!("expression too large: `{pattern}`"),
        other => {
            let text = other.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("{reason}: `{pattern}`")
        }
    }
}
