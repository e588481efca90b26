//! Regular expressions as Go's RE2 reads them, on Rust's engine, which is linear in time as well.

use regex::Regex;

/// A hostile pattern may not grow beyond this when compiled, in bytes.
const LARGEST: usize = 1 << 20;

/// Compiles a pattern. `\d`, `\w`, `\s` and `\b` mean ASCII, as in Go.
///
/// # Errors
/// With what is wrong, if it is no pattern or too large.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(&spelled_out(pattern)?)
        .size_limit(LARGEST)
        .dfa_size_limit(LARGEST)
        .build()
        .map_err(|problem| in_words_of_go(&problem.to_string(), pattern))
        .and_then(|compiled| match large_repetition(pattern) {
            Some(count) => Err(format!("invalid repeat count: `{count}`")),
            None => Ok(compiled),
        })
}

/// A count above a thousand, which Go refuses.
fn large_repetition(pattern: &str) -> Option<String> {
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        let (counts, following) = after.split_once('}')?;
        let escaped = before.ends_with('\\');
        let numbers = counts
            .split(',')
            .all(|count| count.bytes().all(|byte| byte.is_ascii_digit()));
        let large = counts
            .split(',')
            .any(|count| !count.is_empty() && count.parse::<u32>().map_or(true, |count| count > 1000));
        if !escaped && numbers && !counts.is_empty() && large {
            return Some(format!("{{{counts}}}"));
        }
        rest = if numbers { following } else { after };
    }
    None
}

/// The usual problems as Go names them.
fn in_words_of_go(problem: &str, pattern: &str) -> String {
    let from = |letter: char| {
        pattern
            .rfind(letter)
            .and_then(|at| pattern.get(at..))
            .unwrap_or(pattern)
    };
    let named = |message: &str, part: &str| format!("{message}: `{part}`");
    let reason = problem.lines().last().unwrap_or_default();
    if reason.contains("unclosed character class") {
        named("missing closing ]", from('['))
    } else if reason.contains("unclosed group") {
        named("missing closing )", pattern)
    } else if reason.contains("unopened group") {
        named("unexpected )", pattern)
    } else if reason.contains("repetition operator missing expression") {
        let operator = pattern.find(['*', '+', '?']).and_then(|at| pattern.get(at..=at));
        named("missing argument to repetition operator", operator.unwrap_or(pattern))
    } else if reason.contains("incomplete escape sequence") {
        "trailing backslash at end of expression: ``".to_owned()
    } else if problem.contains("size limit") {
        named("expression too large", pattern)
    } else {
        named(reason.trim_start_matches("error: "), pattern)
    }
}

/// Spells out where the two dialects differ.
fn spelled_out(pattern: &str) -> Result<String, String> {
    let mut spelled = String::with_capacity(pattern.len());
    let mut letters = pattern.chars();
    let (mut in_class, mut class_empty) = (false, false);
    // Whether a repetition was just read, and whether it was made lazy.
    let (mut repeated, mut lazy) = (false, false);
    while let Some(letter) = letters.next() {
        let counted = if letter == '{' && !in_class {
            count(letters.as_str())
        } else {
            None
        };
        if !in_class && (matches!(letter, '*' | '+' | '?') || counted.is_some()) {
            if repeated && (lazy || letter != '?') {
                return Err(format!("invalid nested repetition operator: `{pattern}`"));
            }
            lazy = repeated;
            repeated = true;
        } else {
            (repeated, lazy) = (false, false);
        }
        let at_start = std::mem::replace(&mut class_empty, false);
        match letter {
            '\\' => match letters.next() {
                Some(class @ ('d' | 'w' | 's')) => {
                    let members = match class {
                        'd' => "0-9",
                        'w' => "0-9A-Za-z_",
                        _ => "\\t\\n\\x0C\\r ",
                    };
                    if in_class {
                        spelled.push_str(members);
                    } else {
                        spelled.push_str(&format!("[{members}]"));
                    }
                }
                Some(class @ ('D' | 'W' | 'S')) => spelled.push_str(match class {
                    'D' => "[^0-9]",
                    'W' => "[^0-9A-Za-z_]",
                    _ => "[^\\t\\n\\x0C\\r ]",
                }),
                Some(bound @ ('b' | 'B')) if !in_class => {
                    spelled.push_str("(?-u:\\");
                    spelled.push(bound);
                    spelled.push(')');
                }
                // Text up to the end mark stands for itself.
                Some('Q') => {
                    let rest = letters.as_str();
                    let (quoted, after) = rest.split_once("\\E").unwrap_or((rest, ""));
                    spelled.push_str(&regex::escape(quoted));
                    letters = after.chars();
                }
                Some(other) => {
                    spelled.push('\\');
                    spelled.push(other);
                    // The name of a class or the number of a letter in braces is no count.
                    let named = matches!(other, 'p' | 'P' | 'x') && letters.as_str().starts_with('{');
                    if let Some((name, after)) = letters.as_str().split_once('}').filter(|_| named) {
                        spelled.push_str(name);
                        spelled.push('}');
                        letters = after.chars();
                    }
                }
                None => spelled.push('\\'),
            },
            '{' if !in_class => match counted {
                Some(count) => {
                    spelled.push('{');
                    spelled.push_str(count);
                    spelled.push('}');
                    letters = letters.as_str().get(count.len() + 1..).unwrap_or_default().chars();
                }
                // No count: a letter.
                None => spelled.push_str("\\{"),
            },
            '[' if !in_class => {
                in_class = true;
                class_empty = true;
                spelled.push('[');
            }
            '^' if in_class && at_start && spelled.ends_with('[') => {
                class_empty = true;
                spelled.push('^');
            }
            ']' if in_class && !at_start => {
                in_class = false;
                spelled.push(']');
            }
            ']' if in_class => spelled.push_str("\\]"),
            // Named classes are the same; any other bracket in a class is a letter.
            '[' if letters.as_str().starts_with(':') => match letters.as_str().split_once(":]") {
                Some((name, after)) => {
                    spelled.push('[');
                    spelled.push_str(name);
                    spelled.push_str(":]");
                    letters = after.chars();
                }
                None => spelled.push_str("\\["),
            },
            '[' => spelled.push_str("\\["),
            '&' | '~' if in_class => {
                spelled.push('\\');
                spelled.push(letter);
            }
            other => spelled.push(other),
        }
    }
    Ok(spelled)
}

/// The count after an opening brace, `2`, `2,` or `2,3`, if it is one.
fn count(rest: &str) -> Option<&str> {
    let (inner, _) = rest.split_once('}')?;
    let (least, most) = inner.split_once(',').unwrap_or((inner, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (!least.is_empty() && digits(least) && digits(most)).then_some(inner)
}
