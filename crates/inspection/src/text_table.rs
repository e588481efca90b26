//! Tables of text for a terminal. A column without enough space wraps at words, and nothing is cut inside a word. Without a width, each row is one line and complete, so
//! programs can read it.

use unicode_width::UnicodeWidthStr;

/// The space between two columns, and the space where the terminal is narrow.
const GAP: usize = 3;
const NARROW_GAP: usize = 2;
/// The least width of a wrapped column, and the longest word that a column keeps whole.
const NARROWEST: usize = 8;
const LONGEST_WORD: usize = 40;
/// The least width of the last column beside the others. With less space, it has lines of its own below them.
const NARROWEST_LAST: usize = 20;
/// The indent of lines below a row.
const INDENT: usize = 2;
/// The largest number of lines of a cell in the last column.
const MOST_LINES: usize = 4;
/// The sign for left out words.
const ELLIPSIS: &str = "…";
/// A word that is too long breaks after one of these characters.
const BREAKS: &[char] = &['-', '/', '.', ':', ',', '@', '=', '_', ']', '}', '&', '?'];

/// The meaning of a cell, which decides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// No meaning.
    #[default]
    Plain,
    /// A state as wanted.
    Good,
    /// A failure.
    Bad,
    /// A state that changes, or needs attention.
    Warning,
}

/// A cell of a table: its text, and the meaning that decides its colour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The text, without control characters.
    pub text: String,
    /// The meaning.
    pub tone: Tone,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        let tone = Tone::Plain;
        Self { text, tone }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// The widths of the columns, for rows that are printed one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextTable {
    widths: Vec<usize>,
    gap: usize,
    /// The width of the last column in lines of its own.
    below: Option<usize>,
    /// Whether cells wrap.
    is_bounded: bool,
}

impl TextTable {
    /// Chooses the widths: each column as wide as its widest cell if all fit. Else the gaps shrink, then the last column, then the widest of the others.
    #[must_use]
    pub fn fit_widths(headers: &[String], rows: &[Vec<Cell>], width: Option<usize>) -> Self {
        let mut widths: Vec<usize> = headers.iter().map(|header| header.width()).collect();
        for row in rows {
            for (index, cell) in row.iter().enumerate() {
                let cell = join_lines(&cell.text).width();
                match widths.get_mut(index) {
                    Some(width) => *width = (*width).max(cell),
                    None => widths.push(cell),
                }
            }
        }
        let gaps = widths.len().saturating_sub(1);
        let mut table = Self {
            widths,
            gap: GAP,
            below: None,
            is_bounded: width.is_some(),
        };
        let Some(width) = width else { return table };
        let total = |table: &Self| table.widths.iter().sum::<usize>() + table.gap * gaps;
        if total(&table) <= width {
            return table;
        }
        table.gap = NARROW_GAP;
        let excess = total(&table).saturating_sub(width);
        let floors = list_floors(headers, rows, &table.widths);
        let Some((last, others)) = table.widths.split_last_mut() else {
            return table;
        };
        let left = last.saturating_sub(excess);
        let has_space = left >= NARROWEST_LAST && rows.iter().all(|row| fits_last_cell(row, others.len(), left));
        if has_space || left == *last {
            *last = left;
        } else if others.is_empty() {
            *last = width.max(NARROWEST);
        } else if *last > NARROWEST_LAST {
            table.below = Some(width.saturating_sub(INDENT).max(NARROWEST_LAST));
            table.widths.pop();
            let sum = width.saturating_sub(NARROW_GAP * gaps.saturating_sub(1));
            shrink_widths(&mut table.widths, &floors, sum);
        } else {
            shrink_widths(&mut table.widths, &floors, width.saturating_sub(NARROW_GAP * gaps));
        }
        table
    }

    /// Returns the lines of one row. `paint` colours a text.
    #[must_use]
    pub fn format_row(&self, row: &[Cell], paint: impl Fn(Tone, &str) -> String) -> Vec<String> {
        let wrapped: Vec<Vec<String>> = self
            .widths
            .iter()
            .zip(row)
            .enumerate()
            .map(|(index, (width, cell))| {
                let text = join_lines(&cell.text);
                let is_last = index + 1 == row.len();
                match self.is_bounded {
                    true => wrap_text(&text, *width, if is_last { MOST_LINES } else { usize::MAX }),
                    false => vec![text],
                }
            })
            .collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or_default();
        let mut lines = Vec::with_capacity(height);
        for number in 0..height {
            let mut line = String::new();
            let mut missing = 0;
            for ((part, width), cell) in wrapped.iter().zip(&self.widths).zip(row) {
                let text = part.get(number).map_or("", String::as_str);
                if !text.is_empty() {
                    line.extend(std::iter::repeat_n(' ', missing));
                    missing = 0;
                    line.push_str(&paint(cell.tone, text));
                }
                missing += (width + self.gap).saturating_sub(text.width());
            }
            lines.push(line);
        }
        if let (Some(width), Some(last)) = (self.below, row.get(self.widths.len())) {
            let text = join_lines(&last.text);
            let below = wrap_text(&text, width, MOST_LINES)
                .into_iter()
                .filter(|line| !line.is_empty());
            lines.extend(below.map(|line| format!("{}{}", " ".repeat(INDENT), paint(last.tone, &line))));
        }
        lines
    }
}

