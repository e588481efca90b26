//! The APIs of Git hosts (GitLab, GitHub, Gitea, Forgejo) about credentials, over the dialer of sources.
//!
//! One module for each host turns each question and order of [`tenure_remote_requests::git_host`] into requests, and reads the answers. These modules are pure. One shell
//! sends the requests within bounds: an order once and never again, a question once for each page. The shell follows no redirect. A value that a host gave out is
//! returned beside the answer, in a type that is never printed. The crate neither waits nor retries, and the planner decides the next step. The crate knows no
//! Kubernetes, so code with an authoriser's credential can't write there.

mod answer;
mod api;
mod call;
mod deploy_key;
mod device;
mod gitea;
mod github;
mod gitlab;
mod host;
#[cfg(test)]
mod malformed_answer_tests;

pub use deploy_key::{DeployKeyPair, fingerprint_bytes, fingerprint_key, fingerprint_value, make_deploy_key};
pub use device::{DeviceFlow, DeviceSecret};
pub use host::{AuthoriserCredential, Host, HostResponse, RemoteHost, StaticHost};
