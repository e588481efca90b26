//! What is asked for: `flux_access` in an agent's configuration, in a file beside it, and in a [`FluxAccess`](tenure_api::access::FluxAccess), as one
//! list of entries.
//!
//! Owns the words of GitLab's issue 389393 and what is added to them, their defaults and their bounds. Each entry stands for itself: one that is wrong is
//! left out and said, by file, line and entry, and kept in [`Unread`], so that what it asked for before goes on. Refuses to decide who may have what (`tenure_tenancy::access`), and to remember: a file that can't be read
//! at all is [`Reading::Unreadable`], and whoever asked keeps what it read before.
//!
//! ```text
//! config.yaml, flux-access.yaml ──[file]───▶ Draft ─┐
//! FluxAccess ────────────────────[object]─▶ Draft ─┴─[draft]─▶ Entry ──[assignment]──▶ which entry has which Secret in which namespace
//! ```

pub mod assignment;
mod draft;
mod file;
mod object;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use tenure_api::access::Period;
use tenure_api::access::provider::EntryProblem;
use tenure_tenancy::access::NamespacePattern;

pub use self::file::{File, read_file};
pub use self::object::read_object;
use super::host::{Role, Scope};

/// The most projects, and the most groups, of one configuration: as many as GitLab's `ci_access` takes.
pub const MOST_OF_A_SCOPE: usize = 500;
/// The most namespaces, and the most ServiceAccounts, of an entry.
pub const MOST_OF_AN_ENTRY: usize = 64;
/// The most problems that are told of one configuration.
pub const MOST_PROBLEMS: usize = 2_000;

/// Where something stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, or the object.
    pub file: Arc<str>,
    /// The line; none of an object.
    pub line: Option<u32>,
    /// The entry, such as `projects[3]`.
    pub entry: String,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(formatter, ":{line}")?;
        }
        if self.entry.is_empty() {
            return Ok(());
        }
        write!(formatter, ": {}", self.entry)
    }
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What is wrong, and what to do.
    pub message: String,
}

impl From<&Problem> for EntryProblem {
    fn from(problem: &Problem) -> Self {
        Self {
            file: problem.place.file.to_string(),
            line: problem.place.line,
            entry: problem.place.entry.clone(),
            message: problem.message.clone(),
        }
    }
}

/// One project or group that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub place: Place,
    /// Which of both.
    pub scope: Scope,
    /// Its path, as it was written.
    pub path: String,
    /// What for.
    pub role: Role,
    /// How often it is replaced.
    pub rotate: Period,
    /// The name of the Secret.
    pub secret_name: String,
    /// Where it is wanted; no pattern is there twice.
    pub namespaces: Vec<NamespacePattern>,
    /// Who may read the Secret.
    pub service_accounts: Vec<String>,
    /// Nothing is delivered where somebody else has a way to it.
    pub is_strict: bool,
    /// These accounts' containers are fetched with it, too.
    pub is_for_images: bool,
}

/// The projects and groups that unreadable parts of a configuration may name. Requests for them continue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// Whether some part names projects or groups that are not known.
    is_open: bool,
    /// Paths of projects and groups, in lower case.
    paths: BTreeSet<String>,
}

impl Unread {
    /// The unreadable part may name any project and group.
    #[must_use]
    pub fn anything() -> Self {
        Self {
            is_open: true,
            paths: BTreeSet::new(),
        }
    }

    /// Adds an entry, by its path if that could be read.
    pub fn add(&mut self, path: Option<&str>) {
        match path {
            Some(path) => {
                self.paths.insert(path.to_ascii_lowercase());
            }
            None => self.is_open = true,
        }
    }

    /// Adds what another unreadable part may name.
    pub fn join(&mut self, other: &Self) {
        self.is_open |= other.is_open;
        self.paths.extend(other.paths.iter().cloned());
    }

    /// Whether it may ask for a project or group.
    #[must_use]
    pub fn may_name(&self, path: &str) -> bool {
        self.is_open || self.paths.contains(&path.to_ascii_lowercase())
    }

    /// Whether some part names projects or groups that are not known.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether all of it could be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.is_open && self.paths.is_empty()
    }
}

/// All that can be used of a configuration, and what can't.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The entries, in their order.
    pub entries: Vec<Entry>,
    /// What is wrong with others.
    pub problems: Vec<Problem>,
    /// The projects and groups that the other entries may name.
    pub unread: Unread,
}

impl Configuration {
    fn complain(&mut self, problem: Problem) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// The entries of two files of one agent; each may have as many as it may.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self.unread.join(&other.unread);
        other.problems.into_iter().for_each(|problem| self.complain(problem));
        self
    }
}

/// What came of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It was read; perhaps it asks for nothing.
    Read(Configuration),
    /// It can't be read as a whole: what it said before goes on.
    Unreadable(Problem),
}

#[cfg(test)]
mod tests;
