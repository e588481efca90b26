//! `tenure create kustomization`.

use clap::Args;
use tenure_api::Kustomization;
use tenure_api::duration::DurationText;
use tenure_api::kustomization::{Decryption, KubeConfigReference, KustomizationSpec};
use tenure_api::reference::{
    CrossNamespaceSourceReference, DependencyReference, NamespacedObjectKindReference, SecretKeyReference,
};

use super::references::{parse_dependency, parse_duration, parse_source, parse_workload};
use super::{Common, InNamespace, NewObject, make_reference};
use crate::failure::Failure;

/// Create a Kustomization, or change it.
#[derive(Debug, Args)]
pub(super) struct KustomizationFlags {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) place: InNamespace,
    /// Source of the files: [KIND/]NAME[.NAMESPACE]. Without a kind, a GitRepository.
    #[arg(long, value_name = "SOURCE", value_parser = parse_source)]
    source: CrossNamespaceSourceReference,
    /// Folder within the source.
    #[arg(long, value_name = "PATH", default_value = "./")]
    path: String,
    /// Delete applied objects that the source no longer contains.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    prune: bool,
    /// Time between two full reconciliations.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    interval: DurationText,
    /// Time until a failed reconciliation is tried again.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    retry_interval: Option<DurationText>,
    /// Wait until every applied object is healthy.
    #[arg(long)]
    wait: bool,
    /// Workload that must be healthy, as KIND/NAME.NAMESPACE. Can be repeated, and separated by commas.
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',', value_parser = parse_workload)]
    health_check: Vec<NamespacedObjectKindReference>,
    /// Time limit of one attempt, if it waits for health.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    health_check_timeout: DurationText,
    /// Kustomization that must be ready first: NAME or NAMESPACE/NAME. Can be repeated, and separated by commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_dependency)]
    depends_on: Vec<DependencyReference>,
    /// ServiceAccount that applies the objects, in the same namespace.
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Namespace to set on every namespaced object.
    #[arg(long, value_name = "NAME")]
    target_namespace: Option<String>,
    /// Tool that encrypted files.
    #[arg(long, value_name = "NAME", value_parser = ["sops"])]
    decryption_provider: Option<String>,
    /// Secret with the keys of encrypted files.
    #[arg(long, value_name = "NAME", requires = "decryption_provider")]
    decryption_secret: Option<String>,
    /// Secret with the kubeconfig of another cluster to apply to.
    #[arg(long, value_name = "NAME")]
    kubeconfig_secret_ref: Option<String>,
}

impl KustomizationFlags {
    pub(super) fn write(&self) -> Result<NewObject, Failure> {
        let is_checked = self.wait || !self.health_check.is_empty();
        let spec = KustomizationSpec {
            source_ref: self.source.clone(),
            path: Some(self.path.clone()),
            prune: self.prune,
            interval: self.interval.clone(),
            retry_interval: self.retry_interval.clone(),
            wait: self.wait,
            health_checks: self.health_check.clone(),
            timeout: is_checked.then(|| self.health_check_timeout.clone()),
            depends_on: self.depends_on.clone(),
            service_account_name: self.service_account.clone(),
            target_namespace: self.target_namespace.clone(),
            decryption: self.decryption_provider.as_ref().map(|provider| Decryption {
                provider: provider.clone(),
                secret_ref: make_reference(self.decryption_secret.as_ref()),
                service_account_name: None,
            }),
            kube_config: self.kubeconfig_secret_ref.as_ref().map(|name| KubeConfigReference {
                config_map_ref: None,
                secret_ref: Some(SecretKeyReference {
                    key: None,
                    name: name.clone(),
                }),
            }),
            ..KustomizationSpec::default()
        };
        NewObject::write::<Kustomization>(&self.common, Some(&self.place), &spec)
    }
}
