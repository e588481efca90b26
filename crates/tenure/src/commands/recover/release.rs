//! The Secret of a Helm release: the newest deployed revision, read with the user's rights, and unpacked within bounds. No message has a part of its content.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::metadata::TENANT_LABEL;
use tenure_planner::package_recovery::{LONGEST_MANIFEST, ReleaseName};

use crate::failure::Failure;
use crate::inspection::ONLY_METADATA;
use crate::paged_reads::{ReadRefusal, read_object, visit_objects};
use crate::resources::encode_segment;

/// The media type for the metadata of a list.
const LIST_METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The type of the Secrets of releases.
const SECRET_TYPE: &str = "helm.sh/release.v1";
/// The number of revisions that are looked at. Helm keeps ten by default.
const MOST_REVISIONS: usize = 1_000;
/// The longest content of a release in bytes, unpacked. It has the files of the chart beside the manifest.
const LONGEST_CONTENT: usize = 2 * LONGEST_MANIFEST;
/// The first bytes of a gzip archive.
const GZIP: [u8; 3] = [0x1f, 0x8b, 0x08];

/// A deployed revision of a release.
pub(super) struct DeployedRelease {
    /// The number of the revision.
    pub(super) revision: u64,
    /// The manifest of all objects of the release.
    pub(super) manifest: String,
}

/// The read parts of a release's content.
#[derive(Deserialize)]
struct Content {
    name: String,
    namespace: String,
    version: u64,
    manifest: String,
    info: Info,
}

#[derive(Deserialize)]
struct Info {
    status: String,
}

/// Reads the newest deployed revision of a release.
pub(super) async fn read_release(client: &kube::Client, release: &ReleaseName) -> Result<DeployedRelease, Failure> {
    check_namespace(client, &release.namespace).await?;
    let secrets = format!("/api/v1/namespaces/{}/secrets", encode_segment(&release.namespace));
    let labels = encode_segment(&format!("owner=helm,name={}", release.name));
    let path = format!(
        "{secrets}?labelSelector={labels}&fieldSelector=type%3D{}",
        encode_segment(SECRET_TYPE)
    );
    let mut revisions = Vec::new();
    let read = visit_objects(client, &path, (LIST_METADATA, MOST_REVISIONS), |secret| {
        revisions.extend(read_revision(&secret));
    });
    let is_whole = read.await.map_err(|refusal| explain_refusal(&refusal, release))?;
    if !is_whole {
        return Err(refuse(release, "it has more than 1,000 revisions"));
    }
    let newest = revisions.iter().max_by_key(|revision| revision.number);
    let deployed = revisions.iter().filter(|revision| revision.is_deployed);
    let Some(deployed) = deployed.max_by_key(|revision| revision.number) else {
        return Err(refuse(
            release,
            &match newest {
                Some(newest) => format!("none of its revisions is deployed; the newest is {}", newest.number),
                None => "the namespace has no Secret of it".to_owned(),
            },
        ));
    };
    let path = format!("{secrets}/{}", encode_segment(&deployed.secret));
    let secret = read_object(client, &path, "application/json").await;
    let secret = secret.map_err(|refusal| explain_refusal(&refusal, release))?;
    let text = ObjectView::new(&secret).read_text("/data/release");
    let content = decode_content(text).map_err(|why| refuse(release, &format!("Secret {} {why}", deployed.secret)))?;
    let is_same = content.name == release.name
        && content.namespace == release.namespace
        && content.version == deployed.number
        && content.info.status == "deployed";
    if !is_same {
        let why = format!(
            "Secret {} has the content of another revision or release",
            deployed.secret
        );
        return Err(refuse(release, &why));
    }
    Ok(DeployedRelease {
        revision: content.version,
        manifest: content.manifest,
    })
}

/// A Secret of a release, by its labels.
struct Revision {
    secret: String,
    number: u64,
    is_deployed: bool,
}

fn read_revision(secret: &Value) -> Option<Revision> {
    let secret = ObjectView::new(secret);
    Some(Revision {
        secret: secret.read_text("/metadata/name").to_owned(),
        number: secret.find_label("version")?.parse().ok()?,
        is_deployed: secret.find_label("status") == Some("deployed"),
    })
}

