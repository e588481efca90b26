//! The ceilings: how many sentences of a crate, or of the documents, may have to be read twice. A ceiling only shrinks.

use std::collections::BTreeMap;

use super::{Flagged, Measured};
use crate::tidy::Finding;

/// No ceiling is higher, in thousandths of the sentences. In a small crate, one sentence can be more than that, and is allowed.
const HIGHEST: Shares = Shares {
    flagged: 50,
    clauses: 3,
};

/// A ceiling may be this much higher than necessary. It leaves room for changes that happen at the same time.
const STEP: Shares = Shares { flagged: 5, clauses: 1 };

/// The most sentences that are listed for one crate.
const MOST_LISTED: usize = 10;

/// A crate's folder or `docs`, the share of flagged sentences, and the share of sentences that begin with a clause. A crate without a row has the ceiling 0.
type Ceiling = (&'static str, usize, usize);

/// The ceilings, in thousandths of the sentences.
pub(super) const CEILINGS: &[Ceiling] = &[
    ("crates/auth", 4, 0),
    ("crates/admission", 8, 0),
    ("crates/admission-rules", 22, 0),
    ("crates/api", 17, 3),
    ("crates/apiserver", 6, 0),
    ("crates/bench", 8, 0),
    ("crates/cel", 3, 0),
    ("crates/cluster", 2, 0),
    ("crates/controllers", 11, 0),
    ("crates/differential", 11, 0),
    ("crates/git-access", 10, 0),
    ("crates/git-server", 19, 4),
    ("crates/go-words", 4, 0),
    ("crates/inspection", 8, 0),
    ("crates/kinds", 3, 0),
    ("crates/kustomize", 5, 0),
    ("crates/planner", 14, 0),
    ("crates/reach", 5, 0),
    ("crates/remote-requests", 6, 0),
    ("crates/sources", 8, 0),
    ("crates/store", 3, 0),
    ("crates/structured-merge", 4, 0),
    ("crates/tenancy", 28, 1),
    ("crates/tenure", 4, 0),
    ("crates/testkit", 13, 0),
    ("docs", 8, 2),
    ("xtask", 10, 0),
];

/// The ceilings of the messages, in thousandths of their sentences.
pub(super) const MESSAGE_CEILINGS: &[Ceiling] = &[
    ("crates/admission-rules", 7, 0),
    ("crates/git-access", 8, 0),
    ("crates/planner", 5, 0),
    ("crates/tenure", 14, 3),
];

/// The texts that a ceiling bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// Comments and documents.
    Prose,
    /// The messages that the program can print to a user.
    Messages,
}

impl Subject {
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Prose => "sentences",
            Self::Messages => "sentences of messages",
        }
    }

    /// Returns the list of the ceilings.
    fn list_name(self) -> &'static str {
        match self {
            Self::Prose => "CEILINGS of xtask/src/tidy/plain/ceilings.rs",
            Self::Messages => "MESSAGE_CEILINGS of xtask/src/tidy/plain/ceilings.rs",
        }
    }
}

/// The shares of flagged sentences and of sentences that begin with a clause, in thousandths, rounded up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) flagged: usize,
    pub(super) clauses: usize,
}

impl Shares {
    pub(super) fn measure(measured: &Measured) -> Self {
        let share = |count: usize| (count * 1000).div_ceil(measured.sentences.max(1));
        Self {
            flagged: share(measured.flagged.len()),
            clauses: share(measured.clauses()),
        }
    }

    /// Returns the highest ceiling of a crate with this many sentences.
    fn highest(sentences: usize) -> Self {
        let one = 1000usize.div_ceil(sentences.max(1));
        Self {
            flagged: HIGHEST.flagged.max(one),
            clauses: HIGHEST.clauses.max(one),
        }
    }

    fn min(self, other: Self) -> Self {
        Self {
            flagged: self.flagged.min(other.flagged),
            clauses: self.clauses.min(other.clauses),
        }
    }

