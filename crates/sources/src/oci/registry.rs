//! The registry protocol: its requests, and their credentials.
//!
//! The rules for credentials are in the documentation of the module above. Only the registry's own challenges are answered, and lists of tags are read up to a bound.

use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, LINK, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use url::Url;

use super::challenge::{Challenge, Realm, read_challenge};
use super::credentials::{Credential, Keychain};
use super::error::OciError;
use super::manifest::{INDEX_TYPE, MANIFEST_TYPES, Referrer, read_referrers};
use super::reference::{Digest, RepositoryUrl};
use super::tags;
use super::token::{self, TokenRequest};
use crate::dialer::Dialer;
use crate::fetch_budgets::GrowingCharge;
use crate::http::{Body, HttpAnswer, HttpClient, HttpRequest, Location};
use crate::limits::describe_bytes;
use crate::policy::{Endpoint, Scheme};
use crate::secret::{Credentials, SecretBytes, SecretData, TlsOptions};

/// The largest manifest in bytes, as registries accept it.
pub(super) const MANIFEST_BYTES: u64 = 4 << 20;
/// The largest page of tags in bytes.
const PAGE_BYTES: u64 = 4 << 20;
/// The most pages of tags that are read, full or not.
const PAGES: usize = 1000;
/// Tags that each request for a page asks for.
const PAGE_TAGS: usize = 1000;
/// The most pages of referrers that are read.
const REFERRER_PAGES: usize = 8;
/// Bytes of memory that parsing takes at most for each byte of a manifest.
const PARSED: u64 = 16;

/// A client of one repository in a registry, for one fetch.
pub(super) struct Registry<'a> {
    client: HttpClient,
    dialer: &'a Dialer,
    url: &'a RepositoryUrl,
    keychain: &'a Keychain,
    tls: &'a TlsOptions,
}

/// A request to a registry about one repository.
struct Question<'q> {
    method: Method,
    /// The path and query below `/v2/<path>/`.
    below: &'q str,
    accept: &'q str,
}

impl<'a> Registry<'a> {
    pub(super) fn new(dialer: &'a Dialer, url: &'a RepositoryUrl, keychain: &'a Keychain, tls: &'a TlsOptions) -> Self {
        Self {
            client: HttpClient::new(
                dialer.clone(),
                url.endpoint(),
                &Credentials::Anonymous,
                tls,
                token::AGENT,
            ),
            dialer,
            url,
            keychain,
            tls,
        }
    }

    /// Returns the digest of a tag's target, if the registry sends it without the manifest.
    pub(super) async fn resolve_tag(&mut self, tag: &str) -> Result<Option<Digest>, OciError> {
        let below = format!("manifests/{tag}");
        let what = format!("tag {tag:?}");
        let answer = self
            .send_authorized(make_question(Method::HEAD, &below, MANIFEST_TYPES))
            .await?;
        let status = answer.status();
        if matches!(status, StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED) {
            return Ok(None);
        }
        self.check_status(&answer, &what)?;
        let name = HeaderName::from_static("docker-content-digest");
        Ok(answer.headers(&name).next().and_then(Digest::parse))
    }

    /// Gets a manifest by its tag or digest, together with its digest. A digest in the request is verified.
    pub(super) async fn get_manifest(
        &mut self,
        reference: &str,
        memory: &mut GrowingCharge,
    ) -> Result<(Vec<u8>, Digest), OciError> {
        let below = format!("manifests/{reference}");
        let expected = Digest::parse(reference);
        let what = match &expected {
            Some(digest) => format!("digest {digest}"),
            None => format!("tag {reference:?}"),
        };
        let answer = self
            .send_authorized(make_question(Method::GET, &below, MANIFEST_TYPES))
            .await?;
        self.check_status(&answer, &what)?;
        let bytes = self
            .read(answer, (MANIFEST_BYTES, "bytes of a manifest", PARSED), memory)
            .await?;
        let found = Digest::from_hash(Sha256::digest(&bytes));
        match expected {
            Some(expected) if expected != found => Err(self.mismatch_error("the manifest", &expected, &found)),
            _ => Ok((bytes, found)),
        }
    }

