//! Recorded cases as separate tests: each has a name and a trial of its own, so that `cargo test NAME` runs it alone.
//!
//! A suite with fewer cases than were recorded fails, so no case gets lost. The content of a case is up to the caller. The crate is a dev-dependency only, for test
//! targets with `harness = false`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// The longest part of a name that is made of a text.
const LONGEST_NAME: usize = 90;

/// The trials of one test target.
#[derive(Default)]
pub struct Suite {
    trials: Vec<Trial>,
}

impl Suite {
    /// Adds the cases of one group, each with its name and its check. The error of a check says what is wrong. A trial `GROUP::is_complete` fails if there are fewer
    /// cases than `least`, or two with the same name.
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

    /// Runs or lists the trials that the command line selects.
    #[must_use]
    pub fn run(self) -> ExitCode {
        libtest_mimic::run(&Arguments::from_args(), self.trials).exit_code()
    }
}

/// Checks the names of a group's cases and returns the problem.
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

/// Makes a name of any text: lower-case letters and digits, with one underscore for everything between them.
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

/// Makes a name of a line number and a text, for cases without names of their own. Several of these may have the same text.
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
    fn missing_cases_are_reported() {
        let names = ["a".to_owned(), "b".to_owned()];
        assert_eq!(find_loss(2, &names), None);
        assert!(find_loss(3, &names).is_some_and(|loss| loss.contains("at least 3")));
        let twice = ["a".to_owned(), "b".to_owned(), "a".to_owned()];
        assert!(find_loss(2, &twice).is_some_and(|loss| loss.contains("called a")));
        assert!(find_loss(1, &[]).is_some());
    }
}
