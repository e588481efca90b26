//! The hosts of AccessProviders: how each is reached, as whom, and how much of it is asked at once.
//!
//! Owns the connection to each host, with the authoriser's credential in it for a minute at most, and the last lists that hosts gave. A host that doesn't
//! answer holds up nobody else's: each has its own turns. Refuses addresses that the policy of the platform's sources refuses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tenure_api::access::AccessProvider;
use tenure_planner::access::delivery::CA_KEY;
use tenure_planner::access::host::{Ask, Capabilities, CredentialKind, HostKind, Scope, Target, Trouble};
use tenure_planner::access::rotation::Listing;
use tenure_planner::access::rotation::restraint::{HostRestraint, RestraintSeen};
use tenure_providers::{Answered, Authoriser, Host, RemoteHost, fingerprint_bytes};
use tenure_sources::{Hidden, Reach, SecretData, TlsOptions};
use tokio::sync::Semaphore;

/// How many questions and orders a host has at the same time.
const AT_ONCE: usize = 4;
/// How many requests of one who asks are worked on at the same time.
const OF_AN_ASKER: usize = 2;
/// How long a connection is used before the authoriser's Secret is read again.
const KEPT: Duration = Duration::from_secs(60);
/// The longest that a question may take, all its pages together.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most lists that are kept of one host.
const MOST_LISTINGS: usize = 2_000;

/// One host.
#[derive(Debug)]
pub(super) struct HostSlot {
    turns: Semaphore,
    connected: tokio::sync::Mutex<Option<Connected>>,
    kept: Mutex<Kept>,
}

/// A host with the credential of its authoriser.
#[derive(Clone)]
pub(super) struct Connected {
    host: Arc<RemoteHost>,
    pub(super) is_app: bool,
    /// The certificates by which the host is known, as PEM, if the authoriser's Secret has some.
    pub(super) authority: Option<Arc<Vec<u8>>>,
    /// What this connection was made of.
    made_of: String,
    since: Instant,
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connected").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Kept {
    ahead: SignedDuration,
    listings: HashMap<(Scope, u64, CredentialKind), Listing>,
    shares: HashMap<String, Arc<Semaphore>>,
    restraint: HostRestraint,
    authority: Option<String>,
}

impl Default for HostSlot {
    fn default() -> Self {
        Self {
            turns: Semaphore::new(AT_ONCE),
            connected: tokio::sync::Mutex::default(),
            kept: Mutex::default(),
        }
    }
}

/// Which API an AccessProvider says that it speaks.
pub(super) fn read_kind(provider: &AccessProvider) -> Option<HostKind> {
    match provider.spec.kind.as_str() {
        "gitlab" => Some(HostKind::Gitlab),
        "github" => Some(HostKind::Github),
        "gitea" => Some(HostKind::Gitea),
        "static" => Some(HostKind::Static),
        _ => None,
    }
}

/// What credentials of a kind can do at a host; that of one of which nothing is known says nothing.
pub(super) fn find_capabilities(kind: HostKind, credentials: CredentialKind) -> Capabilities {
    // Asked without a connection: it follows from the API alone.
    let host = RemoteHost::new(
        kind,
        "https://host.invalid",
        Authoriser::Token(Hidden::new("")),
        TlsOptions::default(),
        Reach::Here(tenure_sources::Policy::default()),
    );
    let known = host.ok().and_then(|host| host.capabilities(credentials));
    known.unwrap_or(Capabilities {
        overlap: true,
        expiry: credentials != CredentialKind::DeployKey,
        last_used: false,
        idempotent_create: false,
        group_scope: false,
        listed: credentials != CredentialKind::InstallationToken,
    })
}

/// The authoriser that a Secret holds, and what is believed of its host's certificate.
fn read_authoriser(kind: HostKind, secret: &SecretData) -> Result<(Authoriser, bool), String> {
    if kind == HostKind::Github && secret.contains_key("githubAppID") {
        let app = tenure_sources::GitHubApp::read(Some(secret)).map_err(|error| error.to_string())?;
        return Ok((Authoriser::App(Box::new(app)), true));
    }
    let text = secret.get("token").map(|bytes| std::str::from_utf8(bytes));
    match text {
        Some(Ok(token)) if !token.trim().is_empty() => Ok((Authoriser::Token(Hidden::new(token.trim())), false)),
        Some(_) => Err("its key token holds no token".to_owned()),
        None => Err("it has no key token: write the authoriser's token there".to_owned()),
    }
}

