//! The trust of a server of its own: a CA, the serving certificate, the admin's client certificate, the key for
//! ServiceAccount tokens, and the admin's kubeconfig. All files are in one directory, readable only for the owner. An
//! unreadable file is an error that names the file, and the effect of deleting it.

mod files;
mod issue;
mod provided;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use rcgen::{Issuer, KeyPair, PublicKeyData as _};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use thiserror::Error;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::authentication::{CertificateError, ClientCertificates, KeyError, SigningKey};
use files::{private_directory, read, write_atomically};
use issue::Purpose;
use provided::Provided;
pub use provided::ProvidedFiles;

/// The reason why the server's certificates can't be used or created.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// A file or folder can't be read or written.
    #[error("cannot access {}", .path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A generated file does not hold the expected content.
    #[error("{} does not hold a valid {what}: {why}; put the right file back, or delete it to get a new one{loss}", .path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The expected content.
        what: &'static str,
        /// The fault.
        why: String,
        /// The loss if the file is replaced; empty for none.
        loss: &'static str,
    },
    /// A provided file does not hold the expected content.
    #[error("{} does not hold a valid {what}: {why}", .path.display())]
    Provided {
        /// The file.
        path: PathBuf,
        /// The expected content.
        what: &'static str,
        /// The fault.
        why: String,
    },
    /// The CA's certificate exists and its key is missing, or they don't belong together.
    #[error("{} and {} do not belong together; put the right files back, or delete both to get a new CA, which every kubeconfig handed out so far will not trust", .certificate.display(), .key.display())]
    Mismatch {
        /// The CA's certificate.
        certificate: PathBuf,
        /// The CA's key.
        key: PathBuf,
    },
    /// A certificate can't be made.
    #[error("cannot issue a certificate")]
    Issue(#[source] rcgen::Error),
    /// TLS can't be set up with the certificates.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    /// The key for ServiceAccount tokens can't be used.
    #[error("cannot use the key for ServiceAccount tokens")]
    SigningKey(#[source] KeyError),
    /// The CA can't be used to check client certificates.
    #[error("cannot check client certificates")]
    Clients(#[source] CertificateError),
}

const NEW_AUTHORITY: &str = "; every kubeconfig handed out so far will not trust a new CA";
const NEW_SIGNING_KEY: &str = "; every ServiceAccount token handed out so far will be refused";

/// The server's CA, the certificates that it signs, and the key for ServiceAccount tokens. `Debug` shows the folder
/// only.
pub struct Authority {
    directory: PathBuf,
    names: Vec<String>,
    ca_pem: String,
    ca_der: CertificateDer<'static>,
    ca_key: KeyPair,
    admin_key: KeyPair,
    server_key: KeyPair,
    admin_pem: ArcSwap<String>,
    server: Arc<Serving>,
    signing_key: Vec<u8>,
    provided: Provided,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Authority")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

/// Returns the names of a server on this machine: `localhost`, both loopback addresses, and the names by which Pods
/// call the API server.
#[must_use]
pub fn loopback_names() -> Vec<String> {
    [
        "localhost",
        "127.0.0.1",
        "::1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    .map(str::to_owned)
    .to_vec()
}

impl Authority {
    /// Opens the directory. Creates missing files, and replaces certificates that end within 30 days of `now` or are
    /// for other names than `names` (DNS names and addresses of this server).
    ///
    /// # Errors
    /// [`AuthorityError`], which names the file.
    pub fn open(directory: &Path, names: &[String], now: Timestamp) -> Result<Self, AuthorityError> {
        private_directory(directory).map_err(|source| AuthorityError::File {
            path: directory.to_owned(),
            source,
        })?;
        let ca_crt = directory.join("ca.crt");
        let ca_key_path = directory.join("ca.key");
        let stored_ca = read_file(&ca_crt)?;
        let ca_key = match (&stored_ca, read_file(&ca_key_path)?) {
            (Some(_), None) => {
                return Err(AuthorityError::Mismatch {
                    certificate: ca_crt,
                    key: ca_key_path,
                });
            }
            (_, stored) => key_pair(&ca_key_path, stored, NEW_AUTHORITY)?,
        };
        let ca_pem = match stored_ca {
            Some(pem) if is_still_valid(&ca_crt, &pem, NEW_AUTHORITY, now)? => pem,
            _ => {
                let pem = issue::issue_authority(&ca_key, now).map_err(AuthorityError::Issue)?;
                write(&ca_crt, pem.as_bytes(), 0o644)?;
                pem
            }
        };
        let ca_der = decode_certificate(&ca_crt, &ca_pem, NEW_AUTHORITY)?;
        if !belongs_to_key(&ca_crt, &ca_der, &ca_key, NEW_AUTHORITY)? {
            return Err(AuthorityError::Mismatch {
                certificate: ca_crt,
                key: ca_key_path,
            });
        }
        let leaf_key = |name: &str| {
            let path = directory.join(name);
            let stored = read_file(&path)?;
            key_pair(&path, stored, "")
        };
        let admin_key = leaf_key("admin.key")?;
        let server_key = leaf_key("server.key")?;
        let signing_path = directory.join("service-account.key");
        let signing_stored = read_file(&signing_path)?;
        let signing_pair = key_pair(&signing_path, signing_stored, NEW_SIGNING_KEY)?;
        let signing_key = signing_pair.serialized_der().to_vec();
        SigningKey::from_pkcs8(&signing_key).map_err(|error| AuthorityError::Broken {
            path: signing_path,
            what: "ECDSA P-256 key",
            why: error.to_string(),
            loss: NEW_SIGNING_KEY,
        })?;

        let authority = Self {
            directory: directory.to_owned(),
            names: names.to_vec(),
            ca_pem,
            ca_der,
            ca_key,
            admin_key,
            server_key,
            admin_pem: ArcSwap::default(),
            server: Arc::default(),
            signing_key,
            provided: Provided::default(),
        };
        authority.renew(now)?;
        Ok(authority)
    }

    /// Uses the content of these files instead of the authority's own. Files are read once, so a renewed file needs a
    /// restart.
    ///
    /// # Errors
    /// [`AuthorityError`], which names the file.
    pub fn with_provided_files(mut self, files: &ProvidedFiles) -> Result<Self, AuthorityError> {
        self.provided = files.read()?;
        if let Some(serving) = &self.provided.serving {
            self.server.current.store(Some(Arc::clone(serving)));
        }
        Ok(self)
    }

    /// Replaces the server's and the admin's certificates if they are due. Existing connections are not disturbed.
    /// Meant for one call a day. Returns whether anything was replaced.
    ///
    /// # Errors
    /// [`AuthorityError`], which names the file; the old certificates stay in use.
    pub fn renew(&self, now: Timestamp) -> Result<bool, AuthorityError> {
        let (server_pem, new_server) = self.renew_leaf(Purpose::Serving, "server.crt", &self.server_key, now)?;
        let (admin_pem, new_admin) = self.renew_leaf(Purpose::Admin, "admin.crt", &self.admin_key, now)?;
        let path = self.directory.join("server.crt");
        let chain = vec![decode_certificate(&path, &server_pem, "")?];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.server_key.serialized_der().to_vec()));
        let certified = CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())
            .map_err(AuthorityError::Tls)?;
        if self.provided.serving.is_none() {
            self.server.current.store(Some(Arc::new(certified)));
        }
        self.admin_pem.store(Arc::new(admin_pem));
        Ok(new_server || new_admin)
    }

    fn renew_leaf(
        &self,
        purpose: Purpose,
        file: &str,
        key: &KeyPair,
        now: Timestamp,
    ) -> Result<(String, bool), AuthorityError> {
        let path = self.directory.join(file);
        if let Some(pem) = read_file(&path)?
            && is_still_valid(&path, &pem, "", now)?
        {
            let der = decode_certificate(&path, &pem, "")?;
            let good = belongs_to_key(&path, &der, key, "")?
                && self.has_signed(&path, &der)?
                && (purpose == Purpose::Admin || names_of(&path, &der)? == sort_names(&self.names));
            if good {
                return Ok((pem, false));
            }
        }
        let issuer_key = KeyPair::try_from(self.ca_key.serialized_der()).map_err(AuthorityError::Issue)?;
        let issuer = Issuer::from_ca_cert_der(&self.ca_der, issuer_key).map_err(AuthorityError::Issue)?;
        let pem = issue::issue_leaf(purpose, &self.names, key, &issuer, now).map_err(AuthorityError::Issue)?;
        write(&path, pem.as_bytes(), 0o644)?;
        Ok((pem, true))
    }

    /// Checks whether this CA signed the certificate.
    fn has_signed(&self, path: &Path, der: &CertificateDer<'_>) -> Result<bool, AuthorityError> {
        let leaf = parse_certificates(path, der, "")?;
        let ca_path = self.directory.join("ca.crt");
        let ca = parse_certificates(&ca_path, &self.ca_der, NEW_AUTHORITY)?;
        Ok(leaf.verify_signature(Some(ca.public_key())).is_ok())
    }

    /// Returns the CA's certificate in PEM, for kubeconfigs and `kube-root-ca.crt`.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns the verifier for client certificates that this CA has signed.
    ///
    /// # Errors
    /// [`AuthorityError::Clients`] if the CA's certificate can't be a root of trust.
    pub fn client_certificates(&self) -> Result<ClientCertificates, AuthorityError> {
        let own = std::slice::from_ref(&self.ca_der);
        let authorities = self.provided.client_authorities.as_deref().unwrap_or(own);
        ClientCertificates::new(authorities).map_err(AuthorityError::Clients)
    }

    /// Returns the key that signs ServiceAccount tokens.
    ///
    /// # Errors
    /// [`AuthorityError::SigningKey`] if it can't be used.
    pub fn signing_key(&self) -> Result<SigningKey, AuthorityError> {
        let key = self.provided.signing_key.as_ref().unwrap_or(&self.signing_key);
        SigningKey::from_pkcs8(key).map_err(AuthorityError::SigningKey)
    }

    /// Returns the TLS configuration: HTTP/2 and 1.1, always with the current certificate, with a request for a
    /// client certificate.
    ///
    /// # Errors
    /// [`AuthorityError::Tls`] if rustls refuses the configuration.
    pub fn server_config(&self, clients: &ClientCertificates) -> Result<ServerConfig, AuthorityError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(AuthorityError::Tls)?
            .with_client_cert_verifier(clients.tls_verifier())
            .with_cert_resolver(Arc::clone(&self.server) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Returns the admin's kubeconfig for the server at `url`, with embedded certificates. `extensions` are the cluster's,
    /// as items of the field `extensions` of a kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self, url: &str, extensions: &[Value]) -> String {
        let ca = STANDARD.encode(&self.ca_pem);
        let certificate = STANDARD.encode(self.admin_pem.load().as_bytes());
        let key = STANDARD.encode(self.admin_key.serialize_pem());
        // Every JSON text is also YAML.
        let extensions = match extensions {
            [] => String::new(),
            some => format!("\x20   extensions: {}\n", Value::from(some.to_vec())),
        };
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: tenure\n\
             \x20 cluster:\n\
             \x20   server: {url}\n\
             \x20   certificate-authority-data: {ca}\n\
             {extensions}\
             contexts:\n\
             - name: tenure\n\
             \x20 context:\n\
             \x20   cluster: tenure\n\
             \x20   user: admin\n\
             current-context: tenure\n\
             users:\n\
             - name: admin\n\
             \x20 user:\n\
             \x20   client-certificate-data: {certificate}\n\
             \x20   client-key-data: {key}\n"
        )
    }

    /// Writes the admin's kubeconfig to `path`, atomically, for the owner only.
    ///
    /// # Errors
    /// [`AuthorityError::File`] if it can't be written.
    pub fn write_kubeconfig(&self, path: &Path, url: &str, extensions: &[Value]) -> Result<(), AuthorityError> {
        write(path, self.kubeconfig(url, extensions).as_bytes(), 0o600)
    }
}

