//! Clusters for tests, and requests to them.
//!
//! A [`Cluster`] is an embedded control plane in a temporary folder with Tenure's kinds installed, or the cluster of
//! the kubeconfig in `TENURE_TEST_KUBECONFIG`. With the latter, the same tests run against another API server, one at
//! a time (`cargo xtask scenarios`).
//!
//! - [`Kubernetes`]: a real kube-apiserver with a real etcd, if their binaries are available.
//! - [`Reductions`]: turns an API server into one that serves less.
//! - A [`TrustingFront`]: an API server that accepts the tokens of another cluster.
//! - A [`Webhook`]: a webhook for any of these servers.
//! - A [`NoticeServer`]: a receiver of events.
//! - An [`exchange`]: requests and answers as data, for recordings and comparisons of two servers.
//! - A [`Canary`]: a secret that must not leak, and the search for it.
//! - [`check_reach`]: the invariant that no tenant reaches authority outside its namespaces.
//! - [`Chance`]: reproducible random input from a seed.
//! - [`choose_length`]: lets a test try a part in CI and everything in a long run.
//!
//! No test sleeps for correctness: [`eventually`] polls with a deadline.

mod admin;
mod canary;
mod chance;
mod cluster;
pub mod exchange;
mod front;
mod installation;
mod kubelet;
mod kubernetes;
mod length;
mod notices;
mod reach;
mod reduced;
mod sentry;
mod served;
mod trusting;
mod webhook;

use std::future::Future;
use std::time::{Duration, Instant};

pub use admin::{Admin, AdminError};
pub use canary::{CANARY, Canary, LOG_FILTER};
pub use chance::Chance;
pub use cluster::{Cluster, DISPOSABLE_LABEL, LANE_IMAGE, TEST_KUBECONFIG};
pub use kubelet::Kubelet;
pub use kubernetes::{KUBERNETES_BIN, Kubernetes, KubernetesBinaries, client_of};
pub use length::choose_length;
pub use notices::{Manner, Notice, NoticeServer};
pub use reach::check_reach;
pub use reduced::{DiscoveryForm, Reductions};
pub use served::{ReducedFront, ServedCluster};
pub use trusting::TrustingFront;
pub use webhook::Webhook;

/// Longest time that tests wait for an expected event. The time is long, because only a failing test waits for its end.
pub const SOON: Duration = Duration::from_secs(180);

/// The shortest and the longest pause of [`eventually`]. Without pauses, the tests would use the processors that the
/// awaited work needs.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(150);

/// Repeats a request until the answer is `Ok`, and returns the value. The pauses grow with the time waited.
///
/// # Errors
/// The last error, if the deadline passes first.
pub async fn eventually<T, E, F>(deadline: Duration, mut ask: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(answer) if begun.elapsed() > deadline => return Err(answer),
            Err(_) => tokio::time::sleep((begun.elapsed() / 8).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)).await,
        }
    }
}
