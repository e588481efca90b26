//! Clients for identities: tokens by TokenRequest, cached, renewed before they end. The controller asks for the tokens of lanes, and each
//! lane for those of the ServiceAccounts in its namespaces, with its own. Refuses to serve an identity whose ServiceAccount does not exist.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use serde_json::json;
use tenure_api::ObjectView;
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, PLATFORM_NAMESPACE};

use crate::client::Client;
use crate::connection::{Connection, ControllerCredentials, Issue};
use crate::elsewhere::{HeldRoom, Terms};
use crate::error::ClusterError;
use crate::health::ControllerHealth;
use crate::mapping::Mapping;
use crate::path::write_path;
use crate::token::Token;
use crate::transport::{self, Answer, Call, JSON};
use crate::turns::{SharedTurns, WorkTurns};
use tenure_tenancy::{Identity, LaneAccount, ServiceAccount, identity};

/// How long a token is asked for, in seconds.
const TOKEN_SECONDS: u64 = 3600;

/// How often a request is sent again when it was throttled or no answer came, before the caller hears of it.
const RETRIES: u32 = 2;

/// How long after one refused token no other is made for the same identity; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The longest that a throttled request waits for its retry.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Clients for every identity, over one connection. Cheap to clone.
#[derive(Clone)]
pub struct ClientPool {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    connection: Connection,
    tokens: Mutex<TokenStore>,
    /// Whose credentials were refused although they were new, how often, and until when they are not made anew.
    refused: Mutex<HashMap<Identity, (u32, Instant)>>,
    /// Where one lane is apart: whether its last token was refused.
    lane_refused: AtomicBool,
    pub(crate) mapping: Mapping,
    turns: SharedTurns,
    /// The room that what is known of another cluster's kinds takes.
    pub(crate) kinds_room: Mutex<Option<HeldRoom>>,
    /// The controller's own. They wait for nobody else's: its watches tell of the objects of all tenants, one after the other.
    controller_turns: WorkTurns,
}

/// The controller's own identity.
pub(crate) fn controller() -> Identity {
    identity::use_for_bookkeeping().into()
}

/// A lane, as it asks the API server: with whose token it asks for others, and in whose turns it reads what is large.
#[derive(Clone, Debug)]
pub struct LaneAccess {
    /// Its own account.
    pub account: LaneAccount,
    /// Its turns.
    pub turns: WorkTurns,
}

/// Whose token a request is sent with, and who asks for it.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) identity: Identity,
    /// The lane that it is asked for by; a ServiceAccount has one.
    pub(crate) lane: Option<LaneAccount>,
}

impl From<Identity> for Sender {
    fn from(identity: Identity) -> Self {
        Self { identity, lane: None }
    }
}

/// Where one identity's token is kept.
type Slot = Arc<tokio::sync::Mutex<Option<Token>>>;

/// Below so many identities, none is looked for that could be forgotten.
const FEW: usize = 64;

/// The tokens of those that act, and of some that did: ServiceAccounts come and go.
struct TokenStore {
    slots: HashMap<Identity, Slot>,
    /// At so many, those that nobody waits for and whose token has ended go.
    full: usize,
}

impl TokenStore {
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
            // Half of them are new before it is looked again: each costs a look at two.
            self.full = FEW.max(self.slots.len().saturating_mul(2));
        }
        Arc::clone(self.slots.entry(identity.clone()).or_default())
    }
}