/// Whether the last cell of a row needs few enough lines in a width.
fn fits_last_cell(row: &[Cell], last: usize, width: usize) -> bool {
    let text = row.get(last).map(|cell| join_lines(&cell.text)).unwrap_or_default();
    wrap_text(&text, width, usize::MAX).len() <= MOST_LINES
}

/// Returns the least width of each column: of its header, and of the longest part of a cell that can't be broken, up to a limit.
fn list_floors(headers: &[String], rows: &[Vec<Cell>], widths: &[usize]) -> Vec<usize> {
    let longest_part = |text: &str| {
        let words = text.split_whitespace();
        let parts = words.flat_map(|word| word.split_inclusive(BREAKS));
        parts.map(UnicodeWidthStr::width).max().unwrap_or_default()
    };
    let floors = widths.iter().enumerate().map(|(index, width)| {
        let header = headers.get(index).map_or(0, |header| longest_part(header));
        let cells = rows.iter().filter_map(|row| row.get(index));
        let cells = cells.map(|cell| longest_part(&cell.text)).max().unwrap_or_default();
        header.max(cells).clamp(NARROWEST, LONGEST_WORD).min(*width)
    });
    floors.collect()
}

/// Shrinks the widest columns until their sum is small enough, or no column can shrink any more.
fn shrink_widths(widths: &mut [usize], floors: &[usize], sum: usize) {
    let mut excess = widths.iter().sum::<usize>().saturating_sub(sum);
    while excess > 0 {
        let can_shrink = widths.iter_mut().zip(floors).filter(|(width, floor)| **width > **floor);
        // The last of the widest columns shrinks: names are on the left, and users type them next.
        let Some((width, _)) = can_shrink.max_by_key(|(width, _)| **width) else {
            return;
        };
        *width -= 1;
        excess -= 1;
    }
}

/// Wraps a text of one line. If it needs more than `most` lines, the last one ends with an ellipsis.
#[must_use]
pub fn wrap_text(text: &str, width: usize, most: usize) -> Vec<String> {
    let width = width.max(1);
    if text.width() <= width {
        return vec![text.to_owned()];
    }
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for piece in text.split(' ').flat_map(|word| split_word(word, width)) {
        let gap = usize::from(piece.begins_word && !line.is_empty());
        if !line.is_empty() && line.width() + gap + piece.text.width() > width {
            lines.push(std::mem::take(&mut line));
        } else if gap == 1 {
            line.push(' ');
        }
        line.push_str(piece.text);
    }
    lines.push(line);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            end_with_ellipsis(last, width);
        }
    }
    lines
}

/// Replaces the last words of a line by an ellipsis, as far as needed.
fn end_with_ellipsis(line: &mut String, width: usize) {
    let limit = width.saturating_sub(ELLIPSIS.width() + 1);
    while line.width() > limit {
        match line.rfind(' ') {
            Some(end) => line.truncate(end),
            None => break,
        }
    }
    if line.width() <= limit {
        line.push(' ');
    } else if line.width() >= width {
        line.pop();
    }
    line.push_str(ELLIPSIS);
}

/// A piece of a word.
struct Piece<'a> {
    text: &'a str,
    begins_word: bool,
}

/// Splits a word that is wider than a line: after punctuation, or else anywhere.
fn split_word(word: &str, width: usize) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = word;
    while rest.width() > width {
        let end = find_break(rest, width);
        let Some((text, after)) = rest.split_at_checked(end).filter(|_| end > 0) else {
            break;
        };
        let begins_word = pieces.is_empty();
        pieces.push(Piece { text, begins_word });
        rest = after;
    }
    let begins_word = pieces.is_empty();
    if begins_word || !rest.is_empty() {
        pieces.push(Piece {
            text: rest,
            begins_word,
        });
    }
    pieces
}

/// Returns the byte after the longest beginning that fits: behind punctuation if possible.
fn find_break(word: &str, width: usize) -> usize {
    let (mut used, mut fitting, mut after_sign) = (0, 0, None);
    let mut buffer = [0; 4];
    for (index, character) in word.char_indices() {
        used += character.encode_utf8(&mut buffer).width();
        if used > width && fitting > 0 {
            break;
        }
        fitting = index + character.len_utf8();
        if BREAKS.contains(&character) {
            after_sign = Some(fitting);
        }
    }
    after_sign.unwrap_or(fitting)
}

