//! The request to fetch the objects of a bucket.

use std::time::Duration;

use serde::Serialize;

use crate::artifact::StoredArtifact;

/// A request to fetch the objects of a bucket, as the planner makes it. It names Secrets and never contains their data: the crate `sources` adds the credentials.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchRequest {
    /// Address of the store, `host` or `host:port`.
    pub endpoint: String,
    /// Name of the bucket.
    pub bucket: String,
    /// The region of the bucket. If unset, it is the store's answer, or else `us-east-1`.
    pub region: Option<String>,
    /// The prefix of the objects' keys.
    pub prefix: String,
    /// Whether the store is spoken to over plain HTTP.
    pub insecure: bool,
    /// Secret with the credentials. All Secrets of this request are in the source's namespace, and are read as the plan's identity.
    pub secret: Option<String>,
    /// Secret with the trusted certificates and the client's own one.
    pub certificates: Option<String>,
    /// Secret with the address of a proxy, and credentials for it.
    pub proxy: Option<String>,
    /// Patterns of objects to leave out.
    pub ignore: Option<String>,
    /// The time limit.
    pub timeout: Duration,
    /// The stored artifact that was made with the same `ignore`. If all other inputs are unchanged as well, nothing is fetched.
    pub known: Option<StoredArtifact>,
    /// Whether the platform asks: a tenant's request is bound to the addresses that an administrator allows to tenants.
    pub platform: bool,
}
