//! Ranges of versions as Masterminds/semver v3 reads them: `>=1.2.0 <2.0.0`, `~1.2`, `^1`, `1.x`, `1.2 - 1.4`, `||`. The `semver` crate
//! gives another meaning to the same signs: there, `1.2.3` means `^1.2.3`. An alternative without a pre-release in its conditions never
//! matches a pre-release.

use std::fmt;
use std::str::FromStr;

use semver::{Prerelease, Version};

/// Alternatives, each a list of conditions that must all hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    text: String,
    alternatives: Vec<Vec<Condition>>,
}

/// A text that is not a range of versions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} in {text:?} is not a version condition such as >=1.2.0, ~1.2, ^1, 1.x or 1.2 - 1.4")]
pub struct InvalidRange {
    text: String,
    part: String,
}

/// The operator before a version in a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    TildeOrEqual,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Tilde,
    Caret,
}

/// A condition of a range: an operator and a version. `minor_open` and `patch_open` mark parts that match any number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    operator: Operator,
    version: Version,
    /// Some part was left out or written as `x`.
    partial: bool,
    minor_open: bool,
    patch_open: bool,
}

impl Range {
    /// Returns whether the version lies in the range.
    #[must_use]
    pub fn matches(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|conditions| {
            let asked = conditions.iter().any(|condition| !condition.version.pre.is_empty());
            (asked || version.pre.is_empty()) && conditions.iter().all(|condition| condition.matches(version))
        })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Range {
    type Err = InvalidRange;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |part: &str| InvalidRange {
            text: text.to_owned(),
            part: part.to_owned(),
        };
        if text.len() > 256 {
            return Err(invalid("(more than 256 bytes)"));
        }
        let mut alternatives = Vec::new();
        for alternative in text.split("||") {
            let mut conditions = Vec::new();
            if alternative.contains(',') && alternative.split(',').any(|part| part.trim().is_empty()) {
                return Err(invalid(alternative));
            }
            let words = split_words(alternative);
            let mut words = words.iter().map(String::as_str).peekable();
            while let Some(word) = words.next() {
                if words.peek() == Some(&"-") {
                    words.next();
                    let end = words.next().ok_or_else(|| invalid(word))?;
                    conditions.push(parse_condition(&format!(">={word}")).ok_or_else(|| invalid(word))?);
                    conditions.push(parse_condition(&format!("<={end}")).ok_or_else(|| invalid(end))?);
                } else {
                    conditions.push(parse_condition(word).ok_or_else(|| invalid(word))?);
                }
            }
            if conditions.is_empty() {
                return Err(invalid(alternative));
            }
            alternatives.push(conditions);
        }
        Ok(Self {
            text: text.to_owned(),
            alternatives,
        })
    }
}

/// Splits at commas and spaces, and joins an operator with the version that a space separates from it.
fn split_words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text
        .split(|c: char| c == ',' || c.is_whitespace())
        .filter(|word| !word.is_empty())
    {
        match words.last_mut() {
            Some(last) if last.chars().all(|c| "=!<>~^".contains(c)) => last.push_str(word),
            _ => words.push(word.to_owned()),
        }
    }
    words
}

fn parse_condition(word: &str) -> Option<Condition> {
    let end = word.find(|c: char| !"=!<>~^".contains(c))?;
    let (operator, version) = word.split_at(end);
    let operator = match operator {
        "" | "=" => Operator::TildeOrEqual,
        "!=" => Operator::NotEqual,
        ">" => Operator::Greater,
        "<" => Operator::Less,
        ">=" | "=>" => Operator::GreaterOrEqual,
        "<=" | "=<" => Operator::LessOrEqual,
        "~" | "~>" => Operator::Tilde,
        "^" => Operator::Caret,
        _ => return None,
    };
    let version = version.strip_prefix('v').unwrap_or(version);
    let (version, _build) = version.split_once('+').unwrap_or((version, ""));
    let (numbers, prerelease) = version.split_once('-').unwrap_or((version, ""));
    if version.ends_with('-') {
        return None;
    }
    let mut parts = numbers.split('.');
    let mut next = || match parts.next() {
        None | Some("x" | "X" | "*") => Some(None),
        Some(part) if part.bytes().all(|b| b.is_ascii_digit()) => part.parse::<u64>().ok().map(Some),
        Some(_) => None,
    };
    let (major, minor, patch) = (next()?, next()?, next()?);
    if parts.next().is_some() || numbers.is_empty() {
        return None;
    }
    // A part behind an open part is also open: 1.x.3 is 1.x.
    let minor = major.and(minor);
    let patch = minor.and(patch);
    let mut version = Version::new(major.unwrap_or(0), minor.unwrap_or(0), patch.unwrap_or(0));
    version.pre = Prerelease::new(prerelease).ok()?;
    Some(Condition {
        operator,
        version,
        partial: patch.is_none(),
        minor_open: major.is_some() && minor.is_none(),
        patch_open: minor.is_some() && patch.is_none(),
    })
}

impl Condition {
    fn matches(&self, version: &Version) -> bool {
        let own = &self.version;
        let order = version.cmp_precedence(own);
        match self.operator {
            Operator::TildeOrEqual if self.partial => self.matches_tilde(version),
            Operator::TildeOrEqual => order.is_eq(),
            Operator::Tilde => self.matches_tilde(version),
            Operator::Caret => self.matches_caret(version),
            Operator::GreaterOrEqual => order.is_ge(),
            Operator::Less => order.is_lt(),
            Operator::NotEqual if self.minor_open || self.patch_open => {
                version.major != own.major
                    || (version.minor != own.minor && !self.minor_open)
                    || (!self.minor_open && version.patch != own.patch && !self.patch_open)
            }
            Operator::NotEqual => order.is_ne(),
            Operator::Greater if !self.minor_open && !self.patch_open => order.is_gt(),
            // >11 is greater than every 11.x, >11.1 than every 11.1.x.
            Operator::Greater => {
                version.major > own.major
                    || (version.major == own.major && self.patch_open && version.minor > own.minor)
            }
            Operator::LessOrEqual if !self.partial => order.is_le(),
            Operator::LessOrEqual => {
                version.major < own.major
                    || (version.major == own.major && (version.minor <= own.minor || self.minor_open))
            }
        }
    }

    fn matches_tilde(&self, version: &Version) -> bool {
        let own = &self.version;
        let any = (own.major, own.minor, own.patch) == (0, 0, 0) && !self.minor_open && !self.patch_open;
        if version.cmp_precedence(own).is_lt() {
            return false;
        }
        // Masterminds: ~0.0.0 and * are >=0.0.0.
        any || (version.major == own.major && (version.minor == own.minor || self.minor_open))
    }

    fn matches_caret(&self, version: &Version) -> bool {
        let own = &self.version;
        if version.cmp_precedence(own).is_lt() {
            return false;
        }
        if own.major > 0 || self.minor_open {
            return version.major == own.major;
        }
        if version.major > 0 {
            return false;
        }
        if own.minor > 0 || self.patch_open {
            return version.minor == own.minor;
        }
        version.minor == 0 && version.patch == own.patch
    }
}
