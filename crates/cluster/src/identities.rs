//! Clients for identities, with tokens from TokenRequests, cached and renewed before they end.
//!
//! The controller requests the tokens of lanes and of the account that writes credentials. Each lane requests the tokens of the ServiceAccounts in its namespaces, with
//! its own token. An identity whose ServiceAccount does not exist gets no client.

mod foreign_token;
mod minting;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use jiff::Timestamp;

use crate::client::Client;
use crate::connection::{Connection, ControllerCredentials};
use crate::error::ClusterError;
use crate::health::ControllerHealth;
use crate::mapping::Mapping;
use crate::remote_cluster::{MemoryReservation, RemoteClusterLimits};
use crate::token::Token;
use crate::transport::{self, Answer, Call, Route};
use crate::wire::{Channel, ConnectionOwner, Purpose, Wire};
use crate::work_limit::{LaneWorkLimit, SharedWorkLimit};
use tenure_tenancy::{Identity, LaneAccount, SecretWriter, ServiceAccount, identity};

pub use foreign_token::{ForeignToken, TokenError};

/// The number of retries after throttling or a missing answer, before the caller gets the error.
const RETRIES: u32 = 2;

/// The longest wait of a throttled request for its retry.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Clients for every identity, over one connection. Cheap to clone.
#[derive(Clone)]
pub struct ClientPool {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    connection: Connection,
    tokens: Mutex<TokenStore>,
    /// The identities whose new credentials were refused, with the number of refusals and the end of the pause.
    refused: Mutex<HashMap<Identity, (u32, Instant)>>,
    /// Only in a lane's own process: whether the lane's last token was refused.
    lane_refused: AtomicBool,
    pub(crate) mapping: Mapping,
    turns: SharedWorkLimit,
    /// The memory that the discovery documents of another cluster take.
    pub(crate) kinds_room: Mutex<Option<MemoryReservation>>,
    /// The work limit of the controller itself. Its work never waits for another lane's, because the controller's watches carry the objects of all tenants in sequence.
    controller_turns: LaneWorkLimit,
}

/// The controller's own identity.
pub(crate) fn controller() -> Identity {
    identity::use_for_bookkeeping().into()
}

/// A lane as a client of the API server: the account that requests other tokens, and the work limit for large answers.
#[derive(Clone, Debug)]
pub struct LaneAccess {
    /// The lane's account.
    pub account: LaneAccount,
    /// The lane's work limit for large answers.
    pub turns: LaneWorkLimit,
}

/// The identity of a request, and the lane that requests its token.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) identity: Identity,
    /// The lane that requests the token; a ServiceAccount always has one.
    pub(crate) lane: Option<LaneAccount>,
    /// The purpose of its requests, besides watches.
    pub(crate) purpose: Purpose,
}

impl Sender {
    /// Returns the connections for its requests: those of its lane.
    fn channel(&self, purpose: Purpose) -> Channel {
        let holder = match (&self.identity, &self.lane) {
            (Identity::Lane(lane), _) | (_, Some(lane)) => ConnectionOwner::Lane(lane.clone()),
            (
                Identity::Controller(_)
                | Identity::SecretWriter(_)
                | Identity::ServiceAccount(_)
                | Identity::Elsewhere(_),
                None,
            ) => ConnectionOwner::Controller,
        };
        Channel { holder, purpose }
    }
}

impl From<Identity> for Sender {
    fn from(identity: Identity) -> Self {
        Self {
            identity,
            lane: None,
            purpose: Purpose::Requests,
        }
    }
}

/// The cached token of one identity, if it has one. The lock is held while a new token is requested.
type Slot = Arc<tokio::sync::Mutex<Option<Token>>>;

/// Below this number of identities, no token is removed.
const FEW: usize = 64;

/// The tokens of current and some former identities, since ServiceAccounts come and go.
struct TokenStore {
    slots: HashMap<Identity, Slot>,
    /// At this number, tokens that have ended or are about to end are removed, unless a request waits for them.
    full: usize,
}

