//! Clusters to test on, and what tests say to them.
//!
//! A [`Cluster`] is an embedded control plane in a temporary folder, with Tenure's kinds installed, or the cluster of the kubeconfig
//! that `TENURE_TEST_KUBECONFIG` names: then the same tests run against another API server, one at a time (`cargo xtask scenarios`).
//! [`Kubernetes`] is a real kube-apiserver with a real etcd, where their binaries are to be had.
//! [`Reductions`] make an API server out of one that serves less.
//! A [`TrustingFront`] is an API server that believes the tokens of another cluster.
//! A [`Webhook`] is one that any of them can call.
//! A [`NoticeServer`] is told of events.
//! An [`exchange`] is requests and answers as data, which a recording holds and two servers are compared by.
//! A [`Canary`] is a secret that nobody may hear of, and listens for itself.
//! [`check_reach`] is the invariant that no tenant reaches authority outside its namespaces.
//! [`Chance`] draws input that follows from a seed.
//! [`choose_length`] lets a test try a part in CI and everything in a long run.
//! It refuses to sleep for correctness: [`eventually`] polls with a deadline.

mod admin;
mod canary;
mod chance;
mod cluster;
pub mod exchange;
mod front;
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
pub use canary::{CANARY, Canary, HEARD};
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

/// How long tests wait for what should happen soon. Long, since it only matters when something is broken.
pub const SOON: Duration = Duration::from_secs(180);

/// Asks until the answer is `Ok`, and returns it.
///
/// # Errors
/// The last answer, when the deadline passes first.
pub async fn eventually<T, E, F>(deadline: Duration, mut ask: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(answer) if begun.elapsed() > deadline => return Err(answer),
            Err(_) => tokio::time::sleep(Duration::from_millis(15)).await,
        }
    }
}
