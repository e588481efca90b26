//! What the server shows in a handshake, and whose certificates it takes there. Owns how the API server proves itself; refuses to know where
//! certificates come from.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tenure_apiserver::authentication::ClientCertificates;
use tenure_apiserver::listening::Caller;
use tokio_rustls::TlsAcceptor;

/// Whose certificates prove that the API server asks, if it can show one.
#[derive(Debug)]
pub struct ClientGate {
    /// The authorities.
    pub authorities: ClientCertificates,
    /// The names that count; with none, every name does.
    pub names: Vec<String>,
}

impl ClientGate {
    /// Whether somebody has proven to be the API server.
    pub(super) fn admits(&self, caller: &Caller) -> bool {
        let found = self.authorities.identify(&caller.certificates, jiff::Timestamp::now());
        let found = found.ok().flatten();
        found.is_some_and(|user| self.names.is_empty() || self.names.contains(&user.name))
    }
}

/// What takes connections, with this certificate (leaf first) and its key. With a gate, a certificate is asked for.
///
/// # Errors
/// When the key isn't the certificate's, or is of a kind that isn't known.
pub fn make_acceptor(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    gate: Option<&ClientGate>,
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
