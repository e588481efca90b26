//! The credentials that a store receives.

use std::collections::BTreeMap;

use tenure_bucket_server::{Answer, BucketServer};
use tenure_remote_requests::bucket::FetchRequest;
use tenure_remote_requests::fetch::FetchReason;
use tenure_sources::BucketError;

use super::{BUCKET, Stand};
use crate::bed::secret;
use crate::proxies::TestProxy;

#[tokio::test]
async fn requests_are_signed_for_the_region_of_the_bucket() {
    let mut stand = Stand::new().await;
    stand.put(&[("a b/c+d&e=f.yaml", "1"), ("ü/~x.yaml", "2")]);
    stand.server.set_page(1);
    stand.require_keys("us-east-1");
    let artifact = stand.get(stand.make_request()).await;
    assert_eq!(stand.list(&artifact), ["a b/c+d&e=f.yaml", "ü/~x.yaml"]);
    // Every request is signed, and no request contains the secret key.
    for request in stand.server.take_requests() {
        let headers = format!("{:?}", request.headers);
        assert!(
            headers.contains("AWS4-HMAC-SHA256") && !headers.contains("sesame"),
            "{headers}"
        );
    }

    // A store in another region names its region. The request is repeated once; the next requests use this region at once.
    stand.require_keys("eu-west-1");
    stand.get(stand.make_request()).await;
    let refused = stand
        .server
        .take_requests()
        .iter()
        .filter(|request| format!("{request:?}").contains("us-east-1"))
        .count();
    assert_eq!(refused, 1);
    let in_region = |region: &str| FetchRequest {
        region: Some(region.to_owned()),
        ..stand.make_request()
    };
    stand.get(in_region("eu-west-1")).await;
    // A region in the specification is not replaced.
    let (_, message) = stand.refuse(in_region("mars-1")).await;
    assert!(message.contains("HTTP 400 (AuthorizationHeaderMalformed)"), "{message}");
}

#[tokio::test]
async fn a_refusal_is_reported_with_its_cause() {
    let mut stand = Stand::new().await;
    stand.put(&[("a", "1")]);
    stand.require_keys("us-east-1");
    for (keys, problem) in [
        (None, "HTTP 403 (AccessDenied): without credentials; name a Secret"),
        (
            secret(&[("accesskey", "AKIDOTHER"), ("secretkey", "x")]),
            "it doesn't know the Secret's accesskey",
        ),
        (
            secret(&[("accesskey", "AKIDEXAMPLE"), ("secretkey", "sesame")]),
            "secretkey isn't the one of its accesskey",
        ),
    ] {
        stand.secrets.credentials = keys;
        let (error, message) = stand.refuse(stand.make_request()).await;
        assert_eq!(error.reason(), FetchReason::BucketOperationFailed);
        assert!(message.contains(problem), "{message}");
    }
    // A store that repeats the received credentials.
    stand.require_keys("us-east-1");
    stand.secrets.credentials = secret(&[("accesskey", "sesame"), ("secretkey", "sesame")]);
    stand
        .server
        .answer_with(|_| Some(Answer::error(403, "sesame", "<Region>sesame</Region>")));
    stand.refuse(stand.make_request()).await;
    stand.secrets.credentials = secret(&[("accesskey", "sesame")]);
    let (error, message) = stand.refuse(stand.make_request()).await;
    assert_eq!(error.reason(), FetchReason::AuthenticationFailed, "{message}");
    // The control, and a bucket that does not exist.
    stand.require_keys("us-east-1");
    stand.server.answer_with(|_| None);
    stand.get(stand.make_request()).await;
    let (error, message) = stand
        .refuse(FetchRequest {
            bucket: "other".to_owned(),
            ..stand.make_request()
        })
        .await;
    assert!(
        matches!(error, BucketError::NoBucket { .. }) && message.starts_with("bucket 'other' not found in http://"),
        "{message}"
    );
}

#[tokio::test]
async fn tls_is_verified() {
    let server = BucketServer::start_with_tls(&["127.0.0.1"]).await.unwrap();
    let authority = server.certificate().unwrap().to_owned();
    let mut stand = Stand::with(server, "https");
    stand.server.put(BUCKET, "a", b"1");
    let ask = |stand: &Stand| FetchRequest {
        insecure: false,
        ..stand.make_request()
    };
    let (_, message) = stand.refuse(ask(&stand)).await;
    assert!(
        message.contains("TLS with 127.0.0.1") && message.contains("ca.crt"),
        "{message}"
    );
    stand.secrets.certificates = secret(&[("ca.crt", &authority)]);
    let artifact = stand.get(ask(&stand)).await;
    assert_eq!(stand.list(&artifact), ["a"]);
    // Plain HTTP to a store with TLS, and the reverse, both fail.
    let (_, message) = stand.refuse(stand.make_request()).await;
    assert!(message.contains("denied") || message.contains("broke"), "{message}");
}

#[tokio::test]
async fn store_behind_proxy_never_sees_proxy_credentials() {
    let mut stand = Stand::new().await;
    stand.require_keys("us-east-1");
    stand.put(&[("a", "1")]);
    // A name that only the proxy can resolve.
    let names = BTreeMap::from([("store.invalid".to_owned(), stand.server.address())]);
    let proxy = TestProxy::start(names, Some("Basic bWU6c2VzYW1l")).await;
    stand.secrets.proxy = secret(&[("address", &proxy.url()), ("username", "me"), ("password", "sesame")]);
    let asked = FetchRequest {
        endpoint: "store.invalid".to_owned(),
        proxy: Some("way".to_owned()),
        ..stand.make_request()
    };
    // The policy applies to a proxy like to any other address.
    let (_, message) = stand.refuse(asked.clone()).await;
    assert!(message.contains("loopback"), "{message}");
    stand.policy.allow.push(proxy.url().parse().unwrap());
    let artifact = stand.get(asked.clone()).await;
    assert_eq!(stand.list(&artifact), ["a"]);
    assert!(
        proxy
            .heads()
            .iter()
            .all(|head| head.contains(" http://store.invalid/apps/")),
        "{:?}",
        proxy.heads()
    );
    let requests = stand.server.take_requests();
    assert!(
        !requests.is_empty()
            && requests
                .iter()
                .all(|request| !format!("{:?}", request.target).contains("sesame"))
    );
    // The Secret is required, and has to name a proxy.
    stand.secrets.proxy = secret(&[("username", "me"), ("password", "sesame")]);
    let (_, message) = stand.refuse(asked).await;
    assert!(message.contains("address"), "{message}");
}
