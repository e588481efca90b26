//! `spec.pathPattern`: the folders that match, and the values of the pattern's names in the artifact of each folder.
//!
//! A pattern is matched part by part, as paths are: `{name}` stands for one or more characters of one part, as many as possible. The steps of all comparisons are
//! counted over all folders, so no pattern can burn time.

use std::collections::{BTreeMap, BTreeSet};

/// The most steps of all comparisons of folders with one pattern.
const STEPS: u64 = 1 << 26;
/// The most parts of a pattern, which are separated by slashes.
const MOST_PARTS: usize = 64;
/// The most `{names}` of a pattern.
const MOST_CAPTURES: usize = 16;

/// The parsed `spec.pathPattern` of an ArtifactGenerator, without its alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    parts: Vec<Vec<Token>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Text(String),
    Capture(String),
}

/// The values that a pattern's `{names}` have in a matching folder, by name.
pub(super) type Captures = BTreeMap<String, String>;

impl PathPattern {
    /// Reads a pattern, without the alias in front of it.
    ///
    /// # Errors
    /// The problem of the pattern.
    pub fn read(text: &str) -> Result<Self, String> {
        let parts: Vec<Vec<Token>> = text.split('/').map(read_tokens).collect::<Result<_, _>>()?;
        let mut names = BTreeSet::new();
        for name in parts.iter().flatten().filter_map(Token::name) {
            if !names.insert(name) {
                return Err(format!("has {{{name}}} twice"));
            }
        }
        if parts.len() > MOST_PARTS || names.len() > MOST_CAPTURES {
            return Err(format!("has more than {MOST_PARTS} parts or {MOST_CAPTURES} names"));
        }
        Ok(Self { parts })
    }

    /// Returns the values of the names for each of these folders that matches.
    ///
    /// # Errors
    /// The comparison would take too much work.
    pub fn find_matches<'a>(
        &self,
        folders: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<(String, Captures)>, &'static str> {
        let mut steps = STEPS;
        let mut found = Vec::new();
        for folder in folders {
            if let Some(captures) = self.match_folder(folder, &mut steps)? {
                found.push((folder.to_owned(), captures));
            }
        }
        Ok(found)
    }

    fn match_folder(&self, folder: &str, steps: &mut u64) -> Result<Option<Captures>, &'static str> {
        let mut captures = Captures::new();
        let mut names = folder.split('/');
        for tokens in &self.parts {
            let Some(name) = names.next() else { return Ok(None) };
            let text: Vec<char> = name.chars().collect();
            if !match_part(tokens, &text, &mut captures, steps)? {
                return Ok(None);
            }
        }
        Ok(names.next().is_none().then_some(captures))
    }
}

impl Token {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Capture(name) => Some(name),
            Self::Text(_) => None,
        }
    }
}

/// Matches one part: finds, from the end on, which text the rest of the tokens can match, then gives each name as much as possible.
fn match_part(tokens: &[Token], text: &[char], captures: &mut Captures, steps: &mut u64) -> Result<bool, &'static str> {
    let length = text.len();
    // For each token and each position: do the token and its successors match the text from there on?
    let mut rest: Vec<Vec<bool>> = vec![(0..=length).map(|at| at == length).collect()];
    for token in tokens.iter().rev() {
        *steps = steps.saturating_sub(length as u64 + 1);
        if *steps == 0 {
            return Err("it takes too much work for so many folders");
        }
        let behind = rest.last().cloned().unwrap_or_default();
        let matches_at = |at: usize| behind.get(at).copied().unwrap_or_default();
        rest.push(match token {
            Token::Text(word) => {
                let word: Vec<char> = word.chars().collect();
                *steps = steps.saturating_sub((word.len() * (length + 1)) as u64);
                let is_here = |at: usize| text.get(at..).is_some_and(|text| text.starts_with(&word));
                (0..=length)
                    .map(|at| is_here(at) && matches_at(at + word.len()))
                    .collect()
            }
            // At least one character.
            Token::Capture(_) => {
                let last = behind.iter().rposition(|matches| *matches);
                (0..=length).map(|at| last.is_some_and(|last| last > at)).collect()
            }
        });
    }
    rest.reverse();
    if !rest
        .first()
        .and_then(|places| places.first())
        .copied()
        .unwrap_or_default()
    {
        return Ok(false);
    }
    let mut at = 0;
    for (token, behind) in tokens.iter().zip(rest.iter().skip(1)) {
        match token {
            Token::Text(word) => at += word.chars().count(),
            Token::Capture(name) => {
                let end = behind.iter().rposition(|matches| *matches).unwrap_or(length);
                captures.insert(name.clone(), text.get(at..end).unwrap_or_default().iter().collect());
                at = end;
            }
        }
    }
    Ok(true)
}

