//! The server: its options, its folder and its listeners.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use crate::access::Access;
use crate::error::GitServerError;
use crate::git;
use crate::http;
use crate::large_files::{LargeFileOptions, LargeFileRequest, LargeFiles};
use crate::repository::Repository;
use crate::ssh;

/// The options of a [`GitServer`]: its listeners, the accepted credentials, and the protocol versions.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where HTTP listens; port 0 takes a free one.
    pub http: SocketAddr,
    /// HTTP over TLS with these keys instead of plain HTTP.
    pub tls: Option<Tls>,
    /// The credentials that HTTP clients need; with `None` and no `access`, clients need none.
    pub authentication: Option<HttpAuthentication>,
    /// Tokens and ssh keys for some repositories, in addition to the credentials for all repositories.
    pub access: Option<Access>,
    /// Whether clients may push.
    pub accept_pushes: bool,
    /// Also listen for ssh.
    pub ssh: Option<SshOptions>,
    /// The supported versions of the Git protocol.
    pub versions: ProtocolVersions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            http: loopback_address(),
            tls: None,
            authentication: None,
            access: None,
            accept_pushes: true,
            ssh: None,
            versions: ProtocolVersions::All,
        }
    }
}

/// The certificates and the key with which the server speaks TLS, in PEM form.
#[derive(Clone)]
pub struct Tls {
    /// The server's certificate chain.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// The authority of required client certificates, if any.
    pub client_authority: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// The credentials with which an HTTP client may access all repositories.
#[derive(Clone)]
pub enum HttpAuthentication {
    /// This user name and password.
    Basic {
        /// The user name.
        username: String,
        /// The password.
        password: String,
    },
    /// A bearer token.
    Bearer(String),
}

impl std::fmt::Debug for HttpAuthentication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HttpAuthentication(hidden)")
    }
}

/// The address of the ssh listener, and the accepted public keys.
#[derive(Debug, Clone)]
pub struct SshOptions {
    /// The address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    /// Accepted public keys, in OpenSSH's form, with any login.
    pub authorized_keys: Vec<String>,
}

impl SshOptions {
    /// Listens on a free port of the loopback address and accepts these keys.
    pub fn loopback(authorized_keys: Vec<String>) -> Self {
        Self {
            address: loopback_address(),
            authorized_keys,
        }
    }
}

/// The versions of the Git protocol that the server supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolVersions {
    /// The version that the client requests.
    All,
    /// Always version 0, like old servers.
    OnlyZero,
    /// Version 0, and no pack for clients without `multi_ack`, like Azure DevOps and AWS CodeCommit.
    OnlyZeroWithMultiAck,
}

/// A reference that a client has created, moved or deleted by a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The repository's name.
    pub repository: String,
    /// The full name of the reference.
    pub reference: String,
    /// The object that it points to now, in hex; `None` if it was deleted.
    pub object: Option<String>,
}

/// The receiver of the pushes that a server reports.
pub type Pushes = broadcast::Receiver<Push>;

/// The state that the listeners share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) root: PathBuf,
    pub(crate) authentication: Option<HttpAuthentication>,
    pub(crate) access: Option<Access>,
    pub(crate) accept_pushes: bool,
    pub(crate) versions: ProtocolVersions,
    pub(crate) pushes: broadcast::Sender<Push>,
    pub(crate) packs: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) large_files: LargeFiles,
}

impl Shared {
    /// Returns the repository that a client named, with or without `.git` and slashes around the name.
    pub(crate) fn name_repository(&self, name: &str) -> Result<Repository, GitServerError> {
        let name = trim_name(name);
        let part = |part: &str| {
            !part.is_empty()
                && !part.starts_with(['.', '-'])
                && !part.ends_with(".git")
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        };
        if name.len() > 200 || !name.split('/').all(part) {
            return Err(GitServerError::InvalidName(name.to_owned()));
        }
        Ok(Repository::new(name.to_owned(), self.root.join(format!("{name}.git"))))
    }

