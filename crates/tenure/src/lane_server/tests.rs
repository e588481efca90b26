//! The clients that the lanes' listener accepts, and the bounds for unauthenticated clients.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use tenure_admission::webhook::make_acceptor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::*;

/// Returns an API server that knows these tokens, and counts its reviews.
fn reviews(asked: &Arc<AtomicUsize>) -> kube::Client {
    let asked = Arc::clone(asked);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let asked = Arc::clone(&asked);
        async move {
            asked.fetch_add(1, Ordering::SeqCst);
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let review: Value = serde_json::from_slice(&body).expect("a review");
            assert_eq!(review["spec"]["audiences"], json!([LANE_AUDIENCE]));
            let bound = json!({POD_UID: ["pod-1"]});
            let user = |name: &str, extra: Value, audience: &str| {
                json!({"authenticated": true, "audiences": [audience],
                    "user": {"username": format!("system:serviceaccount:{name}"), "extra": extra}})
            };
            let status = match review["spec"]["token"].as_str().expect("a token") {
                "good" => user("tenure-system:tenure-lane-tenant-blue", bound, LANE_AUDIENCE),
                // The answer of an API server without audiences, or for its own audience.
                "of the API server" => user(
                    "tenure-system:tenure-lane-tenant-blue",
                    bound,
                    "https://kubernetes.default.svc",
                ),
                "of no Pod" => user("tenure-system:tenure-lane-tenant-blue", json!({}), LANE_AUDIENCE),
                "of the hub" => user("tenure-system:tenure-controller", bound, LANE_AUDIENCE),
                "of a tenant" => user("blue:tenure-lane-tenant-blue", bound, LANE_AUDIENCE),
                _ => json!({"authenticated": false, "error": "sesame"}),
            };
            let answer = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status});
            Ok::<_, Infallible>(http::Response::new(kube::client::Body::from(
                answer.to_string().into_bytes(),
            )))
        }
    });
    kube::Client::new(service, "default")
}

fn gate(asked: &Arc<AtomicUsize>) -> Arc<Gate> {
    Arc::new(Gate {
        reviewer: Reviewer::new(reviews(asked), "a test"),
        reviews: Semaphore::new(REVIEWS),
        door: LaneEndpoint::default(),
    })
}

fn greet(token: &str, version: &str) -> Vec<u8> {
    let hello = json!({"version": version, "token": token, "folder": "/data"}).to_string();
    let length = u32::try_from(hello.len()).expect("a length").to_be_bytes();
    [&length[..], hello.as_bytes()].concat()
}

async fn connect() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
    (one.expect("a connection"), other.expect("a connection").0)
}

#[tokio::test]
async fn only_lane_pods_are_let_in() {
    let asked = Arc::default();
    let gate = gate(&asked);
    let version = env!("CARGO_PKG_VERSION");
    let try_in = async |greeting: Vec<u8>| {
        let (mut lane, hub) = connect().await;
        lane.write_all(&greeting).await.expect("a sent greeting");
        let _no_more_comes = lane.shutdown().await;
        gate.let_in(Either::Left(hub)).await.expect_err("nobody leads here")
    };
    // The control: an authenticated client reaches the hub, which doesn't exist here.
    assert_eq!(try_in(greet("good", version)).await, "these controllers don't lead");
    for (token, refused) in [
        ("none", "its token is invalid"),
        ("of the API server", "its token is invalid, or has another audience"),
        ("of no Pod", "is bound to no Pod"),
        ("of the hub", "is not the account of a lane"),
        ("of a tenant", "is not the account of a lane"),
    ] {
        let answer = try_in(greet(token, version)).await;
        assert!(
            answer.contains(refused) && !answer.contains("sesame"),
            "{token}: {answer}"
        );
    }
    let before = asked.load(Ordering::SeqCst);
    for (greeting, refused) in [
        (greet("good", "0.0.0-other"), "another version"),
        (vec![0xff; 64], "no greeting"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "no greeting"),
        (greet(&"x".repeat(20_000), version), "no greeting"),
        (Vec::new(), "no greeting"),
    ] {
        let answer = try_in(greeting).await;
        assert!(answer.contains(refused), "{answer}");
    }
    assert_eq!(
        asked.load(Ordering::SeqCst),
        before,
        "nobody is asked about who says nothing"
    );
}

/// The flood causes no token review.
#[tokio::test]
async fn unauthenticated_flood_leaves_room_for_others() {
    let asked = Arc::default();
    let gate = gate(&asked);
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).expect("a key");
    let acceptor = make_acceptor(vec![made.cert.der().clone()], key, None).expect("an acceptor");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn(Arc::clone(&gate).serve(listener, move || Some(acceptor.clone())));
    let connect_from = async |from: Ipv4Addr| {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((from, 0).into()).expect("an address");
        socket.connect(address).await.expect("a connection")
    };
    let mut held = Vec::new();
    let mut closed = 0;
    for _ in 0..BOUNDS.of_one + 8 {
        held.push(connect_from(Ipv4Addr::LOCALHOST).await);
    }
    // Excess connections are closed at once, and the others get no data.
    for stream in held.iter_mut().rev().take(8) {
        let read = stream.read(&mut [0; 1]).await;
        closed += usize::from(matches!(read, Ok(0) | Err(_)));
    }
    assert_eq!(closed, 8);
    // A client at another address is served: it gets an answer to an invalid handshake.
    let mut other = connect_from(Ipv4Addr::new(127, 0, 0, 2)).await;
    other.write_all(b"no handshake").await.expect("a sent greeting");
    let mut answer = Vec::new();
    let _reset_after_it = other.read_to_end(&mut answer).await;
    assert_eq!(answer.first(), Some(&21), "an alert of TLS: {answer:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    serving.abort();
}

#[test]
fn flags_are_for_lanes_in_pods_and_whole() {
    use clap::Parser as _;
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }
    let read = |words: &[&str], is_wanted| {
        let line = std::iter::once("run").chain(words.iter().copied());
        let settings = Line::try_parse_from(line)
            .expect("flags")
            .flags
            .read_settings(is_wanted);
        settings.map_err(|failure| failure.message)
    };
    assert!(matches!(read(&[], false), Ok(None)));
    assert!(
        read(&["--lane-image=a:1"], false)
            .expect_err("refused")
            .contains("--lane-image")
    );
    assert!(read(&[], true).expect_err("refused").contains("--lane-address"));
    assert!(
        read(&["--lane-address=9643"], true)
            .expect_err("refused")
            .contains("--lane-image")
    );
    let whole = read(&["--lane-address=9643", "--lane-image=a:1"], true).expect("settings");
    assert_eq!(whole.expect("some").place, "tenure-lanes.tenure-system.svc:9643");
    for place in ["host", "https://host:1", "u@host:1", ":1"] {
        assert!(parse_place(place).is_err(), "{place}");
    }
    assert_eq!(describe_certificate("[::1]:9").names, ["::1"]);
    assert_eq!(describe_certificate("hub.svc:9").names, ["hub.svc"]);
}
