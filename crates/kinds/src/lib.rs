//! The served kinds, and the kinds of CustomResourceDefinitions. All functions are pure: values in, values out.
//!
//! The modules from bottom to top: types, the rules that many kinds share (`schema`), and the Table view (`table`); the form of a kind as
//! one value (`kind`); one folder for each group with one file or folder for each kind (`apps/deployment.rs`); and the table of all kinds
//! (`built_in`). Beside them are `customresources`, strategic merges, protobuf, OpenAPI, and the values that CEL sees (`expressions`).
//!
//! This crate stores and fetches nothing, and does not decide about rights. The caller passes the facts about a request that a kind needs
//! ([`kind::Request`]), also time and randomness. The results are field errors; the API server makes the answers from them.

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
