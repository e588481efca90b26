//! Findings about a change before its commit: would a cluster accept it, what is wrong, in which file and line, and what to do.
//!
//! The module has the meaning of the API server's answer to a dry run ([`interpret_refusal`]), the objects that can't be judged before another object of the folder exists
//! ([`Prerequisites`]), the reasons for a failed rendering ([`list_rendering_problems`]), and the form that code hosts read ([`write_sarif`]). A missing answer is never
//! taken for a refusal, and text that may quote a Secret is never repeated.

mod field_location;
mod prerequisites;
mod rendering;
mod sarif;
mod surface;
mod verdict;

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use tenure_api::ObjectId;
use tenure_api::text::visible_line;

pub use prerequisites::Prerequisites;
pub use rendering::list_rendering_problems;
pub use sarif::write_sarif;
pub use surface::find_target_namespace;
pub use verdict::{
    CheckedObject, Rights, Verdict, check_placement, interpret_refusal, make_encrypted_finding, make_warning_finding,
};

use tenure_planner::object::Origin;

/// The most findings in a report: a folder from another author must not make a report without end.
pub const MOST_FINDINGS: usize = 5_000;
/// The most bytes of a message.
const LONGEST_MESSAGE: usize = 2_048;

/// The subject of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// The folder can't be built.
    Rendering,
    /// The account lacks a right.
    Rbac,
    /// A rule, a policy or a webhook refuses it.
    Admission,
    /// Another owner has the object or a field of it.
    Ownership,
    /// The quota is used up.
    Quota,
    /// The object violates its kind's schema, or the kind doesn't exist.
    Schema,
}

impl Category {
    /// All categories.
    pub const ALL: [Self; 6] = [
        Self::Rendering,
        Self::Rbac,
        Self::Admission,
        Self::Ownership,
        Self::Quota,
        Self::Schema,
    ];

    /// Returns the name of the category.
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

    /// Describes the category in a sentence.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Rendering => "The folder can't be built.",
            Self::Rbac => "The account that would apply it lacks a right.",
            Self::Admission => "A rule, a policy or a webhook of the cluster refuses it.",
            Self::Ownership => "Another field manager has a field that Git would set.",
            Self::Quota => "It doesn't fit into a quota.",
            Self::Schema => "It doesn't match the schema of its kind, or the kind doesn't exist.",
        }
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The cluster would refuse the object.
    Error,
    /// The cluster would accept the object, and another writer would lose something.
    Warning,
    /// Information, which fails no check.
    Note,
}

impl Level {
    /// Returns the name of the level, which is also SARIF's.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// A finding of the check: a reason why the cluster would refuse an object, or a warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The severity.
    pub level: Level,
    /// The category.
    pub category: Category,
    /// The object, as `Kind/namespace/name`; unset if no object exists yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The place of the object, below the root of the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The problem.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

impl Finding {
    fn new(level: Level, category: Category, message: &str, remedy: impl Into<String>) -> Self {
        Self {
            level,
            category,
            object: None,
            origin: None,
            message: shorten_message(message),
            remedy: remedy.into(),
        }
    }

    fn with_object(mut self, id: &ObjectId) -> Self {
        let subject = id.subject();
        // Some messages already begin with the object.
        if let Some(rest) = self.message.strip_prefix(&format!("{subject}: ")) {
            self.message = rest.to_owned();
        }
        self.object = Some(subject);
        self
    }

    fn with_origin(mut self, origin: Option<Origin>) -> Self {
        self.origin = origin.filter(|origin| !origin.path.is_empty());
        self
    }
}

impl fmt::Display for Finding {
    /// Prints one line, as compilers do. No text in the line begins another line or sends control characters to a terminal.
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

/// Checks whether a finding has to stop the change.
#[must_use]
pub fn is_refused(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.level != Level::Note)
}

/// Truncates the findings to the bound, and reports that there are more.
pub fn limit_findings(findings: &mut Vec<Finding>) {
    let Some(more) = findings.len().checked_sub(MOST_FINDINGS).filter(|more| *more > 0) else {
        return;
    };
    // The worst findings stay.
    findings.sort_by_key(|finding| finding.level);
    let worst = findings.get(MOST_FINDINGS).map_or(Level::Note, |finding| finding.level);
    findings.truncate(MOST_FINDINGS);
    findings.push(Finding::new(
        worst,
        Category::Rendering,
        &format!("{more} more findings are not shown"),
        "correct these, and run tenure check again",
    ));
}

/// Returns a message in one line and not too long.
fn shorten_message(message: &str) -> String {
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
        let finding =
            Finding::new(Level::Error, Category::Schema, "a\nb\u{1b}[31m", "do\nit").with_origin(Some(Origin {
                path: "x\n.yaml".to_owned(),
                line: 3,
            }));
        assert_eq!(
            finding.to_string(),
            "x\\n.yaml:3: error: schema: a b\\u{1b}[31m; do\\nit"
        );
    }

    #[test]
    fn a_large_report_is_shortened() {
        let long = "ä".repeat(LONGEST_MESSAGE);
        assert!(shorten_message(&long).len() <= LONGEST_MESSAGE + 4);
        let note = Finding::new(Level::Note, Category::Schema, "note", "none");
        let mut findings = vec![note; MOST_FINDINGS];
        findings.push(Finding::new(Level::Error, Category::Schema, "error", "none"));
        limit_findings(&mut findings);
        assert_eq!(findings.len(), MOST_FINDINGS + 1);
        assert!(is_refused(&findings), "the worst finding is reported");
        assert!(
            findings
                .last()
                .is_some_and(|last| last.message.starts_with("1 more findings"))
        );
    }
}
