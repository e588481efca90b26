//! Sources behind a proxy.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tenure_remote_requests::fetch::FetchReason;
use tenure_sources::{
    Connect, ConnectRefusal, Connector, Endpoint, FetchError, GitRequest, GitSecrets, Policy, SecretData,
    check_connection, fetch, open_connection,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::{Bed, endpoint, secret, source};

/// A proxy that records the head of each request, and resolves names that no resolver knows.
pub(crate) struct TestProxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for TestProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TestProxy {
    /// Starts a proxy. `names` has the addresses of hosts; `authorization` is the required header value.
    pub(crate) async fn start(names: BTreeMap<String, SocketAddr>, authorization: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&heads);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (names, noted) = (names.clone(), Arc::clone(&noted));
                tokio::spawn(async move {
                    let _ = serve(client, &names, authorization, &noted).await;
                });
            }
        });
        Self { address, heads, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn read_head(client: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    Ok(String::from_utf8(head).unwrap())
}

async fn serve(
    mut client: TcpStream,
    names: &BTreeMap<String, SocketAddr>,
    authorization: Option<&str>,
    heads: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let head = read_head(&mut client).await?;
    heads.lock().unwrap().push(head.clone());
    let shown = head.lines().find_map(|line| {
        line.split_once(": ")
            .filter(|(name, _)| name.eq_ignore_ascii_case("proxy-authorization"))
    });
    if shown.map(|(_, value)| value) != authorization {
        return client
            .write_all(b"HTTP/1.1 407 no\r\nContent-Length: 6\r\n\r\nquoted")
            .await;
    }
    let target = head.split(' ').nth(1).unwrap().to_owned();
    if head.starts_with("CONNECT ") {
        let Some(server) = names.get(&target) else {
            return client.write_all(b"HTTP/1.1 502 quoted\r\n\r\n").await;
        };
        let mut server = TcpStream::connect(server).await?;
        client
            .write_all(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n")
            .await?;
        copy_bidirectional(&mut client, &mut server).await?;
        return Ok(());
    }
    // The request is forwarded in the form for a server, with one answer per connection.
    let (host, path) = target.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut server = TcpStream::connect(names.get(host).unwrap()).await?;
    let head = head.replacen(&target, &format!("/{path}"), 1);
    let kept: Vec<&str> = head
        .split("\r\n")
        .filter(|line| !line.to_ascii_lowercase().starts_with("proxy-"))
        .collect();
    server
        .write_all(
            kept.join("\r\n")
                .replacen("\r\n", "\r\nConnection: close\r\n", 1)
                .as_bytes(),
        )
        .await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// Makes a request for the branch `main` of a URL through a proxy.
fn request_through(bed: &Bed, url: &str, proxy: &SecretData) -> GitRequest {
    let mut asked = bed.request(json!({"branch": "main"})).asked;
    asked.url = tenure_api::SourceUrl::new(url);
    asked.proxy = Some("way".to_owned());
    let secrets = GitSecrets {
        credentials: bed.secret.clone(),
        proxy: Some(proxy.clone()),
        ..GitSecrets::default()
    };
    GitRequest::read(source(), asked, &secrets).unwrap()
}

fn proxy_secret(proxy: &TestProxy) -> SecretData {
    secret(&[("address", &proxy.url()), ("username", "me"), ("password", "hush")]).unwrap()
}

const SHOWN: &str = "Basic bWU6aHVzaA==";

#[tokio::test]
async fn proxy_receives_plain_requests_and_resolves_names() {
    let mut bed = Bed::new().await;
    bed.repository.commit([("a", "x")], "first").await.unwrap();
    let server = bed.server.http_address();
    let names = BTreeMap::from([("repository.invalid".to_owned(), server), (server.to_string(), server)]);
    let proxy = TestProxy::start(names, Some(SHOWN)).await;
    bed.policy.allow.push(endpoint(&format!("{}/x", proxy.url())));
    bed.secret = secret(&[("username", "git"), ("password", "token")]);
    for url in [
        "http://repository.invalid/app.git".to_owned(),
        bed.server.http_url("app"),
    ] {
        let before = proxy.heads().len();
        let (artifact, _) = bed
            .get_request(&request_through(&bed, &url, &proxy_secret(&proxy)))
            .await;
        assert_eq!(bed.load(&artifact).len(), 1);
        let heads = proxy.heads().split_off(before);
        assert!(heads.len() >= 2);
        for head in heads {
            let line = head.lines().next().unwrap();
            assert!(line.contains(&format!(" {url}/")), "{line}");
        }
    }
    bed.assert_tidy();
}

#[tokio::test]
async fn ssh_goes_through_a_tunnel() {
    let mut bed = crate::ssh::bed_with_key().await;
    let url = bed.server.ssh_url("app").unwrap();
    let at = endpoint(&url);
    bed.repository.commit([("a", "x")], "first").await.unwrap();
    let names = BTreeMap::from([(format!("{}:{}", at.host, at.port), bed.server.ssh_address().unwrap())]);
    let proxy = TestProxy::start(names, Some(SHOWN)).await;
    bed.policy.allow.push(endpoint(&format!("{}/x", proxy.url())));
    let (artifact, _) = bed
        .get_request(&request_through(&bed, &url, &proxy_secret(&proxy)))
        .await;
    assert_eq!(bed.load(&artifact).len(), 1);
    let heads = proxy.heads();
    assert_eq!(heads.len(), 1);
    assert!(
        heads[0].starts_with(&format!("CONNECT {}:{} HTTP/1.1\r\n", at.host, at.port)),
        "{heads:?}"
    );
    assert!(heads[0].contains(&format!("Proxy-Authorization: {SHOWN}\r\n")));
}

/// The policy applies to the proxy's address and to the addresses behind the proxy.
#[tokio::test]
async fn proxy_does_not_bypass_the_address_policy() {
    let mut bed = Bed::new().await;
    bed.repository.commit([("a", "x")], "first").await.unwrap();
    let proxy = TestProxy::start(BTreeMap::new(), Some(SHOWN)).await;
    let good = bed.server.http_url("app");
    // A proxy at an address that the policy denies.
    let (error, message) = bed
        .refuse_request(&request_through(&bed, &good, &proxy_secret(&proxy)))
        .await;
    assert!(matches!(error, FetchError::AddressDenied(_)), "{message}");
    for address in [
        "http://169.254.169.254:80",
        "https://localhost:1",
        "http://[::1]:3128",
        "http://0x7f000001:80",
    ] {
        let way = secret(&[("address", address)]).unwrap();
        let (error, message) = bed.refuse_request(&request_through(&bed, &good, &way)).await;
        assert!(matches!(error, FetchError::AddressDenied(_)), "{address}: {message}");
    }
    // An allowed proxy does not allow the addresses behind it.
    bed.policy.allow.push(endpoint(&format!("{}/x", proxy.url())));
    let port = bed.server.http_address().port();
    for url in [
        "http://169.254.169.254/latest.git".to_owned(),
        "https://10.0.0.1/app.git".to_owned(),
        format!("http://localhost:{port}/app.git"),
        format!("https://127.0.0.1:{port}/app.git"),
        "ssh://git@[::1]/app.git".to_owned(),
    ] {
        bed.secret = if url.starts_with("ssh") {
            secret(&[("identity", "x"), ("known_hosts", "x")])
        } else {
            None
        };
        let request = request_through(&bed, &url, &proxy_secret(&proxy));
        let (error, message) = bed.refuse_request(&request).await;
        // The key of the ssh URL is checked first.
        assert!(
            matches!(error, FetchError::AddressDenied(_) | FetchError::InvalidSecret { .. }),
            "{url}: {message}"
        );
    }
    assert_eq!(proxy.heads(), Vec::<String>::new());
}

#[tokio::test]
async fn proxy_refusals_are_reported_without_quotes_or_credentials() {
    let mut bed = Bed::new().await;
    bed.repository.commit([("a", "x")], "first").await.unwrap();
    let proxy = TestProxy::start(BTreeMap::new(), Some("Basic b3RoZXI=")).await;
    bed.policy.allow.push(endpoint(&format!("{}/x", proxy.url())));
    for url in [
        "http://repository.invalid/app.git",
        "https://repository.invalid/app.git",
    ] {
        for (way, expected) in [
            (proxy_secret(&proxy), "it does not accept username and password"),
            (secret(&[("address", &proxy.url())]).unwrap(), "it wants credentials"),
        ] {
            let (error, message) = bed.refuse_request(&request_through(&bed, url, &way)).await;
            assert_eq!(error.reason(), FetchReason::AuthenticationFailed, "{message}");
            assert!(
                message.contains(expected) && message.contains(&proxy.url()),
                "{message}"
            );
            assert!(
                !message.contains("hush") && !message.contains("bWU6") && !message.contains("quoted"),
                "{message}"
            );
        }
    }
    let proxy = TestProxy::start(BTreeMap::new(), None).await;
    bed.policy.allow.push(endpoint(&format!("{}/x", proxy.url())));
    let way = secret(&[("address", &proxy.url())]).unwrap();
    let (error, message) = bed
        .refuse_request(&request_through(&bed, "https://repository.invalid/app.git", &way))
        .await;
    assert!(
        matches!(error, FetchError::HttpStatus { status: 502, .. }) && !message.contains("quoted"),
        "{message}"
    );
}

/// An endless answer of a proxy is cut off. A request with an unread proxy Secret is refused, and no direct connection is opened.
#[tokio::test]
async fn endless_proxy_answers_and_unread_proxy_secrets_are_refused() {
    let mut bed = Bed::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let flood = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = client.write_all(b"HTTP/1.1 200 OK\r\n").await;
                while client.write_all(b"X-More: of it\r\n").await.is_ok() {}
            });
        }
    });
    bed.policy.allow.push(endpoint(&format!("{address}/x")));
    let way = secret(&[("address", &address)]).unwrap();
    let (error, message) = bed
        .refuse_request(&request_through(&bed, "https://repository.invalid/app.git", &way))
        .await;
    assert!(
        matches!(error, FetchError::Broken { .. }) && message.contains("has no end"),
        "{message}"
    );
    flood.abort();

    let mut asked = bed.request(json!({"branch": "main"})).asked;
    asked.proxy = Some("way".to_owned());
    let error = GitRequest::read(source(), asked, &GitSecrets::default()).unwrap_err();
    assert!(matches!(error, FetchError::InvalidProxy { .. }), "{error}");
}

