//! The image of an installation: the image that `--image` names, or the image that was published with this program. A tag gets the digest that its registry reports.
//!
//! A user's own command may connect to any registry that the user names: the policy for the addresses of sources applies to controllers. Plain HTTP is used only for a
//! registry on this machine, as container tools do.

use std::net::IpAddr;
use std::time::Duration;

use tenure_sources::{FetchError, OciError, RepositoryUrl, resolve_image};

use super::docker_config;
use crate::failure::Failure;
use crate::output;
use crate::own_connections::make_connector;

/// The repository of the published image, without a tag. A release is built with it; a development build has none.
const RELEASE_IMAGE: Option<&str> = option_env!("TENURE_RELEASE_IMAGE");
/// The time for the registry's answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The image to install, before the registry is asked: complete, or a tag without its digest.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// The text is final.
    Final(String),
    /// The registry has to say which digest the tag has.
    Tag(TaggedImage),
}

/// A tag of a repository in a registry.
#[derive(Debug, PartialEq, Eq)]
struct TaggedImage {
    /// The name with its tag, as the user wrote it.
    written: String,
    /// Host and port of the registry, as the user wrote them.
    registry: String,
    /// The path in the registry.
    path: String,
    tag: String,
}

/// Returns the image to install: `NAME:TAG@DIGEST`, or the text of the flag if it is final.
pub(super) async fn find_image(flag: Option<&str>, is_unpinned: bool) -> Result<String, Failure> {
    let image = match choose_image(flag, is_unpinned, RELEASE_IMAGE)? {
        Choice::Final(image) => return Ok(image),
        Choice::Tag(image) => image,
    };
    let TaggedImage { registry, path, .. } = &image;
    let url = format!("oci://{registry}/{path}");
    let url = RepositoryUrl::parse(&url, is_on_this_machine(registry)).map_err(|_| {
        refuse_image(&image.written, "it is no name of an image")
            .hint("such as registry.example/team/tenure:0.1.0, in small letters")
    })?;
    let credentials = docker_config::read_credentials(registry).await?;
    let reach = make_connector();
    let asked = resolve_image(&url, &image.tag, &credentials, &reach);
    let digest = match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(digest)) => digest,
        Ok(Err(error)) => return Err(explain_error(&image, error)),
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            let problem = format!("{registry} gave no answer in {seconds} s");
            return Err(Failure::environment(format!("image {:?}: {problem}", image.written)).hint(name_digest(&image)));
        }
    };
    output::print_note(format!("image {}: its registry reports {digest}", image.written));
    Ok(format!("{}@{digest}", image.written))
}

/// Chooses the image of the flag, else the image of this release.
fn choose_image(flag: Option<&str>, is_unpinned: bool, release: Option<&str>) -> Result<Choice, Failure> {
    let release = release.filter(|release| !release.is_empty());
    let image = match (flag, release) {
        (Some(image), _) => image.to_owned(),
        (None, Some(release)) => format!("{release}:{}", env!("CARGO_PKG_VERSION")),
        (None, None) => {
            return Err(Failure::usage(
                "--image is missing, and this program is a development build: no image was published with it",
            )
            .hint(
                "make an image (cargo xtask dist DIR, then docker build DIR), push it, and name it: tenure install --image REGISTRY/NAME:TAG. \
                 Or install everything but the Deployment: tenure install --without-deployment",
            ));
        }
    };
    // The flags of the workload check the form of a final image.
    if is_unpinned || image.contains('@') {
        return Ok(Choice::Final(image));
    }
    let (registry, rest) = image.split_once('/').unwrap_or(("", image.as_str()));
    let is_host = registry.contains(['.', ':']) || registry == "localhost";
    if !is_host {
        return Err(
            refuse_image(&image, "it names no registry, and has no digest").hint(
                "write REGISTRY/NAME:TAG, on Docker Hub docker.io/NAME:TAG. --unpinned-image accepts an image without a digest",
            ),
        );
    }
    let Some((path, tag)) = rest.rsplit_once(':').filter(|(_, tag)| !tag.is_empty()) else {
        return Err(refuse_image(&image, "it has no tag and no digest").hint("write REGISTRY/NAME:TAG"));
    };
    Ok(Choice::Tag(TaggedImage {
        registry: registry.to_owned(),
        path: path.to_owned(),
        tag: tag.to_owned(),
        written: image,
    }))
}

