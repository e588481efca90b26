//! `tenure export`: prints reconciled objects in the form for a repository. The module selects the objects, and the planner decides which fields are left out. It
//! refuses kinds without a reconciler, and prints Secrets only with the flag for them. A missing object causes an error at the end, because an export is often the only
//! copy.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::text::visible_line;
use tenure_inspection::portable::{find_generator, list_credentials, make_portable};

use super::get::add_type;
use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::kind_lists::{EVENT_DRIVEN, NEVER_SUSPENDED, OURS, RECONCILED};
use crate::resources::{self, Resource};
use crate::targets::Targets;
use crate::{named_objects, output};

/// The number of objects on a page.
const PAGE: usize = 500;
/// A word for all kinds of sources.
const SOURCES: [&str; 2] = ["source", "sources"];

/// Print Tenants, Surfaces, sources, Kustomizations, Receivers, Providers and Alerts as YAML that can be applied again.
///
/// The output has no status, and no fields that the server or the controllers added.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Objects (`ks web`, `ks/web`), or with --all kinds (`ks`, `ks,gitrepo`, `sources`) [default with --all: all kinds above].
    #[arg(value_name = "KIND|KIND/NAME", add = ArgValueCompleter::new(super::completion::complete_target))]
    targets: Vec<String>,
    /// Print all objects of the kinds, except objects that a Surface generates: they come with the Surface.
    #[arg(long)]
    all: bool,
    /// Print also the Secrets with credentials and keys that the objects name, with their values.
    #[arg(long)]
    with_credentials: bool,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

/// The number of printed objects, the Secrets to print after them, and the errors.
#[derive(Default)]
struct Printed {
    /// Namespaces and names of Secrets.
    credentials: BTreeSet<(String, String)>,
    generated: usize,
    objects: usize,
    refused: Vec<Failure>,
}

impl Export {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let asked = Targets::read(&self.targets)?;
        let wrong_form = match (&asked, self.all) {
            (Targets::Objects(_), true) => Some("--all and the names of objects can't be used together"),
            (Targets::Nothing | Targets::Kinds(_), false) => Some("no object is named"),
            _ => None,
        };
        if let Some(message) = wrong_form {
            return Err(
                Failure::usage(message).hint("tenure export ks/web, tenure export ks --all, or tenure export --all")
            );
        }
        let client = self.connect.client().await?;
        let served = resources::list_served(&client).await?;
        let namespace = self.scope.namespace(&client);
        let mut printed = Printed::default();
        match &asked {
            Targets::Objects(objects) => {
                for (kind, name) in objects {
                    let resource = find_exported(&served, kind)?;
                    if resource.namespaced && namespace.is_none() {
                        return Err(Failure::usage(
                            "an object lives in one namespace: name it with -n instead of -A",
                        ));
                    }
                    let namespace = namespace.as_deref();
                    let path = format!("{}/{}", resource.path(namespace), resources::encode_segment(name));
                    match read_object(&client, &path).await {
                        Ok(object) => printed.add(object),
                        Err(error) => {
                            let object = (namespace, name.as_str());
                            let failure = resources::explain_read(&client, resource, object, error).await;
                            printed.refused.push(failure);
                        }
                    }
                }
            }
            Targets::Nothing | Targets::Kinds(_) => {
                // The owner of one namespace exports no Packages of the platform, and may not list them.
                let is_wanted = |resource: &&Resource| {
                    resource.group != "cozystack.io" || namespace.is_none() || matches!(asked, Targets::Kinds(_))
                };
                for resource in list_kinds(&asked, &served)?.into_iter().filter(is_wanted) {
                    self.print_all(&client, resource, namespace.as_deref(), &mut printed)
                        .await;
                }
            }
        }
        if self.with_credentials {
            print_credentials(&client, &mut printed).await;
        }
        if printed.generated > 0 {
            output::print_note(format!(
                "left out: {} that Surfaces generate, and would generate again (name one to have it printed)",
                printed.generated
            ));
        }
        if printed.objects == 0 && printed.refused.is_empty() {
            output::print_note("nothing found");
        }
        printed.refused.iter().for_each(output::failure);
        Ok(printed.refused.first().map_or(ExitCode::SUCCESS, Failure::exit_code))
    }

    async fn print_all(
        &self,
        client: &kube::Client,
        resource: &Resource,
        namespace: Option<&str>,
        printed: &mut Printed,
    ) {
        let mut next = String::new();
        loop {
            let path = format!("{}?limit={PAGE}{next}", resource.path(namespace));
            let mut page = match read_object(client, &path).await {
                Ok(page) => page,
                Err(error) => match collect_named(client, resource, &error).await {
                    Some(page) => page,
                    None => {
                        printed
                            .refused
                            .push(resources::explain_error(error, resource, namespace));
                        return;
                    }
                },
            };
            let items = page.get_mut("items").and_then(Value::as_array_mut);
            for item in items.map(std::mem::take).unwrap_or_default() {
                let object = add_type(item, resource);
                if find_generator(&object).is_some_and(|generator| generator.starts_with("Surface/")) {
                    printed.generated += 1;
                } else {
                    printed.add(object);
                }
            }
            match ObjectView::new(&page).read_text("/metadata/continue") {
                "" => return,
                token => next = format!("&continue={}", resources::encode_segment(token)),
            }
        }
    }
}

