//! `tenure get`: the objects and their state, in the tables of the API server with columns of their own for reconciled objects. An unreadable object never counts as
//! missing.

use std::process::ExitCode;

use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use jiff::Timestamp;
use serde_json::Value;
use tenure_inspection::object_table::{GROUPS, needs_objects};

use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::kind_lists::OURS;
use crate::object_watch::read_request;
use crate::resources::{self, Resource};
use crate::targets::Targets;
use crate::{named_objects, output};

mod describe;
mod form;
mod tables;
mod watch;

use form::Form;
use tables::{Found, Tables};

/// The word for all kinds of Tenure and Flux in a namespace.
const ALL: &str = "all";
/// The media types of a request for objects; for a table, or for the object if the server has no table.
const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Show objects and their state: by default Tenants, Surfaces, sources, Kustomizations, Receivers, Providers and Alerts.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Kinds (`ks`, `ks,gitrepo`, `deployments.apps`), `all` for every kind of Tenure and Flux in the namespace, or objects (`ks web`, `ks web shop`, `ks/web
    /// gitrepo/web`) [default: the kinds above].
    #[arg(value_name = "KIND|KIND/NAME", add = ArgValueCompleter::new(super::completion::complete_target))]
    targets: Vec<String>,
    /// More columns (wide), the objects as data (json, yaml, name), or columns and text that you describe: jsonpath=TEMPLATE, jsonpath-as-json=TEMPLATE,
    /// jsonpath-file=FILE, custom-columns=HEADER:PATH,…, custom-columns-file=FILE, as with kubectl.
    #[arg(short, long, value_name = "FORMAT", value_parser = Form::parse, add = ArgValueCandidates::new(list_formats))]
    output: Option<Form>,
    /// Select objects by labels, as with kubectl: `app=web,tier!=cache`. Not for objects that are named.
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Watch the objects, and print each change: as a line, or with an output format for programs as an object.
    #[arg(short, long)]
    watch: bool,
    /// Leave out the headers.
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

fn list_formats() -> Vec<CompletionCandidate> {
    form::FORMS.iter().map(CompletionCandidate::new).collect()
}

/// A collection, or one object of it.
struct Place<'a> {
    resource: &'a Resource,
    name: Option<&'a str>,
}

