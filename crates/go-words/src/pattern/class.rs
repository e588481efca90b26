//! Classes of characters: in brackets, by Perl's escapes and by Unicode's names. The `regex` crate knows nested classes and set operations,
//! and Go knows neither. So each letter and each class in a bracket is written in a form that its neighbours can't change.

use super::{PatternError, Problem, push_letter, read_escaped_letter, skip_letter};

/// Classes that have names.
const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Reads a class in brackets and returns the rest of the text. `whole` begins with the opening bracket. `last_name` is the distance in
/// bytes from the last `:]` to the end of the pattern.
pub(super) fn translate_brackets<'text>(
    whole: &'text str,
    last_name: usize,
    into: &mut String,
) -> Result<&'text str, PatternError> {
    let mut rest = skip_letter(whole, '[');
    into.push('[');
    if let Some(negated) = rest.strip_prefix('^') {
        into.push('^');
        rest = negated;
    }
    let mut is_first = true;
    loop {
        if let Some(after) = rest.strip_prefix(']').filter(|_| !is_first) {
            into.push(']');
            return Ok(after);
        }
        is_first = false;
        if (1..=rest.len()).contains(&last_name)
            && let Some(after) = translate_named(rest, into)?
        {
            rest = after;
            continue;
        }
        if let Some(after) = translate_escaped(rest, true, into)? {
            rest = after;
            continue;
        }
        let start = rest;
        let (low, after) = read_member(rest, whole)?;
        rest = after;
        push_letter(low, into);
        // A hyphen before the closing bracket is one.
        if rest.starts_with('-') && !rest.starts_with("-]") && rest.len() > 1 {
            let (high, after) = read_member(skip_letter(rest, '-'), whole)?;
            rest = after;
            if high < low {
                let end = start.len() - rest.len();
                return Err(PatternError::new(
                    Problem::CharacterRange,
                    start.get(..end).unwrap_or(start),
                ));
            }
            into.push('-');
            push_letter(high, into);
        }
    }
}

/// Reads one letter of a class, which may be escaped.
fn read_member<'text>(rest: &'text str, whole: &str) -> Result<(char, &'text str), PatternError> {
    match rest.chars().next() {
        None => Err(PatternError::new(Problem::MissingBracket, whole)),
        Some('\\') => read_escaped_letter(rest),
        Some(letter) => Ok((letter, skip_letter(rest, letter))),
    }
}

/// Reads a class such as `[:alpha:]` at the start of the text and returns the rest. `None` if no such class begins here.
fn translate_named<'text>(rest: &'text str, into: &mut String) -> Result<Option<&'text str>, PatternError> {
    let Some((name, after)) = rest.strip_prefix("[:").and_then(|inside| inside.split_once(":]")) else {
        return Ok(None);
    };
    if !NAMED.contains(&name.strip_prefix('^').unwrap_or(name)) {
        let end = rest.len() - after.len();
        return Err(PatternError::new(
            Problem::CharacterRange,
            rest.get(..end).unwrap_or(rest),
        ));
    }
    into.push_str("[:");
    into.push_str(name);
    into.push_str(":]");
    Ok(Some(after))
}

/// Reads a class such as `\d` or `\pL` at the start of the text and returns the rest. `None` if no such class begins here.
pub(super) fn translate_escaped<'text>(
    rest: &'text str,
    in_brackets: bool,
    into: &mut String,
) -> Result<Option<&'text str>, PatternError> {
    let Some(tail) = rest.strip_prefix('\\') else {
        return Ok(None);
    };
    let Some(letter) = tail.chars().next() else {
        return Ok(None);
    };
    let members = match letter {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => "\\t\\n\\x0C\\r ",
        'D' => "^0-9",
        'W' => "^0-9A-Za-z_",
        'S' => "^\\t\\n\\x0C\\r ",
        'p' | 'P' => return translate_unicode(rest, letter == 'P', into).map(Some),
        _ => return Ok(None),
    };
    if in_brackets && !members.starts_with('^') {
        into.push_str(members);
    } else {
        into.push('[');
        into.push_str(members);
        into.push(']');
    }
    Ok(Some(skip_letter(tail, letter)))
}

/// Reads a Unicode class. Its name is one letter, or a name in braces, behind the sign.
fn translate_unicode<'text>(rest: &'text str, is_negated: bool, into: &mut String) -> Result<&'text str, PatternError> {
    let invalid = |after: &str| {
        let end = rest.len() - after.len();
        PatternError::new(Problem::CharacterRange, rest.get(..end).unwrap_or(rest))
    };
    let tail = rest.get(2..).unwrap_or("");
    let (name, after) = match tail.strip_prefix('{') {
        Some(inside) => inside.split_once('}').ok_or_else(|| invalid(""))?,
        None => tail.split_at(tail.chars().next().map_or(0, char::len_utf8)),
    };
    let (is_negated, name) = name
        .strip_prefix('^')
        .map_or((is_negated, name), |name| (!is_negated, name));
    // The `regex` crate's names may be written in other ways, too.
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !name.starts_with(|first: char| first.is_ascii_uppercase()) || !name.bytes().all(is_name) {
        return Err(invalid(after));
    }
    into.push_str(if is_negated { "\\P{" } else { "\\p{" });
    into.push_str(name);
    into.push('}');
    Ok(after)
}
