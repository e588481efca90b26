//! The store's protocol: which requests are made, and when a request is repeated for another region.
//!
//! Redirects are refused. Of an error or a page, only the bytes that are needed are read.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, ETAG, HeaderMap, HeaderName, HeaderValue, LOCATION};
use http::{Method, StatusCode};
use jiff::Timestamp;
use tokio::io::AsyncReadExt as _;

use super::error::BucketError;
use super::listing::{self, ListedObject, StoreError};
use super::request::{BucketRequest, DEFAULT_REGION};
use super::signature::{self, Signed};
use crate::dialer::Dialer;
use crate::fetch_budgets::GrowingCharge;
use crate::http::{Body, HttpAnswer, HttpClient, HttpRequest, write_host};
use crate::limits::describe_bytes;
use crate::secret::Credentials;

const AGENT: &str = concat!("tenure/", env!("CARGO_PKG_VERSION"));
/// The largest page in bytes.
const PAGE_BYTES: u64 = 4 << 20;
/// Bytes of memory that parsing takes for each byte of a page.
const PARSED: u64 = 4;
/// Objects that each request for a page asks for.
const PAGE_OBJECTS: &str = "1000";
/// The most pages that are read, full or not.
const PAGES: usize = 1000;
/// Bytes of an error that are read.
const ERROR_BYTES: u64 = 16 << 10;

/// An answer of the store with a status other than success.
struct ErrorAnswer {
    status: StatusCode,
    /// The target of a redirect, for a message.
    location: String,
    /// The wait that the store requests.
    retry_after: Option<Duration>,
    error: StoreError,
}

/// A client of the object store, for one fetch and with one connection.
pub(super) struct StoreClient<'a> {
    client: HttpClient,
    dialer: &'a Dialer,
    request: &'a BucketRequest,
    /// The region that requests are signed for, after the store has named one.
    region: Arc<Mutex<Option<String>>>,
}

/// The answer to a request for an object, whose body is still arriving.
pub(super) struct OpenObject {
    pub(super) body: Body,
    /// The ETag of the answer.
    pub(super) mark: String,
}

impl<'a> StoreClient<'a> {
    pub(super) fn new(dialer: &'a Dialer, request: &'a BucketRequest) -> Self {
        Self {
            client: Self::connect(dialer, request, DEFAULT_REGION),
            dialer,
            request,
            region: Arc::default(),
        }
    }

    /// Returns a client of the same store with a connection of its own.
    pub(super) fn with_own_connection(&self) -> Self {
        Self {
            client: Self::connect(self.dialer, self.request, &self.current_region()),
            dialer: self.dialer,
            request: self.request,
            region: Arc::clone(&self.region),
        }
    }

    fn connect(dialer: &Dialer, request: &BucketRequest, region: &str) -> HttpClient {
        let home = request.endpoint_in(region);
        HttpClient::new(dialer.clone(), &home, &Credentials::Anonymous, &request.tls, AGENT)
    }

    /// Returns the region that the next request is signed for.
    fn current_region(&self) -> String {
        let learnt = self.region.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let asked_region = self.request.asked.region.clone();
        asked_region.or(learnt).unwrap_or_else(|| DEFAULT_REGION.to_owned())
    }

    /// Shows every object of the bucket to `look`, page by page. `look` returns how many bytes it keeps of each object, or ends the listing.
    pub(super) async fn list(
        &mut self,
        memory: &mut GrowingCharge,
        mut look: impl FnMut(ListedObject) -> Result<u64, BucketError>,
    ) -> Result<(), BucketError> {
        let mut token: Option<String> = None;
        for _ in 0..PAGES {
            let prefix = self.request.asked.prefix.as_str();
            let mut query = vec![
                ("encoding-type", "url"),
                ("list-type", "2"),
                ("max-keys", PAGE_OBJECTS),
                ("prefix", prefix),
            ];
            query.extend(token.as_deref().map(|token| ("continuation-token", token)));
            let answer = self.send_request("", &query, "its objects").await?;
            let before = memory.mark();
            let bytes = self.read_page(answer, memory).await?;
            let (mut kept, mut refused) = (0_u64, None);
            let page = listing::read_page(&bytes, |object| match look(object) {
                Ok(bytes) => {
                    kept = kept.saturating_add(bytes);
                    true
                }
                Err(error) => {
                    refused = Some(error);
                    false
                }
            });
            if let Some(refused) = refused {
                return Err(refused);
            }
            let page = page.map_err(|problem| self.protocol_error(format!("its listing {problem}")))?;
            drop(bytes);
            memory.return_to(before);
            memory.add(kept).await?;
            match page.next {
                None => return Ok(()),
                Some(next) if token.as_ref() == Some(&next) => {
                    return Err(self.protocol_error("the next page of its listing is the same again".to_owned()));
                }
                next => token = next,
            }
        }
        Err(BucketError::TooLarge {
            what: "pages of its listing",
            limit: PAGES.to_string(),
        })
    }

