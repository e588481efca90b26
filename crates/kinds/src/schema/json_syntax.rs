//! Go's `encoding/json` errors for a text that is not JSON, as Kubernetes passes them to clients. This module finds the first invalid byte
//! and words the error. A text without such a byte is not checked further.

use super::go_quoted;

/// The depth of nesting that Go's reader refuses.
const DEEPEST: usize = 10_000;

/// Returns the first syntax error, in Go's words; `None` if the text is JSON.
pub fn find_syntax_error(body: &[u8]) -> Option<String> {
    let mut scanner = Scanner { body, at: 0 };
    scanner.scan_document().err().map(|fault| match fault {
        Fault::End => "unexpected end of JSON input".to_owned(),
        Fault::Byte(byte, context) => format!("invalid character {} {context}", quote_byte(byte)),
    })
}

/// Returns the text as Go reads it: bytes that are no UTF-8, and halves of surrogate pairs, are U+FFFD to it.
pub fn replace_invalid_text(body: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(body);
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let surrogate = |bytes: &[u8]| {
            let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
            let unit = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
            (0xd800..0xe000).contains(&unit).then_some(unit)
        };
        match (first, surrogate(rest)) {
            (b'\\', Some(unit)) => {
                let second = rest.get(6..).and_then(surrogate);
                let (escaped, length) = match second {
                    Some(second) if unit < 0xdc00 && second >= 0xdc00 => (rest.get(..12), 12),
                    _ => (Some(br"\ufffd".as_slice()), 6),
                };
                out.extend_from_slice(escaped.unwrap_or_default());
                rest = rest.get(length..).unwrap_or_default();
            }
            // Each other escape is read as a pair, so an escaped backslash begins no new escape.
            (b'\\', None) => {
                let (pair, after) = rest.split_at(rest.len().min(2));
                out.extend_from_slice(pair);
                rest = after;
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

/// Returns a byte as Go shows it: as a character of Latin-1, escaped if it can't be printed.
fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        0x80..=0xa0 | 0xad => format!(r"'\u{byte:04x}'"),
        _ => {
            let text = go_quoted(char::from(byte).encode_utf8(&mut [0; 4]));
            format!("'{}'", text.trim_matches('"'))
        }
    }
}

/// The place of a syntax error.
enum Fault {
    /// The text ends too early.
    End,
    /// The byte is invalid at its place.
    Byte(u8, String),
}

/// The text, and the position of the next byte.
struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
}

/// The next token that a container expects.
#[derive(Clone, Copy)]
enum Expected {
    /// A value in an array or after a key.
    Value,
    /// A value, or the end of an empty array.
    ValueOrEnd,
    /// A key, or the end of an empty object.
    KeyOrEnd,
    Key,
    Colon,
    /// A comma or the end.
    Separator,
}

