//! Regular expressions of Go's `regexp`. [`translate`] rewrites a pattern so that the `regex` crate matches the same texts as Go; that
//! crate also runs in linear time.
//!
//! Errors have the same conditions and messages as in Go. The caller limits the size of the compiled pattern.

mod class;

use std::collections::HashSet;
use std::fmt;

/// The maximum number of repetitions in Go.
const MOST_REPETITIONS: u32 = 1000;

/// The kind of error in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// `[z-a]`, or a class with an unknown name.
    CharacterRange,
    /// `\y`.
    Escape,
    /// `(?P<a-b>x)`.
    NamedCapture,
    /// `(?=x)`.
    PerlSyntax,
    /// `a**`.
    NestedRepetition,
    /// `*a`.
    NothingToRepeat,
    /// `a{1001}`.
    RepeatCount,
    /// `[a`.
    MissingBracket,
    /// `(a`.
    MissingParenthesis,
    /// `a)`.
    UnexpectedParenthesis,
    /// `a\`.
    TrailingBackslash,
}

impl Problem {
    fn words(self) -> &'static str {
        match self {
            Self::CharacterRange => "invalid character class range",
            Self::Escape => "invalid escape sequence",
            Self::NamedCapture => "invalid named capture",
            Self::PerlSyntax => "invalid or unsupported Perl syntax",
            Self::NestedRepetition => "invalid nested repetition operator",
            Self::NothingToRepeat => "missing argument to repetition operator",
            Self::RepeatCount => "invalid repeat count",
            Self::MissingBracket => "missing closing ]",
            Self::MissingParenthesis => "missing closing )",
            Self::UnexpectedParenthesis => "unexpected )",
            Self::TrailingBackslash => "trailing backslash at end of expression",
        }
    }
}

/// The reason for which Go can't read a pattern. Its printed form is the text after `error parsing regexp: ` in Go's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    problem: Problem,
    part: String,
}

impl PatternError {
    fn new(problem: Problem, part: &str) -> Self {
        Self {
            problem,
            part: part.to_owned(),
        }
    }

    /// Returns the kind of error.
    #[must_use]
    pub fn problem(&self) -> Problem {
        self.problem
    }

    /// Returns the part of the pattern that Go shows.
    #[must_use]
    pub fn part(&self) -> &str {
        &self.part
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: `{}`", self.problem.words(), self.part)
    }
}

impl std::error::Error for PatternError {}

/// Rewrites a Go pattern for the `regex` crate: `\d`, `\w`, `\s` and `\b` mean ASCII, a class contains exactly its written members, and
/// braces that repeat nothing are text.
///
/// # Errors
/// If Go can't read the pattern. The `regex` crate checks the names of Unicode classes, because it knows the same classes as Go.
pub fn translate(pattern: &str) -> Result<String, PatternError> {
    let mut translator = Translator {
        pattern,
        into: String::with_capacity(pattern.len() + 8),
        groups: Vec::new(),
        names: HashSet::new(),
        // Looked for once, since a pattern may have many brackets.
        last_name: pattern.rfind(":]").map_or(0, |at| pattern.len() - at),
        here: Group::default(),
    };
    translator.translate()?;
    Ok(translator.into)
}

/// The content of a group that has been read so far.
#[derive(Default)]
struct Group {
    /// The maximum count of repetitions for the last item, multiplied with the repetitions inside it. `None` if no item can be repeated.
    last: Option<u32>,
    /// The greatest such count of the previous items.
    most: u32,
}

impl Group {
    /// Adds an item that can be repeated. `times` is the number of repetitions inside it.
    fn push(&mut self, times: u32) {
        self.most = self.most.max(self.last.unwrap_or(0));
        self.last = Some(times);
    }

    fn end_alternative(&mut self) {
        self.most = self.most.max(self.last.take().unwrap_or(0));
    }
}

