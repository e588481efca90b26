#![doc = include_str!("../README.md")]

mod ast;
mod checker;
mod compare;
mod cost;
mod declarations;
mod environment;
mod escaping;
mod estimate;
mod estimate_calls;
mod eval;
mod extension;
mod factory;
mod failure;
mod functions;
mod lexer;
mod macros;
mod meter;
mod parser;
pub mod pattern;
mod plan;
mod program;
mod shape;
mod source;
mod time;
mod types;
mod url;
mod validate;
mod value;

pub use environment::Environment;
pub use escaping::escape;
pub use estimate::Range;
pub use eval::Variables;
pub use extension::{Check, Decision, Extension, Stage};
pub use failure::Failure;
pub use functions::named_formats::NamedFormat;
pub use go_words::quantity::Quantity;
pub use go_words::version::Version;
pub use meter::Allowance;
pub use program::{Evaluation, Program};
pub use shape::{LARGEST_REQUEST, Shape};
pub use source::{CompileError, Problem};
pub use time::Timestamp;
pub use types::Type;
pub use url::Url;
pub use value::{List, Map, Text, Value};

/// The maximum cost of one evaluated expression.
pub const EXPRESSION_BUDGET: u64 = 1_000_000;

/// The maximum cost of all expressions of one object, or of one policy's binding, together.
pub const OBJECT_BUDGET: u64 = 10_000_000;

/// The maximum cost of the match conditions of one webhook or policy together.
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;
