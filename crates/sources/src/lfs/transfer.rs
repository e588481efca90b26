//! The requests of one fetch to servers of Git LFS, over the dialer, and the contents that arrive.
//!
//! Objects are requested in batches. A few connections receive the contents of a batch into files of the store, within the fetch's limits and budgets. The size is
//! checked before and while a content arrives, and the hash at its end. No message has the path or the query of an object's address.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures::future::try_join_all;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use super::batch::{self, Action, Address, AnswerProblem, BATCH, Download, MEDIA_TYPE, WantedObject};
use super::plan::add_path;
use super::replacement::Place;
use super::server::LfsServer;
use crate::artifact::{ArtifactStore, IncomingFile, TaskWrite as _};
use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::fetch_budgets::{self, FetchBudgets, GrowingCharge};
use crate::git::lfs_pointer::{ObjectId, Pointer};
use crate::http::{HttpAnswer, HttpClient, HttpRequest, Location};
use crate::limits::describe_bytes;
use crate::pack_transfer::RemoteRepository;
use crate::policy::Scheme;
use crate::secret::{Credentials, TlsOptions};
use crate::ssh;

/// Bytes that writing an archive again takes.
pub(crate) const REPLACING_BYTES: u64 = 512 << 10;
/// Servers look for "git-lfs/" at the beginning.
const AGENT: &str = concat!("git-lfs/3.5 (tenure/", env!("CARGO_PKG_VERSION"), ")");
/// Contents that arrive at the same time.
const CONNECTIONS: usize = 4;
/// Bytes of the buffers of a connection.
const CONNECTION_BYTES: u64 = 512 << 10;
/// The longest answer to a batch, and the bytes of memory that each byte of it takes.
const ANSWER_BYTES: u64 = 2 << 20;
const PARSED: u64 = 4;
/// Bytes of an error that are read.
const ERROR_BYTES: u64 = 16 << 10;
/// Bytes of a content that are read at a time.
const PIECE: usize = 64 << 10;

/// Memory that the connections of a fetch use together.
type SharedCharge = tokio::sync::Mutex<GrowingCharge>;

/// Fetches the contents of Git LFS files of one repository, within the limits and budgets of a fetch.
pub(crate) struct LfsTransfer<'a> {
    pub(crate) remote: &'a RemoteRepository,
    /// The full name of the fetched reference, if the commit has one.
    pub(crate) reference: Option<&'a str>,
    pub(crate) dialer: &'a Dialer,
    pub(crate) store: &'a ArtifactStore,
    pub(crate) account: &'a FetchBudgets,
    pub(crate) deadline: Instant,
}

/// The address of a Git LFS API, with the credentials and headers for requests to it.
struct Api {
    address: Address,
    credentials: Credentials,
    /// The headers that an ssh server gave for it.
    headers: HeaderMap,
    tls: TlsOptions,
}

/// The contents of Git LFS files that have arrived, by their object ids and paths.
#[derive(Default)]
pub(crate) struct Contents {
    /// The files in which the contents are stored, one content after the other.
    files: Vec<IncomingFile>,
    /// The number of the file, the offset in it, and the size.
    places: HashMap<ObjectId, (usize, u64, u64)>,
    /// The object that each path of the archive needs.
    paths: BTreeMap<String, ObjectId>,
}

impl Contents {
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns the place of the content for each path of the archive.
    pub(crate) fn find(&self) -> BTreeMap<&str, Place<'_>> {
        let find = |id: &ObjectId| {
            let Some((index, offset, size)) = self.places.get(id).copied() else {
                // Only empty contents are not requested.
                return Some(Place::EMPTY);
            };
            let file = Some(self.files.get(index)?.file());
            Some(Place { file, offset, size })
        };
        let paths = self.paths.iter();
        paths
            .filter_map(|(path, id)| Some((path.as_str(), find(id)?)))
            .collect()
    }
}