impl ClientPool {
    /// Clients over a connection. Sends nothing yet.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        let mut tokens = HashMap::new();
        if let ControllerCredentials::Token(token, _) = &connection.controller {
            tokens.insert(controller(), Arc::new(tokio::sync::Mutex::new(Some(token.clone()))));
        }
        Self {
            shared: Arc::new(Shared {
                connection,
                controller_turns: SharedTurns::default().of_lane(),
                turns: SharedTurns::default(),
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

    /// The client of the controller itself: for its own kinds, their status, events and discovery. Where one lane is apart from it, its.
    #[must_use]
    pub fn controller(&self) -> Client {
        let turns = self.shared.controller_turns.clone();
        Client::new(Arc::clone(&self.shared), self.shared.itself().into(), turns)
    }

    /// The token of a lane, for the process that it runs in; another one than before when that was refused.
    ///
    /// # Errors
    /// [`ClusterError`] when there is none.
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

    /// Whether the controllers can do their work, for them to say what they see.
    #[must_use]
    pub fn health(&self) -> &ControllerHealth {
        &self.shared.connection.health
    }

    /// What the lanes share: who works with large objects, and when.
    #[must_use]
    pub fn turns(&self) -> &SharedTurns {
        &self.shared.turns
    }

    /// The client of a lane itself: for the books of what is reconciled in its namespaces.
    #[must_use]
    pub fn for_lane(&self, lane: &LaneAccess) -> Client {
        let sender = Identity::from(lane.account.clone()).into();
        Client::new(Arc::clone(&self.shared), sender, lane.turns.clone())
    }

    /// The client of a ServiceAccount, after making sure that there is a token for it. The lane asks for that, and it works in its turns.
    ///
    /// # Errors
    /// [`ClusterError::IdentityMissing`] when the API server says that the ServiceAccount does not exist; whatever else TokenRequest can
    /// fail with. It never falls back to another identity.
    pub async fn for_account(&self, account: &ServiceAccount, lane: &LaneAccess) -> Result<Client, ClusterError> {
        if let Some(client) = self.elsewhere(account, lane) {
            return Ok(client);
        }
        let sender = Sender {
            identity: account.clone().into(),
            lane: Some(lane.account.clone()),
        };
        self.shared.token(&sender).await?;
        Ok(Client::new(Arc::clone(&self.shared), sender, lane.turns.clone()))
    }

    /// The client of the user of another cluster, whose kubeconfig a ServiceAccount has read; nothing if this is a pool of this cluster's.
    fn elsewhere(&self, account: &ServiceAccount, lane: &LaneAccess) -> Option<Client> {
        self.shared.connection.elsewhere.as_ref()?;
        let sender = Identity::from(identity::use_elsewhere(account)).into();
        Some(Client::new(Arc::clone(&self.shared), sender, lane.turns.clone()))
    }

    /// A client to ask which kinds there are: the controller's own here, and the user's in another cluster.
    #[must_use]
    pub fn for_discovery(&self, account: &ServiceAccount, lane: &LaneAccess) -> Client {
        self.elsewhere(account, lane).unwrap_or_else(|| self.controller())
    }

    /// Says that kinds were installed or removed, so that the next unknown kind is looked for at once.
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

    /// Who this process is to the API server.
    pub(crate) fn itself(&self) -> Identity {
        match &self.connection.controller {
            ControllerCredentials::Lane(account, _) => account.clone().into(),
            ControllerCredentials::Token(..) | ControllerCredentials::Transport(_) | ControllerCredentials::Nothing => {
                controller()
            }
        }
    }

    fn transport(&self, identity: &Identity) -> kube::Client {
        match (&self.connection.controller, identity) {
            (ControllerCredentials::Transport(transport), Identity::Controller(_)) => transport.client(),
            _ => self.connection.bare.clone(),
        }
    }

    /// Notes what the answer to a request says of its credentials.
    fn heed<T>(&self, identity: &Identity, answer: &Result<T, ClusterError>) {
        let accepted = match answer {
            Err(ClusterError::Unauthorized { .. }) => false,
            // These say nothing of them.
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

    /// How much is read of another cluster's API server; nothing of this one's.
    pub(crate) fn terms(&self) -> Option<&Terms> {
        self.connection.elsewhere.as_ref().map(|elsewhere| &elsewhere.terms)
    }

    /// Who asks which kinds there are.
    pub(crate) fn discoverer(&self, sender: &Sender) -> Sender {
        match self.connection.elsewhere {
            Some(_) => sender.clone(),
            None => self.itself().into(),
        }
    }

    async fn ask_once(&self, identity: &Identity, token: Option<&Token>, call: &Call) -> Result<Answer, ClusterError> {
        let answer = transport::ask(&self.transport(identity), identity, token, call, self.terms()).await;
        self.heed(identity, &answer);
        answer
    }

    async fn open_once(
        &self,
        identity: &Identity,
        token: Option<&Token>,
        call: &Call,
    ) -> Result<http::Response<kube::client::Body>, ClusterError> {
        let transport = match &self.connection.elsewhere {
            // What stays open takes nothing from what is asked.
            Some(elsewhere) => elsewhere.watches.clone(),
            None => self.transport(identity),
        };
        let opened = transport::open(&transport, identity, token, call, self.terms()).await;
        self.heed(identity, &opened);
        opened
    }

    /// The token to send; none when the controller's transport brings its own credentials.
    async fn token(&self, sender: &Sender) -> Result<Option<Token>, ClusterError> {
        let identity = &sender.identity;
        match (identity, &self.connection.elsewhere) {
            // Its transport brings them.
            (Identity::Elsewhere(_), Some(_)) => return Ok(None),
            (Identity::Elsewhere(_), None) | (_, Some(_)) => {
                return Err(ClusterError::Unauthorized {
                    identity: identity.clone(),
                    message: "it is nobody in this cluster".to_owned(),
                });
            }
            (_, None) => {}
        }
        if matches!(
            (identity, &self.connection.controller),
            (Identity::Controller(_), ControllerCredentials::Transport(_))
        ) {
            return Ok(None);
        }
        let slot = self.tokens().slot(identity, SystemTime::now());
        // Held while a token is minted, so that concurrent requests of one identity mint one.
        let mut held = slot.lock().await;
        let now = SystemTime::now();
        if let Some(token) = held.as_ref().filter(|token| !token.stale(now)) {
            return Ok(Some(token.clone()));
        }
        match (identity, held.clone()) {
            (Identity::ServiceAccount(account), _) => {
                let Some(lane) = &sender.lane else {
                    return Err(ClusterError::Unauthorized {
                        identity: identity.clone(),
                        message: "no lane asks for a token for it".to_owned(),
                    });
                };
                let lane = Identity::from(lane.clone()).into();
                let target = (account.namespace(), account.name());
                let minted = self.mint_as(&lane, target).await?;
                *held = Some(minted.clone());
                Ok(Some(minted))
            }
            (Identity::Lane(account), _) if self.is_apart() => {
                let given = self.ask_for_token(account).await?;
                *held = Some(given.clone());
                Ok(Some(given))
            }
            (Identity::Lane(account), _) => {
                let target = (account.namespace(), account.name());
                let minted = self.mint_as(&controller().into(), target).await;
                let minted = minted.map_err(|error| match error {
                    // That a lane's own account is missing says nothing about the accounts that it asks for.
                    ClusterError::IdentityMissing { .. } => ClusterError::Unauthorized {
                        identity: identity.clone(),
                        message: "its ServiceAccount is not there (yet)".to_owned(),
                    },
                    other => other,
                })?;
                *held = Some(minted.clone());
                Ok(Some(minted))
            }
            (Identity::Controller(_), old) if self.issuer().is_some() => self.issue(&mut held, old, now),
            (Identity::Controller(_), Some(old)) => {
                let target = (PLATFORM_NAMESPACE, CONTROLLER_SERVICE_ACCOUNT);
                match self.mint(&controller(), target, Some(&old)).await {
                    Ok(minted) => {
                        *held = Some(minted.clone());
                        Ok(Some(minted))
                    }
                    // The old one is good for some minutes more; the next request tries again.
                    Err(error) => {
                        tracing::warn!(%error, "the controller's own token could not be renewed");
                        Ok(Some(old))
                    }
                }
            }
            (Identity::Controller(_) | Identity::Elsewhere(_), _) => Err(ClusterError::Unauthorized {
                identity: identity.clone(),
                message: "there is no token for it".to_owned(),
            }),
        }
    }

    fn issuer(&self) -> Option<&Issue> {
        match &self.connection.controller {
            ControllerCredentials::Token(_, issuer) => issuer.as_ref(),
            ControllerCredentials::Transport(_) | ControllerCredentials::Nothing | ControllerCredentials::Lane(..) => {
                None
            }
        }
    }

    /// Whether here is one lane, apart from the controller.
    fn is_apart(&self) -> bool {
        matches!(self.connection.controller, ControllerCredentials::Lane(..))
    }

    /// Asks for the token of the lane that is here. There is none of another.
    async fn ask_for_token(&self, account: &LaneAccount) -> Result<Token, ClusterError> {
        let refuse = |message: String| ClusterError::Unauthorized {
            identity: account.clone().into(),
            message,
        };
        match &self.connection.controller {
            ControllerCredentials::Lane(own, ask) if own == account => {
                let refused = self.lane_refused.swap(false, Ordering::AcqRel);
                ask(refused).await.map_err(refuse)
            }
            _ => Err(refuse("it is another lane's".to_owned())),
        }
    }

    /// Takes the controller's next token from where they are made.
    fn issue(
        &self,
        held: &mut Option<Token>,
        old: Option<Token>,
        now: SystemTime,
    ) -> Result<Option<Token>, ClusterError> {
        let issued = self
            .issuer()
            .map_or_else(|| Err("there is no token for it".to_owned()), |issue| issue());
        match (issued, old.filter(|old| !old.ended(now))) {
            (Ok(issued), _) => {
                *held = Some(issued.clone());
                Ok(Some(issued))
            }
            (Err(problem), Some(old)) => {
                tracing::warn!(%problem, "the controller's own token could not be renewed");
                Ok(Some(old))
            }
            (Err(message), None) => {
                self.connection.health.set_accepted(false);
                Err(ClusterError::Unauthorized {
                    identity: controller(),
                    message,
                })
            }
        }
    }

    /// Asks for the token of a ServiceAccount as a lane, or as the controller: once more with a new token of its own when that was refused.
    async fn mint_as(&self, minter: &Sender, target: (&str, &str)) -> Result<Token, ClusterError> {
        let credentials = Box::pin(self.token(minter)).await?;
        match self.mint(&minter.identity, target, credentials.as_ref()).await {
            Err(ClusterError::Unauthorized { .. }) if self.renewable(&minter.identity, credentials.as_ref()).await => {
                let credentials = Box::pin(self.token(minter)).await?;
                self.mint(&minter.identity, target, credentials.as_ref()).await
            }
            minted => minted,
        }
    }

    async fn mint(
        &self,
        minter: &Identity,
        (namespace, name): (&str, &str),
        credentials: Option<&Token>,
    ) -> Result<Token, ClusterError> {
        let resource = crate::discovery::Resource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ServiceAccount".to_owned(),
            plural: "serviceaccounts".to_owned(),
            namespaced: true,
            watchable: true,
        };
        let path = write_path(&resource, Some(namespace), Some(name), Some("token"))?;
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": TOKEN_SECONDS }
        });
        let call = Call::with_body(Method::POST, path, JSON, &request);
        let answer = self.ask_once(minter, credentials, &call).await;
        let answer = answer.map_err(|error| match error {
            // Named in the answer: the account, or its namespace.
            ClusterError::NotFound { .. } => ClusterError::IdentityMissing {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            other => other,
        })?;
        let answer = answer.read(&call)?;
        let text = |path: &str| ObjectView::of(&answer).find_text(path);
        // The answer itself must not be quoted: it holds the token.
        let Some(token) = text("/status/token").filter(|token| !token.is_empty()) else {
            return Err(ClusterError::Decode {
                what: format!("the TokenRequest for ServiceAccount {namespace}/{name}"),
                problem: "it has no status.token".to_owned(),
            });
        };
        let expires = text("/status/expirationTimestamp")
            .and_then(|text| text.parse::<jiff::Timestamp>().ok())
            .map(SystemTime::from);
        Ok(Token::new(token, expires))
    }

    /// Forgets the token `used`, which the API server refused, and answers whether another one can be had now. Where even new
    /// ones are refused there is a pause, longer each time, in which none is made.
    async fn renewable(&self, identity: &Identity, used: Option<&Token>) -> bool {
        if self.connection.elsewhere.is_some() {
            // Others come with another kubeconfig.
            return false;
        }
        let slot = self.tokens().slot(identity, SystemTime::now());
        let mut held = slot.lock().await;
        if let (Some(used), Some(held)) = (used, held.as_ref())
            && !held.is(used)
        {
            // Another request has seen to it already.
            return true;
        }
        {
            let now = Instant::now();
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            let (count, until) = refused.entry(identity.clone()).or_insert((0, now));
            if now < *until {
                return false;
            }
            let pause = FIRST_PAUSE.saturating_mul(1 << (*count).min(6)).min(LONGEST_PAUSE);
            (*count, *until) = (*count + 1, now + pause);
        }
        match (identity, &self.connection.controller) {
            (Identity::ServiceAccount(_) | Identity::Lane(_), _) | (_, ControllerCredentials::Token(_, Some(_))) => {
                if matches!(identity, Identity::Lane(_)) {
                    self.lane_refused.store(true, Ordering::Release);
                }
                *held = None;
                true
            }
            (
                Identity::Controller(_),
                ControllerCredentials::Token(_, None)
                | ControllerCredentials::Nothing
                | ControllerCredentials::Lane(..),
            )
            | (Identity::Elsewhere(_), _) => false,
            (Identity::Controller(_), ControllerCredentials::Transport(transport)) => {
                let read = transport.read_again();
                if let Err(error) = &read {
                    tracing::warn!(%error, "the controller's credentials could not be read again");
                }
                read.is_ok()
            }
        }
    }

    /// Sends a request as an identity: again with a new token when the old one is refused (its ServiceAccount was made anew), and
    /// again after a pause when it was throttled or no answer came, if it does no harm twice.
    pub(crate) async fn ask(&self, sender: &Sender, call: &Call) -> Result<Answer, ClusterError> {
        let identity = &sender.identity;
        let mut renewed = false;
        let mut retries = 0;
        loop {
            let token = self.token(sender).await?;
            let error = match self.ask_once(identity, token.as_ref(), call).await {
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
        match self.open_once(identity, token.as_ref(), call).await {
            Err(ClusterError::Unauthorized { .. }) if self.renewable(identity, token.as_ref()).await => {
                let token = self.token(sender).await?;
                self.open_once(identity, token.as_ref(), call).await
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch of the controller's has the news of all tenants: whoever makes it wait makes all of them wait.
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
