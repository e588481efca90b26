//! The expressions of admission: match conditions of webhooks, and everything that policies compute.
//!
//! Owns which variables such expressions see and of which types, how they are compiled and refused, and how they are
//! evaluated within a budget. Pure: objects, the request's description and the authorizer are handed in. It refuses to
//! decide what a result means; [`Conditions`] alone do, because webhooks and policies have them in common.

mod activation;
mod compiler;
mod conditions;
mod environment;

pub use activation::{Activation, Authorizer, Inputs, OUT_OF_BUDGET};
pub use compiler::{Compiler, Expression, Problem};
pub use conditions::{Conditions, Match};
pub use environment::{Scope, checking};
