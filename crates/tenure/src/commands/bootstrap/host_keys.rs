//! The keys of an ssh server that the bootstrap trusts and pins. They come from a file, from the cluster or from the user's own `known_hosts`. On request, the
//! command trusts the key that the server shows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_sources::{RemoteUrl, read_host_key, select_host_keys};

use super::credential::read_file;
use crate::failure::Failure;
use crate::output;
use crate::own_connections::make_connector;

/// The time for the server's answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Finds the keys of a server, as lines of `known_hosts`. `pinned` are the keys in the cluster.
pub(super) async fn find_host_keys(
    url: &RemoteUrl,
    (file, trusts_shown): (Option<&Path>, bool),
    pinned: Option<&str>,
) -> Result<String, Failure> {
    let host = &url.endpoint().host;
    if let Some(file) = file {
        let found = select_host_keys(&read_file("--known-hosts", file)?, url);
        return match found.is_empty() {
            false => Ok(found),
            true => Err(Failure::usage(format!("--known-hosts {}: no line names a key of {host}", file.display()))
                .hint(format!("ssh-keyscan {host} prints the keys that the server shows; compare them with the keys that its operator publishes"))),
        };
    }
    let own = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".ssh/known_hosts"));
    let own = own
        .filter(|path| path.is_file())
        .map(|path| read_file("known_hosts", &path))
        .transpose()?;
    for text in [pinned, own.as_deref()].into_iter().flatten() {
        let found = select_host_keys(text, url);
        if !found.is_empty() {
            return Ok(found);
        }
    }
    if !trusts_shown {
        return Err(Failure::usage(format!(
            "the key of the ssh server {host} is unknown, so another server could answer in its place"
        ))
        .hint("name a file with its keys: --known-hosts FILE; or trust the key that it shows now: --trust-host-key"));
    }
    let asked = tokio::time::timeout(PATIENCE, read_host_key(url, &make_connector())).await;
    let shown = asked.map_err(|_| Failure::environment(format!("{url}: no answer in {} s", PATIENCE.as_secs())))?;
    let shown = shown.map_err(|error| Failure::environment(error.to_string()))?;
    output::print_note(format!(
        "{host} shows the key {}, which the cluster will trust; compare it with the fingerprint that its operator publishes",
        shown.fingerprint
    ));
    Ok(shown.line)
}
