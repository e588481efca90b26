//! Owns regular expressions as Go's `regexp` reads them: what Rust's reads otherwise is written so that it means the same. Refuses
//! what Go refuses.

use regex::{Regex, RegexBuilder};

use crate::meter;

/// How often Go repeats at most.
const MAXIMUM_REPEAT: u32 = 1000;

/// How big a compiled pattern may be: each is tried in turn, since none tells afterwards how big it became.
const SIZES: [usize; 5] = [8 << 10, 64 << 10, 512 << 10, 4 << 20, 10 << 20];

/// How big the tables may be that a pattern makes while it is used.
const TABLES: usize = 16 << 10;

/// Classes that have names.
const NAMED_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Compiles a pattern written for Go.
///
/// # Errors
/// When Go couldn't read it; the message says what is wrong.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let bad = |why: &str| format!("'{pattern}' is not a valid regular expression{why}");
    let translated = translate(pattern).map_err(|why| bad(&format!(": {why}")))?;
    meter::check()?;
    for size in SIZES {
        let mut builder = RegexBuilder::new(&translated);
        let built = builder.size_limit(size).dfa_size_limit(TABLES).build();
        meter::work(size / 64);
        match built {
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => return Err(bad("")),
            Ok(built) => {
                meter::made(size + TABLES);
                return Ok(built);
            }
        }
    }
    Err(bad(""))
}

fn translate(pattern: &str) -> Result<String, &'static str> {
    let mut into = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    let mut is_after_repeat = false;
    while let Some(first) = rest.chars().next() {
        let tail = rest.get(first.len_utf8()..).unwrap_or("");
        let mut repeats = false;
        match first {
            '\\' => rest = escape(tail, false, &mut into)?,
            '[' => rest = class(tail, &mut into)?,
            '{' => match repetition(tail)? {
                Some(length) => {
                    repeats = true;
                    into.push('{');
                    into.push_str(tail.get(..length).unwrap_or(""));
                    rest = tail.get(length..).unwrap_or("");
                }
                None => {
                    into.push_str("\\{");
                    rest = tail;
                }
            },
            '*' | '+' | '?' => {
                repeats = true;
                into.push(first);
                rest = tail;
            }
            '(' if tail.starts_with('?') => {
                let flags = tail.trim_start_matches('?');
                let end = flags.find([')', ':', '<', '=', '!']).unwrap_or(flags.len());
                if flags.get(..end).unwrap_or("").contains(['x', 'u', 'R']) {
                    return Err("unknown flag");
                }
                into.push_str("(?");
                rest = tail.get(1..).unwrap_or("");
            }
            _ => {
                into.push(first);
                rest = tail;
            }
        }
        if repeats {
            if is_after_repeat {
                return Err("a repetition of a repetition");
            }
            if let Some(lazy) = rest.strip_prefix('?') {
                into.push('?');
                rest = lazy;
            }
        }
        is_after_repeat = repeats;
    }
    Ok(into)
}

/// The length of what follows the brace of a repetition; `None` when the brace is one like any other.
fn repetition(tail: &str) -> Result<Option<usize>, &'static str> {
    let Some(end) = tail.find('}') else { return Ok(None) };
    let inside = tail.get(..end).unwrap_or("");
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(least) || !(most.is_empty() || is_number(most)) {
        return Ok(None);
    }
    let is_small = |text: &str| text.is_empty() || text.parse::<u32>().is_ok_and(|count| count <= MAXIMUM_REPEAT);
    if is_small(least) && is_small(most) {
        Ok(Some(end + 1))
    } else {
        Err("a repetition of more than 1000 times")
    }
}

/// What follows a backslash; answers the rest.
fn escape<'text>(tail: &'text str, in_class: bool, into: &mut String) -> Result<&'text str, &'static str> {
    let letter = tail.chars().next().ok_or("a backslash at the end")?;
    let rest = tail.get(letter.len_utf8()..).unwrap_or("");
    let plain = match letter {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => "\\t\\n\\x0C\\r ",
        'D' => "^0-9",
        'W' => "^0-9A-Za-z_",
        'S' => "^\\t\\n\\x0C\\r ",
        _ => "",
    };
    match letter {
        _ if in_class && !plain.is_empty() && !plain.starts_with('^') => into.push_str(plain),
        _ if !plain.is_empty() => {
            into.push('[');
            into.push_str(plain);
            into.push(']');
        }
        'Q' if !in_class => {
            let (quoted, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
            into.push_str(&regex::escape(quoted));
            return Ok(rest);
        }
        'b' if !in_class => into.push_str("(?-u:\\b)"),
        _ if letter.is_ascii() && !letter.is_ascii_alphanumeric() => {
            let mut text = [0; 4];
            into.push_str(&regex::escape(letter.encode_utf8(&mut text)));
        }
        '0'..='7' => return octal(tail, into),
        'p' | 'P' => return unicode_class(rest, letter == 'P', into),
        'a' | 'f' | 'n' | 'r' | 't' | 'v' | 'x' => {
            into.push('\\');
            into.push(letter);
        }
        'A' | 'B' | 'z' if !in_class => {
            into.push('\\');
            into.push(letter);
        }
        _ => return Err("an unknown escape"),
    }
    Ok(rest)
}

/// A character as octal digits, which follow a backslash: a zero and up to two more, or two or three of which the first is another.
fn octal<'text>(tail: &'text str, into: &mut String) -> Result<&'text str, &'static str> {
    let digits = tail
        .bytes()
        .take(3)
        .take_while(|byte| matches!(byte, b'0'..=b'7'))
        .count();
    let (number, rest) = tail.split_at_checked(digits).ok_or("an unknown escape")?;
    if digits == 1 && number != "0" {
        return Err("an unknown escape");
    }
    let code = u32::from_str_radix(number, 8).map_err(|_| "an unknown escape")?;
    into.push_str(&format!("\\x{{{code:x}}}"));
    Ok(rest)
}

