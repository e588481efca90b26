//! Other clusters, to which Kustomizations apply with a kubeconfig or a token of this cluster: the connection to each, and its known state.
//!
//! A cluster is opened for one ServiceAccount and one such target. Another credential, account or address is another cluster, with its own kinds,
//! watches and connections. A cluster is closed when its last user releases it. This module bounds what one lane, and all lanes together, may open
//! and store of clusters that others run.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use kube::client::Body;
use tenure_cluster::{
    ClientPool, Connection, ForeignToken, LaneAccess, MemoryReservation, RemoteClusterLimits, ServiceAccount,
};
use tenure_planner::target::{Target, TargetKey};
use tenure_sources::{BudgetLimits, ByteBudget, Connector, HeldBytes, Peer, PeerClient, PeerTls, SecretBytes};
use tenure_tenancy::TokenOrder;
use zeroize::Zeroizing;

use crate::cluster_view::live_objects::{LiveObjects, RemoteObjectBudget};
use crate::cluster_view::mailbox::MailboxTable;
use crate::limits::object_memory::ObjectMemory;

/// The limit of an answer and of an event. An object has at most 3 MB, and so do the kinds of the largest clusters.
const LONGEST_ANSWER: usize = 8 << 20;
/// The limit of watched objects of a kind in a namespace.
const MOST_OBJECTS: usize = 10_000;

/// Budgets that all lanes share.
#[derive(Debug)]
pub(crate) struct RemoteClusterBudgets {
    /// Open clusters.
    clusters: ByteBudget,
    /// Connections for requests.
    requests: ByteBudget,
    /// Connections for watches, so that watches never take those of requests.
    watches: ByteBudget,
    /// Bytes of answers while they are read, and of stored objects.
    answers: ByteBudget,
    /// Memory for objects of attempts: waiting for a slow cluster must not block attempts in this cluster.
    object_memory: ByteBudget,
}

impl Default for RemoteClusterBudgets {
    fn default() -> Self {
        let budget = |what, lane, all| {
            ByteBudget::new(BudgetLimits {
                what,
                lane,
                all,
                lane_setting: "the bound of a tenant",
                all_setting: "the bound of all tenants",
                is_half: false,
            })
        };
        Self {
            clusters: budget("other clusters", 64, 512),
            requests: budget("connections to other clusters", 64, 512),
            watches: budget("watches in other clusters", 128, 1024),
            answers: budget("what other clusters say", 32 << 20, 96 << 20),
            object_memory: budget(
                "objects of other clusters that reconciliations look at",
                32 << 20,
                96 << 20,
            ),
        }
    }
}

impl RemoteClusterBudgets {
    /// Returns the budgets for clusters, for connections for requests and for watches, for answers, and for objects of attempts.
    pub(crate) fn rooms(&self) -> [&ByteBudget; 5] {
        [
            &self.clusters,
            &self.requests,
            &self.watches,
            &self.answers,
            &self.object_memory,
        ]
    }

    /// Waits for capacity for one more cluster, if this process has only a share and may get more, because `open` can't wait. Without capacity,
    /// `open` fails.
    pub(crate) async fn prepare_to_open(&self, lane: &str) {
        let _refused_then = self
            .clusters
            .take_patiently(|| self.clusters.try_acquire(lane, 1))
            .await;
    }

    /// Returns memory for the objects of attempts in other clusters.
    pub(crate) fn object_memory(&self) -> ObjectMemory {
        ObjectMemory::new(self.object_memory.clone())
    }
}

/// A connected cluster other than this one, for the applies of one account. It has the clients and the watched objects there.
pub(crate) struct RemoteCluster {
    /// The name of the cluster in statuses.
    pub(crate) cluster: String,
    /// The clients that act as the target's user.
    pub(crate) clients: ClientPool,
    /// The watched objects there.
    pub(crate) live: Arc<LiveObjects>,
    key: ClusterKey,
    _held: HeldBytes,
}

impl fmt::Debug for RemoteCluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RemoteCluster({})", self.cluster)
    }
}

impl RemoteCluster {
    /// Checks whether this is the cluster that the account reaches with this kubeconfig.
    pub(crate) fn is_for(&self, target: &Target, account: &ServiceAccount) -> bool {
        self.key == (target.key(), account.clone())
    }
}