    /// Reads a page of the listing into memory, which is charged.
    async fn read_page(&self, answer: HttpAnswer, memory: &mut GrowingCharge) -> Result<Vec<u8>, BucketError> {
        let mut body = answer.into_body().take(PAGE_BYTES + 1);
        let mut bytes = Vec::new();
        let mut piece = vec![0; 16 << 10];
        loop {
            let length = body.read(&mut piece).await.map_err(|error| self.broken_error(&error))?;
            if length == 0 {
                return Ok(bytes);
            }
            memory.add(PARSED.saturating_mul(length as u64)).await?;
            bytes.extend_from_slice(piece.get(..length).unwrap_or_default());
            if bytes.len() as u64 > PAGE_BYTES {
                return Err(BucketError::TooLarge {
                    what: "bytes of a page of its listing",
                    limit: describe_bytes(PAGE_BYTES),
                });
            }
        }
    }

    /// Requests an object; `None` if the object no longer exists.
    pub(super) async fn open_object(&mut self, key: &str) -> Result<Option<OpenObject>, BucketError> {
        let what = format!("the object {}", quote_key(key));
        let answer = match self.send_request(key, &[], &what).await {
            Err(BucketError::NoObject { .. }) => return Ok(None),
            answer => answer?,
        };
        let mark = answer.headers(&ETAG).next().map(listing::trim_mark).unwrap_or_default();
        if mark.is_empty() {
            return Err(self.protocol_error(format!("{what} has no ETag, so changes of it can't be detected")));
        }
        let mark = mark.to_owned();
        Ok(Some(OpenObject {
            body: answer.into_body(),
            mark,
        }))
    }

    /// Sends a request. Repeats it once if the store names the bucket's region and the specification names none.
    async fn send_request(&mut self, key: &str, query: &[(&str, &str)], what: &str) -> Result<HttpAnswer, BucketError> {
        let region = self.current_region();
        let answer = self.send(key, query, &region).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let error_answer = self.read_error_answer(answer).await;
        let other = error_answer.error.region.clone().filter(|other| *other != region);
        if let (Some(other), None) = (other, &self.request.asked.region)
            && self.learn_region(&other)
        {
            let answer = self.send(key, query, &other).await?;
            if answer.status().is_success() {
                return Ok(answer);
            }
            return Err(self.explain_error_answer(self.read_error_answer(answer).await, what));
        }
        Err(self.explain_error_answer(error_answer, what))
    }

    /// Uses the region that the store has named for the following requests. Returns false if the store has named a region before: it may do so only once.
    fn learn_region(&mut self, region: &str) -> bool {
        let mut learnt = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        if learnt.is_some() {
            return false;
        }
        *learnt = Some(region.to_owned());
        drop(learnt);
        self.client = Self::connect(self.dialer, self.request, region);
        true
    }

    async fn send(&mut self, key: &str, query: &[(&str, &str)], region: &str) -> Result<HttpAnswer, BucketError> {
        let endpoint = self.request.endpoint_in(region);
        let path = self.request.path_of(key);
        let host = write_host(&endpoint);
        let time = Timestamp::now();
        let value = |text: &str| {
            let value = HeaderValue::from_str(text);
            value.map_err(|_| self.protocol_error("the request can't be written".to_owned()))
        };
        let mut headers = HeaderMap::new();
        if let Some(keys) = &self.request.keys {
            let signed = Signed {
                host: &host,
                path: &path,
                query,
                headers: &[],
                region,
                time,
            };
            let mut authorization = value(&signed.authorize(keys))?;
            authorization.set_sensitive(true);
            headers.insert(AUTHORIZATION, authorization);
            headers.insert(
                HeaderName::from_static("x-amz-date"),
                value(&signature::write_time(time))?,
            );
            let digest = HeaderValue::from_static(signature::NO_BODY);
            headers.insert(HeaderName::from_static("x-amz-content-sha256"), digest);
        }
        let query = signature::write_query(query);
        let request = HttpRequest {
            method: Method::GET,
            endpoint,
            target: if query.is_empty() {
                path
            } else {
                format!("{path}?{query}")
            },
            headers,
            body: bytes::Bytes::new(),
            shown: self.request.display_address(),
        };
        Ok(self.client.send(&request).await?)
    }

