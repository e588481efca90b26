//! Finds the string literals in the shipped part of a Rust file. Tests, comments, most attributes and texts for comparison are left out. A file with errors is read as far
//! as possible.

use std::ops::Range;

/// One string literal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Literal {
    /// The number of its first line in the file.
    pub(super) line: usize,
    /// The text without escapes. A text that a `\` continues on the next line is one line.
    pub(super) text: String,
}

/// The shipped part of a file.
#[derive(Debug, Default)]
pub(super) struct ShippedPart {
    pub(super) literals: Vec<Literal>,
    /// The modules in other files that are compiled for tests only.
    pub(super) test_modules: Vec<String>,
}

/// Attributes with texts for users: of thiserror and of clap.
const ATTRIBUTES_WITH_TEXT: &[&str] = &["error", "arg", "command", "clap", "value"];

/// Macros with texts that no user reads.
const SILENT_MACROS: &[&str] = &[
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "env",
    "include",
    "include_bytes",
    "include_str",
    "option_env",
];

/// Functions that compare with their text.
const COMPARISONS: &[&str] = &[
    "contains",
    "ends_with",
    "find",
    "rsplit_once",
    "split_once",
    "starts_with",
    "strip_prefix",
    "strip_suffix",
    "trim_end_matches",
    "trim_start_matches",
];

/// Reads one file.
pub(super) fn read_shipped_part(text: &str) -> ShippedPart {
    let tokens: Vec<Token<'_>> = Scanner { rest: text, line: 1 }.collect();
    let mut part = ShippedPart::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at = match token {
            Token::Mark('#') => match read_attribute(&tokens, at) {
                Some(attribute) if attribute.is_test() && attribute.is_inner => return ShippedPart::default(),
                Some(attribute) if attribute.is_test() => {
                    part.test_modules.extend(module_elsewhere(&tokens, attribute.end));
                    item_end(&tokens, attribute.end)
                }
                Some(attribute) if attribute.has_text() => at + 1,
                Some(attribute) => attribute.end,
                None => at + 1,
            },
            Token::Word(name) if SILENT_MACROS.contains(name) && is_mark(&tokens, at + 1, '!') => {
                group_end(&tokens, at + 2)
            }
            Token::Text(line, text) => {
                if !is_compared(&tokens, at) {
                    let (line, text) = (*line, text.clone());
                    part.literals.push(Literal { line, text });
                }
                at + 1
            }
            _ => at + 1,
        };
    }
    part
}

/// Checks whether the text at this token is a pattern, or an operand of a comparison.
fn is_compared(tokens: &[Token<'_>], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|at| tokens.get(at));
    let is_pattern = is_mark(tokens, at + 1, '=') && is_mark(tokens, at + 2, '>');
    let is_operand = matches!(before(1), Some(Token::Mark('='))) && matches!(before(2), Some(Token::Mark('=' | '!')));
    let is_argument = matches!(before(1), Some(Token::Mark('(')))
        && matches!(before(2), Some(Token::Word(name)) if COMPARISONS.contains(name));
    is_pattern || is_operand || is_argument
}

/// One attribute: its content, and the token after it.
struct Attribute<'a> {
    words: Vec<&'a str>,
    is_inner: bool,
    end: usize,
}

impl Attribute<'_> {
    /// Checks whether the item below is compiled for tests or fuzzing only.
    fn is_test(&self) -> bool {
        match self.words.as_slice() {
            ["cfg", condition @ ..] => {
                !condition.contains(&"not") && condition.iter().any(|word| matches!(*word, "test" | "fuzzing"))
            }
            ["test"] | [_, "test", ..] => true,
            _ => false,
        }
    }

    fn has_text(&self) -> bool {
        self.words
            .first()
            .is_some_and(|name| ATTRIBUTES_WITH_TEXT.contains(name))
    }
}

/// Reads the attribute that begins at this token.
fn read_attribute<'a>(tokens: &[Token<'a>], at: usize) -> Option<Attribute<'a>> {
    let is_inner = is_mark(tokens, at + 1, '!');
    let open = if is_inner { at + 2 } else { at + 1 };
    if !is_mark(tokens, at, '#') || !is_mark(tokens, open, '[') {
        return None;
    }
    let end = group_end(tokens, open);
    let words = list_words(tokens, open..end).collect();
    Some(Attribute { words, is_inner, end })
}