/// Joins the lines of a text into one, with spaces.
fn join_lines(text: &str) -> String {
    if text.contains(['\n', '\r', '\t']) {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lay_out(rows: &[&[&str]], width: Option<usize>) -> Vec<String> {
        let cells = |row: &&[&str]| row.iter().map(|cell| Cell::from(*cell)).collect::<Vec<_>>();
        let rows: Vec<Vec<Cell>> = rows.iter().map(cells).collect();
        let (first, others) = rows.split_first().expect("headers");
        let headers: Vec<String> = first.iter().map(|cell| cell.text.clone()).collect();
        let table = TextTable::fit_widths(&headers, others, width);
        let plain = |_: Tone, text: &str| text.to_owned();
        rows.iter().flat_map(|row| table.format_row(row, plain)).collect()
    }

    const LONG: &str = "a very long message that goes on and on until it ends";

    #[test]
    fn without_a_width_each_row_is_one_line() {
        let lines = lay_out(
            &[&["NAME", "STATUS"], &["web", LONG], &["api", "first\n  second\tthird"]],
            None,
        );
        assert_eq!(
            lines,
            [
                "NAME   STATUS".to_owned(),
                format!("web    {LONG}"),
                "api    first second third".to_owned()
            ]
        );
    }

    #[test]
    fn the_last_column_wraps_at_words() {
        assert_eq!(
            lay_out(&[&["NAME", "AGE", "STATUS"], &["web", "3d", LONG]], Some(36)),
            [
                "NAME  AGE  STATUS",
                "web   3d   a very long message that",
                "           goes on and on until it",
                "           ends"
            ]
        );
    }

    #[test]
    fn narrow_gaps_come_before_wrapping() {
        assert_eq!(
            lay_out(&[&["NAME", "AGE", "STATUS"], &["web", "3d", "all good"]], Some(20)),
            ["NAME  AGE  STATUS", "web   3d   all good"]
        );
    }

    #[test]
    fn a_last_column_without_space_goes_below() {
        assert_eq!(
            lay_out(
                &[&["NAME", "REVISION", "STATUS"], &["a-name", "main@sha1:12345678", LONG]],
                Some(40)
            ),
            [
                "NAME    REVISION",
                "  STATUS",
                "a-name  main@sha1:12345678",
                "  a very long message that goes on and",
                "  on until it ends"
            ]
        );
    }

    #[test]
    fn a_last_column_that_would_lose_words_goes_below() {
        let lines = lay_out(&[&["NAME", "STATUS"], &["web", &[LONG; 2].join(" ")]], Some(30));
        assert_eq!(lines.get(1).map(String::as_str), Some("  STATUS"));
        assert!(!lines.iter().any(|line| line.contains(ELLIPSIS)), "{lines:#?}");
    }

    #[test]
    fn a_column_is_never_narrower_than_its_words() {
        assert_eq!(
            lay_out(
                &[
                    &["BY", "REASON"],
                    &["system:serviceaccount:shop", "ReconciliationSucceeded"]
                ],
                Some(30)
            ),
            [
                "BY",
                "  REASON",
                "system:serviceaccount:shop",
                "  ReconciliationSucceeded"
            ]
        );
        assert_eq!(
            lay_out(&[&["BY", "X"], &["system:serviceaccount:shop", "short"]], Some(20)),
            [
                "BY               X",
                "system:          short",
                "serviceaccount:",
                "shop"
            ]
        );
    }

    #[test]
    fn left_out_words_have_an_ellipsis() {
        let lines = lay_out(&[&["STATUS"], &[&"word ".repeat(40)]], Some(20));
        assert_eq!(lines.len(), 1 + MOST_LINES);
        assert_eq!(lines.last().map(String::as_str), Some("word word word …"));
    }

    #[test]
    fn long_words_break_after_punctuation() {
        assert_eq!(
            lay_out(&[&["A", "B"], &["https://git.example/a/repository", "x"]], Some(23)),
            ["A                     B", "https://git.example/  x", "a/repository"]
        );
        assert_eq!(wrap_text("aaaaaaaa", 3, 9), ["aaa", "aaa", "aa"]);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(lay_out(&[&["A", "B"], &["名前", "x"]], None), ["A      B", "名前   x"]);
        assert_eq!(wrap_text("名前名前", 3, 9), ["名", "前", "名", "前"]);
        assert_eq!(wrap_text("名", 1, 9), ["名"]);
    }

    #[test]
    fn a_tone_is_painted_without_taking_space() {
        let cell = |text: &str, tone| Cell {
            text: text.to_owned(),
            tone,
        };
        let row = [cell("no", Tone::Bad), cell("x", Tone::Plain)];
        let table = TextTable::fit_widths(&["READY".to_owned(), "B".to_owned()], &[row.to_vec()], None);
        let paint = |tone: Tone, text: &str| match tone {
            Tone::Bad => format!("<{text}>"),
            _ => text.to_owned(),
        };
        assert_eq!(table.format_row(&row, paint), ["<no>      x"]);
    }

    /// A row is never wider than the terminal, if the terminal has space for the narrowest columns.
    #[test]
    fn rows_fit_into_the_terminal() {
        let cells = [
            "",
            "web",
            "main@sha1:12345678",
            "a-quite-long-name-of-an-object-in-a-namespace",
            LONG,
        ];
        for width in [60, 80, 120] {
            for first in cells {
                for second in cells {
                    for third in cells {
                        for line in lay_out(&[&["A", "B", "C"], &[first, second, third]], Some(width)) {
                            assert!(line.width() <= width, "{width}: {line}");
                        }
                    }
                }
            }
        }
    }
}
