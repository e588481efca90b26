//! The listener for lanes in Pods of their own: the flags, the connections, and the check that a client is a lane's Pod.
//!
//! The module has the server certificate and the authority that Pods trust. It bounds the connections and data of unauthenticated clients. `tenure_controllers` decides
//! the orders of a lane.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure_admission::webhook::{CertificateKeeper, CertificatePlace};
use tenure_api::metadata::{LANE_PREFIX, MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE};
use tenure_api::workload::{LANE_AUDIENCE, LANE_AUTHORITY, LANE_SECRET, LanePods, usual_hub};
use tenure_apiserver::side_listeners::{ListenerBounds, PresentedCertificate, Stream, accept_all};
use tenure_cluster::{ApplyOptions, Client, ClientPool};
use tenure_controllers::{ApartSettings, Config, LaneConnection, LaneEndpoint, PodSettings, ProvenPod};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;

use crate::failure::Failure;
use crate::logging;
use crate::plain_http::{open_listener, parse_address};
use crate::reviews::{Reviewer, User};

/// The number of concurrent unauthenticated connections, in total and for one address. Authenticated connections don't count.
const BOUNDS: ListenerBounds = ListenerBounds {
    connections: 64,
    of_one: 16,
    handshake: Duration::from_secs(5),
};
/// The timeout for a greeting.
const GREETING: Duration = Duration::from_secs(5);
/// The timeout for a TokenReview.
const ASKING: Duration = Duration::from_secs(10);
/// The number of concurrent reviews.
const REVIEWS: usize = 8;
/// The time for which a refused client keeps its connection, which limits the rate of attempts.
const PENALTY: Duration = Duration::from_secs(1);
/// The interval for writing the authority again, in case of a change by others, and the pause after a failed write.
const AGAIN: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(2);
/// The claim that binds a token to a Pod.
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// The field manager of the authority.
const MANAGER: &str = "tenure-lanes";

/// Flags of the listener for lanes that have Pods of their own.
#[derive(Clone, Debug, Args)]
#[group(id = "lane-pods")]
pub(crate) struct Flags {
    /// Address at which lanes in Pods connect to the controllers, over TLS. A port alone means every address. Required with --lanes deployment, else refused.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_address)]
    lane_address: Option<SocketAddr>,
    /// Address at which the Pods of lanes find the controllers, with --lanes deployment [default: the Service tenure-lanes in tenure-system].
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_place)]
    lane_url: Option<String>,
    /// Image of the Pods of lanes, with this program as /tenure. Required with --lanes deployment, else refused.
    #[arg(long, value_name = "NAME:TAG@DIGEST")]
    lane_image: Option<String>,
    /// PriorityClass of the Pods of lanes, with --lanes deployment.
    #[arg(long, value_name = "NAME")]
    lane_priority_class: Option<String>,
}

fn parse_place(text: &str) -> Result<String, String> {
    let is_whole = text
        .parse::<http::uri::Authority>()
        .is_ok_and(|authority| authority.port_u16().is_some() && !authority.host().is_empty() && !text.contains('@'));
    match is_whole {
        true => Ok(text.to_owned()),
        false => Err("write HOST:PORT, such as tenure-lanes.tenure-system.svc:9643".to_owned()),
    }
}

/// The values of the flags.
#[derive(Debug)]
pub(crate) struct LanePodSettings {
    address: SocketAddr,
    place: String,
    image: String,
    priority_class: Option<String>,
}

impl Flags {
    /// Reads the flags; `None` if lanes have no Pods.
    pub(crate) fn read_settings(&self, is_wanted: bool) -> Result<Option<LanePodSettings>, Failure> {
        if !is_wanted {
            let given_flags = [
                ("--lane-address", self.lane_address.is_some()),
                ("--lane-url", self.lane_url.is_some()),
                ("--lane-image", self.lane_image.is_some()),
                ("--lane-priority-class", self.lane_priority_class.is_some()),
            ];
            return match given_flags.iter().find(|(_, is_given)| *is_given) {
                Some((flag, _)) => Err(Failure::usage(format!("{flag}: lanes have no Pods of their own"))
                    .hint("--lanes deployment gives each one")),
                None => Ok(None),
            };
        }
        let missing = |flag: &str, what: &str| Failure::usage(format!("--lanes deployment needs {flag}: {what}"));
        let address = self
            .lane_address
            .ok_or_else(|| missing("--lane-address", "where lanes come to"))?;
        let image = self.lane_image.clone();
        let image = image.ok_or_else(|| missing("--lane-image", "what their Pods run"))?;
        Ok(Some(LanePodSettings {
            address,
            place: self.lane_url.clone().unwrap_or_else(usual_hub),
            image,
            priority_class: self.lane_priority_class.clone(),
        }))
    }
}

impl LanePodSettings {
    /// Returns a listener for lanes with these settings.
    pub(crate) fn open_door(self, apart: ApartSettings) -> LaneListener {
        let log = logging::write_environment()
            .into_iter()
            .find_map(|(name, value)| (name == "TENURE_LOG").then(|| value.to_string_lossy().into_owned()));
        LaneListener {
            address: self.address,
            settings: PodSettings {
                pods: LanePods {
                    image: self.image,
                    priority_class: self.priority_class,
                    hub: self.place,
                    log,
                    ..LanePods::default()
                },
                door: LaneEndpoint::default(),
                apart,
            },
        }
    }
}

/// The listener for lanes.
pub(crate) struct LaneListener {
    address: SocketAddr,
    settings: PodSettings,
}

impl LaneListener {
    /// Returns the settings for the controllers.
    pub(crate) fn describe(&self) -> PodSettings {
        self.settings.clone()
    }

