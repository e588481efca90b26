//! An API server that shows webhooks a certificate, as a real one does by a file of its admission plugins, and a webhook that demands
//! the certificate.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::json;
use tenure_admission::webhook::ClientVerifier;
use tenure_apiserver::authentication::ClientCertificates;

use crate::door::Certified;

/// Returns text armor in base64, as in a kubeconfig.
fn encode(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    STANDARD.encode(format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n"))
}

/// Writes the file of the admission plugins. With it, the server shows this certificate to
/// webhooks.
pub(crate) fn write_plugins(folder: &Path, shown: &Certified) -> PathBuf {
    let [kubeconfig, plugins] = ["webhooks.json", "plugins.json"].map(|name| folder.join(name));
    let user = json!({
        "client-certificate-data": encode("CERTIFICATE", &shown.chain[0]),
        "client-key-data": encode("PRIVATE KEY", shown.key.secret_der()),
    });
    // For all addresses of webhooks.
    let users = json!({ "apiVersion": "v1", "kind": "Config", "users": [{ "name": "*", "user": user }] });
    std::fs::write(&kubeconfig, users.to_string()).unwrap();
    let plugin = |name: &str| {
        json!({ "name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": kubeconfig,
        }})
    };
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")],
    });
    std::fs::write(&plugins, configuration.to_string()).unwrap();
    plugins
}

pub(crate) fn gate_of(authority: &str) -> ClientVerifier {
    let authority = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
    ClientVerifier {
        authorities: ClientCertificates::new(&[authority]).unwrap(),
        names: vec!["kube-apiserver".to_owned()],
    }
}
