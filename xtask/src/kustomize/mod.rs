//! Compares crates/kustomize with the real kustomize: on trees of the disk, and on trees made up by chance. Owns how both
//! are asked and what counts as agreement; refuses to decide which of the two is right.

mod bodies;
mod compare;
mod fuzz;
mod generators;
mod objects;
mod oracle;
mod overlays;
mod patches;
mod plugins;
mod pods;
mod random;
mod replacements;
mod scalars;
mod schemas;
mod shrink;
mod transformers;
mod trees;
mod writer;

pub(crate) use compare::Compare;
pub(crate) use fuzz::Fuzz;