    /// Listens and accepts lanes until the future is dropped. The client is used for TokenReviews.
    pub(crate) async fn serve(
        self,
        config: &Config,
        reviewer: kube::Client,
    ) -> Result<impl Future<Output = ()> + use<>, Failure> {
        let listener = open_listener(self.address, "--lane-address").await?;
        let client = ClientPool::new(config.connection.clone()).controller();
        let trust = Arc::new(CertificateKeeper::new(
            client.clone(),
            describe_certificate(&self.settings.pods.hub),
            None,
        ));
        let reviewer = Reviewer::new(reviewer, "a lane's orders").needing("ClusterRole tenure-lane-reviews");
        let gate = Arc::new(Gate {
            reviewer,
            reviews: Semaphore::new(REVIEWS),
            door: self.settings.door,
        });
        Ok(async move {
            futures::future::join3(
                trust.keep_certificate(),
                publish_address(&client, &trust),
                Arc::clone(&gate).serve(listener, {
                    let trust = Arc::clone(&trust);
                    // While another process leads, this one accepts no connection.
                    let door = gate.door.clone();
                    move || trust.acceptor().filter(|_| door.is_open())
                }),
            )
            .await;
        })
    }
}

/// Returns the certificate's place, for the host name of the controllers.
fn describe_certificate(hub: &str) -> CertificatePlace {
    let host = hub.rsplit_once(':').map_or(hub, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    CertificatePlace {
        secret: LANE_SECRET,
        name: "tenure-lanes",
        what: "the certificate that is shown to lanes",
        names: vec![host.to_owned()],
    }
}

/// Writes the authority to the place where Pods read it, after each change and at intervals.
async fn publish_address(client: &Client, trust: &CertificateKeeper) {
    let mut bundle = trust.bundle();
    let mut last_problem = String::new();
    loop {
        let text = bundle.borrow_and_update().clone();
        let mut pause = AGAIN;
        if !text.is_empty() {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": text},
                "metadata": {"name": LANE_AUTHORITY, "namespace": PLATFORM_NAMESPACE, "labels": {MANAGED_BY: MANAGED_BY_TENURE}}
            });
            let options = ApplyOptions {
                manager: MANAGER,
                force: true,
                dry_run: false,
                subresource: None,
            };
            match client.apply(&object, &options).await {
                Ok(_) => {
                    last_problem.clear();
                    trust.record_published_bundle(text);
                }
                Err(error) => {
                    pause = SOON;
                    let problem = error.to_string();
                    if last_problem != problem {
                        tracing::warn!(
                            problem,
                            "lanes get no certificate authority: ConfigMap {LANE_AUTHORITY} can't be written"
                        );
                        last_problem = problem;
                    }
                }
            }
        }
        tokio::select! {
            changed = bundle.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The check of clients that connect: only the Pod of a lane, by its token, reaches the controllers.
struct Gate {
    reviewer: Reviewer,
    reviews: Semaphore,
    door: LaneEndpoint,
}

impl Gate {
    async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        acceptor: impl Fn() -> Option<TlsAcceptor> + Send + Sync + 'static,
    ) {
        let shown = PresentedCertificate::Certificate(Arc::new(acceptor));
        accept_all(listener, BOUNDS, shown, move |stream, caller| {
            let gate = Arc::clone(&self);
            async move {
                if let Err(problem) = gate.let_in(stream).await {
                    tracing::info!(problem, from = %caller.address, "a connection at the address for lanes was refused");
                    // The refused client keeps its connection for a while, so others can connect meanwhile.
                    tokio::time::sleep(PENALTY).await;
                }
            }
        })
        .await;
    }

    /// Accepts the Pod of a lane, or returns the reason of the refusal.
    async fn let_in(&self, stream: Stream) -> Result<(), String> {
        let socket = match &stream {
            Either::Left(socket) => socket,
            Either::Right(tls) => tls.get_ref().0,
        };
        let _slower_without = socket.set_nodelay(true);
        let hearing = tokio::time::timeout(GREETING, LaneConnection::read_greeting(stream)).await;
        let call = hearing.map_err(|_| "it sends no greeting in time")?;
        let call = call.map_err(|error| error.to_string())?;
        let asking = async {
            let _turn = self.reviews.acquire().await;
            self.reviewer.identify_for(LANE_AUDIENCE, call.token()).await
        };
        let asked = tokio::time::timeout(ASKING, asking).await;
        let user = match asked {
            Ok(Ok(user)) => user.ok_or("its token is invalid, or has another audience")?,
            Ok(Err(_)) | Err(_) => return Err("the owner of its token can't be found out".to_owned()),
        };
        let pod = find_pod(&user)?;
        self.door.admit(pod, call).map_err(|error| error.to_string())
    }
}

/// Returns the lane's Pod of a user, by the account, and by a token that is bound to the Pod.
fn find_pod(user: &User) -> Result<ProvenPod, String> {
    let accounts = format!("system:serviceaccount:{PLATFORM_NAMESPACE}:");
    let account = user.name.strip_prefix(&accounts);
    let account = account.filter(|account| account.starts_with(LANE_PREFIX));
    let account = account.ok_or_else(|| format!("{} is not the account of a lane", user.name))?;
    let uid = user.extra.get(POD_UID).and_then(|uids| uids.first());
    let uid = uid.ok_or_else(|| format!("the token of {account} is bound to no Pod"))?;
    Ok(ProvenPod {
        account: account.to_owned(),
        uid: uid.clone(),
    })
}

#[cfg(test)]
mod tests;
