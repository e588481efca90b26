//! Splits a text into tokens. Errors have Kubernetes' words.

use std::sync::Arc;

use crate::ast::Literal;
use crate::source::Problem;

/// A token and its position.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) position: usize,
    /// The text as written.
    pub(crate) text: String,
}

/// The kind of a token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TokenKind {
    Punctuation,
    /// `in`: an operator, and no name.
    In,
    Identifier,
    /// A name in backquotes.
    Escaped,
    /// A number or text; `Err` contains the reason for an invalid value.
    Literal(Result<Literal, String>),
    /// Digits without a sign. The parser reads the value together with its sign.
    Integer,
    Float,
    End,
}

/// Splits an expression. Letters that begin no token are reported and left out.
pub(crate) fn split_tokens(source: &[char]) -> (Vec<Token>, Vec<Problem>) {
    let mut lexer = Lexer { source, at: 0 };
    let (mut tokens, mut problems) = (Vec::new(), Vec::new());
    loop {
        lexer.skip_blank();
        let position = lexer.at;
        let Some(first) = lexer.peek(0) else { break };
        match lexer.read_token(first) {
            Some(kind) => tokens.push(Token {
                kind,
                position,
                text: lexer.text_between(position, lexer.at),
            }),
            None => {
                let shown = lexer.text_between(position, lexer.at);
                problems.push(Problem {
                    position,
                    message: format!("Syntax error: token recognition error at: '{shown}'"),
                });
            }
        }
    }
    tokens.push(Token {
        kind: TokenKind::End,
        position: source.len(),
        text: "<EOF>".to_owned(),
    });
    (tokens, problems)
}

