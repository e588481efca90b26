//! Who may receive a credential of a host of repositories, who may read it where it is, and whose word lets it be made.
//!
//! Owns which namespaces an entry reaches, by whose it is ([`receiver`]); which other ways there are to a Secret than the accounts that an entry names
//! ([`readers`]); and when a grant counts for a request ([`approval`]). Refuses to know how credentials are made and replaced, which is the planner's.

pub mod approval;
pub mod pattern;
pub mod readers;
pub mod receiver;

pub use approval::Verdict;
pub use pattern::NamespacePattern;
pub use receiver::{Asker, ReceivingNamespace};
