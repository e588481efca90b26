//! A Helm repository over HTTP: its address, the credentials for it, and downloads of its files. Credentials go to the repository's own host, and to other hosts of
//! charts only if the HelmRepository says so.

use std::io::Write as _;

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Method, StatusCode};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use url::Url;

use super::error::ChartError;
use crate::artifact::{ArtifactStore, IncomingFile, TaskWrite as _};
use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::fetch_budgets;
use crate::http::{HttpAnswer, HttpClient, HttpRequest, Location};
use crate::limits::describe_bytes;
use crate::policy::{Endpoint, Scheme};
use crate::secret::{Credentials, Reader, SecretBytes, SecretData, TlsOptions, read_tls};
use crate::url::read_host;

const AGENT: &str = concat!("tenure/", env!("CARGO_PKG_VERSION"));

/// A repository over HTTP, with the credentials for it.
#[derive(Debug, Clone)]
pub(super) struct HttpRepository {
    url: Url,
    endpoint: Endpoint,
    credentials: Credentials,
    tls: TlsOptions,
    passes_credentials: bool,
}

/// A received file, with its digest and size.
pub(super) struct ReceivedFile {
    pub(super) file: IncomingFile,
    /// `sha256:<hex>`.
    pub(super) digest: String,
    pub(super) size: u64,
}

impl HttpRepository {
    /// Reads the address of a repository, and the Secrets for it.
    ///
    /// # Errors
    /// [`ChartError::InvalidUrl`] or [`ChartError::InvalidSecret`].
    pub(super) fn read(
        text: &str,
        (secret, certificates): (Option<&SecretData>, Option<&SecretData>),
        passes_credentials: bool,
    ) -> Result<Self, ChartError> {
        let shown = tenure_api::SourceUrl::new(text).shown();
        let invalid = |problem: &str| ChartError::InvalidUrl {
            url: shown.clone(),
            problem: problem.to_owned(),
        };
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(invalid("it has spaces, backslashes or control characters"));
        }
        let mut url = Url::parse(text).map_err(|_| invalid("write https://host/path"))?;
        let endpoint = read_endpoint(&url).ok_or_else(|| invalid("write https://host/path, or http://host/path"))?;
        let (credentials, tls) = read_credentials(&url, secret, certificates)?;
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        let path = format!("{}/", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(Self {
            url,
            endpoint,
            credentials,
            tls,
            passes_credentials,
        })
    }

    /// Returns the address without user, password and query.
    pub(super) fn display_address(&self) -> String {
        show(&self.url)
    }

    /// Returns the address of the index.
    pub(super) fn index_url(&self) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}index.yaml", self.url.path()));
        url
    }

    /// Returns the address of a chart. The index may name it relative to the repository; then the repository's query is part of it, too.
    ///
    /// # Errors
    /// A [`ChartError::Pull`] for an address that is no HTTP URL.
    pub(super) fn resolve(&self, reference: &str) -> Result<Url, ChartError> {
        let invalid =
            || ChartError::Pull("the index names an address of the chart that is no http or https URL".to_owned());
        let mut url = self.url.join(reference).map_err(|_| invalid())?;
        if Url::parse(reference).is_err() && !reference.starts_with("//") {
            url.set_query(self.url.query());
        }
        read_endpoint(&url).ok_or_else(invalid)?;
        // The index is content of others: a user and a password in it are never sent.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Ok(url)
    }

    /// Downloads a file of the repository into a new file of the store.
    ///
    /// # Errors
    /// A [`FetchError`]: the server's answer, a broken connection, or a bound.
    pub(super) async fn download(
        &self,
        url: &Url,
        (dialer, store, lane): (&Dialer, &ArtifactStore, &str),
        (what, limit): (&'static str, u64),
    ) -> Result<ReceivedFile, FetchError> {
        let request = make_request(url)?;
        let home = if self.passes_credentials {
            &request.endpoint
        } else {
            &self.endpoint
        };
        let mut client = HttpClient::new(dialer.clone(), home, &self.credentials, &self.tls, AGENT);
        let follow = |_: &HttpRequest, location: Location| make_redirected_request(location);
        let answer = client.send_and_follow(request, follow).await?;
        client.refuse_unauthorized(&answer)?;
        refuse_failure(&answer)?;
        answer.refuse_encoding()?;
        receive(answer, (store, lane), (what, limit)).await
    }
}

fn refuse_failure(answer: &HttpAnswer) -> Result<(), FetchError> {
    let status = answer.status();
    if status == StatusCode::OK {
        return Ok(());
    }
    Err(FetchError::HttpStatus {
        url: answer.requested_address().to_owned(),
        status: status.as_u16(),
        problem: match status {
            StatusCode::NOT_FOUND => "there is no such file, or it needs (other) credentials",
            StatusCode::TOO_MANY_REQUESTS => "it wants fewer requests",
            status if status.is_server_error() => "the server has a problem",
            _ => "that is no file",
        },
        retry_after: answer.retry_after(),
    })
}