/// The state of the translation of one pattern.
struct Translator<'text> {
    pattern: &'text str,
    into: String,
    groups: Vec<Group>,
    names: HashSet<&'text str>,
    /// The distance in bytes from the end of the pattern to the end of the last class name; zero without such a name.
    last_name: usize,
    here: Group,
}

impl<'text> Translator<'text> {
    fn translate(&mut self) -> Result<(), PatternError> {
        let mut rest = self.pattern;
        // The text that begins with the last repetition operator.
        let mut repeated: Option<&str> = None;
        while let Some(first) = rest.chars().next() {
            let tail = skip_letter(rest, first);
            let before = rest;
            let mut repeats = false;
            match first {
                '\\' => rest = self.translate_escape(rest)?,
                '[' => {
                    rest = class::translate_brackets(rest, self.last_name, &mut self.into)?;
                    self.here.push(0);
                }
                '(' => rest = self.open_group(rest)?,
                ')' => {
                    self.close_group()?;
                    rest = tail;
                }
                '|' => {
                    self.into.push('|');
                    self.here.end_alternative();
                    rest = tail;
                }
                '*' | '+' | '?' => {
                    rest = self.write_repetition(before, tail, None, repeated)?;
                    repeats = true;
                }
                '{' => match read_counts(tail) {
                    Some((counts, after)) => {
                        rest = self.write_repetition(before, after, Some(counts), repeated)?;
                        repeats = true;
                    }
                    None => {
                        self.write_literal('{');
                        rest = tail;
                    }
                },
                '.' | '^' | '$' => {
                    self.into.push(first);
                    self.here.push(0);
                    rest = tail;
                }
                letter => {
                    self.write_literal(letter);
                    rest = tail;
                }
            }
            repeated = repeats.then_some(before);
        }
        if self.groups.is_empty() {
            Ok(())
        } else {
            Err(PatternError::new(Problem::MissingParenthesis, self.pattern))
        }
    }

    fn write_literal(&mut self, letter: char) {
        push_letter(letter, &mut self.into);
        self.here.push(0);
    }

