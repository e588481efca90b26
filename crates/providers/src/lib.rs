//! Hosts' own APIs: what GitLab, GitHub, Gitea and Forgejo are asked about credentials, over the dialer of sources.
//!
//! Owns how each question and order of [`tenure_planner::access::host`] becomes requests of an API, and what the answers mean: pure, in one module
//! for each host. Around them one shell sends: an order once and never again, a question once for each page, no redirect followed, all within
//! bounds. A value that a host gave out is returned beside what is said about it, as something that is never printed. Refuses to wait, to try
//! again and to decide what comes next: that is the planner's. It knows no Kubernetes, so that what holds an authoriser's credential can't write there.

mod answer;
mod api;
mod call;
mod device;
mod gitea;
mod github;
mod gitlab;
mod host;
#[cfg(test)]
mod hostile;
mod key;

pub use device::{DeviceFlow, DeviceSecret};
pub use host::{Answered, Authoriser, Host, RemoteHost, StaticHost};
pub use key::{DeployKeyPair, fingerprint_bytes, fingerprint_key, fingerprint_value, make_deploy_key};
