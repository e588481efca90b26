//! Patterns with `*`, `?` and `[a-z]` as Flux matches them: like Go's `path.Match`, except that `*` and `?` also match `/`. A malformed
//! part is an error only if matching reaches it. Each step asks `spend`, because a pattern with stars is tried at every position.

use super::functions::Spend;
use super::letters;

/// The reason why a match has no result: a malformed pattern, or an exhausted allowance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Malformed,
    Spent,
}

/// Returns whether a pattern matches all of a text.
pub(super) fn is_match(mut pattern: &[u8], mut text: &[u8], spend: &mut Spend<'_>) -> Result<bool, Stop> {
    while !pattern.is_empty() {
        let (after_star, piece, rest) = split_piece(pattern);
        if after_star && piece.is_empty() {
            return Ok(true);
        }
        pattern = rest;
        // The last piece has to reach the end.
        let fits = |after: &[u8]| after.is_empty() || !rest.is_empty();
        let most = if after_star { text.len() } else { 0 };
        let mut found = None;
        for skipped in 0..=most {
            let after = match_piece(piece, text.get(skipped..).unwrap_or_default(), spend)?;
            if let Some(after) = after.filter(|after| fits(after)) {
                found = Some(after);
                break;
            }
        }
        match found {
            Some(after) => text = after,
            None => return Ok(false),
        }
    }
    Ok(text.is_empty())
}

/// Splits off the first piece of a pattern: whether it begins with stars, its text up to the next star, and the rest.
fn split_piece(pattern: &[u8]) -> (bool, &[u8], &[u8]) {
    let stars = pattern.iter().take_while(|byte| **byte == b'*').count();
    let (_, pattern) = pattern.split_at(stars);
    let (mut in_class, mut is_escaped) = (false, false);
    let end = pattern.iter().position(|byte| {
        if std::mem::take(&mut is_escaped) {
            return false;
        }
        match byte {
            b'\\' => is_escaped = true,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'*' => return !in_class,
            _ => {}
        }
        false
    });
    let (piece, rest) = pattern.split_at(end.unwrap_or(pattern.len()));
    (stars > 0, piece, rest)
}

/// Matches a piece without stars with the beginning of a text and returns the rest of the text.
fn match_piece<'text>(
    mut piece: &[u8],
    mut text: &'text [u8],
    spend: &mut Spend<'_>,
) -> Result<Option<&'text [u8]>, Stop> {
    let whole = piece.len();
    let outcome = loop {
        let Some((first, after_first)) = piece.split_first() else {
            break Ok(Some(text));
        };
        let Some((byte, after_byte)) = text.split_first() else {
            break Ok(None);
        };
        let literal = match first {
            b'[' => {
                let (letter, width) = letters::first_letter(text);
                let (is_in, after) = match match_class(after_first, letter) {
                    Ok(matched) => matched,
                    Err(stop) => {
                        piece = &[];
                        break Err(stop);
                    }
                };
                piece = after;
                if !is_in {
                    break Ok(None);
                }
                text = text.get(width..).unwrap_or_default();
                continue;
            }
            b'?' => {
                let (_, width) = letters::first_letter(text);
                text = text.get(width..).unwrap_or_default();
                piece = after_first;
                continue;
            }
            b'\\' => match after_first.split_first() {
                None => break Err(Stop::Malformed),
                Some(escaped) => escaped,
            },
            _ => (first, after_first),
        };
        if literal.0 != byte {
            break Ok(None);
        }
        (piece, text) = (literal.1, after_byte);
    };
    if spend(0, 1 + whole.saturating_sub(piece.len())) {
        outcome
    } else {
        Err(Stop::Spent)
    }
}

/// Checks whether a letter is in the class that begins here. Also returns the pattern after the class.
fn match_class(class: &[u8], letter: char) -> Result<(bool, &[u8]), Stop> {
    let (is_negated, mut class) = match class.strip_prefix(b"^") {
        Some(class) => (true, class),
        None => (false, class),
    };
    let (mut is_in, mut is_first) = (false, true);
    loop {
        if !is_first && let Some(after) = class.strip_prefix(b"]") {
            return Ok((is_in != is_negated, after));
        }
        let (low, after) = read_member(class)?;
        let (high, after) = match after.strip_prefix(b"-") {
            Some(after) => read_member(after)?,
            None => (low, after),
        };
        is_in |= (low..=high).contains(&letter);
        (class, is_first) = (after, false);
    }
}

/// Reads a letter of a class and returns it with the rest, which must not be empty.
fn read_member(class: &[u8]) -> Result<(char, &[u8]), Stop> {
    if class.first().is_none_or(|byte| matches!(byte, b'-' | b']')) {
        return Err(Stop::Malformed);
    }
    let class = class.strip_prefix(b"\\").unwrap_or(class);
    let (letter, width) = letters::first_letter(class);
    let is_none = letter == char::REPLACEMENT_CHARACTER && width == 1;
    match class.get(width..) {
        Some(after) if !after.is_empty() && !is_none => Ok((letter, after)),
        _ => Err(Stop::Malformed),
    }
}
