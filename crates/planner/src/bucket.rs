//! Buckets as sources: their fields, the implemented ones of these, and the request of a fetch.
//!
//! The module checks the form of an endpoint, a bucket, a region and a prefix. A field that needs a cloud provider's identity, a service for temporary credentials, or
//! a protocol other than S3 is refused.

use tenure_api::reference::LocalObjectReference;
use tenure_api::{Bucket, BucketStatus, SourceUrl};

pub use tenure_remote_requests::bucket::FetchRequest;

pub use crate::source::{Attempt, FetchFailure, FetchReason, Fetched, Memory, plan};

use crate::source::{
    self, FetchStep, Refusal, RequestBasis, Source, SourceReference, implement_source_parts, implement_source_status,
    name_secrets,
};
use tenure_remote_requests::artifact::StoredArtifact;

/// The most bytes of a prefix, and of an endpoint, as S3 and DNS allow them.
const LONGEST_PREFIX: usize = 1024;
const LONGEST_ENDPOINT: usize = 260;
/// Bytes of a region's name.
const LONGEST_REGION: usize = 64;

/// A plan for a Bucket.
pub type Plan = source::Plan<Bucket>;
/// The known facts when a plan is made.
pub type Snapshot = source::Snapshot<Bucket>;
/// Something to do for one.
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
    type Beside = ();

    const NAME: &'static str = "Bucket";

    implement_source_parts!();

    fn list_unimplemented(&self) -> Vec<&'static str> {
        let spec = &self.spec;
        let mut fields = match spec.provider.as_deref() {
            // An S3 store with keys of its own is like any other store.
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

    fn check(&self) -> Result<(), Refusal> {
        let spec = &self.spec;
        check_endpoint(&spec.endpoint)?;
        check_bucket(&spec.bucket_name)?;
        let region = spec.region.as_deref().unwrap_or_default();
        if region.len() > LONGEST_REGION || !region.bytes().all(is_part_of_region) {
            return Err(Refusal::invalid(
                "spec.region must be letters, digits, - and _, such as eu-west-1",
            ));
        }
        let prefix = spec.prefix.as_deref().unwrap_or_default();
        if prefix.len() > LONGEST_PREFIX || prefix.chars().any(char::is_control) {
            return Err(Refusal::invalid(
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
fn check_endpoint(endpoint: &str) -> Result<(), Refusal> {
    let refuse = |problem: &str| Err(Refusal::invalid_url(format!("spec.endpoint {problem}")));
    if endpoint.contains("://") {
        return refuse("must be host or host:port, without a scheme: spec.insecure says whether it is http or https");
    }
    let part_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    if endpoint.is_empty() || endpoint.len() > LONGEST_ENDPOINT || !endpoint.bytes().all(part_of_host) {
        return refuse("must be host or host:port, without a user, a path and a query");
    }
    Ok(())
}

/// Checks the form that S3 and Flux's client accept: so a name can't lead to another path.
fn check_bucket(name: &str) -> Result<(), Refusal> {
    let part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if !(3..=63).contains(&bytes.len())
        || !bytes.iter().all(|byte| part(*byte))
        || !edge(bytes.first())
        || !edge(bytes.last())
        || name.contains("..")
    {
        return Err(Refusal::invalid(
            "spec.bucketName must be 3 to 63 letters, digits, dots, dashes and underscores, and begin and end with a letter or digit",
        ));
    }
    Ok(())
}

fn is_part_of_region(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}
