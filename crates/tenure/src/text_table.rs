//! Tables of text: one line for each row, at most as wide as the terminal. Without a width, nothing is cut, so programs read complete cells.

/// The space between two columns.
const GAP: usize = 3;
/// The least width of a cut column.
const NARROWEST: usize = 12;
/// The sign for cut text.
const ELLIPSIS: char = '…';

/// The width of each column, for rows that are printed one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextTable {
    widths: Vec<usize>,
}

impl TextTable {
    /// Makes each column as wide as its widest cell, and all together at most `width`: the widest columns shrink first.
    pub(crate) fn fitting(headers: &[String], rows: &[Vec<String>], width: Option<usize>) -> Self {
        let mut widths: Vec<usize> = headers.iter().map(|header| length(header)).collect();
        for row in rows {
            for (index, cell) in row.iter().enumerate() {
                let cell = length(&one_line(cell));
                match widths.get_mut(index) {
                    Some(width) => *width = (*width).max(cell),
                    None => widths.push(cell),
                }
            }
        }
        if let Some(width) = width {
            shrink(&mut widths, width);
        }
        Self { widths }
    }

    /// Returns the line of one row.
    pub(crate) fn line(&self, row: &[String]) -> String {
        let mut line = String::new();
        for (index, cell) in row.iter().enumerate() {
            let cell = one_line(cell);
            let Some(width) = self.widths.get(index).copied() else {
                continue;
            };
            let shown = cut(&cell, width);
            line.push_str(&shown);
            if index + 1 < row.len() {
                line.extend(std::iter::repeat_n(' ', (width + GAP).saturating_sub(length(&shown))));
            }
        }
        line.trim_end().to_owned()
    }
}

/// Shrinks the widest column until all fit, or no column can shrink any more.
fn shrink(widths: &mut [usize], width: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
    while excess > 0 {
        let widest = widths.iter().copied().max().unwrap_or_default();
        let next = widths.iter().copied().filter(|width| *width < widest).max();
        let floor = next.unwrap_or_default().max(NARROWEST);
        if widest <= NARROWEST {
            return;
        }
        // The last of the widest columns shrinks: names are on the left, and users type them next.
        if let Some(column) = widths.iter_mut().rev().find(|width| **width == widest) {
            let given = (widest - floor.min(widest - 1)).min(excess);
            *column -= given;
            excess -= given;
        }
    }
}

/// Counts visible characters, without colour codes.
fn length(text: &str) -> usize {
    anstream::adapter::strip_str(text).to_string().chars().count()
}

fn cut(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    // A cut cell loses its colour, or the following text would keep it.
    let plain = anstream::adapter::strip_str(text).to_string();
    let mut shown: String = plain.chars().take(width.saturating_sub(1)).collect();
    shown.push(ELLIPSIS);
    shown
}

/// Joins lines into one, with spaces.
fn one_line(text: &str) -> String {
    if text.contains(['\n', '\r', '\t']) {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: &[&[&str]], width: Option<usize>, expected: &[&str]) {
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| (*cell).to_owned()).collect())
            .collect();
        let (headers, rows) = rows.split_first().expect("headers");
        let columns = TextTable::fitting(headers, rows, width);
        let lines: Vec<String> = std::iter::once(headers)
            .chain(rows)
            .map(|row| columns.line(row))
            .collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn everything_is_shown_where_nobody_says_how_wide() {
        check(
            &[&["NAME", "STATUS"], &["web", "a very long message that goes on and on"]],
            None,
            &["NAME   STATUS", "web    a very long message that goes on and on"],
        );
    }

    #[test]
    fn the_widest_column_is_cut() {
        check(
            &[
                &["NAME", "STATUS", "AGE"],
                &["web", "a very long message that goes on and on", "3d"],
            ],
            Some(30),
            &["NAME   STATUS              AGE", "web    a very long mess…   3d"],
        );
    }

    #[test]
    fn a_row_is_one_line() {
        check(
            &[&["NAME", "STATUS"], &["web", "first\n  second\tthird"]],
            None,
            &["NAME   STATUS", "web    first second third"],
        );
    }

    #[test]
    fn colours_take_no_room_and_end_with_what_is_cut() {
        check(
            &[&["A", "B"], &["\u{1b}[31mred\u{1b}[0m", "x"]],
            None,
            &["A     B", "\u{1b}[31mred\u{1b}[0m   x"],
        );
        assert_eq!(cut("\u{1b}[31mlonger\u{1b}[0m", 4), "lon…");
    }

    #[test]
    fn a_narrow_terminal_keeps_something_of_each_column() {
        let long = "x".repeat(40);
        check(
            &[&["A", "B"], &[&long, &long]],
            Some(5),
            &["A              B", "xxxxxxxxxxx…   xxxxxxxxxxx…"],
        );
    }
}
