//! Finds the prose of a Markdown text: its paragraphs, list items, headings and table cells. The text of a comment is Markdown, too. Code blocks, the titles of table columns,
//! link targets and HTML comments are no prose.

/// A space inside of a code span, which separates no words.
pub(super) const CODE_SPACE: char = '\u{E000}';

/// A line break inside of a code span.
pub(super) const CODE_BREAK: char = '\u{E001}';

/// A table cell with fewer words is a label.
const SHORTEST_CELL: usize = 5;

/// One piece of prose. Its line breaks are the file's, so that each sentence has its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Paragraph {
    /// The number of its first line in the file.
    pub(super) line: usize,
    /// The text without emphasis and link targets. Code spans keep their backticks.
    pub(super) text: String,
}

/// Lists the prose of consecutive lines, each with its number.
pub(super) fn read_paragraphs<'a>(lines: impl IntoIterator<Item = (usize, &'a str)>) -> Vec<Paragraph> {
    let mut reader = Reader::default();
    for (number, line) in lines {
        reader.read_line(number, line);
    }
    reader.end_table();
    reader.end_paragraph();
    reader.found
}

#[derive(Default)]
struct Reader<'a> {
    found: Vec<Paragraph>,
    /// The lines of the open paragraph, and the number of the first one.
    open: Vec<&'a str>,
    first_line: usize,
    /// The marker of the code block around the line.
    fence: Option<&'a str>,
    is_html_comment: bool,
    /// An indented line belongs to a list item, and is no code.
    is_list: bool,
    /// The first row of a table, until the next line shows whether it holds the titles.
    first_row: Option<(usize, &'a str)>,
}

impl<'a> Reader<'a> {
    fn read_line(&mut self, number: usize, line: &'a str) {
        let text = line.trim_start().trim_start_matches("> ").trim();
        if let Some(fence) = self.fence {
            let closes = text.starts_with(fence) && text.trim_start_matches(fence_character(fence)).is_empty();
            self.fence = if closes { None } else { Some(fence) };
        } else if self.is_html_comment || text.starts_with("<!--") {
            self.end_paragraph();
            self.is_html_comment = !text.contains("-->");
        } else if let Some(fence) = opening_fence(text) {
            self.end_table();
            self.end_paragraph();
            self.fence = Some(fence);
        } else if text.starts_with('|') {
            self.end_paragraph();
            self.read_row(number, text);
        } else {
            self.end_table();
            self.read_prose(number, line, text);
        }
    }

    fn read_prose(&mut self, number: usize, line: &'a str, text: &'a str) {
        let is_indented = line.starts_with("    ") || line.starts_with('\t');
        if text.is_empty() || is_rule(text) || is_link_definition(text) {
            self.end_paragraph();
        } else if is_indented && self.open.is_empty() && !self.is_list {
            // Code.
        } else if let Some(title) = read_heading(text) {
            self.end_paragraph();
            self.is_list = false;
            self.add(number, title);
            self.end_paragraph();
        } else if let Some(item) = list_item(text, self.open.is_empty() || self.is_list) {
            self.end_paragraph();
            self.is_list = true;
            self.add(number, item);
        } else {
            if self.open.is_empty() && !line.starts_with(' ') {
                self.is_list = false;
            }
            self.add(number, text);
        }
    }

    fn add(&mut self, number: usize, text: &'a str) {
        if self.open.is_empty() {
            self.first_line = number;
        }
        self.open.push(text);
    }

    fn end_paragraph(&mut self) {
        let lines = std::mem::take(&mut self.open);
        if !lines.is_empty() {
            let text = strip_inline(&lines.join("\n"));
            let line = self.first_line;
            self.found.push(Paragraph { line, text });
        }
    }

    fn read_row(&mut self, number: usize, row: &'a str) {
        let is_delimiter = row.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '));
        match self.first_row {
            Some((0, _)) if !is_delimiter => self.add_cells(number, row),
            Some(_) if is_delimiter => self.first_row = Some((0, "")),
            Some((first, titles)) => {
                self.add_cells(first, titles);
                self.first_row = Some((0, ""));
                self.add_cells(number, row);
            }
            None => self.first_row = Some((number, row)),
        }
    }

    fn end_table(&mut self) {
        if let Some((number, row)) = self.first_row.take() {
            self.add_cells(number, row);
        }
    }