/// Opens connections for a process that can't, within a policy of its own, and records the requests.
#[derive(Debug)]
struct Elsewhere {
    policy: Policy,
    asked: Mutex<Vec<(Endpoint, Option<Endpoint>)>>,
}

impl Connect for Elsewhere {
    fn connect<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        behind: Option<&'a Endpoint>,
        patience: Duration,
    ) -> futures::future::BoxFuture<'a, Result<TcpStream, ConnectRefusal>> {
        self.asked.lock().unwrap().push((endpoint.clone(), behind.cloned()));
        Box::pin(async move {
            let opened = open_connection(&self.policy, endpoint, behind, patience).await;
            opened.map_err(|error| ConnectRefusal::from(&error))
        })
    }

    fn check<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        behind: Option<&'a Endpoint>,
    ) -> futures::future::BoxFuture<'a, Result<(), ConnectRefusal>> {
        Box::pin(async move {
            let checked = check_connection(&self.policy, endpoint, behind).await;
            checked.map_err(|error| ConnectRefusal::from(&error))
        })
    }
}

/// Another process opens the connections. It also checks the addresses behind a proxy.
#[tokio::test]
async fn delegated_connections_check_addresses_behind_a_proxy() {
    let bed = Bed::new().await;
    bed.repository.commit([("a", "x")], "first").await.unwrap();
    let server = bed.server.http_address();
    let names = BTreeMap::from([("repository.invalid".to_owned(), server)]);
    let proxy = TestProxy::start(names, Some(SHOWN)).await;
    let policy = Policy {
        allow: vec![endpoint(&format!("{}/x", proxy.url()))],
        cluster: Vec::new(),
    };
    let asked = Mutex::default();
    let elsewhere = Arc::new(Elsewhere { policy, asked });
    let reach = Connector::Through(Arc::clone(&elsewhere) as Arc<dyn Connect>);
    // A denied server behind the proxy is refused before the proxy gets a request.
    let request = request_through(&bed, "http://169.254.169.254/latest.git", &proxy_secret(&proxy));
    let error = fetch(&request, &reach, &bed.limits, &bed.store, &bed.account)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("a cloud metadata address"), "{error}");
    assert_eq!(proxy.heads(), Vec::<String>::new());
    // The control: a name that only the proxy resolves is fetched, with connections to the proxy alone.
    let request = request_through(&bed, "http://repository.invalid/app.git", &proxy_secret(&proxy));
    let fetched = fetch(&request, &reach, &bed.limits, &bed.store, &bed.account).await;
    assert!(fetched.is_ok(), "{fetched:?}");
    assert!(!proxy.heads().is_empty());
    let asked = elsewhere.asked.lock().unwrap();
    for (to, behind) in asked.iter() {
        assert_eq!(to.to_string(), proxy.url());
        assert!(behind.is_some());
    }
}
