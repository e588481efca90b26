//! The conversation for one question or order: the first request, and the step after each answer. Pure.
//!
//! Two rules hold for all hosts: a list is bounded, and an answer is checked before its content is read.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use tenure_remote_requests::git_host::{
    Capabilities, CredentialKind, HostError, HostKind, HostQuery, HostReply, ListedCredential, MintRequest,
    MintedCredential, TargetDescription,
};
use tenure_sources::SecretBytes;
use url::Url;

use crate::answer::{Outcome, check_answer, not_understood};
use crate::call::{Call, Reply};
use crate::deploy_key::{fingerprint_key, fingerprint_value, strip_comment};

/// The largest number of pages that are read of a list.
pub(crate) const PAGES: usize = 200;
/// The requested number of entries on a page: the largest number that the hosts allow.
pub(crate) const PAGE: usize = 100;
/// The largest size of a token in bytes.
const TOKEN_BYTES: usize = 4096;

/// The step of a conversation after an answer: another request, or the result.
#[derive(Debug)]
pub(crate) enum ApiStep {
    /// Another request.
    Next(Call),
    /// The answer, and the value of a new credential.
    Done(HostReply, Option<SecretBytes>),
}

/// The state of a conversation, which is the sequence of requests for one question or order.
pub(crate) struct Progress {
    /// The last request.
    pub(crate) call: Call,
    /// The number of requests.
    pub(crate) calls: usize,
    /// The listed credentials of the pages that have arrived so far.
    pub(crate) listed: Vec<ListedCredential>,
}

/// The API of one kind of Git host: turns questions and orders into requests, and reads the answers.
pub(crate) trait Api: Send + Sync {
    fn kind(&self) -> HostKind;

    /// The part of a path between the host's address and the target.
    fn prefix(&self) -> &'static str;

    /// The headers of the requests.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("accept", "application/json")]
    }

    fn capabilities(&self, kind: CredentialKind) -> Option<Capabilities>;

    /// Returns the first request.
    fn first_call(&self, query: &HostQuery) -> Result<Call, HostError>;

    /// Finds the next page of a list at a host that reports the number of entries in place of a link.
    fn find_next_by_count(&self, _: &Progress, _: &Reply) -> Option<Call> {
        None
    }

    /// Reads an answer without trouble. [`Outcome::Missing`] is the API's answer for a missing object.
    fn read(
        &self,
        query: &HostQuery,
        progress: &mut Progress,
        outcome: &Outcome,
        reply: &Reply,
    ) -> Result<ApiStep, HostError>;
}

/// Decides what follows an answer: another request, or the result of the conversation.
pub(crate) fn find_next_step(
    api: &dyn Api,
    query: &HostQuery,
    progress: &mut Progress,
    reply: &Reply,
    (now, secrets): (Timestamp, &[&SecretBytes]),
) -> Result<ApiStep, HostError> {
    let outcome = check_answer(reply, progress.call.is_order(), now, secrets)?;
    let before = progress.listed.len();
    let step = api.read(query, progress, &outcome, reply)?;
    // A list is complete when it has no next page.
    if let (ApiStep::Done(HostReply::Listed(_), _), Outcome::Success) = (&step, &outcome) {
        let next = reply.next_page(&progress.call);
        let next = next.map_err(|why| HostError::NotUnderstood(why.to_owned()))?;
        let has_grown = progress.listed.len() > before;
        if let Some(call) = next.or_else(|| has_grown.then(|| api.find_next_by_count(progress, reply))?) {
            if progress.calls >= PAGES {
                let why = format!("its list has more than {PAGES} pages");
                return Err(HostError::NotUnderstood(why));
            }
            return Ok(ApiStep::Next(call));
        }
        return Ok(ApiStep::Done(
            HostReply::Listed(std::mem::take(&mut progress.listed)),
            None,
        ));
    }
    Ok(step)
}

