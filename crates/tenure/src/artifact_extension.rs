//! The kubeconfig's entry for the server of artifacts: the extension `tenure.dev/artifacts` of a cluster.
//!
//! Commands show this server the credentials of the kubeconfig. So its address comes from the kubeconfig or from a flag, which are the user's own. It never comes from
//! the status of an object: an account that writes statuses would get the caller's token.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{Cluster, NamedExtension};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_planner::artifact_address::ArtifactBase;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The name of the extension.
pub(crate) const NAME: &str = "tenure.dev/artifacts";

/// The server of artifacts, as a kubeconfig names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArtifactExtension {
    pub(crate) server: ArtifactBase,
    /// The CA certificates of the server; `None` for those of the cluster.
    pub(crate) authority: Option<Vec<CertificateDer<'static>>>,
}

/// The fields of the extension.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Fields {
    server: String,
    certificate_authority_data: Option<String>,
}

impl ArtifactExtension {
    /// Finds the extension of a cluster. An error never quotes a value, since a value can hold a credential by mistake.
    pub(crate) fn find(cluster: &Cluster) -> Result<Option<Self>, String> {
        let extensions = cluster.extensions.iter().flatten();
        let mut named = extensions.filter(|extension| extension.name == NAME);
        let (found, second) = (named.next(), named.next());
        let refuse = |problem: String| format!("extension {NAME} of the cluster in the kubeconfig: {problem}");
        if second.is_some() {
            return Err(refuse("the cluster has two of this name".to_owned()));
        }
        found.map(Self::read).transpose().map_err(refuse)
    }

    fn read(named: &NamedExtension) -> Result<Self, String> {
        let fields: Fields = serde_json::from_value(named.extension.clone()).map_err(|_| {
            "it must be an object with server, a URL, and perhaps certificate-authority-data, and no other field"
                .to_owned()
        })?;
        let server: ArtifactBase = fields
            .server
            .parse()
            .map_err(|_| "server is no URL such as https://artifacts.example.org".to_owned())?;
        check_transport(&server)?;
        let authority = fields.certificate_authority_data.map(|data| {
            let pem = STANDARD.decode(data).ok();
            pem.and_then(|pem| read_certificates(&pem))
                .ok_or_else(|| "certificate-authority-data is no base64 of certificates in PEM".to_owned())
        });
        Ok(Self {
            server,
            authority: authority.transpose()?,
        })
    }

    /// Returns the extension as an item of a cluster's `extensions`.
    fn write(&self) -> Value {
        let mut extension = json!({"server": self.server.to_string()});
        if let (Some(authority), Some(fields)) = (&self.authority, extension.as_object_mut()) {
            let data = STANDARD.encode(write_pem(authority));
            fields.insert("certificate-authority-data".to_owned(), Value::from(data));
        }
        json!({"name": NAME, "extension": extension})
    }
}

/// Returns the extensions of a cluster with this one in place of the previous one. The others stay.
pub(crate) fn replace_extension(cluster: Option<&Cluster>, new: Option<&ArtifactExtension>) -> Vec<Value> {
    let extensions = cluster.and_then(|cluster| cluster.extensions.as_ref());
    let others = extensions.into_iter().flatten();
    others
        .filter(|other| other.name != NAME)
        .map(|other| json!({"name": other.name, "extension": other.extension}))
        .chain(new.map(ArtifactExtension::write))
        .collect()
}

/// Checks that no other program on the way to a server sees a token: https, or a loopback address. A name such as `localhost` is no address, since a resolver decides
/// about it.
pub(crate) fn check_transport(server: &ArtifactBase) -> Result<(), String> {
    let uri = server.to_string().parse::<http::Uri>();
    let uri = uri.map_err(|_| format!("{server} is no URL such as https://artifacts.example.org"))?;
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => Ok(()),
        _ if is_loopback => Ok(()),
        _ => Err(format!(
            "{server}: a token would cross the network in the clear; use https, or a loopback address such as http://127.0.0.1:9790"
        )),
    }
}

/// Reads all certificates of a text in PEM; `None` without one.
pub(crate) fn read_certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    read.ok().filter(|certificates| !certificates.is_empty())
}

