//! The certificate that the server shows in a handshake, and the client certificates that it accepts there as proof of the API server.
//! Another module supplies the certificates.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tenure_apiserver::authentication::ClientCertificates;
use tenure_apiserver::side_listeners::Caller;
use tokio_rustls::TlsAcceptor;

/// The client certificates that prove that the API server is the sender, if it can show one.
#[derive(Debug)]
pub struct ClientVerifier {
    /// The authorities of these certificates.
    pub authorities: ClientCertificates,
    /// The accepted names. An empty list accepts every name.
    pub names: Vec<String>,
}

impl ClientVerifier {
    /// Checks whether the caller is proven to be the API server.
    pub(super) fn admits(&self, caller: &Caller) -> bool {
        let found = self.authorities.identify(&caller.certificates, jiff::Timestamp::now());
        let found = found.ok().flatten();
        found.is_some_and(|user| self.names.is_empty() || self.names.contains(&user.name))
    }
}

/// Returns an acceptor for connections with this certificate (leaf first) and its key. With a gate, the acceptor
/// asks clients for a certificate.
///
/// # Errors
/// When the key doesn't match the certificate, or its type is unknown.
pub fn make_acceptor(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    gate: Option<&ClientVerifier>,
) -> Result<TlsAcceptor, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = match gate {
        Some(gate) => builder.with_client_cert_verifier(gate.authorities.tls_verifier()),
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(certificates, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
