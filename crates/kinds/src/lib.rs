//! What the served kinds are: their types, defaults, validation and warnings, tables, strategic merges, protobuf and OpenAPI, and what
//! CustomResourceDefinitions say of theirs. Pure: values in, values out.
//!
//! Refuses to store or fetch anything, to know a request, and to decide who may do what. What it finds wrong are field errors; which
//! answer they become is the API server's.

pub mod customresources;
pub mod expressions;
pub mod openapi_v2;
pub mod protobuf;
pub mod schema;
pub mod strategic;
pub mod table;
