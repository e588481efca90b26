//! Patterns with `*` for names of namespaces.
//!
//! No pattern matches a namespace in which a platform lives. Matching takes time linear in the name and the pattern, whatever both are: a tenant
//! chooses one of them, and often the other.

use std::fmt;
use std::str::FromStr;

use tenure_api::names::is_dns_label;
use tenure_api::text;

use crate::settings;

/// The greatest number of characters of a wrong pattern in a message.
const SHOWN: usize = 80;

/// A namespace's name, or a pattern in which each `*` matches any number of letters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacePattern(String);

/// The reason why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither the name of a namespace nor a pattern: {why}{}", .suggestion.as_ref().map(|name| format!("; {name:?} would be one")).unwrap_or_default())]
pub struct PatternError {
    /// The beginning of the text.
    pub text: String,
    /// The rule that it breaks.
    pub why: &'static str,
    /// The pattern that the user may have meant.
    pub suggestion: Option<String>,
}

const RULE: &str = "lower-case letters, digits, '-' and '*', beginning and ending with a letter, a digit or '*', at most 63 characters";

impl NamespacePattern {
    /// Returns the pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks whether the pattern is the name of one namespace.
    #[must_use]
    pub fn is_name(&self) -> bool {
        !self.0.contains('*')
    }

    /// Checks whether the pattern matches this namespace. A namespace in which a platform lives matches only
    /// its whole name.
    #[must_use]
    pub fn matches(&self, namespace: &str, platform: &str) -> bool {
        if self.is_name() {
            return self.0 == namespace;
        }
        !is_of_platform(namespace, platform) && self.fits(namespace)
    }

    /// Checks whether the letters match. Each part between stars is searched once, from the end of the previous part: the first match is as good as
    /// any later one.
    fn fits(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = parts.next().and_then(|start| name.strip_prefix(start)) else {
            return false;
        };
        let Some(end) = parts.next_back() else {
            return rest.is_empty();
        };
        for part in parts {
            match rest.split_once(part) {
                Some((_, behind)) => rest = behind,
                None => return false,
            }
        }
        rest.ends_with(end)
    }

    /// Checks whether this pattern surely matches everything that `other` matches: `other` is equal, or is a name that this pattern matches. Other
    /// patterns are not compared, and count as not covered.
    #[must_use]
    pub fn covers(&self, other: &Self, platform: &str) -> bool {
        self == other || (other.is_name() && self.matches(&other.0, platform))
    }
}

/// Checks whether a platform lives in a namespace: Kubernetes, Flux, Capsule, Cozystack, or Tenure, whatever name its namespace
/// has.
#[must_use]
pub fn is_of_platform(namespace: &str, platform: &str) -> bool {
    settings::is_of_platform(namespace, platform)
}

impl FromStr for NamespacePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let bytes = text.as_bytes();
        let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'*');
        let is_outer = |byte: Option<&u8>| byte.is_some_and(|byte| is_inner(byte) && *byte != b'-');
        let is_one =
            bytes.len() <= 63 && bytes.iter().all(is_inner) && is_outer(bytes.first()) && is_outer(bytes.last());
        if is_one {
            return Ok(Self(text.to_owned()));
        }
        let start: String = text.chars().take(SHOWN).collect();
        Err(PatternError {
            text: text::visible_line(&start).into_owned(),
            why: RULE,
            suggestion: suggest(text),
        })
    }
}

/// Suggests a valid name for texts such as `projectA` or `team_a`.
fn suggest(text: &str) -> Option<String> {
    if text.len() > SHOWN {
        return None;
    }
    let mut name = String::new();
    let mut before = ' ';
    for letter in text.chars() {
        match letter {
            // A capital within a word begins a new word: `projectA` more often means `project-a` than
            // `projecta`.
            'A'..='Z' => {
                if before.is_ascii_lowercase() || before.is_ascii_digit() {
                    name.push('-');
                }
                name.push(letter.to_ascii_lowercase());
            }
            'a'..='z' | '0'..='9' | '-' | '*' => name.push(letter),
            _ => name.push('-'),
        }
        before = letter;
    }
    let name = name.trim_matches('-');
    (is_dns_label(&name.replace('*', "x")) && name != text).then(|| name.to_owned())
}

impl fmt::Display for NamespacePattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NamespacePattern {
        text.parse().unwrap()
    }

    #[test]
    fn a_star_stands_for_any_letters() {
        for (text, name, fits) in [
            ("project-a", "project-a", true),
            ("project-a", "project-ab", false),
            ("project*", "project", true),
            ("project*", "project-a", true),
            ("project*", "a-project", false),
            ("*-dev", "team-dev", true),
            ("*-dev", "team-dev-x", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*ab*ab*", "xaby", false),
            ("**", "x", true),
            ("*", "anything", true),
        ] {
            assert_eq!(pattern(text).matches(name, "tenure-system"), fits, "{text} {name}");
        }
        // The longest pattern, matched without backtracking.
        let stars = "*a".repeat(31);
        assert!(!pattern(&stars).matches(&"a".repeat(30), "tenure-system"));
    }

    #[test]
    fn wildcards_never_match_platform_namespaces() {
        let platform = "gitops-of-ours";
        for name in [
            "kube-system",
            "kube-public",
            "cozy-system",
            "flux-system",
            "default",
            platform,
        ] {
            for text in ["*", "kube-*", "cozy-*", "*-system", "flux-*", "d*", "gitops*", "g*s"] {
                assert!(!pattern(text).matches(name, platform), "{text} {name}");
            }
            // A whole name is meant by its writer. Another rule decides whether the namespace may
            // be reached.
            assert!(pattern(name).matches(name, platform));
        }
        assert!(pattern("*").matches("cozystack-team", platform) && pattern("*").matches("tenure-system", platform));
    }

    /// The error stays short and repeats no control characters.
    #[test]
    fn invalid_pattern_gets_suggestion() {
        for (text, suggestion) in [
            ("projectA", Some("project-a")),
            ("Project_A", Some("project-a")),
            ("project.A*", Some("project-a*")),
            ("HTTPServer", Some("httpserver")),
            ("-a", Some("a")),
            ("", None),
            ("---", None),
            ("a?", Some("a")),
            ("[a-z]+", Some("a-z")),
            ("über", Some("ber")),
        ] {
            let error = text.parse::<NamespacePattern>().unwrap_err();
            assert_eq!(error.suggestion.as_deref(), suggestion, "{text}");
            assert!(error.to_string().contains("lower-case letters"));
        }
        for text in [
            "a".repeat(64),
            "*".repeat(64),
            "\u{202e}a".to_owned(),
            "A".repeat(1_000_000),
        ] {
            let error = text.parse::<NamespacePattern>().unwrap_err().to_string();
            assert!(error.len() < 600 && !error.contains('\u{202e}'), "{error}");
        }
    }

    #[test]
    fn a_pattern_covers_itself_and_names() {
        let covers = |one: &str, other: &str| pattern(one).covers(&pattern(other), "tenure-system");
        assert!(covers("team-*", "team-*") && covers("team-*", "team-a") && covers("kube-system", "kube-system"));
        assert!(!covers("team-a", "team-*") && !covers("*", "kube-system") && !covers("t*", "team-*"));
    }
}
