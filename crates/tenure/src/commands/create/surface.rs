//! `tenure create surface`: a Surface of one repository.

use clap::Args;
use tenure_api::Surface;
use tenure_api::duration::DurationText;
use tenure_api::reference::LocalObjectReference;
use tenure_api::source_url::SourceUrl;
use tenure_api::surface::{SurfaceDecryption, SurfacePath, SurfaceSource, SurfaceSpec};

use super::references::parse_duration;
use super::sources::GitRevision;
use super::{Common, InNamespace, NewObject, check_url, make_reference};
use crate::failure::Failure;

/// Create a Surface of one repository, or change it.
///
/// In a tenant's home namespace, the tenant's GitOps account applies the repository. In tenure-system, --service-account names the account.
#[derive(Debug, Args)]
pub(super) struct SurfaceFlags {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) place: InNamespace,
    /// Address of the repository: http://, https:// or ssh://.
    #[arg(long, value_name = "URL")]
    url: String,
    #[command(flatten)]
    revision: GitRevision,
    /// Name of the source. The GitRepository is named SURFACE-SOURCE [default: the name of the Surface].
    #[arg(long, value_name = "NAME")]
    source_name: Option<String>,
    /// Folder to apply, or NAME=FOLDER for each of several, which get a Kustomization each. Can be repeated.
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<String>,
    /// Time between two checks of the repository, and between two full reconciliations [default: 1m].
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    interval: Option<DurationText>,
    /// Time until a failed reconciliation is tried again.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    retry_interval: Option<DurationText>,
    /// Secret with the credentials of the repository.
    #[arg(long, value_name = "NAME")]
    secret_ref: Option<String>,
    /// Delete applied objects that the repository no longer contains [default: true].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    prune: Option<bool>,
    /// Wait until every applied object is healthy.
    #[arg(long)]
    wait: bool,
    /// Namespace to set on every namespaced object.
    #[arg(long, value_name = "NAME")]
    target_namespace: Option<String>,
    /// Handling of the applied objects when the Surface is deleted.
    #[arg(long, value_name = "POLICY", value_parser = ["MirrorPrune", "Delete", "WaitForTermination", "Orphan"])]
    deletion_policy: Option<String>,
    /// ServiceAccount in tenure-system that applies the objects. Only for a Surface in tenure-system.
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Tool that encrypted files.
    #[arg(long, value_name = "NAME", value_parser = ["sops"], requires = "decryption_secret")]
    decryption_provider: Option<String>,
    /// Secret with the keys of encrypted files.
    #[arg(long, value_name = "NAME", requires = "decryption_provider")]
    decryption_secret: Option<String>,
}

impl SurfaceFlags {
    pub(super) fn write(&self) -> Result<NewObject, Failure> {
        check_url(&self.url)?;
        let (path, paths) = self.read_paths()?;
        let decryption = self.decryption_provider.as_ref().zip(self.decryption_secret.as_ref());
        let source = SurfaceSource {
            name: self.source_name.clone().unwrap_or_else(|| self.common.name.clone()),
            url: SourceUrl::new(&self.url),
            reference: self.revision.write(),
            secret_ref: make_reference(self.secret_ref.as_ref()),
            interval: self.interval.clone(),
            retry_interval: self.retry_interval.clone(),
            path,
            paths,
            prune: self.prune,
            wait: self.wait,
            target_namespace: self.target_namespace.clone(),
            deletion_policy: self.deletion_policy.clone(),
            decryption: decryption.map(|(provider, secret)| SurfaceDecryption {
                provider: provider.clone(),
                secret_ref: LocalObjectReference { name: secret.clone() },
            }),
            ..SurfaceSource::default()
        };
        let spec = SurfaceSpec {
            sources: vec![source],
            service_account_name: self.service_account.clone(),
            suspend: false,
        };
        NewObject::write::<Surface>(&self.common, Some(&self.place), &spec)
    }

    /// Returns the one folder, or the several.
    fn read_paths(&self) -> Result<(Option<String>, Vec<SurfacePath>), Failure> {
        if let [only] = self.paths.as_slice()
            && !only.contains('=')
        {
            return Ok((Some(only.clone()), Vec::new()));
        }
        let read = |text: &String| match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok(SurfacePath {
                name: name.to_owned(),
                path: path.to_owned(),
                target_namespace: None,
            }),
            _ => Err(
                Failure::usage(format!("--path {text:?}: each of several folders has a name"))
                    .hint("such as --path web=deploy/web --path api=deploy/api"),
            ),
        };
        Ok((None, self.paths.iter().map(read).collect::<Result<_, _>>()?))
    }
}
