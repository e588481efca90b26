//! The request for a bucket: the planner's request, read and complete, before any connection. Pure.
//!
//! The path names the bucket, as in Flux's client for any store without a known other form. A Secret with only one of the two keys is refused.

use sha2::{Digest as _, Sha256};
use tenure_remote_requests::bucket::FetchRequest;

use super::error::BucketError;
use super::signature::encode;
use crate::artifact::SourceKey;
use crate::policy::Endpoint;
use crate::proxy::Proxy;
use crate::secret::{self, SecretBytes, SecretData, TlsOptions};

/// The host of Amazon's buckets whose region is not in the address.
const AMAZON: &str = "s3.amazonaws.com";
/// The region that a request is signed for if no other is named.
pub(super) const DEFAULT_REGION: &str = "us-east-1";
/// Hosts whose buckets are host names of their own: Alibaba's, which accept no other form.
const BUCKETS_AS_HOSTS: &str = ".aliyuncs.com";
/// The longest key in bytes.
const LONGEST_KEY: usize = 4096;

/// A complete request for a bucket: the planner's request, with the endpoint and the credentials that were read from it and its Secrets. Its `Debug` shows no credential.
#[derive(Debug, Clone)]
pub struct BucketRequest {
    /// The source that the artifact belongs to.
    pub source: SourceKey,
    /// The planner's request.
    pub asked: FetchRequest,
    /// The store.
    pub endpoint: Endpoint,
    pub(super) keys: Option<AccessKeys>,
    pub(super) tls: TlsOptions,
    pub(super) proxy: Option<Proxy>,
}

/// The data of the Secrets that a request names.
#[derive(Default)]
pub struct BucketSecrets {
    /// The Secret of `spec.secretRef`.
    pub credentials: Option<SecretData>,
    /// The Secret of `spec.certSecretRef`.
    pub certificates: Option<SecretData>,
    /// The Secret of `spec.proxySecretRef`.
    pub proxy: Option<SecretData>,
}

/// The key pair of an account at the store, with which requests are signed.
#[derive(Debug, Clone)]
pub struct AccessKeys {
    /// The id of the keys; each request contains it.
    pub(super) id: SecretBytes,
    /// The secret key, which signs and is never sent.
    pub(super) secret: SecretBytes,
}

impl BucketRequest {
    /// Reads the planner's request, with the data of the Secrets that it names.
    ///
    /// # Errors
    /// A [`BucketError`] that names the unusable field, or key of the Secret. The error contains no credential.
    pub fn read(source: SourceKey, asked: FetchRequest, secrets: &BucketSecrets) -> Result<Self, BucketError> {
        let scheme = if asked.insecure { "http" } else { "https" };
        let endpoint = format!("{scheme}://{}", asked.endpoint).parse();
        let mut endpoint: Endpoint = endpoint.map_err(|_| BucketError::InvalidEndpoint)?;
        if endpoint.host.ends_with(BUCKETS_AS_HOSTS) {
            endpoint.host = format!("{}.{}", asked.bucket.to_ascii_lowercase(), endpoint.host);
        }
        Ok(Self {
            source,
            endpoint,
            keys: read_keys(secrets.credentials.as_ref())?,
            tls: secret::read_tls(secrets.certificates.as_ref())?,
            proxy: Proxy::read_if_named(asked.proxy.is_some(), secrets.proxy.as_ref())?,
            asked,
        })
    }

    /// Returns the store and the bucket, for messages.
    pub(super) fn display_address(&self) -> String {
        format!("{}/{}", self.endpoint, self.asked.bucket)
    }

    /// Returns the endpoint for a bucket of this region.
    pub(super) fn endpoint_in(&self, region: &str) -> Endpoint {
        let mut endpoint = self.endpoint.clone();
        if endpoint.host == AMAZON && region != DEFAULT_REGION {
            // This host serves buckets of its own region only.
            endpoint.host = format!("s3.{}.amazonaws.com", region.to_ascii_lowercase());
        }
        endpoint
    }

    /// Returns the path of an object, or of the bucket itself for an empty key.
    pub(super) fn path_of(&self, key: &str) -> String {
        let key = encode(key, true);
        if self.endpoint.host.ends_with(BUCKETS_AS_HOSTS) {
            return format!("/{key}");
        }
        format!("/{}/{key}", encode(&self.asked.bucket, false))
    }