/// The source of an expression, and the position of the next character.
struct Lexer<'a> {
    source: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.source.get(self.at + ahead).copied()
    }

    fn text_between(&self, from: usize, to: usize) -> String {
        let to = to.min(self.source.len());
        self.source.get(from..to).unwrap_or_default().iter().collect()
    }

    fn skip_blank(&mut self) {
        while let Some(letter) = self.peek(0) {
            match letter {
                ' ' | '\t' | '\n' | '\r' | '\u{c}' => self.at += 1,
                '/' if self.peek(1) == Some('/') => {
                    while self.peek(0).is_some_and(|letter| letter != '\n') {
                        self.at += 1;
                    }
                }
                _ => break,
            }
        }
    }

    /// Reads a token; `None` after moving past text that is no token.
    fn read_token(&mut self, first: char) -> Option<TokenKind> {
        let second = self.peek(1);
        match first {
            '0'..='9' => return Some(self.read_number()),
            '.' if second.is_some_and(|letter| letter.is_ascii_digit()) => return Some(self.read_number()),
            '"' | '\'' => return self.read_string(false, false),
            '`' => return self.read_escaped(),
            'a'..='z' | 'A'..='Z' | '_' => return self.read_word(first),
            _ => {}
        }
        let length = match (first, second) {
            ('=' | '!' | '<' | '>', Some('=')) | ('&', Some('&')) | ('|', Some('|')) => 2,
            ('<' | '>' | '!' | '[' | ']' | '{' | '}' | '(' | ')' | '.' | ',' | '-' | '?' | ':' | '+', _)
            | ('*' | '/' | '%', _) => 1,
            // The letter that would have to be doubled takes the next one with it.
            ('=' | '&' | '|', Some(_)) => {
                self.at += 2;
                return None;
            }
            _ => {
                self.at += 1;
                return None;
            }
        };
        self.at += length;
        Some(TokenKind::Punctuation)
    }

    fn read_word(&mut self, first: char) -> Option<TokenKind> {
        // Prefixes of texts: r"…", b"…", br"…".
        let quote = |letter: Option<char>| matches!(letter, Some('"' | '\''));
        let (bytes, raw, prefix) = match (first, self.peek(1)) {
            ('r' | 'R', next) if quote(next) => (false, true, 1),
            ('b' | 'B', next) if quote(next) => (true, false, 1),
            ('b' | 'B', Some('r' | 'R')) if quote(self.peek(2)) => (true, true, 2),
            _ => (false, false, 0),
        };
        if prefix > 0 {
            self.at += prefix;
            return self.read_string(bytes, raw);
        }
        let start = self.at;
        while self
            .peek(0)
            .is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        {
            self.at += 1;
        }
        Some(match self.text_between(start, self.at).as_str() {
            "true" => TokenKind::Literal(Ok(Literal::Bool(true))),
            "false" => TokenKind::Literal(Ok(Literal::Bool(false))),
            "null" => TokenKind::Literal(Ok(Literal::Null)),
            "in" => TokenKind::In,
            _ => TokenKind::Identifier,
        })
    }

    fn read_escaped(&mut self) -> Option<TokenKind> {
        let mut length = 1;
        while let Some(letter) = self.peek(length) {
            match letter {
                '`' if length > 1 => {
                    self.at += length + 1;
                    return Some(TokenKind::Escaped);
                }
                '_' | '.' | '-' | '/' | ' ' => length += 1,
                letter if letter.is_ascii_alphanumeric() => length += 1,
                _ => break,
            }
        }
        self.at += length;
        None
    }

    fn skip_digits(&mut self) {
        while self.peek(0).is_some_and(|letter| letter.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn read_number(&mut self) -> TokenKind {
        let start = self.at;
        let hexadecimal = self.peek(0) == Some('0')
            && self.peek(1) == Some('x')
            && self.peek(2).is_some_and(|letter| letter.is_ascii_hexdigit());
        let mut float = false;
        if hexadecimal {
            self.at += 2;
            while self.peek(0).is_some_and(|letter| letter.is_ascii_hexdigit()) {
                self.at += 1;
            }
        } else {
            self.skip_digits();
            if self.peek(0) == Some('.') && self.peek(1).is_some_and(|letter| letter.is_ascii_digit()) {
                float = true;
                self.at += 1;
                self.skip_digits();
            }
            if matches!(self.peek(0), Some('e' | 'E')) {
                let signed = usize::from(matches!(self.peek(1), Some('+' | '-')));
                if self.peek(1 + signed).is_some_and(|letter| letter.is_ascii_digit()) {
                    float = true;
                    self.at += 1 + signed;
                    self.skip_digits();
                }
            }
        }
        if float {
            return TokenKind::Float;
        }
        if matches!(self.peek(0), Some('u' | 'U')) {
            let digits = self.text_between(start, self.at);
            self.at += 1;
            let value = match digits.strip_prefix("0x") {
                Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16),
                None => digits.parse(),
            };
            return TokenKind::Literal(value.map(Literal::Uint).map_err(|_| "invalid uint literal".to_owned()));
        }
        TokenKind::Integer
    }

    /// Reads a text from its opening quote on.
    fn read_string(&mut self, bytes: bool, raw: bool) -> Option<TokenKind> {
        let quote = self.peek(0)?;
        let start = self.at;
        let triple = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let width = if triple { 3 } else { 1 };
        self.at += width;
        let mut content = Vec::new();
        let mut unfit = None;
        loop {
            let letter = match self.peek(0) {
                Some(letter) => letter,
                // Three quotes that are not closed are an empty text and one that is open.
                None if triple => {
                    self.at = start + 2;
                    let empty = if bytes {
                        Literal::Bytes(Arc::from([]))
                    } else {
                        Literal::String(Arc::from(""))
                    };
                    return Some(TokenKind::Literal(Ok(empty)));
                }
                None => return None,
            };
            let closes = letter == quote && (!triple || (self.peek(1) == Some(quote) && self.peek(2) == Some(quote)));
            if closes {
                self.at += width;
                break;
            }
            match letter {
                '\n' | '\r' if !triple => return None,
                '\\' if !raw => match self.read_escape(bytes, &mut content) {
                    Some(Ok(())) => {}
                    Some(Err(problem)) => unfit = unfit.or(Some(problem)),
                    None => return None,
                },
                // Line ends are one letter, however they are written.
                '\r' => {
                    self.at += 1 + usize::from(self.peek(1) == Some('\n'));
                    content.push(b'\n');
                }
                letter => {
                    self.at += 1;
                    push_letter(&mut content, letter);
                }
            }
        }
        let value = match (unfit, bytes) {
            (Some(problem), _) => Err(problem),
            (None, true) => Ok(Literal::Bytes(content.into())),
            (None, false) => match String::from_utf8(content) {
                Ok(text) => Ok(Literal::String(Arc::from(text))),
                Err(_) => Err("invalid string literal: not UTF-8".to_owned()),
            },
        };
        Some(TokenKind::Literal(value))
    }

    /// Reads an escape; `None` for an unknown escape, after moving onto its wrong character.
    fn read_escape(&mut self, bytes: bool, content: &mut Vec<u8>) -> Option<Result<(), String>> {
        let letter = self.peek(1);
        let simple = match letter {
            Some('a') => Some('\u{7}'),
            Some('b') => Some('\u{8}'),
            Some('f') => Some('\u{c}'),
            Some('n') => Some('\n'),
            Some('r') => Some('\r'),
            Some('t') => Some('\t'),
            Some('v') => Some('\u{b}'),
            Some(same @ ('"' | '\'' | '\\' | '?' | '`')) => Some(same),
            _ => None,
        };
        if let Some(simple) = simple {
            self.at += 2;
            push_letter(content, simple);
            return Some(Ok(()));
        }
        let (skip, digits, radix) = match letter {
            Some('x' | 'X') => (2, 2, 16),
            Some('u') => (2, 4, 16),
            Some('U') => (2, 8, 16),
            Some('0'..='3') => (1, 3, 8),
            _ => {
                self.at += 2.min(self.source.len() - self.at);
                return None;
            }
        };
        let number = self.text_between(self.at + skip, self.at + skip + digits);
        let fine = number.chars().take_while(|letter| letter.is_digit(radix)).count();
        if fine < digits {
            // Up to and with the letter that should have been a digit.
            self.at = (self.at + skip + fine + 1).min(self.source.len());
            return None;
        }
        self.at += skip + digits;
        let value = u32::from_str_radix(&number, radix).unwrap_or(u32::MAX);
        let unicode = matches!(letter, Some('u' | 'U'));
        if bytes {
            if unicode {
                return Some(Err("unable to unescape string".to_owned()));
            }
            content.push(u8::try_from(value).unwrap_or_default());
            return Some(Ok(()));
        }
        Some(match char::from_u32(value) {
            Some(letter) => {
                push_letter(content, letter);
                Ok(())
            }
            None => Err("invalid unicode code point".to_owned()),
        })
    }
}

fn push_letter(content: &mut Vec<u8>, letter: char) {
    let mut buffer = [0; 4];
    content.extend_from_slice(letter.encode_utf8(&mut buffer).as_bytes());
}
