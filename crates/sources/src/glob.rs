//! Patterns of paths, in the two notations of Flux's ArtifactGenerator: Go's `path.Match` for single parts, and "doublestar" for whole paths, with `**` and `{a,b}`.
//!
//! A pattern becomes an automaton whose states are all followed at once. So the time of a match is bounded by the size of the pattern and the path. The steps are
//! counted, so a list of patterns can't use up time over many files.

use std::cell::Cell;

/// Steps for all patterns and files of one artifact.
const STEPS: u64 = 1 << 27;
/// States of one pattern.
const MOST_STATES: usize = 16 << 10;
/// Braces within braces.
const MOST_DEPTH: usize = 16;

/// The number of matching steps that are left for all patterns of one artifact.
#[derive(Debug)]
pub(crate) struct Steps(Cell<u64>);

impl Steps {
    pub(crate) fn new() -> Self {
        Self(Cell::new(STEPS))
    }

    /// Creates a small number of steps, for a test that uses them up.
    #[cfg(test)]
    pub(crate) fn with_count(steps: u64) -> Self {
        Self(Cell::new(steps))
    }

    /// Takes some steps, or fails if too few are left.
    pub(crate) fn take_steps(&self, steps: usize) -> Result<(), TooMuchWork> {
        let left = self.0.get().saturating_sub(steps as u64);
        self.0.set(left);
        if left == 0 { Err(TooMuchWork) } else { Ok(()) }
    }
}

/// The error when matching the patterns takes more steps than one artifact may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMuchWork;

/// A pattern of paths, compiled to an automaton.
#[derive(Debug)]
pub(crate) struct Glob {
    states: Vec<State>,
    start: usize,
}

/// A state of the automaton of a pattern.
#[derive(Debug, Clone)]
enum State {
    /// Matches one character, then continues with another state.
    One(Matcher, usize),
    /// Continues with either state, without a character.
    Either(usize, usize),
    Accept,
}

/// The characters that a state accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Matcher {
    Character(char),
    /// Anything but a slash.
    InPart,
    Anything,
    /// A character in one of these ranges, or in none of them if negated; never a slash.
    Class(Vec<(char, char)>, bool),
}

impl Matcher {
    fn matches(&self, character: char) -> bool {
        match self {
            Self::Character(own) => *own == character,
            Self::InPart => character != '/',
            Self::Anything => true,
            Self::Class(ranges, is_negated) => {
                let found = ranges.iter().any(|(low, high)| (*low..=*high).contains(&character));
                character != '/' && found != *is_negated
            }
        }
    }
}

/// A parsed piece of a pattern, such as a character, `*` or `**/`.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    One(Matcher),
    /// Any number of characters of a part.
    Star,
    /// Any number of parts, with their slashes: `**/`.
    Parts,
    /// Nothing, or a slash and anything: `/**` at the end.
    Below,
    /// Anything at all: `**` alone.
    All,
    Alternatives(Vec<Vec<Piece>>),
}

/// Checks whether a text is a pattern: has `*`, `?` or a bracket.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', ']'])
}

impl Glob {
    /// Reads a pattern for one part of a path, as `path.Match` does.
    pub(crate) fn for_part(pattern: &str) -> Result<Self, String> {
        Self::read(pattern, false)
    }

    /// Reads a pattern for a whole path, as doublestar does.
    pub(crate) fn for_path(pattern: &str) -> Result<Self, String> {
        Self::read(pattern, true)
    }

    fn read(pattern: &str, is_path: bool) -> Result<Self, String> {
        let mut reader = Reader {
            characters: pattern.chars().collect(),
            at: 0,
            is_path,
        };
        let pieces = reader
            .read(0)
            .map_err(|problem| format!("syntax error in pattern {pattern:?}: {problem}"))?;
        let mut glob = Self {
            states: vec![State::Accept],
            start: 0,
        };
        glob.start = glob.compile_pieces(&pieces, 0)?;
        Ok(glob)
    }

    fn add_state(&mut self, state: State) -> Result<usize, String> {
        if self.states.len() >= MOST_STATES {
            return Err("a pattern is too large".to_owned());
        }
        self.states.push(state);
        Ok(self.states.len() - 1)
    }

