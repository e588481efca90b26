//! The flags of a kube-apiserver, for programs that start one, such as envtest in test suites of Go operators. The module defines the effect of each flag. It refuses,
//! by name, flags for features that don't exist here.

use std::path::PathBuf;

use clap::Args;
use tenure_apiserver::audit::LogConfig;
use tenure_apiserver::certificates::ProvidedFiles;
use tenure_apiserver::{OPTIONAL_PLUGINS, ServiceRange};

use crate::failure::Failure;
use crate::output;

/// Admission plugins of Kubernetes that this server lacks, so disabling one changes nothing.
const ABSENT_PLUGINS: &[&str] = &[
    "AlwaysPullImages",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeDeclaredFeatureValidator",
    "NodeRestriction",
    "OwnerReferencesPermissionEnforcement",
    "PodNodeSelector",
    "PodSecurity",
    "PodTolerationRestriction",
    "PodTopologyLabels",
    "RuntimeClass",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
];

/// Flags of kube-apiserver.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Flags of kube-apiserver")]
pub(crate) struct Flags {
    /// Address of the etcd that names the folder for all stored data. This etcd is the same program, started under the name etcd.
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub(crate) etcd_servers: Option<String>,
    /// Folder with apiserver.crt and apiserver.key, the certificate and key of this server.
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// Certificate of this server, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// CA certificates for client certificates, in PEM. With this flag, no administrator's kubeconfig is written.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Issuer of ServiceAccount tokens.
    #[arg(long, value_name = "URL")]
    service_account_issuer: Option<String>,
    /// Key that signs ServiceAccount tokens: ECDSA P-256, PKCS#8 in PEM.
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,
    /// Key that verifies ServiceAccount tokens. It has to belong to the signing key.
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    service_account_key_file: Vec<PathBuf>,
    /// IPv4 range from which Services get their addresses [default: 10.96.0.0/16].
    #[arg(long, value_name = "RANGE")]
    service_cluster_ip_range: Option<String>,
    /// Authorization modes. RBAC always applies, and `Node` adds nothing to it, since there are no nodes. Other modes are refused.
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    authorization_mode: Vec<String>,
    /// Admission plugins to switch off, separated by commas. Plugins that this server always runs are refused.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
    /// Accepted only as true: Pods are stored and not run, so the server keeps no Pod from being privileged.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    allow_privileged: Option<bool>,
    /// Address that clients find in the kubeconfig and in the cluster, and that the certificate covers [default: the address of --bind].
    ///
    /// If --bind names all addresses, the default is an address of this machine.
    #[arg(long, value_name = "ADDRESS")]
    advertise_address: Option<std::net::IpAddr>,
    /// Audit policy: the requests to record, and the level of detail (audit.k8s.io/v1, YAML).
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    audit_policy_file: Option<PathBuf>,
    /// File for audit events, a JSON object per line; `-` for standard output.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    audit_log_path: Option<PathBuf>,
    /// Days for which rotated audit logs are kept; 0 for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 366, requires = "audit_log_path")]
    audit_log_maxage: u32,
    /// Number of rotated audit logs that are kept; 0 for all.
    #[arg(long, value_name = "COUNT", default_value_t = 100, requires = "audit_log_path")]
    audit_log_maxbackup: usize,
    /// Size at which the audit log is rotated, in megabytes; 0 for 100.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100, requires = "audit_log_path")]
    audit_log_maxsize: u64,
    /// Reaction if an event can't be written: `blocking` logs the failure and continues, `blocking-strict` refuses the request.
    ///
    /// In both modes, events are written before the response is sent.
    #[arg(long, value_name = "MODE", default_value = "blocking", value_parser = ["blocking", "blocking-strict"], requires = "audit_log_path")]
    audit_log_mode: String,
    /// Format of the audit log. Only `json` exists.
    #[arg(long, value_name = "FORMAT", default_value = "json", value_parser = ["json"], requires = "audit_log_path")]
    audit_log_format: String,
}

/// The settings that follow from the flags.
#[derive(Debug, Default)]
pub(crate) struct ServerSettings {
    /// Certificates and keys that the user provides.
    pub(crate) provided: ProvidedFiles,
    /// The issuer of ServiceAccount tokens, if it isn't the default.
    pub(crate) issuer: Option<String>,
    /// The address range of Services.
    pub(crate) services: ServiceRange,
    /// The address that clients get.
    pub(crate) advertised: Option<std::net::IpAddr>,
    /// Admission plugins that are disabled.
    pub(crate) left_out_plugins: Vec<String>,
    /// The audit policy and the log of its events.
    pub(crate) audit: Option<(PathBuf, LogConfig)>,
}