    fn fits(self, ceiling: Self) -> bool {
        self.flagged <= ceiling.flagged && self.clauses <= ceiling.clauses
    }
}

/// Compares the measured sentences with the ceilings.
pub(super) fn compare_shares(
    measured: &BTreeMap<String, Measured>,
    ceilings: &[Ceiling],
    subject: Subject,
) -> Vec<Finding> {
    let (noun, place) = (subject.noun(), subject.list_name());
    let rows = ceilings.iter().map(|(scope, ..)| scope);
    let mut findings: Vec<Finding> = rows
        .filter(|scope| !measured.contains_key(**scope))
        .map(|scope| Finding::new(*scope, format!("has no {noun}: take it out of {place}")))
        .collect();
    for (scope, measured) in measured {
        let row = ceilings.iter().find(|(name, ..)| name == scope);
        let ceiling = row.map_or(Shares::default(), |(_, flagged, clauses)| Shares {
            flagged: *flagged,
            clauses: *clauses,
        });
        let highest = Shares::highest(measured.sentences);
        let shares = Shares::measure(measured);
        if !ceiling.fits(highest) {
            let what = format!(
                "its ceiling in {place} is higher than {} and {}, the highest ones for its size",
                highest.flagged, highest.clauses
            );
            findings.push(Finding::new(scope, what));
        }
        let ceiling = ceiling.min(highest);
        if !shares.fits(ceiling) {
            findings.extend(report_excess((scope, measured), shares, ceiling, subject));
        }
        let raised = Shares {
            flagged: shares.flagged + STEP.flagged,
            clauses: shares.clauses + STEP.clauses,
        };
        if !ceiling.fits(raised) {
            let lower = shares.min(ceiling);
            let what = format!(
                "its ceiling is too high for its {noun}: lower it in {place} to {} and {}",
                lower.flagged, lower.clauses
            );
            findings.push(Finding::new(scope, what));
        }
    }
    findings
}

