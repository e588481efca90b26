//! `spec.verify`: whether a commit or a tag must be signed, and whether the fetch reads such an object.

use tenure_api::git_repository::{GitRepositoryRef, GitRepositoryVerification};

use tenure_remote_requests::git::{VerifyMode, VerifyRequest};

use crate::source::{SourceRefusal, SourceRefusalReason};

/// Reads which objects must be signed: the commit, the tag, or both.
pub(super) fn read_verification(
    verification: Option<&GitRepositoryVerification>,
    reference: Option<&GitRepositoryRef>,
) -> Result<Option<VerifyRequest>, SourceRefusal> {
    let Some(verification) = verification else {
        return Ok(None);
    };
    let mode = match verification.mode.as_deref() {
        None | Some("HEAD" | "head") => VerifyMode::Head,
        Some("Tag") => VerifyMode::Tag,
        Some("TagAndHEAD") => VerifyMode::TagAndHead,
        Some(_) => {
            return Err(SourceRefusal::invalid(
                "spec.verify.mode must be HEAD, Tag or TagAndHEAD",
            ));
        }
    };
    if mode.needs_tag() && !reference.is_some_and(is_tag) {
        return Err(SourceRefusal {
            reason: SourceRefusalReason::InvalidVerificationMode,
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

/// Checks whether the reference selects a tag. A commit takes precedence over a name, and a name over a version range and a tag.
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
