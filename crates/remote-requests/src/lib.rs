//! Requests to servers outside the cluster, and their results: fetches of sources, notifications, and requests to Git hosts.
//!
//! The planner makes these requests, and shells send them. The crate has types alone: it decides nothing and opens no connection. A request names a Secret and never
//! contains it, except for a notification, which is not printed.

pub mod address;
pub mod artifact;
pub mod bucket;
pub mod chart;
pub mod composition;
pub mod download;
pub mod fetch;
pub mod git;
pub mod git_host;
pub mod helm;
pub mod notification;
pub mod oci;
