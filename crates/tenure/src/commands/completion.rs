//! `tenure completion SHELL`: the script with which a shell asks this program for completions, and the answers: kinds and names of the current cluster. A cluster that
//! doesn't answer in time gives no names.

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::Args;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::Shells;

use crate::connect::{Connect, find_flag};
use crate::kind_lists::{EVENT_DRIVEN, NEVER_SUSPENDED, OURS, RECONCILED, RENDERED, WITH_RESULTS};
use crate::resources::{self, Resource};
use crate::{completion_words, failure::Failure, output};

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

/// Returns the completions of an argument that names a kind or an object: kinds that the command takes, and names of the objects of a kind.
pub(crate) fn complete_target(current: &OsStr) -> Vec<CompletionCandidate> {
    let words = completion_words::list_words();
    let current_word = current.to_string_lossy().into_owned();
    let offered = completion_words::ask_cluster(complete_words(&words, &current_word));
    completion_words::select_words(current, offered)
}

async fn complete_words(words: &[String], current: &str) -> Result<Vec<String>, Failure> {
    let client = Connect::of_words(words).client().await?;
    let served = resources::list_served(&client).await?;
    let named = find_flag(words, &["-n", "--namespace"]);
    let namespace = named.unwrap_or_else(|| client.default_namespace().to_owned());
    if let Some((kind, _)) = current.split_once('/') {
        let names = resources::list_names(&client, resources::find_resource(&served, kind)?, Some(&namespace)).await?;
        return Ok(names.into_iter().map(|name| format!("{kind}/{name}")).collect());
    }
    let command = words.get(1).map_or("", String::as_str);
    if matches!(command, "values" | "recover") {
        let packages = resources::find_resource(&served, "packages.cozystack.io")?;
        return resources::list_names(&client, packages, None).await;
    }
    match kind_before(words, &served) {
        Some(resource) => resources::list_names(&client, resource, Some(&namespace)).await,
        None => Ok(list_kinds(command, current, &served)),
    }
}

/// Returns the kinds that a command takes. After a comma, the text before it stays: `ks,git` offers `ks,gitrepositories`.
fn list_kinds(command: &str, current: &str, served: &[Resource]) -> Vec<String> {
    let accepted = served.iter().filter(|resource| accepts_kind(command, resource));
    let plurals = accepted.map(|resource| resource.plural.clone());
    match (command, current.rsplit_once(',')) {
        ("get" | "export", Some((before, _))) => plurals.map(|plural| format!("{before},{plural}")).collect(),
        ("get", None) => plurals.chain(["all".to_owned()]).collect(),
        _ => plurals.collect(),
    }
}

/// Whether a command takes objects of a kind.
fn accepts_kind(command: &str, resource: &Resource) -> bool {
    let kind = (resource.group.as_str(), resource.kind.as_str());
    match command {
        "reconcile" => RECONCILED.contains(&kind) || NEVER_SUSPENDED.contains(&kind),
        "suspend" | "resume" => RECONCILED.contains(&kind) || EVENT_DRIVEN.contains(&kind),
        "tree" => WITH_RESULTS.contains(&kind),
        "diff" => RENDERED.contains(&kind),
        "export" => OURS.contains(&resource.full_name().as_str()),
        _ => true,
    }
}

/// Returns the kind before the current word, if any.
fn kind_before<'a>(words: &[String], served: &'a [Resource]) -> Option<&'a Resource> {
    // The program, the subcommand, and the current word are no kinds.
    let before = words.get(2..words.len().saturating_sub(1))?;
    let mut kinds = before
        .iter()
        .filter(|word| !word.starts_with('-') && !word.contains('/'));
    kinds.find_map(|word| resources::find_resource(served, word).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_offers_its_own_kinds() {
        let served: Vec<Resource> = [
            ("apps", "deployments", "Deployment"),
            ("kustomize.toolkit.fluxcd.io", "kustomizations", "Kustomization"),
            ("notification.toolkit.fluxcd.io", "alerts", "Alert"),
            ("tenure.dev", "surfaces", "Surface"),
        ]
        .map(|(group, plural, kind)| Resource::from_names(group, plural, kind))
        .into();
        let check = |command: &str, current: &str, expected: &[&str]| {
            assert_eq!(list_kinds(command, current, &served), expected, "{command}");
        };
        check("trace", "", &["deployments", "kustomizations", "alerts", "surfaces"]);
        check("tree", "", &["kustomizations", "surfaces"]);
        check("reconcile", "", &["kustomizations", "surfaces"]);
        check("suspend", "", &["kustomizations", "alerts", "surfaces"]);
        check("export", "ks,a", &["ks,kustomizations", "ks,alerts", "ks,surfaces"]);
        check(
            "get",
            "",
            &["deployments", "kustomizations", "alerts", "surfaces", "all"],
        );
    }

    #[test]
    fn names_follow_their_kind() {
        let served = [Resource::from_names("tenure.dev", "surfaces", "Surface")];
        let check = |line: &str, expected: bool| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(kind_before(&words, &served).is_some(), expected, "{line}");
        };
        check("tenure get ", false);
        check("tenure get -n shop surfaces ", true);
        check("tenure get surface/a ", false);
    }
}
