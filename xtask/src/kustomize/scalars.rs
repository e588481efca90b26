//! Scalars that are difficult for YAML readers. Go's reader and writer treat each entry in a special way.

use super::random::Random;
use super::writer::Value;

/// Written unchanged: they are read as numbers, booleans, null, times, or strings that look like those.
const RAW: &[&str] = &[
    "0",
    "1",
    "-1",
    "42",
    "007",
    "0644",
    "0o644",
    "0x1F",
    "0b101",
    "1_000",
    "1e3",
    "1E3",
    "1.0",
    "1.50",
    ".5",
    "5.",
    "+1",
    "+.5",
    "-0",
    "-0.0",
    "1e400",
    "12345678901234567890",
    "123456789012345678901234567890",
    "9007199254740993",
    "-9223372036854775808",
    "9223372036854775808",
    "0.1",
    "100000000000000000000.0",
    "1e21",
    "1e-7",
    "123456789.123456789",
    "3.14159265358979323846",
    "1.7976931348623157e308",
    "true",
    "false",
    "True",
    "FALSE",
    "yes",
    "no",
    "Yes",
    "on",
    "off",
    "y",
    "n",
    "Y",
    "~",
    "null",
    "Null",
    "NULL",
    "",
    "''",
    "\"\"",
    "2020-01-01",
    "2020-01-01 10:00:00",
    "1:20",
    "12:30:45",
    "190:20:30",
    "0.0.0.0",
    "1.2.3",
    "=",
    "<<",
    "!!str 5",
    "!!str true",
    "!!int \"5\"",
    "!!float 1",
    "!!bool \"true\"",
    "!!null ''",
    "!local text",
    "!!binary aGVsbG8=",
    "0x",
    "0o8",
    "08",
    "1_",
    "_1",
    "0_7",
    "1e",
    "e1",
    ".",
    "..",
    "+",
    "0x1_F",
    "1__0",
    "-0x1F",
    "+0x1F",
    "-0o7",
    "685_230.15",
    "0b",
    "nan",
    "inf",
    "'yes'",
    "\"no\"",
    "'1'",
    "\"0644\"",
    "'~'",
    "'null'",
    "\"1e3\"",
    "'2020-01-01'",
    "'0o7'",
    "'1:20'",
    "'='",
    "'<<'",
    "'it''s'",
    "\"tab\\there\"",
    "\"line\\nbreak\"",
    "\"ends with line\\n\"",
    "\"\\u00e9\\x41\\U0001F600\"",
    "\"nul\\0bell\\a\"",
    "\"\\e[0m\"",
    "\"next\\Nline\"",
    "\"no\\_break\"",
    "\"\\L and \\P\"",
    "\"slash\\\\\"",
    "' leading'",
    "'trailing '",
    "\"\\ufeffbom\"",
    "\"#hash\"",
    "'- dash'",
    "'a: b'",
    "'a #b'",
    "\"? q\"",
    "'[x'",
    "'{x}'",
    "'%x'",
    "'@x'",
    "'`x'",
    "'!x'",
    "'&x'",
    "'*x'",
    "'|x'",
    "'>x'",
    "a#b",
    "a:b",
    "-a",
    ":a",
    "a'b",
    "a\"b",
    "a\\b",
    "http://example.com:80/a?b=c#d",
    "a*5",
    "50%",
    "x,y",
    "$(VAR)",
    "$$(VAR)",
    "${a}",
    "caf\u{e9}",
    "\u{65e5}\u{672c}\u{8a9e}",
    "\u{1f600}",
    "a\u{a0}b",
    "\u{200b}",
];

/// One line each, longer than the width at which the output is folded.
const LONG: &[&str] = &[
    "the quick brown fox jumps over the lazy dog and then it does so again and again until the line is long enough to fold",
    "nospacesatallnospacesatallnospacesatallnospacesatallnospacesatallnospacesatallnospacesatallnospacesatall",
    "'quoted: the quick brown fox jumps over the lazy dog, and then again, and once more: to fold it   here with   spaces'",
    "\"escaped\\tthe quick brown fox jumps over the lazy dog and then it does so again and \\\"again\\\" until it is long enough\"",
];

/// Lines of block scalars.
const LINES: &[&str] = &[
    "a line",
    "",
    "  indented more",
    "key: value",
    "# no comment",
    "- dash",
    "trailing space ",
    "\ttab first",
    "ends with tab\t",
    "the quick brown fox jumps over the lazy dog and then it does so again and again until the line is long enough to fold",
    "caf\u{e9} \u{1f600}",
    "'quoted'",
    "\"quoted\"",
    "---",
    "...",
    "back\\slash",
    "{{ .Values }}",
    "$(VAR)",
];

/// Returns a scalar of any kind.
pub(super) fn make_odd(random: &mut Random) -> Value {
    if random.chance(1) && random.chance(10) {
        // Both refuse values that JSON can't represent.
        return Value::Raw(random.pick(&[".inf", "-.Inf", ".NaN"]).to_owned());
    }
    match random.draw_below(20) {
        0..=13 => Value::Raw(random.pick(RAW).to_owned()),
        14..=15 => Value::Raw(random.pick(LONG).to_owned()),
        _ => make_block(random),
    }
}

/// Returns a scalar on one line.
pub(super) fn make_line(random: &mut Random) -> Value {
    Value::Raw(random.pick(RAW).to_owned())
}

/// Returns a scalar that is always read as a string.
pub(super) fn make_string(random: &mut Random) -> Value {
    const STRINGS: &[&str] = &[
        "plain",
        "two words",
        "true",
        "no",
        "1",
        "0644",
        "1e3",
        "",
        "~",
        "2020-01-01",
        "a: b",
        "a #b",
        "- a",
        "it's",
        "\"q\"",
        "caf\u{e9}",
        " lead",
        "trail ",
        "multi\nline\n",
        "multi\nline",
        "tab\tin",
        "$(VAR)",
        "x=y",
        "{\"a\": [1, 2]}",
        "a,b;c",
        "the quick brown fox jumps over the lazy dog and then it does so again and again until the line is long enough",
    ];
    if random.chance(15) {
        return make_block(random);
    }
    Value::Text(random.pick(STRINGS).to_owned())
}

/// Returns a block scalar.
pub(super) fn make_block(random: &mut Random) -> Value {
    let header = random.pick(&["|", "|", "|-", "|+", ">", ">-", ">+", "|2", "|2-"]);
    let mut lines = vec![
        random
            .pick(&["first", "first line", "#!/bin/sh", "key: value", "[section]"])
            .to_owned(),
    ];
    for _ in 0..random.draw_below(5) {
        lines.push(random.pick(LINES).to_owned());
    }
    Value::Block(header.to_owned(), lines)
}

/// Returns a key as written, valid in labels, annotations and data.
pub(super) fn make_key(random: &mut Random) -> String {
    if random.chance(1) && random.chance(10) {
        // Quotes around a key get lost, and both then refuse the key.
        return random.pick(&["'true'", "\"1\"", "'on'", "'~'"]).to_owned();
    }
    random
        .pick(&[
            "app",
            "tier",
            "team",
            "app.kubernetes.io/name",
            "example.com/owner",
            "config.yaml",
            "LOG_LEVEL",
            "a-b",
            "a.b.c",
            "k1",
            "k2",
            "k3",
            "x_y",
            "'q'",
        ])
        .to_owned()
}
