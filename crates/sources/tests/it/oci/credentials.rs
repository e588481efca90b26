//! The hosts that receive credentials, and the hosts that don't.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tenure_registry_server::{Access, Answer, RegistryServer, compute_digest, pack_files};
use tenure_remote_requests::fetch::FetchReason;
use tenure_remote_requests::git_host::ProbeResult;
use tenure_remote_requests::oci::FetchRequest;
use tenure_sources::{Connector, FetchError, OciError, Policy, SecretData, probe_registry};

use super::Stand;
use crate::proxies::TestProxy;

#[tokio::test]
async fn credentials_are_shown_as_the_registry_asks() {
    let mut stand = Stand::new().await;
    stand.push("latest", &[("a.yaml", "a")]);
    let pair = "user:sesame".to_owned();
    stand.server.require(Access::Basic { pair: pair.clone() });
    let (error, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert_eq!(error.reason(), FetchReason::AuthenticationFailed);
    assert!(
        message.contains("name a Secret with them in spec.secretRef"),
        "{message}"
    );
    let host = stand.host();
    stand.set_credentials(&[(&host, "user:sesame2")]);
    let (error, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert_eq!(error.reason(), FetchReason::AuthenticationFailed);
    assert!(message.contains("with the credentials of the Secret"), "{message}");
    stand.set_credentials(&[("other.example", "user:wrong"), (&host, &pair)]);
    stand.get(stand.make_request(json!({}))).await;

    // With a token, from the registry's own host.
    let realm = format!("http://{host}/token");
    stand.server.require(Access::Token {
        realm,
        pair: Some(pair),
    });
    let before = stand.server.requests().len();
    stand.get(stand.make_request(json!({}))).await;
    let requests = stand.server.requests().split_off(before);
    assert!(requests[0].authorization.is_none(), "nothing is shown unasked");
    assert!(
        requests[1]
            .target
            .starts_with("/token?service=registry&scope=repository%3Ateam%2Fapp%3Apull"),
        "{:?}",
        requests[1]
    );
    assert_eq!(
        requests
            .iter()
            .filter(|request| request.target.starts_with("/token"))
            .count(),
        1,
        "one token for all"
    );

    // A token to get tokens.
    let config = json!({ "auths": { host: { "identitytoken": "sesame" } } }).to_string();
    stand.secrets.credentials = vec![SecretData::from([(
        ".dockerconfigjson".to_owned(),
        config.into_bytes(),
    )])];
    let before = stand.server.requests().len();
    stand.get(stand.make_request(json!({}))).await;
    let requests = stand.server.requests().split_off(before);
    assert!(
        requests[1].method == "POST" && requests[1].body.contains("refresh_token=sesame"),
        "{:?}",
        requests[1]
    );
}

/// After too many failed logins a server blocks an address. Its answer then says nothing about the credentials.
#[tokio::test]
async fn a_blocked_address_is_not_reported_as_refused_credentials() {
    let mut stand = Stand::new().await;
    stand.push("latest", &[("a.yaml", "a")]);
    let own = stand.host();
    stand.set_credentials(&[(&own, "user:sesame")]);
    stand.server.require(Access::Token {
        realm: format!("http://{own}/token"),
        pair: Some("user:sesame".to_owned()),
    });
    for (answer, expected) in [
        (Answer::new(403, "Forbidden"), "keep this address out"),
        (
            Answer::new(403, "{}").with("Content-Type", "application/json"),
            "not accepted for the right to pull",
        ),
    ] {
        stand
            .server
            .answer_with(move |request| request.target.starts_with("/token").then(|| answer.clone()));
        let (error, message) = stand.refuse(stand.make_request(json!({}))).await;
        assert!(message.contains(expected), "{message}");
        assert_eq!(error.reason(), FetchReason::AuthenticationFailed);
    }
}

/// A registry names a token server of another site: the registry's credentials don't go there.
#[tokio::test]
async fn a_foreign_realm_gets_no_credentials() {
    let mut stand = Stand::new().await;
    stand.push("latest", &[("a.yaml", "a")]);
    let foreign = RegistryServer::start_with_tls(&["localhost"]).await.unwrap();
    let port = foreign.address().port();
    let certificate = foreign.certificate().unwrap().as_bytes().to_vec();
    stand.secrets.certificates = Some(SecretData::from([("ca.crt".to_owned(), certificate)]));
    let realm = format!("https://localhost:{port}/token");
    stand.allow(&format!("https://localhost:{port}"));
    let own = stand.host();
    stand.set_credentials(&[(&own, "user:sesame")]);
    stand.server.require(Access::Token {
        realm,
        pair: Some("user:sesame".to_owned()),
    });
    foreign.require(Access::Token {
        realm: String::new(),
        pair: Some("user:sesame".to_owned()),
    });

    let (error, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert_eq!(error.reason(), FetchReason::AuthenticationFailed);
    assert!(message.contains("not sent to a server of another site"), "{message}");
    assert!(
        foreign
            .requests()
            .iter()
            .all(|request| request.authorization.is_none() && !request.target.contains("sesame"))
    );
    assert_eq!(foreign.requests().len(), 1);

    // The control: the Secret has an entry for the token server.
    stand.set_credentials(&[(&own, "user:other"), (&format!("localhost:{port}"), "user:sesame")]);
    stand.get(stand.make_request(json!({}))).await;
    let shown = foreign.requests().pop().unwrap().authorization;
    assert_eq!(shown, Some(format!("Basic {}", STANDARD.encode("user:sesame"))));
    // The token of that server goes to the registry.
    assert!(
        stand
            .server
            .requests()
            .pop()
            .unwrap()
            .authorization
            .unwrap()
            .starts_with("Bearer ")
    );
}

#[tokio::test]
async fn a_realm_is_dialed_as_everything_else() {
    let stand = Stand::new().await;
    stand.push("latest", &[("a.yaml", "a")]);
    let other = RegistryServer::start().await.unwrap();
    for (realm, problem) in [
        ("https://169.254.169.254/token".to_owned(), "a cloud metadata address"),
        ("https://localhost:1/token".to_owned(), "a loopback address"),
        ("https://10.0.0.1/token".to_owned(), "a private address"),
        (
            format!("http://localhost:{}/token", other.address().port()),
            "not https",
        ),
        ("http://169.254.169.254/latest/meta-data".to_owned(), "not https"),
        (format!("http://{}/token", other.address()), "a loopback address"),
        ("file:///etc/passwd".to_owned(), "neither https nor http"),
    ] {
        stand.server.require(Access::Token {
            realm: realm.clone(),
            pair: None,
        });
        let (_, message) = stand.refuse(stand.make_request(json!({}))).await;
        assert!(message.contains(problem), "{realm}: {message}");
    }
    assert!(other.requests().is_empty());
    // The control: the token server of the registry itself.
    stand.server.require(Access::Token {
        realm: format!("http://{}/token", stand.host()),
        pair: None,
    });
    stand.get(stand.make_request(json!({}))).await;
}

#[tokio::test]
async fn blobs_come_from_elsewhere_without_credentials() {
    let mut stand = Stand::new().await;
    let layer = pack_files(&[("a.yaml", "a")]);
    stand.push_layer(layer.clone());
    let pair = "user:sesame".to_owned();
    stand.server.require(Access::Basic { pair: pair.clone() });
    let host = stand.host();
    stand.set_credentials(&[(&host, &pair)]);
    let storage = RegistryServer::start().await.unwrap();
    let location = format!("http://{}/bucket/blob?signature=abc", storage.address());
    let wanted = format!("/blobs/{}", compute_digest(&layer));
    stand.server.answer_with(move |request| {
        let is_blob = request.authorization.is_some() && request.target.ends_with(&wanted);
        is_blob.then(|| Answer::new(307, "").with("Location", location.clone()))
    });
    storage.answer_with(move |_| Some(Answer::new(200, layer.clone())));
    let (_, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert!(
        message.contains("a loopback address") && !message.contains("signature"),
        "{message}"
    );
    assert!(storage.requests().is_empty());

    stand.allow(&format!("http://{}", storage.address()));
    stand.get(stand.make_request(json!({}))).await;
    let requests = storage.requests();
    assert_eq!(requests.len(), 1);
    assert!(
        requests[0].authorization.is_none() && requests[0].target == "/bucket/blob?signature=abc",
        "{requests:?}"
    );

    // Storage that asks for credentials gets none.
    storage.answer_with(|_| Some(Answer::new(401, "").with("WWW-Authenticate", "Basic realm=x")));
    let (error, message) = stand.refuse(stand.make_request(json!({}))).await;
    assert_eq!(error.reason(), FetchReason::AuthenticationFailed);
    assert!(
        message.contains("credentials are only sent to the registry"),
        "{message}"
    );
    assert!(storage.requests().iter().all(|request| request.authorization.is_none()));
}

#[tokio::test]
async fn registry_proxy_gets_its_own_credentials() {
    let mut stand = Stand::new().await;
    stand.push("v1", &[("a", "x")]);
    let server = stand.server.address();
    let names = std::collections::BTreeMap::from([(server.to_string(), server)]);
    let proxy = TestProxy::start(names, Some("Basic bWU6c2VzYW1l")).await;
    let proxy_secret = |password: &str| {
        let url = proxy.url();
        let entries = [("address", url.as_str()), ("username", "me"), ("password", password)];
        let entries = entries.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        Some(SecretData::from(entries))
    };
    let ask = |stand: &Stand| FetchRequest {
        proxy: Some("way".to_owned()),
        ..stand.make_request(json!({ "tag": "v1" }))
    };
    // The policy applies to the proxy's address; and a Secret that was not read is an error, not a direct connection.
    stand.secrets.proxy = proxy_secret("sesame");
    let (error, message) = stand.refuse(ask(&stand)).await;
    assert!(
        matches!(error, OciError::Connection(FetchError::AddressDenied(_))),
        "{message}"
    );
    stand.secrets.proxy = None;
    let (error, _) = stand.refuse(ask(&stand)).await;
    assert_eq!(error.reason(), FetchReason::AuthenticationFailed);

    stand.allow(&proxy.url());
    stand.secrets.proxy = proxy_secret("wrong");
    let (error, message) = stand.refuse(ask(&stand)).await;
    assert_eq!(error.reason(), FetchReason::AuthenticationFailed, "{message}");
    stand.secrets.proxy = proxy_secret("sesame");
    let artifact = stand.get(ask(&stand)).await;
    assert_eq!(stand.list(&artifact), ["a"]);
    let heads = proxy.heads();
    assert!(
        heads.iter().all(|head| head.contains(&format!(" http://{server}/v2/"))),
        "{heads:?}"
    );
}

/// A host with an authority of its own is verified with the `ca.crt` beside the credential.
#[tokio::test]
async fn registry_probe_trusts_authority_beside_the_credential() {
    let server = RegistryServer::start_with_tls(&["localhost"]).await.unwrap();
    let host = format!("localhost:{}", server.address().port());
    server.require(Access::Basic {
        pair: "user:sesame".to_owned(),
    });
    let reach = Connector::Here(Policy {
        allow: vec![format!("https://{host}").parse().unwrap()],
        cluster: Vec::new(),
    });
    let auth = json!({ "auth": STANDARD.encode("user:sesame") });
    let config = json!({ "auths": { host.as_str(): auth } }).to_string();
    let mut secret = SecretData::from([(".dockerconfigjson".to_owned(), config.into_bytes())]);
    let url = format!("oci://{host}/team/app");
    let probed = probe_registry(&url, false, &secret, &reach).await;
    assert!(
        matches!(&probed, ProbeResult::Unclear(why) if why.contains("certificate")),
        "{probed:?}"
    );
    secret.insert("ca.crt".to_owned(), server.certificate().unwrap().as_bytes().to_vec());
    assert_eq!(
        probe_registry(&url, false, &secret, &reach).await,
        ProbeResult::Accepted
    );
}
