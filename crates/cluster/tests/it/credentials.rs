//! Refused credentials: after a jump of the clock, a sleep of the machine, or a token that was read too early. The tests check which tokens are replaced, how often,
//! and which health is reported.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::client::Body;
use tenure_cluster::{ClientPool, ClusterError, Connection, Identity, LaneAccess, LaneAccount, Resource, Token};
use tenure_tenancy::{Placement, identity};

/// An API server that only checks credentials.
#[derive(Clone, Default)]
struct Door {
    /// The `Authorization` headers that are accepted.
    accepted: Arc<Mutex<Vec<String>>>,
    asked: Arc<AtomicUsize>,
    token_requests: Arc<AtomicUsize>,
}

impl Door {
    fn accept(&self, tokens: &[&str]) {
        *self.accepted.lock().unwrap() = tokens.iter().map(|token| format!("Bearer {token}")).collect();
    }
}

impl tower::Service<Request<Body>> for Door {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let sent = request
            .headers()
            .get("authorization")
            .and_then(|sent| sent.to_str().ok());
        let accepted = sent.is_some_and(|sent| self.accepted.lock().unwrap().iter().any(|known| known == sent));
        let (code, body) = if !accepted {
            (
                401,
                r#"{"kind":"Status","reason":"Unauthorized","message":"Unauthorized","code":401}"#.to_owned(),
            )
        } else if request.uri().path().ends_with("/token") {
            let count = self.token_requests.fetch_add(1, Ordering::SeqCst);
            (201, format!(r#"{{"status":{{"token":"minted-{count}"}}}}"#))
        } else {
            (200, r#"{"kind":"Namespace","metadata":{"name":"a"}}"#.to_owned())
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
        ready(Ok(response))
    }
}

/// Returns the account of the pool's lane.
fn pool() -> LaneAccount {
    let nobody = Placement::Unclaimed {
        default_service_account: "default".to_owned(),
        is_protected: false,
    };
    identity::decide_for_lane(&nobody, "team")
}

fn lane(clients: &ClientPool, account: LaneAccount) -> LaneAccess {
    LaneAccess {
        account,
        turns: clients.turns().of_lane(),
    }
}

async fn ask(clients: &ClientPool, identity: &Identity) -> Result<(), ClusterError> {
    let client = match identity {
        Identity::Controller(_) => clients.controller(),
        Identity::Lane(account) => clients.for_lane(&lane(clients, account.clone())),
        Identity::ServiceAccount(account) => clients.for_account(account, &lane(clients, pool())).await?,
        Identity::SecretWriter(writer) => clients.for_secret_writer(writer, &lane(clients, pool())).await?,
        Identity::Elsewhere(_) => unreachable!("it is nobody here"),
    };
    let namespaces = Resource {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        plural: "namespaces".to_owned(),
        namespaced: false,
        watchable: true,
    };
    client.get(&namespaces, "", "a").await.map(|_| ())
}

/// Returns a token with this end.
fn ending(at: u64) -> String {
    format!("t.{}.s", URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{at}}}"#)))
}

/// The connection's issuer makes the new token.
#[tokio::test]
async fn controller_replaces_expired_token() {
    for old in [ending(1000), "not yet valid, since the clock went back".to_owned()] {
        let door = Door::default();
        door.accept(&["new"]);
        let issued = Arc::new(AtomicUsize::new(0));
        let connection = Connection::in_process(door.clone(), Token::new(old.clone(), None)).issued_by({
            let issued = issued.clone();
            move || {
                issued.fetch_add(1, Ordering::SeqCst);
                Ok(Token::new("new", None))
            }
        });
        let health = connection.health();
        let clients = ClientPool::new(connection);
        for _ in 0..5 {
            ask(&clients, &identity::use_for_bookkeeping().into()).await.unwrap();
        }
        assert_eq!(issued.load(Ordering::SeqCst), 1, "{old}");
        assert!(health.is_good());
    }
    // If no token can be made, the health reports it, and the old token is not used.
    let door = Door::default();
    let connection = Connection::in_process(door.clone(), Token::new(ending(1000), None))
        .issued_by(|| Err("the ServiceAccount is gone".to_owned()));
    let health = connection.health();
    assert!(health.is_good());
    let error = ask(&ClientPool::new(connection), &identity::use_for_bookkeeping().into())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("the ServiceAccount is gone"), "{error}");
    assert_eq!(door.asked.load(Ordering::SeqCst), 0);
    assert!(!health.is_good());
}

#[tokio::test]
async fn refused_credentials_and_their_end_are_reported() {
    let door = Door::default();
    let connection =
        Connection::in_process(door.clone(), Token::new("a", None)).issued_by(|| Ok(Token::new("b", None)));
    let health = connection.health();
    let clients = ClientPool::new(connection);
    for _ in 0..50 {
        ask(&clients, &identity::use_for_bookkeeping().into())
            .await
            .unwrap_err();
    }
    assert!(!health.is_good());
    // A new token is tried once, and not for each request.
    assert_eq!(door.asked.load(Ordering::SeqCst), 51);
    door.accept(&["b"]);
    ask(&clients, &identity::use_for_bookkeeping().into()).await.unwrap();
    assert!(health.is_good());
}

/// This holds for the token of a ServiceAccount and for the token of its lane.
#[tokio::test]
async fn refused_tokens_are_requested_anew_once() {
    let door = Door::default();
    let connection = Connection::in_process(door.clone(), Token::new("controller", None));
    let health = connection.health();
    let clients = ClientPool::new(connection);
    let nobody = Placement::Unclaimed {
        default_service_account: "default".to_owned(),
        is_protected: false,
    };
    let account = identity::decide_for_kustomization(&nobody, "shop", Some("bot"))
        .unwrap()
        .into();
    // The controller requests the lane's token, and the lane requests the account's.
    door.accept(&["controller", "minted-0", "minted-1"]);
    ask(&clients, &account).await.unwrap();
    // The clock jumps: the old tokens are refused, and the next ones are accepted.
    door.accept(&["controller", "minted-2", "minted-3"]);
    for _ in 0..3 {
        ask(&clients, &account).await.unwrap();
    }
    assert_eq!(door.token_requests.load(Ordering::SeqCst), 4);
    // All tokens are refused: one more is made for the lane, and then not for each request.
    door.accept(&["controller"]);
    for _ in 0..50 {
        let error = ask(&clients, &account).await.unwrap_err();
        assert!(matches!(error, ClusterError::Unauthorized { .. }), "{error}");
    }
    assert_eq!(door.token_requests.load(Ordering::SeqCst), 5);
    assert!(
        health.is_good(),
        "what a tenant's token is refused for is no fault of the controller's"
    );
}

/// Starts a server that answers 200 to requests with `token`, and 401 to all others.
fn server(token: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let accepted = head
                .iter()
                .any(|line| line.to_lowercase() == format!("authorization: bearer {token}"));
            let (status, body) = if accepted {
                ("200 OK", "{}")
            } else {
                ("401 Unauthorized", "")
            };
            let _ended = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    url
}

#[tokio::test]
async fn a_mounted_token_that_is_refused_is_read_again() {
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "old").unwrap();
    let mut config = kube::Config::new(server("new").parse().unwrap());
    config.auth_info.token_file = Some(file.path().to_str().unwrap().to_owned());
    let connection = Connection::over_network(config).unwrap();
    let health = connection.health();
    let clients = ClientPool::new(connection);
    ask(&clients, &identity::use_for_bookkeeping().into())
        .await
        .unwrap_err();
    assert!(!health.is_good());
    std::fs::write(file.path(), "new").unwrap();
    // The token is not read again for each refusal: a pause follows each one, and the pause ends.
    let mut tries = 0;
    while ask(&clients, &identity::use_for_bookkeeping().into()).await.is_err() {
        tries += 1;
        assert!(tries < 600, "it is never read again");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(health.is_good());
}
