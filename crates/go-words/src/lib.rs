//! Go's small languages, as users of Kubernetes meet them in fields and in messages: quoting, durations, quantities, regular
//! expressions, versions and ranges of versions, the substitution of variables, and the printed form of values.
//!
//! Text in, values and text out: nothing is read from anywhere, and no text makes it panic. Refuses to know what a text is for.

pub mod duration;
pub mod pattern;
pub mod quantity;
pub mod quote;
pub mod substitution;
pub mod value;
pub mod version;

/// The README's example is run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
