//! Compares crates/kustomize with the real kustomize, on trees of the disk and on random trees. It defines agreement, and never decides which of the two is right.

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
