//! No text and no value makes a substitution panic or do more work than the allowance.

use super::*;

/// A scope in which all names have one value, with an allowance of bytes and steps.
struct One<'value> {
    value: &'value [u8],
    bytes: usize,
    steps: usize,
}

impl<'value> Scope<'value> for One<'value> {
    fn find(&mut self, _: &str) -> Option<&'value [u8]> {
        Some(self.value)
    }

    fn spend(&mut self, bytes: usize, steps: usize) -> bool {
        match (self.bytes.checked_sub(bytes), self.steps.checked_sub(steps)) {
            (Some(bytes), Some(steps)) => {
                (self.bytes, self.steps) = (bytes, steps);
                true
            }
            _ => false,
        }
    }
}

const BYTES: usize = 1 << 20;
const STEPS: usize = 1 << 20;

fn substitute_within_limits(text: &str, value: &[u8]) -> Result<Vec<u8>, SubstitutionError> {
    let (bytes, steps) = (BYTES, STEPS);
    substitute(text, &mut One { value, bytes, steps })
}

fn nest_text(depth: usize, before: &str, inside: &str, after: &str) -> String {
    format!("{}{inside}{}", before.repeat(depth), after.repeat(depth))
}

#[test]
fn no_expression_makes_or_does_more_than_is_allowed() {
    let value = vec![b'a'; 10_000];
    let bombs = [
        // A hundred million bytes, and each level more that many times as much.
        nest_text(1, "${v//a/", "${v}", "}"),
        nest_text(20, "${v//a/", "${v}", "}"),
        nest_text(20, "${v//${v:0:1}/", "${v}", "}"),
        "${v}".repeat(10_000),
        format!("${{n:={}}}", "${v}".repeat(1000)),
        // Every beginning of ten thousand is matched at every place of it.
        "${v##*a*a*a*a*b}".to_owned(),
        "${v%*b*}".to_owned(),
        format!("${{v#{}b}}", "*a?".repeat(1000)),
        format!("${{v#*[{}]}}", "b-c".repeat(10_000)),
    ];
    for bomb in &bombs {
        let refused = substitute_within_limits(bomb, &value)
            .map(|made| made.len())
            .map_err(|refused| refused.problem());
        assert_eq!(refused, Err(Problem::Spent), "{}", bomb.get(..10).unwrap());
    }
}

#[test]
fn expressions_stand_in_each_other_only_so_deep() {
    assert!(substitute_within_limits(&nest_text(MAXIMUM_DEPTH, "${n:=", "x", "}"), b"").is_ok());
    for depth in [MAXIMUM_DEPTH + 1, 100_000] {
        let refused = substitute_within_limits(&nest_text(depth, "${n:=", "x", "}"), b"").unwrap_err();
        assert_eq!(refused.problem(), Problem::Depth);
    }
}

/// Also when it does not match, a pattern is paid for.
#[test]
fn a_long_class_takes_its_steps() {
    let class = format!("${{v#[{}]}}", "b-c".repeat(10_000));
    let (bytes, steps) = (BYTES, STEPS);
    let mut scope = One {
        value: b"a",
        bytes,
        steps,
    };
    assert!(substitute(&class, &mut scope).is_ok());
    assert!(scope.steps < STEPS - 30_000);
}

/// A text of many expressions takes as long for each as a text of one.
#[test]
fn the_work_is_in_proportion_to_the_text() {
    let used = |text: &str| {
        let (bytes, steps) = (usize::MAX, usize::MAX);
        let mut scope = One {
            value: b"value",
            bytes,
            steps,
        };
        let _answer = substitute(text, &mut scope);
        usize::MAX - scope.steps
    };
    for part in [
        "$$",
        "${v}",
        "${v:=${v}}",
        "${v/a/b}",
        "${v#*a}",
        "plain text ",
        "${v:1:2}",
        "$",
        "${v^^}",
    ] {
        let (few, many) = (used(&part.repeat(100)), used(&part.repeat(10_000)));
        assert!(many <= few * 101, "{part}: {few} {many}");
    }
}

/// The substitution of any text ends within the allowance.
#[test]
fn no_text_makes_it_panic() {
    let parts = [
        "${",
        "}",
        "$",
        "$$",
        "v",
        ":",
        "-",
        "=",
        "?",
        "+",
        "/",
        "#",
        "%",
        "^",
        ",",
        "*",
        "[",
        "]",
        "\\",
        "é",
        "日",
        "\0",
        "\u{fffd}",
        " ",
        "1",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "${v",
        "${v/",
        "${v:",
        "${v#",
        "${v%%",
        "${#",
        "[a-",
        "[^",
    ];
    let mut seed = 1_u64;
    let mut random = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let values: [&[u8]; 5] = [b"", b"a/b.c", "héllo 日本".as_bytes(), b"\xff\xc3\x28\xe6\x97", b"${v}"];
    for _ in 0..100_000 {
        let text: String = (0..random(12))
            .map(|_| *parts.get(random(parts.len())).unwrap())
            .collect();
        let value = *values.get(random(values.len())).unwrap();
        let made = substitute_within_limits(&text, value);
        assert!(
            made.is_ok_and(|made| made.len() <= BYTES) || substitute_within_limits(&text, value).is_err(),
            "{text:?}"
        );
    }
}

#[test]
fn an_error_names_the_variable_and_the_place() {
    struct Nothing;
    impl<'value> Scope<'value> for Nothing {
        fn find(&mut self, _: &str) -> Option<&'value [u8]> {
            None
        }
        fn spend(&mut self, _: usize, _: usize) -> bool {
            true
        }
    }
    let error = substitute("a: ${colour}\nb: ${size}", &mut Nothing).unwrap_err();
    assert_eq!(
        (error.problem(), error.name(), error.at()),
        (Problem::NotSet, "colour", 12)
    );
    assert_eq!(error.to_string(), "variable not set (strict mode): \"colour\"");
    // A syntax error has priority, because a text without an end can't be evaluated.
    let error = substitute("a: ${colour}\nb: ${size", &mut Nothing).unwrap_err();
    assert_eq!((error.problem(), error.name()), (Problem::ClosingBrace, "size"));
}
