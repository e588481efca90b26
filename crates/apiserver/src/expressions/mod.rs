//! The expressions of admission: match conditions of webhooks, and everything that policies compute.
//!
//! Owns which variables such expressions see and of which types, how they are compiled and refused, and how they are
//! evaluated within a budget. Pure: objects, the request's description and the authorizer are handed in. It refuses to
//! decide what a result means; [`Conditions`] alone do, because webhooks and policies have them in common.

mod activation;
mod compiler;
mod conditions;
mod environment;

pub(crate) use activation::{Activation, Authorizer, Inputs, OUT_OF_BUDGET};
pub(crate) use compiler::{Compiler, Expression, Problem};
pub(crate) use conditions::{Conditions, Match};
pub(crate) use environment::{Scope, checking};
