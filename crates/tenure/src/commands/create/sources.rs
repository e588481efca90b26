//! `tenure create source`: GitRepositories, OCIRepositories and Buckets.

use clap::{ArgGroup, Args, Subcommand};
use tenure_api::bucket::BucketSpec;
use tenure_api::duration::DurationText;
use tenure_api::git_repository::{GitRepositoryRef, GitRepositorySpec};
use tenure_api::oci_repository::{OciRepositoryRef, OciRepositorySpec, OciRepositoryVerification};
use tenure_api::source_url::SourceUrl;
use tenure_api::{Bucket, GitRepository, OciRepository};

use super::references::parse_duration;
use super::{Common, InNamespace, NewObject, check_url, make_reference};
use crate::failure::Failure;

/// Create a source.
#[derive(Debug, Args)]
pub(super) struct Source {
    #[command(subcommand)]
    pub(super) kind: Kind,
}

#[derive(Debug, Subcommand)]
pub(super) enum Kind {
    Git(Box<Git>),
    Oci(Box<Oci>),
    Bucket(Box<BucketFlags>),
}

/// Flags of all sources.
#[derive(Debug, Args)]
pub(super) struct Fetched {
    /// Time between two checks for a new revision.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    interval: DurationText,
    /// Secret with the credentials, in the same namespace.
    #[arg(long, value_name = "NAME")]
    secret_ref: Option<String>,
    /// Secret with the address and the credentials of a proxy.
    #[arg(long, value_name = "NAME")]
    proxy_secret_ref: Option<String>,
    /// Pattern of files to leave out, in the format of .gitignore. Can be repeated, and separated by commas.
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    ignore_paths: Vec<String>,
}

impl Fetched {
    fn write_ignore(&self) -> Option<String> {
        (!self.ignore_paths.is_empty()).then(|| self.ignore_paths.join("\n"))
    }
}

/// The revision of a Git repository.
#[derive(Debug, Args)]
pub(super) struct GitRevision {
    /// Branch to fetch.
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// Tag to fetch.
    #[arg(long, value_name = "NAME")]
    tag: Option<String>,
    /// Range of semantic versions; the tag with the highest version in it is fetched.
    #[arg(long, value_name = "RANGE")]
    tag_semver: Option<String>,
    /// Full name of a Git reference to fetch, such as refs/pull/1/head.
    #[arg(long, value_name = "REF")]
    ref_name: Option<String>,
    /// Commit to fetch, as a full hash.
    #[arg(long, value_name = "HASH")]
    commit: Option<String>,
}

impl GitRevision {
    /// Returns the revision; `None` if no flag names one.
    pub(super) fn write(&self) -> Option<GitRepositoryRef> {
        let reference = GitRepositoryRef {
            branch: self.branch.clone(),
            commit: self.commit.clone(),
            name: self.ref_name.clone(),
            semver: self.tag_semver.clone(),
            tag: self.tag.clone(),
        };
        (reference != GitRepositoryRef::default()).then_some(reference)
    }
}

/// Create a GitRepository, or change it.
#[derive(Debug, Args)]
pub(super) struct Git {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) place: InNamespace,
    /// Address of the repository: http://, https:// or ssh://.
    #[arg(long, value_name = "URL")]
    url: String,
    #[command(flatten)]
    revision: GitRevision,
    #[command(flatten)]
    fetched: Fetched,
    /// Type of the credentials.
    #[arg(long, value_name = "NAME", value_parser = ["generic", "github"])]
    provider: Option<String>,
    /// Fetch submodules, too.
    #[arg(long)]
    recurse_submodules: bool,
    /// Folder or file to fetch, instead of all. Can be repeated, and separated by commas.
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    sparse_checkout_paths: Vec<String>,
}

impl Git {
    pub(super) fn write(&self) -> Result<NewObject, Failure> {
        check_url(&self.url)?;
        let Some(revision) = self.revision.write() else {
            return Err(Failure::usage("no revision is named")
                .hint("--branch NAME, --tag NAME, --tag-semver RANGE, --ref-name REF or --commit HASH"));
        };
        let spec = GitRepositorySpec {
            url: SourceUrl::new(&self.url),
            reference: Some(revision),
            interval: self.fetched.interval.clone(),
            secret_ref: make_reference(self.fetched.secret_ref.as_ref()),
            proxy_secret_ref: make_reference(self.fetched.proxy_secret_ref.as_ref()),
            ignore: self.fetched.write_ignore(),
            provider: self.provider.clone(),
            recurse_submodules: self.recurse_submodules,
            sparse_checkout: self.sparse_checkout_paths.clone(),
            ..GitRepositorySpec::default()
        };
        NewObject::write::<GitRepository>(&self.common, Some(&self.place), &spec)
    }
}

