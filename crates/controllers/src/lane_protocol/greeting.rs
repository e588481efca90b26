//! The short greeting of a Pod, before it has proven anything. Its content is not trusted.

use tokio::io::{AsyncRead, AsyncWrite};

use crate::endpoints::lane_endpoint::{LaneConnection, PodStream};
use crate::lane_protocol::messages::FrameError;
use crate::lane_protocol::pod_connection::{VERSION, read_hello};

/// Why a greeting is invalid.
#[derive(Debug, thiserror::Error)]
pub enum GreetingError {
    /// The greeting can't be read.
    #[error("it sends no greeting: {0}")]
    Unread(String),
    /// The greeting has another version.
    #[error(
        "it is of another version than these controllers: its Deployment is written again when its lane is started"
    )]
    OtherVersion,
}

impl LaneConnection {
    /// Reads the greeting, which is short. The caller sets the time limit.
    ///
    /// # Errors
    /// [`GreetingError`] for an invalid greeting. The error contains nothing that was read.
    pub async fn read_greeting(
        stream: impl AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static,
    ) -> Result<Self, GreetingError> {
        let mut stream: PodStream = Box::pin(stream);
        let unread = |error: FrameError| GreetingError::Unread(error.to_string());
        let hello = read_hello(&mut stream).await.map_err(unread)?;
        if hello.version != VERSION {
            return Err(GreetingError::OtherVersion);
        }
        Ok(Self::new(hello.token, hello.folder, stream))
    }
}
