//! The process of one lane. It receives its orders, connects with its lane's token, and reconciles the objects that the hub sends, until the order to
//! stop. It never runs without the hub: it ends when the line ends or carries an unreadable message.

use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram as StandardDatagram, UnixStream as StandardStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tenure_cluster::Connection;
use tenure_planner::lane_process::capacity::CapacityEvent;
use tenure_sources::StorageError;
use tenure_tenancy::identity;
use tenure_tenancy::lane::{Lane, decide_lane};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::capacity_shares::CapacityShares;
use super::hub_channel::HubChannel;
use super::hub_dialer::HubDialer;
use super::hub_proxy::HubProxy;
use crate::context::ControllerContext;
use crate::context::config::Config;
use crate::context::lane_settings::{LaneMode, LaneServer};
use crate::kind_table::{self, read_switches};
use crate::lane_protocol::dial_channel::{DialChannel, take_folder};
use crate::lane_protocol::messages::{
    self, Answer, FrameError, FromLane, LaneOrders, Question, ToLane, read_frame, write_frame,
};
use crate::telemetry::lane_spans::SpanOutbox;

/// The time limit for running work to end.
const FAREWELL: Duration = Duration::from_secs(12);
/// The interval at which unused file trees are dropped.
const SWEEP: Duration = Duration::from_secs(15);
/// The interval at which the hub gets the metrics, if they changed.
const TELLING: Duration = Duration::from_secs(2);

