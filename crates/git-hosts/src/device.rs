//! GitLab's device flow: a user proves their identity in a browser, and the flow yields nothing else.
//!
//! The sources are `doc/api/oauth2.md` (RFC 8628) and `doc/api/members.md`. The flow requests the smallest scope that can read members. It uses the token for two
//! questions: the user, and their level in one project or group. Then it revokes and drops the token, and never returns it. The code with which the flow gets the token
//! is a secret of the caller.

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tenure_remote_requests::git_host::{
    AccessLevel, DeviceCode, DevicePollResult, HostError, Membership, Scope, Target,
};
use tenure_sources::{BaseUrl, Connector, Credentials, HostClient, SecretBytes, TlsOptions};

use crate::answer::{Outcome, add_wait, check_answer, not_understood};
use crate::call::{Call, Reply};
use crate::host::{ANSWER_BYTES, PATIENCE, send};

/// The smallest scope that can read `members/all/:user_id`.
const SCOPE: &str = "read_api";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// The longest lifetime of a code, even if the host says more.
const LONGEST_SECONDS: i64 = 5 * 60;
const HEADERS: &[(&str, &str)] = &[("accept", "application/json")];
/// The number of answers that may arrive for one call of this module.
const ANSWERS: u64 = 4;

/// The device flow of one GitLab, for one application that its administrator registered.
#[derive(Clone, Debug)]
pub struct DeviceFlow {
    base: BaseUrl,
    client_id: String,
    tls: TlsOptions,
    reach: Connector,
}

/// The secret that belongs to a code. It is never shown.
#[derive(Clone, Debug)]
pub struct DeviceSecret(SecretBytes);

impl DeviceSecret {
    /// Restores a stored secret.
    #[must_use]
    pub fn new(value: SecretBytes) -> Self {
        Self(value)
    }

    /// Returns the value, for storage among secrets.
    #[must_use]
    pub fn value(&self) -> &SecretBytes {
        &self.0
    }
}

#[derive(Deserialize)]
struct CodeAnswer {
    device_code: String,
    user_code: String,
    verification_uri: String,
    expires_in: i64,
    interval: Option<u64>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: String,
}

#[derive(Deserialize)]
struct UserAnswer {
    id: u64,
    state: Option<String>,
}

#[derive(Deserialize)]
struct MemberAnswer {
    id: u64,
    access_level: u8,
    state: Option<String>,
}

impl DeviceFlow {
    /// Returns the flow of the GitLab at this address.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn new(address: &str, client_id: &str, tls: TlsOptions, reach: Connector) -> Result<Self, &'static str> {
        let base = BaseUrl::parse(address).ok_or("a host's address is an http or https URL without user and query")?;
        Ok(Self {
            base,
            client_id: client_id.to_owned(),
            tls,
            reach,
        })
    }

    fn client_id(&self) -> SecretBytes {
        SecretBytes::new(self.client_id.as_str())
    }

    fn client(&self) -> HostClient {
        let bounds = (ANSWER_BYTES, ANSWERS, PATIENCE);
        HostClient::new(&self.reach, &self.base, &Credentials::Anonymous, &self.tls, bounds)
    }

    /// Requests a new code. The code lives for five minutes at most.
    ///
    /// # Errors
    /// [`HostError`] when the host gives no code.
    pub async fn start(&self, now: Timestamp) -> Result<(DeviceCode, DeviceSecret), HostError> {
        let pairs = vec![("client_id", self.client_id()), ("scope", SecretBytes::new(SCOPE))];
        let call = Call::post_form("/oauth/authorize_device", pairs);
        let reply = send(&mut self.client(), HEADERS, &call).await?;
        read_code(&reply, now)
    }

    /// Asks whether a user has entered the code, and reads their level in a project or group. The caller may poll once in the code's interval.
    ///
    /// # Errors
    /// [`HostError`] when the result is unknown. A lost answer uses the code up, so the next poll returns [`DevicePollResult::Expired`].
    pub async fn poll(
        &self,
        secret: &DeviceSecret,
        target: &Target,
        now: Timestamp,
    ) -> Result<DevicePollResult, HostError> {
        let pairs = vec![
            ("grant_type", SecretBytes::new(GRANT)),
            ("device_code", secret.0.clone()),
            ("client_id", self.client_id()),
        ];
        let mut client = self.client();
        let reply = send(&mut client, HEADERS, &Call::post_form("/oauth/token", pairs)).await?;
        let token = match read_poll(&reply, now, &secret.0)? {
            Ok(token) => token,
            Err(result) => return Ok(result),
        };
        client.set_credentials(Credentials::Bearer(token.clone()));
        let shown = self.read_membership(&mut client, &token, target, now).await;
        // The token is dropped with every result. If the revocation is lost, the token ends by itself, and no other copy of it exists.
        client.set_credentials(Credentials::Anonymous);
        let pairs = vec![("token", token), ("client_id", self.client_id())];
        let _ = send(&mut client, HEADERS, &Call::post_form("/oauth/revoke", pairs)).await;
        shown.map(DevicePollResult::Shown)
    }

    /// Asks GitLab for the token's user, and for the user's level in a project or group.
    async fn read_membership(
        &self,
        client: &mut HostClient,
        token: &SecretBytes,
        target: &Target,
        now: Timestamp,
    ) -> Result<Membership, HostError> {
        let reply = send(client, HEADERS, &Call::get("/api/v4/user")).await?;
        let user_id = read_user(&reply, now, token)?;
        let place = match target.scope {
            Scope::Project => "projects",
            Scope::Group => "groups",
        };
        let call = Call::get(format!("/api/v4/{place}/{}/members/all/{user_id}", target.id));
        let reply = send(client, HEADERS, &call).await?;
        let level = read_member(&reply, user_id, now, token)?;
        Ok(Membership { user_id, level })
    }
}

