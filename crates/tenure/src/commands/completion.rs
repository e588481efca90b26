//! `tenure completion SHELL`: the script with which a shell asks this program for completions, and the answers: kinds and names of the current cluster. A cluster that
//! doesn't answer in time gives no names.

use std::ffi::OsStr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::Shells;
use serde_json::Value;
use tenure_api::ObjectView;

use crate::connect::Connect;
use crate::resources::{self, Resource};
use crate::{failure::Failure, output};

/// The timeout for the cluster.
const PATIENCE: Duration = Duration::from_secs(2);

/// The largest number of offered names.
const MOST: usize = 200;

/// The variable with which a shell's script asks.
pub(crate) const VARIABLE: &str = "TENURE_COMPLETE";

/// Print the completion script of a shell.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// Name of the shell.
    shell: clap_complete::Shell,
}

impl Completion {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let name = self.shell.to_string();
        let shells = Shells::builtins();
        let Some(shell) = shells.completer(&name) else {
            return Err(Failure::usage(format!("{name} is not a shell with completion")));
        };
        let mut script = Vec::new();
        shell
            .write_registration(VARIABLE, "tenure", "tenure", "tenure", &mut script)
            .map_err(|error| Failure::internal(error.to_string()))?;
        output::print_written(|out| out.write_all(&script));
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the completions of an argument that names a kind or an object.
pub(crate) fn complete_target(current: &OsStr) -> Vec<CompletionCandidate> {
    let words: Vec<String> = std::env::args().skip_while(|word| word != "--").skip(1).collect();
    let Some(current) = current.to_str() else {
        return Vec::new();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
    let found = runtime.block_on(async { tokio::time::timeout(PATIENCE, complete(&words, current)).await });
    match found {
        Ok(Ok(found)) => found.into_iter().take(MOST).map(CompletionCandidate::new).collect(),
        // An error can't be shown, so the shell shows nothing.
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

async fn complete(words: &[String], current: &str) -> Result<Vec<String>, Failure> {
    let client = Connect::of_words(words).client().await?;
    let served = resources::served(&client).await?;
    let namespace = namespace_of_words(words).unwrap_or_else(|| client.default_namespace().to_owned());
    if let Some((kind, _)) = current.split_once('/') {
        let names = list_names(&client, resources::find(&served, kind)?, &namespace).await?;
        return Ok(names
            .into_iter()
            .map(|name| format!("{kind}/{name}"))
            .filter(|text| text.starts_with(current))
            .collect());
    }
    let candidates = match kind_before(words, &served) {
        Some(resource) => list_names(&client, resource, &namespace).await?,
        None => served.iter().map(|resource| resource.plural.clone()).collect(),
    };
    Ok(candidates
        .into_iter()
        .filter(|text| text.starts_with(current))
        .collect())
}

/// Returns the kind before the current word, if any.
fn kind_before<'a>(words: &[String], served: &'a [Resource]) -> Option<&'a Resource> {
    // The program, the subcommand, and the current word are no kinds.
    let before = words.get(2..words.len().saturating_sub(1))?;
    let kind = before.iter().find(|word| !word.starts_with('-'))?;
    resources::find(served, kind).ok()
}

/// Returns the value of `-n`.
fn namespace_of_words(words: &[String]) -> Option<String> {
    let index = words.iter().position(|word| word == "-n" || word == "--namespace")?;
    words.get(index + 1).cloned()
}

async fn list_names(client: &kube::Client, resource: &Resource, namespace: &str) -> Result<Vec<String>, Failure> {
    let path = format!("{}?limit={MOST}", resource.path(Some(namespace)));
    let request = http::Request::get(path)
        // The metadata is enough.
        .header(
            http::header::ACCEPT,
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        )
        .body(Vec::new())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let answer: Value = client.request(request).await?;
    let items = ObjectView::of(&answer).list_views("/items");
    let names = items.filter_map(|item| item.find_text("/metadata/name"));
    Ok(names.map(str::to_owned).collect())
}