    /// Returns the repository like [`Shared::name_repository`], if it exists.
    pub(crate) fn find_repository(&self, name: &str) -> Result<Repository, GitServerError> {
        let repository = self.name_repository(name)?;
        if repository.folder().join("HEAD").is_file() {
            Ok(repository)
        } else {
            Err(GitServerError::Missing(repository.name().to_owned()))
        }
    }

    /// Sends the references that a push changed to all subscribers.
    pub(crate) async fn announce_push(&self, repository: &Repository, before: &[(String, String)]) {
        let Ok(after) = repository.references().await else {
            return;
        };
        let name = repository.name();
        let changed = after
            .iter()
            .filter(|reference| !before.contains(reference))
            .map(|(reference, object)| (reference, Some(object.clone())));
        let deleted = before
            .iter()
            .filter(|(old, _)| !after.iter().any(|(new, _)| new == old))
            .map(|(old, _)| (old, None));
        for (reference, object) in changed.chain(deleted) {
            let push = Push {
                repository: name.to_owned(),
                reference: reference.clone(),
                object,
            };
            // Without a subscriber the send fails, which is fine.
            let _ = self.pushes.send(push);
        }
    }
}

/// Returns the name that a client sent, without `.git` and slashes around it.
pub(crate) fn trim_name(name: &str) -> &str {
    let name = name.trim_matches('/');
    name.strip_suffix(".git").unwrap_or(name)
}

/// A running server. It stops when it is dropped.
#[derive(Debug)]
pub struct GitServer {
    shared: Arc<Shared>,
    scheme: &'static str,
    http: SocketAddr,
    ssh: Option<(SocketAddr, String)>,
    authorized: ssh::Authorized,
    listeners: Vec<JoinHandle<()>>,
}

