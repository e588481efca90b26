//! The notes of a release, from the section of its version in `CHANGELOG.md`. Pure.

use anyhow::{Context, Result, ensure};

use super::origin::Origin;

/// The words in the title of a section that is still written.
const UNFINISHED: &str = "not released";

/// The section of a version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    /// The title, without the signs in front.
    title: String,
    body: String,
}

/// Finds the section of a version.
pub(super) fn find_section(changelog: &str, version: &str) -> Result<Section> {
    let mut sections = changelog.split("\n## ").skip(1);
    let section = sections.find(|section| section.split_whitespace().next() == Some(version));
    let section = section
        .with_context(|| format!("CHANGELOG.md: no section is called `## {version}`. Write it before the tag"))?;
    let (title, body) = section.split_once('\n').unwrap_or((section, ""));
    ensure!(
        !body.trim().is_empty(),
        "CHANGELOG.md: the section {version} is empty. Write what changes for whom"
    );
    Ok(Section {
        title: title.trim().to_owned(),
        body: body.trim().to_owned(),
    })
}

impl Section {
    /// Checks that the section is finished: its title says no more that the version isn't released.
    pub(super) fn check_finished(&self) -> Result<()> {
        ensure!(
            !self.title.contains(UNFINISHED),
            "CHANGELOG.md: the title {:?} says that the version isn't released. Replace these words by the date",
            self.title
        );
        Ok(())
    }
}

/// Checks that a tag is the version with `v` in front.
pub(super) fn check_tag(tag: &str, version: &str) -> Result<()> {
    ensure!(
        tag.strip_prefix('v') == Some(version),
        "the tag {tag:?} is not v{version}, the version in Cargo.toml. Change one of them"
    );
    Ok(())
}

/// Writes the notes: the section with links that work outside of the repository, and how to install and verify the release.
pub(super) fn write_notes(section: &Section, origin: &Origin, image: &str, chart: &str) -> String {
    let Origin { repository, tag, .. } = origin;
    let body = make_links_absolute(&section.body, &format!("{repository}/blob/{tag}/"));
    let version = origin.version();
    format!(
        "{body}\n\n## Install\n\n```sh\ntenure install                                     # with the program of this release\n\
         helm install tenure oci://{chart} --version {version}    # or with Helm\n```\n\n\
         The image is `{image}`. [How to install and verify a release]({repository}/blob/{tag}/docs/howto/install-from-a-release.md).\n"
    )
}

/// Puts a base in front of the relative targets of links. Code blocks hold none.
fn make_links_absolute(text: &str, base: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        let (before, target) = rest.split_at(at + 2);
        result.push_str(before);
        let is_absolute =
            target.starts_with('#') || target.split(')').next().is_some_and(|target| target.contains("://"));
        if !is_absolute {
            result.push_str(base);
        }
        rest = target;
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\n## 0.2.0 (not released yet)\n\n- New: [lanes](docs/lanes.md#pods)\n\n## 0.1.0 (2026-12-01)\n\n### For all\n\nFirst.\n\n## 0.0.1\n";

    #[test]
    fn a_version_has_its_section() -> Result<()> {
        let section = find_section(CHANGELOG, "0.1.0")?;
        assert_eq!(section.body, "### For all\n\nFirst.");
        section.check_finished()?;
        let next = find_section(CHANGELOG, "0.2.0")?;
        let problem = next.check_finished().map_err(|error| error.to_string());
        assert!(problem.is_err_and(|problem| problem.contains("isn't released")));
        for (version, words) in [("0.1", "no section is called `## 0.1`"), ("0.0.1", "is empty")] {
            let problem = find_section(CHANGELOG, version).map_err(|error| error.to_string());
            assert!(
                problem.as_ref().is_err_and(|problem| problem.contains(words)),
                "{problem:?}"
            );
        }
        Ok(())
    }

    #[test]
    fn the_changelog_has_a_section_for_this_version() -> Result<()> {
        let changelog = std::fs::read_to_string(crate::tidy::find_root().join("CHANGELOG.md"))?;
        find_section(&changelog, env!("CARGO_PKG_VERSION"))?;
        Ok(())
    }

    #[test]
    fn a_tag_is_the_version() {
        assert!(check_tag("v0.1.0", "0.1.0").is_ok());
        for tag in ["0.1.0", "v0.1.1", "vv0.1.0", "v0.1.0-rc.1", ""] {
            assert!(check_tag(tag, "0.1.0").is_err(), "{tag}");
        }
    }

    #[test]
    fn links_work_outside_of_the_repository() -> Result<()> {
        let origin = Origin::any();
        let notes = write_notes(
            &find_section(CHANGELOG, "0.2.0")?,
            &origin,
            "reg.example/tenure:1@sha256:a",
            "reg.example/charts/tenure",
        );
        let link = format!("[lanes]({}/blob/{}/docs/lanes.md#pods)", origin.repository, origin.tag);
        assert!(notes.contains(&link), "{notes}");
        assert_eq!(
            make_links_absolute("[a](https://a.example) [b](#b) [c](c.md)", "base/"),
            "[a](https://a.example) [b](#b) [c](base/c.md)"
        );
        Ok(())
    }
}
