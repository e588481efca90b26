//! Tests of shared connections, over pipes: their number, their owners, and the end of one.

use std::convert::Infallible;

use futures::FutureExt as _;
use futures::future::join_all;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tenure_tenancy::{Placement, identity};
use tokio_util::sync::CancellationToken;

use super::*;

/// A server at the other end of pipes. It answers `/watch` without an end, and `/flood` with as much as the client takes.
#[derive(Clone, Default)]
struct Server {
    opened: Arc<AtomicUsize>,
    /// The number of streams that the server allows.
    most: Option<u32>,
    /// Whether the server accepts connections and never reads from them.
    is_dead: bool,
    /// Shuts the first connection down gracefully: its open streams continue.
    shutdown: CancellationToken,
}

type Answer = StreamBody<futures::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

fn answer(request: &Request<Incoming>) -> Response<Answer> {
    use futures::StreamExt as _;
    use futures::stream;
    let piece = |bytes: &'static [u8]| Ok(Frame::data(Bytes::from_static(bytes)));
    let body = match request.uri().path() {
        "/watch" => stream::iter([piece(b"event\n")]).chain(stream::pending()).boxed(),
        "/flood" => stream::repeat_with(move || piece(&[0; 16 << 10])).boxed(),
        _ => stream::iter([piece(b"answer")]).boxed(),
    };
    Response::new(StreamBody::new(body))
}

impl Server {
    fn connections(&self) -> SharedConnections {
        self.connections_with((Duration::from_secs(600), Duration::from_secs(600)))
    }

    fn connections_with(&self, patience: (Duration, Duration)) -> SharedConnections {
        let server = self.clone();
        let opener: Opener = Arc::new(move || {
            let server = server.clone();
            async move { Ok(NewConnection::Shareable(server.open())) }.boxed()
        });
        SharedConnections::with_patience(opener, patience)
    }

    fn open(&self) -> Box<dyn Stream> {
        let is_first = self.opened.fetch_add(1, Ordering::SeqCst) == 0;
        let (near, far) = tokio::io::duplex(64 << 10);
        let (most, is_dead, shutdown) = (self.most, self.is_dead, self.shutdown.clone());
        tokio::spawn(async move {
            if is_dead {
                std::future::pending::<()>().await;
            }
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(most);
            let service = service_fn(|request| async move { Ok::<_, Infallible>(answer(&request)) });
            let mut serving = pin!(builder.serve_connection(TokioIo::new(far), service));
            tokio::select! {
                _ended = serving.as_mut() => return,
                () = shutdown.cancelled(), if is_first => {}
            }
            serving.as_mut().graceful_shutdown();
            drop(serving.await);
        });
        Box::new(TokioIo::new(near))
    }

    fn count(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }
}

/// Returns the pool's lane.
fn pool_lane() -> ConnectionOwner {
    let nobody = Placement::Unclaimed {
        default_service_account: "default".to_owned(),
        is_protected: false,
    };
    ConnectionOwner::Lane(identity::decide_for_lane(&nobody, "team"))
}

async fn send(
    connections: &SharedConnections,
    holder: ConnectionOwner,
    purpose: Purpose,
    path: &str,
) -> Result<Response<HeldBody>, BoxError> {
    let request = Request::get(format!("https://server{path}"));
    let mut request = request.body(Body::empty()).expect("a request");
    request.extensions_mut().insert(Channel { holder, purpose });
    connections.clone().send(request).await
}

/// Opens watches, which stay open until the result is dropped.
async fn watch(connections: &SharedConnections, number: usize) -> Vec<Response<HeldBody>> {
    let opened = (0..number).map(|_| send(connections, ConnectionOwner::Controller, Purpose::Watches, "/watch"));
    let opened = join_all(opened).await.into_iter().collect::<Result<_, _>>();
    opened.expect("watches")
}

#[tokio::test]
async fn many_streams_share_few_connections() {
    let server = Server::default();
    let connections = server.connections();
    let watches = watch(&connections, 250).await;
    assert_eq!(server.count(), 3);
    for _ in 0..50 {
        let answer = send(&connections, ConnectionOwner::Controller, Purpose::Requests, "/").await;
        let text = answer.expect("an answer").into_body().collect().await;
        assert_eq!(text.expect("a text").to_bytes(), "answer");
    }
    assert_eq!(server.count(), 4, "what is asked has a connection of its own");
    drop(watches);
    let _again = watch(&connections, 250).await;
    assert_eq!(server.count(), 4, "places are given back");
}