/// Reads the answer as a value, or returns the meaning of an unreadable answer.
pub(crate) fn read<T: DeserializeOwned>(progress: &Progress, reply: &Reply) -> Result<T, HostError> {
    let why = "it doesn't have the form of this API's answers";
    reply
        .read()
        .ok_or_else(|| not_understood(progress.call.is_order(), why))
}

/// Reads a number that the host gave to something. Kubernetes stores numbers up to 2^63 - 1, so a larger one could not be recorded.
pub(crate) fn read_number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = <u64 as serde::Deserialize>::deserialize(deserializer)?;
    match i64::try_from(number) {
        Ok(_) => Ok(number),
        Err(_) => Err(serde::de::Error::custom("the number is larger than 2^63 - 1")),
    }
}

/// Returns [`HostError::Refused`] if the outcome is that a required object is missing or invisible.
pub(crate) fn refuse_missing(outcome: &Outcome) -> Result<(), HostError> {
    match outcome {
        Outcome::Success => Ok(()),
        Outcome::Missing(message) => Err(HostError::Refused {
            status: 404,
            message: message.clone(),
        }),
    }
}

/// Returns the error for an operation that this API lacks. No request is sent.
pub(crate) fn refuse_unsupported(what: &str) -> HostError {
    HostError::Refused {
        status: 0,
        message: what.to_owned(),
    }
}

/// Adds the entries of a page, and returns the step for the case that it was the last page.
pub(crate) fn add_page(progress: &mut Progress, page: impl IntoIterator<Item = ListedCredential>) -> ApiStep {
    progress.listed.extend(page);
    ApiStep::Done(HostReply::Listed(Vec::new()), None)
}

/// Checks a host's texts that are shown and compared: a path, or a URL without a user.
pub(crate) fn check_found(mut found: TargetDescription) -> Result<TargetDescription, HostError> {
    found.ssh_url = found.ssh_url.map(write_ssh_url);
    let is_plain = |text: &str| {
        !text.is_empty() && text.len() <= 2048 && text.chars().all(|c| !c.is_control() && !c.is_whitespace())
    };
    let is_url = |url: &Option<String>| {
        url.as_deref().is_none_or(|url| {
            let read = Url::parse(url);
            is_plain(url) && read.map_or(true, |read| read.password().is_none())
        })
    };
    let has_registry = found.registry_prefix.as_deref().is_none_or(is_plain);
    if check_path(&found.target.path, 1..=21).is_ok()
        && is_url(&found.http_url)
        && is_url(&found.ssh_url)
        && has_registry
    {
        Ok(found)
    } else {
        Err(HostError::NotUnderstood("it holds an invalid path or URL".to_owned()))
    }
}

/// Rewrites ssh's shorter form, `git@host:path`, as a URL. Hosts with port 22 answer in this form, and sources don't take it.
fn write_ssh_url(text: String) -> String {
    let Some((host, path)) = text.split_once(':').filter(|_| !text.contains("://")) else {
        return text;
    };
    // This form has no port: the part after the colon is a path.
    format!("ssh://{host}/{}", path.trim_start_matches('/'))
}

/// Reads the answer to an order for a token.
pub(crate) fn read_minted_token(
    id: Option<u64>,
    username: Option<String>,
    expires_at: Option<Timestamp>,
    token: String,
) -> Result<ApiStep, HostError> {
    let is_name = |name: &str| {
        !name.is_empty() && name.len() <= 255 && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
    };
    if !username.as_deref().is_none_or(is_name) {
        return Err(not_understood(
            true,
            "it holds a user name that can't be shown to a server",
        ));
    }
    let token = SecretBytes::new(token);
    let text = token.reveal();
    if text.is_empty() || text.len() > TOKEN_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(not_understood(true, "it holds no token"));
    }
    let minted = MintedCredential {
        id,
        username,
        expires_at,
        fingerprint: fingerprint_value(&token),
    };
    Ok(ApiStep::Done(HostReply::Minted(minted), Some(token)))
}

