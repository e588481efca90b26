//! Reports the times of tests: each program's, and the slowest tests.

use std::fmt::Write as _;
use std::process::Command;

use crate::suites;

/// The number of listed tests.
const SLOWEST: usize = 30;

/// Makes a test program report the time of each test, which is an unstable feature of the harness.
pub(crate) fn request_timings(command: &mut Command) {
    command
        .args(["-Z", "unstable-options", "--report-time"])
        .env("RUSTC_BOOTSTRAP", "1");
}

/// Describes the times of these programs from their output. A program without output is left out.
pub(crate) fn describe(names: &[String]) -> String {
    let read = |name: &String| {
        let text = std::fs::read_to_string(suites::name_log(name)).ok()?;
        Some((name.clone(), Timing::read(&text)))
    };
    write_report(names.iter().filter_map(read).collect())
}

/// The times that a program reported, in seconds.
#[derive(Debug, PartialEq)]
struct Timing {
    whole: f64,
    tests: Vec<(String, f64)>,
}

impl Timing {
    fn read(text: &str) -> Self {
        let tests = text.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
            let (_, seconds) = rest.rsplit_once('<')?;
            Some((name.to_owned(), seconds.strip_suffix("s>")?.parse().ok()?))
        });
        let end = text.lines().rev().find_map(|line| line.rsplit_once("finished in "));
        let whole = end.and_then(|(_, seconds)| seconds.trim().strip_suffix('s')?.parse().ok());
        Self {
            whole: whole.unwrap_or_default(),
            tests: tests.collect(),
        }
    }
}

fn write_report(mut programs: Vec<(String, Timing)>) -> String {
    programs.sort_by(|(_, one), (_, other)| other.whole.total_cmp(&one.whole));
    let mut text = "\nseconds  tests  program\n".to_owned();
    for (name, timing) in &programs {
        let _ = writeln!(text, "{:7.1}  {:5}  {name}", timing.whole, timing.tests.len());
    }
    let tests = programs
        .iter()
        .flat_map(|(name, timing)| timing.tests.iter().map(move |test| (name, test)));
    let mut tests: Vec<_> = tests.collect();
    tests.sort_by(|(_, (_, one)), (_, (_, other))| other.total_cmp(one));
    let _ = writeln!(text, "\nseconds  the {SLOWEST} slowest tests");
    for (program, (test, seconds)) in tests.into_iter().take(SLOWEST) {
        let _ = writeln!(text, "{seconds:7.1}  {program} {test}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_test_output() {
        let text = "\nrunning 2 tests\ntest a::quick ... ok <0.010s>\ntest a::slow ... FAILED <12.500s>\ntest a::old ... ignored\n\n\
                    test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 12.51s\n\n";
        let timing = Timing::read(text);
        assert_eq!(timing.whole, 12.51);
        assert_eq!(
            timing.tests,
            [("a::quick".to_owned(), 0.01), ("a::slow".to_owned(), 12.5)]
        );
        let other = Timing {
            whole: 20.0,
            tests: vec![("b::one".to_owned(), 3.0)],
        };
        let table = write_report(vec![("a-it".to_owned(), timing), ("b-it".to_owned(), other)]);
        let order = ["b-it", "a-it", "a-it a::slow", "b-it b::one", "a-it a::quick"];
        let at: Vec<_> = order.iter().filter_map(|words| table.find(words)).collect();
        assert!(at.len() == 5 && at.is_sorted(), "{table}");
    }
}
