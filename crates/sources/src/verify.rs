//! Verifies that a trusted key has signed the fetched objects: the commit, and the tag that leads to it.
//!
//! Applies `spec.verify`, and names each failure. A tag must contain the requested name: a server could give out an old, well-signed tag under a new name. The crate
//! `git-signatures` verifies the signatures themselves.

use std::rc::Rc;

use git_signatures::{ObjectFormat, Signed, TrustedKeys, read_tag_name, split_commit, split_tag};
use sha2::{Digest as _, Sha256};
use tenure_remote_requests::fetch::FetchReason;
use tenure_remote_requests::git::VerifyMode;

use crate::error::FetchError;
use crate::git::oid::{Algorithm, Oid};
use crate::secret::SecretData;

/// The trusted keys, and the objects that have to be signed.
#[derive(Debug, Clone)]
pub(crate) struct TrustedSigners {
    mode: VerifyMode,
    keys: TrustedKeys,
    /// The digest of the mode and the keys.
    digest: String,
}

/// A received tag object, whose signature is verified.
pub(crate) struct ReceivedTag {
    pub(crate) id: Oid,
    pub(crate) content: Rc<Vec<u8>>,
}

/// The largest commit or tag that is verified; real messages are far below one mebibyte.
const LARGEST: usize = 1 << 20;

impl TrustedSigners {
    /// Reads the trusted keys from the data of a Secret.
    pub(crate) fn read(mode: VerifyMode, secret: Option<&SecretData>) -> Result<Self, FetchError> {
        let invalid = |problem: String| FetchError::InvalidKeys { problem };
        let secret = secret.ok_or_else(|| invalid("it was not read".to_owned()))?;
        let keys = TrustedKeys::read(secret).map_err(|error| invalid(error.to_string()))?;
        let mut hash = Sha256::new();
        hash.update(mode.as_str());
        for (name, content) in secret {
            for part in [name.as_bytes(), content] {
                hash.update(part.len().to_be_bytes());
                hash.update(part);
            }
        }
        Ok(Self {
            mode,
            keys,
            digest: hex::encode(hash.finalize()),
        })
    }

    /// Returns the digest: another set of keys verifies again.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// Checks whether the tag has to be signed.
    pub(crate) fn needs_tag(&self) -> bool {
        self.mode.needs_tag()
    }

    /// Verifies the required signatures. Returns whose they were, in Flux's words.
    ///
    /// `name` is the full name of the fetched reference. `tag` is its target if that is a tag object.
    pub(crate) fn verify(
        &self,
        name: Option<&str>,
        tag: Option<&ReceivedTag>,
        (commit, content): (&Oid, &[u8]),
        now: i64,
    ) -> Result<String, FetchError> {
        let mut words = "verified signature of".to_owned();
        if self.mode.needs_tag() {
            let signer = self.verify_tag(name, tag, now)?;
            words.push_str(&signer);
        }
        if self.mode.needs_commit() {
            let fail = |why: String| FetchError::Unverified {
                reason: FetchReason::InvalidCommitSignature,
                problem: format!("signature verification of commit '{commit}' failed: {why}"),
            };
            let format = match commit.algorithm() {
                Algorithm::Sha1 => ObjectFormat::Sha1,
                Algorithm::Sha256 => ObjectFormat::Sha256,
            };
            if content.len() > LARGEST {
                return Err(fail("it is larger than 1 MiB".to_owned()));
            }
            let signed = split_commit(content, format)
                .ok_or_else(|| fail("it is malformed, or has more than one signature".to_owned()))?;
            let signer = self.find_signer(&signed, now).map_err(fail)?;
            words.push_str(&format!("\n\t- commit '{commit}' with key '{signer}'"));
        }
        Ok(words)
    }

    /// Verifies the signature of a tag, and that the tag contains the requested name. Returns the signer.
    fn verify_tag(&self, name: Option<&str>, tag: Option<&ReceivedTag>, now: i64) -> Result<String, FetchError> {
        let asked = name
            .and_then(|name| name.strip_prefix("refs/tags/"))
            .unwrap_or_default();
        let not_signed = |shown: &str| FetchError::Unverified {
            reason: FetchReason::InvalidGitObject,
            problem: format!("cannot verify signature of tag '{shown}' since it is not signed"),
        };
        // A lightweight tag is only a name.
        let tag = tag.ok_or_else(|| not_signed(asked))?;
        let shown = format!("{asked}@{}", tag.id);
        let fail = |why: String| FetchError::Unverified {
            reason: FetchReason::InvalidTagSignature,
            problem: format!("signature verification of tag '{shown}' failed: {why}"),
        };
        if tag.content.len() > LARGEST {
            return Err(fail("it is larger than 1 MiB".to_owned()));
        }
        let signed =
            split_tag(&tag.content).ok_or_else(|| fail("its signature is not text, or too long".to_owned()))?;
        if signed.signature.is_empty() {
            return Err(not_signed(&shown));
        }
        let signer = self.find_signer(&signed, now).map_err(fail)?;
        match read_tag_name(&tag.content) {
            Some(own) if own == asked => Ok(format!("\n\t- tag '{shown}' with key '{signer}'")),
            own => Err(fail(format!(
                "the signed object is named {:?}: the server returns one tag for another",
                own.unwrap_or_default().chars().take(100).collect::<String>()
            ))),
        }
    }

    fn find_signer(&self, signed: &Signed, now: i64) -> Result<String, String> {
        self.keys.verify(signed, now).map_err(|error| error.to_string())
    }
}
