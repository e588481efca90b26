//! The configuration of access as one list of entries: from `flux_access` in an agent's configuration, from a file beside it, and from a
//! [`FluxAccess`](tenure_api::access::FluxAccess).
//!
//! This module has the words of GitLab's issue 389393, Tenure's additions, their defaults and their limits. Each entry is independent. An invalid entry is left out
//! and reported by file, line and entry. It is also kept in [`Unread`], so that its earlier requests continue. Receivers are decided in `tenure_tenancy::access`.
//! The module stores no state: an unreadable file is [`Reading::Unreadable`], and the caller keeps the entries that it read earlier.
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
use tenure_remote_requests::git_host::{Role, Scope};

/// The maximum of projects, and of groups, in one configuration: the limit of GitLab's `ci_access`.
pub const MOST_OF_A_SCOPE: usize = 500;
/// The maximum of namespaces, and of ServiceAccounts, of an entry.
pub const MOST_OF_AN_ENTRY: usize = 64;
/// The maximum of problems that are reported for one configuration.
pub const MOST_PROBLEMS: usize = 2_000;

/// The place of an entry, for messages: the file or object, the line and the entry's position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file or the object.
    pub file: Arc<str>,
    /// The line. Unset for an object.
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

/// A problem of an entry, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Problem {
    /// The place.
    pub place: Place,
    /// The problem, with advice.
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

/// A valid entry of a configuration: a project or group whose credential is requested, and the Secret that gets the credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The place of the entry.
    pub place: Place,
    /// The scope: project or group.
    pub scope: Scope,
    /// The path, as written.
    pub path: String,
    /// The role of the credential.
    pub role: Role,
    /// The interval of replacement.
    pub rotate: Period,
    /// The name of the Secret.
    pub secret_name: String,
    /// The namespaces for the Secret, without duplicates.
    pub namespaces: Vec<NamespacePattern>,
    /// The ServiceAccounts that may read the Secret.
    pub service_accounts: Vec<String>,
    /// If true, nothing is delivered to a namespace in which another subject can get the Secret.
    pub is_strict: bool,
    /// If true, the kubelet also pulls the images of these accounts with the Secret.
    pub is_for_images: bool,
}

/// The projects and groups that unreadable parts of a configuration may name. Existing requests for these projects and groups continue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// True if some part names unknown projects or groups.
    is_open: bool,
    /// Paths of projects and groups, in lower case.
    paths: BTreeSet<String>,
}

impl Unread {
    /// Returns an unreadable part that may name any project and group.
    #[must_use]
    pub fn of_anything() -> Self {
        Self {
            is_open: true,
            paths: BTreeSet::new(),
        }
    }

    /// Adds an entry, by its path if the path could be read.
    pub fn add(&mut self, path: Option<&str>) {
        match path {
            Some(path) => {
                self.paths.insert(path.to_ascii_lowercase());
            }
            None => self.is_open = true,
        }
    }

    /// Adds the projects and groups that another unreadable part may name.
    pub fn join(&mut self, other: &Self) {
        self.is_open |= other.is_open;
        self.paths.extend(other.paths.iter().cloned());
    }

    /// Checks whether an unreadable part may ask for this project or group.
    #[must_use]
    pub fn may_name(&self, path: &str) -> bool {
        self.is_open || self.paths.contains(&path.to_ascii_lowercase())
    }

    /// Checks whether some part names unknown projects or groups.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Checks whether there is no unreadable part, so the configuration was read completely.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.is_open && self.paths.is_empty()
    }
}

/// The usable entries of a configuration, and its problems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The entries, in their order.
    pub entries: Vec<Entry>,
    /// The problems of other entries.
    pub problems: Vec<Problem>,
    /// The projects and groups that the other entries may name.
    pub unread: Unread,
}

impl Configuration {
    fn add_problem(&mut self, problem: Problem) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// Joins the entries of two files of one agent. The limits apply to each file.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self.unread.join(&other.unread);
        other.problems.into_iter().for_each(|problem| self.add_problem(problem));
        self
    }
}

/// The result of reading a configuration file: its entries, or the problem of the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The file was read. The list may be empty.
    Read(Configuration),
    /// The file can't be read as a whole. Its earlier entries stay in effect.
    Unreadable(Problem),
}

#[cfg(test)]
mod tests;