    /// Returns the target of a redirect, without any part that may be a secret.
    fn find_location(&self, answer: &HttpAnswer) -> String {
        let url = answer
            .headers(&LOCATION)
            .next()
            .and_then(|text| url::Url::parse(text).ok());
        let host = url.as_ref().and_then(url::Url::host_str);
        host.map(|host| format!(" to {host}")).unwrap_or_default()
    }

    /// Reads the status, the headers and the error code of an answer without success.
    async fn read_error_answer(&self, answer: HttpAnswer) -> ErrorAnswer {
        ErrorAnswer {
            status: answer.status(),
            location: self.find_location(&answer),
            retry_after: answer.retry_after(),
            error: self.read_error(answer).await,
        }
    }

    async fn read_error(&self, answer: HttpAnswer) -> StoreError {
        let name = HeaderName::from_static("x-amz-bucket-region");
        let region = answer.headers(&name).next().and_then(listing::read_region);
        let mut bytes = Vec::new();
        // An unreadable body is ignored: the status suffices.
        let _ = answer.into_body().take(ERROR_BYTES).read_to_end(&mut bytes).await;
        let mut error = listing::read_error(&bytes);
        error.region = error.region.or(region);
        // A store may repeat the credentials that it received.
        let is_shown = |keys: &super::request::AccessKeys| error.code.contains(keys.id.reveal());
        if self.request.keys.as_ref().is_some_and(is_shown) {
            error.code.clear();
        }
        error
    }

    /// Converts an answer without success into an error that says what to do.
    fn explain_error_answer(&self, error_answer: ErrorAnswer, what: &str) -> BucketError {
        let ErrorAnswer {
            status,
            location,
            retry_after,
            error,
        } = error_answer;
        let url = self.request.display_address();
        let code = match error.code.as_str() {
            "" => String::new(),
            code => format!(" ({code})"),
        };
        if status == StatusCode::NOT_FOUND && error.code == "NoSuchBucket" {
            return BucketError::NoBucket {
                bucket: self.request.asked.bucket.clone(),
                url: self.request.endpoint.to_string(),
            };
        }
        // Without the code, the missing thing is unknown: a proxy may have sent the answer.
        if status == StatusCode::NOT_FOUND && error.code == "NoSuchKey" {
            let what = what.to_owned();
            return BucketError::NoObject { url, what };
        }
        if status.is_redirection() {
            let region = error.region.as_ref().map(|region| format!(", in region {region}"));
            return BucketError::Elsewhere {
                url,
                problem: format!("{location}{}", region.unwrap_or_default()),
            };
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let advice = match (&self.request.keys, error.code.as_str()) {
                (None, _) => "without credentials; name a Secret with accesskey and secretkey in spec.secretRef",
                (Some(_), "SignatureDoesNotMatch") => "the Secret's secretkey isn't the one of its accesskey",
                (Some(_), "InvalidAccessKeyId") => "it doesn't know the Secret's accesskey",
                (Some(_), "RequestTimeTooSkewed") => "its clock, or the one here, is wrong",
                (Some(_), _) => "the Secret's keys don't have the right to it",
            };
            return BucketError::Refused {
                url,
                what: what.to_owned(),
                problem: format!("HTTP {}{code}: {advice}", status.as_u16()),
            };
        }
        BucketError::HttpStatus {
            url,
            what: what.to_owned(),
            status: status.as_u16(),
            code,
            retry_after,
        }
    }

    pub(super) fn protocol_error(&self, problem: String) -> BucketError {
        BucketError::Protocol {
            url: self.request.display_address(),
            problem,
        }
    }

    /// Makes the error for a body that ended too early.
    pub(super) fn broken_error(&self, error: &std::io::Error) -> BucketError {
        BucketError::Connection(crate::error::FetchError::Broken {
            url: self.request.display_address(),
            problem: error.to_string(),
        })
    }
}

/// Writes a key for messages: quoted, and cut if it is long.
pub(super) fn quote_key(key: &str) -> String {
    const SHOWN: usize = 128;
    match key.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", key.get(..end).unwrap_or_default()),
        None => format!("{key:?}"),
    }
}