/// Refuses a namespace of a tenant, who writes Secrets there, and so could write the chart's version.
async fn check_namespace(client: &kube::Client, namespace: &str) -> Result<(), Failure> {
    let path = format!("/api/v1/namespaces/{}", encode_segment(namespace));
    match read_object(client, &path, ONLY_METADATA).await {
        Ok(found) => match ObjectView::new(&found).find_label(TENANT_LABEL) {
            Some(tenant) => Err(Failure::negative(format!(
                "namespace {namespace} belongs to Tenant {tenant}, who could write what is taken for the chart's version"
            ))
            .hint("--release NAMESPACE/NAME names the platform's release")),
            None => Ok(()),
        },
        Err(ReadRefusal::Absent) => Err(Failure::negative(format!("there is no namespace {namespace}"))
            .hint("--release NAMESPACE/NAME names another release, and --from FILE another source")),
        Err(ReadRefusal::Forbidden(_)) => Err(Failure::environment(format!(
            "you may not get namespace {namespace}, so it may be a tenant's"
        ))
        .hint(write_sources_hint("the verb get on this namespace"))),
        Err(refusal) => Err(Failure::environment(refusal.to_string())),
    }
}

fn explain_refusal(refusal: &ReadRefusal, release: &ReleaseName) -> Failure {
    let namespace = &release.namespace;
    match refusal {
        ReadRefusal::Forbidden(_) => Failure::environment(format!(
            "you may not list and get Secrets in namespace {namespace}, where Helm stores release {}",
            release.name
        ))
        .hint(write_sources_hint(&format!(
            "the verbs list and get on secrets in namespace {namespace}"
        ))),
        refusal => Failure::environment(format!("release {release} can't be read: {refusal}")),
    }
}

fn write_sources_hint(right: &str) -> String {
    format!("ask an administrator for {right}, or for the output of `helm get manifest` as a file, for --from FILE")
}

fn refuse(release: &ReleaseName, why: &str) -> Failure {
    Failure::negative(format!("release {release} has no usable revision: {why}"))
        .hint("--from FILE names another source of the chart's version, such as the output of `helm get manifest`")
}

/// Unpacks the content of a release: JSON, mostly in gzip, in base64, in the base64 of a Secret.
fn decode_content(text: &str) -> Result<Content, String> {
    let decode = |bytes: &[u8]| {
        STANDARD
            .decode(bytes)
            .map_err(|_| "has no release in base64".to_owned())
    };
    let packed = decode(&decode(text.as_bytes())?)?;
    let content = if packed.starts_with(&GZIP) {
        let limit = u64::try_from(LONGEST_CONTENT).unwrap_or(u64::MAX);
        let mut content = Vec::new();
        let unpacked = flate2::read::GzDecoder::new(packed.as_slice()).take(limit.saturating_add(1));
        let mut unpacked = unpacked;
        unpacked
            .read_to_end(&mut content)
            .map_err(|_| "has no release in gzip".to_owned())?;
        content
    } else {
        packed
    };
    if content.len() > LONGEST_CONTENT {
        return Err(format!("has more than {} MiB, unpacked", LONGEST_CONTENT >> 20));
    }
    // The error could cite the content.
    serde_json::from_slice(&content).map_err(|_| "has no release of Helm".to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn pack(content: &[u8]) -> String {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(content).expect("packed");
        STANDARD.encode(STANDARD.encode(packed.finish().expect("packed")))
    }

    #[test]
    fn content_is_unpacked_within_bounds() {
        let release = br#"{"name": "a", "namespace": "b", "version": 3, "manifest": "---", "info": {"status": "deployed"}, "chart": {}}"#;
        let plain = STANDARD.encode(STANDARD.encode(release));
        for text in [pack(release), plain] {
            let content = decode_content(&text).expect("a release");
            assert_eq!(
                (content.name.as_str(), content.version, content.manifest.as_str()),
                ("a", 3, "---")
            );
        }
        let bomb = vec![b' '; LONGEST_CONTENT + 1];
        let cut = STANDARD.encode(STANDARD.encode([0x1f, 0x8b, 0x08, 0x00, 0x00]));
        for (text, expected) in [
            (pack(&bomb), "has more than 64 MiB, unpacked"),
            (cut, "has no release in gzip"),
            (pack(br#"{"manifest": "hidden"}"#), "has no release of Helm"),
            ("?".to_owned(), "has no release in base64"),
            (STANDARD.encode("?"), "has no release in base64"),
            (String::new(), "has no release of Helm"),
        ] {
            assert_eq!(decode_content(&text).err().as_deref(), Some(expected));
        }
    }

    #[test]
    fn revision_is_read_from_labels() {
        let secret = |labels: Value| serde_json::json!({ "metadata": { "name": "s", "labels": labels } });
        let read = |labels: Value| read_revision(&secret(labels)).map(|found| (found.number, found.is_deployed));
        let labels = |version: &str, status: &str| serde_json::json!({ "version": version, "status": status });
        assert_eq!(read(labels("12", "deployed")), Some((12, true)));
        assert_eq!(read(labels("9", "superseded")), Some((9, false)));
        assert_eq!(read(labels("-1", "deployed")), None);
        assert_eq!(read(serde_json::json!({})), None);
    }
}
