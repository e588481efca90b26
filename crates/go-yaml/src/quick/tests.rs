//! Compares the fast parser with the complete parser: a text that both accept gives equal nodes with equal lines. [`super::super::read`]
//! compares them on every text of a build with debug assertions, so all tests of this crate do so. These tests add texts that are designed
//! to find a difference.

use proptest::prelude::*;

use super::super::read::{Lines, Source, first_document};
use super::super::scalar::Dialect;
use super::read_document;

fn source() -> Source {
    Source {
        file: 1,
        lines: Lines::After(0),
        maximum_nodes: 10_000,
        scanner: Dialect::V3,
    }
}

/// Returns whether the fast parser accepts the text. Panics if the two parsers don't agree.
fn is_taken(text: &str) -> bool {
    let _ = first_document(text, source());
    read_document(text, source()).is_some()
}

#[test]
fn quick_parser_takes_common_yaml() {
    for text in [
        "",
        "# nothing\n\n",
        "---\na: b\n",
        "a: b",
        "a:\n  b:\n  - c\n  - d: e\n    f: |-\n      g\n\n       h\n    i: >\n      j\n\n      k\n\n  l: 1\nm: 2\n",
        "a:\n- - b\n  - c\n- d\n",
        "- a\n# comment\n- b # comment\n",
        "a: one\n  two\n\n  three # comment\n\nb: 'one\n  two '' three'\nc: \"one\\n x\n\n  two\"\n",
        "\"a\": {b: c, 'd': [e, \"f\", {}], g: http://h:80/i}\n",
        "a: |+\n  b\n\nc: |\n  d\n\n# comment\ne: f\n",
        "a: |\n  b\n# comment\n",
        "kind: Ünïcode — text\n",
        "a: 0x1f\nb: 1_000\nc: 2020-01-01\nd: ~\ne: <<\n<<: f\n",
    ] {
        assert!(is_taken(text), "{text}");
    }
}

#[test]
fn quick_parser_leaves_rare_yaml_to_whole_parser() {
    for text in [
        "a:\n",
        "a: &b c\n",
        "a: *b\n",
        "a: !!str 1\n",
        "? a\n: b\n",
        "a: b: c\n",
        "a: b\n c: d\n",
        "a:\tb\n",
        "a: b\r\n",
        "a: [b\n]\n",
        "a: |2\n   b\n",
        "a: |-\n  b",
        "a: >\n  b\n    c\n",
        "a: \"\\u00e9\"\n",
        "a: 'b\n",
        "- a\nb: c\n",
        "a: b\n...\n",
        "%YAML 1.1\n---\na: b\n",
        "\u{feff}a: b\n",
        "a: \u{a0}\n",
        "a: @b\n",
        "a: {b, c}\n",
        " a: b\n",
        "text\n",
    ] {
        assert!(!is_taken(text), "{text}");
    }
}

#[test]
fn limits_are_those_of_the_whole_parser() {
    let narrow = |maximum_nodes| Source {
        maximum_nodes,
        ..source()
    };
    for nodes in 0..6 {
        let read = first_document("a: [b, c]\n", narrow(nodes));
        assert_eq!(read.is_ok(), nodes >= 5, "{nodes}");
    }
    for depth in [199, 200, 201, 202] {
        let text = format!("{}a\n", "- ".repeat(depth));
        assert_eq!(first_document(&text, source()).is_ok(), depth <= 200, "{depth}");
    }
}

