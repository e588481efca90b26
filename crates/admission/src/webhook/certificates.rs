//! The authorities and the certificate of a listener, in the form of a Secret. Messages about an unreadable Secret contain no key.

use std::fmt::Write as _;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tenure_planner::certificate_renewal::{ServingCertificate, Snapshot, Validity};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The greatest number of authorities that are read. Two exist while one replaces the other.
const AUTHORITIES: usize = 8;

/// The reason why no certificate is available.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The Secret has unexpected contents.
    #[error("its {field} is {problem}")]
    Unread {
        /// The key in the Secret's data.
        field: &'static str,
        /// The problem with its value.
        problem: &'static str,
    },
    /// The certificate could not be made.
    #[error("a certificate can't be made: {0}")]
    Made(#[from] rcgen::Error),
    /// The certificate could not be used for TLS.
    #[error("the certificate can't be shown: {0}")]
    Shown(#[from] rustls::Error),
}

/// The authorities and the certificate that the Secret stores.
#[derive(Clone, Default)]
pub(super) struct StoredCertificate {
    /// The authorities, oldest first.
    authorities: Vec<CertificateDer<'static>>,
    /// The key of the newest authority, in PEM.
    authority_key: String,
    serving: Option<(CertificateDer<'static>, String)>,
}

impl StoredCertificate {
    /// Reads a Secret.
    pub(super) fn read(secret: &Value) -> Result<Self, CertificateError> {
        let unread = |field, problem| CertificateError::Unread { field, problem };
        let text = |key: &str, field: &'static str| {
            let encoded = secret
                .get("data")
                .and_then(|data| data.get(key))
                .and_then(Value::as_str);
            let encoded = encoded.ok_or_else(|| unread(field, "missing"))?;
            let decoded = STANDARD.decode(encoded).map_err(|_| unread(field, "no base64"))?;
            String::from_utf8(decoded).map_err(|_| unread(field, "no PEM"))
        };
        let bundle = text("ca.crt", "ca.crt")?;
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bundle.as_bytes()).collect();
        let mut authorities = authorities.map_err(|_| unread("ca.crt", "no PEM"))?;
        authorities.drain(..authorities.len().saturating_sub(AUTHORITIES));
        if authorities.is_empty() || authorities.iter().any(|one| read_validity(one).is_none()) {
            return Err(unread("ca.crt", "no certificate"));
        }
        let authority_key = text("ca.key", "ca.key")?;
        let key = KeyPair::from_pem(&authority_key).map_err(|_| unread("ca.key", "no private key"))?;
        let is_its = authorities.last().is_some_and(|newest| is_key_of(&key, newest));
        if !is_its {
            return Err(unread("ca.key", "not that of the last certificate in ca.crt"));
        }
        let certificate = text("tls.crt", "tls.crt")?;
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
        let certificate = certificate.map_err(|_| unread("tls.crt", "no certificate"))?;
        let key_text = text("tls.key", "tls.key")?;
        let key = KeyPair::from_pem(&key_text).map_err(|_| unread("tls.key", "no private key"))?;
        if !is_key_of(&key, &certificate) {
            return Err(unread("tls.key", "not that of the certificate in tls.crt"));
        }
        Ok(Self {
            authorities,
            authority_key,
            serving: Some((certificate, key_text)),
        })
    }

    /// Returns the data of a Secret.
    pub(super) fn write(&self) -> Value {
        let (certificate, key) = match &self.serving {
            Some((certificate, key)) => (write_pem(certificate), key.as_str()),
            None => (String::new(), ""),
        };
        json!({
            "ca.crt": STANDARD.encode(self.bundle()), "ca.key": STANDARD.encode(&self.authority_key),
            "tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)
        })
    }

    /// Returns the authorities, in PEM.
    pub(super) fn bundle(&self) -> String {
        self.authorities.iter().map(write_pem).collect()
    }

    /// Returns the facts from which `certificate_renewal` decides about a new authority or certificate.
    pub(super) fn describe(&self, names: &[String], is_published: bool) -> Snapshot {
        let authorities = self.authorities.iter().filter_map(read_validity).collect();
        let serving = self.serving.as_ref().and_then(|(certificate, _)| {
            let signed = self.authorities.iter().rposition(|one| has_signed(one, certificate));
            Some(ServingCertificate {
                authority: signed,
                validity: read_validity(certificate)?,
                is_for_names: is_for(certificate, names),
            })
        });
        Snapshot {
            authorities,
            serving,
            is_published,
        }
    }

    /// Adds a new authority to the existing ones.
    pub(super) fn make_authority(&mut self, name: &str, now: Timestamp) -> Result<(), CertificateError> {
        let key = KeyPair::generate()?;
        let mut params = parameters(&[], Validity::of_authority(now))?;
        // A client would take two authorities with one name for one authority.
        let name = format!("{name}-authority-{}", now.as_millisecond());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?;
        self.authorities.push(certificate.der().clone());
        let over = self.authorities.len().saturating_sub(AUTHORITIES);
        self.authorities.drain(..over);
        self.authority_key = key.serialize_pem();
        Ok(())
    }

    /// Makes a certificate, signed by the newest authority.
    pub(super) fn make_certificate(
        &mut self,
        (name, names): (&str, &[String]),
        now: Timestamp,
    ) -> Result<(), CertificateError> {
        let authority = self.authorities.last().ok_or(CertificateError::Unread {
            field: "ca.crt",
            problem: "missing",
        })?;
        let issuer = Issuer::from_ca_cert_der(authority, KeyPair::from_pem(&self.authority_key)?)?;
        let key = KeyPair::generate()?;
        let mut params = parameters(names, Validity::of_serving(now))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &issuer)?;
        self.serving = Some((certificate.der().clone(), key.serialize_pem()));
        Ok(())
    }

    /// Removes the oldest authorities, so that clients no longer trust them.
    pub(super) fn forget(&mut self, count: usize) {
        self.authorities.drain(..count.min(self.authorities.len()));
    }

    /// Returns the certificate and its key.
    pub(super) fn shown(&self) -> Option<(CertificateDer<'static>, PrivateKeyDer<'static>)> {
        let (certificate, key) = self.serving.as_ref()?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok()?;
        Some((certificate.clone(), key))
    }
}

