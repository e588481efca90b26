//! Git LFS: the batch API, and the contents of large files, as GitLab serves them.
//!
//! Requests are checked as strictly as by the strictest of GitHub, GitLab and Gitea. Contents are in the folder of their repository, where `git-lfs` has them, too. Tests
//! let the server misbehave.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER};
use http::{HeaderValue, Method, StatusCode};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, json};

use crate::error::GitServerError;
use crate::repository::{LARGE_FILES_OF, Repository};

const MEDIA_TYPE: &str = "application/vnd.git-lfs+json";
/// The most objects of a batch, as at GitHub.
const BATCH: usize = 100;
/// The folders of a repository's path below which LFS is served.
const API: &str = "/info/lfs/objects/";
/// The folder of contents that need a signature, and no other credentials. It stands for an object storage on another host.
const STORAGE: &str = "/storage/";
/// The signature in the addresses of the storage.
const SIGNATURE: &str = "X-Amz-Signature=4f3d9c";

/// How a server serves large files (Git LFS). The default is the correct behaviour; tests choose others.
#[derive(Clone, Debug, Default)]
pub struct LargeFileOptions {
    /// Every batch gets this status, and `Retry-After` in seconds.
    pub batch_status: Option<(u16, Option<u64>)>,
    /// Every batch names this code for each object.
    pub object_code: Option<u16>,
    /// Every batch says that objects have this size.
    pub object_size: Option<u64>,
    /// This server is a storage for others: it serves contents at addresses with a signature, without other credentials.
    pub is_storage: bool,
    /// Contents are at this server, which is a storage.
    pub storage: Option<String>,
    /// Addresses expire after these seconds.
    pub expires_in: Option<i64>,
    /// Requests for contents are redirected to this server, which is a storage.
    pub redirect_contents: Option<String>,
    /// Batches are redirected to this server.
    pub redirect_batches: Option<String>,
    /// Contents are sent with this damage.
    pub damage: Option<Damage>,
    /// Contents get this status.
    pub content_status: Option<u16>,
}

/// How a server damages the contents of large files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The first byte differs.
    Changed,
    /// There are more bytes, and the length is not announced.
    Longer,
    /// There are fewer bytes, and the length is not announced.
    Shorter,
}

/// A recorded request for large files, as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeFileRequest {
    /// The path with its query.
    pub target: String,
    /// The header `Authorization`.
    pub authorization: Option<String>,
    /// The body.
    pub body: String,
}

/// The Git LFS part of a server: its behaviour, the recorded requests, and the tokens that it issued.
#[derive(Debug, Default)]
pub(crate) struct LargeFiles {
    /// `None` outside of tests, which alone let the server misbehave and read its requests.
    options: Mutex<Option<LargeFileOptions>>,
    requests: Mutex<Vec<LargeFileRequest>>,
    /// Tokens that ssh clients got.
    tokens: Mutex<Vec<String>>,
    /// The address of the server in answers.
    pub(crate) base: OnceLock<String>,
}

/// The answer to a request for large files, before it is sent.
pub(crate) struct LargeFileAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Whether the length is announced.
    pub(crate) is_chunked: bool,
}

/// Finds the repository's part of a path of LFS.
pub(crate) fn find_repository(path: &str) -> Option<&str> {
    path.split_once(API).map(|(repository, _)| repository)
}

/// Checks whether a path is one of the storage.
pub(crate) fn is_storage(path: &str) -> bool {
    path.starts_with(STORAGE) && find_repository(path).is_none()
}

impl LargeFiles {
    pub(crate) fn set(&self, options: LargeFileOptions) {
        *self.options.lock().unwrap_or_else(PoisonError::into_inner) = Some(options);
    }

    pub(crate) fn requests(&self) -> Vec<LargeFileRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks for a token that an ssh client got.
    pub(crate) fn accepts(&self, authorization: &[u8]) -> bool {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens
            .iter()
            .any(|token| authorization == format!("RemoteAuth {token}").as_bytes())
    }

    /// Writes the answer to `git-lfs-authenticate`.
    pub(crate) fn authenticate(&self, repository: &Repository) -> String {
        let mut random = [0; 16];
        // Without random bytes, the token is wrong for everybody.
        let token = match SystemRandom::new().fill(&mut random) {
            Ok(()) => write_hex(&random),
            Err(_) => String::new(),
        };
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.push(token.clone());
        let base = self.base.get().cloned().unwrap_or_default();
        json!({
            "href": format!("{base}/{}.git/info/lfs", repository.name()),
            "header": { "Authorization": format!("RemoteAuth {token}") },
            "expires_in": 1800,
        })
        .to_string()
    }

