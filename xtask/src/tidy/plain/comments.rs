//! Finds the comments of a Rust file. Strings, raw strings and character literals can contain `//` and `/*`, so the reader skips them. A file with
//! errors is read as far as possible.

/// The form of a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `///` or `/** */`: documents the item below.
    Doc,
    /// `//!` or `/*! */`: documents the module or crate around it.
    Module,
    /// `//` or `/* */`.
    Plain,
}

/// One comment: consecutive lines of the same form, or one block.
#[derive(Debug)]
pub(super) struct Comment<'a> {
    /// The form of all lines.
    pub(super) form: Form,
    /// Each line's number in the file, and its text without the marker.
    pub(super) lines: Vec<(usize, &'a str)>,
}

/// The construct in which the reader is between two lines: code, a string, or a block comment.
enum Inside {
    Code,
    /// A string with escapes.
    Text,
    /// A raw string, and the number of `#` at its end.
    RawText(usize),
    /// A block comment, and its depth.
    Block(usize),
}

/// Lists the comments of a file.
pub(super) fn find_comments(text: &str) -> Vec<Comment<'_>> {
    let mut reader = Reader {
        inside: Inside::Code,
        found: Vec::new(),
        is_open: false,
    };
    for (number, line) in text.lines().enumerate() {
        reader.read_line(number + 1, line);
    }
    reader.found
}

struct Reader<'a> {
    inside: Inside,
    found: Vec<Comment<'a>>,
    /// The next line can continue the last comment.
    is_open: bool,
}

impl<'a> Reader<'a> {
    fn read_line(&mut self, number: usize, line: &'a str) {
        let was_open = std::mem::take(&mut self.is_open);
        let mut at = 0;
        while at < line.len() {
            at = match self.inside {
                Inside::Code => self.read_code(number, line, at, was_open),
                Inside::Text => self.read_text(line, at),
                Inside::RawText(hashes) => self.read_raw_text(line, at, hashes),
                Inside::Block(depth) => self.read_block(number, line, at, depth),
            };
        }
    }

    /// Reads code up to the next string or comment. A line comment takes the whole line.
    fn read_code(&mut self, number: usize, line: &'a str, from: usize, was_open: bool) -> usize {
        let Some(at) = find_any(line, from, &['/', '"', '\'']) else {
            return line.len();
        };
        let rest = find_tail(line, at);
        if rest.starts_with("//") {
            let is_alone = line.get(..at).is_some_and(|code| code.trim().is_empty());
            self.add_line(number, rest, is_alone, was_open);
            line.len()
        } else if rest.starts_with("/*") {
            let (form, marker) = if rest.starts_with("/*!") {
                (Form::Module, 3)
            } else if rest.starts_with("/**") && !rest.starts_with("/***") && !rest.starts_with("/**/") {
                (Form::Doc, 3)
            } else {
                (Form::Plain, 2)
            };
            self.inside = Inside::Block(1);
            let lines = Vec::new();
            self.found.push(Comment { form, lines });
            at + marker
        } else if rest.starts_with('"') {
            let before = line.get(..at).unwrap_or_default();
            self.inside = raw_hashes(before).map_or(Inside::Text, Inside::RawText);
            at + 1
        } else if rest.starts_with('\'') {
            at + quote_length(rest)
        } else {
            at + 1
        }
    }

    fn add_line(&mut self, number: usize, comment: &'a str, is_alone: bool, was_open: bool) {
        let (form, text) = if let Some(text) = comment.strip_prefix("//!") {
            (Form::Module, text)
        } else if let Some(text) = comment.strip_prefix("///").filter(|text| !text.starts_with('/')) {
            (Form::Doc, text)
        } else {
            (Form::Plain, comment.trim_start_matches('/'))
        };
        let text = text.strip_prefix(' ').unwrap_or(text);
        self.is_open = is_alone;
        match self.found.last_mut() {
            Some(last) if was_open && is_alone && last.form == form => last.lines.push((number, text)),
            _ => {
                let lines = vec![(number, text)];
                self.found.push(Comment { form, lines });
            }
        }
    }

    fn read_text(&mut self, line: &str, from: usize) -> usize {
        let Some(at) = find_any(line, from, &['"', '\\']) else {
            return line.len();
        };
        if let Some(escaped) = find_tail(line, at).strip_prefix('\\') {
            return at + 1 + escaped.chars().next().map_or(0, char::len_utf8);
        }
        self.inside = Inside::Code;
        at + 1
    }

    fn read_raw_text(&mut self, line: &str, from: usize, hashes: usize) -> usize {
        let Some(at) = find_any(line, from, &['"']) else {
            return line.len();
        };
        let after = find_tail(line, at + 1);
        let closing = after.bytes().take(hashes).filter(|byte| *byte == b'#').count();
        if closing == hashes {
            self.inside = Inside::Code;
        }
        at + 1
    }

    /// Reads a block comment up to its end, or up to the end of the line.
    fn read_block(&mut self, number: usize, line: &'a str, from: usize, mut depth: usize) -> usize {
        let mut at = from;
        let mut end = line.len();
        while let Some(next) = find_any(line, at, &['/', '*']) {
            let rest = find_tail(line, next);
            if rest.starts_with("/*") {
                depth += 1;
                at = next + 2;
            } else if rest.starts_with("*/") {
                depth -= 1;
                at = next + 2;
                if depth == 0 {
                    end = next;
                    break;
                }
            } else {
                at = next + 1;
            }
        }
        let text = line.get(from..end).unwrap_or_default();
        let text = if from == 0 { without_star(text) } else { text };
        if let Some(comment) = self.found.last_mut() {
            comment.lines.push((number, text.strip_prefix(' ').unwrap_or(text)));
        }
        if depth == 0 {
            self.inside = Inside::Code;
            end + 2
        } else {
            self.inside = Inside::Block(depth);
            line.len()
        }
    }
}

