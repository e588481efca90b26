//! Go's small languages, as users of Kubernetes meet them in fields and in messages: quoting, durations, quantities, regular expressions,
//! versions and ranges of versions, the substitution of variables, and the printed form of values.
//!
//! All functions are pure: texts in, values and texts out. No text causes a panic. No function knows the purpose of a text.

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
