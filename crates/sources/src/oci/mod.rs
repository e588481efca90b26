//! Artifacts of container registries: the registry protocol, credentials, signatures, and layers into archives.
//!
//! Every connection goes through the dialer, as for Git. A fetch fails if one of these rules would be broken:
//!
//! - Only the registry itself may ask for credentials, never the target of its redirect.
//! - Credentials of the registry go to the registry. They go to its token server only if both are of the same site, or if the Secret has an entry for
//!   its host ([`challenge::Realm`]). All other hosts get requests without credentials.
//! - A token goes to the registry alone. Only the right to pull is requested.
//! - Plain HTTP is used only for a registry that is declared `insecure`; TLS is always verified.
//! - A manifest, a blob and a signature must have their digests.

mod bundle;
mod challenge;
mod cosign;
mod credentials;
mod error;
mod fetch;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod image;
mod layer;
mod manifest;
mod reference;
mod registry;
mod tags;
mod token;

pub use error::OciError;
pub use fetch::fetch_artifact;
pub use image::resolve_image;
pub use reference::{ArtifactReference, Digest, OciRequest, OciSecrets, RepositoryUrl};
pub(crate) use registry::ask_for_tags;