fn list_words<'t, 'a>(tokens: &'t [Token<'a>], range: Range<usize>) -> impl Iterator<Item = &'a str> + use<'t, 'a> {
    let tokens = tokens.get(range).unwrap_or_default();
    tokens.iter().filter_map(|token| match token {
        Token::Word(word) => Some(*word),
        _ => None,
    })
}

/// The token at which an item ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemEnd {
    /// A block, such as the body of a function. Without a block, a semicolon.
    Block,
    Semicolon,
    /// A field, a variant or an expression: a comma, too.
    Comma,
}

/// Returns the token after the item that begins here, perhaps with attributes.
fn item_end(tokens: &[Token<'_>], from: usize) -> usize {
    let (mut at, end) = item_kind(tokens, from);
    loop {
        at = match tokens.get(at) {
            None | Some(Token::Mark('}' | ')' | ']')) => return at,
            Some(Token::Mark('{')) => {
                let after = group_end(tokens, at);
                if end != ItemEnd::Semicolon {
                    return after;
                }
                after
            }
            Some(Token::Mark('(' | '[')) => group_end(tokens, at),
            Some(Token::Mark(';')) => return at + 1,
            Some(Token::Mark(',')) if end == ItemEnd::Comma => return at + 1,
            Some(_) => at + 1,
        }
    }
}

/// Finds the keyword of an item, and how the item ends.
fn item_kind(tokens: &[Token<'_>], from: usize) -> (usize, ItemEnd) {
    let mut at = from;
    loop {
        if let Some(attribute) = read_attribute(tokens, at) {
            at = attribute.end;
            continue;
        }
        match tokens.get(at) {
            Some(Token::Word("pub")) if is_mark(tokens, at + 1, '(') => at = group_end(tokens, at + 1),
            Some(Token::Word("pub" | "async" | "unsafe" | "extern") | Token::Text(..)) => at += 1,
            Some(Token::Word("const"))
                if matches!(tokens.get(at + 1), Some(Token::Word("fn" | "async" | "unsafe"))) =>
            {
                at += 1;
            }
            Some(Token::Word("enum" | "fn" | "impl" | "macro_rules" | "mod" | "struct" | "trait")) => {
                return (at, ItemEnd::Block);
            }
            Some(Token::Word("const" | "let" | "static" | "type" | "use")) => return (at, ItemEnd::Semicolon),
            _ => return (at, ItemEnd::Comma),
        }
    }
}

/// Returns the name of the module if the item here is `mod name;`.
fn module_elsewhere(tokens: &[Token<'_>], from: usize) -> Option<String> {
    let (at, _) = item_kind(tokens, from);
    match (tokens.get(at)?, tokens.get(at + 1)?, tokens.get(at + 2)?) {
        (Token::Word("mod"), Token::Word(name), Token::Mark(';')) => Some((*name).to_owned()),
        _ => None,
    }
}

/// Returns the token after the group of brackets that opens here.
fn group_end(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = open;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            Token::Mark('(' | '[' | '{') => depth += 1,
            Token::Mark(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn is_mark(tokens: &[Token<'_>], at: usize, wanted: char) -> bool {
    matches!(tokens.get(at), Some(Token::Mark(mark)) if *mark == wanted)
}

/// One token. Comments, lifetimes, characters and bytes are none.
#[derive(Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A name, a keyword or a number.
    Word(&'a str),
    Mark(char),
    /// A string literal, and its line.
    Text(usize, String),
}

struct Scanner<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Iterator for Scanner<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.take_bytes(blank);
            let first = self.rest.chars().next()?;
            if self.rest.starts_with("//") {
                self.take_bytes(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if self.rest.starts_with("/*") {
                self.take_bytes(block_comment_length(self.rest));
            } else if let Some((prefix, hashes)) = raw_prefix(self.rest) {
                if let Some(text) = self.take_raw_text(prefix, hashes) {
                    return Some(text);
                }
            } else if self.rest.starts_with("b\"") || self.rest.starts_with("c\"") {
                self.take_bytes(1);
                self.take_text();
            } else if first == '"' {
                return Some(self.take_text());
            } else if self.rest.starts_with("b'") {
                self.take_bytes(1);
                self.take_bytes(quote_length(self.rest));
            } else if first == '\'' {
                self.take_bytes(quote_length(self.rest));
            } else if is_name(first) {
                let length = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
                return Some(Token::Word(self.take_bytes(length)));
            } else {
                self.take_bytes(first.len_utf8());
                return Some(Token::Mark(first));
            }
        }
    }
}

impl<'a> Scanner<'a> {
    fn take_bytes(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.line += taken.matches('\n').count();
        taken
    }

    /// Takes a literal with escapes.
    fn take_text(&mut self) -> Token<'a> {
        let line = self.line;
        self.take_bytes(1);
        let mut is_escaped = false;
        let end = self.rest.char_indices().find(|(_, c)| {
            let is_end = *c == '"' && !is_escaped;
            is_escaped = *c == '\\' && !is_escaped;
            is_end
        });
        let length = end.map_or(self.rest.len(), |(at, _)| at);
        let text = unescape_text(self.take_bytes(length));
        self.take_bytes(1);
        Token::Text(line, text)
    }

    /// Takes a raw literal. Bytes are no text.
    fn take_raw_text(&mut self, prefix: usize, hashes: usize) -> Option<Token<'a>> {
        let line = self.line;
        let is_text = self.rest.starts_with('r');
        self.take_bytes(prefix);
        let closing = format!("\"{}", "#".repeat(hashes));
        let length = self.rest.find(&closing).unwrap_or(self.rest.len());
        let text = self.take_bytes(length).to_owned();
        self.take_bytes(closing.len());
        is_text.then_some(Token::Text(line, text))
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length up to the text of a raw literal, and the number of `#`.
fn raw_prefix(rest: &str) -> Option<(usize, usize)> {
    let after = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let quote = after.trim_start_matches('#');
    quote
        .starts_with('"')
        .then_some((rest.len() - quote.len() + 1, after.len() - quote.len()))
}

fn block_comment_length(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(tail) = rest.get(at..).filter(|tail| !tail.is_empty()) {
        if tail.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with("*/") {
            depth = depth.saturating_sub(1);
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += tail.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Returns the length of a character literal, or 1 for the quote of a lifetime.
fn quote_length(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => {
            // The escaped character can be a quote, too.
            let end = characters.skip(1).find(|(_, c)| *c == '\'');
            end.map_or(rest.len(), |(at, _)| at + 1)
        }
        Some((_, c)) if c != '\'' => match characters.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        _ => 1,
    }
}

fn unescape_text(body: &str) -> String {
    let mut text = String::with_capacity(body.len());
    let mut rest = body;
    while let Some((before, escaped)) = rest.split_once('\\') {
        text.push_str(before);
        let mut characters = escaped.chars();
        rest = match characters.next() {
            Some('\n' | '\r') => escaped.trim_start(),
            Some('u') => {
                let (digits, after) = escaped.split_once('}').unwrap_or((escaped, ""));
                text.extend(parse_character(digits.trim_start_matches("u{")));
                after
            }
            Some('x') => {
                let (digits, after) = escaped.split_at_checked(3).unwrap_or((escaped, ""));
                text.extend(parse_character(digits.trim_start_matches('x')));
                after
            }
            Some(c) => {
                text.push(match c {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    '0' => '\0',
                    other => other,
                });
                characters.as_str()
            }
            None => "",
        };
    }
    text.push_str(rest);
    text
}

fn parse_character(hexadecimal: &str) -> Option<char> {
    u32::from_str_radix(hexadecimal, 16).ok().and_then(char::from_u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, want: &[(usize, &str)]) {
        let part = read_shipped_part(code);
        let got: Vec<(usize, &str)> = part
            .literals
            .iter()
            .map(|literal| (literal.line, literal.text.as_str()))
            .collect();
        assert_eq!(got, want, "{code}");
    }

    #[test]
    fn continued_literals_are_one_line() {
        check("f(\"a \\\n      b\");\ng(\"c\")", &[(1, "a b"), (3, "c")]);
        check("\"a\\\n\n  b\" \"c\"", &[(1, "ab"), (3, "c")]);
        check("\"a\n  b\"\n\"c\"", &[(1, "a\n  b"), (3, "c")]);
    }

    #[test]
    fn raw_strings_have_no_escapes() {
        check(
            r##"r"\n" r#"a "b" // c"# "d""##,
            &[(1, r"\n"), (1, "a \"b\" // c"), (1, "d")],
        );
        check("r##\"a\"#\nb\"## \"c\"", &[(1, "a\"#\nb"), (2, "c")]);
        check("r#type \"a\" for_\"b\"", &[(1, "a"), (1, "b")]);
        check("br#\"a\"# cr\"b\" b\"c\" c\"d\" \"e\"", &[(1, "e")]);
    }

    #[test]
    fn escapes() {
        check(
            r#""a\"b\\" "\n\t\r\0\'" "\u{2192}\x41" "\\" "é\é""#,
            &[(1, "a\"b\\"), (1, "\n\t\r\0'"), (1, "→A"), (1, "\\"), (1, "éé")],
        );
    }

    #[test]
    fn comments_and_characters_hold_no_literals() {
        check(
            "/* \"a\" /* \"b\" */ \"c\" */ \"d\" // \"e\"\n\"f\"",
            &[(1, "d"), (2, "f")],
        );
        check("/// \"a\"\n//! \"b\"\n\"c\"", &[(3, "c")]);
        check("'\"' '\\'' '\\\\' b'\"' '\\u{22}' \"a\"", &[(1, "a")]);
        check("fn a<'a>(b: &'a str) { \"b\" }", &[(1, "b")]);
        check("\"// a\" \"/* b\" \"c\"", &[(1, "// a"), (1, "/* b"), (1, "c")]);
    }

    #[test]
    fn test_code_is_left_out() {
        check(
            "\"a\"\n#[cfg(test)]\nmod tests {\n fn f() { \"b\" }\n}\n\"c\"",
            &[(1, "a"), (6, "c")],
        );
        check(
            "#[cfg(any(test, fuzzing))]\npub mod fuzzing { \"a\" } \"b\"",
            &[(2, "b")],
        );
        check(
            "#[test]\nfn a() { \"b\" }\n#[tokio::test(flavor = \"x\")] async fn c() { \"d\" } \"e\"",
            &[(3, "e")],
        );
        check(
            "#[cfg(test)]\n#[expect(x, reason = \"a\")]\npub(crate) fn f<A, B>(a: A, b: B) -> C { \"b\" } \"c\"",
            &[(3, "c")],
        );
        check("#[cfg(test)] use a::{b, c}; \"d\"", &[(1, "d")]);
        check("#[cfg(test)] const A: &[B] = &[B { c: \"d\" }]; \"e\"", &[(1, "e")]);
        check("#[cfg(test)] const fn a() { \"b\" } \"c\"", &[(1, "c")]);
        check("A { #[cfg(test)] b: \"c\", d: \"e\" } \"f\"", &[(1, "e"), (1, "f")]);
        check("A { #[cfg(test)] b: \"c\" } \"f\"", &[(1, "f")]);
        check("#![cfg(test)]\n\"a\"", &[]);
        check("#[cfg(not(test))] const A: &str = \"a\";", &[(1, "a")]);
        check("#[cfg(unix)] const A: &str = \"a\";", &[(1, "a")]);
    }

    #[test]
    fn test_modules_of_other_files_are_named() {
        let part =
            read_shipped_part("mod a;\n#[cfg(test)]\nmod tests;\n#[cfg(any(test, fuzzing))]\npub(crate) mod fuzzing;");
        assert_eq!(part.test_modules, ["tests", "fuzzing"]);
    }

    #[test]
    fn only_error_and_flag_attributes_hold_messages() {
        check("#[expect(a, reason = \"b\")] fn c() { \"d\" }", &[(1, "d")]);
        check("#![doc = \"a\"] #[serde(rename = \"b\")] c \"d\"", &[(1, "d")]);
        check(
            "#[error(\"{0}: a\")] #[arg(help = \"b\")] C",
            &[(1, "{0}: a"), (1, "b")],
        );
    }

    #[test]
    fn silent_texts_are_left_out() {
        check(
            "include_str!(\"a\") concat!(\"b\") debug_assert!(c, \"d\") \"e\"",
            &[(1, "b"), (1, "e")],
        );
        check(
            "a.contains(\"b\") a == \"c\" a != \"d\" a = \"e\" f(\"g\")",
            &[(1, "e"), (1, "g")],
        );
        check("match a { \"b\" => \"c\", _ => \"d\" }", &[(1, "c"), (1, "d")]);
    }

    #[test]
    fn any_text_is_read() {
        for text in [
            "'",
            "'\\",
            "\"\\",
            "\"\\u{",
            "\"\\x",
            "r#\"",
            "/*",
            "/* é",
            "#[",
            "#![cfg(test",
            "#[cfg(test)]",
            "'é",
            "b'",
            "\\é'",
        ] {
            read_shipped_part(text);
        }
    }
}