impl GitServer {
    /// Serves the repositories of a folder, which is created if needed.
    ///
    /// # Errors
    /// [`GitServerError::Io`] for the folder, [`GitServerError::Listen`] for an address in use, [`GitServerError::Keys`].
    pub fn start(folder: impl AsRef<Path>, options: Options) -> BoxFuture<'static, Result<Self, GitServerError>> {
        Box::pin(Self::start_in(folder.as_ref().to_path_buf(), options))
    }

    async fn start_in(folder: PathBuf, options: Options) -> Result<Self, GitServerError> {
        let made = std::fs::create_dir_all(&folder).and_then(|()| folder.canonicalize());
        let root = made.map_err(|source| GitServerError::Io {
            action: "use",
            path: folder.clone(),
            source,
        })?;
        let shared = Arc::new(Shared {
            root,
            authentication: options.authentication,
            access: options.access,
            accept_pushes: options.accept_pushes,
            versions: options.versions,
            pushes: broadcast::Sender::new(256),
            packs: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            large_files: LargeFiles::default(),
        });
        let tls = options.tls.as_ref().map(http::make_acceptor).transpose()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (listener, http_address) = bind_listener(options.http).await?;
        let _ = shared.large_files.base.set(format!("{scheme}://{http_address}"));
        let mut listeners = vec![tokio::spawn(http::serve(listener, tls, Arc::clone(&shared)))];
        let mut ssh_address = None;
        let authorized = ssh::Authorized::default();
        if let Some(ssh) = options.ssh {
            let (listener, address) = bind_listener(ssh.address).await?;
            let (config, host_key) = ssh::make_config()?;
            ssh.authorized_keys.iter().try_for_each(|key| authorized.add(key))?;
            listeners.push(tokio::spawn(ssh::serve(
                listener,
                config,
                authorized.clone(),
                Arc::clone(&shared),
            )));
            ssh_address = Some((address, host_key));
        }
        Ok(Self {
            shared,
            scheme,
            http: http_address,
            ssh: ssh_address,
            authorized,
            listeners,
        })
    }

    /// Creates an empty bare repository whose default branch is `main`.
    ///
    /// # Errors
    /// [`GitServerError::InvalidName`], [`GitServerError::Exists`], or an error of git.
    pub async fn create(&self, name: &str) -> Result<Repository, GitServerError> {
        let repository = self.shared.name_repository(name)?;
        let folder = repository.folder();
        if folder.exists() {
            return Err(GitServerError::Exists(repository.name().to_owned()));
        }
        std::fs::create_dir_all(folder).map_err(|source| GitServerError::Io {
            action: "create",
            path: folder.to_path_buf(),
            source,
        })?;
        git::run(
            folder,
            ["init", "--quiet", "--bare", "--template=", "--initial-branch=main", "."],
            &[],
        )
        .await?;
        Ok(repository)
    }

    /// Renames a repository. Its tokens and keys open the new name; the old name is free.
    ///
    /// # Errors
    /// [`GitServerError::InvalidName`], [`GitServerError::Missing`], [`GitServerError::Exists`] or [`GitServerError::Io`].
    pub fn rename(&self, old: &str, new: &str) -> Result<Repository, GitServerError> {
        let (from, to) = (self.shared.find_repository(old)?, self.shared.name_repository(new)?);
        if to.folder().exists() {
            return Err(GitServerError::Exists(to.name().to_owned()));
        }
        let parent = to.folder().parent().unwrap_or(&self.shared.root);
        let moved = std::fs::create_dir_all(parent).and_then(|()| std::fs::rename(from.folder(), to.folder()));
        moved.map_err(|source| GitServerError::Io {
            action: "move to",
            path: to.folder().to_path_buf(),
            source,
        })?;
        if let Some(access) = &self.shared.access {
            access.rename(from.name(), to.name());
        }
        Ok(to)
    }

    /// Returns an existing repository.
    ///
    /// # Errors
    /// [`GitServerError::InvalidName`] or [`GitServerError::Missing`].
    pub fn repository(&self, name: &str) -> Result<Repository, GitServerError> {
        self.shared.find_repository(name)
    }

    /// Returns the address of the HTTP listener.
    pub fn http_address(&self) -> SocketAddr {
        self.http
    }

    /// Returns the address of the ssh listener, if there is one.
    pub fn ssh_address(&self) -> Option<SocketAddr> {
        self.ssh.as_ref().map(|(address, _)| *address)
    }

    /// Returns a repository's clone URL over HTTP or HTTPS.
    pub fn http_url(&self, name: &str) -> String {
        format!("{}://{}/{name}.git", self.scheme, self.http)
    }

    /// Returns a repository's clone URL over ssh, if ssh is served.
    pub fn ssh_url(&self, name: &str) -> Option<String> {
        self.ssh
            .as_ref()
            .map(|(address, _)| format!("ssh://git@{address}/{name}.git"))
    }

    /// Returns the line of a `known_hosts` file for the server, if ssh is served.
    pub fn known_hosts(&self) -> Option<String> {
        self.ssh
            .as_ref()
            .map(|(address, key)| format!("[{}]:{} {key}\n", address.ip(), address.port()))
    }

    /// Accepts another public key over ssh, in OpenSSH's form.
    ///
    /// # Errors
    /// [`GitServerError::Keys`].
    pub fn authorize(&self, key: &str) -> Result<(), GitServerError> {
        self.authorized.add(key)
    }

    /// Removes all accepted public keys; open connections continue.
    pub fn revoke_all(&self) {
        self.authorized.clear();
    }

    /// Returns a receiver of the pushes that follow this call.
    pub fn pushes(&self) -> Pushes {
        self.shared.pushes.subscribe()
    }

    /// Changes the way in which the server serves large files, and records the following requests for them. For tests.
    pub fn serve_large_files(&self, options: LargeFileOptions) {
        self.shared.large_files.set(options);
    }

    /// Returns the recorded requests for large files. Requests with refused credentials are not among them.
    pub fn large_file_requests(&self) -> Vec<LargeFileRequest> {
        self.shared.large_files.requests()
    }

    /// Counts the packs sent to clients so far.
    pub fn packs_sent(&self) -> u64 {
        self.shared.packs.load(Ordering::Relaxed)
    }

    /// Counts the HTTP requests and ssh commands so far, refused ones included.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        for listener in &self.listeners {
            listener.abort();
        }
    }
}

async fn bind_listener(address: SocketAddr) -> Result<(TcpListener, SocketAddr), GitServerError> {
    let failed = |source| GitServerError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

fn loopback_address() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}