impl TokenStore {
    /// Returns the slot of an identity. Before a new slot exceeds `full`, the slots with ended and unused tokens are removed.
    fn slot(&mut self, identity: &Identity, now: SystemTime) -> Slot {
        if let Some(slot) = self.slots.get(identity) {
            return Arc::clone(slot);
        }
        if self.slots.len() >= self.full {
            self.slots.retain(|identity, slot| {
                let ended = |slot: &Slot| {
                    slot.try_lock()
                        .is_ok_and(|held| held.as_ref().is_none_or(|token| token.stale(now)))
                };
                matches!(identity, Identity::Controller(_)) || Arc::strong_count(slot) > 1 || !ended(slot)
            });
            // Half of the entries are new before the next search, so each new entry costs the search of two.
            self.full = FEW.max(self.slots.len().saturating_mul(2));
        }
        Arc::clone(self.slots.entry(identity.clone()).or_default())
    }
}

impl ClientPool {
    /// Returns clients over a connection. Sends nothing yet.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        let mut tokens = HashMap::new();
        if let ControllerCredentials::Token(token, _) = &connection.controller {
            tokens.insert(controller(), Arc::new(tokio::sync::Mutex::new(Some(token.clone()))));
        }
        Self {
            shared: Arc::new(Shared {
                connection,
                controller_turns: SharedWorkLimit::default().of_lane(),
                turns: SharedWorkLimit::default(),
                tokens: Mutex::new(TokenStore {
                    slots: tokens,
                    full: FEW,
                }),
                refused: Mutex::default(),
                lane_refused: AtomicBool::new(false),
                mapping: Mapping::default(),
                kinds_room: Mutex::default(),
            }),
        }
    }

    /// Returns the client of the controller itself: for its own kinds, their status, events and discovery. In a lane's own process, this is the lane's client.
    #[must_use]
    pub fn controller(&self) -> Client {
        let turns = self.shared.controller_turns.clone();
        Client::new(Arc::clone(&self.shared), self.shared.itself().into(), turns)
    }

    /// Returns the controller's client for leader election. It has a connection of its own, so it never waits behind other requests.
    #[must_use]
    pub fn for_leadership(&self) -> Client {
        let sender = Sender {
            purpose: Purpose::Leadership,
            ..self.shared.itself().into()
        };
        Client::new(Arc::clone(&self.shared), sender, self.shared.controller_turns.clone())
    }

    /// Returns the token of a lane for the lane's process. With `refused`, the token is a new one.
    ///
    /// # Errors
    /// [`ClusterError`] when no token is available.
    pub async fn issue_lane_token(&self, lane: &LaneAccount, refused: bool) -> Result<Token, ClusterError> {
        let identity = Identity::from(lane.clone());
        if refused {
            self.shared.renewable(&identity, None).await;
        }
        let issued = self.shared.token(&identity.clone().into()).await?;
        issued.ok_or_else(|| ClusterError::Unauthorized {
            identity,
            message: "there is no token for it".to_owned(),
        })
    }

    /// Returns the health of the controllers, for reports of their watches.
    #[must_use]
    pub fn health(&self) -> &ControllerHealth {
        &self.shared.connection.health
    }

    /// Returns the limit that all lanes share for work on large objects.
    #[must_use]
    pub fn turns(&self) -> &SharedWorkLimit {
        &self.shared.turns
    }

    /// Returns the client of a lane itself, for the bookkeeping in its namespaces.
    #[must_use]
    pub fn for_lane(&self, lane: &LaneAccess) -> Client {
        let sender = Identity::from(lane.account.clone()).into();
        Client::new(Arc::clone(&self.shared), sender, lane.turns.clone())
    }

    /// Returns the client of the account that writes credentials, for a namespace of this lane, after a check that its token is available. The controller requests this
    /// token, and no lane does. The client works within the lane's work limit.
    ///
    /// # Errors
    /// [`ClusterError::IdentityMissing`] when the API server says that the account does not exist; any other error of a TokenRequest.
    pub async fn for_secret_writer(&self, writer: &SecretWriter, lane: &LaneAccess) -> Result<Client, ClusterError> {
        let sender = Sender::from(Identity::from(writer.clone()));
        self.shared.token(&sender).await?;
        Ok(Client::new(Arc::clone(&self.shared), sender, lane.turns.clone()))
    }

    /// Returns the client of a ServiceAccount, after a check that its token is available. The lane requests the token, and the client works within the lane's work
    /// limit.
    ///
    /// # Errors
    /// [`ClusterError::IdentityMissing`] when the API server says that the ServiceAccount does not exist; any other error of a TokenRequest. The pool never falls back
    /// to another identity.
    pub async fn for_account(&self, account: &ServiceAccount, lane: &LaneAccess) -> Result<Client, ClusterError> {
        if let Some(client) = self.elsewhere(account, lane) {
            return Ok(client);
        }
        let sender = Sender {
            identity: account.clone().into(),
            lane: Some(lane.account.clone()),
            purpose: Purpose::Requests,
        };
        self.shared.token(&sender).await?;
        Ok(Client::new(Arc::clone(&self.shared), sender, lane.turns.clone()))
    }

    /// Returns the client of another cluster's user, whose kubeconfig a ServiceAccount has read; `None` in a pool of this cluster.
    fn elsewhere(&self, account: &ServiceAccount, lane: &LaneAccess) -> Option<Client> {
        self.shared.connection.elsewhere.as_ref()?;
        let sender = Identity::from(identity::use_elsewhere(account)).into();
        Some(Client::new(Arc::clone(&self.shared), sender, lane.turns.clone()))
    }

    /// Returns a client for discovery: the controller's own here, and the user's in another cluster.
    #[must_use]
    pub fn for_discovery(&self, account: &ServiceAccount, lane: &LaneAccess) -> Client {
        self.elsewhere(account, lane).unwrap_or_else(|| self.controller())
    }

    /// Reports that kinds were installed or removed, so the next look-up of an unknown kind reads discovery at once.
    pub fn kinds_changed(&self) {
        self.shared.mapping.invalidate();
    }
}