    /// Writes a repetition of the last item. `after` begins behind the operator. `repeated` begins with the previous repetition operator.
    fn write_repetition(
        &mut self,
        before: &'text str,
        after: &'text str,
        counts: Option<Counts>,
        repeated: Option<&str>,
    ) -> Result<&'text str, PatternError> {
        let shown = |from: &str, after: &str, problem| {
            let end = from.len() - after.len();
            Err(PatternError::new(problem, from.get(..end).unwrap_or(from)))
        };
        if let Some(counts) = counts
            && !counts.is_possible()
        {
            return shown(before, after, Problem::RepeatCount);
        }
        let (is_lazy, end) = after.strip_prefix('?').map_or((false, after), |end| (true, end));
        if let Some(repeated) = repeated {
            return shown(repeated, end, Problem::NestedRepetition);
        }
        let Some(last) = self.here.last else {
            return shown(before, end, Problem::NothingToRepeat);
        };
        if let Some(counts) = counts {
            let times = counts.most.unwrap_or(counts.least);
            let all = if times == 0 {
                0
            } else {
                times.saturating_mul(last.max(1))
            };
            if (counts.least >= 2 || counts.most.is_some_and(|most| most >= 2)) && all > MOST_REPETITIONS {
                return shown(before, end, Problem::RepeatCount);
            }
            self.here.last = Some(all);
        }
        let operator = before.len() - after.len();
        self.into.push_str(before.get(..operator).unwrap_or(""));
        if is_lazy {
            self.into.push('?');
        }
        Ok(end)
    }

    /// Reads an item that begins with a parenthesis: a group, or flags.
    fn open_group(&mut self, rest: &'text str) -> Result<&'text str, PatternError> {
        let Some(inside) = rest.strip_prefix("(?") else {
            self.into.push('(');
            self.begin_group();
            return Ok(skip_letter(rest, '('));
        };
        if let Some(named) = inside.strip_prefix("P<").or_else(|| inside.strip_prefix('<')) {
            return self.open_named_group(rest, named);
        }
        let (mut is_negative, mut has_flag) = (false, false);
        for (at, letter) in inside.char_indices() {
            let through = inside.get(..at + letter.len_utf8()).unwrap_or(inside);
            let after = inside.get(through.len()..).unwrap_or("");
            match letter {
                'i' | 'm' | 's' | 'U' => has_flag = true,
                '-' if !is_negative => (is_negative, has_flag) = (true, false),
                ':' | ')' if !is_negative || has_flag => {
                    // Empty flags apply to no group.
                    if through != ")" {
                        self.into.push_str("(?");
                        self.into.push_str(through);
                    }
                    if letter == ':' {
                        self.begin_group();
                    }
                    return Ok(after);
                }
                _ => {
                    let end = rest.len() - after.len();
                    return Err(PatternError::new(Problem::PerlSyntax, rest.get(..end).unwrap_or(rest)));
                }
            }
        }
        Err(PatternError::new(Problem::PerlSyntax, rest))
    }

    fn open_named_group(&mut self, rest: &'text str, named: &'text str) -> Result<&'text str, PatternError> {
        let Some((name, after)) = named.split_once('>') else {
            return Err(PatternError::new(Problem::NamedCapture, rest));
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            let end = rest.len() - after.len();
            return Err(PatternError::new(
                Problem::NamedCapture,
                rest.get(..end).unwrap_or(rest),
            ));
        }
        if name.starts_with(|first: char| first.is_ascii_digit()) || self.names.contains(name) {
            // The `regex` crate does not accept this name, or not twice. The group's number stays equal.
            self.into.push('(');
        } else {
            self.into.push_str("(?P<");
            self.into.push_str(name);
            self.into.push('>');
            self.names.insert(name);
        }
        self.begin_group();
        Ok(after)
    }

    fn begin_group(&mut self) {
        self.groups.push(std::mem::take(&mut self.here));
    }

    fn close_group(&mut self) -> Result<(), PatternError> {
        let Some(outside) = self.groups.pop() else {
            return Err(PatternError::new(Problem::UnexpectedParenthesis, self.pattern));
        };
        let mut inside = std::mem::replace(&mut self.here, outside);
        inside.end_alternative();
        self.here.push(inside.most);
        self.into.push(')');
        Ok(())
    }

    /// Reads an escape outside of a class.
    fn translate_escape(&mut self, rest: &'text str) -> Result<&'text str, PatternError> {
        let tail = skip_letter(rest, '\\');
        let Some(letter) = tail.chars().next() else {
            return Err(PatternError::new(Problem::TrailingBackslash, ""));
        };
        let after = skip_letter(tail, letter);
        match letter {
            'A' | 'z' => {
                self.into.push('\\');
                self.into.push(letter);
            }
            'b' => self.into.push_str("(?-u:\\b)"),
            'B' => self.into.push_str("(?-u:\\B)"),
            'Q' => {
                let (quoted, after) = after.split_once("\\E").unwrap_or((after, ""));
                quoted.chars().for_each(|letter| self.write_literal(letter));
                return Ok(after);
            }
            _ => {
                if let Some(after) = class::translate_escaped(rest, false, &mut self.into)? {
                    self.here.push(0);
                    return Ok(after);
                }
                let (letter, after) = read_escaped_letter(rest)?;
                self.write_literal(letter);
                return Ok(after);
            }
        }
        self.here.push(0);
        Ok(after)
    }
}

/// The minimum and maximum number of repetitions.
#[derive(Clone, Copy)]
struct Counts {
    least: u32,
    most: Option<u32>,
}

impl Counts {
    fn is_possible(self) -> bool {
        self.least <= MOST_REPETITIONS
            && self
                .most
                .is_none_or(|most| most <= MOST_REPETITIONS && most >= self.least)
    }
}

