//! The rules for credentials of Git hosts. The planner decides how credentials are made and replaced.
//!
//! - [`receiver`]: the namespaces that may receive a credential.
//! - [`readers`]: other ways to read its Secret than by the accounts in the entry.
//! - [`bindings`]: bindings and their rights, as the API server lists them.
//! - [`approval`]: the grants that count for a request.

pub mod approval;
pub mod bindings;
pub mod pattern;
pub mod readers;
pub mod receiver;

pub use approval::Verdict;
pub use pattern::NamespacePattern;
pub use receiver::{EntryAuthor, ReceivingNamespace};

/// The prefix of users of a host for whom an account vouches.
pub const VOUCHED_PREFIX: &str = "gitlab:";
