//! Substitution of variables in texts as Flux's `pkg/envsubst` does it, a part of shell syntax: `${name}`, `${name:=default}`,
//! `${name/old/new}` and so on. A missing variable is an error unless the expression has a default.
//!
//! `${name:?text}` and `${name:+text}` are not implemented: Flux documents them as unsupported and reads them as defaults. Values are
//! bytes, because a part of a text may be invalid UTF-8. One pass evaluates each expression once. Each step asks [`Scope::spend`] before it
//! makes or does anything.

mod functions;
mod glob;
mod letters;

use std::fmt;

use functions::Function;

/// The maximum nesting of expressions.
const MAXIMUM_DEPTH: usize = 64;

/// The variables and the allowance of a substitution.
pub trait Scope<'value> {
    /// Returns the value of a variable; `None` if the variable does not exist.
    fn find(&mut self, name: &str) -> Option<&'value [u8]>;

    /// Spends bytes, and steps of some nanoseconds each, of the allowance. Returns false if the allowance is exhausted.
    fn spend(&mut self, bytes: usize, steps: usize) -> bool;
}

/// The kind of error in a text with expressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// An expression is not written as one.
    Substitution,
    /// `}` is missing where nothing else can be.
    ClosingBrace,
    /// There is no name after `${`.
    Name,
    /// A part of an expression is empty or has no end.
    Argument,
    /// `:?` or `:+`.
    Unsupported,
    /// The variable is not set.
    NotSet,
    /// Expressions are nested too deeply.
    Depth,
    /// The allowance of the scope is exhausted.
    Spent,
}

/// The reason and the place of a failed substitution. The printed form has Flux's words if Flux has this error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubstitutionError {
    problem: Problem,
    name: String,
    at: usize,
}

impl SubstitutionError {
    /// Returns the kind of error.
    #[must_use]
    pub fn problem(&self) -> Problem {
        self.problem
    }

    /// Returns the variable of the expression; empty if it has no name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of bytes of the text that had been read at the error.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }
}

impl fmt::Display for SubstitutionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problem {
            Problem::Substitution => formatter.write_str("bad substitution"),
            Problem::ClosingBrace => formatter.write_str("missing closing brace"),
            Problem::Name => formatter.write_str("unable to parse variable name"),
            Problem::Argument => formatter.write_str("unable to parse substitution within function"),
            Problem::Unsupported => formatter.write_str("`:?` and `:+` are not supported"),
            Problem::NotSet => {
                let name = crate::quote::quote(&self.name);
                write!(formatter, "variable not set (strict mode): {name}")
            }
            Problem::Depth => write!(formatter, "more than {MAXIMUM_DEPTH} substitutions stand in each other"),
            Problem::Spent => formatter.write_str("it makes or does more than is allowed"),
        }
    }
}

impl std::error::Error for SubstitutionError {}

/// Returns the text with all expressions replaced by their values. The result is bytes, which may be invalid UTF-8.
///
/// ```
/// use go_words::substitution::{Scope, substitute};
///
/// struct Colour;
///
/// impl<'value> Scope<'value> for Colour {
///     fn find(&mut self, name: &str) -> Option<&'value [u8]> {
///         (name == "colour").then_some(b"teal")
///     }
///
///     fn spend(&mut self, _bytes: usize, _steps: usize) -> bool {
///         true
///     }
/// }
///
/// let text = "${colour^} $${colour} ${size:=large} ${colour/e/i}";
/// assert_eq!(substitute(text, &mut Colour)?, b"Teal ${colour} large tial");
/// # Ok::<(), go_words::substitution::SubstitutionError>(())
/// ```
///
/// # Errors
/// For the first malformed expression. Without such an expression, for the first missing variable.
pub fn substitute<'value>(text: &str, scope: &mut dyn Scope<'value>) -> Result<Vec<u8>, SubstitutionError> {
    // Go's reader takes this character for the end.
    let text = text.split('\0').next().unwrap_or_default();
    let mut reader = Reader {
        text,
        at: 0,
        depth: 0,
        name: String::new(),
        missing: None,
        scope,
    };
    let made = reader.read_template()?;
    match reader.missing {
        None => Ok(made),
        Some(missing) => Err(missing),
    }
}