/// Receives the body of an answer into a new file.
async fn receive(
    answer: HttpAnswer,
    (store, lane): (&ArtifactStore, &str),
    (what, limit): (&'static str, u64),
) -> Result<ReceivedFile, FetchError> {
    let url = answer.requested_address().to_owned();
    let mut body = answer.into_body();
    let mut file = store.incoming_file(lane)?;
    let path = file.path().to_owned();
    let failed = |error: std::io::Error| match fetch_budgets::find_refusal(&error) {
        Some(refused) => FetchError::OverBudget(refused),
        None => store.io_error("write", &path, error).into(),
    };
    // This task writes to the disk itself: pieces of 64 KiB go to the page cache, so the task blocks only briefly.
    let mut out = file.task_writer(store);
    let (mut hash, mut size) = (Sha256::new(), 0_u64);
    let mut piece = vec![0; 64 << 10];
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
        if size > limit {
            return Err(FetchError::HttpApi {
                url,
                problem: format!("{what} is larger than {}", describe_bytes(limit)),
            });
        }
        let bytes = piece.get(..length).unwrap_or_default();
        hash.update(bytes);
        out.write_ready(bytes).await.map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    drop(out);
    file.complete();
    let digest = format!("sha256:{}", hex::encode(hash.finalize()));
    Ok(ReceivedFile { file, digest, size })
}

fn make_request(url: &Url) -> Result<HttpRequest, FetchError> {
    let endpoint = read_endpoint(url).ok_or_else(|| FetchError::HttpApi {
        url: show(url),
        problem: "it is no http or https URL".to_owned(),
    })?;
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    Ok(HttpRequest {
        method: Method::GET,
        endpoint,
        target: format!("{}{query}", url.path()),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        shown: show(url),
    })
}

fn make_redirected_request(location: Location) -> Result<HttpRequest, FetchError> {
    let Location { url, path, query } = location;
    let mut request = make_request(&url)?;
    request.target = if query.is_empty() {
        path
    } else {
        format!("{path}?{query}")
    };
    Ok(request)
}

/// Returns the server of an http or https URL.
fn read_endpoint(url: &Url) -> Option<Endpoint> {
    let scheme = match url.scheme() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    let host = read_host(url)?;
    let port = url.port().unwrap_or(scheme.default_port());
    let is_host = !host.is_empty() && !host.starts_with('-') && !host.contains('%') && port != 0;
    is_host.then_some(Endpoint { scheme, host, port })
}

fn show(url: &Url) -> String {
    read_endpoint(url).map_or_else(
        || "(not shown)".to_owned(),
        |endpoint| format!("{endpoint}{}", url.path()),
    )
}

/// Reads the credentials for a repository: `username` and `password` of the Secret, or those of the URL, and the certificates. Certificates may also be in the Secret of
/// `spec.secretRef`, as in older objects.
fn read_credentials(
    url: &Url,
    secret: Option<&SecretData>,
    certificates: Option<&SecretData>,
) -> Result<(Credentials, TlsOptions), ChartError> {
    let explain = |field| {
        move |error: FetchError| ChartError::InvalidSecret {
            field,
            problem: match error {
                FetchError::InvalidSecret { problem } => problem,
                other => other.to_string(),
            },
        }
    };
    let invalid = |problem: &str| ChartError::InvalidSecret {
        field: "spec.secretRef",
        problem: problem.to_owned(),
    };
    let tls = match certificates {
        Some(data) => read_tls(Some(data)).map_err(explain("spec.certSecretRef"))?,
        None => read_tls(secret).map_err(explain("spec.secretRef"))?,
    };
    let pair = match secret {
        Some(data) => read_pair(data).map_err(explain("spec.secretRef"))?,
        None => None,
    };
    let pair = match pair {
        None => url
            .password()
            .map(|password| (url.username().to_owned(), password.to_owned())),
        pair => pair,
    };
    let Some((username, password)) = pair else {
        return Ok((Credentials::Anonymous, tls));
    };
    if username.contains(':') {
        return Err(invalid("username holds a colon"));
    }
    let password = SecretBytes::new(password);
    Ok((Credentials::Basic { username, password }, tls))
}

/// Reads `username` and `password` of a Secret; `None` if it has neither.
fn read_pair(data: &SecretData) -> Result<Option<(String, String)>, FetchError> {
    let reader = Reader::new(data);
    let half = |problem: &str| FetchError::InvalidSecret {
        problem: problem.to_owned(),
    };
    match (reader.text("username")?, reader.text("password")?) {
        (Some(username), Some(password)) => Ok(Some((username.to_owned(), password.to_owned()))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(half("username is set without password")),
        (None, Some(_)) => Err(half("password is set without username")),
    }
}

#[cfg(test)]
mod tests {
    use super::HttpRepository;

    fn read(url: &str) -> HttpRepository {
        HttpRepository::read(url, (None, None), false).unwrap()
    }

    #[test]
    fn addresses_are_relative_to_the_repository() {
        let repository = read("https://user:secret@charts.example/stable?token=t");
        assert_eq!(
            repository.index_url().as_str(),
            "https://charts.example/stable/index.yaml?token=t"
        );
        for (reference, expected) in [
            ("app-1.0.0.tgz", "https://charts.example/stable/app-1.0.0.tgz?token=t"),
            ("charts/app.tgz", "https://charts.example/stable/charts/app.tgz?token=t"),
            ("/app.tgz", "https://charts.example/app.tgz?token=t"),
            ("https://other.example/app.tgz", "https://other.example/app.tgz"),
            ("//other.example/app.tgz", "https://other.example/app.tgz"),
            ("https://a:b@other.example/app.tgz", "https://other.example/app.tgz"),
        ] {
            assert_eq!(repository.resolve(reference).unwrap().as_str(), expected, "{reference}");
        }
        for reference in ["oci://host/app", "file:///etc/passwd", "https://", "https://host:0/app"] {
            assert!(repository.resolve(reference).is_err(), "{reference}");
        }
        assert_eq!(repository.display_address(), "https://charts.example:443/stable/");
        assert!(!format!("{:?}", repository.credentials).contains("secret"));
    }

    #[test]
    fn only_http_addresses_are_repositories() {
        for url in ["oci://host/path", "ftp://host/", "https://", "https://a b/", "no-url"] {
            assert!(HttpRepository::read(url, (None, None), false).is_err(), "{url}");
        }
        assert_eq!(read("http://host").index_url().as_str(), "http://host/index.yaml");
    }
}