/// The target of a connection, and the ServiceAccount of this cluster for which it was opened.
type ClusterKey = (TargetKey, ServiceAccount);

/// The other clusters that Kustomizations of one namespace have open, and the tokens for them.
#[derive(Debug, Default)]
pub(crate) struct RemoteClusterTable {
    open: Mutex<HashMap<ClusterKey, Weak<RemoteCluster>>>,
    tokens: Mutex<HashMap<TokenOrder, Weak<ForeignToken>>>,
}

impl RemoteClusterTable {
    /// Returns the token of an order. From now on this lane requests it.
    pub(crate) fn order_token(&self, clients: &ClientPool, order: &TokenOrder, lane: &LaneAccess) -> Arc<ForeignToken> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.retain(|_, token| token.strong_count() > 0);
        if let Some(token) = tokens.get(order).and_then(Weak::upgrade) {
            token.set_lane(lane.clone());
            return token;
        }
        let token = Arc::new(ForeignToken::new(clients.clone(), order.clone(), lane.clone()));
        tokens.insert(order.clone(), Arc::downgrade(&token));
        token
    }

    /// Returns the cluster of a kubeconfig, and opens it if it is not open.
    ///
    /// # Errors
    /// When the certificates in it can't be used, or too many clusters are open.
    pub(crate) fn open(
        &self,
        way: ConnectContext<'_>,
        target: &Target,
        account: &ServiceAccount,
    ) -> Result<Arc<RemoteCluster>, String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, cluster| cluster.strong_count() > 0);
        let key = (target.key(), account.clone());
        if let Some(cluster) = open.get(&key).and_then(Weak::upgrade) {
            return Ok(cluster);
        }
        let token = target.credentials.ordered.as_ref();
        let token = token.map(|order| self.order_token(way.clients, order, &way.access));
        let cluster = Arc::new(connect(way, (target, token), key.clone())?);
        open.insert(key, Arc::downgrade(&cluster));
        Ok(cluster)
    }
}

/// A lane's context for connections to other clusters.
pub(crate) struct ConnectContext<'a> {
    pub(crate) budgets: &'a RemoteClusterBudgets,
    /// The addresses that may be connected to.
    pub(crate) reach: &'a Connector,
    /// The mailboxes that are notified of changes there.
    pub(crate) mailboxes: &'a Arc<MailboxTable>,
    /// The lane that is charged.
    pub(crate) lane: &'a str,
    /// The access with which tokens of this cluster are requested.
    pub(crate) access: LaneAccess,
    pub(crate) clients: &'a ClientPool,
}

/// Creates the clients for a cluster, and charges the cluster to the lane. Sends no request.
fn connect(
    way: ConnectContext<'_>,
    (target, token): (&Target, Option<Arc<ForeignToken>>),
    key: ClusterKey,
) -> Result<RemoteCluster, String> {
    let (budgets, reach, name) = (way.budgets, way.reach, way.lane);
    let held = budgets
        .clusters
        .try_acquire(name, 1)
        .map_err(|error| error.to_string())?;
    let head = Arc::new(RequestHead::new(target)?);
    let service = |connections: &ByteBudget| {
        let client: PeerClient<Body> = open_peer(reach, target, (connections.clone(), name))?.client();
        let (head, token) = (Arc::clone(&head), token.clone());
        Ok::<_, String>(tower::service_fn(move |request: Request<Body>| {
            let (client, token, request) = (client.clone(), token.clone(), head.address(request));
            async move {
                let mut request = request?;
                if let Some(token) = &token {
                    request.headers_mut().insert(AUTHORIZATION, token.header().await?);
                }
                let answer = client.request(request).await?;
                if let Some(token) = token.filter(|_| answer.status() == StatusCode::UNAUTHORIZED) {
                    token.forget_refused().await;
                }
                Ok::<_, tower::BoxError>(answer)
            }
        }))
    };
    let connection = Connection::elsewhere(
        service(&budgets.requests)?,
        service(&budgets.watches)?,
        set_terms((target, token.clone()), &budgets.answers, name),
    );
    let clients = ClientPool::new(connection);
    let kept = RemoteObjectBudget {
        budget: budgets.answers.clone(),
        lane: name.to_owned(),
    };
    Ok(RemoteCluster {
        cluster: target.cluster(),
        live: Arc::new(LiveObjects::new(clients.clone(), Arc::clone(way.mailboxes), Some(kept))),
        clients,
        key,
        _held: held,
    })
}

