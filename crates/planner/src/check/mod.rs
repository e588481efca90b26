//! Whether a cluster would accept what somebody wants to commit, as findings: what is wrong, in which file and line, and what to do.
//!
//! Owns what an answer of the API server to a dry run means ([`judge`]), what of a folder can't be judged before something else of it is there
//! ([`Awaited`]), why nothing could be rendered ([`list_rendering_problems`]), and the form that code hosts read ([`write_sarif`]). Refuses to
//! take an answer that didn't come for a no, and to repeat what may quote a Secret.

mod awaited;
mod judge;
mod place;
mod rendering;
mod sarif;
mod surface;

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use tenure_api::ObjectId;
use tenure_api::text::visible_line;

pub use awaited::Awaited;
pub use judge::{Judgement, Rights, Subject, judge, judge_reach, note_encrypted, note_warning};
pub use rendering::list_rendering_problems;
pub use sarif::write_sarif;
pub use surface::find_target_namespace;

use crate::object::Origin;

/// The most findings that are told: a folder of somebody else's must not make a report without end.
pub const MOST_FINDINGS: usize = 5_000;
/// The most bytes of a message.
const LONGEST_MESSAGE: usize = 2_048;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// The folder can't be built.
    Rendering,
    /// The account lacks a right.
    Rbac,
    /// A rule, a policy or a webhook refuses it.
    Admission,
    /// Somebody else has it, or a field of it.
    Ownership,
    /// There is no room for it.
    Quota,
    /// It isn't what its kind says, or there is no such kind.
    Schema,
}

impl Category {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Rendering,
        Self::Rbac,
        Self::Admission,
        Self::Ownership,
        Self::Quota,
        Self::Schema,
    ];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rendering => "rendering",
            Self::Rbac => "rbac",
            Self::Admission => "admission",
            Self::Ownership => "ownership",
            Self::Quota => "quota",
            Self::Schema => "schema",
        }
    }

    /// What it means, in a sentence.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Rendering => "The folder can't be built.",
            Self::Rbac => "The account that would apply it lacks a right.",
            Self::Admission => "A rule, a policy or a webhook of the cluster refuses it.",
            Self::Ownership => "Another field manager has a field that Git would set.",
            Self::Quota => "It doesn't fit into a quota.",
            Self::Schema => "It isn't what its kind says, or there is no such kind.",
        }
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It would be refused.
    Error,
    /// It would be accepted, and somebody loses something by it.
    Warning,
    /// It is said, and is no finding to stop at.
    Note,
}

impl Level {
    /// Its name, which is SARIF's, too.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What it is about.
    pub category: Category,
    /// About which object, as `Kind/namespace/name`; none where there is no object yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Where that is written, below the root of the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl Finding {
    fn new(level: Level, category: Category, message: &str, remedy: impl Into<String>) -> Self {
        Self {
            level,
            category,
            object: None,
            origin: None,
            message: shorten(message),
            remedy: remedy.into(),
        }
    }

    fn about(mut self, id: &ObjectId) -> Self {
        let subject = id.subject();
        // Some messages begin with it.
        if let Some(rest) = self.message.strip_prefix(&format!("{subject}: ")) {
            self.message = rest.to_owned();
        }
        self.object = Some(subject);
        self
    }

    fn at(mut self, origin: Option<Origin>) -> Self {
        self.origin = origin.filter(|origin| !origin.path.is_empty());
        self
    }
}

impl fmt::Display for Finding {
    /// One line, as compilers write theirs; nothing in it makes another, or speaks to a terminal.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(formatter, "{origin}: ")?;
        }
        write!(formatter, "{}: {}: ", self.level.as_str(), self.category.as_str())?;
        if let Some(object) = &self.object {
            write!(formatter, "{}: ", visible_line(object))?;
        }
        write!(
            formatter,
            "{}; {}",
            visible_line(&self.message),
            visible_line(&self.remedy)
        )
    }
}

/// Whether there is something to stop at.
#[must_use]
pub fn is_refused(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.level != Level::Note)
}

/// Leaves as many findings as are told, and says that there are more.
pub fn bound(findings: &mut Vec<Finding>) {
    let Some(more) = findings.len().checked_sub(MOST_FINDINGS).filter(|more| *more > 0) else {
        return;
    };
    // The worst are told.
    findings.sort_by_key(|finding| finding.level);
    let worst = findings.get(MOST_FINDINGS).map_or(Level::Note, |finding| finding.level);
    findings.truncate(MOST_FINDINGS);
    findings.push(Finding::new(
        worst,
        Category::Rendering,
        &format!("{more} more findings are not shown"),
        "settle these, and check again",
    ));
}

/// A message in one line and not too long.
fn shorten(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let text: Cow<'_, str> = match line.char_indices().find(|(at, _)| *at >= LONGEST_MESSAGE) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()).into(),
        None => line.into(),
    };
    text.trim_end_matches(['.', ';']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_whatever_is_in_it() {
        let finding = Finding::new(Level::Error, Category::Schema, "a\nb\u{1b}[31m", "do\nit").at(Some(Origin {
            path: "x\n.yaml".to_owned(),
            line: 3,
        }));
        assert_eq!(
            finding.to_string(),
            "x\\n.yaml:3: error: schema: a b\\u{1b}[31m; do\\nit"
        );
    }

    #[test]
    fn what_is_large_is_told_in_part() {
        let long = "ä".repeat(LONGEST_MESSAGE);
        assert!(shorten(&long).len() <= LONGEST_MESSAGE + 4);
        let note = Finding::new(Level::Note, Category::Schema, "note", "none");
        let mut findings = vec![note; MOST_FINDINGS];
        findings.push(Finding::new(Level::Error, Category::Schema, "error", "none"));
        bound(&mut findings);
        assert_eq!(findings.len(), MOST_FINDINGS + 1);
        assert!(is_refused(&findings), "the worst is told");
        assert!(
            findings
                .last()
                .is_some_and(|last| last.message.starts_with("1 more findings"))
        );
    }
}
