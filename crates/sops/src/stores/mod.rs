//! The formats: each reads a file into documents, and writes clear documents.

pub(crate) mod dotenv;
pub(crate) mod ini;
pub(crate) mod json;
pub(crate) mod yaml;
mod yaml_reader;