/// Replaces each `{name}` in a text by its value.
///
/// # Errors
/// A name without a value, or a single brace.
pub(super) fn fill_template(template: &str, captures: &Captures) -> Result<String, String> {
    let mut filled = String::with_capacity(template.len());
    for token in read_tokens(template)? {
        match token {
            Token::Text(text) => filled.push_str(&text),
            Token::Capture(name) => match captures.get(&name) {
                Some(value) => filled.push_str(value),
                None => return Err(format!("{template:?} has {{{name}}}, which spec.pathPattern has not")),
            },
        }
    }
    Ok(filled)
}

fn read_tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, brace) = rest.split_at(at);
        if !before.is_empty() {
            tokens.push(Token::Text(before.to_owned()));
        }
        let named = brace.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let Some((name, behind)) = named else {
            return Err(format!("{text:?} has a brace without its other half"));
        };
        if !is_name(name) {
            return Err(format!(
                "{text:?} has {{{name}}}, which is no name: letters, digits and _, no digit in front"
            ));
        }
        tokens.push(Token::Capture(name.to_owned()));
        rest = behind;
    }
    if !rest.is_empty() {
        tokens.push(Token::Text(rest.to_owned()));
    }
    Ok(tokens)
}

/// Checks the form of a name, which also becomes the name of a label.
fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    // A label's name begins and ends with a letter or digit.
    first
        && name.len() <= 63
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.starts_with('_')
        && !name.ends_with('_')
}

#[cfg(test)]
mod tests {
    use super::{Captures, PathPattern, fill_template};

    fn find(pattern: &str, folder: &str) -> Option<Vec<(String, String)>> {
        let found = PathPattern::read(pattern)
            .ok()?
            .find_matches([folder].into_iter())
            .ok()?;
        found
            .into_iter()
            .next()
            .map(|(_, captures)| captures.into_iter().collect())
    }

    #[test]
    fn pattern_names_match_greedily() {
        let check = |pattern, folder, expected: Option<&[(&str, &str)]>| {
            let expected = expected.map(|all| {
                all.iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect()
            });
            assert_eq!(find(pattern, folder), expected, "{pattern} on {folder}");
        };
        check(
            "apps/{app}/envs/{env}",
            "apps/web/envs/prod",
            Some(&[("app", "web"), ("env", "prod")]),
        );
        check("apps/{app}/envs/{env}", "apps/web/envs", None);
        check("apps/{app}", "apps/web/envs", None);
        check("apps/{app}", "apps", None);
        check("{a}-{b}", "x-y-z", Some(&[("a", "x-y"), ("b", "z")]));
        check("{a}{b}", "xyz", Some(&[("a", "xy"), ("b", "z")]));
        check("{a}{b}", "x", None);
        check("v{major}", "v", None);
        check("a.b", "axb", None);
    }

    #[test]
    fn invalid_path_pattern_is_refused() {
        for pattern in ["{", "}", "{}", "{a", "a}", "{1a}", "{a-b}", "{a}/{a}", "{_a}"] {
            assert!(PathPattern::read(pattern).is_err(), "{pattern}");
        }
        let captures = Captures::from([("app".to_owned(), "web".to_owned())]);
        assert_eq!(fill_template("{app}-x", &captures).as_deref(), Ok("web-x"));
        assert!(fill_template("{other}", &captures).is_err());
    }

    #[test]
    fn a_pattern_that_takes_long_is_refused() {
        let pattern = PathPattern::read("{a}b{c}d{e}f{g}h{i}j{k}l").unwrap_or(PathPattern { parts: Vec::new() });
        let folder = "a".repeat(1000);
        let many = std::iter::repeat_n(folder.as_str(), 100_000);
        assert!(pattern.find_matches(many).is_err());
        // The control: the same folders are no trouble for an easy one.
        let easy = PathPattern::read("x").unwrap_or(PathPattern { parts: Vec::new() });
        let many = std::iter::repeat_n(folder.as_str(), 10_000);
        assert_eq!(easy.find_matches(many), Ok(Vec::new()));
    }
}