    /// Returns the digest of all inputs of the artifact besides the objects: the bucket, the prefix and the patterns. Another digest makes another artifact.
    pub(super) fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        let mut add = |name: &str, bytes: &[u8]| {
            hash.update(name.as_bytes());
            hash.update(bytes.len().to_be_bytes());
            hash.update(bytes);
        };
        add("bucket", b"1");
        add("url", self.display_address().as_bytes());
        add("prefix", self.asked.prefix.as_bytes());
        if let Some(ignore) = &self.asked.ignore {
            add("ignore", ignore.as_bytes());
        }
        format!("sha256:{}", hex::encode(hash.finalize()))
    }
}

/// Reads the keys. Without a Secret, requests are not signed.
fn read_keys(secret: Option<&SecretData>) -> Result<Option<AccessKeys>, BucketError> {
    let Some(data) = secret else { return Ok(None) };
    let invalid = |problem: String| BucketError::InvalidSecret {
        field: "spec.secretRef",
        problem,
    };
    let read = |name: &str| {
        let value = data.get(name).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| {
            invalid(format!(
                "it needs the keys accesskey and secretkey, and {name} is missing"
            ))
        })?;
        let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= LONGEST_KEY);
        match text {
            Some(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(SecretBytes::new(text)),
            _ => Err(invalid(format!(
                "{name} must be letters, digits and signs, without spaces and line breaks"
            ))),
        }
    };
    Ok(Some(AccessKeys {
        id: read("accesskey")?,
        secret: read("secretkey")?,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

    use super::*;

    fn read(endpoint: &str) -> Result<BucketRequest, BucketError> {
        let asked = FetchRequest {
            endpoint: endpoint.to_owned(),
            bucket: "Apps".to_owned(),
            region: None,
            prefix: String::new(),
            insecure: false,
            secret: None,
            certificates: None,
            proxy: None,
            ignore: None,
            timeout: std::time::Duration::from_secs(1),
            known: None,
            platform: false,
        };
        let source = SourceKey::new("Bucket", "team", "app", "1").unwrap();
        BucketRequest::read(source, asked, &BucketSecrets::default())
    }

    /// The bucket is a part of the path, or of the host's name where a store needs that.
    #[test]
    fn bucket_address_follows_its_store() {
        let request = read("store.example.com:9000").unwrap();
        assert_eq!(request.endpoint.to_string(), "https://store.example.com:9000");
        assert_eq!(request.path_of("a b/ü+c"), "/Apps/a%20b/%C3%BC%2Bc");
        assert_eq!(request.path_of(""), "/Apps/");
        assert_eq!(request.endpoint_in("eu-west-1"), request.endpoint);
        let amazon = read("s3.amazonaws.com").unwrap();
        assert_eq!(amazon.endpoint_in("us-east-1").host, "s3.amazonaws.com");
        assert_eq!(amazon.endpoint_in("eu-west-1").host, "s3.eu-west-1.amazonaws.com");
        let alibaba = read("oss-cn-hangzhou.aliyuncs.com").unwrap();
        assert_eq!(alibaba.endpoint.host, "apps.oss-cn-hangzhou.aliyuncs.com");
        assert_eq!(alibaba.path_of("a"), "/a");
        for endpoint in ["", "a/b", "user:sesame@host", "host:port", "-a"] {
            assert!(
                matches!(read(endpoint), Err(BucketError::InvalidEndpoint)),
                "{endpoint}"
            );
        }
    }

    #[test]
    fn keys_come_in_pairs() {
        let data = |pairs: &[(&str, &str)]| -> SecretData {
            let pairs = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
            pairs.collect()
        };
        assert!(read_keys(None).unwrap().is_none());
        assert!(
            read_keys(Some(&data(&[("accesskey", "a"), ("secretkey", "b")])))
                .unwrap()
                .is_some()
        );
        for (pairs, problem) in [
            (data(&[("accesskey", "sesame")]), "secretkey is missing"),
            (data(&[("secretkey", "sesame")]), "accesskey is missing"),
            (data(&[("accesskey", "sesame\n"), ("secretkey", "b")]), "without spaces"),
        ] {
            let error = read_keys(Some(&pairs)).unwrap_err().to_string();
            assert!(error.contains(problem) && !error.contains("sesame"), "{error}");
        }
    }
}
