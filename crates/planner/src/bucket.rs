//! Buckets as sources: their fields, the implemented ones of these, and the request of a fetch.
//!
//! The module checks the form of an endpoint, a bucket, a region and a prefix. A field that needs a cloud provider's identity, a service for temporary credentials, or
//! a protocol other than S3 is refused.

use tenure_api::reference::LocalObjectReference;
use tenure_api::{Bucket, BucketStatus, SourceUrl};

pub use tenure_remote_requests::bucket::FetchRequest;

pub use crate::source::{Attempt, FetchFailure, FetchReason, Fetched, Memory, plan};

use crate::source::{
    self, FetchStep, RequestBasis, Source, SourceReference, SourceRefusal, implement_source_parts,
    implement_source_status, name_secrets,
};
use tenure_remote_requests::artifact::StoredArtifact;

/// The most bytes of a prefix, and of an endpoint, as S3 and DNS allow them.
const LONGEST_PREFIX: usize = 1024;
const LONGEST_ENDPOINT: usize = 260;
/// The most bytes of a region's name.
const LONGEST_REGION: usize = 64;

/// A plan for a Bucket.
pub type Plan = source::Plan<Bucket>;
/// The input of a plan for a Bucket.
pub type Snapshot = source::Snapshot<Bucket>;
/// A step of a plan for a Bucket: the fetch of its objects.
pub type Step = source::Step<FetchRequest>;

impl FetchStep for FetchRequest {
    fn is_public(&self) -> bool {
        [&self.secret, &self.certificates, &self.proxy]
            .into_iter()
            .all(Option::is_none)
    }

    fn describe(&self) -> String {
        let scheme = if self.insecure { "http" } else { "https" };
        SourceUrl::new(format!("{scheme}://{}/{}", self.endpoint, self.bucket)).shown()
    }
}

implement_source_status!(BucketStatus);

impl Source for Bucket {
    type Status = BucketStatus;
    type Request = FetchRequest;
    type RelatedObjects = ();

    const NAME: &'static str = "Bucket";

    implement_source_parts!();

    fn list_unimplemented(&self) -> Vec<&'static str> {
        let spec = &self.spec;
        let mut fields = match spec.provider.as_deref() {
            // With access keys in a Secret, AWS S3 is used like any other S3 store.
            None | Some("generic") => Vec::new(),
            Some("aws") if spec.secret_ref.is_some() => Vec::new(),
            Some("aws") => vec!["spec.provider: aws without spec.secretRef"],
            Some("azure") => vec!["spec.provider: azure"],
            Some("gcp") => vec!["spec.provider: gcp"],
            Some(_) => vec!["spec.provider"],
        };
        let set = [
            ("spec.serviceAccountName", spec.service_account_name.is_some()),
            ("spec.sts", spec.sts.is_some()),
        ];
        fields.extend(set.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| field));
        fields
    }

    fn check(&self) -> Result<(), SourceRefusal> {
        let spec = &self.spec;
        check_endpoint(&spec.endpoint)?;
        check_bucket(&spec.bucket_name)?;
        let region = spec.region.as_deref().unwrap_or_default();
        if region.len() > LONGEST_REGION || !region.bytes().all(is_part_of_region) {
            return Err(SourceRefusal::invalid(
                "spec.region must be letters, digits, - and _, such as eu-west-1",
            ));
        }
        let prefix = spec.prefix.as_deref().unwrap_or_default();
        if prefix.len() > LONGEST_PREFIX || prefix.chars().any(char::is_control) {
            return Err(SourceRefusal::invalid(
                "spec.prefix must be at most 1024 bytes, without control characters",
            ));
        }
        Ok(())
    }

    fn list_references(&self) -> Vec<SourceReference<'_>> {
        let spec = &self.spec;
        let named = [
            ("spec.secretRef.name", spec.secret_ref.as_ref()),
            ("spec.certSecretRef.name", spec.cert_secret_ref.as_ref()),
            ("spec.proxySecretRef.name", spec.proxy_secret_ref.as_ref()),
        ];
        name_secrets(named).collect()
    }

    fn write_request(&self, basis: RequestBasis, (): &()) -> FetchRequest {
        let spec = &self.spec;
        let name = |reference: &Option<LocalObjectReference>| reference.as_ref().map(|it| it.name.clone());
        FetchRequest {
            endpoint: spec.endpoint.clone(),
            bucket: spec.bucket_name.clone(),
            region: spec.region.clone().filter(|region| !region.is_empty()),
            prefix: spec.prefix.clone().unwrap_or_default(),
            insecure: spec.insecure,
            secret: name(&spec.secret_ref),
            certificates: name(&spec.cert_secret_ref),
            proxy: name(&spec.proxy_secret_ref),
            ignore: spec.ignore.clone(),
            timeout: basis.timeout,
            known: basis.known,
            platform: basis.platform,
        }
    }

    fn describe_stored(stored: &StoredArtifact) -> String {
        format!("stored artifact: revision '{}'", stored.facts.revision)
    }

    fn describe_new(&self, _stored: &StoredArtifact, subject: &str) -> String {
        format!(
            "stored artifact with {subject} fetched files from '{}' bucket",
            self.spec.bucket_name
        )
    }
}

/// Checks Flux's form of an endpoint: a host, perhaps a port, nothing else. The error doesn't repeat the value, since it may hold a password.
fn check_endpoint(endpoint: &str) -> Result<(), SourceRefusal> {
    let refuse = |problem: &str| Err(SourceRefusal::invalid_url(format!("spec.endpoint {problem}")));
    if endpoint.contains("://") {
        return refuse("must be host or host:port, without a scheme: spec.insecure says whether it is http or https");
    }
    let part_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    if endpoint.is_empty() || endpoint.len() > LONGEST_ENDPOINT || !endpoint.bytes().all(part_of_host) {
        return refuse("must be host or host:port, without a user, a path and a query");
    }
    Ok(())
}

/// Checks a bucket's name by the rules of S3 and of Flux's client, so that a name can't change the request's path.
fn check_bucket(name: &str) -> Result<(), SourceRefusal> {
    let part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if !(3..=63).contains(&bytes.len())
        || !bytes.iter().all(|byte| part(*byte))
        || !edge(bytes.first())
        || !edge(bytes.last())
        || name.contains("..")
    {
        return Err(SourceRefusal::invalid(
            "spec.bucketName must be 3 to 63 letters, digits, dots, dashes and underscores, and begin and end with a letter or digit",
        ));
    }
    Ok(())
}

fn is_part_of_region(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}