impl Get {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let asked = Targets::read(&self.targets)?;
        let is_named = matches!(asked, Targets::Objects(_));
        if self.selector.is_some() && is_named {
            return Err(
                Failure::usage("-l selects objects, but these have names already").hint("leave out the names, or -l")
            );
        }
        let client = self.connect.client().await?;
        let served = resources::list_served(&client).await?;
        let places = list_places(&asked, &served)?;
        let namespace = self.scope.namespace(&client);
        if is_named && namespace.is_none() && places.iter().any(|place| place.resource.namespaced) {
            return Err(Failure::usage(
                "an object lives in one namespace: name it with -n instead of -A",
            ));
        }
        if self.watch {
            return self.follow(&client, &places, namespace.as_deref()).await;
        }
        let data = self.data_form();
        // For one argument, the error is the result. For several, the others are still shown.
        let alone = places.len() == 1;
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        for place in &places {
            match self.ask(&client, place, namespace.as_deref(), data.is_some()).await {
                Ok(answer) => found.push((place, answer)),
                Err(refusal) if alone => return Err(refusal.failure),
                Err(refusal) => refused.push(refusal),
            }
        }
        match data {
            Some(form) => {
                let objects = found.iter().map(|(place, answer)| list_objects(place.resource, answer));
                form.print(
                    &objects.flatten().collect::<Vec<_>>(),
                    is_named && alone,
                    !self.no_headers,
                )?;
            }
            None => {
                let shown = self.print_tables(found, namespace.as_deref(), is_named && alone);
                if shown == 0 && refused.is_empty() && !is_named {
                    self.note_nothing(&places, namespace.as_deref());
                }
            }
        }
        // If the command chose the kinds, unreadable kinds are left out and noted.
        let is_failed = refused.len() == places.len() || !is_set_of_kinds(&asked);
        print_refusals(&refused, namespace.as_deref(), is_failed);
        match refused.into_iter().next() {
            Some(first) if is_failed => Ok(first.failure.exit_code()),
            _ => Ok(ExitCode::SUCCESS),
        }
    }

    /// Returns the output format for programs, if the user wants one.
    fn data_form(&self) -> Option<&Form> {
        self.output.as_ref().filter(|form| **form != Form::Wide)
    }

    /// Reads a collection or an object: as a table for people, as objects for programs. A described object is read in both forms.
    async fn ask(
        &self,
        client: &kube::Client,
        place: &Place<'_>,
        namespace: Option<&str>,
        is_data: bool,
    ) -> Result<Value, UnreadablePlace> {
        let accept = if is_data { JSON } else { TABLE };
        let path = self.path(place, namespace, is_data);
        let unreadable = |failure| UnreadablePlace {
            failure,
            forbidden: None,
        };
        let answer = client
            .request::<Value>(read_request(&path, accept).map_err(unreadable)?)
            .await;
        // A user who may not list a cluster-scoped kind may have some objects by name, as owners have their Tenants.
        let is_refused = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403);
        let is_by_name = place.name.is_none() && !place.resource.namespaced && self.selector.is_none();
        if is_refused
            && is_by_name
            && let Some(named) = named_objects::collect_objects(client, place.resource, accept)
                .await
                .map_err(unreadable)?
        {
            return Ok(named);
        }
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        Err(UnreadablePlace {
            forbidden: (is_refused && place.name.is_none())
                .then(|| (place.resource.plural.clone(), place.resource.namespaced)),
            failure: match place.name {
                None => resources::explain_error(error, place.resource, namespace),
                Some(name) => resources::explain_read(client, place.resource, (namespace, name), error).await,
            },
        })
    }

    /// Prints tables, or the description of a single object. Returns the number of rows.
    fn print_tables(&self, found: Vec<(&Place<'_>, Value)>, namespace: Option<&str>, is_single: bool) -> usize {
        let tables = Tables {
            is_wide: self.output == Some(Form::Wide),
            with_headers: !self.no_headers,
            // Without titles, names say their kind.
            with_kinds: self.no_headers && has_several_kinds(&found),
            namespace,
            now: Timestamp::now(),
        };
        let found = tables::group_objects(found.into_iter().map(|(place, answer)| Found {
            resource: place.resource,
            name: place.name.filter(|_| is_single && !self.no_headers && !tables.is_wide),
            answer,
        }));
        tables.print(&found)
    }

    fn note_nothing(&self, places: &[Place<'_>], namespace: Option<&str>) {
        let selected = self
            .selector
            .as_ref()
            .map_or_else(String::new, |labels| format!(" with labels {labels}"));
        let is_in_namespaces = places.iter().any(|place| place.resource.namespaced);
        output::print_note(match namespace {
            _ if !is_in_namespaces => format!("nothing found{selected}"),
            Some(namespace) => format!("nothing found in namespace {namespace}{selected} (-A looks in all)"),
            None => format!("nothing found in any namespace{selected}"),
        });
    }

    fn path(&self, place: &Place<'_>, namespace: Option<&str>, is_data: bool) -> String {
        let mut path = place.resource.path(namespace);
        if let Some(name) = place.name {
            path = format!("{path}/{}", resources::encode_segment(name));
        }
        let mut query = Vec::new();
        if let (None, Some(selector)) = (place.name, &self.selector) {
            query.push(format!("labelSelector={}", resources::encode_segment(selector)));
        }
        // Columns of revisions need the object, and so does a description.
        let resource = place.resource;
        if !is_data && (place.name.is_some() || needs_objects(&resource.group, &resource.kind)) {
            query.push("includeObject=Object".to_owned());
        }
        match query.is_empty() {
            true => path,
            false => format!("{path}?{}", query.join("&")),
        }
    }
}

fn has_several_kinds(found: &[(&Place<'_>, Value)]) -> bool {
    let first = found.first().map(|(place, _)| place.resource);
    found.iter().any(|(place, _)| Some(place.resource) != first)
}

/// Whether the command chooses the kinds, and not the user.
fn is_set_of_kinds(asked: &Targets) -> bool {
    *asked == Targets::Nothing || is_all(asked)
}

fn is_all(asked: &Targets) -> bool {
    matches!(asked, Targets::Kinds(kinds) if *kinds == [ALL])
}

fn list_places<'a>(asked: &'a Targets, served: &'a [Resource]) -> Result<Vec<Place<'a>>, Failure> {
    let place = |kind: &str, name| {
        Ok(Place {
            resource: resources::find_resource(served, kind)?,
            name,
        })
    };
    let places: Vec<Place<'a>> = match asked {
        Targets::Nothing => OURS.iter().filter_map(|kind| place(kind, None).ok()).collect(),
        Targets::Kinds(_) if is_all(asked) => {
            let resources = list_all_kinds(served).into_iter();
            resources.map(|resource| Place { resource, name: None }).collect()
        }
        Targets::Kinds(kinds) => kinds
            .iter()
            .map(|kind| place(kind, None))
            .collect::<Result<_, Failure>>()?,
        Targets::Objects(objects) => objects
            .iter()
            .map(|(kind, name)| place(kind, Some(name.as_str())))
            .collect::<Result<_, Failure>>()?,
    };
    if places.is_empty() {
        return Err(Failure::negative("the cluster serves none of Tenure's kinds").hint("is Tenure installed there?"));
    }
    Ok(places)
}

/// Returns the kinds of Tenure and Flux with objects in namespaces: first the kinds that `tenure get` shows, in their order.
fn list_all_kinds(served: &[Resource]) -> Vec<&Resource> {
    let is_ours = |resource: &&Resource| GROUPS.iter().any(|group| resource.group.ends_with(group));
    let mut kinds: Vec<&Resource> = served
        .iter()
        .filter(|resource| resource.namespaced)
        .filter(is_ours)
        .collect();
    let position = |resource: &Resource| OURS.iter().position(|kind| *kind == resource.full_name());
    kinds.sort_by_cached_key(|resource| (position(resource).unwrap_or(OURS.len()), resource.full_name()));
    kinds
}

/// Returns the objects of an answer: of a list, or the object itself.
fn list_objects(resource: &Resource, answer: &Value) -> Vec<Value> {
    match answer.get("items").and_then(Value::as_array) {
        // Items of a list lack their kind.
        Some(items) => items.iter().cloned().map(|item| add_type(item, resource)).collect(),
        None => vec![answer.clone()],
    }
}

/// Returns an item of a list as an object with its kind.
pub(super) fn add_type(mut item: Value, resource: &Resource) -> Value {
    if let Some(object) = item.as_object_mut() {
        let api = resource.api();
        object.entry("apiVersion").or_insert(Value::from(api.api_version));
        object.entry("kind").or_insert(Value::from(api.kind));
    }
    item
}

/// The failure to read a collection or an object.
struct UnreadablePlace {
    failure: Failure,
    /// The plural of a kind that the user may not list, and whether the kind has namespaces.
    forbidden: Option<(String, bool)>,
}

/// Prints the refusals. One line has all kinds that the user may not list.
fn print_refusals(refused: &[UnreadablePlace], namespace: Option<&str>, is_failed: bool) {
    let forbidden: Vec<&(String, bool)> = refused
        .iter()
        .filter_map(|refusal| refusal.forbidden.as_ref())
        .collect();
    let grouped = forbidden.len() > 1 || (forbidden.len() == 1 && !is_failed);
    let others = refused.iter().filter(|refusal| !grouped || refusal.forbidden.is_none());
    others.for_each(|refusal| output::failure(&refusal.failure));
    if !grouped {
        return;
    }
    let (message, hint) = describe_forbidden(&forbidden, namespace);
    match is_failed {
        true => output::failure(&Failure::environment(message).hint(hint)),
        false => output::print_note(format!("{message} ({hint})")),
    }
}

/// Describes the kinds that the user may not list, and returns the hint. A kind without namespaces is named without one.
fn describe_forbidden(forbidden: &[&(String, bool)], namespace: Option<&str>) -> (String, &'static str) {
    let list = |with_namespaces: bool| {
        let kinds = forbidden
            .iter()
            .filter(|(_, namespaced)| *namespaced == with_namespaces);
        let names: Vec<&str> = kinds.map(|(plural, _)| plural.as_str()).collect();
        names.join(", ")
    };
    let (in_cluster, in_namespaces) = (list(false), list(true));
    if in_namespaces.is_empty() {
        let message = format!("you may not list {in_cluster}");
        return (message, "ask an administrator for this right");
    }
    let (place, hint) = match namespace {
        Some(namespace) => (
            format!("in namespace {namespace}"),
            "ask an administrator for this right, or name another namespace with -n",
        ),
        None => (
            "in all namespaces".to_owned(),
            "-n NAMESPACE asks for one namespace, which may be allowed",
        ),
    };
    let message = match in_cluster.is_empty() {
        true => format!("you may not list {in_namespaces} {place}"),
        false => format!("you may not list {in_cluster}, and not {in_namespaces} {place}"),
    };
    (message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_without_namespaces_is_refused_without_one() {
        let kind = |plural: &str, namespaced| (plural.to_owned(), namespaced);
        let (tenants, surfaces) = (kind("tenants", false), kind("surfaces", true));
        let describe_all = |forbidden: &[&(String, bool)]| describe_forbidden(forbidden, Some("team-a")).0;
        assert_eq!(describe_all(&[&tenants]), "you may not list tenants");
        assert_eq!(
            describe_all(&[&surfaces]),
            "you may not list surfaces in namespace team-a"
        );
        assert_eq!(
            describe_all(&[&tenants, &surfaces]),
            "you may not list tenants, and not surfaces in namespace team-a"
        );
    }

    #[test]
    fn all_means_kinds_of_tenure_and_flux() {
        let mut served = vec![
            Resource::from_names("apps", "deployments", "Deployment"),
            Resource::from_names("helm.toolkit.fluxcd.io", "helmreleases", "HelmRelease"),
            Resource::from_names("kustomize.toolkit.fluxcd.io", "kustomizations", "Kustomization"),
            Resource::from_names("tenure.dev", "surfaces", "Surface"),
        ];
        let mut tenants = Resource::from_names("capsule.clastix.io", "tenants", "Tenant");
        tenants.namespaced = false;
        served.push(tenants);
        let kinds: Vec<&str> = list_all_kinds(&served)
            .into_iter()
            .map(|kind| kind.plural.as_str())
            .collect();
        assert_eq!(kinds, ["surfaces", "kustomizations", "helmreleases"]);
        let asked = Targets::Kinds(vec!["all".to_owned()]);
        assert!(is_set_of_kinds(&asked) && list_places(&asked, &served).is_ok_and(|places| places.len() == 3));
    }
}
