//! What the served kinds are, and what CustomResourceDefinitions say of theirs. Pure: values in, values out.
//!
//! From below: types, the rules that many kinds share (`schema`), and the Table view (`table`); the shape of a kind as one value
//! (`kind`); one folder a group with one file or folder a kind (`apps/deployment.rs`); and on top the table of all (`built_in`). Beside
//! them `customresources`, strategic merges, protobuf, OpenAPI, and what CEL sees (`expressions`).
//!
//! Refuses to store or fetch anything, and to decide who may do what. Of a request it is told what a kind has to know
//! ([`kind::Request`]), time and randomness included. What it finds wrong are field errors; which answer they become is the API server's.

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
pub mod built_in;
mod certificates;
mod coordination;
mod core_group;
pub mod customresources;
mod discovery;
mod events;
pub mod expressions;
pub mod kind;
mod networking;
mod node;
pub mod object;
pub mod openapi_v2;
mod policy;
pub mod protobuf;
pub mod quota;
mod rbac;
mod scheduling;
pub mod schema;
mod storage;
pub mod strategic;
pub mod table;