fn open_peer(reach: &Connector, target: &Target, connections: (ByteBudget, &str)) -> Result<Peer, String> {
    let key_text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let tls = PeerTls {
        authority: target.authority.clone(),
        client: target
            .credentials
            .certificate
            .as_ref()
            .map(|(certificate, key)| (certificate.clone(), SecretBytes::new(key_text(key)))),
        server_name: target.server_name.clone(),
    };
    let address = (target.address.host.as_str(), target.address.port);
    Peer::new(reach, address, &tls, connections).map_err(|error| format!("the kubeconfig can't be used: {error}"))
}

/// Returns the bounds of answers from a cluster, and the check for secrets that no message may quote.
fn set_terms(
    (target, token): (&Target, Option<Arc<ForeignToken>>),
    answers: &ByteBudget,
    lane: &str,
) -> RemoteClusterLimits {
    let (budget, lane) = (answers.clone(), lane.to_owned());
    let credentials = &target.credentials;
    let basic = credentials.basic.as_ref();
    let secrets: Vec<Zeroizing<String>> = credentials
        .token
        .iter()
        .cloned()
        .chain(basic.map(|(_, password)| password.clone()))
        .chain(basic.map(|(user, password)| encode_basic(user, password)))
        .collect();
    RemoteClusterLimits {
        longest: LONGEST_ANSWER,
        most_objects: MOST_OBJECTS,
        room: Arc::new(move |bytes| {
            let held = budget.try_acquire(&lane, bytes as u64);
            held.map(MemoryReservation::new).map_err(|error| error.to_string())
        }),
        is_secret: Arc::new(move |text| {
            let is_token = token.as_ref().is_some_and(|token| token.is_quoted_in(text));
            is_token || secrets.iter().any(|secret| text.contains(secret.as_str()))
        }),
    }
}

/// Encodes a user name and a password for HTTP basic authentication.
fn encode_basic(user: &str, password: &str) -> Zeroizing<String> {
    let both = Zeroizing::new(format!("{user}:{password}"));
    Zeroizing::new(STANDARD.encode(both.as_bytes()))
}

/// The parts of a target that are added to each request: authority, path prefix, and headers with credentials.
struct RequestHead {
    authority: Authority,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl RequestHead {
    fn new(target: &Target) -> Result<Self, String> {
        let authority = target.address.to_string();
        let authority = authority.strip_prefix("https://").unwrap_or_default().parse();
        let mut headers = Vec::new();
        let credentials = &target.credentials;
        let bearer = credentials.token.as_ref();
        let bearer = bearer.map(|token| Zeroizing::new(format!("Bearer {}", token.as_str())));
        let basic = credentials.basic.as_ref();
        let basic =
            basic.map(|(user, password)| Zeroizing::new(format!("Basic {}", encode_basic(user, password).as_str())));
        if let Some(text) = bearer.or(basic) {
            let mut value = HeaderValue::from_str(&text).map_err(|_| "user.token can't be sent".to_owned())?;
            value.set_sensitive(true);
            headers.push((AUTHORIZATION, value));
        }
        if let Some(user) = &target.impersonated {
            let value = HeaderValue::from_str(user).map_err(|_| "spec.serviceAccountName can't be sent".to_owned())?;
            headers.push((HeaderName::from_static("impersonate-user"), value));
        }
        Ok(Self {
            authority: authority.map_err(|_| "cluster.server is no address".to_owned())?,
            path: target.address.path.clone(),
            headers,
        })
    }

    /// Adds the authority, the path prefix and the headers to a request.
    fn address(&self, mut request: Request<Body>) -> Result<Request<Body>, http::Error> {
        let asked = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        *request.uri_mut() = Uri::builder()
            .scheme(Scheme::HTTPS)
            .authority(self.authority.clone())
            .path_and_query(format!("{}{asked}", self.path))
            .build()?;
        for (name, value) in &self.headers {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        Ok(request)
    }
}
