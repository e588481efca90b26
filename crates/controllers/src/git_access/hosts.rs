//! The hosts of AccessProviders: the connection to each, its credential, and the limit of concurrent requests.
//!
//! This module has the connection to each host, with the authoriser's credential in it for a minute at most, and the last lists of each host. Each
//! host has its own turns, so a host that does not answer delays no other host. Addresses that the policy of the platform's sources forbids are
//! refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use git_hosts::{AuthoriserCredential, Host, HostResponse, RemoteHost, fingerprint_bytes};
use jiff::{SignedDuration, Timestamp};
use tenure_api::access::AccessProvider;
use tenure_api::access::request::CredentialLedger;
use tenure_git_access::delivery::CA_KEY;
use tenure_git_access::rotation::rate_limits::{HostRateLimiter, RateLimitState};
use tenure_git_access::rotation::{Listing, TrialResult};
use tenure_remote_requests::git_host::{Capabilities, CredentialKind, HostError, HostKind, HostQuery, Scope, Target};
use tenure_sources::{Connector, SecretBytes, SecretData, TlsOptions};
use tokio::sync::Semaphore;

/// The limit of concurrent questions and orders of a host.
const AT_ONCE: usize = 4;
/// The limit of concurrently processed requests of one requester.
const OF_AN_ASKER: usize = 2;
/// How long a connection is used before the authoriser's Secret is read again.
const KEPT: Duration = Duration::from_secs(60);
/// The time limit of a question, with all its pages.
const PATIENCE: Duration = Duration::from_secs(120);
/// The limit of stored lists of one host.
const MOST_LISTINGS: usize = 2_000;

/// One host.
#[derive(Debug)]
pub(super) struct HostSlot {
    turns: Semaphore,
    connected: tokio::sync::Mutex<Option<Connected>>,
    kept: Mutex<HostMemory>,
}

/// A host with the credential of its authoriser.
#[derive(Clone)]
pub(super) struct Connected {
    host: Arc<RemoteHost>,
    pub(super) is_app: bool,
    /// The certificates of the host's authority, as PEM, if the authoriser's Secret has some.
    pub(super) authority: Option<Arc<Vec<u8>>>,
    /// The provider's fields from which this connection was made.
    made_of: String,
    since: Instant,
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connected").finish_non_exhaustive()
    }
}

/// The counts of one host. All AccessProviders with its address share them: a host limits and bans the address of the cluster, and not a provider.
pub(super) type SharedRateLimiter = Arc<Mutex<HostRateLimiter>>;

