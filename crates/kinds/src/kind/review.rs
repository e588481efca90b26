//! Kinds without stored objects: reviews that the server answers, and actions that it executes. This module contains their names; other
//! modules answer.

/// The question that an object of a review kind asks.
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

/// The action of an endpoint that doesn't read or write its object itself, such as `pods/log`.
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
