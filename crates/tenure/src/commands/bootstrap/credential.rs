//! The administrator's credential for the push: read once, from a file, standard input or the environment, and never written. A flag can't contain it, since other users of
//! a machine see the arguments of its processes.

use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tenure_sources::{RemoteUrl, Scheme, SecretBytes};

use crate::failure::Failure;

/// The most bytes of a token or password.
const LONGEST: u64 = 16 << 10;
/// The most bytes of a file with certificates.
const LONGEST_FILE: u64 = 1 << 20;

/// The credential with which the command pushes.
#[derive(Debug)]
pub(super) enum PushCredential {
    /// No credential: the server asks for none.
    Nothing,
    /// A user name with a password or token.
    Password { username: String, password: SecretBytes },
    /// The file of an ssh key; `None` for the keys of the ssh-agent.
    Key(Option<PathBuf>),
}

impl PushCredential {
    /// Finds the password for a push over HTTP.
    pub(super) fn read_password(username: &str, file: Option<&Path>, variable: &str) -> Result<Self, Failure> {
        if username.is_empty() || username.contains(':') || username.chars().any(char::is_control) {
            return Err(Failure::usage("--username: a user name has no colon"));
        }
        Ok(match read_secret(file, variable)? {
            None => Self::Nothing,
            Some(password) => Self::Password {
                username: username.to_owned(),
                password,
            },
        })
    }

    /// Checks the file of the key for a push over ssh. git's ssh reads the file itself.
    pub(super) fn read_key(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(file) = file else { return Ok(Self::Key(None)) };
        let path = std::fs::canonicalize(file)
            .map_err(|error| Failure::usage(format!("--private-key-file {}: {error}", file.display())))?;
        Ok(Self::Key(Some(path)))
    }

    /// Refuses a password over plain HTTP, except to this machine.
    pub(super) fn check_transport(&self, url: &RemoteUrl) -> Result<(), Failure> {
        let endpoint = url.endpoint();
        let is_here = endpoint.host == "localhost"
            || endpoint
                .host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        match self {
            Self::Password { .. } if endpoint.scheme == Scheme::Http && !is_here => Err(Failure::usage(format!(
                "{url}: everybody on the way could read the credential, because the address has no TLS"
            ))
            .hint("use the https:// address of the repository")),
            _ => Ok(()),
        }
    }
}

/// Reads a secret text from a file (`-` is standard input), else from a variable of the environment. `None` if there is neither.
pub(super) fn read_secret(file: Option<&Path>, variable: &str) -> Result<Option<SecretBytes>, Failure> {
    let (text, place) = match file {
        Some(file) if file == Path::new("-") => {
            (read_text(std::io::stdin().lock(), LONGEST), "standard input".to_owned())
        }
        Some(file) => {
            let opened = std::fs::File::open(file);
            (
                opened.and_then(|opened| read_text(opened, LONGEST)),
                file.display().to_string(),
            )
        }
        None => match std::env::var(variable) {
            Ok(text) => (Ok(text), format!("${variable}")),
            Err(std::env::VarError::NotPresent) => return Ok(None),
            Err(_) => return Err(Failure::usage(format!("${variable} is no text"))),
        },
    };
    let text = text.map_err(|error| Failure::usage(format!("{place}: {error}")))?;
    let text = SecretBytes::new(text.trim_end_matches(['\r', '\n']));
    if text.reveal().is_empty() || text.reveal().chars().any(char::is_control) {
        return Err(Failure::usage(format!(
            "{place}: a password or token is one line, and not empty"
        )));
    }
    Ok(Some(text))
}

fn read_text(reader: impl std::io::Read, most: u64) -> std::io::Result<String> {
    let mut text = String::new();
    reader.take(most + 1).read_to_string(&mut text)?;
    match text.len() as u64 > most {
        true => Err(std::io::Error::other(format!("it has more than {most} bytes"))),
        false => Ok(text),
    }
}

/// Reads a file that the user names.
pub(super) fn read_file(flag: &str, path: &Path) -> Result<String, Failure> {
    let opened = std::fs::File::open(path);
    let text = opened.and_then(|opened| read_text(opened, LONGEST_FILE));
    text.map_err(|error| Failure::usage(format!("{flag} {}: {error}", path.display())))
}

/// Reads the certificates of an authority.
pub(super) fn read_ca(path: Option<&Path>) -> Result<Option<Vec<u8>>, Failure> {
    let text = path.map(|path| read_file("--ca-file", path)).transpose()?;
    Ok(text.map(String::into_bytes))
}

/// Reads the address of a repository. An address with a password is refused: others see it among the arguments, and it would be committed.
pub(super) fn read_url(flag: &str, text: &str) -> Result<RemoteUrl, Failure> {
    let url = RemoteUrl::parse(text).map_err(|error| Failure::usage(format!("{flag}: {error}")))?;
    let authority = text
        .split_once("://")
        .map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default());
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let is_ssh = url.endpoint().scheme == Scheme::Ssh;
    if user.contains(':') || (!is_ssh && !user.is_empty()) {
        return Err(Failure::usage(format!("{flag}: {url} contains a user or a password"))
            .hint("leave it out of the address; --username, --password-file and GIT_PASSWORD name them"));
    }
    Ok(url)
}

/// Checks the address from which the cluster reads.
pub(super) fn check_source(text: &str) -> Result<String, Failure> {
    let url = read_url("--source-url", text)?;
    if url.endpoint().scheme != Scheme::Ssh {
        return Err(Failure::usage(format!(
            "--source-url: {url} is no ssh address, and a deploy key works over ssh"
        ))
        .hint("such as ssh://git@git.example/platform.git"));
    }
    Ok(text.to_owned())
}
