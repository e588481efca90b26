//! Owns YAML as Go's libraries read and write it: nodes with their lines, both scalar dialects, merge keys, and the emitter.
//! Knows nothing of kustomizations or Kubernetes.

mod cursor;
pub(crate) mod emit;
mod events;
mod facts;
pub(crate) mod folded;
pub(crate) mod growth;
pub(crate) mod json;
pub(crate) mod merge_keys;
pub(crate) mod node;
pub(crate) mod notation;
pub(crate) mod number;
mod quick;
pub(crate) mod read;
pub(crate) mod rewrite;
pub(crate) mod scalar;
mod scalars;
pub(crate) mod timestamp;
mod token_text;
mod tokens;
pub(crate) mod utf16;
