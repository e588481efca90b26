//! Functions of texts, which count code points.

use crate::compare;
use crate::failure::Failure;
use crate::functions::effort_of_values;
use crate::meter::Meter;
use crate::value::{Text, Value};

/// Calls a function of this module by its name.
pub(crate) fn call<'a>(function: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Value<'a>, Failure> {
    match (function, arguments) {
        ("contains", [Value::String(text), Value::String(part)]) => Ok(Value::Bool(text.contains(&**part))),
        ("startsWith", [Value::String(text), Value::String(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        ("endsWith", [Value::String(text), Value::String(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        ("charAt", [Value::String(text), Value::Int(index)]) => {
            let at = usize::try_from(*index).map_err(|_| out_of_range(*index))?;
            match text.chars().nth(at) {
                Some(letter) => Ok(Value::from(letter.to_string())),
                None if at == text.chars().count() => Ok(Value::from("")),
                None => Err(out_of_range(*index)),
            }
        }
        ("lowerAscii", [Value::String(text)]) => Ok(Value::from(text.to_ascii_lowercase())),
        ("upperAscii", [Value::String(text)]) => Ok(Value::from(text.to_ascii_uppercase())),
        ("trim", [Value::String(text)]) => Ok(Value::from(text.trim_matches(is_space).to_owned())),
        ("strings.quote", [Value::String(text)]) => {
            meter.spend_effort(text.len())?;
            Ok(Value::from(quote_text(text)))
        }
        ("substring", [Value::String(text), Value::Int(start)]) => {
            let count = text.chars().count();
            let start = check_index(*start, count)?;
            Ok(Value::from(text.chars().skip(start).collect::<String>()))
        }
        ("substring", [Value::String(text), Value::Int(start), Value::Int(end)]) => {
            if start > end {
                return Err(Failure::new(format!(
                    "invalid substring range. start: {start}, end: {end}"
                )));
            }
            let count = text.chars().count();
            let (start, end) = (check_index(*start, count)?, check_index(*end, count)?);
            Ok(Value::from(
                text.chars().skip(start).take(end - start).collect::<String>(),
            ))
        }
        ("replace", [Value::String(text), Value::String(old), Value::String(new)]) => {
            replace_text(text, old, new, usize::MAX, meter)
        }
        (
            "replace",
            [
                Value::String(text),
                Value::String(old),
                Value::String(new),
                Value::Int(most),
            ],
        ) => replace_text(text, old, new, usize::try_from(*most).unwrap_or(usize::MAX), meter),
        ("split", [Value::String(text), Value::String(separator)]) => split_text(text, separator, None, meter),
        ("split", [Value::String(text), Value::String(separator), Value::Int(most)]) => {
            split_text(text, separator, usize::try_from(*most).ok(), meter)
        }
        _ => Err(Failure::no_such_overload()),
    }
}

fn out_of_range(index: i64) -> Failure {
    Failure::new(format!("index out of range: {index}"))
}

fn check_index(index: i64, count: usize) -> Result<usize, Failure> {
    usize::try_from(index)
        .ok()
        .filter(|index| *index <= count)
        .ok_or_else(|| out_of_range(index))
}

/// Checks whether Go counts a character as white space.
fn is_space(letter: char) -> bool {
    letter.is_whitespace()
}

fn quote_text(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn replace_text<'a>(text: &str, old: &str, new: &str, most: usize, meter: &mut Meter) -> Result<Value<'a>, Failure> {
    let found = if old.is_empty() {
        text.chars().count() + 1
    } else {
        text.matches(old).count()
    };
    let grown = text.len().saturating_add(found.min(most).saturating_mul(new.len()));
    meter.spend_effort(grown)?;
    Ok(Value::from(text.replacen(old, new, most)))
}

/// Splits a text into at most `most` parts. Zero gives no parts, and `None` gives all parts.
fn split_text<'a>(text: &str, separator: &str, most: Option<usize>, meter: &mut Meter) -> Result<Value<'a>, Failure> {
    let count = match separator {
        "" => text.chars().count(),
        separator => text.matches(separator).count() + 1,
    };
    meter.spend_effort(effort_of_values(count.min(most.unwrap_or(usize::MAX))).saturating_add(text.len()))?;
    let parts: Vec<Value<'a>> = match (separator, most) {
        (_, Some(0)) => Vec::new(),
        ("", most) => {
            let mut parts = Vec::new();
            let mut rest = text;
            while let Some(letter) = rest.chars().next() {
                if most == Some(parts.len() + 1) {
                    parts.push(rest.to_owned());
                    break;
                }
                parts.push(letter.to_string());
                rest = rest.get(letter.len_utf8()..).unwrap_or_default();
            }
            parts.into_iter().map(Value::from).collect()
        }
        (separator, Some(most)) => text
            .splitn(most, separator)
            .map(|part| Value::from(part.to_owned()))
            .collect(),
        (separator, None) => text.split(separator).map(|part| Value::from(part.to_owned())).collect(),
    };
    Ok(Value::from(parts))
}

/// Implements `join` of a list of texts.
pub(crate) fn join_texts<'a>(_: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Value<'a>, Failure> {
    let (list, separator) = match arguments {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return Err(Failure::no_such_overload()),
    };
    let mut joined = String::new();
    for (index, item) in list.iter().enumerate() {
        let Value::String(item) = item? else {
            return Err(Failure::new("join: invalid input"));
        };
        meter.spend_effort(separator.len() + item.len())?;
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&item);
    }
    Ok(Value::from(joined))
}

/// Implements `indexOf` and `lastIndexOf`, of texts and of lists.
pub(crate) fn find_index<'a>(function: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Value<'a>, Failure> {
    let last = function == "lastIndexOf";
    match arguments {
        [Value::List(list), value] => {
            let mut found = -1;
            for (index, item) in list.iter().enumerate() {
                if compare::are_equal(&item?, value, meter)? {
                    found = index as i64;
                    if !last {
                        break;
                    }
                }
            }
            Ok(Value::Int(found))
        }
        [Value::String(text), Value::String(part)] => Ok(Value::Int(match last {
            _ if part.is_empty() && last => text.chars().count() as i64,
            true => text.rfind(&**part).map_or(-1, |at| count_letters(text, at)),
            false => text.find(&**part).map_or(-1, |at| count_letters(text, at)),
        })),
        [Value::String(text), Value::String(part), Value::Int(offset)] => offset_index(text, part, *offset, last),
        _ => Err(Failure::no_such_overload()),
    }
}

fn count_letters(text: &str, bytes: usize) -> i64 {
    text.get(..bytes).map_or(-1, |before| before.chars().count() as i64)
}

fn offset_index<'a>(text: &str, part: &Text<'a>, offset: i64, last: bool) -> Result<Value<'a>, Failure> {
    if part.is_empty() {
        return Ok(Value::Int(offset));
    }
    let Ok(start) = usize::try_from(offset) else {
        return Err(out_of_range(offset));
    };
    let Some((from, _)) = text.char_indices().nth(start) else {
        return Ok(Value::Int(-1));
    };
    let found = if last {
        // The last match may begin at the offset at the latest.
        let end = from.saturating_add(part.len()).min(text.len());
        let mut end = end;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.get(..end).and_then(|before| before.rfind(&**part))
    } else {
        text.get(from..)
            .and_then(|after| after.find(&**part))
            .map(|at| from + at)
    };
    Ok(Value::Int(found.map_or(-1, |at| count_letters(text, at))))
}