#[tokio::test]
async fn no_connection_carries_more_than_the_server_takes() {
    let server = Server {
        most: Some(5),
        ..Server::default()
    };
    // Every watch has its head, so no watch waits for the end of another.
    let _watches = watch(&server.connections(), 12).await;
    assert_eq!(server.count(), 3);
}

#[tokio::test]
async fn no_lane_shares_a_connection_with_another() {
    let server = Server::default();
    let connections = server.connections();
    let nobody = pool_lane();
    for holder in [
        ConnectionOwner::Controller,
        nobody.clone(),
        ConnectionOwner::Controller,
        nobody,
    ] {
        let answer = send(&connections, holder, Purpose::Requests, "/").await;
        drop(answer.expect("an answer"));
    }
    assert_eq!(server.count(), 2);
}

/// The other streams fill their windows completely.
#[tokio::test]
async fn unread_stream_stalls_no_other_stream() {
    let server = Server::default();
    let connections = server.connections();
    let mut unread = Vec::new();
    for _ in 0..99 {
        unread.push(
            send(&connections, ConnectionOwner::Controller, Purpose::Watches, "/flood")
                .await
                .expect("a flood"),
        );
    }
    let read = send(&connections, ConnectionOwner::Controller, Purpose::Watches, "/flood").await;
    let mut body = read.expect("a flood").into_body();
    let mut bytes = 0;
    while bytes < 4 << 20 {
        let frame = body.frame().await.expect("more").expect("a frame");
        bytes += frame.into_data().map_or(0, |data| data.len());
    }
    assert_eq!(server.count(), 1);
    drop(unread);
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let dead = Server {
        is_dead: true,
        ..Server::default()
    };
    let connections = dead.connections_with((Duration::from_millis(20), Duration::from_millis(20)));
    let sent = send(&connections, ConnectionOwner::Controller, Purpose::Requests, "/").await;
    assert!(sent.is_err());
}

/// An open watch goes on over the old connection.
#[tokio::test]
async fn requests_move_to_another_connection_when_server_shuts_down() {
    let server = Server::default();
    let connections = server.connections();
    let mut watches = watch(&connections, 1).await;
    server.shutdown.cancel();
    let mut asked = 0;
    while server.count() == 1 {
        asked += 1;
        assert!(asked < 10_000, "nothing else was opened");
        drop(
            send(&connections, ConnectionOwner::Controller, Purpose::Watches, "/")
                .await
                .expect("an answer"),
        );
    }
    let body = watches.first_mut().expect("a watch").body_mut();
    let frame = body.frame().await.expect("it goes on").expect("a frame");
    assert_eq!(frame.into_data().expect("data"), "event\n");
}

#[tokio::test]
async fn one_failed_connection_answers_all_waiting_requests() {
    let tried = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tried);
    let opener: Opener = Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::task::yield_now().await;
            Err(OpenError("nobody is there".into()))
        }
        .boxed()
    });
    let connections = SharedConnections::new(opener);
    let sent = (0..40).map(|_| send(&connections, ConnectionOwner::Controller, Purpose::Requests, "/"));
    for sent in join_all(sent).await {
        assert_eq!(sent.err().expect("an error").to_string(), "nobody is there");
    }
    assert_eq!(tried.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn nothing_is_sent_to_http1_server() {
    let opener: Opener = Arc::new(|| async { Ok(NewConnection::Http1) }.boxed());
    let connections = SharedConnections::new(opener);
    let sent = send(&connections, ConnectionOwner::Controller, Purpose::Requests, "/").await;
    assert!(sent.err().expect("an error").is::<SpeaksHttp1>());
    assert!(connections.is_refused());
}

#[tokio::test]
async fn idle_connection_is_closed() {
    let server = Server::default();
    let connections = server.connections();
    let held = watch(&connections, 1).await;
    drop(send(&connections, pool_lane(), Purpose::Requests, "/").await);
    let groups: Vec<Arc<Group>> = lock(&connections.0.channels).open.values().cloned().collect();
    let later = Instant::now() + IDLE + SWEEP;
    groups.iter().for_each(|group| group.close_idle(later));
    let open: usize = groups.iter().map(|group| lock(&group.connections).len()).sum();
    assert_eq!(open, 1, "the one with a stream on it");
    drop(held);
}
