//! Clients of API servers for commands. A read whose connection ended is repeated, as kubectl does. A write is never repeated.

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use kube::client::Body;

use crate::connection_failure::{ConnectionFailure, find_certificate_problem};

/// The number of retries of a read, and the pause before each: both are client-go's (`rest.withRetry`).
const RETRIES: usize = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// The errors of a connection that was open.
const LOST: [ErrorKind; 3] = [
    ErrorKind::ConnectionReset,
    ErrorKind::UnexpectedEof,
    ErrorKind::BrokenPipe,
];

/// Returns a client of the API server in a configuration, with its credentials.
///
/// API servers close connections at any time: when they stop, and when they can't finish an answer. kubectl then repeats a read, and so does this client.
///
/// The `read_timeout` of the configuration limits each whole request, with its answer, as kubectl's --request-timeout does. A watch or another stream is limited until its
/// answer begins.
///
/// # Errors
/// Fails when the address, the authority or the credentials can't be used.
pub(crate) fn open_client(mut config: kube::Config) -> Result<kube::Client, kube::Error> {
    let namespace = config.default_namespace.clone();
    // With `read_timeout`, kube's own client would also end an idle watch after this time.
    let timeout = config.read_timeout.take();
    let server = name_server(&config.cluster_url);
    let problem = find_certificate_problem(&config, Timestamp::now());
    let client = kube::Client::try_from(config)?;
    let pace = RequestTimes { pause: PAUSE, timeout };
    Ok(repeat_reads(client, (server, problem), namespace, pace))
}

/// Returns the address of a server for messages, without a path and without credentials.
fn name_server(url: &http::Uri) -> String {
    let authority = url.authority().map(|authority| match authority.port() {
        Some(port) => format!("{}:{port}", authority.host()),
        None => authority.host().to_owned(),
    });
    format!(
        "{}://{}",
        url.scheme_str().unwrap_or("https"),
        authority.unwrap_or_default()
    )
}

/// The pause before a retry, and the longest time of a request.
#[derive(Clone, Copy)]
struct RequestTimes {
    /// The pause before a retry.
    pause: Duration,
    /// The longest time of a request.
    timeout: Option<Duration>,
}

/// Returns a client that repeats reads. `server` is its address for messages, and the reason why no server accepts the user's certificate.
fn repeat_reads(
    client: kube::Client,
    server: (String, Option<String>),
    namespace: String,
    pace: RequestTimes,
) -> kube::Client {
    let service = tower::service_fn(move |request| {
        let (client, (server, problem)) = (client.clone(), server.clone());
        async move {
            match (send_in_time(&client, request, pace).await, problem) {
                (Ok(answer), Some(problem)) if answer.status() == StatusCode::UNAUTHORIZED => Err(
                    kube::Error::Service(Box::new(ConnectionFailure::of_own_certificate(&problem))),
                ),
                // The answers of the server stay as they are, and so do errors before the connection.
                (Err(error @ (kube::Error::Service(_) | kube::Error::HyperError(_))), _) => Err(kube::Error::Service(
                    Box::new(ConnectionFailure::new(&server, error.into())),
                )),
                (sent, _) => sent,
            }
        }
    });
    kube::Client::new(service, namespace)
}

/// Sends a request within the timeout. An answer that is no stream is read within it, too.
async fn send_in_time(
    client: &kube::Client,
    request: Request<Body>,
    pace: RequestTimes,
) -> Result<Response<Body>, kube::Error> {
    let Some(timeout) = pace.timeout else {
        return send(client, request, pace.pause).await;
    };
    let is_stream = is_stream(request.uri());
    let sent = async {
        let (head, body) = send(client, request, pace.pause).await?.into_parts();
        if is_stream {
            return Ok(Response::from_parts(head, body));
        }
        let whole = http_body_util::BodyExt::collect(body).await?;
        Ok(Response::from_parts(head, Body::from(whole.to_bytes())))
    };
    match tokio::time::timeout(timeout, sent).await {
        Ok(sent) => sent,
        Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
    }
}

/// Whether the answer to a request is a stream without an end.
fn is_stream(uri: &http::Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .any(|part| matches!(part, "watch=true" | "watch=1" | "watch" | "follow=true"))
}

/// Sends a request. A read whose connection ends without an answer is repeated after a pause.
async fn send(
    client: &kube::Client,
    mut request: Request<Body>,
    pause: Duration,
) -> Result<Response<Body>, kube::Error> {
    for _ in 0..RETRIES {
        let Some(again) = copy_read(&request) else { break };
        match client.send(request).await {
            Err(error) if is_lost_connection(&error) => tokio::time::sleep(pause).await,
            sent => return sent,
        }
        request = again;
    }
    client.send(request).await
}

