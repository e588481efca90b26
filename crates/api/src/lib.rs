//! The kinds of every API group that Tenure serves, their conditions and reasons.
