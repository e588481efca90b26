//! Connections of lanes in Pods to the hub. The listener passes on a connection with its proven identity. The hub accepts it while it leads,
//! if the lane exists. This module verifies no token, and reads no message of the Pod.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection over any transport.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Duplex for T {}

/// One end of a line between the hub and a Pod.
pub(crate) type PodStream = Pin<Box<dyn Duplex>>;

/// A Pod that was proven by its token: the ServiceAccount of the platform namespace that it runs as, and its own uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenPod {
    /// The name of the ServiceAccount.
    pub account: String,
    /// The uid of the Pod that the token is bound to.
    pub uid: String,
}

/// Why a proven Pod was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodRefusal {
    /// The controllers don't lead, or have not seen all objects yet.
    #[error("these controllers don't lead")]
    NotLeading,
    /// The lane reconciles nothing.
    #[error("there is no such lane")]
    NoSuchLane,
}

/// A connection of a Pod, with the token and the folder that its greeting claims. Neither is verified yet.
pub struct LaneConnection {
    token: String,
    pub(crate) folder: PathBuf,
    pub(crate) stream: PodStream,
}

impl fmt::Debug for LaneConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LaneConnection").finish_non_exhaustive()
    }
}

impl LaneConnection {
    pub(crate) fn new(token: String, folder: PathBuf, stream: PodStream) -> Self {
        Self { token, folder, stream }
    }

    /// Returns the token for the TokenReview.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }
}

/// Accepts connected Pods for their lanes. The fleet of lanes implements it.
pub(crate) trait PodAcceptor: Send + Sync + fmt::Debug {
    /// Accepts a Pod, if its lane exists.
    fn accept_pod(&self, pod: ProvenPod, call: LaneConnection) -> Result<(), PodRefusal>;
}

/// The handle through which the listener passes proven Pods to the hub. Cheap to clone; all clones share one state.
#[derive(Clone, Debug, Default)]
pub struct LaneEndpoint {
    keeper: Arc<Mutex<Option<Weak<dyn PodAcceptor>>>>,
}

impl LaneEndpoint {
    /// Accepts Pods from now on, while the keeper exists.
    pub(crate) fn set_keeper(&self, keeper: Weak<dyn PodAcceptor>) {
        *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(keeper);
    }

    fn keeper(&self) -> Option<Arc<dyn PodAcceptor>> {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        keeper.as_ref().and_then(Weak::upgrade)
    }

    /// Checks whether a keeper accepts Pods. Without a keeper, the listener reads from no peer.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.keeper().is_some()
    }

    /// Passes on a proven Pod.
    ///
    /// # Errors
    /// [`PodRefusal`]; the connection is closed.
    pub fn admit(&self, pod: ProvenPod, call: LaneConnection) -> Result<(), PodRefusal> {
        self.keeper().ok_or(PodRefusal::NotLeading)?.accept_pod(pod, call)
    }
}
