//! `tenure delete`: deletes objects that Tenure reconciles, after it has listed all objects that are deleted with them. Each deletion has the uid of the shown object.

use std::process::ExitCode;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use kube::api::{Api, DeleteParams, DynamicObject, Preconditions};
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::text::visible_line;
use tenure_inspection::deletion::{Neighbours, describe_deletion, find_neighbour_kind};

use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::resources::{self, Resource};
use crate::targets::Targets;
use crate::{confirmation, output, paged_reads};

/// The groups whose objects the command deletes.
const GROUPS: [&str; 7] = [
    "source.toolkit.fluxcd.io",
    "source.extensions.fluxcd.io",
    "kustomize.toolkit.fluxcd.io",
    "notification.toolkit.fluxcd.io",
    "helm.toolkit.fluxcd.io",
    "capsule.clastix.io",
    "tenure.dev",
];

/// The largest number of other objects that are read to find the consequences of a deletion.
const MOST: usize = 10_000;

/// Delete objects that Tenure reconciles. Before, the command says what the deletion takes along.
///
/// The consequences follow from deletionPolicy, prune and inventory of the object. The controllers decide when they carry the deletion out, and may keep more objects.
///
/// Exit codes: 0 the deletions are requested. 1 an object is missing, has changed meanwhile, or you answered no. 2 wrong usage, or no terminal to ask at and no --silent.
/// 3 the cluster refused or failed.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// Objects as KIND NAME…, or KIND/NAME…, such as ks web, or gitrepo/web surface/shop.
    #[arg(required = true, num_args = 1.., value_name = "KIND/NAME", add = ArgValueCompleter::new(super::completion::complete_target))]
    objects: Vec<String>,
    /// Delete without a confirmation.
    #[arg(short, long, visible_alias = "yes")]
    silent: bool,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

/// An object that the user named for deletion, as it was read.
struct ObjectToDelete {
    resource: Resource,
    api: Api<DynamicObject>,
    object: Value,
}

impl ObjectToDelete {
    fn subject(&self) -> String {
        let text = |path: &str| ObjectView::new(&self.object).read_text(path);
        match text("/metadata/namespace") {
            "" => format!("{}/{}", self.resource.kind, text("/metadata/name")),
            namespace => format!("{}/{namespace}/{}", self.resource.kind, text("/metadata/name")),
        }
    }

    /// Deletes exactly this object, and returns whether it is gone already.
    async fn delete(&self) -> Result<bool, Failure> {
        let text = |path: &str| ObjectView::new(&self.object).read_text(path);
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(text("/metadata/uid").to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let deleted = self.api.delete(text("/metadata/name"), &parameters).await?;
        Ok(deleted.is_right())
    }
}

impl Delete {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let named = match Targets::read(&self.objects)? {
            Targets::Objects(objects) => objects,
            Targets::Nothing | Targets::Kinds(_) => {
                return Err(Failure::usage(format!("{:?} names no object", self.objects.join(" ")))
                    .hint("KIND NAME or KIND/NAME, such as ks web or ks/web"));
            }
        };
        let client = self.connect.client().await?;
        let served = resources::list_served(&client).await?;
        // All objects are read before the first is deleted.
        let mut doomed = Vec::new();
        for (kind, name) in named {
            doomed.push(self.find(&client, &served, &kind, &name).await?);
        }
        for one in &doomed {
            output::print_note(one.subject());
            let neighbours = read_neighbours(&client, &served, one).await;
            for line in describe_deletion(&one.object, &neighbours) {
                output::print_note(format!("   {}", visible_line(&line)));
            }
        }
        if !self.silent {
            confirmation::ask_confirmation("--silent deletes without a question")?;
        }
        let progress = Progress::start();
        for one in &doomed {
            progress.print_action(format!("deleting {}", one.subject()));
            match one.delete().await? {
                true => progress.succeed(format!("{} deleted", one.subject())),
                false => progress.succeed(format!(
                    "{}: its deletion is requested; it is gone once the controllers have finished it",
                    one.subject()
                )),
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn find(
        &self,
        client: &kube::Client,
        served: &[Resource],
        kind: &str,
        name: &str,
    ) -> Result<ObjectToDelete, Failure> {
        let resource = resources::find_resource(served, kind)?.clone();
        if !GROUPS.contains(&resource.group.as_str()) {
            return Err(
                Failure::usage(format!("{} are none of Tenure's kinds", resource.full_name()))
                    .hint("kubectl delete deletes them; Git restores the objects that it manages, so remove those from the repository"),
            );
        }
        let namespace = match resource.namespaced {
            true => Some(self.scope.namespace(client).ok_or_else(|| {
                Failure::usage("objects are deleted in one namespace: name it with -n instead of -A")
            })?),
            false => None,
        };
        let api: Api<DynamicObject> = match &namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource.api()),
            None => Api::all_with(client.clone(), &resource.api()),
        };
        let object = match api.get(name).await {
            Ok(object) => object,
            Err(error) => {
                return Err(resources::explain_read(client, &resource, (namespace.as_deref(), name), error).await);
            }
        };
        let object = serde_json::to_value(object).map_err(|error| Failure::internal(error.to_string()))?;
        Ok(ObjectToDelete { resource, api, object })
    }
}

/// Reads the objects that decide which other objects a deletion removes.
async fn read_neighbours(client: &kube::Client, served: &[Resource], doomed: &ObjectToDelete) -> Neighbours {
    let Some(kind) = find_neighbour_kind(&doomed.resource.kind) else {
        return Ok(Vec::new());
    };
    let resource = resources::find_resource(served, kind).map_err(|failure| failure.message)?;
    let namespace = ObjectView::new(&doomed.object).read_text("/metadata/namespace");
    let mut found = Vec::new();
    let path = resource.path(Some(namespace));
    match paged_reads::visit_objects(client, &path, ("application/json", MOST), |object| found.push(object)).await {
        Ok(true) => Ok(found),
        Ok(false) => Err(format!("there are more than {MOST} {}", resource.full_name())),
        Err(refusal) => Err(refusal.to_string()),
    }
}
