//! The lines of a tree for people, and the state of an object in a few words. On a terminal, a message that doesn't fit beside its object is below it.

use tenure_api::reason::RECONCILIATION_FAILED;
use tenure_api::text::visible_line;
use unicode_width::UnicodeWidthStr as _;

use crate::object_facts::{DescribedState, State};
use crate::object_table::shorten_revisions;
use crate::text_table::{Cell, Tone, wrap_text};
use crate::tree::Node;

/// The longest message beside an object.
const LONGEST_MESSAGE: usize = 200;
/// The least width of a message below its object.
const NARROWEST: usize = 24;

/// Returns the state of an object as a word, and its details: the reason and the message.
#[must_use]
pub fn describe_state(described: &DescribedState) -> (Cell, String) {
    let tone = match described.state {
        State::Ready => Tone::Good,
        State::Failed | State::Absent | State::Unserved | State::Forbidden => Tone::Bad,
        State::InProgress | State::Terminating | State::Unknown => Tone::Warning,
        State::Elsewhere => Tone::Plain,
    };
    let word = Cell {
        text: described.state.as_str().to_owned(),
        tone,
    };
    let message = shorten_message(&described.message);
    // This reason repeats the state.
    let is_repeated = described.state == State::Failed && described.reason == RECONCILIATION_FAILED;
    let mut parts = Vec::new();
    if described.suspended {
        parts.push("(suspended)".to_owned());
    }
    match (described.reason.as_str(), message.as_str()) {
        ("", "") => {}
        ("", message) => parts.push(message.to_owned()),
        (_, message) if is_repeated && !message.is_empty() => parts.push(message.to_owned()),
        (reason, "") => parts.push(visible_line(reason).into_owned()),
        (reason, message) => parts.push(format!("{}: {message}", visible_line(reason))),
    }
    (word, parts.join("  "))
}

/// Returns the first line of a message, up to a length. A long line ends after a word.
#[must_use]
pub fn shorten_message(message: &str) -> String {
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = visible_line(lines.next().unwrap_or_default()).into_owned();
    let has_more = lines.next().is_some();
    match first.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => {
            let short = first.get(..end).unwrap_or(&first);
            let word = short.rfind(' ').and_then(|space| short.get(..space));
            format!("{} …", word.unwrap_or(short))
        }
        None if has_more => format!("{first} …"),
        None => first,
    }
}

/// Returns the lines of a tree. `paint` colours a text.
#[must_use]
pub fn write_tree(root: &Node, width: Option<usize>, paint: &dyn Fn(Tone, &str) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    write_node(root, "", "", (width, paint), &mut lines);
    lines
}

/// The width of the terminal, and the colours.
type Form<'a> = (Option<usize>, &'a dyn Fn(Tone, &str) -> String);

/// Writes a node after its branch, and its children after the continued stem.
fn write_node(node: &Node, branch: &str, stem: &str, form: Form<'_>, lines: &mut Vec<String>) {
    let (width, paint) = form;
    let object = visible_line(&node.object);
    let (word, details) = describe_state(&node.object_state);
    let details = shorten_revisions(&details);
    let has_below = !node.children.is_empty() || node.more > 0;
    let below = format!("{stem}{}", if has_below { "│ " } else { "  " });
    let head = format!("{branch}{object}  {}", paint(word.tone, &word.text));
    let length = branch.width() + object.width() + 2 + word.text.width() + 2 + details.width();
    if details.is_empty() {
        lines.push(head);
    } else if width.is_none_or(|width| length <= width) {
        lines.push(format!("{head}  {details}"));
    } else {
        lines.push(head);
        lines.extend(indent_text(&format!("{below}  "), &details, width));
    }
    for note in &node.notes {
        lines.extend(indent_text(&below, &format!("! {}", visible_line(note)), width));
    }
    let last = node.children.len().saturating_sub(1);
    for (index, child) in node.children.iter().enumerate() {
        let (branch, below) = match index == last && node.more == 0 {
            true => ("└── ", "    "),
            false => ("├── ", "│   "),
        };
        write_node(
            child,
            &format!("{stem}{branch}"),
            &format!("{stem}{below}"),
            form,
            lines,
        );
    }
    if node.more > 0 {
        lines.push(format!("{stem}└── and {} more (--limit, --depth)", node.more));
    }
}

/// Returns a text in lines after an indent.
fn indent_text(indent: &str, text: &str, width: Option<usize>) -> Vec<String> {
    let lines = match width {
        None => vec![text.to_owned()],
        Some(width) => wrap_text(text, width.saturating_sub(indent.width()).max(NARROWEST), usize::MAX),
    };
    lines.into_iter().map(|line| format!("{indent}{line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_of_some_length() {
        assert_eq!(shorten_message("\n first \n second"), "first …");
        assert_eq!(shorten_message("a\u{1b}[31m"), "a\\u{1b}[31m");
        assert_eq!(
            shorten_message(&"word ".repeat(100)),
            format!("{} …", ["word"; 40].join(" "))
        );
        assert_eq!(shorten_message(&"x".repeat(1000)).chars().count(), LONGEST_MESSAGE + 2);
        assert_eq!(shorten_message(""), "");
    }

    #[test]
    fn a_reason_that_repeats_the_state_is_left_out() {
        let mut described = DescribedState::new(State::Failed, "no such path");
        described.reason = RECONCILIATION_FAILED.to_owned();
        assert_eq!(describe_state(&described).1, "no such path");
        described.reason = "BuildFailed".to_owned();
        described.suspended = true;
        assert_eq!(describe_state(&described).1, "(suspended)  BuildFailed: no such path");
    }
}