fn unexpected_form() -> HostError {
    not_understood(false, "it doesn't have the form of GitLab's answers")
}

/// Reads the answer to the request for a code. The error of an unusable answer is the same as for a question, since a lost code does no harm.
fn read_code(reply: &Reply, now: Timestamp) -> Result<(DeviceCode, DeviceSecret), HostError> {
    // A lost code does no harm, so an unusable answer is an error as for a question.
    check_question(reply, now, &[])?;
    let answer: CodeAnswer = reply.read().ok_or_else(unexpected_form)?;
    let is_plain = |text: &str, most: usize| {
        !text.is_empty() && text.len() <= most && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let is_code = is_plain(&answer.user_code, 64) && is_plain(&answer.device_code, 1024);
    let is_url = is_plain(&answer.verification_uri, 2048) && answer.verification_uri.starts_with("http");
    if !is_code || !is_url || answer.expires_in <= 0 {
        return Err(unexpected_form());
    }
    let life = SignedDuration::from_secs(answer.expires_in.min(LONGEST_SECONDS));
    let code = DeviceCode {
        user_code: answer.user_code,
        verification_url: answer.verification_uri,
        expires_at: add_wait(now, life),
        interval_seconds: answer.interval.unwrap_or(5).clamp(1, 60),
    };
    Ok((code, DeviceSecret(SecretBytes::new(answer.device_code))))
}

/// Returns the token, or the state of the flow without one.
fn read_poll(
    reply: &Reply,
    now: Timestamp,
    secret: &SecretBytes,
) -> Result<Result<SecretBytes, DevicePollResult>, HostError> {
    if matches!(
        reply.status,
        StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
    ) && let Some(ErrorAnswer { error }) = reply.read()
    {
        match error.as_str() {
            "authorization_pending" => return Ok(Err(DevicePollResult::Pending)),
            "slow_down" => return Ok(Err(DevicePollResult::SlowDown)),
            "access_denied" => return Ok(Err(DevicePollResult::Denied)),
            "expired_token" | "invalid_grant" => return Ok(Err(DevicePollResult::Expired)),
            _ => {}
        }
    }
    check_question(reply, now, &[secret])?;
    let TokenAnswer { access_token } = reply.read().ok_or_else(unexpected_form)?;
    let token = SecretBytes::new(access_token);
    let is_token = !token.reveal().is_empty() && token.reveal().bytes().all(|byte| byte.is_ascii_graphic());
    if is_token {
        Ok(Ok(token))
    } else {
        Err(unexpected_form())
    }
}

/// Reads the number of the token's user. Refuses a blocked user.
fn read_user(reply: &Reply, now: Timestamp, token: &SecretBytes) -> Result<u64, HostError> {
    check_question(reply, now, &[token])?;
    let user: UserAnswer = reply.read().ok_or_else(unexpected_form)?;
    match user.state.as_deref() {
        None | Some("active") => Ok(user.id),
        Some(_) => Err(HostError::Forbidden(
            "the account of this user is not active".to_owned(),
        )),
    }
}

/// Returns the level of a user; `None` if the user is no member, or may not see the project or group.
fn read_member(
    reply: &Reply,
    user_id: u64,
    now: Timestamp,
    token: &SecretBytes,
) -> Result<Option<AccessLevel>, HostError> {
    if let Outcome::Missing(_) = check_answer(reply, false, now, &[token])? {
        return Ok(None);
    }
    let member: MemberAnswer = reply.read().ok_or_else(unexpected_form)?;
    if member.id != user_id {
        return Err(unexpected_form());
    }
    // An invited user who has not accepted is no member.
    let is_active = member.state.as_deref().is_none_or(|state| state == "active");
    Ok(is_active.then_some(AccessLevel(member.access_level)))
}

/// Checks the answer to a question. A 404 is refused, because the question is about an object that must exist.
fn check_question(reply: &Reply, now: Timestamp, secrets: &[&SecretBytes]) -> Result<(), HostError> {
    match check_answer(reply, false, now, secrets)? {
        Outcome::Success => Ok(()),
        Outcome::Missing(message) => Err(HostError::Refused { status: 404, message }),
    }
}
