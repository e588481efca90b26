//! The door by which lanes in Pods come to the hub: whoever listens hands over who has connected and what he is proven to be, and the hub, while it
//! leads, takes him in if there is such a lane. Owns who is there to take him in; refuses to verify a token
//! itself, and to read anything that he says.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection, whatever it goes over.
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

/// Why a proven Pod was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unadmitted {
    /// These controllers don't lead, or have not seen everything yet.
    #[error("these controllers don't lead")]
    NotLeading,
    /// Nothing of that lane is reconciled.
    #[error("there is no such lane")]
    NoSuchLane,
}

/// Somebody who has connected and said who he is. Nothing of it is believed.
pub struct LaneCall {
    token: String,
    pub(crate) folder: PathBuf,
    pub(crate) stream: PodStream,
}

impl fmt::Debug for LaneCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LaneCall").finish_non_exhaustive()
    }
}

impl LaneCall {
    pub(crate) fn new(token: String, folder: PathBuf, stream: PodStream) -> Self {
        Self { token, folder, stream }
    }

    /// The token that is to be reviewed.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }
}

/// Who takes Pods in.
pub(crate) trait Doorkeeper: Send + Sync + fmt::Debug {
    /// Takes one in, if there is such a lane.
    fn take_in(&self, pod: ProvenPod, call: LaneCall) -> Result<(), Unadmitted>;
}

/// The door. Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct LaneDoor {
    keeper: Arc<Mutex<Option<Weak<dyn Doorkeeper>>>>,
}

impl LaneDoor {
    /// From here on Pods are taken in, for as long as there is somebody.
    pub(crate) fn set_keeper(&self, keeper: Weak<dyn Doorkeeper>) {
        *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(keeper);
    }

    fn keeper(&self) -> Option<Arc<dyn Doorkeeper>> {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        keeper.as_ref().and_then(Weak::upgrade)
    }

    /// Whether somebody takes Pods in: where nobody does, nobody is to be heard.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.keeper().is_some()
    }

    /// Hands over one that is proven.
    ///
    /// # Errors
    /// [`Unadmitted`]; the connection is closed.
    pub fn admit(&self, pod: ProvenPod, call: LaneCall) -> Result<(), Unadmitted> {
        self.keeper().ok_or(Unadmitted::NotLeading)?.take_in(pod, call)
    }
}