/// Why the process of a lane ended.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The hub is gone.
    #[error("the line to the controllers ended")]
    Alone,
    /// A received message is no message of a hub.
    #[error("a message of the controllers can't be read: {0}")]
    Line(String),
    /// The API server can't be reached as the orders say.
    #[error("the API server can't be reached: {0}")]
    Connection(String),
    /// The lane's own folder can't be opened.
    #[error("{0} can't be the working directory")]
    Folder(String, #[source] std::io::Error),
    /// The folder can't be used.
    #[error("the folder for artifacts can't be used: {0}")]
    Artifacts(#[from] StorageError),
}

impl From<FrameError> for LaneError {
    fn from(error: FrameError) -> Self {
        Self::Line(error.to_string())
    }
}

/// A lane that has its orders, and has not begun.
#[derive(Debug)]
pub struct LaneProcess {
    orders: Box<LaneOrders>,
    line: StandardStream,
    dial_line: OwnedFd,
    spans: SpanOutbox,
}

impl LaneProcess {
    /// Waits for the orders. No thread or runtime is started before, so the caller can still confine its process. Connections come over `dial_line`,
    /// and no socket is opened here.
    ///
    /// # Errors
    /// [`LaneError`] if no orders arrive.
    pub fn receive(mut line: StandardStream, dial_line: OwnedFd) -> Result<Self, LaneError> {
        let broken = |error: std::io::Error| LaneError::Line(error.to_string());
        let mut head = [0; 4];
        line.read_exact(&mut head).map_err(broken)?;
        let length = messages::read_length(head)?;
        let mut bytes = Vec::new();
        (&mut line)
            .take(length.into())
            .read_to_end(&mut bytes)
            .map_err(broken)?;
        match messages::decode(&bytes)? {
            ToLane::Orders(orders) => Ok(Self {
                orders,
                line,
                dial_line,
                spans: SpanOutbox::default(),
            }),
            _ => Err(LaneError::Line("another message arrived before the orders".to_owned())),
        }
    }

    /// Returns the lane's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.orders.lane
    }

    /// Returns the outbox for traced attempts, if spans are exported.
    #[must_use]
    pub fn spans(&self) -> Option<SpanOutbox> {
        self.orders.has_spans.then(|| self.spans.clone())
    }

    /// Makes the folder of this lane the working directory: the lane's paths are relative to it. If the folder belongs to the user of this process,
    /// the hub passes the open folder, because this user has no right on the folders above.
    ///
    /// # Errors
    /// [`LaneError`] if the folder can't be opened.
    pub fn enter_folder(&self) -> Result<(), LaneError> {
        let folder = &self.orders.folder;
        let failed = |error: std::io::Error| LaneError::Folder(folder.display().to_string(), error);
        if self.orders.user.is_none() {
            return std::env::set_current_dir(folder).map_err(failed);
        }
        let handed = take_folder(self.dial_line.as_fd()).map_err(failed)?;
        rustix::process::fchdir(handed).map_err(|error| failed(error.into()))
    }

    /// Returns the memory limit in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.orders.memory
    }

    /// Checks whether this process has a user of its own.
    #[must_use]
    pub fn has_own_user(&self) -> bool {
        self.orders.user.is_some()
    }

    /// Reconciles until the order to stop. The lane's folder must be the working directory. The hub is informed of the `gaps`: the limits that the
    /// kernel could not enforce on this process.
    ///
    /// # Errors
    /// [`LaneError`] if the process can't begin, or if the hub is gone.
    pub async fn run(self, gaps: Vec<String>) -> Result<(), LaneError> {
        let broken = |error: std::io::Error| LaneError::Line(error.to_string());
        self.line.set_nonblocking(true).map_err(broken)?;
        let (read, write) = UnixStream::from_std(self.line).map_err(broken)?.into_split();
        let (line, out) = HubChannel::new();
        let line = Arc::new(line);
        let dialer = HubDialer::new(DialChannel::from_socket(StandardDatagram::from(self.dial_line)).map_err(broken)?);
        let whose = decide_lane(&self.orders.placement, &self.orders.namespace);
        let config = make_config(*self.orders, &line, &dialer)?;
        let end = CancellationToken::new();
        let lane_kinds = kind_table::list_kinds().lane;
        let mut context = ControllerContext::new(config)?;
        context.reach_through(Arc::clone(&dialer) as _);
        let enclave = HubProxy::new(context, lane_kinds, (&line, &dialer), end.clone());
        let rooms = CapacityShares::start_tasks(&enclave.context, &line, whose == Lane::Pool);
        if !gaps.is_empty() {
            line.send(FromLane::Gaps(gaps)).await;
        }
        let (sender, orders) = mpsc::unbounded_channel();
        let sweeping = async {
            let mut sweep = tokio::time::interval(SWEEP);
            loop {
                sweep.tick().await;
                enclave.context.artifact_storage.sweep();
                enclave.borrower.sweep(&enclave.list_shards());
            }
        };
        let telling = async {
            let mut telling = tokio::time::interval(TELLING);
            loop {
                telling.tick().await;
                if let Some(report) = enclave.context.metrics.take_report() {
                    line.send(FromLane::Metrics(Box::new(report))).await;
                }
                let spans = self.spans.take_all();
                if !spans.is_empty() {
                    line.send(FromLane::Spans(spans)).await;
                }
            }
        };
        let working = async {
            execute_messages(&enclave, (&line, &rooms), orders).await;
            end.cancel();
            if tokio::time::timeout(FAREWELL, enclave.wait()).await.is_err() {
                tracing::warn!("some reconciliations were still in progress at the end");
            }
        };
        tokio::select! {
            error = read_messages(read, (&line, &rooms), &sender) => Err(error),
            error = write_messages(write, out) => Err(error),
            error = dialer.take_all() => Err(LaneError::Line(error.to_string())),
            () = working => Ok(()),
            () = sweeping => Ok(()),
            () = telling => Ok(()),
        }
    }
}

fn make_config(orders: LaneOrders, line: &Arc<HubChannel>, dialer: &Arc<HubDialer>) -> Result<Config, LaneError> {
    let account = identity::decide_for_lane(&orders.placement, &orders.namespace);
    let asking = Arc::clone(line);
    let ask = move |refused| {
        let line = Arc::clone(&asking);
        async move {
            match line.ask(Question::Token { refused }).await {
                Some(Answer::Token(token)) => token.map(|token| token.into_token()),
                _ => Err("the controllers gave no answer".to_owned()),
            }
        }
        .boxed()
    };
    let dialer = Arc::clone(dialer);
    let connect = move || {
        let dialer = Arc::clone(&dialer);
        async move { dialer.connect_to_server().await }.boxed()
    };
    let connection = Connection::of_lane(read_server(orders.server)?, account, ask, connect)
        .map_err(|error| LaneError::Connection(error.to_string()))?;
    // The lane's user may have no right on the folders above its own.
    let mut config = Config::new(connection, PathBuf::from("."));
    config.settings = orders.settings;
    config.enabled_kinds = read_switches(&orders.enabled_kinds).map_err(|error| LaneError::Line(error.to_string()))?;
    config.limits = orders.limits;
    config.budgets = orders.budgets;
    config.lane_width = orders.lane_width;
    config.rendering = orders.rendering;
    config.guards = orders.guards;
    config.applying = orders.applying;
    config.strict_sops = orders.strict_sops;
    config.advertised = orders.advertised;
    if orders.has_receiver_listener {
        config.receiver_endpoint.note_listener();
    }
    config.lanes = LaneMode::Tasks;
    config.metrics.keep_for_hub();
    Ok(config)
}