/// Generates pieces of lines. Usual pieces are more frequent than pieces that change the meaning of a whole text.
fn generate_line() -> impl Strategy<Value = String> {
    let indents = prop::sample::select(vec![0_usize, 0, 0, 1, 2, 2, 2, 3, 4, 4, 6]);
    let pieces = prop::sample::select(vec![
        "a: ",
        "b: ",
        "c:",
        "- ",
        "- ",
        "d",
        "e f",
        "g  h",
        "1",
        "-1",
        "0x1f",
        "~",
        "null",
        "true",
        "yes",
        "2020-01-01",
        "|",
        "|-",
        "|+",
        ">",
        ">-",
        ">+",
        "|2",
        "'",
        "'",
        "''",
        "\"",
        "\"",
        "\\n",
        "\\\"",
        "\\",
        "[",
        "]",
        "{",
        "}",
        "{}",
        "[]",
        ", ",
        ",",
        ":",
        ": ",
        "#",
        " # x",
        " ",
        " ",
        "'i'",
        "\"j\"",
        "'k': ",
        "\"l\": ",
        "? ",
        "&m ",
        "*m",
        "!!str ",
        "!n ",
        "<<: ",
        "<<",
        "---",
        "...",
        "--- ",
        "%",
        "@",
        "`",
        "-",
        "--o",
        "http://p:80/q",
        "r:s",
        "t#u",
        "é",
        "—",
        "\t",
        "\u{a0}",
        "\u{85}",
        "\u{2028}",
        "=",
        "(",
        "*",
        "~/v",
        "w: x",
        "y: {z: a, b: [c]}",
        "- d: e",
        "key: \"v\"",
        "- 'q'",
    ]);
    (indents, prop::collection::vec(pieces, 0..4)).prop_map(|(indent, pieces)| " ".repeat(indent) + &pieces.concat())
}

/// Documents of the usual shape, each line of which may have been replaced or moved.
fn generate_document() -> impl Strategy<Value = String> {
    let scalar = prop::sample::select(vec![
        "a",
        "b c",
        "1",
        "'d'",
        "\"e\"",
        "'f: g'",
        "\"h\\ti\"",
        "{}",
        "[]",
        "[a, 'b', {c: d}]",
        "{a: b}",
        "|\n%  x\n%  y",
        "|-\n%  x\n\n%  y",
        ">-\n%  x\n%  y\n\n%  z",
        "one\n%  two",
        "one\n\n%  two # c",
        "'one\n%  two'",
        "\"one \n\n%  two\"",
        "|+\n%  x\n\n",
        "a # c",
        "'a' # c",
        "~",
        "http://x:1/y",
        ">\n%  x  \n%  y \n",
        "|\n\n%  x",
        "|\n%   x\n%  y",
        ">\n%  x\n%   y",
        "''",
        "\"\"",
        "'\n%  x'",
        "'x\n%  '",
        "# c\n%  k: v",
        "\n%  k: v",
        "\n%- v",
        "\n% - v",
        "\n%  - v\n%  - k: w\n%    l: m",
        "- x",
        "x\n%  - y",
        "x\n%  y: z",
        "x\n%  'y'",
        "\n%  x y",
        "\n%  'x'",
        "|  # c\n%  x",
        "",
    ]);
    let entry = (
        prop::sample::select(vec![
            "k: ", "l: ", "\"m\": ", "- ", "- n: ", "- - ", "k:  ", "-   o: ", "? ",
        ]),
        scalar,
    );
    let entries = prop::collection::vec((0_usize..3, entry), 1..7);
    (entries, prop::option::weighted(0.3, (0_usize..12, generate_line()))).prop_map(|(entries, change)| {
        let mut text = String::new();
        for (level, (key, scalar)) in entries {
            let pad = " ".repeat(level * 2);
            text.push_str(&format!("{pad}{key}{}\n", scalar.replace('%', &pad)));
        }
        match change {
            Some((at, line)) => {
                let mut lines: Vec<&str> = text.lines().collect();
                lines.insert(at.min(lines.len()), &line);
                lines.join("\n")
            }
            None => text,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_ways_read_lines_alike(lines in prop::collection::vec(generate_line(), 0..8)) {
        is_taken(&(lines.join("\n") + "\n"));
        is_taken(&lines.join("\n"));
    }

    #[test]
    fn both_ways_read_documents_alike(text in generate_document()) {
        is_taken(&text);
    }
}