impl Flags {
    /// Reads all flags together.
    pub(crate) fn read_settings(&self) -> Result<ServerSettings, Failure> {
        for mode in &self.authorization_mode {
            match mode.as_str() {
                "RBAC" => {}
                "Node" => {
                    output::print_note("--authorization-mode: there are no nodes here, so Node adds no rights to RBAC")
                }
                other => {
                    return Err(
                        Failure::usage(format!("--authorization-mode: {other} is not supported"))
                            .hint("--authorization-mode=RBAC"),
                    );
                }
            }
        }
        if let Some(plugin) = self.disable_admission_plugins.iter().find(|plugin| always_runs(plugin)) {
            return Err(Failure::usage(format!(
                "--disable-admission-plugins: {plugin} is always run here, or is no admission plugin"
            ))
            .hint("leave it out of the list"));
        }
        if self.allow_privileged == Some(false) {
            return Err(
                Failure::usage("--allow-privileged=false: no admission here stops privileged pods")
                    .hint("--allow-privileged=true, or leave the flag out"),
            );
        }
        if let Some(address) = self.advertise_address
            && (address.is_unspecified() || address.is_multicast())
        {
            return Err(
                Failure::usage(format!("--advertise-address: no client can reach {address}"))
                    .hint("name an address that clients can use"),
            );
        }
        let services = self.service_cluster_ip_range.as_deref().map(str::parse).transpose();
        let services = services.map_err(|error| Failure::usage(format!("--service-cluster-ip-range: {error}")))?;
        Ok(ServerSettings {
            provided: ProvidedFiles {
                serving: self.serving(),
                client_authorities: self.client_ca_file.clone(),
                signing_key: self.service_account_signing_key_file.clone(),
                verification_keys: self.service_account_key_file.clone(),
            },
            issuer: self.service_account_issuer.clone(),
            services: services.unwrap_or_default(),
            advertised: self.advertise_address,
            left_out_plugins: self.disable_admission_plugins.clone(),
            audit: self.audit(),
        })
    }

    /// Returns the audit policy and its log, which must be given together.
    fn audit(&self) -> Option<(PathBuf, LogConfig)> {
        let log = LogConfig {
            path: self.audit_log_path.clone()?,
            max_size: self.audit_log_maxsize,
            max_backups: self.audit_log_maxbackup,
            max_age: self.audit_log_maxage,
            strict: self.audit_log_mode == "blocking-strict",
        };
        Some((self.audit_policy_file.clone()?, log))
    }

    /// Returns the named certificate and key, or those in the folder of certificates.
    fn serving(&self) -> Option<(PathBuf, PathBuf)> {
        if let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_private_key_file) {
            return Some((certificate.clone(), key.clone()));
        }
        let folder = self.cert_dir.as_ref()?;
        let files = (folder.join("apiserver.crt"), folder.join("apiserver.key"));
        (files.0.exists() || files.1.exists()).then_some(files)
    }
}

fn always_runs(plugin: &str) -> bool {
    !ABSENT_PLUGINS.contains(&plugin) && !OPTIONAL_PLUGINS.contains(&plugin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_flag_values_are_refused_by_name() {
        let refused = |flags: Flags, words: &str| {
            let failure = flags.read_settings().expect_err(words);
            assert!(failure.message.contains(words), "{}", failure.message);
        };
        let list = |text: &str| vec![text.to_owned()];
        refused(
            Flags {
                authorization_mode: list("AlwaysAllow"),
                ..Flags::default()
            },
            "AlwaysAllow",
        );
        refused(
            Flags {
                disable_admission_plugins: list("NamespaceLifecycle"),
                ..Flags::default()
            },
            "NamespaceLifecycle",
        );
        refused(
            Flags {
                allow_privileged: Some(false),
                ..Flags::default()
            },
            "--allow-privileged=false",
        );
        refused(
            Flags {
                service_cluster_ip_range: Some("fd00::/108".to_owned()),
                ..Flags::default()
            },
            "fd00::/108",
        );
        let flags = Flags {
            authorization_mode: list("RBAC"),
            disable_admission_plugins: list("ServiceAccount"),
            ..Flags::default()
        };
        assert!(flags.read_settings().is_ok());
    }
}
