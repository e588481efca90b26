//! `tenure get`: the objects and their state, in the tables of the API server. An unreadable object never counts as missing.

use std::process::ExitCode;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::Value;
use tenure_api::ObjectView;

use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::kind_lists::OURS;
use crate::output::{self, Format};
use crate::resources::{self, Resource};
use crate::targets::Asked;
use crate::text_table::TextTable;

mod describe;
pub(super) mod named;
mod server_table;
mod watch;

/// Show objects and their state: by default Tenants, Surfaces, sources, Kustomizations, Receivers, Providers and Alerts.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Kinds (`ks`, `ks,gitrepo`, `deployments.apps`), or objects (`ks web`, `ks/web`) [default: the kinds above].
    #[arg(value_name = "KIND|KIND/NAME", add = ArgValueCompleter::new(super::completion::complete_target))]
    targets: Vec<String>,
    /// More columns, or the objects as data for programs.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Form>,
    /// Select objects by labels, as with kubectl: `app=web,tier!=cache`. Not for objects that are named.
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Watch one kind, and print each change as a line. Not with an output for programs.
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

/// Output formats of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// A table with all columns, without cut texts.
    Wide,
    /// The object as JSON.
    Json,
    /// The object as YAML.
    Yaml,
    /// The names as `resource/name`, one per line.
    Name,
}

impl Form {
    /// Returns the format for programs, if this is one.
    fn for_programs(self) -> Option<Format> {
        match self {
            Self::Wide => None,
            Self::Json => Some(Format::Json),
            Self::Yaml => Some(Format::Yaml),
            Self::Name => Some(Format::Name),
        }
    }
}

/// A collection, or one object of it.
struct Place<'a> {
    resource: &'a Resource,
    name: Option<&'a str>,
}