/// Gives the TLS layer the current serving certificate, which a renewal replaces.
#[derive(Debug, Default)]
struct Serving {
    current: arc_swap::ArcSwapOption<CertifiedKey>,
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

fn read_file(path: &Path) -> Result<Option<String>, AuthorityError> {
    read(path).map_err(|source| AuthorityError::File {
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), AuthorityError> {
    write_atomically(path, content, mode).map_err(|source| AuthorityError::File {
        path: path.to_owned(),
        source,
    })
}

/// Returns the key in `stored`, or a new one that is written to `path`.
fn key_pair(path: &Path, stored: Option<String>, loss: &'static str) -> Result<KeyPair, AuthorityError> {
    if let Some(pem) = stored {
        return KeyPair::from_pem(&pem).map_err(|error| AuthorityError::Broken {
            path: path.to_owned(),
            what: "private key",
            why: error.to_string(),
            loss,
        });
    }
    let key = KeyPair::generate().map_err(AuthorityError::Issue)?;
    write(path, key.serialize_pem().as_bytes(), 0o600)?;
    Ok(key)
}

fn decode_certificate(path: &Path, pem: &str, loss: &'static str) -> Result<CertificateDer<'static>, AuthorityError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| AuthorityError::Broken {
        path: path.to_owned(),
        what: "certificate",
        why: error.to_string(),
        loss,
    })
}

fn parse_certificates<'a>(
    path: &Path,
    der: &'a CertificateDer<'_>,
    loss: &'static str,
) -> Result<X509Certificate<'a>, AuthorityError> {
    X509Certificate::from_der(der)
        .map(|(_, certificate)| certificate)
        .map_err(|error| AuthorityError::Broken {
            path: path.to_owned(),
            what: "certificate",
            why: error.to_string(),
            loss,
        })
}

