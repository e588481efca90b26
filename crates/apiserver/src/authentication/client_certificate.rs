//! Client certificates: verification of chains against the CA, and the user in a certificate. Certificates of other
//! CAs, expired ones and those for other purposes than clients are refused.
//!
//! The TLS layer asks for a certificate and accepts any whose key the client holds. This module verifies the
//! certificate for each request. So a foreign certificate is answered with 401, as in kube-apiserver, and not with a
//! failed handshake.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use ring::digest::{Context, SHA256, digest};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use tenure_auth::identity::{CREDENTIAL_ID, UserInfo};
use thiserror::Error;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The subject attribute with a user's UID (KEP-5234; 1.3.6.1.4.1.57683 is Kubernetes' own arc).
const UID_ATTRIBUTE: &str = "1.3.6.1.4.1.57683.2";
/// How many verified certificates are cached.
const REMEMBERED: usize = 1024;

/// The reason why client certificates can't be checked, or why one is invalid.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// The CA's certificate can't be used as a root of trust.
    #[error("the client CA's certificate can't be used")]
    Authority(#[source] rustls::Error),
    /// The verifier can't be built on that CA.
    #[error("no verifier of client certificates can be built")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
    /// The chain does not lead to the CA, or is not valid now.
    #[error("verifying certificate failed: {0}")]
    Chain(rustls::Error),
    /// The certificate can't be read.
    #[error("the certificate can't be read")]
    Parse,
    /// The certificate names more than one UID.
    #[error("expected at most one uid attribute in the certificate's subject, found {0}")]
    Uid(usize),
}

/// The user in a verified chain, and the period in which the chain is valid, in seconds since 1970.
#[derive(Debug, Clone)]
struct Remembered {
    user: Option<UserInfo>,
    not_before: i64,
    not_after: i64,
}

/// Verifies client certificates against the trusted CAs, and caches the users of verified chains.
#[derive(Debug)]
pub struct ClientCertificates {
    verifier: Arc<dyn ClientCertVerifier>,
    verified: RwLock<HashMap<[u8; 32], Remembered>>,
}

impl ClientCertificates {
    /// Returns a verifier that trusts client certificates signed by one of `authorities` (DER).
    ///
    /// # Errors
    /// [`CertificateError`] if one of them can't be a root of trust.
    pub fn new(authorities: &[CertificateDer<'static>]) -> Result<Self, CertificateError> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority.clone()).map_err(CertificateError::Authority)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::new(rustls::crypto::ring::default_provider()),
        )
        .allow_unauthenticated()
        .build()
        .map_err(CertificateError::Verifier)?;
        Ok(Self {
            verifier,
            verified: RwLock::default(),
        })
    }

    /// Returns the verifier for the TLS layer, which asks for a certificate and accepts any whose key the client
    /// holds.
    #[must_use]
    pub fn tls_verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(AnyCertificate {
            inner: Arc::clone(&self.verifier),
        })
    }

    /// Returns the user in a chain (leaf first): common name, organizations as groups, UID. `None` if there is no
    /// certificate, or one without a common name.
    ///
    /// # Errors
    /// [`CertificateError`] if a certificate was sent and is invalid at `now`.
    pub fn identify(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<Option<UserInfo>, CertificateError> {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return Ok(None);
        };
        let whole = hash_chain(chain);
        let seconds = now.as_second();
        if let Some(known) = self.verified.read().get(&whole)
            && known.not_before <= seconds
            && seconds <= known.not_after
        {
            return Ok(known.user.clone());
        }
        let time = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()));
        self.verifier
            .verify_client_cert(leaf, intermediates, time)
            .map_err(CertificateError::Chain)?;
        let (_, certificate) = X509Certificate::from_der(leaf).map_err(|_| CertificateError::Parse)?;
        let user = user_of(&certificate, digest(&SHA256, leaf).as_ref())?;
        if let Some((not_before, not_after)) = shortest_validity(chain) {
            let known = Remembered {
                user: user.clone(),
                not_before,
                not_after,
            };
            let mut verified = self.verified.write();
            if verified.len() >= REMEMBERED {
                verified.clear();
            }
            verified.insert(whole, known);
        }
        Ok(user)
    }
}

