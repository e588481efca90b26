//! The certificates, keys and kubeconfigs of a real control plane, as files that exist as long as a test.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

/// The paths of the certificates, keys and kubeconfigs of a real control plane.
pub(super) struct Credentials {
    pub(super) authority: PathBuf,
    pub(super) server_certificate: PathBuf,
    pub(super) server_key: PathBuf,
    /// The key that signs the tokens of ServiceAccounts.
    pub(super) token_key: PathBuf,
    /// The key that verifies them: the API server reads no public key out of a private one of this form.
    pub(super) token_public_key: PathBuf,
    /// The administrator's kubeconfig.
    pub(super) admin: PathBuf,
    /// The controller manager's kubeconfig.
    pub(super) controllers: PathBuf,
}

impl Credentials {
    /// Creates the files for a server on this port of the loopback address.
    pub(super) fn write(folder: &Path, port: u16) -> anyhow::Result<Self> {
        let file = |name: &str, content: &str| -> anyhow::Result<PathBuf> {
            let path = folder.join(name);
            std::fs::write(&path, content)?;
            Ok(path)
        };
        let authority_key = KeyPair::generate()?;
        let mut params = certificate_parameters("authority", None, &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority = params.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(params, authority_key);
        let sign = |mut params: CertificateParams, usage| -> anyhow::Result<(String, String)> {
            let key = KeyPair::generate()?;
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![usage];
            Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
        };
        let kubeconfig = |name: &str, organization: Option<&str>, user: &str| -> anyhow::Result<PathBuf> {
            let (certificate, key) = sign(
                certificate_parameters(user, organization, &[])?,
                ExtendedKeyUsagePurpose::ClientAuth,
            )?;
            let config = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "test",
                "clusters": [{"name": "test", "cluster": {
                    "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": STANDARD.encode(&authority),
                }}],
                "users": [{"name": "test", "user": {
                    "client-certificate-data": STANDARD.encode(certificate), "client-key-data": STANDARD.encode(key),
                }}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            });
            file(name, &config.to_string())
        };
        let names = ["localhost", "127.0.0.1", "10.96.0.1"];
        let token_key = KeyPair::generate()?;
        let (certificate, key) = sign(
            certificate_parameters("kube-apiserver", None, &names)?,
            ExtendedKeyUsagePurpose::ServerAuth,
        )?;
        Ok(Self {
            server_certificate: file("server.crt", &certificate)?,
            server_key: file("server.key", &key)?,
            token_key: file("tokens.key", &token_key.serialize_pem())?,
            token_public_key: file("tokens.pub", &token_key.public_key_pem())?,
            admin: kubeconfig("kubeconfig", Some("system:masters"), "admin")?,
            controllers: kubeconfig("controllers.kubeconfig", None, "system:kube-controller-manager")?,
            authority: file("authority.crt", &authority)?,
        })
    }
}

fn certificate_parameters(user: &str, organization: Option<&str>, names: &[&str]) -> anyhow::Result<CertificateParams> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    Ok(params)
}
