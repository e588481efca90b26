//! Finds the digest of an image's tag, for a command of a user. Nothing of the image is received.

use super::credentials::Keychain;
use super::error::OciError;
use super::reference::{Digest, RepositoryUrl, is_tag};
use super::registry::{MANIFEST_BYTES, Registry};
use crate::connector::Connector;
use crate::dialer::Dialer;
use crate::fetch_budgets::{FetchBudgets, GrowingCharge};
use crate::limits::Limits;
use crate::secret::{SecretData, TlsOptions};

/// Bytes of everything that arrives for one question: the answers of a registry and of its token server.
const RECEIVED: u64 = 2 * MANIFEST_BYTES;

/// Returns the digest of a tag, with credentials in the form of a Secret of type `kubernetes.io/dockerconfigjson`. For an image of several platforms, this is the
/// digest of the list. The caller bounds the time.
///
/// # Errors
/// An [`OciError`] that says what failed.
pub async fn resolve_image(
    url: &RepositoryUrl,
    tag: &str,
    credentials: &[SecretData],
    reach: &Connector,
) -> Result<Digest, OciError> {
    if !is_tag(tag) {
        return Err(OciError::InvalidField {
            field: "tag",
            problem: "it must have at most 128 letters, digits, dots, dashes and underscores, and begin with none of dot and dash".to_owned(),
        });
    }
    let keychain = Keychain::read(credentials)?;
    let limits = Limits {
        received_bytes: RECEIVED,
        ..Limits::default()
    };
    let dialer = Dialer::new(reach.clone(), &limits);
    let tls = TlsOptions::default();
    let mut registry = Registry::new(&dialer, url, &keychain, &tls);
    if let Some(digest) = registry.resolve_tag(tag).await? {
        return Ok(digest);
    }
    let budgets = FetchBudgets::unlimited();
    let mut memory = GrowingCharge::new_unused(budgets.memory.try_acquire("", 0)?);
    Ok(registry.get_manifest(tag, &mut memory).await?.1)
}