/// Reads a text from left to right and evaluates each expression as soon as it is read.
struct Reader<'text, 'scope, 'value> {
    text: &'text str,
    at: usize,
    depth: usize,
    /// The variable of the expression that is read.
    name: String,
    /// The first missing variable. It is reported if all expressions are well-formed.
    missing: Option<SubstitutionError>,
    scope: &'scope mut dyn Scope<'value>,
}

/// Returns the character that the next two characters stand for, if the first one is an escape.
fn find_escaped(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [b'$', b'$', ..] => Some(b'$'),
        [b'\\', escaped @ (b'/' | b'\\'), ..] => Some(*escaped),
        _ => None,
    }
}

/// The bytes that a part of a text gives, or the first error.
type Made = Result<Vec<u8>, SubstitutionError>;

impl<'text> Reader<'text, '_, '_> {
    fn rest(&self) -> &'text str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Skips a text if it comes next.
    fn skip_text(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        if is_next {
            self.at += text.len();
        }
        is_next
    }

    fn fail(&self, problem: Problem) -> SubstitutionError {
        SubstitutionError {
            problem,
            name: self.name.clone(),
            at: self.at,
        }
    }

    /// Spends bytes of the allowance before they are made. Fails if it is exhausted.
    fn spend(&mut self, bytes: usize) -> Result<(), SubstitutionError> {
        if self.scope.spend(bytes, 1 + bytes / 16) {
            Ok(())
        } else {
            Err(self.fail(Problem::Spent))
        }
    }

    fn append(&mut self, made: &mut Vec<u8>, part: &[u8]) -> Result<(), SubstitutionError> {
        self.spend(part.len())?;
        made.extend_from_slice(part);
        Ok(())
    }

    /// Reads the whole text.
    fn read_template(&mut self) -> Made {
        let mut made = Vec::new();
        loop {
            let rest = self.rest();
            let Some((before, _)) = rest.split_once('$') else {
                self.append(&mut made, rest.as_bytes())?;
                return Ok(made);
            };
            self.append(&mut made, before.as_bytes())?;
            self.at += before.len();
            if self.skip_text("${") {
                let value = self.read_expression()?;
                self.append(&mut made, &value)?;
            } else {
                // Two signs mean one; a single sign means itself.
                let _second = self.skip_text("$") && self.skip_text("$");
                self.append(&mut made, b"$")?;
            }
        }
    }

    /// Reads an expression behind `${`, up to its `}`.
    fn read_expression(&mut self) -> Made {
        if self.depth == MAXIMUM_DEPTH {
            return Err(self.fail(Problem::Depth));
        }
        self.depth += 1;
        let outer = std::mem::take(&mut self.name);
        let made = self.read_function()?;
        self.name = outer;
        self.depth -= 1;
        Ok(made)
    }

    fn read_function(&mut self) -> Made {
        if self.skip_text("#") {
            self.name = self.read_name();
            if self.name.is_empty() {
                return Err(self.fail(Problem::Substitution));
            }
            self.skip_brace()?;
            return self.evaluate(Function::Length);
        }
        self.name = self.read_name();
        if self.name.is_empty() {
            return Err(self.fail(Problem::Name));
        }
        match self.peek() {
            Some('}') => {
                self.skip_brace()?;
                self.evaluate(Function::Value)
            }
            Some(':') => self.read_default_or_substring(),
            Some('=') => {
                self.at += 1;
                self.read_default()
            }
            Some(',' | '^') => self.read_casing(),
            Some('/') => self.read_replacement(),
            Some('#') => self.read_removal("#"),
            Some('%') => self.read_removal("%"),
            _ => Err(self.fail(Problem::ClosingBrace)),
        }
    }

    /// Reads a name. The result is empty if no name begins here.
    fn read_name(&mut self) -> String {
        let rest = self.rest();
        let end = rest.find(|letter| !letters::is_of_name(letter));
        let name = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        self.at += name.len();
        name.to_owned()
    }

    fn skip_brace(&mut self) -> Result<(), SubstitutionError> {
        if self.skip_text("}") {
            Ok(())
        } else {
            Err(self.fail(Problem::Substitution))
        }
    }