fn read_server(server: LaneServer) -> Result<kube::Config, LaneError> {
    let problem = |error: http::uri::InvalidUri| LaneError::Connection(error.to_string());
    let mut config = kube::Config::new(server.url.parse().map_err(problem)?);
    config.root_cert = server.authorities;
    config.tls_server_name = server.tls_name;
    config.accept_invalid_certs = server.unchecked;
    Ok(config)
}

/// Reads the hub's messages. Pings and answers to questions are handled immediately, before all other work.
async fn read_messages(
    mut read: OwnedReadHalf,
    (line, rooms): (&HubChannel, &CapacityShares),
    sender: &mpsc::UnboundedSender<ToLane>,
) -> LaneError {
    loop {
        match read_frame::<ToLane>(&mut read).await {
            Ok(Some((ToLane::Ping(number), _))) => line.send(FromLane::Pong(number)).await,
            Ok(Some((ToLane::Answer { number, answer }, _))) => line.answer(number, answer),
            Ok(Some((ToLane::Granted { room, bytes }, _))) => rooms.pass_on(room, CapacityEvent::Granted(bytes)),
            Ok(Some((ToLane::WantedBack(room), _))) => rooms.pass_on(room, CapacityEvent::WantedBack),
            Ok(Some((ToLane::Orders(_), _))) => return LaneError::Line("orders came twice".to_owned()),
            Ok(Some((other, _))) => {
                if sender.send(other).is_err() {
                    // The lane has the order to stop, and stops.
                    return std::future::pending().await;
                }
            }
            Ok(None) => return LaneError::Alone,
            Err(error) => return error.into(),
        }
    }
}

async fn write_messages(mut write: OwnedWriteHalf, mut out: mpsc::Receiver<FromLane>) -> LaneError {
    while let Some(frame) = out.recv().await {
        if let Err(error) = write_frame(&mut write, &frame).await {
            return error.into();
        }
    }
    LaneError::Alone
}

/// Executes the hub's messages in order, until the order to stop.
async fn execute_messages(
    enclave: &Arc<HubProxy>,
    (line, rooms): (&HubChannel, &CapacityShares),
    mut orders: mpsc::UnboundedReceiver<ToLane>,
) {
    while let Some(frame) = orders.recv().await {
        match frame {
            ToLane::Namespace {
                name,
                facts: Some(facts),
            } => enclave.take_namespace(&name, *facts),
            ToLane::Namespace { name, facts: None } => {
                enclave.leave(&name).await;
                line.send(FromLane::Left { namespace: name }).await;
            }
            ToLane::Changed { kind, object } => enclave.take_changed(&kind, &object),
            ToLane::Gone {
                kind,
                namespace,
                name,
                revision,
            } => enclave.take_gone(&kind, (&namespace, &name), &revision),
            ToLane::Synced => {
                rooms.wait_for_disk().await;
                prepare_start(enclave).await;
                enclave.context.ready.cancel();
                line.send(FromLane::Works).await;
            }
            ToLane::Wake { kind, namespace, name } => enclave.wake(&kind, &namespace, &name),
            ToLane::Hook {
                number,
                namespace,
                name,
                delivery,
            } => enclave.take_hook(number, &namespace, name, delivery),
            ToLane::Stop => return,
            // `read_messages` has handled these messages on arrival.
            ToLane::Orders(_)
            | ToLane::Answer { .. }
            | ToLane::Granted { .. }
            | ToLane::WantedBack(_)
            | ToLane::Ping(_) => {}
        }
    }
}

/// Removes the artifacts of deleted sources from the folder before anything is reconciled.
async fn prepare_start(enclave: &Arc<HubProxy>) {
    let context = &enclave.context;
    context
        .attempt_marks
        .forget_gone(|kind, namespace, name| enclave.has(kind, namespace, name));
    for entry in enclave.kinds.iter() {
        (entry.prepare_start)(Arc::clone(context), enclave.list_shards()).await;
    }
}