    /// Gets a blob of at most `limit` bytes as a whole, and verifies its digest.
    pub(super) async fn get_blob(
        &mut self,
        digest: &Digest,
        limit: u64,
        memory: &mut GrowingCharge,
    ) -> Result<Vec<u8>, OciError> {
        let answer = self.ask_for_blob(digest).await?;
        let bytes = self
            .read(answer, (limit, "bytes of a signature", PARSED), memory)
            .await?;
        let found = Digest::from_hash(Sha256::digest(&bytes));
        if found != *digest {
            return Err(self.mismatch_error("a blob", digest, &found));
        }
        Ok(bytes)
    }

    /// Opens a blob that arrives as a stream. The caller checks its digest.
    pub(super) async fn open_blob(&mut self, digest: &Digest) -> Result<Body, OciError> {
        Ok(self.ask_for_blob(digest).await?.into_body())
    }

    async fn ask_for_blob(&mut self, digest: &Digest) -> Result<HttpAnswer, OciError> {
        let (below, what) = (format!("blobs/{digest}"), format!("blob {digest}"));
        let answer = self.send_authorized(make_question(Method::GET, &below, "*/*")).await?;
        self.check_status(&answer, &what)?;
        answer.refuse_encoding()?;
        Ok(answer)
    }

    /// Shows the manifests that refer to a manifest to `look`, until `look` wants no more. They come from the registry, or, if it has no referrers API, from the list
    /// that a client has pushed under a tag.
    pub(super) async fn list_referrers(
        &mut self,
        digest: &Digest,
        memory: &mut GrowingCharge,
        mut look: impl FnMut(Referrer) -> bool,
    ) -> Result<(), OciError> {
        let list = format!("referrers/{digest}");
        let mut below = list.clone();
        for page in 0..REFERRER_PAGES {
            let answer = self
                .send_authorized(make_question(Method::GET, &below, INDEX_TYPE))
                .await?;
            let is_unknown = [
                StatusCode::BAD_REQUEST,
                StatusCode::NOT_FOUND,
                StatusCode::METHOD_NOT_ALLOWED,
                StatusCode::NOT_IMPLEMENTED,
            ]
            .contains(&answer.status());
            let mark = memory.mark();
            let (bytes, next) = if page == 0 && is_unknown {
                drop(answer);
                match self.get_manifest(&digest.referrers_tag(), memory).await {
                    Ok((bytes, _)) => (bytes, None),
                    Err(OciError::NotFound { .. }) => return Ok(()),
                    Err(error) => return Err(error),
                }
            } else {
                self.check_status(&answer, "what refers to it")?;
                let next = answer.headers(&LINK).find_map(find_next).map(str::to_owned);
                let bounds = (MANIFEST_BYTES, "bytes of a list of referrers", PARSED);
                (self.read(answer, bounds, memory).await?, next)
            };
            for referrer in read_referrers(&bytes).map_err(|problem| self.protocol_error(&problem))? {
                if !look(referrer) {
                    return Ok(());
                }
            }
            drop(bytes);
            memory.return_to(mark);
            let Some(next) = next else { return Ok(()) };
            below = self.read_next(&list, &next)?;
        }
        Ok(())
    }

    /// Returns the answer to a request for tags, with any status.
    pub(super) async fn ask_for_tags(&mut self) -> Result<HttpAnswer, OciError> {
        let question = make_question(Method::GET, "tags/list?n=1", "application/json");
        self.send_authorized(question).await
    }

