//! Certificates and keys from another source, named on the command line: read once, checked, and used in place of
//! generated ones. An unusable file is an error that names the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{AuthorityError, files};
use crate::authentication::SigningKey;

/// The certificates and keys that an administrator provides. The server generates each missing one.
#[derive(Debug, Clone, Default)]
pub struct ProvidedFiles {
    /// The serving certificate chain and its key, in PEM.
    pub serving: Option<(PathBuf, PathBuf)>,
    /// The CAs that sign client certificates, in PEM.
    pub client_authorities: Option<PathBuf>,
    /// The key that signs ServiceAccount tokens: ECDSA P-256, PKCS#8 in PEM.
    pub signing_key: Option<PathBuf>,
    /// Keys or certificates that verify ServiceAccount tokens; each must belong to the signing key.
    pub verification_keys: Vec<PathBuf>,
}

/// The checked content of the files in [`ProvidedFiles`].
#[derive(Default)]
pub(super) struct Provided {
    pub(super) serving: Option<Arc<CertifiedKey>>,
    pub(super) client_authorities: Option<Vec<CertificateDer<'static>>>,
    pub(super) signing_key: Option<Vec<u8>>,
}

impl ProvidedFiles {
    pub(super) fn read(&self) -> Result<Provided, AuthorityError> {
        let provided = Provided {
            serving: self.serving.as_ref().map(read_serving_key).transpose()?,
            client_authorities: self.client_authorities.as_deref().map(read_authorities).transpose()?,
            signing_key: self.signing_key.as_deref().map(signing_key).transpose()?,
        };
        for path in &self.verification_keys {
            let key = provided.signing_key.as_deref().map(SigningKey::from_pkcs8);
            let Some(Ok(key)) = key else {
                return Err(make_error(
                    path,
                    "verification key",
                    "there is no signing key beside it",
                ));
            };
            if !read_public_keys(path)?.contains(&key.public_key_info()) {
                return Err(make_error(
                    path,
                    "verification key",
                    "tokens are verified with the public part of the signing key only, which is not in this file",
                ));
            }
        }
        Ok(provided)
    }
}

fn read_text(path: &Path) -> Result<String, AuthorityError> {
    match files::read(path) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(AuthorityError::File {
            path: path.to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        }),
        Err(source) => Err(AuthorityError::File {
            path: path.to_owned(),
            source,
        }),
    }
}

fn make_error(path: &Path, what: &'static str, why: &str) -> AuthorityError {
    AuthorityError::Provided {
        path: path.to_owned(),
        what,
        why: why.to_owned(),
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
    let text = read_text(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(make_error(path, "certificate", "there is none in it")),
        Err(error) => Err(make_error(path, "certificate", &error.to_string())),
    }
}

fn read_serving_key((certificate, key): &(PathBuf, PathBuf)) -> Result<Arc<CertifiedKey>, AuthorityError> {
    let chain = read_certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_slice(read_text(key)?.as_bytes())
        .map_err(|error| make_error(key, "private key", &error.to_string()))?;
    CertifiedKey::from_der(chain, private, &rustls::crypto::ring::default_provider())
        .map(Arc::new)
        .map_err(|error| make_error(key, "private key of the certificate beside it", &error.to_string()))
}

fn read_authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
    read_certificates(path)
}

fn signing_key(path: &Path) -> Result<Vec<u8>, AuthorityError> {
    let what = "ECDSA P-256 key in PKCS#8 form";
    let key = PrivateKeyDer::from_pem_slice(read_text(path)?.as_bytes())
        .map_err(|error| make_error(path, what, &error.to_string()))?;
    let PrivateKeyDer::Pkcs8(key) = key else {
        return Err(make_error(path, what, "it is a key of another form"));
    };
    let der = key.secret_pkcs8_der().to_vec();
    SigningKey::from_pkcs8(&der).map_err(|error| make_error(path, what, &error.to_string()))?;
    Ok(der)
}

/// Returns the public keys in a file: public keys, keys of certificates, or that of a private key.
fn read_public_keys(path: &Path) -> Result<Vec<Vec<u8>>, AuthorityError> {
    let text = read_text(path)?;
    let bytes = text.as_bytes();
    let mut found: Vec<Vec<u8>> = SubjectPublicKeyInfoDer::pem_slice_iter(bytes)
        .filter_map(Result::ok)
        .map(|key| key.to_vec())
        .collect();
    for certificate in CertificateDer::pem_slice_iter(bytes).filter_map(Result::ok) {
        if let Ok((_, certificate)) = X509Certificate::from_der(&certificate) {
            found.push(certificate.public_key().raw.to_vec());
        }
    }
    if let Ok(PrivateKeyDer::Pkcs8(key)) = PrivateKeyDer::from_pem_slice(bytes)
        && let Ok(key) = SigningKey::from_pkcs8(key.secret_pkcs8_der())
    {
        found.push(key.public_key_info());
    }
    if found.is_empty() {
        return Err(make_error(
            path,
            "verification key",
            "there is no public key and no certificate in it",
        ));
    }
    Ok(found)
}