    /// Answers a request below [`API`] or [`STORAGE`], or returns `None` if the path is neither.
    pub(crate) fn answer(
        &self,
        (method, path, query): (&Method, &str, Option<&str>),
        headers: &HeaderMap,
        body: &[u8],
        find: impl Fn(&str) -> Result<Repository, GitServerError>,
    ) -> Option<LargeFileAnswer> {
        let is_known = find_repository(path).is_some() || is_storage(path);
        if !is_known {
            return None;
        }
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let options = self.options.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if options.is_some() {
            let request = LargeFileRequest {
                target: query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}")),
                authorization: authorization.map(str::to_owned),
                body: String::from_utf8_lossy(body).into_owned(),
            };
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            requests.push(request);
        }
        let options = options.unwrap_or_default();
        if let Some(rest) = path
            .strip_prefix(STORAGE)
            .filter(|_| options.is_storage && is_storage(path))
        {
            // As at S3: a signature and other credentials exclude each other.
            if query != Some(SIGNATURE) || authorization.is_some() {
                return Some(refuse(StatusCode::BAD_REQUEST, "one way of authentication"));
            }
            let (repository, oid) = rest.rsplit_once('/')?;
            return Some(answer_content(&options, find(repository).ok(), oid));
        }
        let (repository, rest) = path.split_once(API)?;
        // As at GitLab, the name of the repository must end with `.git`.
        let Some(repository) = repository.strip_suffix(".git").and_then(|name| find(name).ok()) else {
            return Some(refuse(StatusCode::NOT_FOUND, "Not found."));
        };
        Some(match (method, rest) {
            (&Method::POST, "batch") => match &options.redirect_batches {
                Some(to) => redirect(&format!("{to}{path}")),
                None => self.answer_batch(&options, &repository, headers, body),
            },
            (&Method::GET, oid) => match &options.redirect_contents {
                Some(to) => redirect(&format!("{to}{STORAGE}{}/{oid}?{SIGNATURE}", repository.name())),
                None => answer_content(&options, Some(repository), oid),
            },
            _ => refuse(StatusCode::NOT_FOUND, "Not found."),
        })
    }

    fn answer_batch(
        &self,
        options: &LargeFileOptions,
        repository: &Repository,
        headers: &HeaderMap,
        body: &[u8],
    ) -> LargeFileAnswer {
        let is_media_type = |name| headers.get(name).is_some_and(|value: &HeaderValue| value == MEDIA_TYPE);
        if !is_media_type(ACCEPT) {
            return refuse(StatusCode::NOT_ACCEPTABLE, "wrong Accept");
        }
        if !is_media_type(CONTENT_TYPE) {
            return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "wrong Content-Type");
        }
        if let Some((status, wait)) = options.batch_status {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut answer = refuse(status, "This repository is over its data quota.");
            answer
                .headers
                .extend(wait.map(|seconds| (RETRY_AFTER, HeaderValue::from(seconds))));
            return answer;
        }
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let objects = request.get("objects").and_then(Value::as_array).cloned();
        let objects = objects.unwrap_or_default();
        let transfers = request.get("transfers").and_then(Value::as_array);
        if request.get("operation") != Some(&json!("download")) || objects.is_empty() {
            return refuse(StatusCode::UNPROCESSABLE_ENTITY, "wrong operation");
        }
        if transfers.is_some_and(|transfers| !transfers.contains(&json!("basic"))) {
            return refuse(StatusCode::UNPROCESSABLE_ENTITY, "wrong transfers");
        }
        if request.get("hash_algo").is_some_and(|algorithm| algorithm != "sha256") {
            return refuse(StatusCode::CONFLICT, "wrong hash_algo");
        }
        if objects.len() > BATCH {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "too many objects");
        }
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let answered: Vec<Value> = objects
            .iter()
            .map(|object| self.answer_object(options, repository, authorization, object))
            .collect();
        LargeFileAnswer {
            status: StatusCode::OK,
            headers: HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE))]),
            body: json!({ "objects": answered }).to_string().into_bytes(),
            is_chunked: false,
        }
    }

    fn answer_object(
        &self,
        options: &LargeFileOptions,
        repository: &Repository,
        authorization: Option<&str>,
        object: &Value,
    ) -> Value {
        let oid = object.get("oid").and_then(Value::as_str).unwrap_or_default();
        let size = object.get("size").and_then(Value::as_u64);
        let content = repository.large_file(oid);
        let exists = content.is_some_and(|content| size == Some(content.len() as u64));
        let code = options
            .object_code
            .or((!exists && options.storage.is_none()).then_some(404));
        if let Some(code) = code {
            let message = "Object does not exist on the server";
            return json!({ "oid": oid, "size": size, "error": { "code": code, "message": message } });
        }
        let base = self.base.get().cloned().unwrap_or_default();
        let name = repository.name();
        let download = match &options.storage {
            Some(storage) => json!({
                "href": format!("{storage}{STORAGE}{name}/{oid}?{SIGNATURE}"),
                "expires_in": options.expires_in,
            }),
            None => json!({
                "href": format!("{base}/{name}.git{API}{oid}"),
                "header": authorization.map(|value| json!({ "Authorization": value })),
                // Go's zero time, as Gitea sends it.
                "expires_at": "0001-01-01T00:00:00Z",
                "expires_in": options.expires_in,
            }),
        };
        json!({ "oid": oid, "size": options.object_size.or(size), "actions": { "download": download } })
    }
}

