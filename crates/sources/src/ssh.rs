//! Git over ssh, on a connection of the dialer.
//!
//! Logs in with a key and runs one command on the server. `known_hosts` checks the host, and `identity` reads the key. No local program is started, and no agent and no
//! file of the user is read. A host that `known_hosts` does not name is refused.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::stream;
use russh::client::{AuthResult, Config, Handle, Handler};
use russh::keys::{Algorithm, HashAlg, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{ChannelMsg, ChannelWriteHalf, Preferred};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::io::StreamReader;
use zeroize::Zeroizing;

use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::git::wire::clean_words;
use crate::identity;
use crate::known_hosts::{self, KnownHosts};
use crate::secret::Credentials;
use crate::transport::Input;
use crate::url::{RemoteUrl, decode_percent};

/// The longest answer to `git-lfs-authenticate`.
const LFS_ANSWER_BYTES: u64 = 64 << 10;

/// Asks the ssh server where Git LFS is for a repository, and returns its answer. The answer has a token.
pub(crate) async fn authenticate_lfs(
    dialer: &Dialer,
    url: &RemoteUrl,
    credentials: &Credentials,
) -> Result<Zeroizing<Vec<u8>>, FetchError> {
    let command = format!("git-lfs-authenticate {} download", quote_path(url)?);
    let (session, input) = SshTransport::run(dialer, url, credentials, command).await?;
    let mut answer = Zeroizing::new(Vec::new());
    let read = input.take(LFS_ANSWER_BYTES).read_to_end(&mut answer).await;
    match session.error_output() {
        Some(message) if answer.is_empty() => Err(FetchError::Remote {
            url: url.to_string(),
            message,
        }),
        _ => read.map(|_| answer).map_err(|error| FetchError::Broken {
            url: url.to_string(),
            problem: error.to_string(),
        }),
    }
}

/// An ssh connection to a Git server that runs the command of one fetch.
pub(crate) struct SshTransport {
    url: RemoteUrl,
    write: ChannelWriteHalf<russh::client::Msg>,
    complaint: Arc<Mutex<Vec<u8>>>,
    receiver: AbortHandle,
    _session: Handle<HostKeyCheck>,
}

impl Drop for SshTransport {
    fn drop(&mut self) {
        self.receiver.abort();
    }
}

impl SshTransport {
    /// Connects, checks the host, logs in and starts the command of a fetch.
    pub(crate) async fn open(
        dialer: &Dialer,
        url: &RemoteUrl,
        credentials: &Credentials,
    ) -> Result<(Self, Input), FetchError> {
        let command = format!("git-upload-pack {}", quote_path(url)?);
        Self::run(dialer, url, credentials, command).await
    }

    /// Connects as [`Self::open`] does, and starts the command of a push. A dropped connection changes nothing.
    pub(crate) async fn open_for_push(
        dialer: &Dialer,
        url: &RemoteUrl,
        credentials: &Credentials,
    ) -> Result<(Self, Input), FetchError> {
        let command = format!("git-receive-pack {}", quote_path(url)?);
        Self::run(dialer, url, credentials, command).await
    }

    async fn run(
        dialer: &Dialer,
        url: &RemoteUrl,
        credentials: &Credentials,
        command: String,
    ) -> Result<(Self, Input), FetchError> {
        let Credentials::SshKey {
            user,
            identity,
            passphrase,
            known_hosts,
        } = credentials
        else {
            return Err(FetchError::InvalidSecret {
                problem: "an ssh URL needs identity and known_hosts".to_owned(),
            });
        };
        let key = identity::read_private_key(identity, passphrase.as_ref()).await?;
        let hosts = KnownHosts::find(known_hosts, &url.endpoint().host, url.endpoint().port);
        let refusal = Arc::new(Mutex::new(None));
        let preferred = Preferred {
            key: hosts.algorithms().into(),
            ..Preferred::default()
        };
        let check = HostKeyCheck {
            hosts,
            refusal: Arc::clone(&refusal),
        };
        let config = Arc::new(Config {
            preferred,
            nodelay: true,
            ..Config::default()
        });

        let broken = |error: russh::Error| {
            let refused = refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
            match refused {
                Some(problem) => FetchError::HostKey {
                    host: host_port(url),
                    problem,
                },
                None => FetchError::Broken {
                    url: url.to_string(),
                    problem: error.to_string(),
                },
            }
        };
        let stream = dialer.connect(url.endpoint()).await?;
        let mut session = russh::client::connect_stream(config, stream, check)
            .await
            .map_err(|error| {
                // A host without any of the listed kinds of key fails before it shows a key.
                if let russh::Error::NoCommonAlgo { .. } = error {
                    return FetchError::HostKey {
                        host: host_port(url),
                        problem: "it has no host key of a kind that known_hosts lists for it; run ssh-keyscan again"
                            .to_owned(),
                    };
                }
                broken(error)
            })?;
        let hash = if matches!(key.algorithm(), Algorithm::Rsa { .. }) {
            session
                .best_supported_rsa_hash()
                .await
                .map_err(broken)?
                .unwrap_or(Some(HashAlg::Sha256))
        } else {
            None
        };
        let login = session
            .authenticate_publickey(user, PrivateKeyWithHashAlg::new(Arc::new(key), hash))
            .await;
        if !matches!(login.map_err(broken)?, AuthResult::Success) {
            return Err(FetchError::Unauthorized {
                url: url.to_string(),
                problem: format!(
                    "the server does not accept the Secret's identity for user {user:?}; add its public key there"
                ),
            });
        }
        let channel = session.channel_open_session().await.map_err(broken)?;
        // A server that accepts no environment speaks version 0.
        channel
            .set_env(false, "GIT_PROTOCOL", "version=2")
            .await
            .map_err(broken)?;
        channel.exec(false, command).await.map_err(broken)?;

        let complaint = Arc::new(Mutex::new(Vec::new()));
        let (mut read, write) = channel.split();
        let (sender, receiver) = mpsc::channel::<Bytes>(16);
        let output = Arc::clone(&complaint);
        let task = tokio::spawn(async move {
            while let Some(message) = read.wait().await {
                match message {
                    // The receiver was dropped and wants no more data.
                    ChannelMsg::Data { data } if sender.send(data.clone()).await.is_err() => return,
                    ChannelMsg::ExtendedData { data, .. } => {
                        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                        let room = 1024_usize.saturating_sub(output.len());
                        output.extend(data.iter().take(room));
                    }
                    ChannelMsg::Close => return,
                    _ => {}
                }
            }
        });
        let stream = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|bytes| (io::Result::Ok(bytes), receiver))
        });
        let input: Input = Box::pin(StreamReader::new(Box::pin(stream)));
        let transport = Self {
            url: url.clone(),
            write,
            complaint,
            receiver: task.abort_handle(),
            _session: session,
        };
        Ok((transport, input))
    }

    /// Sends a request of the Git protocol to the command.
    pub(crate) async fn send(&self, body: Vec<u8>) -> Result<(), FetchError> {
        self.write.data_bytes(body).await.map_err(|error| FetchError::Broken {
            url: self.url.to_string(),
            problem: error.to_string(),
        })
    }

    /// Returns the server's error output, if there is any.
    pub(crate) fn error_output(&self) -> Option<String> {
        let output = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        Some(clean_words(&output)).filter(|words| !words.is_empty())
    }
}

