//! What is heard of somebody who comes where lanes do, before he has proven anything: one greeting, which is short. Refuses to believe any of it.

use tokio::io::{AsyncRead, AsyncWrite};

use crate::frames::FrameError;
use crate::lane_door::{LaneCall, PodStream};
use crate::pod_line::{VERSION, read_hello};

/// Why a greeting is none.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It can't be read.
    #[error("it sends no greeting: {0}")]
    Unread(String),
    /// It is of another version.
    #[error(
        "it is of another version than these controllers: its Deployment is written again when its lane is started"
    )]
    OtherVersion,
}

impl LaneCall {
    /// Hears the greeting, which is short; how long it may take is for the caller to say.
    ///
    /// # Errors
    /// [`CallError`] for what is no greeting. Nothing of what was read is in it.
    pub async fn hear(stream: impl AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static) -> Result<Self, CallError> {
        let mut stream: PodStream = Box::pin(stream);
        let unread = |error: FrameError| CallError::Unread(error.to_string());
        let hello = read_hello(&mut stream).await.map_err(unread)?;
        if hello.version != VERSION {
            return Err(CallError::OtherVersion);
        }
        Ok(Self::new(hello.token, hello.folder, stream))
    }
}
