//! Finds the registry of an image, as a kubelet and a container runtime read its name. The grammar is that of distribution's `reference`
//! package, whose parts are the expressions below. The rule for names without a registry is `splitDockerDomain`: the text before the first
//! slash is a registry if it contains a dot, a colon or an upper-case letter, or is `localhost`. Otherwise the registry is Docker's.
//!
//! A text that is no image name has no registry, since no rule says which image it would pull.

use std::sync::LazyLock;

use regex::Regex;

/// The registry of images that name none.
pub(super) const DEFAULT_REGISTRY: &str = "docker.io";
/// Its earlier name, which counts as the current one.
pub(super) const LEGACY_REGISTRY: &str = "index.docker.io";

const DOMAIN: &str = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?";
const PATH: &str = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*";
const TAG_AND_DIGEST: &str = r"(?::[0-9A-Za-z_][0-9A-Za-z_.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?";
/// A text that looks like the id of an image is no image name.
pub(super) const IDENTIFIER: &str = "^[a-f0-9]{64}$";

/// Returns an expression for names with a registry, also valid in Go's syntax.
pub(super) fn write_qualified() -> String {
    format!("^{DOMAIN}/{PATH}{TAG_AND_DIGEST}$")
}

/// Returns an expression for names without a registry.
pub(super) fn write_unqualified() -> String {
    format!("^{PATH}{TAG_AND_DIGEST}$")
}

static QUALIFIED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&write_qualified()).ok());
static UNQUALIFIED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&write_unqualified()).ok());

/// Returns the registry that an image is pulled from. Returns none for a text that is no image
/// name.
pub(super) fn find_registry(image: &str) -> Option<&str> {
    let is_read_by = |expression: &Option<Regex>| expression.as_ref().is_some_and(|regex| regex.is_match(image));
    let is_identifier = image.len() == 64 && image.bytes().all(|letter| matches!(letter, b'0'..=b'9' | b'a'..=b'f'));
    if is_identifier {
        return None;
    }
    match image.split_once('/').filter(|(first, _)| is_registry(first)) {
        Some((LEGACY_REGISTRY, _)) => is_read_by(&QUALIFIED).then_some(DEFAULT_REGISTRY),
        Some((registry, _)) => is_read_by(&QUALIFIED).then_some(registry),
        None => is_read_by(&UNQUALIFIED).then_some(DEFAULT_REGISTRY),
    }
}

/// Checks whether the text before the first slash is a registry, and no part of a path.
fn is_registry(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.bytes().any(|letter| letter.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_found_as_a_kubelet_finds_it() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let (pinned, tagged) = (format!("nginx@{digest}"), format!("ghcr.io/a/b:1.2@{digest}"));
        let (twice, short) = (format!("{tagged}@{digest}"), "ghcr.io/a/b@sha256:0123".to_owned());
        let (identifier, long_tag) = ("ab".repeat(32), format!("a:{}", "t".repeat(129)));
        for (image, expected) in [
            ("nginx", Some("docker.io")),
            ("nginx:1.27", Some("docker.io")),
            ("library/nginx", Some("docker.io")),
            ("a/b/c:latest", Some("docker.io")),
            (pinned.as_str(), Some("docker.io")),
            ("docker.io/library/nginx", Some("docker.io")),
            ("index.docker.io/library/nginx", Some("docker.io")),
            ("registry-1.docker.io/library/nginx", Some("registry-1.docker.io")),
            (tagged.as_str(), Some("ghcr.io")),
            ("localhost/a", Some("localhost")),
            ("localhost:5000/a", Some("localhost:5000")),
            // A port with a slash after it. Without a slash the same text is a tag.
            ("registry:5000/a", Some("registry:5000")),
            ("registry:5000", Some("docker.io")),
            ("[2001:db8::1]:5000/a", Some("[2001:db8::1]:5000")),
            // In other letters it is another name, and a registry since no path has such letters.
            ("GHCR.io/a", Some("GHCR.io")),
            ("Harbor/a", Some("Harbor")),
            ("harbor/a", Some("docker.io")),
            ("ghcr.io.evil.org/a", Some("ghcr.io.evil.org")),
            // These are no image names.
            ("", None),
            ("/", None),
            ("/a", None),
            ("ghcr.io/", None),
            ("ghcr.io//a", None),
            ("ghcr.io/A", None),
            ("Nginx", None),
            ("a/B", None),
            ("https://ghcr.io/a", None),
            ("ghcr.io/a b", None),
            (" ghcr.io/a", None),
            ("ghcr.io/a\n", None),
            ("ghcr.io/a:", None),
            ("ghcr.io/a@", None),
            ("evil.org@ghcr.io/a", None),
            ("evil.org:x@ghcr.io/a", None),
            ("ghcr.io:x/a", None),
            ("ghcr.io\\@evil.org/a", None),
            ("-ghcr.io/a", None),
            ("ghcr.io./a", None),
            ("ɡhcr.io/a", None),
            ("ghcr.io/../a", None),
            (twice.as_str(), None),
            (short.as_str(), None),
            (identifier.as_str(), None),
            (long_tag.as_str(), None),
        ] {
            assert_eq!(find_registry(image), expected, "{image:?}");
        }
        assert_eq!(find_registry(&"a/".repeat(1 << 20)), None);
    }
}
