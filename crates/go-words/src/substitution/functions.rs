//! The functions that an expression applies to the value of its variable. Each function asks `spend` before it makes or does anything that
//! is larger than its input.

use memchr::memmem;

use super::glob::{self, Stop};
use super::letters;

/// Spends bytes and steps of the allowance. Returns false if the allowance is exhausted.
pub(super) type Spend<'a> = dyn FnMut(usize, usize) -> bool + 'a;

/// The function in an expression such as `${name^^}`, which changes the value of the variable.
pub(super) enum Function {
    Value,
    Length,
    Default(Vec<u8>),
    UpperFirst,
    Upper,
    LowerFirst,
    Lower,
    /// The offset and the length, as texts.
    Substring(Vec<u8>, Option<Vec<u8>>),
    ReplaceFirst(Vec<u8>, Vec<u8>),
    ReplaceAll(Vec<u8>, Vec<u8>),
    ReplacePrefix(Vec<u8>, Vec<u8>),
    ReplaceSuffix(Vec<u8>, Vec<u8>),
    TrimPrefix {
        pattern: Vec<u8>,
        is_longest: bool,
    },
    TrimSuffix {
        pattern: Vec<u8>,
        is_longest: bool,
    },
}

impl Function {
    /// Returns the result of the function; `None` if the allowance is exhausted.
    pub(super) fn apply(self, value: &[u8], spend: &mut Spend<'_>) -> Option<Vec<u8>> {
        // Every result is at most this long, or its function asks for more below.
        if !spend(value.len(), 1 + value.len() / 16) {
            return None;
        }
        Some(match self {
            Self::Value => value.to_vec(),
            Self::Length => value.len().to_string().into_bytes(),
            Self::Default(default) if value.is_empty() => default,
            Self::Default(_) => value.to_vec(),
            Self::UpperFirst => letters::map_first(value, letters::to_upper),
            Self::Upper => letters::map_all(value, letters::to_upper),
            Self::LowerFirst => letters::map_first(value, letters::to_lower),
            Self::Lower => letters::map_all(value, letters::to_lower),
            Self::Substring(position, length) => substring(value, &position, length.as_deref()).to_vec(),
            Self::ReplaceFirst(old, new) => replace_text(value, &old, &new, 1, spend)?,
            Self::ReplaceAll(old, new) => replace_text(value, &old, &new, usize::MAX, spend)?,
            Self::ReplacePrefix(old, new) => match value.strip_prefix(old.as_slice()) {
                Some(rest) => [new.as_slice(), rest].concat(),
                None => value.to_vec(),
            },
            Self::ReplaceSuffix(old, new) => match value.strip_suffix(old.as_slice()) {
                Some(rest) => [rest, new.as_slice()].concat(),
                None => value.to_vec(),
            },
            Self::TrimPrefix { pattern, is_longest } => trim_match(value, &pattern, is_longest, spend)?.to_vec(),
            Self::TrimSuffix { pattern, is_longest } => {
                let (value, pattern) = (letters::reverse(value), letters::reverse(&pattern));
                letters::reverse(trim_match(&value, &pattern, is_longest, spend)?)
            }
        })
    }
}

/// Returns a part of a value, in bytes. A position or length that is not a number leaves the value unchanged.
fn substring<'value>(value: &'value [u8], position: &[u8], length: Option<&[u8]>) -> &'value [u8] {
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    let size = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let Some(start) = number(position) else { return value };
    let start = if start < 0 {
        size.saturating_add(start).max(0)
    } else {
        start
    };
    let end = match length {
        None => size,
        Some(length) => match number(length) {
            None => return value,
            Some(length) if length < 0 => size.saturating_add(length),
            Some(length) => start.saturating_add(length),
        },
    };
    let index = |at: i64| usize::try_from(at.clamp(0, size)).unwrap_or_default();
    value.get(index(start)..index(end)).unwrap_or_default()
}

/// Replaces the first `most` occurrences of a text. The empty text occurs before every letter and at the end.
fn replace_text(value: &[u8], old: &[u8], new: &[u8], most: usize, spend: &mut Spend<'_>) -> Option<Vec<u8>> {
    let places: Box<dyn Iterator<Item = usize> + '_> = if old.is_empty() {
        Box::new(letters::letter_boundaries(value))
    } else {
        Box::new(memmem::find_iter(value, old))
    };
    // The size of the result is known before the result is made.
    let mut count = 0_usize;
    let places: Vec<usize> = places.take(most).inspect(|_| count += 1).collect();
    let more = count.saturating_mul(new.len().saturating_add(size_of::<usize>()));
    if !spend(more, 1 + count + more / 16) {
        return None;
    }
    let mut made = Vec::new();
    let mut from = 0;
    for place in places {
        made.extend_from_slice(value.get(from..place).unwrap_or_default());
        made.extend_from_slice(new);
        from = place + old.len();
    }
    made.extend_from_slice(value.get(from..).unwrap_or_default());
    Some(made)
}

/// Returns the value without the shortest or longest beginning, of at least a byte, that a pattern matches; all of it when the pattern is malformed.
fn trim_match<'value>(
    value: &'value [u8],
    pattern: &[u8],
    is_longest: bool,
    spend: &mut Spend<'_>,
) -> Option<&'value [u8]> {
    let mut rest = value;
    for length in (1..=value.len()).rev() {
        let (beginning, after) = value.split_at(length);
        match glob::is_match(pattern, beginning, spend) {
            Ok(true) => rest = after,
            Ok(false) => continue,
            Err(Stop::Malformed) => return Some(value),
            Err(Stop::Spent) => return None,
        }
        if is_longest {
            break;
        }
    }
    Some(rest)
}
