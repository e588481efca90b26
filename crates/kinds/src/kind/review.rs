//! Kinds whose objects are no objects: questions that are answered, and orders that are carried out, and that nobody stores. Owns their
//! names. Refuses to answer.

/// A question that an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// Who asks.
    SelfSubject,
    /// Whose a token is.
    Token,
    /// Whether somebody may do something.
    SubjectAccess,
    /// Whether who asks may do something.
    SelfSubjectAccess,
    /// Whether somebody may do something in a namespace.
    LocalSubjectAccess,
    /// What who asks may do.
    SelfSubjectRules,
}

/// What is done through an endpoint that is no view of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A Pod gets its node.
    Bind,
    /// A Pod is evicted, as far as its disruption budget allows.
    Evict,
    /// A running Pod is reached.
    Connect {
        /// Whether one of its containers is.
        needs_container: bool,
    },
    /// A running Pod's log is read.
    ReadLog,
}
