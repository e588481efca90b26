//! Whether a credential is accepted, shown as the source's own client shows it.
//!
//! Owns what the servers' answers prove: that a repository was opened with it, that it was refused, or neither. That an address is kept out, that
//! a server is down or answers something else proves nothing about a credential, and is never taken for its end. Nothing is fetched.

use http::StatusCode;
use tenure_planner::access::host::Probed;
use tokio::io::AsyncReadExt as _;

use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::limits::Limits;
use crate::oci::{self, OciError, RepositoryUrl};
use crate::policy::Scheme;
use crate::reach::Reach;
use crate::secret::{SecretData, read_secret};
use crate::smart_http::SmartHttp;
use crate::ssh::SshTransport;
use crate::url::RemoteUrl;

/// Bytes of everything that arrives for one probe. What a server lists of its references is not read.
const RECEIVED: u64 = 4 << 20;

/// Asks a repository of Git what it has, as `git-upload-pack` does at first, with the data of a Secret. Time is the caller's to bound.
pub async fn probe_git(url: &str, secret: &SecretData, reach: &Reach) -> Probed {
    match ask_git(url, secret, reach).await {
        Ok(probed) => probed,
        Err(FetchError::Unauthorized { problem, .. }) => Probed::Refused(problem),
        Err(error) => Probed::Unclear(error.to_string()),
    }
}

async fn ask_git(url: &str, secret: &SecretData, reach: &Reach) -> Result<Probed, FetchError> {
    let url = RemoteUrl::parse(url)?;
    let (credentials, tls) = read_secret(&url, Some(secret))?;
    let dialer = make_dialer(reach);
    if url.endpoint().scheme == Scheme::Ssh {
        let (session, mut input) = SshTransport::open(&dialer, &url, &credentials).await?;
        let mut length = [0; 4];
        // Whoever may not is told so instead of what there is.
        return Ok(match input.read_exact(&mut length).await {
            Ok(_) if length.iter().all(u8::is_ascii_hexdigit) => Probed::Accepted,
            _ => Probed::Refused(match session.complaint() {
                Some(words) => format!("the key is accepted, and the repository is not opened: {words}"),
                None => "the key is accepted, and the repository is not opened".to_owned(),
            }),
        });
    }
    let mut client = SmartHttp::new(dialer, &url, &credentials, &tls);
    let answer = client.ask_what_is_offered().await?;
    let status = answer.status();
    Ok(match status {
        StatusCode::OK
            if answer
                .content_type()
                .starts_with("application/x-git-upload-pack-advertisement") =>
        {
            Probed::Accepted
        }
        StatusCode::UNAUTHORIZED => Probed::Refused("HTTP 401: the server does not accept it".to_owned()),
        StatusCode::NOT_FOUND => {
            Probed::Refused("HTTP 404: there is no such repository, or it is hidden from whoever shows this".to_owned())
        }
        status => Probed::Unclear(explain(status)),
    })
}

/// Asks a repository of a container registry for its tags, with the data of a Secret of type `kubernetes.io/dockerconfigjson`, and believes its `ca.crt`. Of a repository
/// without images it is answered that there is none, to whoever may pull from it. Time is the caller's to bound.
pub async fn probe_registry(url: &str, insecure: bool, secret: &SecretData, reach: &Reach) -> Probed {
    let url = match RepositoryUrl::parse(url, insecure) {
        Ok(url) => url,
        Err(error) => return Probed::Unclear(error.to_string()),
    };
    let dialer = make_dialer(reach);
    match oci::ask_for_tags(&dialer, &url, std::slice::from_ref(secret)).await {
        Ok(StatusCode::OK | StatusCode::NOT_FOUND) => Probed::Accepted,
        Ok(StatusCode::UNAUTHORIZED) => Probed::Refused("HTTP 401: it gives no right to pull".to_owned()),
        Ok(status) => Probed::Unclear(explain(status)),
        Err(OciError::Unauthorized { problem, .. }) => Probed::Refused(problem),
        Err(error) => Probed::Unclear(error.to_string()),
    }
}

fn make_dialer(reach: &Reach) -> Dialer {
    let limits = Limits {
        received_bytes: RECEIVED,
        ..Limits::default()
    };
    Dialer::new(reach.clone(), &limits)
}

fn explain(status: StatusCode) -> String {
    let code = status.as_u16();
    match status {
        StatusCode::FORBIDDEN => {
            format!(
                "HTTP {code}: the server keeps this address out for a while, or forbids it for another reason than the credential"
            )
        }
        StatusCode::TOO_MANY_REQUESTS => format!("HTTP {code}: the server wants fewer requests"),
        _ => format!("HTTP {code}: that is no answer about a credential"),
    }
}