impl LfsTransfer<'_> {
    /// Fetches the contents of files that are not in `contents` yet.
    ///
    /// `held` bytes of memory are charged besides, for the list of the files.
    pub(crate) async fn fetch(
        &self,
        server: LfsServer,
        files: &[(&str, Pointer)],
        held: u64,
        contents: &mut Contents,
    ) -> Result<(), FetchError> {
        let objects = batch::list_objects(files.iter().copied());
        let mut objects = objects.map_err(|(path, problem)| {
            let problem = problem.to_owned();
            add_path(&path, FetchError::InvalidPointer { problem })
        })?;
        objects.retain(|object| !contents.places.contains_key(&object.id));
        contents
            .paths
            .extend(files.iter().map(|(path, pointer)| ((*path).to_owned(), pointer.id)));
        let Some(first) = objects.first().map(|object| object.path.clone()) else {
            return Ok(());
        };
        let connections = CONNECTIONS.min(objects.len());
        let needed = held.saturating_add(CONNECTION_BYTES.saturating_mul(connections as u64 + 1));
        let memory = self
            .account
            .memory
            .acquire(&self.account.lane, needed, self.deadline)
            .await?;
        let memory = SharedCharge::new(GrowingCharge::new_used(memory));
        let api = self.find_api(server).await.map_err(|error| add_path(&first, error))?;
        while contents.files.len() < connections {
            contents.files.push(self.store.incoming_file(&self.account.lane)?);
        }
        let mut clients: Vec<HttpClient> = (0..connections).map(|_| self.make_client(&api)).collect();
        for objects in objects.chunks(BATCH) {
            let before = memory.lock().await.mark();
            let Some(client) = clients.first_mut() else { break };
            let batch = self.request_batch(&api, client, objects, &memory).await?;
            let queue = Mutex::new(VecDeque::from(batch));
            let workers = clients.iter_mut().zip(contents.files.iter_mut()).enumerate();
            let workers = workers.map(|(index, (client, file))| {
                let target = (index, file);
                self.receive_all(&api, client, target, (&queue, &memory))
            });
            for places in try_join_all(workers).await? {
                contents.places.extend(places);
            }
            memory.lock().await.return_to(before);
        }
        for file in &mut contents.files {
            file.complete();
        }
        Ok(())
    }

    /// Returns the API of a server. For an ssh server, asks it for the address of the API and the headers.
    async fn find_api(&self, server: LfsServer) -> Result<Api, FetchError> {
        let remote = match server {
            LfsServer::Http(base) => {
                let target = base.path().to_owned();
                return Ok(Api {
                    address: Address {
                        endpoint: base.endpoint().clone(),
                        target,
                    },
                    credentials: self.remote.credentials.clone(),
                    headers: HeaderMap::new(),
                    tls: self.remote.tls.clone(),
                });
            }
            LfsServer::Ssh(remote) => remote,
        };
        let answer = ssh::authenticate_lfs(self.dialer, &remote, &self.remote.credentials).await?;
        let unusable = |problem: &str| FetchError::HttpApi {
            url: remote.to_string(),
            problem: problem.to_owned(),
        };
        // The parser's error could quote the answer, which has a token.
        let action: Action = serde_json::from_slice(&answer).map_err(|_| {
            unusable("the answer to git-lfs-authenticate is not its JSON; use the https URL of the repository")
        })?;
        let (mut address, headers) = action.read().map_err(&unusable)?;
        if address.endpoint.scheme != Scheme::Https || address.target.contains('?') {
            return Err(unusable(
                "git-lfs-authenticate leads from ssh to a URL that is not plain https; use the https URL of the repository",
            ));
        }
        address.target = address.target.trim_end_matches('/').to_owned();
        Ok(Api {
            address,
            credentials: Credentials::Anonymous,
            headers,
            // A client certificate is for the host of the source's own URL.
            tls: TlsOptions {
                ca: self.remote.tls.ca.clone(),
                client: None,
            },
        })
    }

    fn make_client(&self, api: &Api) -> HttpClient {
        HttpClient::new(
            self.dialer.clone(),
            &api.address.endpoint,
            &api.credentials,
            &api.tls,
            AGENT,
        )
    }

    /// Asks the API for the addresses of these objects' contents.
    async fn request_batch(
        &self,
        api: &Api,
        client: &mut HttpClient,
        objects: &[WantedObject],
        memory: &SharedCharge,
    ) -> Result<Vec<Download>, FetchError> {
        let first = objects.first().map(|object| object.path.as_str()).unwrap_or_default();
        let bytes = self.post_batch(api, client, objects, memory).await;
        let bytes = bytes.map_err(|error| add_path(first, error))?;
        batch::read_answer(&bytes, objects, Timestamp::now()).map_err(|problem| match problem {
            AnswerProblem::Refused { path, code, words } => {
                let error = FetchError::LfsRefused {
                    url: api.address.endpoint.to_string(),
                    code,
                    problem: batch::explain_status(code),
                    words: self.clean_words(&words),
                    retry_after: None,
                };
                add_path(&path, error)
            }
            AnswerProblem::Unusable { path, problem } => {
                let url = api.address.endpoint.to_string();
                let error = FetchError::HttpApi { url, problem };
                add_path(path.as_deref().unwrap_or(first), error)
            }
        })
    }

    /// Sends a batch request, and returns the body of its answer.
    async fn post_batch(
        &self,
        api: &Api,
        client: &mut HttpClient,
        objects: &[WantedObject],
        memory: &SharedCharge,
    ) -> Result<Vec<u8>, FetchError> {
        let media_type = HeaderValue::from_static(MEDIA_TYPE);
        let common = HeaderMap::from_iter([(ACCEPT, media_type.clone()), (CONTENT_TYPE, media_type)]);
        let mut headers = api.headers.clone();
        headers.extend(common.clone());
        let request = HttpRequest {
            method: Method::POST,
            endpoint: api.address.endpoint.clone(),
            target: format!("{}/objects/batch", api.address.target),
            headers,
            body: batch::write_request(objects, self.reference).into(),
            shown: format!("{}{}", api.address.endpoint, api.address.target),
        };
        client.set_credentials(api.credentials.clone());
        let follow = |from: &HttpRequest, location| follow_redirect(from, location, &common);
        let answer = client.send_and_follow(request, follow).await?;
        if answer.status() != StatusCode::OK {
            // Headers of an ssh server are no credentials of the Secret.
            let unauthorized = if api.headers.is_empty() {
                client.refuse_unauthorized(&answer)
            } else {
                Ok(())
            };
            return Err(self.explain_answer(answer, unauthorized, batch::explain_status).await);
        }
        answer.refuse_encoding()?;
        let url = answer.requested_address().to_owned();
        let mut body = answer.into_body();
        let (mut bytes, mut piece) = (Vec::new(), vec![0; PIECE]);
        loop {
            let read = body.read(&mut piece).await;
            let length = read.map_err(|error| FetchError::Broken {
                url: url.clone(),
                problem: error.to_string(),
            })?;
            if length == 0 {
                return Ok(bytes);
            }
            let parsed = PARSED.saturating_mul(length as u64);
            memory.lock().await.add(parsed).await?;
            bytes.extend_from_slice(piece.get(..length).unwrap_or_default());
            if bytes.len() as u64 > ANSWER_BYTES {
                return Err(FetchError::HttpApi {
                    url,
                    problem: format!(
                        "its answer about files in LFS is longer than {}",
                        describe_bytes(ANSWER_BYTES)
                    ),
                });
            }
        }
    }

    /// Explains an answer other than success, with the server's words.
    async fn explain_answer(
        &self,
        answer: HttpAnswer,
        unauthorized: Result<(), FetchError>,
        explain: fn(u16) -> &'static str,
    ) -> FetchError {
        let (status, retry_after, url) = (
            answer.status(),
            answer.retry_after(),
            answer.requested_address().to_owned(),
        );
        let mut bytes = Vec::new();
        // An unreadable body is ignored: the status suffices.
        let _ = answer.into_body().take(ERROR_BYTES).read_to_end(&mut bytes).await;
        let words = self.clean_words(&batch::read_words(&bytes));
        match unauthorized {
            Err(FetchError::Unauthorized { url, mut problem }) => {
                if !words.is_empty() {
                    problem.push_str(&format!("; it says: {words}"));
                }
                FetchError::Unauthorized { url, problem }
            }
            Err(error) => error,
            Ok(()) => FetchError::LfsRefused {
                url,
                code: status.as_u16(),
                problem: explain(status.as_u16()),
                words,
                retry_after,
            },
        }
    }

    /// Returns a server's words for a message, without the source's credentials.
    fn clean_words(&self, words: &str) -> String {
        let secrets: [&str; 2] = match &self.remote.credentials {
            Credentials::Anonymous => ["", ""],
            Credentials::Basic { password, .. } => [password.reveal(), ""],
            Credentials::Bearer(token) => [token.reveal(), ""],
            Credentials::SshKey {
                identity, passphrase, ..
            } => [
                identity.reveal(),
                passphrase.as_ref().map_or("", |passphrase| passphrase.reveal()),
            ],
        };
        batch::clean_words(words, secrets)
    }

    /// Receives contents from the queue, one after the other, into a file. Returns their places.
    async fn receive_all(
        &self,
        api: &Api,
        client: &mut HttpClient,
        (index, file): (usize, &mut IncomingFile),
        (queue, memory): (&Mutex<VecDeque<Download>>, &SharedCharge),
    ) -> Result<Vec<(ObjectId, (usize, u64, u64))>, FetchError> {
        let mut places = Vec::new();
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        while let Some(download) = next() {
            let WantedObject { id, size, path } = download.object.clone();
            let download = self.renew_download(api, client, download, memory).await?;
            let offset = file.length();
            let received = self.receive_content(api, client, &download, file).await;
            received.map_err(|error| add_path(&path, error))?;
            places.push((id, (index, offset, size)));
        }
        Ok(places)
    }

    /// Receives one content at the end of a file.
    async fn receive_content(
        &self,
        api: &Api,
        client: &mut HttpClient,
        download: &Download,
        file: &mut IncomingFile,
    ) -> Result<(), FetchError> {
        let (endpoint, object) = (&download.address.endpoint, &download.object);
        if api.address.endpoint.scheme == Scheme::Https && endpoint.scheme != api.address.endpoint.scheme {
            return Err(FetchError::Redirect {
                from: api.address.endpoint.to_string(),
                to: endpoint.to_string(),
                problem: "it leads from https to http",
            });
        }
        let mut headers = download.headers.clone();
        let wants_login =
            *endpoint == api.address.endpoint && !download.is_authenticated && !headers.contains_key(AUTHORIZATION);
        if wants_login {
            for (name, value) in &api.headers {
                headers.entry(name).or_insert_with(|| value.clone());
            }
        }
        client.set_credentials(if wants_login {
            api.credentials.clone()
        } else {
            Credentials::Anonymous
        });
        let request = HttpRequest {
            method: Method::GET,
            endpoint: endpoint.clone(),
            target: download.address.target.clone(),
            headers,
            body: Bytes::new(),
            shown: endpoint.to_string(),
        };
        let none = HeaderMap::new();
        let follow = |from: &HttpRequest, location| follow_redirect(from, location, &none);
        let answer = client.send_and_follow(request, follow).await?;
        if answer.status() != StatusCode::OK {
            let unauthorized = if wants_login {
                client.refuse_unauthorized(&answer)
            } else {
                Ok(())
            };
            return Err(self.explain_answer(answer, unauthorized, explain_download).await);
        }
        answer.refuse_encoding()?;
        let url = answer.requested_address().to_owned();
        let wrong_size = |found: &str| FetchError::HttpApi {
            url: url.clone(),
            problem: format!("its content has {found}, and the pointer says {}", object.size),
        };
        let announced = answer
            .headers(&CONTENT_LENGTH)
            .next()
            .and_then(|text| text.parse::<u64>().ok());
        if let Some(announced) = announced.filter(|announced| *announced != object.size) {
            return Err(wrong_size(&format!("{announced} bytes")));
        }
        let mut body = answer.into_body();
        let path = file.path().to_owned();
        let failed = |error: std::io::Error| match fetch_budgets::find_refusal(&error) {
            Some(refused) => refused.into(),
            None => FetchError::Storage(self.store.io_error("write", &path, error)),
        };
        // This task writes to the disk itself: pieces of 64 KiB go to the page cache, so the task blocks only briefly.
        let mut out = file.task_writer(self.store);
        let (mut hash, mut size, mut piece) = (Sha256::new(), 0_u64, vec![0; PIECE]);
        loop {
            let read = body.read(&mut piece).await;
            let length = read.map_err(|error| FetchError::Broken {
                url: url.clone(),
                problem: error.to_string(),
            })?;
            if length == 0 {
                break;
            }
            size = size.saturating_add(length as u64);
            if size > object.size {
                return Err(wrong_size("more bytes"));
            }
            let bytes = piece.get(..length).unwrap_or_default();
            hash.update(bytes);
            out.write_ready(bytes).await.map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        if size < object.size {
            return Err(wrong_size(&format!("{size} bytes")));
        }
        if hash.finalize().as_slice() != object.id.0 {
            let problem = "its content has another SHA-256 than the pointer says; it was changed or damaged there";
            return Err(FetchError::HttpApi {
                url,
                problem: problem.to_owned(),
            });
        }
        Ok(())
    }

    /// Asks again for an address that has expired.
    async fn renew_download(
        &self,
        api: &Api,
        client: &mut HttpClient,
        download: Download,
        memory: &SharedCharge,
    ) -> Result<Download, FetchError> {
        let is_over = |download: &Download| download.expires_at.is_some_and(|end| end <= Timestamp::now());
        if !is_over(&download) {
            return Ok(download);
        }
        let objects = [download.object];
        let renewed = self.request_batch(api, client, &objects, memory).await?;
        let renewed = renewed.into_iter().next().filter(|download| !is_over(download));
        renewed.ok_or_else(|| {
            let error = FetchError::HttpApi {
                url: api.address.endpoint.to_string(),
                problem: "it gives an address that has expired already; its clock, or the one here, is wrong"
                    .to_owned(),
            };
            let [object] = objects;
            add_path(&object.path, error)
        })
    }
}

/// Makes the next request of a redirect. Another server gets the common headers alone.
fn follow_redirect(from: &HttpRequest, location: Location, common: &HeaderMap) -> Result<HttpRequest, FetchError> {
    let Location { url, path, query } = location;
    let address = Address::read(&url).ok_or_else(|| FetchError::Redirect {
        from: from.shown.clone(),
        to: "elsewhere".to_owned(),
        problem: "it is not an http or https URL",
    })?;
    let query = if query.is_empty() { query } else { format!("?{query}") };
    let headers = if address.endpoint == from.endpoint {
        from.headers.clone()
    } else {
        common.clone()
    };
    Ok(HttpRequest {
        method: from.method.clone(),
        shown: address.endpoint.to_string(),
        endpoint: address.endpoint,
        target: format!("{path}{query}"),
        headers,
        body: from.body.clone(),
    })
}

/// Explains the status of a content's address.
fn explain_download(status: u16) -> &'static str {
    match status {
        401 | 403 => "it refuses the address that the LFS server gave for the content",
        _ => batch::explain_status(status),
    }
}
