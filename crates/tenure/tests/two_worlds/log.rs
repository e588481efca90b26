//! The requests of `evil` with their answers, and counts of them.

use std::collections::BTreeMap;
use std::fmt;

use crate::api::Answer;

/// The two sorts of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// The tenant may certainly write the object.
    Plain,
    /// One field of the object leads to other tenants.
    Near,
}

struct Entry {
    production: String,
    sort: Option<Sort>,
    text: String,
    code: u16,
    message: String,
}

/// All actions of `evil` in a world.
#[derive(Default)]
pub(crate) struct Log {
    entries: Vec<Entry>,
}

impl Log {
    pub(crate) fn add(&mut self, production: &str, sort: Sort, text: String, answer: &Answer) {
        let message = if answer.is_success() { "" } else { answer.message() };
        self.entries.push(Entry {
            production: production.to_owned(),
            sort: Some(sort),
            text,
            code: answer.code,
            message: message.to_owned(),
        });
    }

    /// Records an action that is no request to the API server.
    pub(crate) fn note(&mut self, text: String) {
        self.entries.push(Entry {
            production: String::new(),
            sort: None,
            text,
            code: 0,
            message: String::new(),
        });
    }
}

impl fmt::Display for Log {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.entries {
            writeln!(formatter, "  {} {}: {}", entry.code, entry.text, entry.message)?;
        }
        Ok(())
    }
}

/// The number of requests and of admissions of a production.
#[derive(Clone, Copy, Default)]
struct Count {
    asked: usize,
    admitted: usize,
}

/// Counts of all stories of a test.
#[derive(Default)]
pub(crate) struct Totals {
    plain: BTreeMap<String, Count>,
    near: BTreeMap<String, Count>,
    /// Refusals by admission, by rule.
    rules: BTreeMap<String, usize>,
}

impl Totals {
    pub(crate) fn add(&mut self, log: &Log) {
        for entry in &log.entries {
            let counts = match entry.sort {
                Some(Sort::Plain) => &mut self.plain,
                Some(Sort::Near) => &mut self.near,
                None => continue,
            };
            // The changed field follows the name of the production.
            let production = match entry.sort {
                Some(Sort::Near) => entry.production.split(": ").next().unwrap_or_default(),
                _ => entry.production.as_str(),
            };
            let count = counts.entry(production.to_owned()).or_default();
            count.asked += 1;
            if (200..300).contains(&entry.code) {
                count.admitted += 1;
                continue;
            }
            let rule = entry
                .message
                .rsplit_once(" (")
                .and_then(|(_, rule)| rule.strip_suffix(')'));
            let rule = rule.filter(|rule| rule.len() < 40).unwrap_or("-");
            *self.rules.entry(format!("{} {rule}", entry.code)).or_default() += 1;
        }
    }

    /// Returns the number of requests, and the number of admitted ones.
    pub(crate) fn sum(&self) -> (usize, usize) {
        let all = self.plain.values().chain(self.near.values());
        all.fold((0, 0), |(asked, admitted), count| {
            (asked + count.asked, admitted + count.admitted)
        })
    }

    /// Whether the plain form of a production was admitted at least once.
    pub(crate) fn is_admitted(&self, production: &str) -> bool {
        self.plain.get(production).is_some_and(|count| count.admitted > 0)
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (sort, counts) in [("plain", &self.plain), ("one change", &self.near)] {
            writeln!(formatter, "{sort:40} {:>7} {:>9} {:>8}", "asked", "admitted", "refused")?;
            for (production, count) in counts {
                let refused = count.asked - count.admitted;
                writeln!(
                    formatter,
                    "  {production:38} {:7} {:9} {refused:8}",
                    count.asked, count.admitted
                )?;
            }
        }
        writeln!(formatter, "refusals by code and rule")?;
        for (rule, count) in &self.rules {
            writeln!(formatter, "  {count:7} {rule}")?;
        }
        Ok(())
    }
}