/// Returns a copy of a read request; `None` for other methods.
fn copy_read(request: &Request<Body>) -> Option<Request<Body>> {
    if request.method() != Method::GET {
        return None;
    }
    let mut copy = Request::new(request.body().try_clone()?);
    request.method().clone_into(copy.method_mut());
    request.uri().clone_into(copy.uri_mut());
    request.headers().clone_into(copy.headers_mut());
    request.extensions().clone_into(copy.extensions_mut());
    Some(copy)
}

/// Whether an open connection ended without an answer. A refused connection doesn't count, because no server listens there.
fn is_lost_connection(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let is_incomplete = error
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_incomplete_message);
        let is_broken = error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| LOST.contains(&error.kind()));
        if is_incomplete || is_broken {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Starts a server that closes the first connections after a read, and answers later ones. Returns a client, and a task that counts the connections.
    async fn serve_after(closed: usize) -> (kube::Client, tokio::task::JoinHandle<usize>) {
        let pace = RequestTimes {
            pause: Duration::ZERO,
            timeout: None,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let served = tokio::spawn(async move {
            for count in 1.. {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut start = [0; 16];
                stream.read_exact(&mut start).await.expect("a request");
                if count > closed {
                    let body = r#"{"major": "1", "minor": "36"}"#;
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                        body.len()
                    );
                    stream.write_all(answer.as_bytes()).await.expect("written");
                    stream.shutdown().await.expect("closed");
                    return count;
                }
            }
            unreachable!("numbers end")
        });
        let config = kube::Config::new(format!("http://{address}").parse().expect("an address"));
        let client = kube::Client::try_from(config).expect("a client");
        let (server, namespace) = (("http://test".to_owned(), None), "default".to_owned());
        (repeat_reads(client, server, namespace, pace), served)
    }

    fn write_request(method: Method) -> Request<Vec<u8>> {
        Request::builder()
            .method(method)
            .uri("/version")
            .body(b"{}".to_vec())
            .expect("a request")
    }

    #[tokio::test]
    async fn a_read_is_made_again_when_its_connection_ends() {
        let (client, served) = serve_after(RETRIES).await;
        let answer: serde_json::Value = client.request(write_request(Method::GET)).await.expect("an answer");
        assert_eq!(answer["minor"], "36");
        assert_eq!(served.await.expect("an end"), RETRIES + 1);
    }

    #[tokio::test]
    async fn a_write_is_made_once() {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let (client, served) = serve_after(1).await;
            let lost = client
                .request::<serde_json::Value>(write_request(method))
                .await
                .expect_err("no answer");
            assert!(is_lost_connection(&lost), "{lost:?}");
            assert!(!served.is_finished());
            served.abort();
        }
    }

    /// The server accepts connections and never answers.
    #[tokio::test]
    async fn a_silent_server_ends_a_request_with_a_timeout() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut config = kube::Config::new(format!("http://{address}").parse().expect("an address"));
        config.read_timeout = Some(Duration::from_millis(1));
        let client = open_client(config).expect("a client");
        let refused = client.request::<serde_json::Value>(write_request(Method::GET)).await;
        let failure = ConnectionFailure::find(&refused.expect_err("a timeout")).map(ToString::to_string);
        assert_eq!(failure, Some(format!("http://{address} did not answer in time")));
    }

    #[test]
    fn only_streams_have_no_timeout() {
        let check = |path: &str| is_stream(&path.parse().expect("a path"));
        assert!(check("/api/v1/pods?watch=true&resourceVersion=1") && check("/log?follow=true"));
        assert!(!check("/api/v1/pods?limit=500") && !check("/api/v1/watch"));
    }

    /// Without a listening server, the user gets the error at once.
    #[tokio::test]
    async fn connection_to_missing_server_fails_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let config = kube::Config::new(format!("http://{address}").parse().expect("an address"));
        let client = open_client(config).expect("a client");
        let refused = client.request::<serde_json::Value>(write_request(Method::GET)).await;
        let refused = refused.expect_err("nothing listens");
        assert!(!is_lost_connection(&refused));
        let failure = ConnectionFailure::find(&refused).expect("a failed connection");
        assert_eq!(
            failure.to_string(),
            format!("nothing listens at http://{address} (connection refused)")
        );
    }
}
