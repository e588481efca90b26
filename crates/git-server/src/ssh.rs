//! Git over ssh: public keys only, and only the commands that git clients send.
//!
//! Each server has a new host key. Shells, forwarding, passwords and every other command are refused.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{PrivateKey, PublicKey};
use russh::server::{Auth, Handler, Msg, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::access::Verdict;
use crate::error::GitServerError;
use crate::git;
use crate::http::allowed_protocol;
use crate::repository::Repository;
use crate::server::Shared;

/// The command that says where Git LFS is.
const LFS: &str = "lfs-authenticate";

/// Makes a host key; returns the configuration and the public key in OpenSSH's form.
pub(crate) fn make_config() -> Result<(Arc<russh::server::Config>, String), GitServerError> {
    let mut seed = [0_u8; 32];
    SystemRandom::new()
        .fill(&mut seed)
        .map_err(|_| GitServerError::Keys("the system gives no random bytes".to_owned()))?;
    let pair = KeypairData::Ed25519(Ed25519Keypair::from_seed(&seed));
    let key = PrivateKey::new(pair, "").map_err(|error| GitServerError::Keys(error.to_string()))?;
    let public = key
        .public_key()
        .to_openssh()
        .map_err(|error| GitServerError::Keys(error.to_string()))?;
    let config = russh::server::Config {
        keys: vec![key],
        auth_rejection_time: Duration::from_millis(50),
        auth_rejection_time_initial: Some(Duration::ZERO),
        nodelay: true,
        ..russh::server::Config::default()
    };
    Ok((Arc::new(config), public))
}

/// The public keys that ssh clients may log in with. They can change while the server runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Authorized(Arc<RwLock<Vec<PublicKey>>>);

impl Authorized {
    /// Accepts another key.
    pub(crate) fn add(&self, key: &str) -> Result<(), GitServerError> {
        let key = PublicKey::from_openssh(key).map_err(|error| GitServerError::Keys(error.to_string()))?;
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(key);
        Ok(())
    }

    /// Removes all keys.
    pub(crate) fn clear(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Checks whether a key is accepted. The comment of a key is ignored.
    fn has(&self, key: &PublicKey) -> bool {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().any(|known| known.key_data() == key.key_data())
    }
}

/// Accepts connections until the task is aborted.
pub(crate) async fn serve(
    listener: TcpListener,
    config: Arc<russh::server::Config>,
    authorized: Authorized,
    shared: Arc<Shared>,
) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => {
                // Answers come in pieces. Without this, waiting for acknowledgements would add 40 ms to each.
                let _ = stream.set_nodelay(true);
                stream
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let config = Arc::clone(&config);
        let client = Client {
            shared: Arc::clone(&shared),
            authorized: authorized.clone(),
            key: None,
            channels: HashMap::new(),
            protocols: HashMap::new(),
        };
        connections.spawn(async move {
            match russh::server::run_stream(config, stream, client).await {
                Ok(session) => {
                    if let Err(error) = session.await {
                        tracing::debug!(%error, "ssh session ended");
                    }
                }
                Err(error) => tracing::debug!(%error, "ssh handshake failed"),
            }
        });
    }
}

/// The connection of one ssh client.
struct Client {
    shared: Arc<Shared>,
    authorized: Authorized,
    /// The key of the login; `None` for a key that may access everything. Its rights are checked for each command.
    key: Option<KeyData>,
    channels: HashMap<ChannelId, Channel<Msg>>,
    protocols: HashMap<ChannelId, String>,
}

impl Handler for Client {
    type Error = russh::Error;

    async fn auth_publickey(&mut self, _user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        if self.authorized.has(key.public_key) {
            self.key = None;
            return Ok(Auth::Accept);
        }
        let shown = key.public_key.key_data();
        if self
            .shared
            .access
            .as_ref()
            .is_some_and(|access| access.knows_key(shown))
        {
            self.key = Some(shown.clone());
            return Ok(Auth::Accept);
        }
        Ok(Auth::reject())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: russh::server::ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.channels.insert(channel.id(), channel);
        reply.accept().await;
        Ok(())
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        if name == "GIT_PROTOCOL" && allowed_protocol(&self.shared, value) {
            self.protocols.insert(channel, value.to_owned());
            session.channel_success(channel)
        } else {
            session.channel_failure(channel)
        }
    }

    async fn exec_request(&mut self, id: ChannelId, data: &[u8], session: &mut Session) -> Result<(), Self::Error> {
        self.shared.requests.fetch_add(1, Ordering::Relaxed);
        let Some(channel) = self.channels.remove(&id) else {
            return session.channel_failure(id);
        };
        let command = std::str::from_utf8(data)
            .ok()
            .and_then(|command| self.parse_command(command));
        let Some((service, repository)) = command else {
            session.channel_success(id)?;
            tokio::spawn(refuse_channel(channel));
            return Ok(());
        };
        session.channel_success(id)?;
        if service == LFS {
            let answer = self.shared.large_files.authenticate(&repository);
            tokio::spawn(send_answer(channel, answer));
            return Ok(());
        }
        let protocol = self.protocols.remove(&id);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if let Err(error) = run(&shared, service, &repository, protocol.as_deref(), channel).await {
                tracing::debug!(%error, "serving a repository over ssh failed");
            }
        });
        Ok(())
    }
}

