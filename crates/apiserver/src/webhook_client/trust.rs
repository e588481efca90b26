//! Trust by a webhook's CA bundle: certificates signed by its CAs and, as with Go's TLS, a server whose own
//! certificate is in the bundle. Operators' test suites rely on the latter. Every other server is refused.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Verifies the certificate of a webhook's server against one CA bundle.
#[derive(Debug)]
pub(super) struct BundleVerifier {
    by_authority: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl BundleVerifier {
    /// Returns a verifier that trusts certificates signed by `roots`, and those in `named`.
    pub(super) fn new(roots: RootCertStore, named: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { by_authority, named })
    }
}

/// Checks that the certificate is for this server, and valid at this time.
fn check_certificate(certificate: &CertificateDer<'_>, server: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    verify_server_name(&ParsedCertificate::try_from(certificate)?, server)?;
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if seconds < parsed.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if seconds > parsed.validity().not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.named.iter().any(|named| named == end_entity) {
            check_certificate(end_entity, server, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.by_authority
            .verify_server_cert(end_entity, intermediates, server, stapled, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn certificate(name: &str) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    /// A server certificate from the bundle is trusted only for its own name and within its validity.
    #[test]
    fn bundled_server_certificate_is_checked_for_name_and_time() {
        let mine = certificate("webhook.example");
        let mut roots = RootCertStore::empty();
        roots.add(mine.clone()).unwrap();
        let trust = BundleVerifier::new(roots, vec![mine.clone()]).unwrap();
        let check = |certificate: &CertificateDer<'_>, name: &'static str, seconds: u64| {
            let server = ServerName::try_from(name).unwrap();
            let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            trust.verify_server_cert(certificate, &[], &server, &[], now).is_ok()
        };
        let within = 1_780_000_000;
        assert!(check(&mine, "webhook.example", within));
        assert!(!check(&mine, "other.example", within));
        assert!(!check(&mine, "webhook.example", within + 400 * 24 * 3600));
        assert!(!check(&mine, "webhook.example", within - 400 * 24 * 3600));
        assert!(!check(&certificate("webhook.example"), "webhook.example", within));
    }
}