fn answer_content(options: &LargeFileOptions, repository: Option<Repository>, oid: &str) -> LargeFileAnswer {
    if let Some(status) = options.content_status {
        return refuse(StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND), "no");
    }
    let Some(mut body) = repository.and_then(|repository| repository.large_file(oid)) else {
        return refuse(StatusCode::NOT_FOUND, "Not found.");
    };
    match options.damage {
        Some(Damage::Changed) => body.iter_mut().take(1).for_each(|byte| *byte ^= 1),
        Some(Damage::Longer) => body.push(b'x'),
        Some(Damage::Shorter) => body.truncate(body.len().saturating_sub(1)),
        None => {}
    }
    LargeFileAnswer {
        status: StatusCode::OK,
        headers: HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))]),
        body,
        is_chunked: matches!(options.damage, Some(Damage::Longer | Damage::Shorter)),
    }
}

fn refuse(status: StatusCode, message: &str) -> LargeFileAnswer {
    LargeFileAnswer {
        status,
        headers: HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE))]),
        body: json!({ "message": message }).to_string().into_bytes(),
        is_chunked: false,
    }
}

fn redirect(to: &str) -> LargeFileAnswer {
    let mut answer = refuse(StatusCode::TEMPORARY_REDIRECT, "elsewhere");
    answer
        .headers
        .extend(HeaderValue::from_str(to).ok().map(|to| (LOCATION, to)));
    answer
}

fn write_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the path of an object, as `git-lfs` has it.
fn find_object(objects: &Path, oid: &str) -> PathBuf {
    let part = |range| oid.get(range).unwrap_or_default();
    objects.join(part(0..2)).join(part(2..4)).join(oid)
}

impl Repository {
    /// Stores the content of a large file, as a push of `git-lfs` does, and returns the pointer to commit in its place.
    ///
    /// # Errors
    /// [`GitServerError::Io`] when it can't be written.
    pub fn store_large_file(&self, content: &[u8]) -> Result<String, GitServerError> {
        let oid = write_hex(digest(&SHA256, content).as_ref());
        let path = self.large_file_path(&oid);
        let folder = path.parent().map(PathBuf::from).unwrap_or_default();
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, content));
        written.map_err(|source| GitServerError::Io {
            action: "write",
            path: path.clone(),
            source,
        })?;
        let size = content.len();
        Ok(format!(
            "version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n"
        ))
    }

    /// Reads the content of a large file.
    fn large_file(&self, oid: &str) -> Option<Vec<u8>> {
        let is_id = oid.len() == 64 && oid.bytes().all(|byte| byte.is_ascii_hexdigit());
        let read = || {
            let own = std::fs::read(self.large_file_path(oid)).ok();
            own.or_else(|| {
                let objects = std::fs::read_to_string(self.folder().join(LARGE_FILES_OF)).ok()?;
                std::fs::read(find_object(Path::new(&objects), oid)).ok()
            })
        };
        is_id.then(read)?
    }

    fn large_file_path(&self, oid: &str) -> PathBuf {
        find_object(&self.folder().join("lfs/objects"), oid)
    }
}