fn parameters(names: &[String], validity: Validity) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    params.not_before = SystemTime::from(validity.from).into();
    params.not_after = SystemTime::from(validity.until).into();
    Ok(params)
}

fn write_pem(certificate: &CertificateDer<'_>) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let encoded = STANDARD.encode(certificate);
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        let _into_a_text = writeln!(text, "{line}");
        rest = after;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

/// Returns the end of the first certificate in a PEM text, if the text has one.
#[must_use]
pub fn find_end(pem: &[u8]) -> Option<Timestamp> {
    let certificate = CertificateDer::from_pem_slice(pem).ok()?;
    Some(read_validity(&certificate)?.until)
}

fn read_validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let validity = certificate.validity();
    let moment = |seconds: i64| Timestamp::from_second(seconds).ok();
    Some(Validity {
        from: moment(validity.not_before.timestamp())?,
        until: moment(validity.not_after.timestamp())?,
    })
}

fn is_key_of(key: &KeyPair, certificate: &CertificateDer<'_>) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    use rcgen::PublicKeyData as _;
    key.der_bytes() == certificate.public_key().subject_public_key.data.as_ref()
}

fn has_signed(authority: &CertificateDer<'_>, certificate: &CertificateDer<'_>) -> bool {
    let (Ok((_, authority)), Ok((_, certificate))) = (
        X509Certificate::from_der(authority),
        X509Certificate::from_der(certificate),
    ) else {
        return false;
    };
    certificate.verify_signature(Some(authority.public_key())).is_ok()
}

