//! OCIRepositories as sources: their fields, the implemented ones of these, and the request of a fetch.
//!
//! A field that needs a cloud provider's identity is refused. So is trust in anything except keys in the namespace's own Secret.

use tenure_api::oci_repository::OciLayerSelector;
use tenure_api::reference::LocalObjectReference;
use tenure_api::{OciRepository, OciRepositoryStatus};

pub use tenure_remote_requests::oci::{FetchRequest, LayerOperation, ORIGIN_REVISION, ORIGIN_SOURCE};

pub use crate::source::{Attempt, FetchFailure, FetchReason, Fetched, Memory, plan};

use crate::source::{
    self, FetchStep, RequestBasis, Source, SourceReference, SourceRefusal, implement_source_parts,
    implement_source_status,
};
use tenure_remote_requests::artifact::StoredArtifact;

/// A plan for an OCIRepository.
pub type Plan = source::Plan<OciRepository>;
/// The input of a plan for an OCIRepository.
pub type Snapshot = source::Snapshot<OciRepository>;
/// A step of a plan for an OCIRepository: the fetch of an artifact.
pub type Step = source::Step<FetchRequest>;

impl FetchStep for FetchRequest {
    fn is_public(&self) -> bool {
        let read = [
            &self.secret,
            &self.service_account,
            &self.certificates,
            &self.proxy,
            &self.keys,
        ];
        read.into_iter().all(Option::is_none)
    }

    fn describe(&self) -> String {
        self.url.shown()
    }
}

implement_source_status!(OciRepositoryStatus);

impl Source for OciRepository {
    type Status = OciRepositoryStatus;
    type Request = FetchRequest;
    type RelatedObjects = ();

    const NAME: &'static str = "OCIRepository";

    implement_source_parts!();

    fn list_unimplemented(&self) -> Vec<&'static str> {
        let spec = &self.spec;
        let mut fields = match spec.provider.as_deref() {
            None | Some("generic") => Vec::new(),
            Some("aws") => vec!["spec.provider: aws"],
            Some("azure") => vec!["spec.provider: azure"],
            Some("gcp") => vec!["spec.provider: gcp"],
            Some(_) => vec!["spec.provider"],
        };
        if let Some(verify) = &spec.verify {
            match verify.provider.as_str() {
                "cosign" => {}
                "notation" => fields.push("spec.verify.provider: notation"),
                _ => fields.push("spec.verify.provider"),
            }
            if !verify.match_oidc_identity.is_empty() {
                fields.push("spec.verify.matchOIDCIdentity");
            }
            if verify.trusted_root_secret_ref.is_some() {
                fields.push("spec.verify.trustedRootSecretRef");
            }
        }
        fields
    }

    fn check(&self) -> Result<(), SourceRefusal> {
        let spec = &self.spec;
        if !spec.url.reveal().starts_with("oci://") {
            return Err(SourceRefusal::invalid_url("spec.url must begin with oci://"));
        }
        if spec.verify.as_ref().is_some_and(|verify| verify.secret_ref.is_none()) {
            return Err(SourceRefusal::unsupported(
                "spec.verify.secretRef is missing, and signatures without keys are not supported yet: name a Secret with the public keys of \
                 trusted authors, under names that end in .pub",
            ));
        }
        read_operation(spec.layer_selector.as_ref())?;
        Ok(())
    }

    fn list_references(&self) -> Vec<SourceReference<'_>> {
        let spec = &self.spec;
        let verify = spec.verify.as_ref().and_then(|verify| verify.secret_ref.as_ref());
        [
            (
                "spec.secretRef.name",
                "Secret",
                spec.secret_ref.as_ref().map(|it| it.name.as_str()),
            ),
            (
                "spec.serviceAccountName",
                "ServiceAccount",
                spec.service_account_name.as_deref(),
            ),
            (
                "spec.certSecretRef.name",
                "Secret",
                spec.cert_secret_ref.as_ref().map(|it| it.name.as_str()),
            ),
            (
                "spec.proxySecretRef.name",
                "Secret",
                spec.proxy_secret_ref.as_ref().map(|it| it.name.as_str()),
            ),
            (
                "spec.verify.secretRef.name",
                "Secret",
                verify.map(|it| it.name.as_str()),
            ),
        ]
        .into_iter()
        .filter_map(|(field, kind, name)| {
            Some(SourceReference {
                field,
                kind,
                name: name?,
            })
        })
        .collect()
    }

    fn write_request(&self, basis: RequestBasis, (): &()) -> FetchRequest {
        let spec = &self.spec;
        let name = |reference: &Option<LocalObjectReference>| reference.as_ref().map(|it| it.name.clone());
        let layer = spec.layer_selector.as_ref();
        FetchRequest {
            url: spec.url.clone(),
            reference: spec.reference.clone().unwrap_or_default(),
            media_type: layer
                .and_then(|layer| layer.media_type.clone())
                .filter(|it| !it.is_empty()),
            operation: read_operation(layer).unwrap_or_default(),
            insecure: spec.insecure,
            secret: name(&spec.secret_ref),
            service_account: spec.service_account_name.clone(),
            certificates: name(&spec.cert_secret_ref),
            proxy: name(&spec.proxy_secret_ref),
            keys: spec.verify.as_ref().and_then(|verify| name(&verify.secret_ref)),
            ignore: spec.ignore.clone(),
            timeout: basis.timeout,
            known: basis.known,
            platform: basis.platform,
        }
    }

    fn is_verified(&self) -> bool {
        self.spec.verify.is_some()
    }

    fn describe_stored(stored: &StoredArtifact) -> String {
        format!("stored artifact for digest '{}'", stored.facts.revision)
    }

    fn describe_new(&self, stored: &StoredArtifact, _subject: &str) -> String {
        let revision = &stored.facts.revision;
        let mut message = format!(
            "stored artifact with revision '{revision}' from '{}'",
            self.spec.url.shown()
        );
        let origin = (stored.metadata.get(ORIGIN_SOURCE), stored.metadata.get(ORIGIN_REVISION));
        if let (Some(source), Some(revision)) = origin {
            message.push_str(&format!(", origin source '{source}', origin revision '{revision}'"));
        }
        message
    }

    fn note_observed(&self, status: &mut OciRepositoryStatus, _stored: &StoredArtifact, (): &()) {
        status.observed_layer_selector.clone_from(&self.spec.layer_selector);
    }
}

fn read_operation(layer: Option<&OciLayerSelector>) -> Result<LayerOperation, SourceRefusal> {
    match layer.and_then(|layer| layer.operation.as_deref()) {
        None | Some("" | "extract") => Ok(LayerOperation::Extract),
        Some("copy") => Ok(LayerOperation::Copy),
        Some(_) => Err(SourceRefusal::invalid(
            "spec.layerSelector.operation must be extract or copy",
        )),
    }
}
