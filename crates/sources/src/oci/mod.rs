//! Artifacts of container registries: the registry protocol, who is shown which credential, signatures, and layers into archives.
//!
//! Every connection goes through the dialer, as Git's do. Owns these rules, and refuses what breaks them:
//!
//! - What asks for credentials is believed from the registry alone, never from where it redirects to.
//! - Credentials of the registry go to the registry, and to the server of tokens that it names if that is of the same site, or if the
//!   Secret has an entry for its host ([`challenge::Realm`]). To any other a request goes without credentials.
//! - A token goes to the registry alone. Only the right to pull is ever asked for.
//! - Plain HTTP is spoken with a registry that is said to be `insecure`, and with no other; TLS is never unverified.
//! - A manifest, a blob and a signature are what their digests say.

mod bundle;
mod challenge;
mod cosign;
mod credentials;
mod error;
mod fetch;
mod layer;
mod manifest;
mod reference;
mod registry;
mod tags;
mod token;

pub use error::OciError;
pub use fetch::fetch_artifact;
pub use reference::{ArtifactReference, Digest, OciRequest, OciSecrets, RepositoryUrl};
pub(crate) use registry::ask_for_tags;