    /// Shows every tag of the repository to `look`, page by page. `look` returns how many bytes it keeps of each.
    pub(super) async fn list_tags(
        &mut self,
        most: usize,
        memory: &mut GrowingCharge,
        mut look: impl FnMut(&str) -> u64,
    ) -> Result<(), OciError> {
        let mut below = format!("tags/list?n={PAGE_TAGS}");
        let mut count = 0_usize;
        for _ in 0..PAGES {
            let answer = self
                .send_authorized(make_question(Method::GET, &below, "application/json"))
                .await?;
            self.check_status(&answer, "its tags")?;
            let next = answer.headers(&LINK).find_map(find_next).map(str::to_owned);
            let before = memory.mark();
            let bytes = self
                .read(answer, (PAGE_BYTES, "bytes of a page of tags", 0), memory)
                .await?;
            let mut kept = 0_u64;
            let mut show = |tag: &str| {
                count = count.saturating_add(1);
                kept = kept.saturating_add(look(tag));
                count <= most
            };
            let read = tags::read_page(&bytes, &mut show);
            if count > most {
                return Err(OciError::TooLarge {
                    what: "tags of the repository",
                    limit: most.to_string(),
                });
            }
            read.map_err(|_| self.protocol_error("its list of tags can't be read"))?;
            drop(bytes);
            memory.return_to(before);
            memory.add(kept).await?;
            let Some(next) = next else { return Ok(()) };
            below = self.read_next("tags/list", &next)?;
        }
        Err(OciError::TooLarge {
            what: "pages of tags",
            limit: PAGES.to_string(),
        })
    }

    /// Reads the address of the next page, which must be of the same list of the same repository in the registry.
    fn read_next(&self, list: &str, link: &str) -> Result<String, OciError> {
        let refused = || self.protocol_error("the next page of a list belongs to another repository");
        let base =
            Url::parse(&format!("{}/v2/{}/{list}", self.url.endpoint(), self.url.path())).map_err(|_| refused())?;
        let next = base.join(link).map_err(|_| refused())?;
        // Of an address on another host, as a proxy may produce it, only the query is used.
        if next.path() != base.path() {
            return Err(refused());
        }
        Ok(format!("{list}?{}", next.query().unwrap_or_default()))
    }

    /// Sends a request, with credentials if the registry requires them.
    async fn send_authorized(&mut self, question: Question<'_>) -> Result<HttpAnswer, OciError> {
        let answer = self.send_question(&question).await?;
        if answer.status() != StatusCode::UNAUTHORIZED || answer.endpoint() != self.url.endpoint() {
            return Ok(answer);
        }
        let challenge = read_challenge(answer.headers(&WWW_AUTHENTICATE));
        drop(answer);
        self.authorize(challenge).await?;
        self.send_question(&question).await
    }

    /// Sends a request with the current credentials, and follows redirects.
    async fn send_question(&mut self, question: &Question<'_>) -> Result<HttpAnswer, OciError> {
        let accept =
            HeaderValue::from_str(question.accept).map_err(|_| self.protocol_error("the request can't be written"))?;
        let headers = HeaderMap::from_iter([(ACCEPT, accept)]);
        let request = HttpRequest {
            method: question.method.clone(),
            endpoint: self.url.endpoint().clone(),
            target: format!("/v2/{}/{}", self.url.path(), question.below),
            headers: headers.clone(),
            body: bytes::Bytes::new(),
            shown: self.url.to_string(),
        };
        let follow = |from: &HttpRequest, location: Location| {
            let refuse = |problem| crate::error::FetchError::Redirect {
                from: from.shown.clone(),
                to: location.url.to_string(),
                problem,
            };
            let endpoint = read_endpoint(&location.url).ok_or_else(|| refuse("it is not an http or https URL"))?;
            let query = if location.query.is_empty() {
                String::new()
            } else {
                format!("?{}", location.query)
            };
            Ok(HttpRequest {
                method: from.method.clone(),
                target: format!("{}{query}", location.path),
                headers: headers.clone(),
                body: bytes::Bytes::new(),
                shown: endpoint.to_string(),
                endpoint,
            })
        };
        Ok(self.client.send_and_follow(request, follow).await?)
    }