    fn add_cells(&mut self, line: usize, row: &str) {
        let cells = split_cells(row).into_iter().map(|cell| strip_inline(&cell));
        let prose = cells.filter(|cell| cell.split_whitespace().count() >= SHORTEST_CELL);
        self.found.extend(prose.map(|text| Paragraph { line, text }));
    }
}

/// Returns the marker of a code block that begins here.
fn opening_fence(text: &str) -> Option<&str> {
    let text = list_item(text, true).unwrap_or(text);
    let length = |c: char| text.len() - text.trim_start_matches(c).len();
    let (ticks, tildes) = (length('`'), length('~'));
    let is_span = text.get(ticks..).is_some_and(|info| info.contains('`'));
    if ticks >= 3 && !is_span {
        text.get(..ticks)
    } else if tildes >= 3 {
        text.get(..tildes)
    } else {
        None
    }
}

fn fence_character(fence: &str) -> char {
    if fence.starts_with('~') { '~' } else { '`' }
}

/// Checks whether a line is a horizontal rule, or underlines a title.
fn is_rule(text: &str) -> bool {
    ['-', '=', '*', '_']
        .iter()
        .any(|mark| text.len() >= 3 && text.trim_matches(*mark).is_empty())
}

fn is_link_definition(text: &str) -> bool {
    text.starts_with('[')
        && text
            .split_once("]:")
            .is_some_and(|(name, target)| !name.contains(']') && target.split_whitespace().count() == 1)
}

fn read_heading(text: &str) -> Option<&str> {
    let title = text.trim_start_matches('#');
    (title.len() < text.len()).then(|| title.strip_prefix(' ')).flatten()
}

/// Returns the text of a list item. Inside of a paragraph, only `1.` begins a numbered list.
fn list_item(text: &str, may_have_any_number: bool) -> Option<&str> {
    let bullet = ["- ", "* ", "+ "].iter().find_map(|marker| text.strip_prefix(marker));
    let number = || {
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = text.get(..text.len() - rest.len())?;
        let item = rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") "))?;
        let is_number = matches!(digits.len(), 1..=3) && (may_have_any_number || digits == "1");
        is_number.then_some(item)
    };
    bullet.or_else(number).map(str::trim_start)
}

