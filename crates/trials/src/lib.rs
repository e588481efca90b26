//! Recorded cases as tests that one can find: each has a name and a trial of its own, so that `cargo test NAME` runs it alone.
//!
//! Owns how cases become trials, how they are called, and that none gets lost: a suite that finds fewer cases than were recorded fails.
//! Refuses to know what a case is. A dev-dependency only, of test targets with `harness = false`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// How long the part of a name may be that is made of a text.
const LONGEST_NAME: usize = 90;

/// The trials of one test target.
#[derive(Default)]
pub struct Suite {
    trials: Vec<Trial>,
}

impl Suite {
    /// Adds the cases of one group, each with its name and its check, which says what is wrong. A trial `GROUP::is_complete` fails if there
    /// are fewer than `least`, or if two have the same name.
    pub fn add<Check>(&mut self, group: &str, least: usize, cases: impl IntoIterator<Item = (String, Check)>)
    where
        Check: FnOnce() -> Result<(), String> + Send + 'static,
    {
        let mut names = Vec::new();
        for (name, check) in cases {
            let trial = format!("{group}::{name}");
            self.trials.push(Trial::test(trial, || check().map_err(Failed::from)));
            names.push(name);
        }
        let trial = format!("{group}::is_complete");
        self.trials.push(Trial::test(trial, move || {
            find_loss(least, &names).map_or(Ok(()), |loss| Err(Failed::from(loss)))
        }));
    }

    /// Runs what the command line asks for, or lists it.
    #[must_use]
    pub fn run(self) -> ExitCode {
        libtest_mimic::run(&Arguments::from_args(), self.trials).exit_code()
    }
}

/// What is wrong with the names of a group's cases.
fn find_loss(least: usize, names: &[String]) -> Option<String> {
    if names.len() < least {
        return Some(format!(
            "{} cases were found; at least {least} are recorded",
            names.len()
        ));
    }
    let mut seen = BTreeSet::new();
    let twice = names.iter().find(|name| !seen.insert(name.as_str()))?;
    Some(format!("two cases are called {twice}"))
}

/// Makes a name of any text: small letters and digits, and one underscore for whatever is between them.
#[must_use]
pub fn name_of(text: &str) -> String {
    let mut name = String::new();
    for character in text.chars() {
        if name.len() >= LONGEST_NAME {
            break;
        }
        if character.is_ascii_alphanumeric() {
            name.push(character.to_ascii_lowercase());
        } else if !name.is_empty() && !name.ends_with('_') {
            name.push('_');
        }
    }
    name.trim_end_matches('_').to_owned()
}

/// Makes a name of the number of a line and a text: for cases without names of their own, of which several may have the same text.
#[must_use]
pub fn name_of_line(number: usize, text: &str) -> String {
    format!("{}_{number}", name_of(text)).trim_start_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{find_loss, name_of, name_of_line};

    #[test]
    fn names_are_made_of_any_text() {
        for (text, want) in [
            ("spec.replicas: field is immutable", "spec_replicas_field_is_immutable"),
            ("  \"ä\" == 'B'\n", "b"),
            ("", ""),
            ("a--b__c", "a_b_c"),
        ] {
            assert_eq!(name_of(text), want, "{text}");
        }
        assert_eq!(name_of(&"a".repeat(500)).len(), super::LONGEST_NAME);
        assert_eq!(name_of_line(7, "a b"), "a_b_7");
        assert_eq!(name_of_line(7, "<="), "7");
    }

    #[test]
    fn lost_cases_are_told() {
        let names = ["a".to_owned(), "b".to_owned()];
        assert_eq!(find_loss(2, &names), None);
        assert!(find_loss(3, &names).is_some_and(|loss| loss.contains("at least 3")));
        let twice = ["a".to_owned(), "b".to_owned(), "a".to_owned()];
        assert!(find_loss(2, &twice).is_some_and(|loss| loss.contains("called a")));
        assert!(find_loss(1, &[]).is_some());
    }
}
