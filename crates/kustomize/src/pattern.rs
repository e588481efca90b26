//! Regular expressions of Go's `regexp`, compiled within the budget of a build. A pattern that Go refuses is an error.

use go_words::pattern::translate;
use regex::{Regex, RegexBuilder};

use crate::meter;

/// The size limits for a compiled pattern, tried in turn, because a compiled pattern doesn't report its size.
const SIZES: [usize; 5] = [8 << 10, 64 << 10, 512 << 10, 4 << 20, 10 << 20];

/// The size limits for a pattern of names.
const SMALL: [usize; 2] = [8 << 10, 64 << 10];

/// The size limit for the tables of a pattern during a search.
const TABLES: usize = 16 << 10;

/// Compiles a pattern written for Go.
///
/// # Errors
/// If Go can't read the pattern; the message says why.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    compile_within(pattern, &SIZES)
}

/// Compiles a pattern that may become no bigger than [`SMALL`].
///
/// # Errors
/// As [`compile`], and when it becomes bigger.
pub(crate) fn compile_small(pattern: &str) -> Result<Regex, String> {
    compile_within(pattern, &SMALL)
}

fn compile_within(pattern: &str, sizes: &[usize]) -> Result<Regex, String> {
    let bad = |why: &str| format!("'{pattern}' is not a valid regular expression{why}");
    let translated = translate(pattern).map_err(|why| bad(&format!(": {why}")))?;
    meter::check()?;
    for &size in sizes {
        let mut builder = RegexBuilder::new(&translated);
        let built = builder.size_limit(size).dfa_size_limit(TABLES).build();
        meter::count_steps(size / 64);
        match built {
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => return Err(bad("")),
            Ok(built) => {
                meter::count_bytes(size + TABLES);
                return Ok(built);
            }
        }
    }
    Err(bad(""))
}

#[cfg(test)]
mod tests {
    use super::compile;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap().is_match(text)
    }

    #[test]
    fn braces_that_repeat_nothing_are_text() {
        assert!(matches("^{{ name }}$", "{{ name }}"));
        assert!(matches("^a{1,x}$", "a{1,x}"));
        assert!(matches("^a{2}$", "aa"));
    }

    #[test]
    fn classes_hold_what_they_say() {
        assert!(matches("^[[a]+$", "[a["));
        assert!(matches("^[a&&b]+$", "a&b"));
        assert!(matches("^[[:digit:]-]+$", "1-2"));
        assert!(matches("^[]x]$", "]"));
        assert!(matches("^[\\d.]+$", "1.2"));
        assert!(matches("^[^\\s]+$", "ab"));
    }

    #[test]
    fn classes_of_letters_are_those_of_ascii() {
        assert!(!matches("^\\d$", "\u{663}"));
        assert!(!matches("^\\w$", "\u{e9}"));
    }

    #[test]
    fn escaped_characters_match_themselves() {
        assert!(matches("^a\\/b\\_c\\<$", "a/b_c<"));
        assert!(matches("^\\Qa.b\\E$", "a.b"));
        assert!(!matches("^\\Qa.b\\E$", "axb"));
        assert!(matches("^\\141[\\142]\\x63\\0601$", "abc01"));
        assert!(matches("^\\p{Greek}\\pL[\\p{^L}\\d]\\PL$", "\u{3b1}a12"));
    }

    #[test]
    fn patterns_refused_by_go_are_refused() {
        for pattern in [
            "a**",
            "(?x)a",
            "a{1001}",
            "[a",
            "(",
            "a\\",
            "\\u0061",
            "\\U",
            "\\8",
            "\\1",
            "[\\Qa\\E]",
            "[[:foo:]]",
            "[\\A]",
        ] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
