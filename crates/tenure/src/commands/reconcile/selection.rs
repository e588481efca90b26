//! The objects of a command that takes several: by name, or all of a kind in the namespace.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use tenure_api::ObjectView;

use super::object::{Reconciled, check_kind};
use crate::commands::completion;
use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::resources::{self, Resource};
use crate::targets::Targets;
use crate::{output, paged_reads};

/// The largest number of objects that `--all` selects.
const MOST: usize = 10_000;

/// The objects of the command.
#[derive(Debug, Args)]
pub(super) struct Selection {
    /// Objects as KIND NAME…, or KIND/NAME…, such as ks web, or gitrepo/web surface/shop. With --all, only kinds.
    #[arg(required = true, num_args = 1.., value_name = "KIND/NAME", add = ArgValueCompleter::new(completion::complete_target))]
    objects: Vec<String>,
    /// All objects of the kind in the namespace.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

impl Selection {
    /// Whether all objects of a kind are selected.
    pub(super) fn is_all(&self) -> bool {
        self.all
    }

    pub(super) async fn connect(&self) -> Result<(kube::Client, Vec<Resource>), Failure> {
        // A wrong argument is reported before any request.
        self.read()?;
        let client = self.connect.client().await?;
        let served = resources::list_served(&client).await?;
        Ok((client, served))
    }

    fn read(&self) -> Result<Targets, Failure> {
        let asked = Targets::read(&self.objects)?;
        match (&asked, self.all) {
            (Targets::Objects(_), true) => Err(Failure::usage("--all selects all objects of a kind, and a name is given")
                .hint("leave out the name, or --all")),
            (Targets::Kinds(_), false) => Err(
                Failure::usage(format!("{:?} names no object", self.objects.join(" ")))
                    .hint("KIND NAME or KIND/NAME, such as ks web or ks/web; --all selects all objects of a kind in the namespace"),
            ),
            _ => Ok(asked),
        }
    }

    /// Returns the selected objects, each once.
    pub(super) async fn find(&self, client: &kube::Client, served: &[Resource]) -> Result<Vec<Reconciled>, Failure> {
        let namespace = self
            .scope
            .namespace(client)
            .ok_or_else(|| Failure::usage("these objects live in one namespace: name it with -n instead of -A"))?;
        let mut found: Vec<Reconciled> = Vec::new();
        let mut add = |object: Reconciled| {
            if !found.iter().any(|known| known.subject() == object.subject()) {
                found.push(object);
            }
        };
        match self.read()? {
            Targets::Objects(objects) => {
                for (kind, name) in objects {
                    add(Reconciled::new(
                        client,
                        resources::find_resource(served, &kind)?,
                        &namespace,
                        name,
                    )?);
                }
            }
            Targets::Kinds(kinds) => {
                for kind in kinds {
                    let resource = resources::find_resource(served, &kind)?;
                    check_kind(resource)?;
                    let names = list_names(client, resource, &namespace).await?;
                    if names.is_empty() {
                        output::print_note(format!("no {} in namespace {namespace}", resource.full_name()));
                    }
                    for name in names {
                        add(Reconciled::new(client, resource, &namespace, name)?);
                    }
                }
            }
            Targets::Nothing => {}
        }
        if found.is_empty() {
            return Err(
                Failure::negative(format!("nothing is selected in namespace {namespace}"))
                    .hint("tenure get -A shows what exists; -n selects another namespace"),
            );
        }
        Ok(found)
    }
}

async fn list_names(client: &kube::Client, resource: &Resource, namespace: &str) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let path = resource.path(Some(namespace));
    let visited = paged_reads::visit_objects(client, &path, (accept, MOST), |object| {
        names.push(ObjectView::new(&object).read_text("/metadata/name").to_owned());
    });
    match visited.await {
        Ok(true) => Ok(names),
        Ok(false) => Err(Failure::usage(format!(
            "namespace {namespace} has more than {MOST} {}",
            resource.full_name()
        ))
        .hint("name the objects")),
        Err(paged_reads::ReadRefusal::Forbidden(_)) => Err(Failure::environment(format!(
            "you may not list {} in namespace {namespace}",
            resource.full_name()
        ))
        .hint("name the objects, or ask an administrator for this right")),
        Err(refusal) => Err(Failure::environment(format!("{}: {refusal}", resource.full_name()))),
    }
}