/// Reads the counts behind an opening brace, `2`, `2,` or `2,3`, and returns them with the text behind the brace. `None` if the text has no
/// counts.
fn read_counts(tail: &str) -> Option<(Counts, &str)> {
    let (least, rest) = read_number(tail)?;
    if let Some(after) = rest.strip_prefix('}') {
        let most = Some(least);
        return Some((Counts { least, most }, after));
    }
    let rest = rest.strip_prefix(',')?;
    let (most, rest) = match read_number(rest) {
        Some((most, rest)) => (Some(most), rest),
        None => (None, rest),
    };
    Some((Counts { least, most }, rest.strip_prefix('}')?))
}

/// Reads a number without leading zeros and returns it with the rest of the text. A number that is too large becomes `u32::MAX`, which is
/// above every limit.
fn read_number(text: &str) -> Option<(u32, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let is_padded = digits > 1 && number.starts_with('0');
    (digits > 0 && !is_padded).then(|| (number.parse().unwrap_or(u32::MAX), rest))
}

/// Reads the letter of an escape and returns it with the rest of the text. `rest` begins with the backslash.
fn read_escaped_letter(rest: &str) -> Result<(char, &str), PatternError> {
    let tail = skip_letter(rest, '\\');
    let Some(letter) = tail.chars().next() else {
        return Err(PatternError::new(Problem::TrailingBackslash, ""));
    };
    let after = skip_letter(tail, letter);
    let invalid = |after: &str| {
        let end = rest.len() - after.len();
        PatternError::new(Problem::Escape, rest.get(..end).unwrap_or(rest))
    };
    let meant = match letter {
        'a' => '\u{7}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        'x' => return read_hexadecimal(after).map_err(invalid),
        '0'..='7' => {
            let digits = tail
                .bytes()
                .take(3)
                .take_while(|byte| matches!(byte, b'0'..=b'7'))
                .count();
            // A single digit but zero would refer to a group.
            if digits == 1 && letter != '0' {
                return Err(invalid(after));
            }
            let (number, after) = tail.split_at(digits);
            let meant = u32::from_str_radix(number, 8).ok().and_then(char::from_u32);
            return meant.map(|meant| (meant, after)).ok_or_else(|| invalid(after));
        }
        sign if sign.is_ascii() && !sign.is_ascii_alphanumeric() => sign,
        _ => return Err(invalid(after)),
    };
    Ok((meant, after))
}

/// Reads the number of a letter behind `\x`: two digits, or any number of digits in braces. The error contains the text that Go has not
/// read at that point.
fn read_hexadecimal(text: &str) -> Result<(char, &str), &str> {
    let mut rest = text;
    let mut next = || {
        let letter = rest.chars().next();
        rest = letter.map_or(rest, |letter| skip_letter(rest, letter));
        (letter, rest)
    };
    let (first, mut after) = next();
    if first != Some('{') {
        let (second, after) = if first.is_some() { next() } else { (None, after) };
        let digit = |letter: Option<char>| letter.and_then(|letter| letter.to_digit(16));
        return digit(first)
            .zip(digit(second))
            .and_then(|(first, second)| char::from_u32(first * 16 + second))
            .map(|meant| (meant, after))
            .ok_or(after);
    }
    let mut number: Option<u32> = None;
    loop {
        let (letter, behind) = next();
        after = behind;
        if letter == Some('}') {
            let meant = number.and_then(char::from_u32);
            return meant.map(|meant| (meant, after)).ok_or(after);
        }
        let digit = letter.and_then(|letter| letter.to_digit(16)).ok_or(after)?;
        number = Some(number.unwrap_or(0) * 16 + digit);
        if number > Some(u32::from(char::MAX)) {
            return Err(after);
        }
    }
}

/// Appends a letter as a literal.
fn push_letter(letter: char, into: &mut String) {
    if "\\.+*?()|[]{}^$#&-~".contains(letter) {
        into.push('\\');
    }
    into.push(letter);
}

/// Returns the text after its first letter.
fn skip_letter(text: &str, first: char) -> &str {
    text.get(first.len_utf8()..).unwrap_or("")
}
