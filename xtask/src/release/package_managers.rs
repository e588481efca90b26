//! The files with which package managers install the program: a manifest for krew, and a formula for Homebrew. Pure.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::origin::Origin;

/// An archive with the program for one platform.
#[derive(Debug, Clone)]
pub(super) struct Package {
    /// The processor, as images name it.
    pub(super) architecture: String,
    /// The name of the archive.
    pub(super) file: String,
    /// The hex digits of its SHA-256.
    pub(super) checksum: String,
}

/// Writes the manifest of the plugin `kubectl tenure`.
pub(super) fn write_krew(packages: &[Package], origin: &Origin) -> String {
    let platforms: Vec<Value> = packages
        .iter()
        .map(|package| {
            json!({
                "selector": { "matchLabels": { "os": "linux", "arch": package.architecture } },
                "uri": origin.download(&package.file), "sha256": package.checksum, "bin": "tenure",
                "files": [{ "from": "tenure", "to": "." }, { "from": "LICENSE", "to": "." }]
            })
        })
        .collect();
    kustomize::to_yaml(&json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": { "name": "tenure" },
        "spec": {
            "version": origin.tag, "homepage": origin.repository, "shortDescription": "Reconcile Git as one tenant's account",
            "description": "Tenure reconciles Git into Kubernetes with the rights of one ServiceAccount of one tenant.\n\
                The plugin shows what is applied and whose rights a change uses, checks a folder before\nits commit, and installs the controllers.\n",
            "platforms": platforms
        }
    }))
}

/// Writes the formula. The program runs on Linux alone.
pub(super) fn write_formula(packages: &[Package], origin: &Origin) -> Result<String> {
    let find = |architecture: &str| {
        let mut packages = packages.iter();
        packages
            .find(|package| package.architecture == architecture)
            .with_context(|| format!("no program for {architecture}"))
    };
    let part = |word: &str, package: &Package| {
        format!(
            "  {word} do\n    url \"{}\"\n    sha256 \"{}\"\n  end\n",
            origin.download(&package.file),
            package.checksum
        )
    };
    Ok(format!(
        "class Tenure < Formula\n  desc \"Reconciles Git into Kubernetes as one ServiceAccount of one tenant\"\n  homepage \"{}\"\n  version \"{}\"\n  \
         license \"Apache-2.0\"\n  depends_on :linux\n\n{}\n{}\n  def install\n    bin.install \"tenure\"\n    man1.install Dir[\"man/*.1\"]\n    \
         bash_completion.install \"completions/tenure.bash\" => \"tenure\"\n    zsh_completion.install \"completions/tenure.zsh\" => \"_tenure\"\n    \
         fish_completion.install \"completions/tenure.fish\"\n  end\n\n  test do\n    \
         assert_match version.to_s, shell_output(\"#{{bin}}/tenure version\")\n  end\nend\n",
        origin.repository,
        origin.version(),
        part("on_intel", find("amd64")?),
        part("on_arm", find("arm64")?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages() -> Vec<Package> {
        let package = |architecture: &str, digit: &str| Package {
            architecture: architecture.to_owned(),
            file: format!("tenure-0.1.0-linux-{architecture}.tar.gz"),
            checksum: digit.repeat(64),
        };
        vec![package("amd64", "a"), package("arm64", "b")]
    }

    #[test]
    fn krew_finds_the_archive_of_each_platform() -> Result<()> {
        let text = write_krew(&packages(), &Origin::any());
        let read = kustomize::read_manifests("tenure.yaml", &text, &kustomize::Limits::default())?;
        let plugin = &read[0].object;
        assert_eq!(plugin["metadata"]["name"], "tenure");
        assert_eq!(plugin["spec"]["version"], "v0.1.0");
        let platforms = plugin["spec"]["platforms"].as_array().cloned().unwrap_or_default();
        assert_eq!(platforms.len(), 2);
        assert_eq!(platforms[1]["selector"]["matchLabels"]["arch"], "arm64");
        assert_eq!(platforms[1]["sha256"], "b".repeat(64).as_str());
        let uri = platforms[0]["uri"].as_str().unwrap_or_default();
        assert!(
            uri.ends_with("/releases/download/v0.1.0/tenure-0.1.0-linux-amd64.tar.gz"),
            "{uri}"
        );
        // krew refuses a longer line.
        assert!(
            plugin["spec"]["shortDescription"]
                .as_str()
                .is_some_and(|line| line.len() <= 50)
        );
        Ok(())
    }

    #[test]
    fn a_formula_has_both_processors() -> Result<()> {
        let text = write_formula(&packages(), &Origin::any())?;
        let intel = text.find(&format!("sha256 \"{}\"", "a".repeat(64)));
        assert!(
            intel > text.find("on_intel do") && intel < text.find("on_arm do"),
            "{text}"
        );
        assert!(text.contains(&format!("sha256 \"{}\"", "b".repeat(64))), "{text}");
        assert_eq!(
            text.matches(" do\n").count() + 2,
            text.matches("end\n").count(),
            "{text}"
        );
        let missing = write_formula(&packages()[..1], &Origin::any()).map_err(|error| error.to_string());
        assert!(missing.is_err_and(|problem| problem.contains("arm64")));
        Ok(())
    }
}
