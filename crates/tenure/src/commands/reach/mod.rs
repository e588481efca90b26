//! `tenure reach`: the authority that a user, a ServiceAccount or a tenant can reach, with the paths. The module reads with the rights of the caller and prints the
//! answer; `kubernetes_reach` computes it. No value of a Secret is read, and every unreadable kind is reported.

mod read;
mod write;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use kubernetes_reach::{Cluster, Coverage, Reach, Reached, Subject};
use serde_json::Value;

pub(crate) use self::read::read_cluster;
use crate::connect::Connect;
use crate::failure::Failure;
use crate::output;

/// Show what a user, a group, a ServiceAccount or a tenant can reach, step by step: identities, Secrets, nodes, cluster-admin.
///
/// The command reads RBAC, ServiceAccounts, workloads, Tenants and admission's configuration with your rights. Of Secrets it reads only the metadata. A kind
/// that it can't read is listed as unknown.
///
/// Exit codes: 0 answered; 1 the subject reaches what --as-admin or --on asks about; more than 1 the command could not run.
#[derive(Debug, Args)]
pub(crate) struct ReachCommand {
    /// Subject: `user NAME`, `group NAME`, `serviceaccount NAMESPACE:NAME` or `tenant NAME`. A tenant means its owners and the accounts of its namespaces.
    #[arg(value_name = "KIND NAME", required = true, num_args = 1..=2)]
    subject: Vec<String>,
    /// Group of the user, besides the groups that the API server adds. Can be repeated.
    #[arg(long = "group", value_name = "NAME")]
    groups: Vec<String>,
    /// Show only whether the subject can become an administrator of the cluster. Exit code 1 if it can.
    #[arg(long, conflicts_with = "on")]
    as_admin: bool,
    /// Show only whether the subject can read, write or delete this object: KIND/NAMESPACE/NAME, or KIND/NAME for a cluster-scoped object.
    #[arg(long, value_name = "OBJECT")]
    on: Option<String>,
    /// Folder or file of manifests to add to the objects of the cluster. The command then prints only what they add.
    ///
    /// A folder with a kustomization is built. With --on or `-o dot`, the output also has what the subject reaches without the manifests.
    #[arg(long, value_name = "DIR")]
    with: Option<PathBuf>,
    /// File or folder to read objects from instead of a cluster, such as the output of `tenure export` or `kubectl get -o yaml`.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Print the path to everything that the subject reaches. Unset: only the paths to the worst.
    #[arg(long)]
    paths: bool,
    /// Format of the answer.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Form::Table)]
    output: Form,
    #[command(flatten)]
    connect: Connect,
}

/// Formats of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A table for people.
    Table,
    /// JSON with all paths, rights and stopped edges.
    Json,
    /// A graph for Graphviz.
    Dot,
}

impl ReachCommand {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        self.answer().await.map_err(Failure::never_negative)
    }

    async fn answer(&self) -> Result<ExitCode, Failure> {
        let subject: Subject = self.subject.join("/").parse().map_err(Failure::usage)?;
        let subject = subject.with_groups(&self.groups);
        let target = self.on.as_deref().map(read::read_target).transpose()?;
        let (mut objects, coverage) = match &self.from {
            Some(path) => {
                let objects = read::read_manifests(path)?;
                let coverage = Coverage::of_files(&objects);
                (objects, coverage)
            }
            None => read_cluster(&self.connect.client().await?).await?,
        };
        let mut known = BTreeSet::new();
        if let Some(folder) = &self.with {
            let cluster = Cluster::read(&objects, &coverage);
            // A subject that only the manifests contain reaches nothing before.
            if let Ok(before) = Reach::search(&cluster, &subject) {
                known = before.list_reached().into_iter().map(|reached| reached.node).collect();
            }
            replace_objects(&mut objects, read::read_manifests(folder)?);
        }
        let cluster = Cluster::read(&objects, &coverage);
        let reach = Reach::search(&cluster, &subject).map_err(|message| {
            Failure::environment(message)
                .hint("tenure get tenants lists them; reading them takes the verb list on tenants.capsule.clastix.io")
        })?;
        for unknown in reach.list_unknown() {
            output::print_note(format!("unknown: {}", tenure_api::text::visible_line(&unknown)));
        }
        if let Some(target) = target {
            let access = reach.find_access(&target);
            write::print_access(&access, self.output == Form::Json)?;
            return Ok(ExitCode::from(u8::from(!access.is_empty())));
        }
        if self.as_admin {
            let admin = reach.find_cluster_admin().filter(|admin| !known.contains(&admin.node));
            write::print_admin(&self.subject.join(" "), admin.as_ref(), self.output == Form::Json)?;
            return Ok(ExitCode::from(u8::from(admin.is_some())));
        }
        let reached: Vec<Reached> = reach
            .list_reached()
            .into_iter()
            .filter(|reached| !known.contains(&reached.node) && !reached.path.is_empty())
            .collect();
        match self.output {
            Form::Json => write::print_json(&self.subject.join(" "), &reach, &reached)?,
            Form::Dot => output::print_line(reach.write_dot().trim_end()),
            Form::Table => write::print_table(&reach, &reached, self.paths, self.with.is_some()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Adds objects; each replaces the one with its kind, namespace and name.
fn replace_objects(objects: &mut Vec<Value>, more: Vec<Value>) {
    let key = |object: &Value| {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let api_version = text("/apiVersion");
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
        (
            group,
            text("/kind"),
            text("/metadata/namespace"),
            text("/metadata/name"),
        )
    };
    let replaced: BTreeSet<_> = more.iter().map(key).collect();
    objects.retain(|object| !replaced.contains(&key(object)));
    objects.extend(more);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_replaces_the_object_of_its_name() {
        let role = |version: &str, name: &str, mark: u32| json!({"apiVersion": format!("a.b/{version}"), "kind": "Role", "metadata": {"name": name}, "mark": mark});
        let mut objects = vec![role("v1", "x", 1), role("v1", "y", 2)];
        replace_objects(&mut objects, vec![role("v2", "x", 3)]);
        assert_eq!(objects, [role("v1", "y", 2), role("v2", "x", 3)]);
    }
}
