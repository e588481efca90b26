//! `tenure completion SHELL`: how a shell asks this program what could come next; and the answers, kinds and names of the cluster at
//! hand. Refuses to keep anybody waiting: a cluster that doesn't answer at once has no names.

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

/// How long a cluster may take to say what there is.
const PATIENCE: Duration = Duration::from_secs(2);

/// As many names are offered at most.
const MOST: usize = 200;

/// The variable by which a shell's script asks.
pub(crate) const VARIABLE: &str = "TENURE_COMPLETE";

/// Print the completion script of a shell.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell.
    shell: clap_complete::Shell,
}

impl Completion {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let name = self.shell.to_string();
        let shells = Shells::builtins();
        let Some(shell) = shells.completer(&name) else {
            return Err(Failure::usage(format!("{name} is no shell that can be completed in")));
        };
        let mut script = Vec::new();
        shell
            .write_registration(VARIABLE, "tenure", "tenure", "tenure", &mut script)
            .map_err(|error| Failure::internal(error.to_string()))?;
        output::print_written(|out| out.write_all(&script));
        Ok(ExitCode::SUCCESS)
    }
}

/// What an argument that names a kind or an object may become.
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
        // There is nobody to tell: the shell shows nothing.
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

/// The kind that stands before the word that is being typed, if there is one.
fn kind_before<'a>(words: &[String], served: &'a [Resource]) -> Option<&'a Resource> {
    // The program, the subcommand, and the word being typed are none.
    let before = words.get(2..words.len().saturating_sub(1))?;
    let kind = before.iter().find(|word| !word.starts_with('-'))?;
    resources::find(served, kind).ok()
}

/// The value of `-n`.
fn namespace_of_words(words: &[String]) -> Option<String> {
    let index = words.iter().position(|word| word == "-n" || word == "--namespace")?;
    words.get(index + 1).cloned()
}

async fn list_names(client: &kube::Client, resource: &Resource, namespace: &str) -> Result<Vec<String>, Failure> {
    let path = format!("{}?limit={MOST}", resource.path(Some(namespace)));
    let request = http::Request::get(path)
        // Metadata is all that is wanted.
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