/// Reads the objects that a user may get by name, without the right to list them: owners have their Tenants.
async fn collect_named(client: &kube::Client, resource: &Resource, error: &kube::Error) -> Option<Value> {
    let is_forbidden = matches!(error, kube::Error::Api(status) if status.code == 403);
    match is_forbidden && !resource.namespaced {
        true => named_objects::collect_objects(client, resource, "application/json")
            .await
            .ok()?,
        false => None,
    }
}

impl Printed {
    fn add(&mut self, object: Value) {
        self.objects += 1;
        let view = ObjectView::new(&object);
        let namespace = view.read_text("/metadata/namespace");
        let names = list_credentials(&object);
        self.credentials
            .extend(names.into_iter().map(|name| (namespace.to_owned(), name)));
        print_object(&object);
    }
}

fn print_object(object: &Value) {
    let text = kustomize::to_yaml(&make_portable(object));
    output::print_written(|out| {
        out.write_all(b"---\n")?;
        out.write_all(text.as_bytes())
    });
}

async fn print_credentials(client: &kube::Client, printed: &mut Printed) {
    for (namespace, name) in std::mem::take(&mut printed.credentials) {
        let path = format!(
            "/api/v1/namespaces/{}/secrets/{}",
            resources::encode_segment(&namespace),
            resources::encode_segment(&name)
        );
        match read_object(client, &path).await {
            Ok(secret) => print_object(&secret),
            Err(kube::Error::Api(status)) if status.code == 404 => output::print_note(format!(
                "Secret {}/{} is named and not there",
                visible_line(&namespace),
                visible_line(&name)
            )),
            Err(error) => printed.refused.push(Failure::from(error)),
        }
    }
}

async fn read_object(client: &kube::Client, path: &str) -> Result<Value, kube::Error> {
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Returns the named kinds; without names, all served kinds of Tenure's.
fn list_kinds<'s>(asked: &Targets, served: &'s [Resource]) -> Result<Vec<&'s Resource>, Failure> {
    let Targets::Kinds(kinds) = asked else {
        // Kinds of generated objects are left out, because an exported generator makes the objects again.
        let ours = OURS
            .iter()
            .filter_map(|kind| resources::find_resource(served, kind).ok());
        return Ok(ours.filter(|resource| is_exported(resource)).collect());
    };
    let mut found: Vec<&Resource> = Vec::new();
    for kind in kinds {
        if SOURCES.contains(&kind.as_str()) {
            let of_sources = |resource: &&Resource| is_exported(resource) && resource.group.starts_with("source.");
            found.extend(served.iter().filter(of_sources));
        } else {
            found.push(find_exported(served, kind)?);
        }
    }
    Ok(found)
}

fn is_exported(resource: &Resource) -> bool {
    let named = (resource.group.as_str(), resource.kind.as_str());
    RECONCILED.contains(&named)
        || NEVER_SUSPENDED.contains(&named)
        || EVENT_DRIVEN.contains(&named)
        || named == ("cozystack.io", "PackageValues")
        || named == ("capsule.clastix.io", "Tenant")
}

fn find_exported<'s>(served: &'s [Resource], kind: &str) -> Result<&'s Resource, Failure> {
    let resource = resources::find_resource(served, kind)?;
    if is_exported(resource) {
        return Ok(resource);
    }
    Err(Failure::usage(format!(
        "nothing reconciles {}, and only what is reconciled is exported",
        resource.full_name()
    ))
    .hint(
        "tenure get -o yaml prints any object as it is; --with-credentials adds the Secrets that exported objects name",
    ))
}