/// Checks whether the certificate is valid now and for the next 30 days.
fn is_still_valid(path: &Path, pem: &str, loss: &'static str, now: Timestamp) -> Result<bool, AuthorityError> {
    let der = decode_certificate(path, pem, loss)?;
    let certificate = parse_certificates(path, &der, loss)?;
    let due = now
        .checked_add(SignedDuration::from_hours(24 * issue::RENEW_DAYS))
        .unwrap_or(now)
        .as_second();
    let validity = certificate.validity();
    Ok(validity.not_before.timestamp() <= now.as_second() && due < validity.not_after.timestamp())
}

/// Checks whether the certificate is for this key.
fn belongs_to_key(
    path: &Path,
    der: &CertificateDer<'_>,
    key: &KeyPair,
    loss: &'static str,
) -> Result<bool, AuthorityError> {
    let certificate = parse_certificates(path, der, loss)?;
    Ok(certificate.public_key().subject_public_key.data.as_ref() == key.der_bytes())
}

fn sort_names(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    names
}

/// Returns the names in the certificate, sorted.
fn names_of(path: &Path, der: &CertificateDer<'_>) -> Result<Vec<String>, AuthorityError> {
    let certificate = parse_certificates(path, der, "")?;
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return Ok(Vec::new());
    };
    let names: Vec<String> = extension
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => format_address(bytes),
            _ => None,
        })
        .collect();
    Ok(sort_names(&names))
}

fn format_address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    <[u8; 16]>::try_from(bytes)
        .ok()
        .map(|sixteen| std::net::Ipv6Addr::from(sixteen).to_string())
}