/// Removes the `*` with which many block comments begin each line.
fn without_star(text: &str) -> &str {
    let trimmed = text.trim_start();
    match trimmed.strip_prefix('*') {
        Some(rest) if rest.is_empty() || rest.starts_with(' ') => rest,
        _ => text,
    }
}

/// Returns the number of `#` if the quote after this code begins a raw string.
fn raw_hashes(before: &str) -> Option<usize> {
    let prefix = before.trim_end_matches('#');
    let hashes = before.len() - prefix.len();
    let code = prefix.strip_suffix('r')?;
    let code = code.strip_suffix(['b', 'c']).unwrap_or(code);
    let is_name = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    (!is_name).then_some(hashes)
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

/// Finds the first of some characters. One search for each is faster than one for all: each passes many bytes in one step.
fn find_any(line: &str, from: usize, wanted: &[char]) -> Option<usize> {
    let mut rest = line.get(from..)?;
    let mut first = None;
    for character in wanted {
        if let Some(at) = rest.find(*character) {
            rest = rest.get(..at)?;
            first = Some(from + at);
        }
    }
    first
}

fn find_tail(line: &str, from: usize) -> &str {
    line.get(from..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, want: &[(Form, &[(usize, &str)])]) {
        let got: Vec<(Form, Vec<(usize, &str)>)> = find_comments(code)
            .into_iter()
            .map(|comment| (comment.form, comment.lines))
            .collect();
        let want: Vec<(Form, Vec<(usize, &str)>)> = want.iter().map(|(form, lines)| (*form, lines.to_vec())).collect();
        assert_eq!(got, want, "{code}");
    }

    #[test]
    fn line_comments() {
        use Form::*;
        check("// a\n// b\n", &[(Plain, &[(1, "a"), (2, "b")])]);
        check(
            "//! a\n/// b\n// c\n",
            &[(Module, &[(1, "a")]), (Doc, &[(2, "b")]), (Plain, &[(3, "c")])],
        );
        check("// a\n\n    // b\n", &[(Plain, &[(1, "a")]), (Plain, &[(3, "b")])]);
        check("///   a\n///\n///b", &[(Doc, &[(1, "  a"), (2, ""), (3, "b")])]);
        check("//// a", &[(Plain, &[(1, "a")])]);
        check("let a = 1; // b\n// c\n", &[(Plain, &[(1, "b")]), (Plain, &[(2, "c")])]);
        check("a / b; // c // d", &[(Plain, &[(1, "c // d")])]);
        check("// \"a\n// 'b\n", &[(Plain, &[(1, "\"a"), (2, "'b")])]);
    }

    #[test]
    fn block_comments() {
        use Form::*;
        check("/* a */ b /* c */", &[(Plain, &[(1, "a ")]), (Plain, &[(1, "c ")])]);
        check(
            "/* a /* b */ c */ // d",
            &[(Plain, &[(1, "a /* b */ c ")]), (Plain, &[(1, "d")])],
        );
        check(
            "/**\n * a\n * *b*\n */\nfn c() {}",
            &[(Doc, &[(2, "a"), (3, "*b*"), (4, "")])],
        );
        check("/*! a\nb */", &[(Module, &[(1, "a"), (2, "b ")])]);
        check("/**/ // a", &[(Plain, &[(1, "")]), (Plain, &[(1, "a")])]);
        check(
            "/* a\n// b\n\"c\n*/ // d",
            &[
                (Plain, &[(1, "a"), (2, "// b"), (3, "\"c"), (4, "")]),
                (Plain, &[(4, "d")]),
            ],
        );
        check("/* a", &[(Plain, &[(1, "a")])]);
    }

    #[test]
    fn literals_are_no_comments() {
        let none = [
            "\"// a\"",
            "\"\\\" // a\"",
            "\"a\n// b\n\"",
            "\"a \\\n // b\"",
            "\"\\\\\" /",
            "r\"\\\" + 1",
            "r#\"\" // a\"#",
            "r##\"\"# // a\"##",
            "br#\"// a\"#",
            "cr\"/* a\"",
            "b\"// a\"",
            "r#\"a\n/* b\n\"#",
            "'/' + '\"' + '\\'' + '\\\\' + '\\u{2f}' + b'/'",
            "'é' + '\"' + '→'",
            "fn a<'a>(b: &'a str) -> &'a str { b }",
        ];
        for code in none {
            check(code, &[]);
            let after = format!("{code} // after");
            let found = find_comments(&after);
            let last = found.last().and_then(|comment| comment.lines.last());
            assert_eq!(last.map(|(_, text)| *text), Some("after"), "{after}");
            assert_eq!(found.len(), 1, "{after}");
        }
        check("let for_\"a\" // b", &[(Form::Plain, &[(1, "b")])]);
    }

    #[test]
    fn any_text_is_read() {
        for text in [
            "'",
            "'\\",
            "\"\\",
            "r#\"",
            "/",
            "/*",
            "/* é */é//é",
            "'é",
            "\"é\\é\"//é",
            "\\é'",
        ] {
            find_comments(text);
        }
        assert_eq!(find_comments("\"é\\é\" //é").len(), 1);
    }
}
