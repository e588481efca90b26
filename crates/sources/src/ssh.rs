//! Git over ssh, on a connection of the dialer.
//!
//! Owns the check of the host key against the Secret's `known_hosts`, the login by key, and the one command that is run.
//! It starts no program, reads no agent and no file of the user, and refuses a host that `known_hosts` does not name.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use bytes::Bytes;
use futures::stream;
use russh::client::{AuthResult, Config, Handle, Handler};
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, HashAlg, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate, decode_secret_key};
use russh::{ChannelMsg, ChannelWriteHalf, Preferred};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::io::StreamReader;

use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::git::wire::words;
use crate::secret::Credentials;
use crate::transport::Input;
use crate::url::{RemoteUrl, percent_decode};

/// The ssh side of one fetch.
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
    /// Connects, checks the host, logs in and starts the command.
    pub(crate) async fn open(
        dialer: &Dialer,
        url: &RemoteUrl,
        credentials: &Credentials,
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
        // The message of a parser could quote the key; it is left out.
        let key = decode_secret_key(identity.reveal(), passphrase.as_ref().map(|text| text.reveal())).map_err(|_| {
            FetchError::InvalidSecret {
                problem: "identity is no private key in OpenSSH, PKCS#1 or PKCS#8 form, or its passphrase (password) is wrong"
                    .to_owned(),
            }
        })?;
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
                // A host that knows none of the listed kinds of key fails before it shows one.
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
        // A server that takes no environment speaks version 0.
        channel
            .set_env(false, "GIT_PROTOCOL", "version=2")
            .await
            .map_err(broken)?;
        channel.exec(false, command(url)?).await.map_err(broken)?;

        let complaint = Arc::new(Mutex::new(Vec::new()));
        let (mut read, write) = channel.split();
        let (sender, receiver) = mpsc::channel::<Bytes>(16);
        let heard = Arc::clone(&complaint);
        let task = tokio::spawn(async move {
            while let Some(message) = read.wait().await {
                match message {
                    // A receiver that is gone wants no more.
                    ChannelMsg::Data { data } if sender.send(data.clone()).await.is_err() => return,
                    ChannelMsg::ExtendedData { data, .. } => {
                        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                        let room = 1024_usize.saturating_sub(heard.len());
                        heard.extend(data.iter().take(room));
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

    /// Sends a request.
    pub(crate) async fn send(&self, body: Vec<u8>) -> Result<(), FetchError> {
        self.write.data_bytes(body).await.map_err(|error| FetchError::Broken {
            url: self.url.to_string(),
            problem: error.to_string(),
        })
    }

    /// What the server wrote to its error output, if anything.
    pub(crate) fn complaint(&self) -> Option<String> {
        let heard = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        Some(words(&heard)).filter(|words| !words.is_empty())
    }
}

/// The command of git's own client, quoted for the shell that may read it.
fn command(url: &RemoteUrl) -> Result<String, FetchError> {
    let invalid = |problem: &str| FetchError::InvalidUrl {
        url: url.to_string(),
        problem: problem.to_owned(),
    };
    let path = percent_decode(url.path()).ok_or_else(|| invalid("its path can't be read"))?;
    if path.chars().any(char::is_control) {
        return Err(invalid("its path holds control characters"));
    }
    // As git does: `/~user/…` is relative to that user's home.
    let path = if path.starts_with("/~") {
        path.trim_start_matches('/')
    } else {
        path.as_str()
    };
    if path.trim_start_matches('/').starts_with('-') {
        return Err(invalid("its path starts with a dash"));
    }
    let quoted = path.replace('\'', "'\\''").replace('!', "'\\!'");
    Ok(format!("git-upload-pack '{quoted}'"))
}

fn host_port(url: &RemoteUrl) -> String {
    let endpoint = url.endpoint();
    if endpoint.port == 22 {
        endpoint.host.clone()
    } else {
        format!("[{}]:{}", endpoint.host, endpoint.port)
    }
}

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

/// What a `known_hosts` file says about one host.
#[derive(Debug, Default)]
struct KnownHosts {
    believed: Vec<PublicKey>,
    revoked: Vec<PublicKey>,
}

impl KnownHosts {
    /// Reads the lines about a host; what can't be read is about no host.
    fn find(text: &str, host: &str, port: u16) -> Self {
        let name = if port == 22 {
            host.to_owned()
        } else {
            format!("[{host}]:{port}")
        };
        let mut found = Self::default();
        for line in text.lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_whitespace();
            let mut patterns = words.next().unwrap_or_default();
            let mut revoked = false;
            if patterns.starts_with('@') {
                revoked = patterns == "@revoked";
                if !revoked {
                    continue;
                }
                patterns = words.next().unwrap_or_default();
            }
            let (kind, key) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let Ok(key) = PublicKey::from_openssh(&format!("{kind} {key}")) else {
                continue;
            };
            if names(patterns, &name) {
                if revoked {
                    &mut found.revoked
                } else {
                    &mut found.believed
                }
                .push(key);
            }
        }
        found
    }

    /// The kinds of key to ask the server for: those that could be accepted.
    fn algorithms(&self) -> Vec<Algorithm> {
        let mut algorithms = Vec::new();
        for key in &self.believed {
            if let KeyData::Rsa(_) = key.key_data() {
                for hash in [Some(HashAlg::Sha512), Some(HashAlg::Sha256)] {
                    algorithms.push(Algorithm::Rsa { hash });
                }
            } else {
                algorithms.push(key.algorithm());
            }
        }
        algorithms.dedup();
        if algorithms.is_empty() {
            // Nothing can be accepted; let the server show a key, so that the message can name it.
            return Preferred::default().key.into_owned();
        }
        algorithms
    }

    fn check(&self, shown: &PublicKey) -> Result<(), String> {
        let same = |known: &PublicKey| known.key_data() == shown.key_data();
        let print = shown.fingerprint(HashAlg::Sha256);
        if self.revoked.iter().any(same) {
            return Err(format!("known_hosts marks its key {print} as revoked"));
        }
        if self.believed.iter().any(same) {
            return Ok(());
        }
        if self.believed.is_empty() {
            return Err(format!(
                "known_hosts names no key for it; it shows {print}: if that is right, store the output of ssh-keyscan in known_hosts"
            ));
        }
        Err(format!(
            "it shows {print}, which is not the key that known_hosts names; somebody may be in between"
        ))
    }
}

/// Whether a list of patterns names a host: `*` and `?`, `!` in front to exclude, or a hashed name.
fn names(patterns: &str, name: &str) -> bool {
    let mut named = false;
    for pattern in patterns.split(',') {
        if let Some(hashed) = pattern.strip_prefix("|1|") {
            named |= hashed_name(hashed, name).unwrap_or(false);
        } else if let Some(pattern) = pattern.strip_prefix('!') {
            if wildcard(pattern, name) {
                return false;
            }
        } else {
            named |= wildcard(pattern, name);
        }
    }
    named
}

fn hashed_name(hashed: &str, name: &str) -> Option<bool> {
    let engine = base64::engine::general_purpose::STANDARD;
    let (salt, hash) = hashed.split_once('|')?;
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &engine.decode(salt).ok()?);
    Some(ring::hmac::verify(&key, name.as_bytes(), &engine.decode(hash).ok()?).is_ok())
}

fn wildcard(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().map(|c| c.to_ascii_lowercase()).collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut in_name) = (0_usize, 0_usize);
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, in_name));
                at += 1;
            }
            Some(c) if *c == '?' || Some(c) == name.get(in_name) => {
                at += 1;
                in_name += 1;
            }
            _ => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    at = after;
                    in_name = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn patterns_of_known_hosts() {
        let hashed = "|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg=";
        for (patterns, name, named) in [
            ("github.com", "github.com", true),
            ("GitHub.com,1.2.3.4", "github.com", true),
            ("gitlab.com", "github.com", false),
            ("*.example.com", "git.example.com", true),
            ("*.example.com,!git.example.com", "git.example.com", false),
            ("git?.example.com", "git1.example.com", true),
            ("[host]:2222", "[host]:2222", true),
            ("host", "[host]:2222", false),
            (hashed, "192.168.1.61", true),
            (hashed, "192.168.1.62", false),
        ] {
            assert_eq!(names(patterns, name), named, "{patterns} {name}");
        }
    }
}
