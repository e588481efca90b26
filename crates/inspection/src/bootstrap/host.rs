//! The addresses of Git hosts with an API, and the user names beside their tokens.

use tenure_remote_requests::git_host::HostKind;

/// A Git host with an API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// The name of the host, without scheme and port.
    pub name: String,
    /// The address of the API as `tenure-git-hosts` reads it.
    pub api: String,
}

/// Finds the API of a host from the name or the address that the user gives. GitHub's API has an address of its own.
///
/// # Errors
/// When the host has no default, or the text is neither a name nor an address.
pub fn find_host(kind: HostKind, hostname: Option<&str>) -> Result<HostAddress, String> {
    let default = match kind {
        HostKind::Gitlab => Some("gitlab.com"),
        HostKind::Github => Some("github.com"),
        HostKind::Gitea | HostKind::Static => None,
    };
    let text = hostname
        .or(default)
        .ok_or("--hostname: this kind of host has no default, such as --hostname git.example")?;
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (Some(scheme), rest),
        Some(_) => {
            return Err(format!(
                "--hostname {text:?}: write a name, or an address with http:// or https://"
            ));
        }
        None => (None, text),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let name = name_host(authority);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_' | ':');
    if name.is_empty() || name.starts_with('-') || !name.chars().all(is_plain) {
        return Err(format!(
            "--hostname {text:?}: write a name such as git.example, or an address with http:// or https://"
        ));
    }
    let api = match (scheme, kind) {
        (Some(_), _) => text.to_owned(),
        (None, HostKind::Github) if name == "github.com" => "https://api.github.com".to_owned(),
        (None, HostKind::Github) => format!("https://{text}/api/v3"),
        (None, _) => format!("https://{text}"),
    };
    Ok(HostAddress { name, api })
}

/// Returns the name in an authority: without a port, and without the brackets of an IPv6 address.
fn name_host(authority: &str) -> String {
    let name = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => authority.split(':').next().unwrap_or_default(),
    };
    name.to_ascii_lowercase()
}

/// Whether an address from the host's answer is on the host itself. A token goes nowhere else.
#[must_use]
pub fn is_same_host(address: &HostAddress, url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let is_safe = scheme == "https" || (scheme == "http" && address.api.starts_with("http://"));
    is_safe && name_host(authority) == address.name
}

/// Returns the user name with which a host accepts a token over HTTP.
#[must_use]
pub fn choose_username(kind: HostKind) -> &'static str {
    match kind {
        HostKind::Gitlab => "oauth2",
        HostKind::Github => "x-access-token",
        HostKind::Gitea | HostKind::Static => "git",
    }
}
