//! Fetches Git repositories, artifacts of container registries, objects of buckets and Helm charts, within bounds, into verified artifacts; and sends notifications.
//!
//! A source's specification leads to an archive in the [`ArtifactStore`] and back into memory as a [`Tree`]. One dialer opens every connection of every protocol. It
//! checks the socket address against the [`Policy`] and counts the received bytes. The crate starts no program, makes no working tree, reads no proxy or configuration of
//! the user, and puts no credential into an error. Held bytes are counted against a [`ByteBudget`]. The crate serves no artifacts: it opens no listener.

mod archive;
mod archive_writer;
mod artifact;
mod bucket;
mod budget;
mod cancel;
mod compose;
mod connector;
mod deleted_sources;
mod deploy_key;
mod dialer;
mod download;
mod error;
mod fetch;
mod fetch_budgets;
mod fingerprint;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod git;
mod github_app;
mod glob;
mod helm;
mod host_client;
mod host_keys;
mod http;
mod identity;
mod ignore;
mod import;
mod known_hosts;
mod lfs;
mod limits;
mod merge;
mod notification;
mod oci;
mod pack_transfer;
mod peer;
mod policy;
mod probe;
mod proxy;
mod reference_selection;
mod request;
mod secret;
mod smart_http;
mod ssh;
mod submodules;
mod tar_reader;
mod tls;
mod transport;
mod tree;
mod unpack;
mod url;
mod verify;
mod yaml_merge;

pub use artifact::{ArtifactStore, SourceKey, read_archive, read_archive_size};
pub use bucket::{AccessKeys, BucketError, BucketRequest, BucketSecrets, fetch_bucket};
pub use budget::{BudgetDemand, BudgetLimits, ByteBudget, HeldBytes, OverBudget};
pub use compose::{ComposeError, compose, count_parts, find_made};
pub use connector::{Connect, ConnectFailure, ConnectRefusal, Connector};
pub use deleted_sources::remove_deleted_sources;
pub use deploy_key::{DeployKey, PublicHalf, read_pair};
pub use dialer::{check_connection, open_connection};
pub use download::{DownloadError, download};
pub use error::{FetchError, StorageError};
pub use fetch::fetch;
pub use fetch_budgets::FetchBudgets;
pub use git::lfs_pointer::describe_pointer;
pub use github_app::{AppTokens, GitHubApp, Installation};
pub use helm::{ChartError, ChartFetch, HelmSecrets, IndexFetch, count_files, fetch_chart, fetch_index};
pub use host_client::{BaseUrl, HostAnswer, HostClient, HostFailure, HostRequest};
pub use host_keys::{HostKey, read_host_key, select_host_keys};
pub use limits::Limits;
pub use notification::{NotificationDenial, NotificationFailure, find_denial, send_notification};
pub use oci::{
    ArtifactReference, Digest, OciError, OciRequest, OciSecrets, RepositoryUrl, fetch_artifact, resolve_image,
};
pub use peer::{Peer, PeerClient, PeerConnection, PeerError, PeerTls};
pub use policy::{Cidr, Denied, Endpoint, InvalidCidr, InvalidEndpoint, Policy, Scheme};
pub use probe::{KeyUse, probe_git, probe_key, probe_registry};
pub use proxy::Proxy;
pub use reference_selection::read_tag_version;
pub use request::{GitRequest, GitSecrets, Reference};
pub use secret::{Credentials, SecretBytes, SecretData, TlsOptions};
pub use tree::{Entry, Node, Tree};
pub use url::RemoteUrl;
