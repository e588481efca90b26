//! A common interface for both transports to a Git server: requests out, pkt-lines in.

use std::io;

use tokio::io::AsyncRead;

use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::fetch_budgets;
use crate::git::pktline::PacketReader;
use crate::git::wire::WireError;
use crate::pack_transfer::RemoteRepository;
use crate::policy::Scheme;
use crate::smart_http::SmartHttp;
use crate::ssh::SshTransport;

/// The bytes that arrive from a server.
pub(crate) type Input = std::pin::Pin<Box<dyn AsyncRead + Send>>;

/// An open connection to a Git server by HTTP or ssh, to send requests and read pkt-lines.
pub(crate) enum Transport {
    /// One request and one answer at a time.
    Http {
        client: Box<SmartHttp>,
        reader: PacketReader<Input>,
    },
    /// One continuous conversation.
    Ssh {
        session: Box<SshTransport>,
        reader: PacketReader<Input>,
    },
}

impl Transport {
    /// Connects. The server's first message is then available from the reader.
    pub(crate) async fn open(remote: &RemoteRepository, dialer: &Dialer) -> Result<Self, FetchError> {
        if remote.url.endpoint().scheme == Scheme::Ssh {
            let (session, input) = SshTransport::open(dialer, &remote.url, &remote.credentials).await?;
            return Ok(Self::Ssh {
                session: Box::new(session),
                reader: PacketReader::new(input),
            });
        }
        let mut client = Box::new(SmartHttp::new(
            dialer.clone(),
            &remote.url,
            &remote.credentials,
            &remote.tls,
        ));
        let reader = PacketReader::new(client.read_advertisement().await?);
        Ok(Self::Http { client, reader })
    }

    /// Sends a request; its answer is read next.
    pub(crate) async fn send(&mut self, body: Vec<u8>) -> Result<(), FetchError> {
        match self {
            Self::Http { client, reader } => {
                // An unread rest of an answer would keep its connection busy.
                reader.finish().await;
                *reader = PacketReader::new(Box::pin(tokio::io::empty()));
                *reader = PacketReader::new(client.post(body).await?);
                Ok(())
            }
            Self::Ssh { session, .. } => session.send(body).await,
        }
    }

    /// Returns the reader of the server's messages.
    pub(crate) fn reader(&mut self) -> &mut PacketReader<Input> {
        match self {
            Self::Http { reader, .. } | Self::Ssh { reader, .. } => reader,
        }
    }

    /// Explains an error of the protocol, with the server's error output.
    pub(crate) fn explain_error(&self, error: WireError, url: &str) -> FetchError {
        let url = url.to_owned();
        match error {
            WireError::Broken(error) => {
                if let Self::Ssh { session, .. } = self
                    && let Some(message) = session.error_output()
                {
                    return FetchError::Remote { url, message };
                }
                let problem = match error.kind() {
                    io::ErrorKind::UnexpectedEof => "the server closed it in the middle of its answer".to_owned(),
                    _ => error.to_string(),
                };
                FetchError::Broken { url, problem }
            }
            WireError::Malformed(problem) => FetchError::Protocol {
                url,
                problem: problem.to_owned(),
            },
            WireError::Remote(message) => FetchError::Remote { url, message },
            WireError::TooLarge { what, limit } => FetchError::TooLarge {
                what,
                limit,
                advice: "make the repository smaller, or ask an administrator for a larger limit",
            },
            WireError::OverBudget(refused) => refused.into(),
            WireError::Storage(source) => match fetch_budgets::find_refusal(&source) {
                Some(refused) => refused.into(),
                None => FetchError::Storage(crate::error::StorageError::Io {
                    action: "write",
                    path: "the received pack".to_owned(),
                    source,
                }),
            },
        }
    }
}
