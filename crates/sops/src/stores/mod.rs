//! Owns the formats: how each is read into documents, and how documents are written once they are clear.

pub(crate) mod dotenv;
pub(crate) mod ini;
pub(crate) mod json;
pub(crate) mod yaml;
mod yaml_reader;
