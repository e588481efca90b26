//! A stand-in for etcd, for programs that start one before their API server, as envtest does. It tells the API server its folder, and answers a health check; the API
//! server stores its data there itself. No key can be read or written.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use crate::failure::Failure;
use crate::interruption;

/// The path that returns the folder.
const FOLDER: &str = "/tenure/folder";
/// The longest answer, longer than every path.
const LONGEST_ANSWER: usize = 16 * 1024;
/// The timeout for a request; both ends are on this machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Stand in for etcd: tell the API server its data folder.
#[derive(Debug, Args)]
pub(crate) struct Etcd {
    /// Folder in which the API server stores its data.
    #[arg(long, value_name = "DIR", default_value = "default.etcd")]
    data_dir: PathBuf,
    /// Loopback address to listen on: http://127.0.0.1:PORT.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:2379")]
    listen_client_urls: String,
    /// Accepted without effect, since etcd has the flag. The program that starts the API server tells it the address.
    #[arg(long, value_name = "URL")]
    advertise_client_urls: Option<String>,
    /// Accepted without effect, since etcd has the flag. There are no peers.
    #[arg(long, value_name = "URL")]
    listen_peer_urls: Option<String>,
}

impl Etcd {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let address = check_loopback("--listen-client-urls", &self.listen_client_urls)?;
        let failure = |error: std::io::Error| Failure::environment(format!("{}: {error}", self.data_dir.display()));
        std::fs::create_dir_all(&self.data_dir).map_err(failure)?;
        let folder = self.data_dir.canonicalize().map_err(failure)?;
        let folder = folder
            .to_str()
            .ok_or_else(|| Failure::usage(format!("--data-dir: {} is not in UTF-8", folder.display())))?;
        let folder = Bytes::from(folder.to_owned());
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Failure::environment(format!("can't listen on {address}: {error}")))?;
        tokio::select! {
            () = serve(listener, folder) => {}
            ended = interruption::wait_for_signal() => ended?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn serve(listener: TcpListener, folder: Bytes) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let folder = folder.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let answer = answer_request(&request, &folder);
                async move { Ok::<_, Infallible>(answer) }
            });
            let _ended = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn answer_request(request: &Request<hyper::body::Incoming>, folder: &Bytes) -> Response<Full<Bytes>> {
    let (status, body) = match request.uri().path() {
        "/health" => (
            StatusCode::OK,
            Bytes::from_static(b"{\"health\":\"true\",\"reason\":\"\"}"),
        ),
        FOLDER => (StatusCode::OK, folder.clone()),
        _ => (
            StatusCode::NOT_FOUND,
            Bytes::from_static(b"this is tenure in the place of etcd: it stores nothing\n"),
        ),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}

/// Asks the stand-in at `url` for the folder.
pub(crate) async fn read_folder(url: &str) -> Result<PathBuf, Failure> {
    let address = check_loopback("--etcd-servers", url)?;
    let failure = |why: &str| {
        Failure::environment(format!("--etcd-servers: {url} is not tenure in the place of etcd: {why}"))
            .hint("objects are stored in files of this program: start this program under the name of etcd, or name a folder with `tenure up --data DIR`")
    };
    let asked = tokio::time::timeout(PATIENCE, ask_server(address))
        .await
        .map_err(|_| failure("it doesn't answer"))?;
    let folder = asked.map_err(|why| failure(&why))?;
    let folder = PathBuf::from(folder);
    if folder.is_absolute() {
        Ok(folder)
    } else {
        Err(failure("it names no folder"))
    }
}

async fn ask_server(address: SocketAddr) -> Result<String, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    let request = Request::get(FOLDER)
        .header(http::header::HOST, address.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    if response.status() != StatusCode::OK {
        return Err(format!("it answers {}", response.status()));
    }
    let body = Limited::new(response.into_body(), LONGEST_ANSWER);
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    String::from_utf8(body.to_vec()).map_err(|_| "its answer is not in UTF-8".to_owned())
}

/// Reads the address in `http://127.0.0.1:2379`; only loopback is allowed.
fn check_loopback(flag: &str, url: &str) -> Result<SocketAddr, Failure> {
    let failure = || {
        Failure::usage(format!("{flag}: {url:?} is not an address on the loopback"))
            .hint(format!("{flag}=http://127.0.0.1:2379"))
    };
    let rest = url.strip_prefix("http://").ok_or_else(failure)?;
    let rest = rest.trim_end_matches('/').replace("localhost", "127.0.0.1");
    let address: SocketAddr = rest.parse().map_err(|_| failure())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(failure())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_stand_in_reports_its_folder() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(serve(listener, Bytes::from_static(b"/some/folder")));
        assert_eq!(read_folder(&url).await.unwrap(), PathBuf::from("/some/folder"));
    }

    #[test]
    fn etcd_url_is_accepted_only_on_loopback() {
        for (url, ok) in [
            ("http://127.0.0.1:2379", true),
            ("http://localhost:1/", true),
            ("http://[::1]:2379", true),
            ("http://10.0.0.1:2379", false),
            ("https://127.0.0.1:2379", false),
            ("http://127.0.0.1", false),
            ("", false),
        ] {
            assert_eq!(check_loopback("--etcd-servers", url).is_ok(), ok, "{url}");
        }
    }
}
