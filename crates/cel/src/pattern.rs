//! Regular expressions as Go's RE2 reads them, on Rust's engine, which is linear in time as well.

use go_words::pattern::translate;
use regex::Regex;

/// A hostile pattern may not grow beyond this when compiled, in bytes.
const LARGEST: usize = 1 << 20;

/// Compiles a pattern. `\d`, `\w`, `\s` and `\b` mean ASCII, as in Go.
///
/// # Errors
/// With what is wrong, if it is no pattern or too large.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate(pattern).map_err(|problem| problem.to_string())?;
    regex::RegexBuilder::new(&translated)
        .size_limit(LARGEST)
        .dfa_size_limit(LARGEST)
        .build()
        .map_err(|problem| in_words_of_go(&problem, pattern))
}

/// What only the engine refuses: what it would make too large of, and classes of Unicode that it doesn't know.
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
