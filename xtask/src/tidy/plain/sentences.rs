//! Divides prose into sentences, and sentences into words. A code span is one word.

use super::markdown::{CODE_BREAK, CODE_SPACE, Paragraph};

/// Fewer words are a label.
const SHORTEST: usize = 3;

/// Words whose full stop ends no sentence.
const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "cf.", "vs.", "resp.", "approx."];

/// One sentence.
#[derive(Debug)]
pub(super) struct Sentence {
    /// The number of its first line in the file.
    pub(super) line: usize,
    /// The text on one line.
    pub(super) text: String,
    /// The words in lower case, without punctuation. A word with a backtick is code.
    pub(super) words: Vec<String>,
}

/// Lists the sentences of a paragraph.
pub(super) fn split_sentences(paragraph: &Paragraph) -> Vec<Sentence> {
    let mut found = Vec::new();
    let mut tokens: Vec<&str> = Vec::new();
    let mut first_line = paragraph.line;
    let mut line = paragraph.line;
    for row in paragraph.text.split('\n') {
        for token in row.split(' ').filter(|token| !token.is_empty()) {
            if tokens.last().is_some_and(|last| is_end(last, token)) {
                found.extend(make_sentence(first_line, &std::mem::take(&mut tokens)));
            }
            if tokens.is_empty() {
                first_line = line;
            }
            tokens.push(token);
            line += token.matches(CODE_BREAK).count();
        }
        line += 1;
    }
    found.extend(make_sentence(first_line, &tokens));
    found
}

fn make_sentence(line: usize, tokens: &[&str]) -> Option<Sentence> {
    let words: Vec<String> = tokens.iter().filter_map(|token| clean_word(token)).collect();
    let text = || tokens.join(" ").replace([CODE_SPACE, CODE_BREAK], " ");
    (words.len() >= SHORTEST).then(|| Sentence {
        line,
        text: text(),
        words,
    })
}

fn clean_word(token: &str) -> Option<String> {
    let word = token.trim_matches(|c: char| !c.is_alphanumeric() && c != '`');
    (!word.is_empty()).then(|| word.to_lowercase())
}

/// Checks whether a sentence ends between two tokens.
fn is_end(last: &str, next: &str) -> bool {
    if last.ends_with(|c: char| c.is_alphanumeric() || matches!(c, ',' | '`')) {
        return false;
    }
    let last = last.trim_end_matches(['"', '\'', '”', '»', ')', ']', '_']);
    let next = next.trim_start_matches(['"', '\'', '“', '«', '(', '[', '_']);
    let Some(first) = next.chars().next() else {
        return false;
    };
    let is_capital = first.is_uppercase();
    if last.ends_with([':', ';']) {
        return is_capital;
    }
    let is_begin = is_capital || first.is_numeric() || first == '`' || (first.is_alphabetic() && !first.is_lowercase());
    let is_abbreviation = || {
        let word = last.trim_start_matches(['(', '"', '“', '[']).to_lowercase();
        ABBREVIATIONS.contains(&word.as_str())
    };
    is_begin && last.ends_with(['.', '!', '?', '…', '。']) && !is_abbreviation()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: &[(usize, &str)]) {
        let text = text.to_owned();
        let found = split_sentences(&Paragraph { line: 7, text });
        let got: Vec<(usize, &str)> = found
            .iter()
            .map(|sentence| (sentence.line, sentence.text.as_str()))
            .collect();
        assert_eq!(got, want);
    }

    #[test]
    fn sentences_end_where_the_next_begins() {
        check(
            "A b c. D e f! G h i? J k l",
            &[(7, "A b c."), (7, "D e f!"), (7, "G h i?"), (7, "J k l")],
        );
        check(
            "A b\nc. D\ne f.\nG h i.",
            &[(7, "A b c."), (8, "D e f."), (10, "G h i.")],
        );
        check(
            "A b c: D e f; G h i: j, `k`; l",
            &[(7, "A b c:"), (7, "D e f;"), (7, "G h i: j, `k`; l")],
        );
        check(
            "A b (c d.) E f g. \"H i j.\" K l m.",
            &[(7, "A b (c d.)"), (7, "E f g."), (7, "\"H i j.\""), (7, "K l m.")],
        );
        check(
            "A b c. `d` e f. 3 g h.",
            &[(7, "A b c."), (7, "`d` e f."), (7, "3 g h.")],
        );
    }

    #[test]
    fn other_full_stops_end_nothing() {
        check(
            "A b c, e.g. D, (i.e. E), v1.2 of F, a.b.",
            &[(7, "A b c, e.g. D, (i.e. E), v1.2 of F, a.b.")],
        );
        check("A file.rs of b. of C", &[(7, "A file.rs of b. of C")]);
        let span = format!("A `b.{CODE_SPACE}C{CODE_BREAK}d.` e. F g h");
        check(&span, &[(7, "A `b. C d.` e."), (8, "F g h")]);
    }

    #[test]
    fn labels_are_no_sentences() {
        check("A b.", &[]);
        check("A b. C d e. – — …", &[(7, "C d e. – — …")]);
        check("", &[]);
        check("…. ! ¿é ñ 中。 文 字 字", &[(7, "…. ! ¿é ñ 中。"), (7, "文 字 字")]);
    }

    #[test]
    fn words_have_no_punctuation() {
        let text = format!("(Nobody's \"Ärger\", `Who{CODE_SPACE}Is`'s — well-known:");
        let found = split_sentences(&Paragraph { line: 1, text });
        let code = format!("`who{CODE_SPACE}is`'s");
        assert_eq!(found[0].words, ["nobody's", "ärger", &code, "well-known"]);
    }
}