/// Returns the certificates by which clients trust a server that shows this chain: those after the server's own, or the server's own if it signed itself. `None` if the
/// chain has no authority.
pub(crate) fn find_authority(chain: &[CertificateDer<'static>]) -> Option<Vec<CertificateDer<'static>>> {
    match chain {
        [own] => {
            let (_, certificate) = X509Certificate::from_der(own).ok()?;
            let is_own_issuer = certificate.issuer().as_raw() == certificate.subject().as_raw();
            is_own_issuer.then(|| vec![own.clone()])
        }
        [_, issuers @ ..] => Some(issuers.to_vec()),
        [] => None,
    }
}

fn write_pem(certificates: &[CertificateDer<'static>]) -> String {
    let mut pem = String::new();
    for certificate in certificates {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in STANDARD.encode(certificate).as_bytes().chunks(64) {
            pem.push_str(&String::from_utf8_lossy(line));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(extensions: &Value) -> Cluster {
        serde_json::from_value(json!({"server": "https://127.0.0.1:6443", "extensions": extensions}))
            .expect("a cluster")
    }

    fn find(extension: &Value) -> Result<Option<ArtifactExtension>, String> {
        ArtifactExtension::find(&cluster(&json!([{"name": NAME, "extension": extension}])))
    }

    fn base(text: &str) -> ArtifactBase {
        text.parse().expect("an address")
    }

    fn make_certificates() -> Vec<CertificateDer<'static>> {
        let certificates = ["one", "two"].map(|name| {
            let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("parameters");
            let key = rcgen::KeyPair::generate().expect("a key");
            parameters.self_signed(&key).expect("a certificate").der().clone()
        });
        certificates.to_vec()
    }

    #[test]
    fn written_extension_is_found_beside_others() {
        let exec = json!({"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}});
        let old = json!({"name": NAME, "extension": {"server": "https://old.example"}});
        let before = cluster(&json!([old, exec]));
        for authority in [None, Some(make_certificates())] {
            let new = ArtifactExtension {
                server: base("https://artifacts.example:8443/of/web"),
                authority,
            };
            let written = replace_extension(Some(&before), Some(&new));
            assert_eq!((written.len(), &written[0]), (2, &exec));
            assert_eq!(ArtifactExtension::find(&cluster(&Value::from(written))), Ok(Some(new)));
        }
        assert_eq!(replace_extension(Some(&before), None), [exec]);
        assert!(replace_extension(None, None).is_empty());
        assert_eq!(ArtifactExtension::find(&cluster(&json!([]))), Ok(None));
        assert_eq!(ArtifactExtension::find(&cluster(&Value::Null)), Ok(None));
    }

    #[test]
    fn bad_input_is_refused_without_its_values() {
        let server = "https://artifacts.example";
        for (extension, problem) in [
            (Value::Null, "it must be an object"),
            (json!("https://alice:hunter2@artifacts.example"), "it must be an object"),
            (json!([]), "it must be an object"),
            (json!({}), "it must be an object"),
            (json!({"server": 1}), "it must be an object"),
            (
                json!({"server": server, "certificate-authority": "hunter2"}),
                "it must be an object",
            ),
            (json!({"server": ""}), "server is no URL"),
            (json!({"server": "artifacts.example"}), "server is no URL"),
            (json!({"server": "ftp://artifacts.example"}), "server is no URL"),
            (
                json!({"server": "https://alice:hunter2@artifacts.example"}),
                "server is no URL",
            ),
            (json!({"server": "https://[::1"}), "is no URL"),
            (json!({"server": "http://artifacts.example"}), "in the clear"),
            (
                json!({"server": server, "certificate-authority-data": "hunter2!"}),
                "certificate-authority-data is no base64",
            ),
            (
                json!({"server": server, "certificate-authority-data": ""}),
                "certificate-authority-data is no base64",
            ),
            (
                json!({"server": server, "certificate-authority-data": "aHVudGVyMg=="}),
                "certificate-authority-data is no base64",
            ),
        ] {
            let refused = find(&extension).expect_err("refused");
            assert!(refused.contains(problem), "{extension}: {refused}");
            assert!(refused.contains(NAME) && !refused.contains("hunter2"), "{refused}");
        }
        let two =
            json!([{"name": NAME, "extension": {"server": server}}, {"name": NAME, "extension": {"server": server}}]);
        let refused = ArtifactExtension::find(&cluster(&two)).expect_err("refused");
        assert!(refused.contains("two of this name"), "{refused}");
    }

    #[test]
    fn token_is_sent_only_over_tls_or_loopback() {
        for server in [
            "https://artifacts.example",
            "https://192.0.2.1:9443",
            "http://127.0.0.1:9790",
            "http://127.1.2.3",
            "http://[::1]:9790",
        ] {
            assert_eq!(check_transport(&base(server)), Ok(()), "{server}");
        }
        for server in [
            "http://artifacts.example",
            "http://192.0.2.1:9790",
            "http://0.0.0.0:9790",
            "http://[::]:9790",
            "http://localhost:9790",
            "http://127.0.0.1.example.org",
            "http://2130706433",
        ] {
            let refused = check_transport(&base(server)).expect_err(server);
            assert!(refused.contains("in the clear"), "{refused}");
        }
    }

    #[test]
    fn the_authority_is_the_rest_of_the_chain() {
        let [one, two] = <[_; 2]>::try_from(make_certificates()).expect("two");
        assert_eq!(find_authority(&[one.clone(), two.clone()]), Some(vec![two]));
        assert_eq!(find_authority(std::slice::from_ref(&one)), Some(vec![one.clone()]));
        assert_eq!(find_authority(&[]), None);
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut parameters = rcgen::CertificateParams::default();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters
            .distinguished_name
            .push(rcgen::DnType::CommonName, "an authority");
        let authority = rcgen::CertifiedIssuer::self_signed(parameters, key).expect("an authority");
        let leaf = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
        let key = rcgen::KeyPair::generate().expect("a key");
        let leaf = leaf.signed_by(&key, &authority).expect("a certificate");
        assert_eq!(find_authority(&[leaf.der().clone()]), None);
    }
}