/// Whether a registry is on this machine.
fn is_on_this_machine(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn refuse_image(image: &str, problem: &str) -> Failure {
    Failure::usage(format!("--image {image:?}: {problem}"))
}

fn name_digest(image: &TaggedImage) -> String {
    format!("with a digest no registry is asked: --image {}@sha256:…", image.written)
}

/// Returns the failure for the user of the command. The texts of `OciError` are for the author of a source.
fn explain_error(image: &TaggedImage, error: OciError) -> Failure {
    let TaggedImage {
        written,
        registry,
        path,
        tag,
    } = image;
    let failed = |problem: String| Failure::environment(format!("image {written:?}: {problem}"));
    match error {
        OciError::NotFound { .. } => failed(format!("{registry} has no tag {tag} of {path}, or doesn't show it")).hint(
            format!("look at the name and the tag; if you have to log in: docker login {registry}"),
        ),
        OciError::Unauthorized { .. } => failed(format!("{registry} refuses to show {path}")).hint(format!(
            "docker login {registry} stores credentials, which this command reads; {}",
            name_digest(image)
        )),
        OciError::InvalidField { problem, .. } => refuse_image(written, &format!("its tag can't be one: {problem}")),
        OciError::InvalidSecret { problem, .. } => Failure::usage(format!(
            "the configuration of Docker can't be used for {registry}: {problem}"
        ))
        .hint(format!("docker login {registry} writes it again")),
        OciError::Connection(FetchError::Tls { host, port, problem }) => {
            let problem = problem.split(';').next().unwrap_or_default();
            failed(format!("TLS with {host}:{port} failed: {problem}"))
                .hint("SSL_CERT_FILE names a file with the authorities that this command trusts")
        }
        error => failed(error.to_string()).hint(name_digest(image)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_tagged(registry: &str, path: &str, tag: &str) -> Choice {
        Choice::Tag(TaggedImage {
            written: format!("{registry}/{path}:{tag}"),
            registry: registry.to_owned(),
            path: path.to_owned(),
            tag: tag.to_owned(),
        })
    }

    #[test]
    fn a_tag_is_resolved_and_a_digest_is_final() {
        let digest = format!("registry.example/tenure:1@sha256:{}", "a".repeat(64));
        for (flag, is_unpinned, expected) in [
            (
                "registry.example/team/tenure:1.0",
                false,
                make_tagged("registry.example", "team/tenure", "1.0"),
            ),
            (
                "127.0.0.1:5000/tenure:latest",
                false,
                make_tagged("127.0.0.1:5000", "tenure", "latest"),
            ),
            ("localhost/tenure:1", false, make_tagged("localhost", "tenure", "1")),
            (digest.as_str(), false, Choice::Final(digest.clone())),
            ("tenure:1", true, Choice::Final("tenure:1".to_owned())),
        ] {
            assert_eq!(choose_image(Some(flag), is_unpinned, None).expect(flag), expected);
        }
    }

    #[test]
    fn a_name_without_registry_or_tag_is_refused() {
        for (flag, problem) in [
            ("tenure:1", "names no registry"),
            ("team/tenure:1", "names no registry"),
            ("", "names no registry"),
            ("registry.example:5000/tenure", "no tag"),
            ("registry.example/tenure:", "no tag"),
        ] {
            let failure = choose_image(Some(flag), false, Some("ghcr.io/owner/tenure")).expect_err(flag);
            assert!(failure.message.contains(problem), "{}", failure.message);
        }
    }

    #[test]
    fn a_release_installs_its_own_image() {
        let version = env!("CARGO_PKG_VERSION");
        let release = Some("ghcr.io/owner/tenure");
        let own = choose_image(None, false, release).expect("the image of the release");
        assert_eq!(own, make_tagged("ghcr.io", "owner/tenure", version));
        let other = choose_image(Some("registry.example/mine:1"), false, release).expect("the image of the flag");
        assert_eq!(other, make_tagged("registry.example", "mine", "1"));
        for development in [None, Some("")] {
            let failure = choose_image(None, false, development).expect_err("no image");
            assert!(failure.message.contains("development build"), "{}", failure.message);
            assert!(
                failure
                    .hint
                    .is_some_and(|hint| hint.contains("--image REGISTRY/NAME:TAG"))
            );
        }
    }

    #[test]
    fn plain_http_is_for_this_machine_alone() {
        for (registry, expected) in [
            ("localhost", true),
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("127.8.0.1", true),
            ("10.0.0.1:5000", false),
            ("localhost.example", false),
            ("127.0.0.1.example:80", false),
        ] {
            assert_eq!(is_on_this_machine(registry), expected, "{registry}");
        }
    }
}