/// Hashes a chain. The length of each certificate is included, so that different chains never have the same input.
fn hash_chain(chain: &[CertificateDer<'_>]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for certificate in chain {
        context.update(&certificate.len().to_be_bytes());
        context.update(certificate);
    }
    let mut hash = [0_u8; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// Returns the period in which all certificates of a chain are valid, in seconds since 1970. A verified chain is
/// valid for at least this period. `None` if one is unreadable, which is possible only for a certificate that the
/// verification did not need.
fn shortest_validity(chain: &[CertificateDer<'_>]) -> Option<(i64, i64)> {
    let mut shortest = (i64::MIN, i64::MAX);
    for certificate in chain {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let validity = certificate.validity();
        shortest.0 = shortest.0.max(validity.not_before.timestamp());
        shortest.1 = shortest.1.min(validity.not_after.timestamp());
    }
    Some(shortest)
}

fn user_of(certificate: &X509Certificate<'_>, hash: &[u8]) -> Result<Option<UserInfo>, CertificateError> {
    let subject = certificate.subject();
    let Some(name) = subject
        .iter_common_name()
        .last()
        .and_then(|attribute| attribute.as_str().ok())
        .filter(|name| !name.is_empty())
    else {
        return Ok(None);
    };
    let groups = subject
        .iter_organization()
        .filter_map(|attribute| attribute.as_str().ok())
        .map(str::to_owned)
        .collect();
    let uids: Vec<&str> = subject
        .iter_attributes()
        .filter(|attribute| attribute.attr_type().to_id_string() == UID_ATTRIBUTE)
        .filter_map(|attribute| attribute.as_str().ok())
        .collect();
    if uids.len() > 1 {
        return Err(CertificateError::Uid(uids.len()));
    }
    let mut user = UserInfo {
        name: name.to_owned(),
        uid: uids.first().copied().unwrap_or_default().to_owned(),
        groups,
        ..UserInfo::default()
    };
    user.extra.insert(
        CREDENTIAL_ID.to_owned(),
        vec![format!("X509SHA256={}", hex::encode(hash))],
    );
    Ok(Some(user))
}

/// Accepts any certificate in the handshake, but only from a client that holds its key.
#[derive(Debug)]
struct AnyCertificate {
    inner: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for AnyCertificate {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
        date_time_ymd,
    };

    use super::*;

    fn params(name: &str, last_day: u8) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 1, last_day);
        params
    }

    fn authority(name: &str, last_day: u8) -> CertificateParams {
        let mut params = params(name, last_day);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    fn client(last_day: u8) -> CertificateParams {
        let mut params = params("jane", last_day);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params
    }

    fn day(day: i64) -> Timestamp {
        let first: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        first + (24 * (day - 1)).hours()
    }

    /// A chain is cached until its first certificate ends. Clients with OpenSSL also send the CA's own certificate,
    /// and some send an intermediate one.
    #[test]
    fn a_chain_is_remembered_until_its_first_certificate_ends() {
        let root = CertifiedIssuer::self_signed(authority("root", 30), KeyPair::generate().unwrap()).unwrap();
        let middle = CertifiedIssuer::signed_by(authority("middle", 10), KeyPair::generate().unwrap(), &root).unwrap();
        let of_root = client(20).signed_by(&KeyPair::generate().unwrap(), &root).unwrap();
        let of_middle = client(20).signed_by(&KeyPair::generate().unwrap(), &middle).unwrap();
        let certificates = ClientCertificates::new(&[root.der().clone()]).unwrap();
        for chain in [
            vec![of_root.der().clone()],
            vec![of_root.der().clone(), root.der().clone()],
            vec![of_middle.der().clone(), middle.der().clone()],
        ] {
            let before = certificates.verified.read().len();
            for _ in 0..3 {
                let user = certificates.identify(&chain, day(2)).unwrap().unwrap();
                assert_eq!(user.name, "jane");
            }
            assert_eq!(certificates.verified.read().len(), before + 1, "each chain once");
            assert!(certificates.identify(&chain, day(25)).is_err());
        }
        let through_middle = [of_middle.der().clone(), middle.der().clone()];
        assert!(certificates.identify(&through_middle, day(9)).is_ok());
        assert!(certificates.identify(&through_middle, day(12)).is_err());
        // The cache does not confuse two chains.
        assert!(certificates.identify(&[of_middle.der().clone()], day(2)).is_err());
        let glued = CertificateDer::from([of_root.der().as_ref(), root.der().as_ref()].concat());
        assert!(certificates.identify(&[glued], day(2)).is_err());
    }
}
