//! HTTP credentials and certificates, and the errors when they are wrong.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use serde_json::json;
use tenure_git_server::{HttpAuthentication, Options, Tls};
use tenure_sources::FetchError;

use crate::bed::{Bed, read_spec, secret};

fn basic() -> Options {
    let authentication = HttpAuthentication::Basic {
        username: "robot".to_owned(),
        password: "p:ä/ss".to_owned(),
    };
    Options {
        authentication: Some(authentication),
        ..Options::default()
    }
}

#[tokio::test]
async fn basic_and_bearer() {
    let mut bed = Bed::with(basic()).await;
    bed.repository.commit([("a", "b")], "first").await.unwrap();
    let main = json!({"branch": "main"});

    let (error, message) = bed.refuse(main.clone()).await;
    assert!(message.contains("without credentials; name a Secret"), "{message}");
    assert_eq!(
        (error.reason().as_str(), error.is_transient()),
        ("AuthenticationFailed", false)
    );

    bed.secret = secret(&[("username", "robot"), ("password", "hunter2")]);
    let (error, message) = bed.refuse(main.clone()).await;
    assert!(
        message.contains("does not accept the Secret's username and password"),
        "{message}"
    );
    assert!(!message.contains("hunter2") && !format!("{error:?}").contains("hunter2"));
    assert!(!format!("{:?}", bed.request(main.clone())).contains("hunter2"));

    bed.secret = secret(&[("username", "robot"), ("password", "p:ä/ss\n")]);
    let (_, message) = bed.refuse(main.clone()).await;
    assert!(message.contains("password ends with a line feed"), "{message}");
    bed.secret = secret(&[("username", "robot"), ("password", "p:ä/ss")]);
    bed.get(main.clone()).await;

    bed.secret = None;
    let url = bed
        .server
        .http_url("app")
        .replace("http://", "http://robot:p%3A%C3%A4%2Fss@");
    bed.get_request(&bed.request_spec(json!({"url": url, "ref": main.clone()})))
        .await;
    let wrong = bed.server.http_url("app").replace("http://", "http://robot:hunter2@");
    let (_, message) = bed
        .refuse_request(&bed.request_spec(json!({"url": wrong, "ref": main.clone()})))
        .await;
    assert!(!message.contains("hunter2") && !message.contains("robot"), "{message}");

    let options = Options {
        authentication: Some(HttpAuthentication::Bearer("t0ken".to_owned())),
        ..Options::default()
    };
    let mut bed = Bed::with(options).await;
    bed.repository.commit([("a", "b")], "first").await.unwrap();
    bed.secret = secret(&[("bearerToken", "t0ken\n")]);
    bed.get(main.clone()).await;
    bed.secret = secret(&[("bearerToken", "other")]);
    let (_, message) = bed.refuse(main).await;
    assert!(
        message.contains("does not accept the Secret's bearerToken"),
        "{message}"
    );
}

#[test]
fn secrets_that_are_half_are_refused() {
    type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str);
    let cases: [Case; 10] = [
        ("https://h/r", &[("username", "u")], "username is set without password"),
        ("https://h/r", &[("password", "p")], "password is set without username"),
        (
            "https://h/r",
            &[("username", "u"), ("password", "p"), ("bearerToken", "t")],
            "can't be used together",
        ),
        (
            "https://h/r",
            &[("username", "a:b"), ("password", "p")],
            "username holds a colon",
        ),
        ("https://h/r", &[("tls.crt", "c")], "tls.crt is set without tls.key"),
        ("https://h/r", &[("tls.key", "k")], "tls.key is set without tls.crt"),
        ("ssh://h/r", &[], "needs the key identity"),
        (
            "ssh://h/r",
            &[("username", "u"), ("password", "p")],
            "needs the key identity",
        ),
        ("ssh://h/r", &[("identity", "k")], "known_hosts is missing"),
        (
            "ssh://h/r",
            &[("identity", "k"), ("known_hosts", "")],
            "known_hosts is missing",
        ),
    ];
    for (url, pairs, words) in cases {
        let error = read_spec(json!({"url": url}), secret(pairs).as_ref()).unwrap_err();
        assert!(matches!(error, FetchError::InvalidSecret { .. }), "{error}");
        assert!(error.to_string().contains(words), "{url} {pairs:?}: {error}");
        assert_eq!(error.reason().as_str(), "AuthenticationFailed");
    }
    read_spec(json!({"url": "https://h/r"}), secret(&[("ca.crt", "x")]).as_ref()).unwrap();
}

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self {
            issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap(),
        }
    }

    fn pem(&self) -> String {
        self.issuer.pem()
    }

    fn sign(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

#[tokio::test]
async fn https_needs_a_certificate_that_is_believed() {
    let authority = Authority::new();
    let other = Authority::new();
    let (certificate, key) = authority.sign("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
    let tls = Tls {
        certificate,
        key,
        client_authority: Some(authority.pem()),
    };
    let mut bed = Bed::with(Options {
        tls: Some(tls),
        ..Options::default()
    })
    .await;
    bed.repository.commit([("a", "b")], "first").await.unwrap();
    let main = json!({"branch": "main"});
    let (certificate, key) = authority.sign("client", ExtendedKeyUsagePurpose::ClientAuth);
    let (stranger, stranger_key) = other.sign("client", ExtendedKeyUsagePurpose::ClientAuth);
    let (ca, other_ca) = (authority.pem(), other.pem());

    bed.secret = secret(&[("ca.crt", &ca), ("tls.crt", &certificate), ("tls.key", &key)]);
    bed.get(main.clone()).await;
    bed.secret = secret(&[("caFile", &ca), ("certFile", &certificate), ("keyFile", &key)]);
    bed.get(main.clone()).await;

    for (pairs, words) in [
        (
            vec![("tls.crt", &certificate), ("tls.key", &key)],
            "into ca.crt of the Secret",
        ),
        (
            vec![("ca.crt", &other_ca), ("tls.crt", &certificate), ("tls.key", &key)],
            "into ca.crt of the Secret",
        ),
        (
            vec![
                ("ca.crt", &certificate),
                ("tls.crt", &certificate),
                ("tls.key", &stranger_key),
            ],
            "do not belong together",
        ),
        (vec![("ca.crt", &key)], "ca.crt holds no PEM certificate"),
        (
            vec![("ca.crt", &ca), ("tls.crt", &certificate), ("tls.key", &certificate)],
            "tls.key is not a PEM private key",
        ),
        (vec![("ca.crt", &ca)], ""),
        (
            vec![("ca.crt", &ca), ("tls.crt", &stranger), ("tls.key", &stranger_key)],
            "",
        ),
    ] {
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(key, value)| (*key, value.as_str())).collect();
        bed.secret = secret(&pairs);
        let (error, message) = bed.refuse(main.clone()).await;
        let expected = matches!(
            error,
            FetchError::Tls { .. } | FetchError::InvalidSecret { .. } | FetchError::Broken { .. }
        );
        assert!(expected && message.contains(words), "{words}: {message}");
        assert!(!message.contains("BEGIN"), "{message}");
    }

    // The name in the certificate must match, too.
    let (certificate, key) = authority.sign("git.example.com", ExtendedKeyUsagePurpose::ServerAuth);
    let tls = Tls {
        certificate,
        key,
        client_authority: None,
    };
    let mut bed = Bed::with(Options {
        tls: Some(tls),
        ..Options::default()
    })
    .await;
    bed.secret = secret(&[("ca.crt", &ca)]);
    let (error, message) = bed.refuse(main).await;
    assert!(matches!(error, FetchError::Tls { .. }), "{message}");
}