/// Connects to an ssh server, and returns the key that it shows. No login follows.
pub(crate) async fn read_host_key(dialer: &Dialer, url: &RemoteUrl) -> Result<PublicKey, FetchError> {
    let shown = Arc::new(Mutex::new(None));
    let recorder = HostKeyRecorder(Arc::clone(&shown));
    let stream = dialer.connect(url.endpoint()).await?;
    let ended = russh::client::connect_stream(Arc::new(Config::default()), stream, recorder).await;
    let key = shown.lock().unwrap_or_else(PoisonError::into_inner).take();
    key.ok_or_else(|| FetchError::Broken {
        url: url.to_string(),
        problem: match ended {
            Ok(_) => "the server showed no key".to_owned(),
            Err(error) => error.to_string(),
        },
    })
}

/// Stores the host key that a server shows, and ends the connection.
struct HostKeyRecorder(Arc<Mutex<Option<PublicKey>>>);

impl Handler for HostKeyRecorder {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        if let PublicKeyOrCertificate::PublicKey { key, .. } = shown {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
        }
        Ok(false)
    }
}

/// Writes the path as git's own client does, quoted for the shell that may read it.
fn quote_path(url: &RemoteUrl) -> Result<String, FetchError> {
    let invalid = |problem: &str| FetchError::InvalidUrl {
        url: url.to_string(),
        problem: problem.to_owned(),
    };
    let path = decode_percent(url.path()).ok_or_else(|| invalid("its path can't be read"))?;
    if path.chars().any(char::is_control) {
        return Err(invalid("its path holds control characters"));
    }
    // As in git, `/~user/…` is relative to that user's home.
    let path = if path.starts_with("/~") {
        path.trim_start_matches('/')
    } else {
        path.as_str()
    };
    if path.trim_start_matches('/').starts_with('-') {
        return Err(invalid("its path starts with a dash"));
    }
    let quoted = path.replace('\'', "'\\''").replace('!', "'\\!'");
    Ok(format!("'{quoted}'"))
}

fn host_port(url: &RemoteUrl) -> String {
    known_hosts::name_host(&url.endpoint().host, url.endpoint().port)
}

/// Checks the host key that the server shows during the handshake, and stores the reason if the key is refused.
struct HostKeyCheck {
    hosts: KnownHosts,
    refusal: Arc<Mutex<Option<String>>>,
}

impl Handler for HostKeyCheck {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        let problem = match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => match self.hosts.check(key) {
                Ok(()) => return Ok(true),
                Err(problem) => problem,
            },
            PublicKeyOrCertificate::Certificate(_) => "it shows a host certificate, which is not supported".to_owned(),
        };
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
        Ok(false)
    }
}