    fn read_default_or_substring(&mut self) -> Made {
        if self.skip_text(":=") || self.skip_text(":-") {
            return self.read_default();
        }
        if self.skip_text(":?") || self.skip_text(":+") {
            return Err(self.fail(Problem::Unsupported));
        }
        self.at += 1;
        // Go's reader loses its place before a letter of several bytes.
        if !self.peek().is_some_and(|letter| letter.is_ascii()) {
            return Err(self.fail(Problem::Substitution));
        }
        let position = self.read_argument(&[':', '}'], false)?;
        if self.skip_text("}") {
            return self.evaluate(Function::Substring(position, None));
        }
        if !self.skip_text(":") {
            return Err(self.fail(Problem::Substitution));
        }
        while self.skip_text(":") {}
        let length = self.read_argument(&['}'], false)?;
        self.skip_brace()?;
        self.evaluate(Function::Substring(position, Some(length)))
    }

    /// Reads texts and expressions up to `}`.
    fn read_default(&mut self) -> Made {
        let mut default = Vec::new();
        while !self.skip_text("}") {
            let part = self.read_argument(&['}'], false)?;
            self.append(&mut default, &part)?;
        }
        self.evaluate(Function::Default(default))
    }

    fn read_casing(&mut self) -> Made {
        let rest = self.rest();
        let length = rest
            .chars()
            .take(2)
            .take_while(|letter| matches!(letter, ',' | '^'))
            .count();
        let function = match rest.get(..length).unwrap_or_default() {
            "^" => Function::UpperFirst,
            "^^" => Function::Upper,
            "," => Function::LowerFirst,
            ",," => Function::Lower,
            // Two contradicting functions are both ignored.
            _ => Function::Value,
        };
        self.at += length;
        self.skip_brace()?;
        self.evaluate(function)
    }

    fn read_removal(&mut self, operator: &str) -> Made {
        let _first = self.skip_text(operator);
        let is_longest = self.skip_text(operator);
        let pattern = self.read_argument(&['}'], false)?;
        self.skip_brace()?;
        self.evaluate(if operator == "#" {
            Function::TrimPrefix { pattern, is_longest }
        } else {
            Function::TrimSuffix { pattern, is_longest }
        })
    }

    fn read_replacement(&mut self) -> Made {
        self.at += 1;
        let kind = ['/', '#', '%']
            .into_iter()
            .find(|kind| self.skip_text(kind.encode_utf8(&mut [0; 4])));
        let old = self.read_argument(&['/'], true)?;
        if !self.skip_text("/") {
            return Err(self.fail(Problem::Substitution));
        }
        while self.skip_text("/") {}
        let new = if self.peek() == Some('}') {
            None
        } else {
            Some(self.read_argument(&['}'], true)?)
        };
        self.skip_brace()?;
        self.evaluate(match (kind, new) {
            (Some('/'), new) => Function::ReplaceAll(old, new.unwrap_or_default()),
            (Some('#'), Some(new)) => Function::ReplacePrefix(old, new),
            (Some('%'), Some(new)) => Function::ReplaceSuffix(old, new),
            // These functions change nothing unless the expression gives a replacement.
            (Some(_), None) => Function::Value,
            (_, new) => Function::ReplaceFirst(old, new.unwrap_or_default()),
        })
    }

    /// Reads a part of an expression: a nested expression, or text up to one, or text up to one of these characters.
    fn read_argument(&mut self, ends: &[char], has_escapes: bool) -> Made {
        if self.skip_text("${") {
            return self.read_expression();
        }
        let mut made = Vec::new();
        let start = self.at;
        while let Some(letter) = self.peek() {
            let rest = self.rest();
            if rest.starts_with("${") {
                break;
            }
            if let Some(escaped) = find_escaped(rest).filter(|_| has_escapes) {
                made.push(escaped);
                self.at += 2;
                continue;
            }
            if ends.contains(&letter) {
                break;
            }
            made.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            self.at += letter.len_utf8();
        }
        // Never more than was read.
        self.spend(made.len())?;
        if self.at == start {
            return Err(self.fail(Problem::Argument));
        }
        Ok(made)
    }

    fn evaluate(&mut self, function: Function) -> Made {
        let value = self.scope.find(&self.name);
        if value.is_none() && !matches!(function, Function::Default(_)) {
            let missing = self.fail(Problem::NotSet);
            self.missing.get_or_insert(missing);
        }
        let scope = &mut *self.scope;
        let mut spend = |bytes, steps| scope.spend(bytes, steps);
        match function.apply(value.unwrap_or_default(), &mut spend) {
            Some(made) => Ok(made),
            None => Err(self.fail(Problem::Spent)),
        }
    }
}

#[cfg(test)]
mod tests;
