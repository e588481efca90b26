//! Semantic versions as Kubernetes reads them (blang/semver v4), strictly or leniently, and [`Range`]s of versions as Masterminds/semver v3
//! reads them. Errors have the same conditions as in these libraries. The result is a version of the `semver` crate.

mod range;

pub use range::{InvalidRange, Range};
pub use semver::Version;
use semver::{BuildMetadata, Prerelease};

use crate::quote::quote;

/// The reason why a text is no version, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VersionError(String);

impl VersionError {
    fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }

    fn out_of_range(text: &str) -> Self {
        Self(format!(
            "strconv.ParseUint: parsing {}: value out of range",
            quote(text)
        ))
    }
}

/// Reads a version of three numbers, a pre-release and build metadata. [`Version::cmp_precedence`] orders two versions and ignores the
/// metadata.
///
/// # Errors
/// If the text is not a version, with Kubernetes' message.
pub fn parse(text: &str) -> Result<Version, VersionError> {
    if text.is_empty() {
        return Err(VersionError::new("Version string empty"));
    }
    let mut parts = text.splitn(3, '.');
    let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(VersionError::new("No Major.Minor.Patch elements found"));
    };
    let (major, minor) = (parse_number(major, "Major")?, parse_number(minor, "Minor")?);
    let (rest, build) = match rest.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (rest, None),
    };
    let (patch, prerelease) = match rest.split_once('-') {
        Some((patch, prerelease)) => (patch, Some(prerelease)),
        None => (rest, None),
    };
    let mut version = Version::new(major, minor, parse_number(patch, "Patch")?);
    if let Some(prerelease) = prerelease {
        prerelease.split('.').try_for_each(check_prerelease)?;
        version.pre = Prerelease::new(prerelease).map_err(|error| VersionError::new(error.to_string()))?;
    }
    if let Some(build) = build {
        build.split('.').try_for_each(check_build)?;
        version.build = BuildMetadata::new(build).map_err(|error| VersionError::new(error.to_string()))?;
    }
    Ok(version)
}

/// Reads a version that may begin with `v`, leave out parts and have leading zeros, as CEL's `semver(text, true)` does.
///
/// # Errors
/// If the text is not a version, with Kubernetes' message.
pub fn parse_normalized(text: &str) -> Result<Version, VersionError> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|part| {
            if part.len() < 2 {
                return part.to_owned();
            }
            let trimmed = part.trim_start_matches('0');
            if trimmed.starts_with(|first: char| first.is_ascii_digit()) {
                trimmed.to_owned()
            } else {
                format!("0{trimmed}")
            }
        })
        .collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err(VersionError::new(
                "short version cannot contain PreRelease/Build meta data",
            ));
        }
        parts.resize(3, "0".to_owned());
    }
    parse(&parts.join("."))
}

fn parse_number(text: &str, name: &str) -> Result<u64, VersionError> {
    if text.is_empty() {
        return Err(VersionError::new("strconv.ParseUint: parsing \"\": invalid syntax"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let name = name.to_lowercase();
        let words = format!("Invalid character(s) found in {name} number {}", quote(text));
        return Err(VersionError(words));
    }
    if text.len() > 1 && text.starts_with('0') {
        let words = format!("{name} number must not contain leading zeroes {}", quote(text));
        return Err(VersionError(words));
    }
    text.parse().map_err(|_| VersionError::out_of_range(text))
}

fn check_prerelease(part: &str) -> Result<(), VersionError> {
    if part.is_empty() {
        return Err(VersionError::new("Prerelease is empty"));
    }
    if !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return check_word(part, "prerelease");
    }
    if part.len() > 1 && part.starts_with('0') {
        let words = format!(
            "Numeric PreRelease version must not contain leading zeroes {}",
            quote(part)
        );
        return Err(VersionError(words));
    }
    match part.parse::<u64>() {
        Ok(_) => Ok(()),
        Err(_) => Err(VersionError::out_of_range(part)),
    }
}

fn check_build(part: &str) -> Result<(), VersionError> {
    if part.is_empty() {
        return Err(VersionError::new("Build meta data is empty"));
    }
    check_word(part, "build meta data")
}

fn check_word(text: &str, what: &str) -> Result<(), VersionError> {
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        Ok(())
    } else {
        Err(VersionError(format!(
            "Invalid character(s) found in {what} {}",
            quote(text)
        )))
    }
}

#[cfg(test)]
mod tests;
