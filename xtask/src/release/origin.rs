//! Where a release comes from: repository, tag, commit, and the builder.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tidy;

/// The origin of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    /// The address of the repository on its host, without a slash at the end.
    pub(super) repository: String,
    /// The tag: the version with `v` in front.
    pub(super) tag: String,
    /// The id of the commit.
    pub(super) commit: String,
    /// The time of the commit, in seconds since 1970: the time of everything that is made.
    pub(super) time: u64,
    /// The same time, as RFC 3339 writes it.
    pub(super) created: String,
    /// The identity of the builder, as a URI.
    pub(super) builder: String,
}

impl Origin {
    /// Reads commit and time from Git. The workflow names its own file with `builder`.
    pub(super) fn read(repository: &str, tag: &str, builder: Option<&str>) -> Result<Self> {
        Ok(Self {
            repository: repository.trim_end_matches('/').to_owned(),
            tag: tag.to_owned(),
            commit: ask_git("%H")?,
            time: ask_git("%ct")?.parse()?,
            created: ask_git("%cd")?,
            builder: builder.unwrap_or("urn:tenure:local-build").to_owned(),
        })
    }

    pub(super) fn version(&self) -> &str {
        self.tag.strip_prefix('v').unwrap_or(&self.tag)
    }

    /// Returns the address of a file of the release.
    pub(super) fn download(&self, name: &str) -> String {
        format!("{}/releases/download/{}/{name}", self.repository, self.tag)
    }
}

/// Reads a property of the current commit.
fn ask_git(format: &str) -> Result<String> {
    let output = Command::new("git")
        .args(["show", "--no-patch", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"])
        .arg(format!("--format={format}"))
        .arg("HEAD")
        .env("TZ", "UTC")
        .current_dir(tidy::find_root())
        .output()
        .context("git")?;
    ensure!(
        output.status.success(),
        "git show: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Origin {
        /// What any release has.
        pub(in crate::release) fn any() -> Self {
            Self {
                repository: "https://git.example/owner/tenure".to_owned(),
                tag: "v0.1.0".to_owned(),
                commit: "0123456789012345678901234567890123456789".to_owned(),
                time: 1_700_000_000,
                created: "2023-11-14T22:13:20Z".to_owned(),
                builder: "urn:test".to_owned(),
            }
        }
    }

    #[test]
    fn files_are_below_the_tag() {
        let origin = Origin::any();
        assert_eq!(origin.version(), "0.1.0");
        assert_eq!(
            origin.download("a.tar.gz"),
            "https://git.example/owner/tenure/releases/download/v0.1.0/a.tar.gz"
        );
    }

    #[test]
    fn the_commit_has_a_time_in_utc() -> Result<()> {
        let origin = Origin::read("https://git.example/owner/tenure/", "v1", None)?;
        assert!(!origin.repository.ends_with('/'));
        assert_eq!((origin.commit.len(), origin.created.len()), (40, 20), "{origin:?}");
        assert!(
            origin.created.ends_with('Z') && origin.time > 1_700_000_000,
            "{origin:?}"
        );
        Ok(())
    }
}