    /// Makes the states of pieces that lead to `next`. Returns the first state.
    fn compile_pieces(&mut self, pieces: &[Piece], next: usize) -> Result<usize, String> {
        let mut next = next;
        for piece in pieces.iter().rev() {
            next = match piece {
                Piece::One(matcher) => self.add_state(State::One(matcher.clone(), next))?,
                Piece::Star => self.add_repetition(&Matcher::InPart, next)?,
                Piece::All => self.add_repetition(&Matcher::Anything, next)?,
                Piece::Below => {
                    let anything = self.add_repetition(&Matcher::Anything, next)?;
                    let slash = self.add_state(State::One(Matcher::Character('/'), anything))?;
                    self.add_state(State::Either(slash, next))?
                }
                Piece::Parts => {
                    // Either nothing, or any text that ends with a slash.
                    let slash = self.add_state(State::One(Matcher::Character('/'), next))?;
                    let anything = self.add_repetition(&Matcher::Anything, slash)?;
                    self.add_state(State::Either(anything, next))?
                }
                Piece::Alternatives(all) => {
                    let mut start = None;
                    for one in all {
                        let begin = self.compile_pieces(one, next)?;
                        start = Some(match start {
                            None => begin,
                            Some(other) => self.add_state(State::Either(other, begin))?,
                        });
                    }
                    start.unwrap_or(next)
                }
            };
        }
        Ok(next)
    }

    /// Adds states that accept the matcher any number of times, then continue with `next`.
    fn add_repetition(&mut self, matcher: &Matcher, next: usize) -> Result<usize, String> {
        let either = self.add_state(State::Either(next, next))?;
        let again = self.add_state(State::One(matcher.clone(), either))?;
        if let Some(state) = self.states.get_mut(either) {
            *state = State::Either(again, next);
        }
        Ok(either)
    }

    /// Checks whether the pattern matches the whole text.
    pub(crate) fn matches(&self, text: &str, steps: &Steps) -> Result<bool, TooMuchWork> {
        steps.take_steps(self.states.len())?;
        let mut marked = vec![usize::MAX; self.states.len()];
        let mut current = Vec::new();
        let mut waiting = vec![self.start];
        let mut generation = 0;
        self.follow_transitions(&mut waiting, &mut current, (&mut marked, generation));
        for character in text.chars() {
            steps.take_steps(current.len() + 1)?;
            generation += 1;
            let mut next = Vec::new();
            for at in &current {
                if let Some(State::One(matcher, to)) = self.states.get(*at)
                    && matcher.matches(character)
                {
                    waiting.push(*to);
                }
            }
            self.follow_transitions(&mut waiting, &mut next, (&mut marked, generation));
            if next.is_empty() {
                return Ok(false);
            }
            current = next;
        }
        Ok(current
            .iter()
            .any(|at| matches!(self.states.get(*at), Some(State::Accept))))
    }

    /// Follows all transitions that need no character.
    fn follow_transitions(
        &self,
        waiting: &mut Vec<usize>,
        reached: &mut Vec<usize>,
        (marked, generation): (&mut [usize], usize),
    ) {
        while let Some(at) = waiting.pop() {
            match marked.get_mut(at) {
                Some(mark) if *mark != generation => *mark = generation,
                _ => continue,
            }
            match self.states.get(at) {
                Some(State::Either(one, other)) => waiting.extend([*one, *other]),
                Some(_) => reached.push(at),
                None => {}
            }
        }
    }
}

