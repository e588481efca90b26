//! The requests for an index and for a chart: the planner's requests, read and complete, before any connection. Pure.

use base64::Engine as _;
use sha2::{Digest as _, Sha256};
use tenure_api::SourceUrl;
use tenure_api::oci_repository::OciRepositoryRef;
use tenure_remote_requests::artifact::{ArtifactFacts, StoredArtifact};
use tenure_remote_requests::composition::FoundSource;
use tenure_remote_requests::helm::{ChartOrigin, ChartRequest, IndexRequest, RepositoryAccess};
use tenure_remote_requests::oci::{FetchRequest as OciFetchRequest, LayerOperation};

use super::error::ChartError;
use super::repository::HttpRepository;
use crate::artifact::SourceKey;
use crate::http::write_host;
use crate::oci::{OciRequest, OciSecrets, RepositoryUrl};
use crate::reference_selection::read_tag_version;
use crate::secret::{Reader, SecretData};

/// The media type of the layer with a chart.
const CHART_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// The entry of a Secret with credentials for registries.
const CONFIG_KEY: &str = ".dockerconfigjson";

/// The data of the Secrets that a request names.
#[derive(Default)]
pub struct HelmSecrets {
    /// The Secret of the repository's `spec.secretRef`.
    pub credentials: Option<SecretData>,
    /// The Secret of the repository's `spec.certSecretRef`.
    pub certificates: Option<SecretData>,
    /// The Secret of the chart's `spec.verify.secretRef`.
    pub keys: Option<SecretData>,
}

/// A complete request for the index of a repository. Its `Debug` shows no credential.
#[derive(Debug, Clone)]
pub struct IndexFetch {
    pub(super) source: SourceKey,
    pub(super) asked: IndexRequest,
    pub(super) repository: HttpRepository,
    pub(super) fingerprint: String,
}

/// A complete request for a chart. Its `Debug` shows no credential.
#[derive(Debug, Clone)]
pub struct ChartFetch {
    pub(super) source: SourceKey,
    pub(super) asked: ChartRequest,
    pub(super) origin: Origin,
    /// The digest of the fields of the HelmChart that decide the content.
    pub(super) fingerprint: String,
}

/// The place of a chart, with credentials.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    Index {
        repository: Box<HttpRepository>,
        index: ArtifactPlace,
        version: String,
    },
    Registry(Box<OciRequest>),
    Files(ArtifactPlace),
}

/// The artifact of another source in the store.
#[derive(Debug, Clone)]
pub(super) struct ArtifactPlace {
    pub(super) key: SourceKey,
    pub(super) digest: String,
    /// Size of the archive in bytes.
    pub(super) size: u64,
}

impl IndexFetch {
    /// Reads the planner's request, with the data of the Secrets that it names.
    ///
    /// # Errors
    /// A [`ChartError`] that names the unusable field, or entry of the Secret. The error contains no credential.
    pub fn read(source: SourceKey, asked: IndexRequest, secrets: &HelmSecrets) -> Result<Self, ChartError> {
        let repository = read_repository(&asked.repository, secrets)?;
        let fingerprint = write_fingerprint(&[("index", "1"), ("url", &repository.display_address())]);
        Ok(Self {
            source,
            repository,
            fingerprint,
            asked,
        })
    }
}

impl ChartFetch {
    /// Reads the planner's request, with the data of the Secrets that it names.
    ///
    /// # Errors
    /// A [`ChartError`] that names the unusable field, or entry of the Secret. The error contains no credential.
    pub fn read(source: SourceKey, asked: ChartRequest, secrets: &HelmSecrets) -> Result<Self, ChartError> {
        let origin = match &asked.origin {
            ChartOrigin::Index {
                repository,
                index,
                version,
            } => Origin::Index {
                repository: Box::new(read_repository(repository, secrets)?),
                index: find_artifact(index)?,
                version: version.clone(),
            },
            ChartOrigin::Registry {
                repository,
                version,
                keys,
            } => {
                let request = make_registry_request(&asked, repository, (version, keys.as_ref()));
                let secrets = make_registry_secrets(&request, secrets)?;
                let request = OciRequest::read(source.clone(), request, &secrets);
                Origin::Registry(Box::new(request.map_err(ChartError::from_registry)?))
            }
            ChartOrigin::Files(found) => Origin::Files(find_artifact(found)?),
        };
        let fingerprint = fingerprint(&asked);
        Ok(Self {
            source,
            asked,
            origin,
            fingerprint,
        })
    }

    /// Returns the stored chart, if it was made of the same fields.
    pub(super) fn known(&self) -> Option<&StoredArtifact> {
        self.asked.known.as_ref()
    }
}

fn read_repository(access: &RepositoryAccess, secrets: &HelmSecrets) -> Result<HttpRepository, ChartError> {
    let data = (secrets.credentials.as_ref(), secrets.certificates.as_ref());
    HttpRepository::read(access.url.reveal(), data, access.passes_credentials)
}

