//! A receiver of events over plain HTTP on this machine. It stores the requests, and answers as a test wants, also
//! with errors.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::{SOON, eventually};

/// The longest request that is stored.
const LONGEST: usize = 1 << 20;

/// The way in which the server answers a request.
#[derive(Clone, Debug)]
pub enum Manner {
    /// This status, and no body.
    Status(u16),
    /// This status, these headers and this body.
    Full(u16, Vec<(String, String)>, String),
    /// This status, with the whole request as the body.
    Quote(u16),
    /// No answer; the connection stays open until the client closes it.
    Silent,
    /// A body that does not end.
    Flood,
    /// No answer: the connection is closed.
    HangUp,
}

/// A request that a [`NoticeServer`] has received.
#[derive(Clone, Debug)]
pub struct Notice {
    /// `GET`, `POST`.
    pub method: String,
    /// The path and the query.
    pub target: String,
    /// The headers, by their names in lower case; a repeated header has one value, joined with commas.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
}

impl Notice {
    /// Returns the body as JSON; null if the body is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The received requests and the coming answers of a server, which all its connections share.
#[derive(Debug, Default)]
struct Shared {
    notices: Mutex<Vec<Notice>>,
    manners: Mutex<HashMap<String, VecDeque<Manner>>>,
    /// Number of requests to each path that wait for an answer that never comes.
    waiting: Mutex<HashMap<String, usize>>,
}

/// An HTTP server on this machine that stores the requests it receives, and answers as a test wants.
#[derive(Debug)]
pub struct NoticeServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
}

impl Drop for NoticeServer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl NoticeServer {
    /// Starts to listen.
    ///
    /// # Errors
    /// If the system refuses the listener.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&own)));
            }
        });
        Ok(Self {
            address,
            shared,
            listening,
        })
    }

    /// Returns `http://host:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the answers to the next requests to a path, one after the other; the last one stays. The default is 200.
    pub fn behave(&self, path: &str, manners: impl IntoIterator<Item = Manner>) {
        let manners = manners.into_iter().collect();
        self.shared.manners.lock().insert(path.to_owned(), manners);
    }

    /// Returns the requests to a path.
    #[must_use]
    pub fn list(&self, path: &str) -> Vec<Notice> {
        let notices = self.shared.notices.lock();
        let of_path = notices.iter().filter(|notice| path_of_target(&notice.target) == path);
        of_path.cloned().collect()
    }

    /// Returns all requests.
    #[must_use]
    pub fn list_all(&self) -> Vec<Notice> {
        self.shared.notices.lock().clone()
    }

    /// Returns the number of clients that currently wait for an answer from a path that is [`Manner::Silent`].
    #[must_use]
    pub fn count_waiting(&self, path: &str) -> usize {
        self.shared.waiting.lock().get(path).copied().unwrap_or(0)
    }

    /// Waits for a request to a path that satisfies `is_meant`; returns the first.
    ///
    /// # Errors
    /// The requests that came instead, after a timeout.
    pub async fn wait_for(&self, path: &str, is_meant: impl Fn(&Notice) -> bool) -> Result<Notice, String> {
        let find_request = || {
            let found = self.list(path).into_iter().find(|notice| is_meant(notice));
            let other = || {
                let came = self.list_all();
                let listed = came.iter().map(|notice| format!("{} {}", notice.method, notice.target));
                format!("no matching request came to {path}: {:?}", listed.collect::<Vec<_>>())
            };
            std::future::ready(found.ok_or_else(other))
        };
        eventually(SOON, find_request).await
    }
}

fn path_of_target(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    while let Some(notice) = read(&mut stream).await {
        let path = path_of_target(&notice.target).to_owned();
        let manner = {
            let mut manners = shared.manners.lock();
            let of_path = manners.get_mut(&path);
            of_path.and_then(|list| {
                if list.len() > 1 {
                    list.pop_front()
                } else {
                    list.front().cloned()
                }
            })
        };
        shared.notices.lock().push(notice.clone());
        if matches!(manner, Some(Manner::Silent)) {
            *shared.waiting.lock().entry(path.clone()).or_default() += 1;
            wait_until_closed(&mut stream).await;
            *shared.waiting.lock().entry(path).or_default() -= 1;
            return;
        }
        if !answer_notice(&mut stream, &notice, manner.unwrap_or(Manner::Status(200))).await {
            return;
        }
    }
}

async fn wait_until_closed(stream: &mut TcpStream) {
    let mut ignored = [0; 1024];
    while stream.read(&mut ignored).await.is_ok_and(|length| length > 0) {}
}

async fn answer_notice(stream: &mut TcpStream, notice: &Notice, manner: Manner) -> bool {
    let (status, headers, body) = match manner {
        Manner::Status(status) => (status, Vec::new(), Vec::new()),
        Manner::Full(status, headers, body) => (status, headers, body.into_bytes()),
        Manner::Quote(status) => {
            let quoted = format!("{:?} {}", notice.headers, String::from_utf8_lossy(&notice.body));
            (status, Vec::new(), quoted.into_bytes())
        }
        Manner::Silent | Manner::HangUp => return false,
        Manner::Flood => {
            let head = "HTTP/1.1 200 x\r\ncontent-type: application/json\r\n\r\n";
            let mut going = stream.write_all(head.as_bytes()).await.is_ok();
            while going {
                going = stream.write_all(&[b'['; 4096]).await.is_ok();
            }
            return false;
        }
    };
    let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.is_ok() && stream.write_all(&body).await.is_ok()
}

/// Reads a request; `None` if the connection has ended or the request is invalid.
async fn read(stream: &mut TcpStream) -> Option<Notice> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > LONGEST || stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(bytes.get(..end)?).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        let known = headers.entry(name.to_ascii_lowercase()).or_default();
        *known = if known.is_empty() {
            value.to_owned()
        } else {
            format!("{known}, {value}")
        };
    }
    let length: usize = headers
        .get("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let begin = end + 4;
    while bytes.len() < begin + length {
        if bytes.len() > LONGEST || stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(Notice {
        method,
        target,
        headers,
        body: bytes.get(begin..begin + length)?.to_vec(),
    })
}