/// Reports a crate above its ceiling, and the sentences that are worth a rewrite first.
fn report_excess(
    (scope, measured): (&str, &Measured),
    shares: Shares,
    ceiling: Shares,
    subject: Subject,
) -> Vec<Finding> {
    let is_over_clauses = shares.clauses > ceiling.clauses;
    let what = format!(
        "{} of {} {} have to be read twice ({} ‰, allowed {} ‰), and {} of them begin with a clause ({} ‰, allowed {} ‰). Rewrite some; `cargo xtask tidy --plain {scope}` lists all",
        measured.flagged.len(),
        measured.sentences,
        subject.noun(),
        shares.flagged,
        ceiling.flagged,
        measured.clauses(),
        shares.clauses,
        ceiling.clauses,
    );
    let mut worst: Vec<&Flagged> = measured.flagged.iter().collect();
    worst.sort_by_key(|flagged| {
        let is_urgent = is_over_clauses && flagged.begins_with_clause();
        std::cmp::Reverse((is_urgent, flagged.rules.len(), flagged.text.len()))
    });
    let listed = worst.into_iter().take(MOST_LISTED);
    std::iter::once(Finding::new(scope, what))
        .chain(listed.map(|flagged| Finding::new(flagged.format_place(), flagged.describe())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::plain::rules::Rule;

    fn make_measured(sentences: usize, clauses: usize, long: usize) -> Measured {
        let flagged = |line: usize| Flagged {
            file: "crates/a/src/b.rs".to_owned(),
            line,
            text: format!("Sentence {line}."),
            rules: vec![if line < clauses { Rule::ClauseFirst } else { Rule::Long }],
        };
        Measured {
            sentences,
            flagged: (0..clauses + long).map(flagged).collect(),
        }
    }

    fn check(measured: Measured, ceilings: &[Ceiling], want: &[&str]) {
        let found = compare_shares(
            &BTreeMap::from([("crates/a".to_owned(), measured)]),
            ceilings,
            Subject::Prose,
        );
        assert_eq!(found.len(), want.len(), "{found:?}");
        for (finding, want) in found.iter().zip(want) {
            let line = format!("{}: {}", finding.place, finding.what);
            assert!(line.contains(want), "{line} lacks {want}");
        }
    }

    #[test]
    fn below_the_ceiling() {
        check(make_measured(1000, 1, 19), &[("crates/a", 20, 1)], &[]);
        check(make_measured(1000, 1, 14), &[("crates/a", 20, 2)], &[]);
        check(make_measured(1000, 0, 0), &[], &[]);
        check(make_measured(0, 0, 0), &[], &[]);
    }

    #[test]
    fn over_the_ceiling() {
        check(
            make_measured(1000, 0, 2),
            &[("crates/a", 1, 0)],
            &[
                "crates/a: 2 of 1000 sentences have to be read twice (2 ‰, allowed 1 ‰), and 0 of them begin with a clause (0 ‰, allowed 0 ‰).",
                "crates/a/src/b.rs:0: more than 32 words: one sentence for each idea, or a list: Sentence 0.",
                "crates/a/src/b.rs:1:",
            ],
        );
        check(
            make_measured(999, 0, 1),
            &[("crates/a", 1, 0)],
            &["(2 ‰, allowed 1 ‰)", "b.rs:0"],
        );
        check(
            make_measured(1000, 1, 1),
            &[("crates/a", 3, 0)],
            &["(1 ‰, allowed 0 ‰)", "b.rs:0: begins with a clause", "b.rs:1"],
        );
        check(make_measured(1000, 0, 1), &[], &["(1 ‰, allowed 0 ‰)", "b.rs:0"]);
        let many = BTreeMap::from([("crates/a".to_owned(), make_measured(1000, 0, 40))]);
        assert_eq!(compare_shares(&many, &[], Subject::Prose).len(), 1 + MOST_LISTED);
    }

    #[test]
    fn a_ceiling_shrinks() {
        let lower = "lower it in CEILINGS of xtask/src/tidy/plain/ceilings.rs to 10 and 0";
        check(make_measured(1000, 0, 10), &[("crates/a", 16, 0)], &[lower]);
        check(make_measured(1000, 0, 10), &[("crates/a", 10, 2)], &[lower]);
        check(
            make_measured(1000, 0, 0),
            &[("crates/b", 1, 0)],
            &["crates/b: has no sentences"],
        );
    }

    #[test]
    fn messages_have_their_own_ceilings() {
        let found = compare_shares(
            &BTreeMap::from([("crates/a".to_owned(), make_measured(1000, 0, 2))]),
            &[("crates/a", 1, 0), ("crates/b", 1, 0)],
            Subject::Messages,
        );
        let what: Vec<&str> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(
            what[0],
            "has no sentences of messages: take it out of MESSAGE_CEILINGS of xtask/src/tidy/plain/ceilings.rs"
        );
        assert!(
            what[1].starts_with("2 of 1000 sentences of messages have to be read twice"),
            "{}",
            what[1]
        );
        assert_eq!((found.len(), found[2].place.as_str()), (4, "crates/a/src/b.rs:0"));
    }

    #[test]
    fn a_ceiling_has_a_bound() {
        let higher = "is higher than 50 and 3";
        check(make_measured(1000, 0, 50), &[("crates/a", 51, 0)], &[higher]);
        check(make_measured(1000, 3, 0), &[("crates/a", 3, 4)], &[higher]);
        check(
            make_measured(1000, 4, 0),
            &[("crates/a", 4, 4)],
            &[higher, "(4 ‰, allowed 3 ‰)", "b.rs:0", "b.rs:1", "b.rs:2", "b.rs:3"],
        );
        check(make_measured(10, 1, 0), &[("crates/a", 100, 100)], &[]);
        check(
            make_measured(19, 0, 1),
            &[("crates/a", 54, 0)],
            &["is higher than 53 and 53"],
        );
    }
}