impl Scanner<'_> {
    fn next(&mut self) -> Result<u8, Fault> {
        let byte = self.body.get(self.at).copied().ok_or(Fault::End)?;
        self.at += 1;
        Ok(byte)
    }

    fn skip_space(&mut self) {
        while self.body.get(self.at).is_some_and(|byte| b" \t\r\n".contains(byte)) {
            self.at += 1;
        }
    }

    /// Reads a value with a loop instead of recursion, because the sender chooses the depth of nesting.
    fn scan_document(&mut self) -> Result<(), Fault> {
        // For each open container, whether it is an object.
        let mut open: Vec<bool> = Vec::new();
        let mut expected = Expected::Value;
        loop {
            self.skip_space();
            let ends = open.is_empty() && matches!(expected, Expected::Separator);
            if ends && self.at == self.body.len() {
                return Ok(());
            }
            let byte = self.next()?;
            if ends {
                return Err(Fault::Byte(byte, "after top-level value".to_owned()));
            }
            let in_object = open.last() == Some(&true);
            expected = match (expected, byte) {
                (Expected::ValueOrEnd, b']') | (Expected::KeyOrEnd, b'}') => {
                    open.pop();
                    Expected::Separator
                }
                (Expected::Separator, b']') if !in_object => {
                    open.pop();
                    Expected::Separator
                }
                (Expected::Separator, b'}') if in_object => {
                    open.pop();
                    Expected::Separator
                }
                (Expected::Separator, b',') => {
                    if in_object {
                        Expected::Key
                    } else {
                        Expected::Value
                    }
                }
                (Expected::Separator, _) => {
                    let context = if in_object {
                        "after object key:value pair"
                    } else {
                        "after array element"
                    };
                    return Err(Fault::Byte(byte, context.to_owned()));
                }
                (Expected::Colon, b':') => Expected::Value,
                (Expected::Colon, _) => return Err(Fault::Byte(byte, "after object key".to_owned())),
                (Expected::Key | Expected::KeyOrEnd, b'"') => {
                    self.scan_string()?;
                    Expected::Colon
                }
                (Expected::Key | Expected::KeyOrEnd, _) => {
                    let context = "looking for beginning of object key string";
                    return Err(Fault::Byte(byte, context.to_owned()));
                }
                (Expected::Value | Expected::ValueOrEnd, b'{' | b'[') => {
                    if open.len() >= DEEPEST {
                        return Err(Fault::Byte(byte, "exceeded max depth".to_owned()));
                    }
                    open.push(byte == b'{');
                    if byte == b'{' {
                        Expected::KeyOrEnd
                    } else {
                        Expected::ValueOrEnd
                    }
                }
                (Expected::Value | Expected::ValueOrEnd, _) => {
                    self.scan_scalar(byte)?;
                    Expected::Separator
                }
            };
        }
    }

    fn scan_scalar(&mut self, first: u8) -> Result<(), Fault> {
        match first {
            b'"' => self.scan_string(),
            b't' => self.scan_rest_of_literal("true"),
            b'f' => self.scan_rest_of_literal("false"),
            b'n' => self.scan_rest_of_literal("null"),
            b'-' => {
                let digit = self.next()?;
                if !digit.is_ascii_digit() {
                    return Err(Fault::Byte(digit, "in numeric literal".to_owned()));
                }
                self.scan_number(digit)
            }
            b'0'..=b'9' => self.scan_number(first),
            _ => Err(Fault::Byte(first, "looking for beginning of value".to_owned())),
        }
    }

    /// Scans a literal after its first byte, which `scan_scalar` has read.
    fn scan_rest_of_literal(&mut self, word: &str) -> Result<(), Fault> {
        for wanted in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != wanted {
                let context = format!("in literal {word} (expecting {})", quote_byte(wanted));
                return Err(Fault::Byte(byte, context));
            }
        }
        Ok(())
    }

    fn scan_digits(&mut self) {
        while self.body.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn scan_number(&mut self, first: u8) -> Result<(), Fault> {
        if first != b'0' {
            self.scan_digits();
        }
        if self.body.get(self.at) == Some(&b'.') {
            self.at += 1;
            let digit = self.next()?;
            if !digit.is_ascii_digit() {
                return Err(Fault::Byte(digit, "after decimal point in numeric literal".to_owned()));
            }
            self.scan_digits();
        }
        if matches!(self.body.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            let mut digit = self.next()?;
            if matches!(digit, b'+' | b'-') {
                digit = self.next()?;
            }
            if !digit.is_ascii_digit() {
                return Err(Fault::Byte(digit, "in exponent of numeric literal".to_owned()));
            }
            self.scan_digits();
        }
        Ok(())
    }

    fn scan_string(&mut self) -> Result<(), Fault> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let digit = self.next()?;
                            if !digit.is_ascii_hexdigit() {
                                let context = r"in \u hexadecimal character escape";
                                return Err(Fault::Byte(digit, context.to_owned()));
                            }
                        }
                    }
                    other => return Err(Fault::Byte(other, "in string escape code".to_owned())),
                },
                byte @ 0..0x20 => return Err(Fault::Byte(byte, "in string literal".to_owned())),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from Go 1.26's `json.Unmarshal`.
    #[test]
    fn faults() {
        for (text, want) in [
            ("", "unexpected end of JSON input"),
            (" ", "unexpected end of JSON input"),
            ("[", "unexpected end of JSON input"),
            ("{}x", "invalid character 'x' after top-level value"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("\u{0}", r"invalid character '\x00' looking for beginning of value"),
            ("'", r"invalid character '\'' looking for beginning of value"),
            ("{1", "invalid character '1' looking for beginning of object key string"),
            ("{\"a\" 1", "invalid character '1' after object key"),
            ("{\"a\":1 \"", "invalid character '\"' after object key:value pair"),
            (
                "{\"a\":1,}",
                "invalid character '}' looking for beginning of object key string",
            ),
            ("[1 2", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("[}", "invalid character '}' looking for beginning of value"),
            ("\"\n\"", r"invalid character '\n' in string literal"),
            ("\"\\x", "invalid character 'x' in string escape code"),
            ("\"\\u00g", r"invalid character 'g' in \u hexadecimal character escape"),
            ("tru\\", r"invalid character '\\' in literal true (expecting 'e')"),
            ("nil", "invalid character 'i' in literal null (expecting 'u')"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1e+x", "invalid character 'x' in exponent of numeric literal"),
            ("{}\u{7f}", r"invalid character '\x7f' after top-level value"),
            ("ä", "invalid character 'Ã' looking for beginning of value"),
        ] {
            assert_eq!(find_syntax_error(text.as_bytes()).as_deref(), Some(want), "{text:?}");
        }
        for text in [
            "{}",
            " [1, -0.5e+7, null, true, {\"a\": \"\\u00e4\\n\"}]\n",
            "\"ä\"",
            "0",
        ] {
            assert_eq!(find_syntax_error(text.as_bytes()), None, "{text}");
        }
        let deep = "[".repeat(20_000);
        assert_eq!(
            find_syntax_error(deep.as_bytes()).as_deref(),
            Some("invalid character '[' exceeded max depth")
        );
    }

    #[test]
    fn halves_of_pairs() {
        for (text, want) in [
            (r#""\ud800""#, r#""\ufffd""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\\ud800""#, r#""\\ud800""#),
            (r#""\ud800\n""#, r#""\ufffd\n""#),
        ] {
            assert_eq!(replace_invalid_text(text.as_bytes()), want.as_bytes(), "{text}");
        }
        assert_eq!(replace_invalid_text(b"\"\xff\""), "\"\u{fffd}\"".as_bytes());
    }
}
