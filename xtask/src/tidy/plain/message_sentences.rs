//! Counts the sentences of messages that have to be read twice. A message names the place, the problem and the solution, with colons between them. So each part after a colon
//! is a sentence.

use std::collections::BTreeMap;

use super::markdown::{CODE_SPACE, Paragraph};
use super::rules::broken_in_message;
use super::sentences::split_sentences;
use super::{Flagged, Measured, find_scope};
use crate::tidy::messages::Message;

/// Measures messages, by their crate.
pub(super) fn measure_messages(messages: &[Message]) -> BTreeMap<String, Measured> {
    let mut scopes: BTreeMap<String, Measured> = BTreeMap::new();
    for message in messages {
        if let Some(scope) = find_scope(&message.file) {
            measure_message(message, scopes.entry(scope.to_owned()).or_default());
        }
    }
    scopes
}

fn measure_message(message: &Message, measured: &mut Measured) {
    for line in message.text.lines() {
        let text = capitalize_parts(&mark_code(line.trim()));
        let line = message.line;
        for sentence in split_sentences(&Paragraph { line, text }) {
            let rules = broken_in_message(&sentence);
            measured.sentences += 1;
            if !rules.is_empty() {
                measured.flagged.push(Flagged {
                    file: message.file.clone(),
                    line,
                    text: message.text.replace('\n', "\\n"),
                    rules,
                });
            }
        }
    }
}

/// Makes one word of each code span and each placeholder.
fn mark_code(text: &str) -> String {
    let mut marked = String::with_capacity(text.len());
    let mut is_span = false;
    let mut is_placeholder = false;
    for c in text.chars() {
        match c {
            '`' => {
                is_span = !is_span;
                marked.push(c);
            }
            '{' if !is_span => {
                is_placeholder = true;
                marked.push_str("`{");
            }
            '}' if is_placeholder => {
                is_placeholder = false;
                marked.push_str("}`");
            }
            ' ' if is_span || is_placeholder => marked.push(CODE_SPACE),
            _ => marked.push(c),
        }
    }
    marked
}

/// Writes the first letter of each part in upper case, so that a part is a sentence.
fn capitalize_parts(text: &str) -> String {
    let mut is_begin = true;
    let mut before = ' ';
    let mut is_code = false;
    let capitalize = |c: char| {
        if c == '`' {
            is_code = !is_code;
        }
        let upper = if is_begin && !is_code {
            c.to_ascii_uppercase()
        } else {
            c
        };
        is_begin = !is_code && c == ' ' && (is_begin || matches!(before, ':' | ';' | '.'));
        before = c;
        upper
    };
    text.chars().map(capitalize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, sentences: usize, flagged: usize) {
        let message = Message {
            file: "crates/a/src/b.rs".to_owned(),
            line: 7,
            text: text.to_owned(),
        };
        let measured = measure_messages(&[message]).remove("crates/a").unwrap_or_default();
        assert_eq!(
            (measured.sentences, measured.flagged.len()),
            (sentences, flagged),
            "{text}"
        );
        assert!(measured.flagged.iter().all(|flagged| flagged.line == 7));
    }

    #[test]
    fn parts_are_sentences() {
        check("{path}: is too large: make it smaller", 2, 0);
        check(
            "the lane: what it may read is unknown; whose it is isn't known yet",
            2,
            2,
        );
        check("no such file. what is read here was written before", 2, 1);
        check("which files does it read, and why not?", 1, 0);
        check("the object is not there\nand nobody reads it", 2, 2);
        check("a b", 0, 0);
    }

    #[test]
    fn code_is_one_word() {
        check("run `nobody is told`: it works here", 1, 0);
        check("{nobody} is {whoever reads it} here", 1, 0);
        assert_eq!(capitalize_parts("a: `b: c` d: {e}; f"), "A: `b: c` d: {e}; F");
    }
}
