//! The built-in transformers, one file each. They change resources in memory and read nothing.

pub(crate) mod field_paths;
pub(crate) mod images;
pub(crate) mod inner_text;
pub(crate) mod labels;
pub(crate) mod names;
pub(crate) mod namespace;
pub(crate) mod order;
pub(crate) mod references;
pub(crate) mod replacements;
pub(crate) mod replicas;
pub(crate) mod value_add;
pub(crate) mod vars;
