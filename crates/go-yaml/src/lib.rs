#![doc = include_str!("../README.md")]

mod cursor;
pub mod emit;
pub mod events;
mod facts;
mod folded;
pub mod json;
pub mod merge_keys;
pub mod meter;
pub mod node;
pub mod notation;
mod number;
mod quick;
pub mod read;
pub mod rewrite;
pub mod scalar;
mod scalar_text;
mod timestamp;
mod token_text;
mod tokens;
pub mod utf16;

pub use number::format_json;
