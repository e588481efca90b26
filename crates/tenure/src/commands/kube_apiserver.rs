//! The flags of a kube-apiserver, for programs that start one: envtest does, and with it the test suites of operators
//! written in Go. Owns what each flag means here; refuses, by its name, what would promise something that isn't there.

use std::path::PathBuf;

use clap::Args;
use tenure_apiserver::audit::LogConfig;
use tenure_apiserver::certificates::ProvidedFiles;
use tenure_apiserver::{OPTIONAL_PLUGINS, ServiceRange};

use crate::failure::Failure;
use crate::output;

/// Admission plugins of Kubernetes that this server doesn't have, so that switching one off changes nothing.
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
    /// The etcd that names the folder for everything that is stored: this program under the name of etcd.
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub(crate) etcd_servers: Option<String>,
    /// Folder of apiserver.crt and apiserver.key, to serve with.
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// The certificate to serve with, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Its key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// The CAs that sign client certificates, in PEM.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// The issuer of ServiceAccount tokens.
    #[arg(long, value_name = "URL")]
    service_account_issuer: Option<String>,
    /// The key that signs ServiceAccount tokens: ECDSA P-256, PKCS#8 in PEM.
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,
    /// What verifies ServiceAccount tokens; it has to belong to the signing key.
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    service_account_key_file: Vec<PathBuf>,
    /// Where Services get their addresses from: one IPv4 range.
    #[arg(long, value_name = "RANGE")]
    service_cluster_ip_range: Option<String>,
    /// Authorization is by RBAC; there is no other.
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    authorization_mode: Vec<String>,
    /// Admission plugins to leave out; those that this server always runs can't be left out.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
    /// Pods are stored and not run, so nothing is kept from being privileged: only true can be said.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    allow_privileged: Option<bool>,
    /// The address that clients are told, in the kubeconfig and in the cluster, and that the certificate is for; else the one that is
    /// listened on, or one of this machine's if that is all of them.
    #[arg(long, value_name = "ADDRESS")]
    advertise_address: Option<std::net::IpAddr>,
    /// The audit policy: which requests are noted, and how much of them (audit.k8s.io/v1, YAML).
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    audit_policy_file: Option<PathBuf>,
    /// Where audit events go, one JSON object a line; `-` for standard output.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    audit_log_path: Option<PathBuf>,
    /// How many days old audit logs are kept; 0 for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 366, requires = "audit_log_path")]
    audit_log_maxage: u32,
    /// How many old audit logs are kept; 0 for all.
    #[arg(long, value_name = "COUNT", default_value_t = 100, requires = "audit_log_path")]
    audit_log_maxbackup: usize,
    /// The size after which an audit log is put aside, in megabytes.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100, requires = "audit_log_path")]
    audit_log_maxsize: u64,
    /// What happens when an event can't be written: `blocking` goes on and says so in the log, `blocking-strict` refuses the request.
    /// Events are always written before the answer goes out.
    #[arg(long, value_name = "MODE", default_value = "blocking", value_parser = ["blocking", "blocking-strict"], requires = "audit_log_path")]
    audit_log_mode: String,
    /// The form of the audit log: `json`, there is no other.
    #[arg(long, value_name = "FORMAT", default_value = "json", value_parser = ["json"], requires = "audit_log_path")]
    audit_log_format: String,
}

/// What the flags come to.
#[derive(Debug, Default)]
pub(crate) struct ServerSettings {
    /// Certificates and keys that were made elsewhere.
    pub(crate) provided: ProvidedFiles,
    /// The issuer of ServiceAccount tokens, if it isn't the usual one.
    pub(crate) issuer: Option<String>,
    /// Where Services get their addresses from.
    pub(crate) services: ServiceRange,
    /// The address that clients are told.
    pub(crate) advertised: Option<std::net::IpAddr>,
    /// Rules of admission that are left out.
    pub(crate) left_out_plugins: Vec<String>,
    /// The audit policy and where events go.
    pub(crate) audit: Option<(PathBuf, LogConfig)>,
}

impl Flags {
    /// Reads the flags together.
    pub(crate) fn read_settings(&self) -> Result<ServerSettings, Failure> {
        for mode in &self.authorization_mode {
            match mode.as_str() {
                "RBAC" => {}
                "Node" => {
                    output::print_note("--authorization-mode: there are no nodes here, so Node adds no rights to RBAC")
                }
                other => {
                    return Err(Failure::usage(format!("--authorization-mode: {other} is not there"))
                        .hint("--authorization-mode=RBAC"));
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
            return Err(Failure::usage(
                "--allow-privileged=false: nothing here keeps a pod from asking to be privileged",
            )
            .hint("--allow-privileged=true, or leave the flag out"));
        }
        if let Some(address) = self.advertise_address
            && (address.is_unspecified() || address.is_multicast())
        {
            return Err(
                Failure::usage(format!("--advertise-address: nobody can be reached at {address}"))
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

    /// The audit policy and its log, which are named together.
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

    /// Certificate and key that are named, or that lie in the folder of certificates.
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
    fn what_is_not_there_is_refused_by_its_name() {
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
