//! `spec.verify`: which objects must be signed, and whether such an object is fetched at all.

use serde::Serialize;
use tenure_api::git_repository::{GitRepositoryRef, GitRepositoryVerification};

use crate::source::{Refusal, RefusalReason};

/// The objects that must be signed, and the trusted keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyRequest {
    /// The objects that must be signed.
    pub mode: VerifyMode,
    /// Secret with the trusted public keys, in the repository's namespace, read as the plan's identity.
    pub secret: String,
}

/// The objects that must be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum VerifyMode {
    /// The commit.
    #[serde(rename = "HEAD")]
    Head,
    /// The tag that it is fetched by.
    Tag,
    /// Both.
    #[serde(rename = "TagAndHEAD")]
    TagAndHead,
}

impl VerifyMode {
    /// Returns the mode as the spec and the status write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Head => "HEAD",
            Self::Tag => "Tag",
            Self::TagAndHead => "TagAndHEAD",
        }
    }

    /// Checks whether the commit has to be signed.
    #[must_use]
    pub fn needs_commit(self) -> bool {
        self != Self::Tag
    }

    /// Checks whether the tag has to be signed.
    #[must_use]
    pub fn needs_tag(self) -> bool {
        self != Self::Head
    }
}

/// Reads which objects must be signed.
pub(super) fn read_verification(
    verification: Option<&GitRepositoryVerification>,
    reference: Option<&GitRepositoryRef>,
) -> Result<Option<VerifyRequest>, Refusal> {
    let Some(verification) = verification else {
        return Ok(None);
    };
    let mode = match verification.mode.as_deref() {
        None | Some("HEAD" | "head") => VerifyMode::Head,
        Some("Tag") => VerifyMode::Tag,
        Some("TagAndHEAD") => VerifyMode::TagAndHead,
        Some(_) => return Err(Refusal::invalid("spec.verify.mode must be HEAD, Tag or TagAndHEAD")),
    };
    if mode.needs_tag() && !reference.is_some_and(is_tag) {
        return Err(Refusal {
            reason: RefusalReason::InvalidVerificationMode,
            message: format!(
                "cannot verify tag object's signature if a tag reference is not specified: spec.verify.mode {} needs spec.ref.tag, \
                 spec.ref.semver, or spec.ref.name with refs/tags/",
                mode.as_str()
            ),
        });
    }
    Ok(Some(VerifyRequest {
        mode,
        secret: verification.secret_ref.name.clone(),
    }))
}

/// Checks whether a tag is fetched: commits come before names, names before versions and tags.
fn is_tag(reference: &GitRepositoryRef) -> bool {
    let given = |text: &Option<String>| text.as_ref().filter(|text| !text.is_empty()).cloned();
    if given(&reference.commit).is_some() {
        return false;
    }
    match given(&reference.name) {
        Some(name) => name.starts_with("refs/tags/"),
        None => given(&reference.semver).is_some() || given(&reference.tag).is_some(),
    }
}
