//! Kinds without stored objects: reviews that the server answers, and actions that it executes. This module contains their names; other
//! modules answer.

/// A question that an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// The identity of the requester.
    SelfSubject,
    /// The identity behind a token.
    Token,
    /// Whether a subject has a right.
    SubjectAccess,
    /// Whether the requester has a right.
    SelfSubjectAccess,
    /// Whether a subject has a right in a namespace.
    LocalSubjectAccess,
    /// The rights of the requester.
    SelfSubjectRules,
}

/// The action of an endpoint that is no view of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A Pod gets its node.
    Bind,
    /// A Pod is evicted, as far as its disruption budget allows.
    Evict,
    /// A running Pod is reached.
    Connect {
        /// Whether the endpoint needs a container.
        needs_container: bool,
    },
    /// A running Pod's log is read.
    ReadLog,
}