impl std::fmt::Debug for ClientPool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ClientPool").finish_non_exhaustive()
    }
}

impl Shared {
    fn tokens(&self) -> std::sync::MutexGuard<'_, TokenStore> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the identity of this process at the API server.
    pub(crate) fn itself(&self) -> Identity {
        match &self.connection.controller {
            ControllerCredentials::Lane(account, _) => account.clone().into(),
            ControllerCredentials::Account(account, _) => account.clone().into(),
            ControllerCredentials::Token(..) | ControllerCredentials::Transport(_) | ControllerCredentials::Nothing => {
                controller()
            }
        }
    }

    /// Returns the wire for an identity: one with credentials of its own, or the bare wire that needs a token.
    fn wire(&self, identity: &Identity) -> Wire {
        match (&self.connection.controller, identity) {
            (ControllerCredentials::Transport(transport), Identity::Controller(_)) => transport.wire(),
            (ControllerCredentials::Account(account, transport), Identity::ServiceAccount(asked))
                if account == asked =>
            {
                transport.wire()
            }
            _ => self.connection.bare.clone(),
        }
    }

    pub(super) fn route<'a>(&'a self, wire: &'a Wire, channel: &'a Channel) -> Route<'a> {
        Route {
            wire,
            channel,
            requests: &self.connection.requests,
            clock: &self.connection.clock,
        }
    }

    /// Records whether the API server accepted the credentials of a request. An error that doesn't depend on them records nothing.
    fn record_acceptance<T>(&self, identity: &Identity, answer: &Result<T, ClusterError>) {
        let accepted = match answer {
            Err(ClusterError::Unauthorized { .. }) => false,
            // These errors say nothing about the credentials.
            Err(
                ClusterError::Unreachable { .. }
                | ClusterError::Timeout { .. }
                | ClusterError::Throttled { .. }
                | ClusterError::Request { .. },
            ) => return,
            _ => true,
        };
        if accepted {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            if !refused.is_empty() {
                refused.remove(identity);
            }
        }
        if matches!(identity, Identity::Controller(_)) {
            self.connection.health.set_accepted(accepted);
        }
    }

    /// Returns the bounds for another cluster's API server; `None` for this cluster.
    pub(crate) fn terms(&self) -> Option<&RemoteClusterLimits> {
        self.connection.elsewhere.as_ref().map(|elsewhere| &elsewhere.terms)
    }

    /// Returns the time of the API server.
    pub(crate) fn server_time(&self) -> Timestamp {
        self.connection.clock.now()
    }

    /// Returns the sender for discovery.
    pub(crate) fn discoverer(&self, sender: &Sender) -> Sender {
        match self.connection.elsewhere {
            Some(_) => sender.clone(),
            None => self.itself().into(),
        }
    }

    /// Sends a request with this token, without retry, and reads the whole answer.
    async fn ask_once(&self, sender: &Sender, token: Option<&Token>, call: &Call) -> Result<Answer, ClusterError> {
        let identity = &sender.identity;
        let (wire, channel) = (self.wire(identity), sender.channel(sender.purpose));
        let route = self.route(&wire, &channel);
        let answer = transport::send_request(route, identity, token, call, self.terms()).await;
        self.record_acceptance(identity, &answer);
        answer
    }

    /// Opens a stream with this token, without retry.
    async fn open_once(
        &self,
        sender: &Sender,
        token: Option<&Token>,
        call: &Call,
    ) -> Result<http::Response<kube::client::Body>, ClusterError> {
        let identity = &sender.identity;
        let wire = match &self.connection.elsewhere {
            // Open streams take no capacity from short requests.
            Some(elsewhere) => elsewhere.watches.clone(),
            None => self.wire(identity),
        };
        let channel = sender.channel(Purpose::Watches);
        let route = self.route(&wire, &channel);
        let opened = transport::open_response(route, identity, token, call, self.terms()).await;
        self.record_acceptance(identity, &opened);
        opened
    }

    /// Sends a request as an identity. A refused token is replaced once (its ServiceAccount may be re-created). A throttled or unanswered request is sent again after a
    /// pause, if a repetition does no harm.
    pub(crate) async fn ask(&self, sender: &Sender, call: &Call) -> Result<Answer, ClusterError> {
        let identity = &sender.identity;
        let mut renewed = false;
        let mut retries = 0;
        loop {
            let token = self.token(sender).await?;
            let error = match self.ask_once(sender, token.as_ref(), call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match &error {
                ClusterError::Unauthorized { .. } if !renewed && self.renewable(identity, token.as_ref()).await => {
                    renewed = true;
                }
                ClusterError::Throttled { .. } | ClusterError::Unreachable { .. }
                    if retries < RETRIES && call.method != Method::POST =>
                {
                    let pause = match &error {
                        ClusterError::Throttled {
                            retry_after: Some(pause),
                            ..
                        } => (*pause).min(LONGEST_WAIT),
                        _ => Duration::from_millis(100 << retries),
                    };
                    retries += 1;
                    tokio::time::sleep(pause).await;
                }
                _ => return Err(error),
            }
        }
    }

    /// Opens a stream as an identity.
    pub(crate) async fn open(
        &self,
        sender: &Sender,
        call: &Call,
    ) -> Result<http::Response<kube::client::Body>, ClusterError> {
        let identity = &sender.identity;
        let token = self.token(sender).await?;
        match self.open_once(sender, token.as_ref(), call).await {
            Err(ClusterError::Unauthorized { .. }) if self.renewable(identity, token.as_ref()).await => {
                let token = self.token(sender).await?;
                self.open_once(sender, token.as_ref(), call).await
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch of the controller carries changes of all tenants, so a delay by one tenant would delay all of them.
    #[tokio::test]
    async fn the_controller_waits_for_no_tenants_turn() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        });
        let clients = ClientPool::new(Connection::in_process(service, Token::new("t", None)));
        let held = clients.turns().hold_all();
        let controller = clients.controller();
        assert!(futures::FutureExt::now_or_never(controller.turns().take_page()).is_some());
        assert!(futures::FutureExt::now_or_never(controller.turns().run(usize::MAX, || ())).is_some());
        let tenant = clients.turns().of_lane();
        assert!(futures::FutureExt::now_or_never(tenant.run(usize::MAX, || ())).is_none());
        drop(held);
    }

    #[test]
    fn tokens_that_have_ended_are_forgotten() {
        let now = SystemTime::now();
        let mut tokens = TokenStore {
            slots: HashMap::new(),
            full: FEW,
        };
        let identity = |number: usize| {
            let placement = tenure_tenancy::Placement::Unclaimed {
                default_service_account: "default".to_owned(),
                is_protected: false,
            };
            Identity::from(tenure_tenancy::identity::decide_for_source(&placement, &format!("team-{number}")).unwrap())
        };
        let keep = |tokens: &mut TokenStore, number, ends: Duration| {
            let slot = tokens.slot(&identity(number), now);
            *slot.try_lock().unwrap() = Some(Token::new("t", Some(now + ends)));
            slot
        };
        keep(&mut tokens, 0, Duration::from_secs(3600));
        let waited_for = keep(&mut tokens, 1, Duration::ZERO);
        for number in 2..10_000 {
            keep(&mut tokens, number, Duration::ZERO);
        }
        assert!(tokens.slots.len() <= FEW, "{}", tokens.slots.len());
        assert!(tokens.slots.contains_key(&identity(0)));
        assert!(Arc::ptr_eq(&waited_for, &tokens.slot(&identity(1), now)));
    }
}