    /// Gets the authorization that a challenge requires.
    async fn authorize(&mut self, challenge: Option<Challenge>) -> Result<(), OciError> {
        let registry = self.url.endpoint();
        let own = self.keychain.find(registry, self.url.path())?;
        let credentials = match (challenge, own) {
            (Some(Challenge::Bearer { .. }) | None, Some(Credential::Registry(token))) => {
                Credentials::Bearer(token.clone())
            }
            (Some(Challenge::Bearer { realm, service }), own) => {
                let token = self.ask_for_token(&realm, service.as_deref(), own).await?;
                Credentials::Bearer(token)
            }
            (Some(Challenge::Basic), Some(Credential::Basic { username, password })) => Credentials::Basic {
                username: username.clone(),
                password: password.clone(),
            },
            (Some(Challenge::Basic), Some(_)) => {
                return Err(
                    self.make_unauthorized_error("it wants a user and a password, and the Secret has a token for it")
                );
            }
            (Some(Challenge::Basic), None) => {
                return Err(self.make_unauthorized_error(
                    "it wants a user and a password; name a Secret with them in spec.secretRef",
                ));
            }
            (None, _) => return Err(self.make_unauthorized_error("it refuses, and names no way of authentication")),
        };
        self.client.set_credentials(credentials);
        Ok(())
    }

    async fn ask_for_token(
        &self,
        realm: &str,
        service: Option<&str>,
        own: Option<&Credential>,
    ) -> Result<SecretBytes, OciError> {
        let registry = self.url.endpoint();
        let realm = Realm::read(realm, registry).map_err(|problem| self.protocol_error(problem))?;
        let credential = match own.filter(|_| realm.is_of_site(registry)) {
            Some(own) => Some(own),
            None => self
                .keychain
                .find(&realm.endpoint, realm.target.trim_start_matches('/'))?,
        };
        let tls = TlsOptions {
            ca: self.tls.ca.clone(),
            // The client certificate is for the registry alone.
            client: self.tls.client.clone().filter(|_| realm.endpoint == *registry),
        };
        let scope = format!("repository:{}:pull", self.url.path());
        let request = TokenRequest {
            realm: &realm,
            service,
            scope: &scope,
            credential,
        };
        token::fetch_token(self.dialer, &tls, request).await.map_err(|error| match error {
            OciError::Unauthorized { host, problem } if credential.is_none() && own.is_some() => {
                let advice = "the registry's credentials are not sent to a server of another site; give it an entry of its own in the Secret if it may have some";
                OciError::Unauthorized {
                    problem: format!("{problem} ({host} gives the tokens of {}: {advice})", self.url),
                    host,
                }
            }
            other => other,
        })
    }