#[derive(Debug, Default)]
struct HostMemory {
    ahead: SignedDuration,
    listings: HashMap<(Scope, u64, CredentialKind), Listing>,
    shares: HashMap<String, Arc<Semaphore>>,
    restraint: SharedRateLimiter,
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

/// Returns the API that an AccessProvider names.
pub(super) fn read_kind(provider: &AccessProvider) -> Option<HostKind> {
    match provider.spec.kind.as_str() {
        "gitlab" => Some(HostKind::Gitlab),
        "github" => Some(HostKind::Github),
        "gitea" => Some(HostKind::Gitea),
        "static" => Some(HostKind::Static),
        _ => None,
    }
}

/// Returns the capabilities of credentials of a kind at a host. If the host's API does not know the kind, cautious defaults are returned.
pub(super) fn find_capabilities(kind: HostKind, credentials: CredentialKind) -> Capabilities {
    // Without a connection: the answer follows from the API alone.
    let host = RemoteHost::new(
        kind,
        "https://host.invalid",
        AuthoriserCredential::Token(SecretBytes::new("")),
        TlsOptions::default(),
        Connector::Here(tenure_sources::Policy::default()),
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

/// Reads the authoriser from a Secret, and the trust in its host's certificate.
fn read_authoriser(kind: HostKind, secret: &SecretData) -> Result<(AuthoriserCredential, bool), String> {
    if kind == HostKind::Github && secret.contains_key("githubAppID") {
        let app = tenure_sources::GitHubApp::read(Some(secret)).map_err(|error| error.to_string())?;
        return Ok((AuthoriserCredential::App(Box::new(app)), true));
    }
    let text = secret.get("token").map(|bytes| std::str::from_utf8(bytes));
    match text {
        Some(Ok(token)) if !token.trim().is_empty() => {
            Ok((AuthoriserCredential::Token(SecretBytes::new(token.trim())), false))
        }
        Some(_) => Err("its key token holds no token".to_owned()),
        None => Err("it has no key token: write the authoriser's token there".to_owned()),
    }
}

impl HostSlot {
    fn kept(&self) -> MutexGuard<'_, HostMemory> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shares the counts of requests and refusals with the other providers of the same host.
    pub(super) fn share_restraint(&self, restraint: SharedRateLimiter) {
        self.kept().restraint = restraint;
    }

    /// Reads or changes the counts of the host.
    fn with_restraint<T>(&self, act: impl FnOnce(&mut HostRateLimiter) -> T) -> T {
        let restraint = Arc::clone(&self.kept().restraint);
        let mut restraint = restraint.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut restraint)
    }

    /// Returns one requester's part of this host's capacity.
    pub(super) fn share(&self, asker: &str) -> Arc<Semaphore> {
        let mut kept = self.kept();
        if kept.shares.len() > MOST_LISTINGS {
            kept.shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = kept.shares.entry(asker.to_owned());
        Arc::clone(share.or_insert_with(|| Arc::new(Semaphore::new(OF_AN_ASKER))))
    }

    /// Returns the lead of the host's clock over this one.
    pub(super) fn ahead(&self) -> SignedDuration {
        self.kept().ahead
    }

    /// Returns the SHA-256 of the host's authority certificates in the last connection.
    pub(super) fn authority(&self) -> Option<String> {
        self.kept().authority.clone()
    }

    /// Returns the limits for a credential with this ledger. `owner` is its request and namespace.
    pub(super) fn see_restraint(
        &self,
        target: &Target,
        owner: &str,
        ledger: &CredentialLedger,
        is_wanted: bool,
    ) -> RateLimitState {
        self.with_restraint(|restraint| {
            restraint.follow_ledger(target, owner, ledger, is_wanted);
            restraint.find_state(target, owner, ledger, Timestamp::now())
        })
    }

    /// Restores the counts of a target from a ledger that this process sees for the first time.
    pub(super) fn restore_restraint(&self, target: &Target, ledger: &CredentialLedger) {
        self.with_restraint(|restraint| restraint.restore(target, ledger, Timestamp::now()));
    }

    /// Begins the trial of a new credential, unless its target has no room for another one.
    pub(super) fn begin_trial(&self, target: &Target, owner: &str, nonce: &str) -> bool {
        self.with_restraint(|restraint| restraint.begin_trial(target, owner, nonce, Timestamp::now()))
    }

    /// Records the host's verdict on a new credential.
    pub(super) fn record_trial(&self, target: &Target, owner: &str, result: TrialResult) {
        self.with_restraint(|restraint| restraint.record_trial(target, owner, result, Timestamp::now()));
    }

    /// Counts a read at the host.
    pub(super) fn record_list(&self, now: Timestamp) {
        self.with_restraint(|restraint| restraint.record_list(now));
    }

    /// Counts a credential that was shown and refused.
    pub(super) fn record_refused_probe(&self, now: Timestamp) {
        self.with_restraint(|restraint| restraint.record_refused_probe(now));
    }

    /// Records that the host takes no requests for a while, if the answer says so.
    pub(super) fn record_block(&self, answer: &HostError) {
        self.with_restraint(|restraint| restraint.record_block(answer, Timestamp::now()));
    }

    /// Records that a server with another name, at which credentials are tried, takes no requests for a while.
    pub(super) fn record_probe_pause(&self, until: Timestamp, now: Timestamp) {
        self.with_restraint(|restraint| restraint.record_probe_pause(until, now));
    }

    /// Returns the host's answer that is still valid, if it takes no requests now.
    pub(super) fn find_block(&self) -> Option<HostError> {
        self.with_restraint(|restraint| restraint.find_block(Timestamp::now()))
    }

    /// Returns the last list of a target.
    pub(super) fn listing(&self, target: &Target, kind: CredentialKind) -> Option<Listing> {
        self.kept().listings.get(&(target.scope, target.id, kind)).cloned()
    }

    /// Stores a list.
    pub(super) fn keep_listing(&self, target: &Target, kind: CredentialKind, listing: Listing) {
        let mut kept = self.kept();
        if kept.listings.len() >= MOST_LISTINGS {
            kept.listings.clear();
        }
        kept.listings.insert((target.scope, target.id, kind), listing);
    }

    /// Returns the host's connection with its authoriser's credential: the existing one, or a new one from the Secret that `read` reads.
    pub(super) async fn connect(
        &self,
        provider: &AccessProvider,
        reach: &Connector,
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
        let kind = read_kind(provider).ok_or_else(|| format!("{:?} is not a kind of host", provider.spec.kind))?;
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

    /// Drops the connection: the host did not accept the credential.
    async fn forget(&self) {
        *self.connected.lock().await = None;
    }

    /// Asks once, in the host's turns. An order that has not been sent by its deadline is not sent any more.
    pub(super) async fn ask(
        &self,
        connected: &Connected,
        ask: &HostQuery,
        deadline: Option<Timestamp>,
    ) -> Result<HostResponse, HostError> {
        let left = || match deadline {
            Some(deadline) => Duration::try_from(deadline.duration_since(Timestamp::now())).unwrap_or_default(),
            None => PATIENCE,
        };
        let late = || HostError::Unreachable("the order waited too long for its turn".to_owned());
        let _turn = match tokio::time::timeout(left() / 2, self.turns.acquire()).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(_)) | Err(_) => return Err(late()),
        };
        // A request during a ban makes the ban longer, and a host bans the address of the whole cluster.
        if let Some(block) = self.find_block() {
            return Err(block);
        }
        let now = Timestamp::now();
        let answer = match tokio::time::timeout(left(), connected.host.ask(ask, now)).await {
            Ok(answer) => answer,
            // The host may have received it.
            Err(_) if ask.is_order() => Err(HostError::Unknown("the host gave no answer in time".to_owned())),
            Err(_) => Err(HostError::Unreachable("the host gave no answer in time".to_owned())),
        };
        match &answer {
            Ok(answered) => {
                if let Some(date) = answered.date {
                    self.kept().ahead = date.duration_since(Timestamp::now());
                }
            }
            Err(HostError::Unauthenticated) => self.forget().await,
            Err(trouble) => self.record_block(trouble),
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

    /// Connects a slot to an address at which nothing listens.
    fn connect_nowhere() -> Connected {
        let host = RemoteHost::new(
            HostKind::Gitlab,
            "https://127.0.0.1:9",
            AuthoriserCredential::Token(SecretBytes::new("abc")),
            TlsOptions::default(),
            Connector::Here(tenure_sources::Policy::default()),
        );
        Connected {
            host: Arc::new(host.unwrap()),
            is_app: false,
            authority: None,
            made_of: String::new(),
            since: Instant::now(),
        }
    }

    /// A host that asks for a pause gets no request of any provider, neither a list nor an order.
    #[tokio::test]
    async fn pause_of_host_holds_for_all_its_providers() {
        let (one, other, elsewhere) = (HostSlot::default(), HostSlot::default(), HostSlot::default());
        let shared = SharedRateLimiter::default();
        one.share_restraint(Arc::clone(&shared));
        other.share_restraint(shared);
        let until = Timestamp::now() + SignedDuration::from_secs(300);
        let limited = HostError::Limited { until };
        one.record_block(&limited);
        let target = Target {
            scope: Scope::Project,
            id: 1,
            path: "group-1/a".to_owned(),
        };
        let kind = CredentialKind::DeployToken;
        let asks = [
            HostQuery::List {
                target: target.clone(),
                kind,
            },
            HostQuery::Revoke { target, kind, id: 1 },
        ];
        for ask in asks {
            for slot in [&one, &other] {
                let answer = slot.ask(&connect_nowhere(), &ask, None).await;
                assert_eq!(answer.err(), Some(limited.clone()));
            }
            // The control: this host has asked for no pause.
            let answer = elsewhere.ask(&connect_nowhere(), &ask, None).await;
            assert!(!matches!(answer, Ok(_) | Err(HostError::Limited { .. })));
        }
    }

    #[test]
    fn incomplete_authoriser_is_refused_without_quoting_values() {
        assert!(read_authoriser(HostKind::Gitlab, &secret("token", "abc\n")).is_ok());
        for (key, value) in [("token", "  "), ("password", "abc")] {
            let error = read_authoriser(HostKind::Gitlab, &secret(key, value)).err().unwrap();
            assert!(error.contains("token") && !error.contains("abc"), "{error}");
        }
        assert!(find_capabilities(HostKind::Gitlab, CredentialKind::DeployToken).expiry);
        assert!(find_capabilities(HostKind::Gitlab, CredentialKind::DeployToken).listed);
    }

    #[test]
    fn requester_exhausts_only_its_own_share_of_host() {
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