impl Get {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let asked = Asked::read(&self.targets)?;
        if self.selector.is_some() && matches!(asked, Asked::Objects(_)) {
            return Err(
                Failure::usage("-l selects objects, but these have names already").hint("leave out the names, or -l")
            );
        }
        let client = self.connect.client().await?;
        let served = resources::served(&client).await?;
        let places = self.places(&asked, &served)?;
        let namespace = self.scope.namespace(&client);
        if matches!(asked, Asked::Objects(_)) && namespace.is_none() {
            return Err(Failure::usage(
                "an object lives in one namespace: name it with -n instead of -A",
            ));
        }
        let format = self.output.and_then(Form::for_programs);
        if self.watch {
            return match (places.as_slice(), format) {
                ([place], None) => self.follow(&client, place, namespace.as_deref()).await,
                ([_], Some(_)) => Err(Failure::usage("-w shows a table: leave out -o, or say -o wide")),
                _ => Err(Failure::usage("-w follows one kind").hint("such as tenure get ks -w")),
            };
        }
        // For one argument, the error is the result. For several, the others are still shown.
        let alone = places.len() == 1;
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        for place in &places {
            match self.ask(&client, place, namespace.as_deref(), format).await {
                Ok(answer) => found.push((place, answer)),
                Err(refusal) if alone => return Err(refusal.failure),
                Err(refusal) => refused.push(refusal),
            }
        }
        match format {
            Some(format) => print_objects(&found, format, matches!(asked, Asked::Objects(_)) && alone)?,
            None => self.print_tables(&found, namespace.as_deref(), &asked, refused.is_empty()),
        }
        let is_failed = found.is_empty() || asked != Asked::Nothing;
        print_refusals(&refused, namespace.as_deref(), is_failed);
        match refused.into_iter().next() {
            // Unreadable kinds of the default set are left out and noted.
            Some(first) if is_failed => Ok(first.failure.exit_code()),
            _ => Ok(ExitCode::SUCCESS),
        }
    }

    fn places<'a>(&self, asked: &'a Asked, served: &'a [Resource]) -> Result<Vec<Place<'a>>, Failure> {
        let place = |kind: &str, name| {
            Ok(Place {
                resource: resources::find(served, kind)?,
                name,
            })
        };
        let places: Vec<Place<'a>> = match asked {
            Asked::Nothing => OURS.iter().filter_map(|kind| place(kind, None).ok()).collect(),
            Asked::Kinds(kinds) => kinds
                .iter()
                .map(|kind| place(kind, None))
                .collect::<Result<_, Failure>>()?,
            Asked::Objects(objects) => objects
                .iter()
                .map(|(kind, name)| place(kind, Some(name.as_str())))
                .collect::<Result<_, Failure>>()?,
        };
        if places.is_empty() {
            return Err(
                Failure::negative("the cluster serves none of Tenure's kinds").hint("is Tenure installed there?")
            );
        }
        Ok(places)
    }

    /// Reads a collection or an object: as a table for people, as objects for programs. A described object is read in both forms.
    async fn ask(
        &self,
        client: &kube::Client,
        place: &Place<'_>,
        namespace: Option<&str>,
        format: Option<Format>,
    ) -> Result<Value, Refusal> {
        let accept = if format.is_some() {
            "application/json"
        } else {
            server_table::ACCEPT
        };
        let mut path = self.path(place, namespace);
        if format.is_none() && place.name.is_some() {
            path.push_str("?includeObject=Object");
        }
        let unreadable = |failure| Refusal {
            failure,
            forbidden: None,
        };
        let answer = client
            .request::<Value>(request(&path, accept).map_err(unreadable)?)
            .await;
        // A user who may not list a cluster-scoped kind may have some objects by name, as owners have their Tenants.
        let is_refused = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403);
        let is_by_name = place.name.is_none() && !place.resource.namespaced && self.selector.is_none();
        if is_refused
            && is_by_name
            && let Some(named) = named::collect(client, place.resource, accept)
                .await
                .map_err(unreadable)?
        {
            return Ok(named);
        }
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        Err(Refusal {
            forbidden: (is_refused && place.name.is_none()).then(|| place.resource.plural.clone()),
            failure: match place.name {
                None => resources::explain(error, place.resource, namespace),
                Some(name) => resources::explain_read(client, place.resource, (namespace, name), error).await,
            },
        })
    }

    fn print_tables(&self, found: &[(&Place<'_>, Value)], namespace: Option<&str>, asked: &Asked, whole: bool) {
        let mut shown = 0;
        let wide = self.output == Some(Form::Wide);
        for (place, answer) in found {
            let with_namespace = place.resource.namespaced && namespace.is_none();
            let described = place.name.is_some() && !wide;
            let columns = server_table::SelectedColumns::of(answer, with_namespace, wide || described);
            let rows = columns.rows(answer);
            if rows.is_empty() {
                continue;
            }
            let gap = if shown > 0 { "\n" } else { "" };
            shown += rows.len();
            if described {
                output::print_line(format!(
                    "{gap}{}",
                    describe_rows(place, &columns, &rows, answer).join("\n")
                ));
                continue;
            }
            if found.len() > 1 {
                output::print_line(format!("{gap}{}", output::bold(&place.resource.full_name())));
            }
            let width = if wide { None } else { output::width() };
            let layout = TextTable::fitting(&columns.headers, &rows, width);
            output::print_line(layout.line(&columns.headers));
            for row in &rows {
                output::print_line(layout.line(row));
            }
        }
        if shown == 0 && whole && !matches!(asked, Asked::Objects(_)) {
            let place = namespace.map_or_else(
                || "any namespace".to_owned(),
                |namespace| format!("namespace {namespace}"),
            );
            output::print_note(format!(
                "nothing found in {place}{}",
                if namespace.is_some() { " (-A looks in all)" } else { "" }
            ));
        }
    }

    fn path(&self, place: &Place<'_>, namespace: Option<&str>) -> String {
        let collection = place.resource.path(namespace);
        match (place.name, &self.selector) {
            (Some(name), _) => format!("{collection}/{name}"),
            (None, Some(selector)) => format!("{collection}?labelSelector={}", resources::encode(selector)),
            (None, None) => collection,
        }
    }
}

/// A collection or an object without an answer.
struct Refusal {
    failure: Failure,
    /// The plural of a kind that the user may not list.
    forbidden: Option<String>,
}

/// Prints the refusals. One line has all kinds that the user may not list.
fn print_refusals(refused: &[Refusal], namespace: Option<&str>, is_failed: bool) {
    let forbidden: Vec<&str> = refused
        .iter()
        .filter_map(|refusal| refusal.forbidden.as_deref())
        .collect();
    let grouped = forbidden.len() > 1;
    let others = refused.iter().filter(|refusal| !grouped || refusal.forbidden.is_none());
    others.for_each(|refusal| output::failure(&refusal.failure));
    if !grouped {
        return;
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
    let message = format!("you may not list {} {place}", forbidden.join(", "));
    match is_failed {
        true => output::failure(&Failure::environment(message).hint(hint)),
        false => output::print_note(format!("{message} ({hint})")),
    }
}

fn describe_rows(
    place: &Place<'_>,
    columns: &server_table::SelectedColumns,
    rows: &[Vec<String>],
    answer: &Value,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let object = answer.pointer(&format!("/rows/{index}/object")).unwrap_or(&Value::Null);
        let cells: Vec<(String, String)> = columns.headers.iter().cloned().zip(row.iter().cloned()).collect();
        let namespace = ObjectView::of(object).find_text("/metadata/namespace");
        let subject = format!(
            "{}/{}{}",
            place.resource.full_name(),
            place.name.unwrap_or_default(),
            namespace.map_or_else(String::new, |namespace| format!(" in {namespace}"))
        );
        lines.extend(describe::describe(&subject, &cells, object));
    }
    lines
}

fn print_objects(found: &[(&Place<'_>, Value)], format: Format, single: bool) -> Result<(), Failure> {
    let mut objects = Vec::new();
    for (place, answer) in found {
        match answer.get("items").and_then(Value::as_array) {
            // Items of a list lack their kind.
            Some(items) => objects.extend(items.iter().cloned().map(|item| typed(item, place.resource))),
            None => objects.push(answer.clone()),
        }
    }
    output::objects(&objects, format, single)
}

/// Returns an item of a list as an object with its kind.
pub(super) fn typed(mut item: Value, resource: &Resource) -> Value {
    if let Some(object) = item.as_object_mut() {
        let api = resource.api();
        object.entry("apiVersion").or_insert(Value::from(api.api_version));
        object.entry("kind").or_insert(Value::from(api.kind));
    }
    item
}

fn request(path: &str, accept: &str) -> Result<http::Request<Vec<u8>>, Failure> {
    http::Request::get(path)
        .header(http::header::ACCEPT, accept)
        .body(Vec::new())
        .map_err(|error| Failure::usage(format!("{path:?} is no name: {error}")))
}