/// Parses the text of a pattern into pieces.
struct Reader {
    characters: Vec<char>,
    at: usize,
    is_path: bool,
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek(0);
        self.at += usize::from(character.is_some());
        character
    }

    /// Checks whether the next character begins a part.
    fn begins_part(&self) -> bool {
        match self.at.checked_sub(1).and_then(|before| self.characters.get(before)) {
            None => true,
            Some(before) => matches!(before, '/' | '{' | ','),
        }
    }

    /// Reads to the end of the pattern; within braces, to the end of the alternative or of the braces.
    fn read(&mut self, depth: usize) -> Result<Vec<Piece>, &'static str> {
        if depth > MOST_DEPTH {
            return Err("braces within braces within braces");
        }
        let mut pieces = Vec::new();
        loop {
            match self.peek(0) {
                None if depth > 0 => return Err("a brace is not closed"),
                None => return Ok(pieces),
                Some('}' | ',') if depth > 0 => return Ok(pieces),
                Some('}') if self.is_path => return Err("a brace is not opened"),
                Some('*') => self.read_star(&mut pieces),
                Some('{') if self.is_path => {
                    self.at += 1;
                    let mut all = Vec::new();
                    loop {
                        all.push(self.read(depth + 1)?);
                        if self.next() == Some('}') {
                            break;
                        }
                    }
                    pieces.push(Piece::Alternatives(all));
                }
                Some('?') => {
                    self.at += 1;
                    pieces.push(Piece::One(Matcher::InPart));
                }
                Some('[') => {
                    self.at += 1;
                    pieces.push(Piece::One(self.read_class()?));
                }
                Some('\\') => {
                    self.at += 1;
                    let character = self.next().ok_or("it ends with a backslash")?;
                    pieces.push(Piece::One(Matcher::Character(character)));
                }
                Some(character) => {
                    self.at += 1;
                    pieces.push(Piece::One(Matcher::Character(character)));
                }
            }
        }
    }

    /// Reads `*`, or `**` if that is a whole part.
    fn read_star(&mut self, pieces: &mut Vec<Piece>) {
        let is_double = self.is_path && self.begins_part() && self.peek(1) == Some('*');
        match self.peek(2) {
            Some('/') if is_double => {
                self.at += 3;
                pieces.push(Piece::Parts);
            }
            None | Some('}' | ',') if is_double => {
                self.at += 2;
                // The slash before it is removed too, since `/**` also matches nothing.
                if pieces.last() == Some(&Piece::One(Matcher::Character('/'))) {
                    pieces.pop();
                    pieces.push(Piece::Below);
                } else {
                    pieces.push(Piece::All);
                }
            }
            _ => {
                while self.peek(0) == Some('*') {
                    self.at += 1;
                }
                pieces.push(Piece::Star);
            }
        }
    }

    /// Reads the content of brackets.
    fn read_class(&mut self) -> Result<Matcher, &'static str> {
        let is_negated = match self.peek(0) {
            Some('^') => true,
            Some('!') => self.is_path,
            _ => false,
        };
        self.at += usize::from(is_negated);
        let mut ranges = Vec::new();
        loop {
            if self.peek(0) == Some(']') && !ranges.is_empty() {
                self.at += 1;
                return Ok(Matcher::Class(ranges, is_negated));
            }
            let low = self.read_bound()?;
            let high = if self.peek(0) == Some('-') {
                self.at += 1;
                self.read_bound()?
            } else {
                low
            };
            ranges.push((low, high));
        }
    }

    /// Reads one end of a range in brackets, which may be escaped with a backslash.
    fn read_bound(&mut self) -> Result<char, &'static str> {
        match self.next() {
            None => Err("a bracket is not closed"),
            Some('-' | ']') => Err("brackets have a range without a bound"),
            Some('\\') => self.next().ok_or("it ends with a backslash"),
            Some(character) => Ok(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Glob, Steps, TooMuchWork};

    fn matches(glob: Result<Glob, String>, text: &str) -> bool {
        glob.unwrap().matches(text, &Steps::new()).unwrap()
    }

    #[test]
    fn parts_match_as_go_matches_them() {
        for (pattern, name, expected) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*", "", true),
            ("**", "abc", true),
            ("*c", "abc", true),
            ("a*", "abc", true),
            ("a*", "ba", false),
            ("a?c", "abc", true),
            ("ab[c]", "abc", true),
            ("ab[b-d]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^e-g]", "abc", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("a[!b]c", "abc", true),
            ("a[!b]c", "axc", false),
            ("{a,b}", "{a,b}", true),
            ("{a,b}", "a", false),
            ("*.yaml", ".hidden.yaml", true),
            ("[\\]a]", "]", true),
        ] {
            assert_eq!(matches(Glob::for_part(pattern), name), expected, "{pattern} on {name}");
        }
        for pattern in ["[", "[]a]", "[-]", "[x-]", "[a", "a\\", "[^"] {
            assert!(
                Glob::for_part(pattern).unwrap_err().contains("syntax error in pattern"),
                "{pattern}"
            );
        }
    }

    #[test]
    fn paths_match_as_doublestar_matches_them() {
        for (pattern, path, expected) in [
            ("**", "a/b/c", true),
            ("**/*.tgz", "a.tgz", true),
            ("**/*.tgz", "x/y/a.tgz", true),
            ("a/**", "a", true),
            ("a/**", "a/b/c", true),
            ("a/**", "ab", false),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**/b", "ab", false),
            ("**/charts/**", "x/charts/y", true),
            ("**/charts/**", "charts", true),
            ("a/*", "a/b/c", false),
            ("a**", "ab/c", false),
            ("a**", "abc", true),
            ("{a,b/c}/d", "b/c/d", true),
            ("{a,b/c}/d", "a/d", true),
            ("{a,b/c}/d", "b/d", false),
            ("*.{md,txt}", "x.txt", true),
            ("{,x}y", "y", true),
            ("{a,{b,c}}", "c", true),
            ("[!a]", "b", true),
            ("[!a]", "/", false),
        ] {
            assert_eq!(matches(Glob::for_path(pattern), path), expected, "{pattern} on {path}");
        }
        for pattern in ["{a", "a}", "[", &"{".repeat(20)] {
            assert!(Glob::for_path(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn work_is_counted() {
        let bomb = Glob::for_part(&"*a".repeat(400)).unwrap();
        let name = "a".repeat(250);
        let steps = Steps::with_count(1 << 20);
        let run = |glob: &Glob, times: usize| (0..times).try_for_each(|_| glob.matches(&name, &steps).map(drop));
        // The control: one file is cheap.
        assert_eq!(run(&bomb, 1), Ok(()));
        assert_eq!(run(&bomb, 1_000_000), Err(TooMuchWork));
    }
}
