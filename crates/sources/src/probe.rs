//! Probes whether a server accepts a credential, in the way that a source's client presents it.
//!
//! An answer proves that the credential opened a repository, or that the server refused the credential, or neither. A blocked address, an unavailable server or any other
//! answer proves nothing, and never counts as the end of a credential. Nothing is fetched.

use std::time::Duration;

use http::StatusCode;
use tenure_remote_requests::git_host::ProbeResult;
use tokio::io::AsyncReadExt as _;

use crate::connector::Connector;
use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::http::HttpAnswer;
use crate::limits::Limits;
use crate::oci::{self, OciError, RepositoryUrl};
use crate::policy::Scheme;
use crate::secret::{SecretData, read_secret};
use crate::smart_http::SmartHttp;
use crate::ssh::SshTransport;
use crate::transport::Input;
use crate::url::RemoteUrl;

/// Bytes of everything that arrives for one probe. The server's list of references is not read.
const RECEIVED: u64 = 4 << 20;

/// Requests a Git repository's references, as the first step of `git-upload-pack`, with the data of a Secret. The caller bounds the time.
pub async fn probe_git(url: &str, secret: &SecretData, reach: &Connector) -> ProbeResult {
    match ask_git(url, secret, reach).await {
        Ok(probed) => probed,
        Err(FetchError::Unauthorized { problem, .. }) => ProbeResult::Refused(problem),
        Err(error) => match &error {
            FetchError::HttpStatus { status, url, .. } => {
                explain_status((*status, url), error.to_string(), error.retry_after())
            }
            _ => ProbeResult::Unclear(error.to_string()),
        },
    }
}

/// The use of a key that a probe tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// To fetch.
    Read,
    /// To push.
    Push,
}

/// Asks whether an ssh key opens a repository, as the first step of a fetch or of a push. Nothing is sent, so the repository stays unchanged. For [`KeyUse::Push`],
/// [`ProbeResult::Accepted`] means that the server would take a push of this key. The caller bounds the time.
///
/// # Errors
/// When the server shows another host key than the Secret's `known_hosts`, or gives no answer about the key.
pub async fn probe_key(
    url: &str,
    secret: &SecretData,
    reach: &Connector,
    tried: KeyUse,
) -> Result<ProbeResult, FetchError> {
    let url = RemoteUrl::parse(url)?;
    let (credentials, _) = read_secret(&url, Some(secret))?;
    let dialer = make_dialer(reach);
    let opened = match tried {
        KeyUse::Read => SshTransport::open(&dialer, &url, &credentials).await,
        KeyUse::Push => SshTransport::open_for_push(&dialer, &url, &credentials).await,
    };
    match opened {
        Ok(opened) => Ok(read_opening(opened).await),
        Err(FetchError::Unauthorized { problem, .. }) => Ok(ProbeResult::Refused(problem)),
        Err(error) => Err(error),
    }
}

/// Reads the begin of the server's answer. A key without access gets an error message instead of the references.
async fn read_opening((session, mut input): (SshTransport, Input)) -> ProbeResult {
    let mut length = [0; 4];
    match input.read_exact(&mut length).await {
        Ok(_) if length.iter().all(u8::is_ascii_hexdigit) => ProbeResult::Accepted,
        _ => ProbeResult::Refused(match session.error_output() {
            Some(words) => format!("the key is accepted, and the repository is not opened: {words}"),
            None => "the key is accepted, and the repository is not opened".to_owned(),
        }),
    }
}

async fn ask_git(url: &str, secret: &SecretData, reach: &Connector) -> Result<ProbeResult, FetchError> {
    let url = RemoteUrl::parse(url)?;
    let (credentials, tls) = read_secret(&url, Some(secret))?;
    let dialer = make_dialer(reach);
    if url.endpoint().scheme == Scheme::Ssh {
        let opened = SshTransport::open(&dialer, &url, &credentials).await?;
        return Ok(read_opening(opened).await);
    }
    let mut client = SmartHttp::new(dialer, &url, &credentials, &tls);
    let answer = client.request_advertisement().await?;
    let status = answer.status();
    Ok(match status {
        StatusCode::OK
            if answer
                .content_type()
                .starts_with("application/x-git-upload-pack-advertisement") =>
        {
            ProbeResult::Accepted
        }
        StatusCode::UNAUTHORIZED => ProbeResult::Refused("HTTP 401: the server does not accept it".to_owned()),
        StatusCode::NOT_FOUND => {
            ProbeResult::Refused("HTTP 404: there is no such repository, or these credentials don't show it".to_owned())
        }
        _ => explain_answer(&answer),
    })
}

/// Requests the tags of a repository in a container registry, with the data of a Secret of type `kubernetes.io/dockerconfigjson`, and trusts its `ca.crt`. For a
/// repository without images, the registry answers a client with the right to pull that it does not exist. The caller bounds the time.
pub async fn probe_registry(url: &str, insecure: bool, secret: &SecretData, reach: &Connector) -> ProbeResult {
    let url = match RepositoryUrl::parse(url, insecure) {
        Ok(url) => url,
        Err(error) => return ProbeResult::Unclear(error.to_string()),
    };
    let dialer = make_dialer(reach);
    match oci::ask_for_tags(&dialer, &url, std::slice::from_ref(secret)).await {
        Ok(answer) => match answer.status() {
            StatusCode::OK | StatusCode::NOT_FOUND => ProbeResult::Accepted,
            StatusCode::UNAUTHORIZED => ProbeResult::Refused("HTTP 401: it gives no right to pull".to_owned()),
            _ => explain_answer(&answer),
        },
        Err(OciError::Unauthorized { problem, .. }) => ProbeResult::Refused(problem),
        Err(
            ref error @ OciError::HttpStatus {
                status,
                ref url,
                retry_after,
                ..
            },
        ) => explain_status((status, url), error.to_string(), retry_after),
        Err(error) => ProbeResult::Unclear(error.to_string()),
    }
}

fn make_dialer(reach: &Connector) -> Dialer {
    let limits = Limits {
        received_bytes: RECEIVED,
        ..Limits::default()
    };
    Dialer::new(reach.clone(), &limits)
}

/// Explains an answer that proves nothing about the credential.
fn explain_answer(answer: &HttpAnswer) -> ProbeResult {
    let status = answer.status();
    let code = status.as_u16();
    let why = match status {
        StatusCode::FORBIDDEN => {
            format!(
                "HTTP {code}: the server keeps this address out for a while, or forbids it for another reason than the credential"
            )
        }
        StatusCode::TOO_MANY_REQUESTS => format!("HTTP {code}: the server wants fewer requests"),
        _ => format!("HTTP {code}: that is no answer about a credential"),
    };
    explain_status((code, answer.requested_address()), why, answer.retry_after())
}

/// Tells a server that asks for a pause from one that gives no usable answer. Besides 429, an answer asks for a pause if it names a wait.
fn explain_status((status, url): (u16, &str), why: String, wait: Option<Duration>) -> ProbeResult {
    let asks_to_wait = status == 429 || (matches!(status, 403 | 503) && wait.is_some());
    if !asks_to_wait {
        return ProbeResult::Unclear(why);
    }
    ProbeResult::Limited {
        why,
        url: url.to_owned(),
        wait,
    }
}