/// Checks whether a certificate covers all of these names and addresses.
fn is_for(certificate: &CertificateDer<'_>, names: &[String]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else {
        return names.is_empty();
    };
    let has = |name: &String| {
        let address: Option<Vec<u8>> = name.parse().ok().map(|address: std::net::IpAddr| match address {
            std::net::IpAddr::V4(address) => address.octets().to_vec(),
            std::net::IpAddr::V6(address) => address.octets().to_vec(),
        });
        alternatives
            .value
            .general_names
            .iter()
            .any(|one| match (one, &address) {
                (GeneralName::IPAddress(found), Some(address)) => *found == address.as_slice(),
                (GeneralName::DNSName(found), None) => found == name,
                _ => false,
            })
    };
    names.iter().all(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["tenure-webhook.tenure-system.svc".to_owned(), "127.0.0.1".to_owned()].to_vec()
    }

    fn made(now: Timestamp) -> StoredCertificate {
        let mut kept = StoredCertificate::default();
        kept.make_authority("tenure-webhook", now).unwrap();
        kept.make_certificate(("tenure-webhook", &names()), now).unwrap();
        kept
    }

    #[test]
    fn stored_certificate_is_read_back_unchanged() {
        let now = Timestamp::from_second(1_790_000_000).unwrap();
        let mut kept = made(now);
        let described = kept.describe(&names(), true);
        assert_eq!(described.authorities, [Validity::of_authority(now)]);
        let serving = described.serving.unwrap();
        assert_eq!(
            (serving.authority, serving.validity),
            (Some(0), Validity::of_serving(now))
        );
        assert!(serving.is_for_names);
        assert!(
            !kept
                .describe(&["other.svc".to_owned()], true)
                .serving
                .unwrap()
                .is_for_names
        );
        // A new authority is added and signs, and the old one is removed.
        kept.make_authority("tenure-webhook", now).unwrap();
        assert_eq!(kept.describe(&names(), true).serving.unwrap().authority, Some(0));
        kept.make_certificate(("tenure-webhook", &names()), now).unwrap();
        let secret = json!({ "data": kept.write() });
        let mut again = StoredCertificate::read(&secret).unwrap();
        assert_eq!(again.describe(&names(), true), kept.describe(&names(), true));
        assert_eq!(again.describe(&names(), true).serving.unwrap().authority, Some(1));
        again.forget(1);
        let again = StoredCertificate::read(&json!({ "data": again.write() })).unwrap();
        assert_eq!(again.describe(&names(), true).serving.unwrap().authority, Some(0));
        assert!(again.shown().is_some());
    }

    #[test]
    fn an_error_about_a_certificate_contains_no_key() {
        let now = Timestamp::from_second(1_790_000_000).unwrap();
        let (one, other) = (made(now), made(now));
        let good = one.write();
        for (field, value, problem) in [
            ("ca.crt", json!(7), "its ca.crt is missing"),
            ("ca.crt", json!("%"), "its ca.crt is no base64"),
            ("ca.crt", json!(STANDARD.encode([0xff, 0xfe])), "its ca.crt is no PEM"),
            ("ca.crt", json!(""), "its ca.crt is no certificate"),
            (
                "ca.key",
                json!(STANDARD.encode("hunter2")),
                "its ca.key is no private key",
            ),
            (
                "ca.key",
                other.write()["ca.key"].clone(),
                "its ca.key is not that of the last",
            ),
            ("tls.crt", json!(""), "its tls.crt is no certificate"),
            (
                "tls.key",
                other.write()["tls.key"].clone(),
                "its tls.key is not that of the certificate",
            ),
        ] {
            let mut data = good.clone();
            data[field] = value;
            let error = StoredCertificate::read(&json!({ "data": data }))
                .err()
                .unwrap()
                .to_string();
            assert!(
                error.contains(problem) && !error.contains("hunter2"),
                "{field}: {error}"
            );
        }
        assert!(StoredCertificate::read(&json!({})).is_err());
    }
}