impl Client {
    /// Reads `git-upload-pack '/name.git'`, or `git-lfs-authenticate '/name.git' download`; other commands are refused.
    fn parse_command(&self, command: &str) -> Option<(&'static str, Repository)> {
        let (service, argument) = command.split_once(' ')?;
        let service = match service {
            "git-upload-pack" => "upload-pack",
            "git-lfs-authenticate" => LFS,
            "git-receive-pack" if self.shared.accept_pushes => "receive-pack",
            _ => return None,
        };
        let argument = argument.trim();
        let argument = match service {
            LFS => argument.strip_suffix(" download")?,
            _ => argument,
        };
        let name = argument
            .strip_prefix('\'')
            .and_then(|rest| rest.strip_suffix('\''))
            .unwrap_or(argument);
        let repository = self.shared.find_repository(name).ok()?;
        let verdict = match (&self.key, &self.shared.access) {
            (None, _) => Verdict::Allowed,
            (Some(key), Some(access)) => access.judge_key(key, repository.name(), service == "receive-pack"),
            (Some(_), None) => Verdict::Unknown,
        };
        (verdict == Verdict::Allowed).then_some((service, repository))
    }
}

async fn send_answer(channel: Channel<Msg>, answer: String) {
    // The client may have disconnected already.
    let _ = channel.data(answer.as_bytes()).await;
    let _ = channel.exit_status(0).await;
    let _ = channel.eof().await;
    let _ = channel.close().await;
}

async fn refuse_channel(channel: Channel<Msg>) {
    // The client may have disconnected already.
    let _ = channel
        .extended_data(1, &b"repository not found, or command not allowed\n"[..])
        .await;
    let _ = channel.exit_status(128).await;
    let _ = channel.eof().await;
    let _ = channel.close().await;
}

async fn run(
    shared: &Shared,
    service: &str,
    repository: &Repository,
    protocol: Option<&str>,
    channel: Channel<Msg>,
) -> Result<(), GitServerError> {
    let before = if service == "receive-pack" {
        repository.references().await?
    } else {
        Vec::new()
    };
    let mut command = git::git_command(repository.folder());
    if let Some(protocol) = protocol {
        command.env("GIT_PROTOCOL", protocol);
    }
    command
        .args([service, "."])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(GitServerError::Spawn)?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (mut read, write) = channel.split();
    let packs = &shared.packs;
    let input = async move {
        let Some(mut stdin) = stdin else { return };
        let mut reader = read.make_reader();
        // Ends when the client closes its side or git stops reading.
        let _ = tokio::io::copy(&mut reader, &mut stdin).await;
        let _ = stdin.shutdown().await;
    };
    let output = async {
        let Some(mut stdout) = stdout else { return };
        let mut writer = write.make_writer();
        if let Ok(sent) = tokio::io::copy(&mut stdout, &mut writer).await
            && sent > 0
        {
            packs.fetch_add(1, Ordering::Relaxed);
        }
    };
    // Git ends after it has sent everything; later input of the client is ignored.
    let exit = async {
        output.await;
        child.wait().await
    };
    tokio::pin!(exit, input);
    let status = tokio::select! {
        status = &mut exit => status,
        () = &mut input => exit.await,
    };
    if service == "receive-pack" {
        shared.announce_push(repository, &before).await;
    }
    let code = status
        .ok()
        .and_then(|status| status.code())
        .and_then(|code| u32::try_from(code).ok())
        .unwrap_or(128);
    let _ = write.exit_status(code).await;
    let _ = write.eof().await;
    let _ = write.close().await;
    Ok(())
}