fn find_artifact(found: &FoundSource) -> Result<ArtifactPlace, ChartError> {
    let missing = || ChartError::Pull(format!("no artifact available for source '{}'", found.describe()));
    let (uid, artifact) = found.stored().ok_or_else(missing)?;
    Ok(ArtifactPlace {
        key: SourceKey::new(&found.kind, &found.namespace, &found.name, uid)?,
        digest: artifact.facts.digest.clone(),
        size: artifact.size,
    })
}

/// Makes the request for a chart in a registry. A version is a tag there, with `_` in place of `+`.
fn make_registry_request(
    asked: &ChartRequest,
    repository: &RepositoryAccess,
    (version, keys): (&str, Option<&String>),
) -> OciFetchRequest {
    let url = format!("{}/{}", repository.url.reveal().trim_end_matches('/'), asked.chart);
    let is_exact = read_tag_version(version).is_some();
    let reference = OciRepositoryRef {
        tag: is_exact.then(|| version.replace('+', "_")),
        semver: (!is_exact).then(|| if version.is_empty() { "*" } else { version }.to_owned()),
        ..OciRepositoryRef::default()
    };
    OciFetchRequest {
        url: SourceUrl::new(url),
        reference,
        media_type: Some(CHART_TYPE.to_owned()),
        operation: LayerOperation::Copy,
        insecure: repository.insecure,
        secret: repository.secret.clone(),
        service_account: None,
        certificates: repository.certificates.clone(),
        proxy: None,
        keys: keys.cloned(),
        ignore: None,
        timeout: asked.timeout,
        known: find_pulled(asked),
        platform: asked.platform,
    }
}

/// Returns the stored chart as the registry's artifact, if the HelmChart is unchanged. Then an unchanged registry needs no fetch.
fn find_pulled(asked: &ChartRequest) -> Option<StoredArtifact> {
    let known = asked.known.as_ref()?;
    let pulled = known.chart.as_ref()?.pulled.as_ref()?;
    (known.fingerprint == fingerprint(asked)).then(|| StoredArtifact {
        facts: ArtifactFacts {
            revision: pulled.revision.clone(),
            ..known.facts.clone()
        },
        fingerprint: pulled.fingerprint.clone(),
        ..known.clone()
    })
}

/// Gives a user and a password the form that registries' clients read.
fn make_registry_secrets(request: &OciFetchRequest, secrets: &HelmSecrets) -> Result<OciSecrets, ChartError> {
    let mut made = OciSecrets {
        certificates: secrets.certificates.clone(),
        keys: secrets.keys.clone(),
        ..OciSecrets::default()
    };
    let Some(data) = &secrets.credentials else {
        return Ok(made);
    };
    if data.contains_key(CONFIG_KEY) {
        made.credentials.push(data.clone());
        return Ok(made);
    }
    let invalid = |problem: String| ChartError::InvalidSecret {
        field: "spec.secretRef",
        problem,
    };
    let reader = Reader::new(data);
    let read = |key| reader.text(key).map_err(|error| invalid(error.to_string()));
    let (Some(username), Some(password)) = (read("username")?, read("password")?) else {
        return Err(invalid(
            "it needs username and password, or .dockerconfigjson".to_owned(),
        ));
    };
    let address = RepositoryUrl::parse(request.url.reveal(), request.insecure).map_err(ChartError::from_registry)?;
    let endpoint = address.endpoint();
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
    let host = write_host(endpoint);
    let config = serde_json::json!({ "auths": { host: { "auth": pair } } });
    made.credentials.push(SecretData::from([(
        CONFIG_KEY.to_owned(),
        config.to_string().into_bytes(),
    )]));
    Ok(made)
}

fn fingerprint(asked: &ChartRequest) -> String {
    let place = match &asked.origin {
        ChartOrigin::Index { repository, .. } => format!("index {}", repository.url.shown()),
        ChartOrigin::Registry { repository, .. } => format!("registry {}", repository.url.shown()),
        ChartOrigin::Files(found) => format!("files {}", found.describe()),
    };
    let generation = asked.generation.unwrap_or_default().to_string();
    let ignores = asked.ignores_missing_values_files.to_string();
    let mut parts = vec![
        ("chart", asked.chart.as_str()),
        ("place", &place),
        ("generation", &generation),
        ("metadata", asked.version_metadata.as_deref().unwrap_or_default()),
        ("ignores missing", &ignores),
    ];
    parts.extend(asked.values_files.iter().map(|file| ("values", file.as_str())));
    write_fingerprint(&parts)
}

/// Returns the digest of named texts.
pub(super) fn write_fingerprint(parts: &[(&str, &str)]) -> String {
    let mut hash = Sha256::new();
    for text in parts.iter().flat_map(|(name, text)| [name, text]) {
        hash.update(text.len().to_be_bytes());
        hash.update(text.as_bytes());
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}