impl HostSlot {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of this host's work that one who asks can have.
    pub(super) fn share(&self, asker: &str) -> Arc<Semaphore> {
        let mut kept = self.kept();
        if kept.shares.len() > MOST_LISTINGS {
            kept.shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = kept.shares.entry(asker.to_owned());
        Arc::clone(share.or_insert_with(|| Arc::new(Semaphore::new(OF_AN_ASKER))))
    }

    /// By how much the host's clock is ahead of this one.
    pub(super) fn ahead(&self) -> SignedDuration {
        self.kept().ahead
    }

    /// SHA-256 of the certificates by which the host is known, as the last connection had them.
    pub(super) fn authority(&self) -> Option<String> {
        self.kept().authority.clone()
    }

    /// How often a target may be asked for something now.
    pub(super) fn see_restraint(&self, target: &Target) -> RestraintSeen {
        self.kept().restraint.see(target, Timestamp::now())
    }

    /// Counts a look.
    pub(super) fn note_look(&self, now: Timestamp) {
        self.kept().restraint.note_look(now);
    }

    /// Counts a credential that was shown and refused.
    pub(super) fn note_refused_probe(&self, now: Timestamp) {
        self.kept().restraint.note_refused_probe(now);
    }

    /// Counts a new credential that was refused for good.
    pub(super) fn note_refusal(&self, target: &Target) {
        self.kept().restraint.note_refusal(target, Timestamp::now());
    }

    /// A new credential of a target works.
    pub(super) fn note_acceptance(&self, target: &Target) {
        self.kept().restraint.note_acceptance(target);
    }

    /// The last list of a target.
    pub(super) fn listing(&self, target: &Target, kind: CredentialKind) -> Option<Listing> {
        self.kept().listings.get(&(target.scope, target.id, kind)).cloned()
    }

    /// Keeps a list.
    pub(super) fn keep_listing(&self, target: &Target, kind: CredentialKind, listing: Listing) {
        let mut kept = self.kept();
        if kept.listings.len() >= MOST_LISTINGS {
            kept.listings.clear();
        }
        kept.listings.insert((target.scope, target.id, kind), listing);
    }

    /// The host with its authoriser's credential: the one that is connected, or one that is made of what `read` reads.
    pub(super) async fn connect(
        &self,
        provider: &AccessProvider,
        reach: &Reach,
        read: impl Future<Output = Result<SecretData, String>>,
    ) -> Result<Connected, String> {
        let made_of = format!(
            "{} {} {:?}",
            provider.spec.kind, provider.spec.address, provider.spec.authoriser
        );
        let mut connected = self.connected.lock().await;
        if let Some(kept) = connected
            .as_ref()
            .filter(|kept| kept.made_of == made_of && kept.since.elapsed() < KEPT)
        {
            return Ok(kept.clone());
        }
        *connected = None;
        let kind = read_kind(provider).ok_or_else(|| format!("there is no kind of hosts {:?}", provider.spec.kind))?;
        let secret = read.await?;
        let (authoriser, is_app) = read_authoriser(kind, &secret)?;
        let authority = secret.get(CA_KEY).cloned().map(Arc::new);
        self.kept().authority = authority.as_deref().map(|pem| fingerprint_bytes(pem));
        let tls = TlsOptions {
            ca: authority.as_deref().cloned(),
            ..TlsOptions::default()
        };
        let host =
            RemoteHost::new(kind, &provider.spec.address, authoriser, tls, reach.clone()).map_err(str::to_owned)?;
        let new = Connected {
            host: Arc::new(host),
            is_app,
            authority,
            made_of,
            since: Instant::now(),
        };
        *connected = Some(new.clone());
        Ok(new)
    }

    /// Forgets the connection: the host didn't accept what was shown.
    async fn forget(&self) {
        *self.connected.lock().await = None;
    }

    /// Asks, once, in the host's turns. An order that hasn't been sent by its deadline isn't sent any more.
    pub(super) async fn ask(
        &self,
        connected: &Connected,
        ask: &Ask,
        deadline: Option<Timestamp>,
    ) -> Result<Answered, Trouble> {
        let left = || match deadline {
            Some(deadline) => Duration::try_from(deadline.duration_since(Timestamp::now())).unwrap_or_default(),
            None => PATIENCE,
        };
        let late = || Trouble::Unreachable("it was not this order's turn in time".to_owned());
        let _turn = match tokio::time::timeout(left() / 2, self.turns.acquire()).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(_)) | Err(_) => return Err(late()),
        };
        let now = Timestamp::now();
        let answer = match tokio::time::timeout(left(), connected.host.ask(ask, now)).await {
            Ok(answer) => answer,
            // It may have been received.
            Err(_) if ask.is_order() => Err(Trouble::Unknown("the host gave no answer in time".to_owned())),
            Err(_) => Err(Trouble::Unreachable("the host gave no answer in time".to_owned())),
        };
        match &answer {
            Ok(answered) => {
                if let Some(date) = answered.date {
                    self.kept().ahead = date.duration_since(Timestamp::now());
                }
            }
            Err(Trouble::Unauthenticated) => self.forget().await,
            Err(_) => {}
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

    use super::*;

    fn secret(key: &str, value: &str) -> SecretData {
        [(key.to_owned(), value.as_bytes().to_vec())].into()
    }

    #[test]
    fn an_authoriser_is_read_and_half_of_one_is_told() {
        assert!(read_authoriser(HostKind::Gitlab, &secret("token", "abc\n")).is_ok());
        for (key, value) in [("token", "  "), ("password", "abc")] {
            let error = read_authoriser(HostKind::Gitlab, &secret(key, value)).err().unwrap();
            assert!(error.contains("token") && !error.contains("abc"), "{error}");
        }
        assert!(find_capabilities(HostKind::Gitlab, CredentialKind::DeployToken).expiry);
        assert!(find_capabilities(HostKind::Gitlab, CredentialKind::DeployToken).listed);
    }

    #[test]
    fn one_who_asks_for_much_has_a_share_of_its_own() {
        let slot = HostSlot::default();
        let (one, other) = (slot.share("tenant a"), slot.share("tenant b"));
        let _held = Arc::clone(&one)
            .try_acquire_many_owned(u32::try_from(OF_AN_ASKER).unwrap())
            .unwrap();
        assert_eq!(one.available_permits(), 0);
        assert_eq!(slot.share("tenant a").available_permits(), 0);
        assert_eq!(other.available_permits(), OF_AN_ASKER);
    }
}