/// Divides a table row into its cells. An escaped `\|` divides nothing.
fn split_cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_escaped = false;
    for c in row.chars() {
        if c == '|' && !is_escaped {
            cells.push(String::new());
        } else if let Some(cell) = cells.last_mut() {
            cell.push(c);
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    cells
}

/// Removes emphasis, escapes and link targets, and joins the words of each code span.
fn strip_inline(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut brackets = 0usize;
    let mut at = 0;
    while let Some(&c) = characters.get(at) {
        let next = characters.get(at + 1).copied();
        at += 1;
        match c {
            '\\' if next.is_some_and(|next| next.is_ascii_punctuation()) => {
                out.extend(next);
                at += 1;
            }
            '`' => at = code_span(&characters, at - 1, &mut out),
            '!' if next == Some('[') => {}
            '[' => brackets += 1,
            ']' if brackets > 0 => {
                brackets -= 1;
                if let Some(end) = link_target(&characters, at) {
                    let breaks = characters.get(at..end).unwrap_or_default();
                    out.extend(breaks.iter().filter(|c| **c == '\n'));
                    at = end;
                }
            }
            '*' => {}
            '’' => out.push('\''),
            CODE_SPACE | CODE_BREAK => out.push(' '),
            '\n' => out.push('\n'),
            _ if c.is_whitespace() => out.push(' '),
            _ => out.push(c),
        }
    }
    out
}

/// Copies a code span, and returns the place after it. Backticks without an end are copied alone.
fn code_span(characters: &[char], from: usize, out: &mut String) -> usize {
    let run = |at: usize| {
        let rest = characters.get(at..).unwrap_or_default();
        rest.iter().take_while(|c| **c == '`').count()
    };
    let length = run(from);
    let begin = from + length;
    let mut at = begin;
    while at < characters.len() {
        let closing = run(at);
        if closing == length {
            out.push('`');
            let code = characters.get(begin..at).unwrap_or_default();
            out.extend(code.iter().map(|c| match c {
                '\n' => CODE_BREAK,
                c if c.is_whitespace() => CODE_SPACE,
                c => *c,
            }));
            out.push('`');
            return at + closing;
        }
        at += closing.max(1);
    }
    out.extend(std::iter::repeat_n('`', length));
    begin
}

/// Returns the place after `(target)` or `[name]`.
fn link_target(characters: &[char], from: usize) -> Option<usize> {
    let (open, close) = match characters.get(from)? {
        '(' => ('(', ')'),
        '[' => ('[', ']'),
        _ => return None,
    };
    let mut depth = 0usize;
    for (length, c) in characters.get(from..)?.iter().enumerate() {
        if *c == open {
            depth += 1;
        } else if *c == close {
            depth = depth.saturating_sub(1);
        }
        if depth == 0 {
            return Some(from + length + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: &[(usize, &str)]) {
        let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line));
        let found = read_paragraphs(lines);
        let got: Vec<(usize, &str)> = found
            .iter()
            .map(|paragraph| (paragraph.line, paragraph.text.as_str()))
            .collect();
        assert_eq!(got, want, "{text}");
    }

    #[test]
    fn blocks() {
        check("a\nb\n\nc\n", &[(1, "a\nb"), (4, "c")]);
        check("# a\nb\n## c d\n", &[(1, "a"), (2, "b"), (3, "c d")]);
        check("a\n===\nb\n---\nc", &[(1, "a"), (3, "b"), (5, "c")]);
        check("#[derive]\n#5", &[(1, "#derive\n#5")]);
        check("> a\n> b", &[(1, "a\nb")]);
        check("[a]: https://b\nc", &[(2, "c")]);
        check("<!-- a\nb -->\nc", &[(3, "c")]);
        check("a <!-- b", &[(1, "a <!-- b")]);
    }

    #[test]
    fn code_is_no_prose() {
        check("a\n```sh\nb\n```\nc", &[(1, "a"), (5, "c")]);
        check("````\n```\na\n````\nb", &[(5, "b")]);
        check("~~~\n```\n~~~\na", &[(4, "a")]);
        check("- a\n  ```\n  b\n  ```\n  c", &[(1, "a"), (5, "c")]);
        check("- ```\n  a\n  ```\nb", &[(4, "b")]);
        check("```a``` b", &[(1, "`a` b")]);
        check("a\n\n    b\n\nc", &[(1, "a"), (5, "c")]);
        check("```\na", &[]);
    }

    #[test]
    fn lists() {
        check("- a\n  b\n- c\n* d\n+ e", &[(1, "a\nb"), (3, "c"), (4, "d"), (5, "e")]);
        check("1. a\n\n    b\n10) c", &[(1, "a"), (3, "b"), (4, "c")]);
        check("a of\n2024. b\n12. c", &[(1, "a of\n2024. b\n12. c")]);
        check("a:\n1. b\n2. c", &[(1, "a:"), (2, "b"), (3, "c")]);
        check("- a\n\nb\n\n    c", &[(1, "a"), (3, "b")]);
    }

    #[test]
    fn tables() {
        let long = "one two three four five";
        check(
            &format!("| {long} | b |\n|---|:-:|\n| c | {long}. |\n| {long} | d |\n\ne"),
            &[
                (3, " one two three four five. "),
                (4, " one two three four five "),
                (6, "e"),
            ],
        );
        check(
            &format!("a\n| {long} |\n| {long} |\nb"),
            &[
                (1, "a"),
                (2, " one two three four five "),
                (3, " one two three four five "),
                (4, "b"),
            ],
        );
        check("| a b c \\| d e |", &[(1, " a b c | d e ")]);
        check("| `a b c d e` f |", &[]);
    }

    #[test]
    fn inlines() {
        let check = |text: &str, want: &str| assert_eq!(strip_inline(text), want, "{text}");
        check("a [b c](d (e) f) g", "a b c g");
        check("a [b][c] [d] [e](f", "a b d e(f");
        check("![a](b) [`c`](d)", "a `c`");
        check("[a](\nb)", "a\n");
        check("**a** *b* \\*c\\*", "a b *c*");
        check("`a b\nc. D`", &format!("`a{CODE_SPACE}b{CODE_BREAK}c.{CODE_SPACE}D`"));
        check("``a`b`` c", "`a`b` c");
        check("`a b", "`a b");
        check("a\u{a0}b\tc’s", "a b c's");
        check("a] (b) ü → 中文 [", "a] (b) ü → 中文 ");
    }
}