/// Reads the answer to an order for a key. The host answers with the key that it stored.
pub(crate) fn read_minted_key(
    request: &MintRequest,
    (id, key, may_write): (u64, &str, bool),
    expires_at: Option<Timestamp>,
) -> Result<ApiStep, HostError> {
    let public = request.public_key.as_deref().unwrap_or_default();
    if strip_comment(key) != strip_comment(public) {
        return Err(not_understood(true, "its key differs from the key that was sent"));
    }
    if may_write {
        return Err(HostError::Refused {
            status: 201,
            message: format!("key {id} was there before, and may write: remove it, or send another one"),
        });
    }
    let minted = MintedCredential {
        id: Some(id),
        username: None,
        expires_at,
        fingerprint: fingerprint_key(public),
    };
    Ok(ApiStep::Done(HostReply::Minted(minted), None))
}

/// Returns the public key of an order for a key.
pub(crate) fn read_public_key(request: &MintRequest) -> Result<&str, HostError> {
    let public = request.public_key.as_deref();
    public.ok_or_else(|| refuse_unsupported("an order for a deploy key needs its public half"))
}

/// Reads a time, or a date as its first moment (GitLab's tokens of people end then).
pub(crate) fn read_time(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse() {
        return Some(time);
    }
    let date: Date = text.parse().ok()?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Reads a time that may be missing.
pub(crate) fn read_optional_time(text: Option<&str>, is_order: bool) -> Result<Option<Timestamp>, HostError> {
    match text {
        None => Ok(None),
        Some(text) => read_time(text)
            .map(Some)
            .ok_or_else(|| not_understood(is_order, "it holds an invalid time")),
    }
}

/// Checks a path of a project or group: parts of printable characters that are neither empty nor `.` or `..`.
pub(crate) fn check_path(path: &str, parts: std::ops::RangeInclusive<usize>) -> Result<(), HostError> {
    let is_part = |part: &str| {
        let known = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
        !part.is_empty() && part != "." && part != ".." && part.chars().all(known)
    };
    let is_path = path.len() <= 1024 && path.split('/').all(is_part) && parts.contains(&path.split('/').count());
    match is_path {
        true => Ok(()),
        false => Err(refuse_unsupported("that is no path of a project or group at this host")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ssh_form_becomes_a_url() {
        for (written, meant) in [
            ("git@github.com:group-1/app.git", "ssh://git@github.com/group-1/app.git"),
            ("git@host:/srv/app.git", "ssh://git@host/srv/app.git"),
            ("ssh://git@host:2222/app.git", "ssh://git@host:2222/app.git"),
            ("", ""),
        ] {
            assert_eq!(write_ssh_url(written.to_owned()), meant);
        }
    }

    #[test]
    fn times_and_dates_are_read() {
        let read = |text: &str| read_time(text).map(|time| time.to_string());
        assert_eq!(read("2030-01-02"), Some("2030-01-02T00:00:00Z".to_owned()));
        assert_eq!(
            read("2030-01-02T03:04:05.000Z"),
            Some("2030-01-02T03:04:05Z".to_owned())
        );
        assert_eq!(
            read("2030-01-02T03:04:05+02:00"),
            Some("2030-01-02T01:04:05Z".to_owned())
        );
        assert_eq!(read("tomorrow"), None);
    }

    #[test]
    fn invalid_project_paths_are_refused() {
        for good in ["group/project", "a/b.c/d-e_f"] {
            assert!(check_path(good, 2..=20).is_ok(), "{good}");
        }
        for bad in [
            "", "a", "a//b", "a/../b", "./a", "a/b?x", "a/b#x", "a/b%2f", "a/b c", "a/b\n", "/a/b",
        ] {
            assert!(check_path(bad, 2..=20).is_err(), "{bad}");
        }
    }
}