    /// Returns an error for an answer without success. `what`: the requested object, for the message.
    fn check_status(&self, answer: &HttpAnswer, what: &str) -> Result<(), OciError> {
        let status = answer.status();
        match status {
            status if status.is_success() => Ok(()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if answer.endpoint() != self.url.endpoint() => {
                Err(OciError::Unauthorized {
                    host: answer.requested_address().to_owned(),
                    problem: format!(
                        "HTTP {} after a redirect from {}; credentials are only sent to the registry",
                        status.as_u16(),
                        self.url
                    ),
                })
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let asked = if self.client.is_anonymous() {
                    "without credentials; name a Secret with credentials for it in spec.secretRef"
                } else {
                    "with the credentials of the Secret; they don't have the right to pull"
                };
                Err(self.make_unauthorized_error(&format!("HTTP {} {asked}", status.as_u16())))
            }
            StatusCode::NOT_FOUND => Err(OciError::NotFound {
                what: what.to_owned(),
                url: self.url.to_string(),
                problem: "it does not exist, or it needs (other) credentials",
            }),
            status => Err(OciError::HttpStatus {
                url: answer.requested_address().to_owned(),
                what: what.to_owned(),
                status: status.as_u16(),
                retry_after: answer.retry_after(),
            }),
        }
    }

    /// Reads the body of an answer into memory. Each of its bytes is charged as `parsed` bytes, which also cover the value that is parsed from it.
    async fn read(
        &self,
        answer: HttpAnswer,
        (limit, what, parsed): (u64, &'static str, u64),
        memory: &mut GrowingCharge,
    ) -> Result<Vec<u8>, OciError> {
        answer.refuse_encoding()?;
        let mut body = answer.into_body();
        let mut bytes = Vec::new();
        let mut piece = vec![0; 16 << 10];
        loop {
            let length = body
                .read(&mut piece)
                .await
                .map_err(|error| make_connection_error(self.url, &error))?;
            if length == 0 {
                return Ok(bytes);
            }
            memory.add((length as u64).saturating_mul(1 + parsed)).await?;
            bytes.extend_from_slice(piece.get(..length).unwrap_or_default());
            if bytes.len() as u64 > limit {
                return Err(OciError::TooLarge {
                    what,
                    limit: describe_bytes(limit),
                });
            }
        }
    }

    pub(super) fn mismatch_error(&self, what: &'static str, expected: &Digest, found: &Digest) -> OciError {
        OciError::DigestMismatch {
            what,
            url: self.url.to_string(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    fn protocol_error(&self, problem: &str) -> OciError {
        OciError::Protocol {
            url: self.url.to_string(),
            problem: problem.to_owned(),
        }
    }

    fn make_unauthorized_error(&self, problem: &str) -> OciError {
        OciError::Unauthorized {
            host: self.url.to_string(),
            problem: problem.to_owned(),
        }
    }
}

/// Returns the answer to a request for a repository's tags, with the credentials of these Secrets. Trusts their `ca.crt` in addition to the system's authorities.
pub(crate) async fn ask_for_tags(
    dialer: &Dialer,
    url: &RepositoryUrl,
    secrets: &[SecretData],
) -> Result<HttpAnswer, OciError> {
    let keychain = Keychain::read(secrets)?;
    let tls = TlsOptions {
        ca: secrets.iter().find_map(|secret| secret.get("ca.crt").cloned()),
        ..TlsOptions::default()
    };
    Registry::new(dialer, url, &keychain, &tls).ask_for_tags().await
}

fn make_question<'q>(method: Method, below: &'q str, accept: &'q str) -> Question<'q> {
    Question { method, below, accept }
}

/// Makes the error for a connection that broke while a body was read.
pub(super) fn make_connection_error(url: &dyn std::fmt::Display, error: &std::io::Error) -> OciError {
    OciError::Connection(crate::error::FetchError::Broken {
        url: url.to_string(),
        problem: error.to_string(),
    })
}

/// Reads a short answer of another server than the registry.
pub(super) async fn read_small(body: Body, limit: u64, what: &'static str, shown: &str) -> Result<Vec<u8>, OciError> {
    let mut bytes = Vec::new();
    let mut body = body.take(limit.saturating_add(1));
    body.read_to_end(&mut bytes)
        .await
        .map_err(|error| make_connection_error(&shown, &error))?;
    if bytes.len() as u64 > limit {
        return Err(OciError::TooLarge {
            what,
            limit: describe_bytes(limit),
        });
    }
    Ok(bytes)
}

fn read_endpoint(url: &Url) -> Option<Endpoint> {
    let scheme = match url.scheme() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    let host = url.host_str()?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    Some(Endpoint {
        scheme,
        host: host.to_ascii_lowercase(),
        port: url.port().unwrap_or(scheme.default_port()),
    })
}

/// Returns the target of `<…>; rel="next"`.
fn find_next(value: &str) -> Option<&str> {
    let (target, parameters) = value.trim().strip_prefix('<')?.split_once('>')?;
    let is_next = parameters.split(';').any(|parameter| {
        let parameter = parameter.trim().to_ascii_lowercase();
        parameter == "rel=next" || parameter == "rel=\"next\""
    });
    is_next.then_some(target)
}
