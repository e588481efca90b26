//! TLS of a source: the authorities of the system and the Secret, and the client certificate.
//!
//! ring is the only provider, passed explicitly, so that no code depends on a process-wide default. Verification can't be switched off.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::FetchError;
use crate::policy::Endpoint;
use crate::secret::TlsOptions;

/// Returns the certificate authorities that the system trusts.
pub(crate) fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        roots
    })
}

/// Builds the TLS connector of a source. With `with_client`, it sends the client certificate, if there is one.
pub(crate) fn make_connector(options: &TlsOptions, with_client: bool) -> Result<TlsConnector, FetchError> {
    let secret = |problem: String| FetchError::InvalidSecret { problem };
    let mut roots = system_roots().clone();
    if let Some(ca) = &options.ca {
        let mut count = 0_usize;
        for certificate in CertificateDer::pem_slice_iter(ca) {
            let certificate = certificate.map_err(|error| secret(format!("ca.crt is not PEM: {error}")))?;
            roots
                .add(certificate)
                .map_err(|error| secret(format!("ca.crt holds a bad certificate: {error}")))?;
            count += 1;
        }
        if count == 0 {
            return Err(secret("ca.crt holds no PEM certificate".to_owned()));
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| secret(error.to_string()))?
        .with_root_certificates(roots);
    let mut config = match &options.client {
        Some((certificate, key)) if with_client => {
            let chain = CertificateDer::pem_slice_iter(certificate)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| secret(format!("tls.crt is not PEM: {error}")))?;
            // The parser's error could quote the key, so it is left out.
            let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
                .map_err(|_| secret("tls.key is not a PEM private key".to_owned()))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|_| secret("tls.crt and tls.key do not belong together".to_owned()))?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Does the handshake, verifying the host of the URL.
pub(crate) async fn shake_hands<S>(
    connector: &TlsConnector,
    endpoint: &Endpoint,
    stream: S,
) -> Result<TlsStream<S>, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |problem: String| FetchError::Tls {
        host: endpoint.host.clone(),
        port: endpoint.port,
        problem,
    };
    let name = ServerName::try_from(endpoint.host.clone())
        .map_err(|_| failed("the host of the URL can't stand in a certificate".to_owned()))?;
    connector.connect(name, stream).await.map_err(|error| {
        let text = error.to_string();
        let advice = if text.contains("UnknownIssuer") || text.contains("BadSignature") {
            "; put the certificate of the server's authority into ca.crt of the Secret"
        } else if text.contains("CertificateRequired") || text.contains("HandshakeFailure") {
            "; the server may want a client certificate: tls.crt and tls.key of the Secret"
        } else {
            ""
        };
        failed(format!("{text}{advice}"))
    })
}