/// A class of Unicode, whose name, one letter or one in braces, follows its sign.
fn unicode_class<'text>(tail: &'text str, is_negated: bool, into: &mut String) -> Result<&'text str, &'static str> {
    let (name, rest) = match tail.strip_prefix('{') {
        Some(inside) => inside.split_once('}'),
        None => tail.split_at_checked(1),
    }
    .ok_or("a class of Unicode without a name")?;
    let (is_negated, name) = name
        .strip_prefix('^')
        .map_or((is_negated, name), |name| (!is_negated, name));
    // Rust's names may be written in other ways, too.
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !name.starts_with(|first: char| first.is_ascii_uppercase()) || !name.bytes().all(is_name) {
        return Err("an unknown class of Unicode");
    }
    into.push_str(if is_negated { "\\P{" } else { "\\p{" });
    into.push_str(name);
    into.push('}');
    Ok(rest)
}

/// What follows the bracket that opens a class; answers the rest. Go knows no classes in classes and no operations on them.
fn class<'text>(tail: &'text str, into: &mut String) -> Result<&'text str, &'static str> {
    into.push('[');
    let mut rest = tail;
    if let Some(negated) = rest.strip_prefix('^') {
        into.push('^');
        rest = negated;
    }
    let mut is_first = true;
    let mut before = ' ';
    while let Some(letter) = rest.chars().next() {
        let after = rest.get(letter.len_utf8()..).unwrap_or("");
        rest = after;
        match letter {
            ']' if !is_first => {
                into.push(']');
                return Ok(after);
            }
            '\\' => rest = escape(after, true, into)?,
            '[' => match after.strip_prefix(':').and_then(|inside| inside.split_once(":]")) {
                Some((name, further)) => {
                    if !NAMED_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
                        return Err("an unknown class");
                    }
                    into.push_str("[:");
                    into.push_str(name);
                    into.push_str(":]");
                    rest = further;
                }
                None => into.push_str("\\["),
            },
            ']' | '&' | '~' => {
                into.push('\\');
                into.push(letter);
            }
            '-' if before == '-' => into.push_str("\\-"),
            other => into.push(other),
        }
        before = letter;
        is_first = false;
    }
    Err("a class isn't closed")
}

#[cfg(test)]
mod tests {
    use super::compile;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap().is_match(text)
    }

    #[test]
    fn braces_that_repeat_nothing_are_text() {
        assert!(matches("^{{ name }}$", "{{ name }}"));
        assert!(matches("^a{1,x}$", "a{1,x}"));
        assert!(matches("^a{2}$", "aa"));
    }

    #[test]
    fn classes_hold_what_they_say() {
        assert!(matches("^[[a]+$", "[a["));
        assert!(matches("^[a&&b]+$", "a&b"));
        assert!(matches("^[[:digit:]-]+$", "1-2"));
        assert!(matches("^[]x]$", "]"));
        assert!(matches("^[\\d.]+$", "1.2"));
        assert!(matches("^[^\\s]+$", "ab"));
    }

    #[test]
    fn classes_of_letters_are_those_of_ascii() {
        assert!(!matches("^\\d$", "\u{663}"));
        assert!(!matches("^\\w$", "\u{e9}"));
    }

    #[test]
    fn what_is_escaped_is_itself() {
        assert!(matches("^a\\/b\\_c\\<$", "a/b_c<"));
        assert!(matches("^\\Qa.b\\E$", "a.b"));
        assert!(!matches("^\\Qa.b\\E$", "axb"));
        assert!(matches("^\\141[\\142]\\x63\\0601$", "abc01"));
        assert!(matches("^\\p{Greek}\\pL[\\p{^L}\\d]\\PL$", "\u{3b1}a12"));
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for pattern in [
            "a**",
            "(?x)a",
            "a{1001}",
            "[a",
            "(",
            "a\\",
            "\\u0061",
            "\\U",
            "\\8",
            "\\1",
            "[\\Qa\\E]",
            "[[:foo:]]",
            "[\\A]",
        ] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
