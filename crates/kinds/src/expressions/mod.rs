//! The expressions of admission: match conditions of webhooks, and every expression of a policy.
//!
//! This module defines the variables and types of such expressions, compiles them, and evaluates them within a budget. All functions are
//! pure: the caller passes objects, the request's description and the authorizer. The caller also decides the meaning of a result. Only
//! [`Conditions`] are decided here, because webhooks and policies share them.

mod activation;
mod compiler;
mod conditions;
mod environment;

pub use activation::{Activation, Authorizer, Inputs, OUT_OF_BUDGET};
pub use compiler::{Compiler, Expression, Problem};
pub use conditions::{Conditions, Match};
pub use environment::{Scope, make_checking_environment};