/// Create an OCIRepository, or change it.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("artifact").required(true).args(["tag", "tag_semver", "digest"]))]
pub(super) struct Oci {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) place: InNamespace,
    /// Address of the repository in the registry, without a tag: oci://host/path.
    #[arg(long, value_name = "URL")]
    url: String,
    /// Tag to fetch.
    #[arg(long, value_name = "NAME")]
    tag: Option<String>,
    /// Range of semantic versions; the tag with the highest version in it is fetched.
    #[arg(long, value_name = "RANGE")]
    tag_semver: Option<String>,
    /// Digest of the manifest to fetch: sha256:HEX.
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    #[command(flatten)]
    fetched: Fetched,
    /// Secret with TLS data for the registry.
    #[arg(long, value_name = "NAME")]
    cert_ref: Option<String>,
    /// ServiceAccount whose imagePullSecrets are used besides --secret-ref.
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Type of the credentials.
    #[arg(long, value_name = "NAME", value_parser = ["generic"])]
    provider: Option<String>,
    /// Connect over plain HTTP.
    #[arg(long)]
    insecure: bool,
    /// Tool that made the signature. Without it, no signature is verified.
    #[arg(long, value_name = "NAME", value_parser = ["cosign"], requires = "verify_secret_ref")]
    verify_provider: Option<String>,
    /// Secret with the public keys of the trusted authors.
    #[arg(long, value_name = "NAME", requires = "verify_provider")]
    verify_secret_ref: Option<String>,
}

impl Oci {
    pub(super) fn write(&self) -> Result<NewObject, Failure> {
        if !self.url.starts_with("oci://") {
            return Err(
                Failure::usage(format!("--url {:?} is no address of a registry", self.url))
                    .hint("it begins with oci://, such as oci://ghcr.io/stefanprodan/manifests/podinfo"),
            );
        }
        let verify = self.verify_provider.as_ref().map(|provider| OciRepositoryVerification {
            provider: provider.clone(),
            secret_ref: make_reference(self.verify_secret_ref.as_ref()),
            ..OciRepositoryVerification::default()
        });
        let spec = OciRepositorySpec {
            url: SourceUrl::new(&self.url),
            reference: Some(OciRepositoryRef {
                digest: self.digest.clone(),
                semver: self.tag_semver.clone(),
                tag: self.tag.clone(),
                semver_filter: None,
            }),
            interval: self.fetched.interval.clone(),
            secret_ref: make_reference(self.fetched.secret_ref.as_ref()),
            proxy_secret_ref: make_reference(self.fetched.proxy_secret_ref.as_ref()),
            cert_secret_ref: make_reference(self.cert_ref.as_ref()),
            ignore: self.fetched.write_ignore(),
            service_account_name: self.service_account.clone(),
            provider: self.provider.clone(),
            insecure: self.insecure,
            verify,
            ..OciRepositorySpec::default()
        };
        NewObject::write::<OciRepository>(&self.common, Some(&self.place), &spec)
    }
}

/// Create a Bucket, or change it.
#[derive(Debug, Args)]
pub(super) struct BucketFlags {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) place: InNamespace,
    /// Name of the bucket.
    #[arg(long, value_name = "NAME")]
    bucket_name: String,
    /// Address of the object store: host or host:port, without a scheme.
    #[arg(long, value_name = "HOST")]
    endpoint: String,
    /// Region of the bucket.
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// Prefix of the keys of the objects to fetch.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Type of the store.
    #[arg(long, value_name = "NAME", value_parser = ["generic", "aws"])]
    provider: Option<String>,
    /// Connect over plain HTTP.
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    fetched: Fetched,
}

impl BucketFlags {
    pub(super) fn write(&self) -> Result<NewObject, Failure> {
        let spec = BucketSpec {
            bucket_name: self.bucket_name.clone(),
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            prefix: self.prefix.clone(),
            provider: self.provider.clone(),
            insecure: self.insecure,
            interval: self.fetched.interval.clone(),
            secret_ref: make_reference(self.fetched.secret_ref.as_ref()),
            proxy_secret_ref: make_reference(self.fetched.proxy_secret_ref.as_ref()),
            ignore: self.fetched.write_ignore(),
            ..BucketSpec::default()
        };
        NewObject::write::<Bucket>(&self.common, Some(&self.place), &spec)
    }
}
