//! Redirects are followed to allowed targets, and never with credentials to another host.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tenure_git_server::{HttpAuthentication, Options};
use tenure_sources::FetchError;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::bed::{Bed, endpoint, secret};

/// Answers every request with this status and location, and records the received requests.
async fn start_redirector(
    status: u16,
    location: impl Fn(u64) -> String + Send + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&requests);
    tokio::spawn(async move {
        let mut count = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            while !request.windows(4).any(|window| window == b"\r\n\r\n") {
                match stream.read(&mut buffer).await {
                    Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
                    _ => break,
                }
            }
            keep.lock()
                .unwrap()
                .push(String::from_utf8_lossy(&request).into_owned());
            let location = location(count);
            count += 1;
            let answer = format!(
                "HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (url, requests)
}

const TAIL: &str = "/info/refs?service=git-upload-pack";

#[tokio::test]
async fn a_redirect_to_an_allowed_server_is_followed() {
    for status in [301, 302, 307, 308] {
        let mut bed = Bed::new().await;
        bed.repository.commit([("a", "b")], "first").await.unwrap();
        let target = bed.server.http_url("app");
        let (url, _) = start_redirector(status, move |_| format!("{target}{TAIL}")).await;
        bed.policy.allow.push(endpoint(&format!("{url}/x")));
        let request = bed.request_spec(json!({"url": format!("{url}/old"), "ref": {"branch": "main"}}));
        let (artifact, _) = bed.get_request(&request).await;
        assert!(artifact.facts.revision.starts_with("main@sha1:"));
    }
}

#[tokio::test]
async fn a_redirect_does_not_get_around_the_policy() {
    let mut bed = Bed::new().await;
    bed.repository.commit([("a", "b")], "first").await.unwrap();
    let port = bed.server.http_address().port();
    for (target, class) in [
        (format!("http://localhost:{port}/app.git{TAIL}"), "a loopback address"),
        (
            format!("http://169.254.169.254/latest{TAIL}"),
            "a cloud metadata address",
        ),
        (
            format!("http://[::ffff:a9fe:a9fe]/latest{TAIL}"),
            "a cloud metadata address",
        ),
        (format!("//10.0.0.1/x{TAIL}"), "a private address"),
    ] {
        let (url, requests) = start_redirector(302, move |_| target.clone()).await;
        bed.policy.allow = vec![endpoint(&format!("{url}/x"))];
        let request = bed.request_spec(json!({"url": format!("{url}/old")}));
        let (error, _) = bed.refuse_request(&request).await;
        assert!(
            matches!(&error, FetchError::AddressDenied(denied) if denied.class == class),
            "{error}"
        );
        assert_eq!(requests.lock().unwrap().len(), 1);
    }
    assert_eq!(bed.server.requests(), 0);
}

#[tokio::test]
async fn redirects_that_are_no_repository_are_refused() {
    let mut bed = Bed::new().await;
    for (target, words) in [
        (
            "http://example.com/login".to_owned(),
            "something else than a Git repository",
        ),
        (
            format!("http://example.com{TAIL}"),
            "something else than a Git repository",
        ),
        (
            "http://example.com/x/info/refs?service=git-receive-pack".to_owned(),
            "something else",
        ),
        (format!("ssh://example.com/x{TAIL}"), "not an http or https URL"),
        (format!("file:///etc/passwd{TAIL}"), "not an http or https URL"),
        (format!("http:///{TAIL}"), "refused"),
    ] {
        let shown = target.clone();
        let (url, _) = start_redirector(302, move |_| target.clone()).await;
        bed.policy.allow = vec![endpoint(&format!("{url}/x"))];
        let request = bed.request_spec(json!({"url": format!("{url}/old")}));
        let (error, message) = bed.refuse_request(&request).await;
        assert!(matches!(error, FetchError::Redirect { .. }), "{shown}: {message}");
        assert!(message.contains(words), "{shown}: {message}");
        assert_eq!(error.reason().as_str(), "GitOperationFailed");
    }
}

#[tokio::test]
async fn redirects_end() {
    let mut bed = Bed::new().await;
    let (url, requests) = start_redirector(302, |count| format!("/turn{count}{TAIL}")).await;
    bed.policy.allow = vec![endpoint(&format!("{url}/x"))];
    let request = bed.request_spec(json!({"url": format!("{url}/old")}));
    let (_, message) = bed.refuse_request(&request).await;
    assert!(message.contains("too many in a row"), "{message}");
    assert_eq!(requests.lock().unwrap().len(), 6);
}

#[tokio::test]
async fn credentials_stay_with_their_server() {
    let authentication = HttpAuthentication::Basic {
        username: "u".to_owned(),
        password: "sesame".to_owned(),
    };
    let options = Options {
        authentication: Some(authentication),
        ..Options::default()
    };
    let mut bed = Bed::with(options).await;
    bed.repository.commit([("a", "b")], "first").await.unwrap();
    bed.secret = secret(&[("username", "u"), ("password", "sesame")]);

    // From a server that may have the credentials to one that may not, although that server would accept them.
    let target = bed.server.http_url("app");
    let (url, requests) = start_redirector(302, move |_| format!("{target}{TAIL}")).await;
    bed.policy.allow.push(endpoint(&format!("{url}/x")));
    let request = bed.request_spec(json!({"url": format!("{url}/old"), "ref": {"branch": "main"}}));
    let (error, message) = bed.refuse_request(&request).await;
    assert!(matches!(error, FetchError::Unauthorized { .. }), "{message}");
    assert!(message.contains("after a redirect to another host"), "{message}");
    assert!(
        requests.lock().unwrap()[0].contains("authorization: Basic "),
        "{requests:?}"
    );

    // In the other direction nothing leaks: a user in the target of a redirect is not sent.
    let (other, requests) = start_redirector(404, |_| String::new()).await;
    let with_user = other.replace("http://", "http://admin:secret@");
    let (url, _) = start_redirector(302, move |_| format!("{with_user}/x{TAIL}")).await;
    bed.policy
        .allow
        .extend([endpoint(&format!("{url}/x")), endpoint(&format!("{other}/x"))]);
    let request = bed.request_spec(json!({"url": format!("{url}/old"), "ref": {"branch": "main"}}));
    let (_, message) = bed.refuse_request(&request).await;
    let requests = requests.lock().unwrap();
    assert!(
        requests.len() == 1 && !requests[0].to_lowercase().contains("authorization"),
        "{requests:?}"
    );
    assert!(!message.contains("secret") && !message.contains("sesame"), "{message}");
}

#[tokio::test]
async fn a_redirect_from_https_to_http_is_refused() {
    let mut bed = Bed::new().await;
    bed.repository.commit([("a", "b")], "first").await.unwrap();
    let target = format!("{}{TAIL}", bed.server.http_url("app"));
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let config = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/app", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = format!("HTTP/1.1 302 Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    bed.policy.allow.push(endpoint(&url));
    bed.secret = secret(&[("ca.crt", &certificate.pem())]);
    let (error, message) = bed.refuse_request(&bed.request_spec(json!({"url": url}))).await;
    assert!(matches!(error, FetchError::Redirect { .. }), "{message}");
    assert!(message.contains("it leads from https to http"), "{message}");
    assert_eq!(bed.server.requests(), 0);
}
