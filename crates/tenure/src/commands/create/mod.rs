//! `tenure create`: builds an object from Flux's flags, prints it (`--export`) or applies it as the user, and waits until it is Ready. The objects are built without a
//! cluster. An apply never takes a field from another manager.

mod kustomization;
mod notifications;
pub(crate) mod references;
mod sources;
mod surface;
mod tenant;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use kube::api::{Api, ApiResource, DynamicObject};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tenure_api::reference::LocalObjectReference;
use tenure_api::text::visible_line;

use self::references::parse_label;
use crate::connect::Connect;
use crate::failure::Failure;
use crate::interruption::{self, Ended};
use crate::progress::Progress;
use crate::readiness::{name_goal, read_outcome_of_spec, watch_outcome};
use crate::{api_answers, output, quantity, resources};

/// The field manager of created objects.
const FIELD_MANAGER: &str = "tenure-create";

/// Create a source, a Kustomization, a Surface, a Tenant, a Receiver or an Alert, or change it.
///
/// The command applies the object with your rights, and waits until it is Ready. It leaves fields that another writer has set. With --export it prints the object as
/// YAML, and needs no cluster.
///
/// Exit codes: 0 the object is Ready, or printed. 1 it is applied and not Ready, or another writer has its fields. 2 wrong usage, or the server refused a field. 3 the
/// cluster refused or failed. 130 interrupted.
#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    Source(sources::Source),
    #[command(visible_alias = "ks")]
    Kustomization(Box<kustomization::KustomizationFlags>),
    Surface(Box<surface::SurfaceFlags>),
    Tenant(Box<tenant::TenantFlags>),
    Receiver(Box<notifications::ReceiverFlags>),
    Alert(Box<notifications::AlertFlags>),
}

/// Flags of all kinds.
#[derive(Debug, Args)]
struct Common {
    /// Name of the object.
    name: String,
    /// Print the object as YAML, and write nothing. This needs no cluster.
    #[arg(long)]
    export: bool,
    /// Label of the object, as KEY=VALUE. Can be repeated, and separated by commas.
    #[arg(long = "label", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Time to wait until the object is Ready: seconds, or a duration such as 5m.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = quantity::parse_time)]
    timeout: Duration,
    #[command(flatten)]
    connect: Connect,
}

/// Flags of kinds in namespaces.
#[derive(Debug, Args)]
struct InNamespace {
    /// Namespace of the object [default: the context's namespace, else `default`; with --export none].
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
}

/// An object that the flags describe, with its resource. Its namespace may still be unknown.
#[derive(Debug)]
struct NewObject {
    object: Value,
    resource: ApiResource,
    is_namespaced: bool,
}

impl NewObject {
    /// Writes an object of a kind. Without a place, the kind has no namespaces.
    fn write<K: kube::Resource<DynamicType = ()>>(
        common: &Common,
        place: Option<&InNamespace>,
        spec: &impl Serialize,
    ) -> Result<Self, Failure> {
        let spec = serde_json::to_value(spec).map_err(|error| Failure::internal(error.to_string()))?;
        let mut metadata = Map::from_iter([("name".to_owned(), json!(common.name))]);
        if let Some(namespace) = place.and_then(|place| place.namespace.as_ref()) {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        if !common.labels.is_empty() {
            let labels: Map<String, Value> = common
                .labels
                .iter()
                .map(|(key, value)| (key.clone(), json!(value)))
                .collect();
            metadata.insert("labels".to_owned(), Value::Object(labels));
        }
        Ok(Self {
            object: json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": metadata, "spec": spec}),
            resource: ApiResource::erase::<K>(&()),
            is_namespaced: place.is_some(),
        })
    }
}

impl Create {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let (common, object) = self.kind.write()?;
        if common.export {
            output::print_line("---");
            output::print_yaml(&object.object)?;
            return Ok(ExitCode::SUCCESS);
        }
        let progress = Progress::start();
        match interruption::until_interrupted(apply_new(common, object, &progress)).await? {
            Ended::Done(ended) => ended,
            Ended::Interrupted => {
                progress.warn("interrupted: what was applied stays; tenure get shows it, tenure delete removes it");
                Ok(interruption::exit_code())
            }
        }
    }
}

impl Kind {
    /// Returns the common flags and the object.
    fn write(&self) -> Result<(&Common, NewObject), Failure> {
        Ok(match self {
            Self::Source(source) => match &source.kind {
                sources::Kind::Git(flags) => (&flags.common, flags.write()?),
                sources::Kind::Oci(flags) => (&flags.common, flags.write()?),
                sources::Kind::Bucket(flags) => (&flags.common, flags.write()?),
            },
            Self::Kustomization(flags) => (&flags.common, flags.write()?),
            Self::Surface(flags) => (&flags.common, flags.write()?),
            Self::Tenant(flags) => (&flags.common, flags.write()?),
            Self::Receiver(flags) => (&flags.common, flags.write()?),
            Self::Alert(flags) => (&flags.common, flags.write()?),
        })
    }
}

/// Applies the object as the user, and waits until it is Ready.
async fn apply_new(common: &Common, mut new: NewObject, progress: &Progress) -> Result<ExitCode, Failure> {
    let client = common.connect.client().await?;
    let (kind, name) = (new.resource.kind.clone(), common.name.as_str());
    let namespace = place_object(&mut new, client.default_namespace());
    let (subject, arguments) = match &namespace {
        Some(namespace) => (
            format!("{kind}/{namespace}/{name}"),
            format!("{}/{name} -n {namespace}", new.resource.plural),
        ),
        None => (format!("{kind}/{name}"), format!("{}/{name}", new.resource.plural)),
    };
    progress.print_action(format!("applying {subject}"));
    let path = write_path(&new.resource, namespace.as_deref(), name);
    let path = format!("{path}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict");
    let answer = api_answers::apply_object(&client, &path, &new.object).await;
    let answer = answer.map_err(Failure::environment)?;
    for warning in &answer.warnings {
        progress.warn(visible_line(warning));
    }
    if !answer.is_done() {
        return Err(explain_refusal(&answer, &subject, &arguments));
    }
    let done = if answer.code == 201 { "created" } else { "configured" };
    progress.succeed(format!("{subject} {done}"));
    let api: Api<DynamicObject> = match &namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &new.resource),
        None => Api::all_with(client.clone(), &new.resource),
    };
    let waiting = progress.wait(format!("{subject} {}", name_goal(&kind)));
    let watched = watch_outcome(&api, (name, &subject), &waiting, |object| {
        read_outcome_of_spec(&object.data, object.metadata.generation)
    });
    let outcome = tokio::time::timeout(common.timeout, watched).await;
    let step = waiting.step();
    drop(waiting);
    let hint = format!("tenure get {arguments} shows its state, and tenure delete {arguments} removes it");
    match outcome {
        Err(_) => {
            let last = if step.is_empty() {
                String::new()
            } else {
                format!(" ({step})")
            };
            let waited = common.timeout.as_secs();
            Err(Failure::negative(format!("{subject} is applied, and was not ready in {waited} s{last}")).hint(hint))
        }
        Ok(outcome) => {
            let outcome = outcome?;
            if !outcome.is_ready {
                return Err(
                    Failure::negative(format!("{subject}: {}: {}", outcome.reason, outcome.message)).hint(hint),
                );
            }
            progress.succeed(format!("{subject}: {}", outcome.describe(&kind)));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Gives the object its namespace, and returns it; `None` for kinds without namespaces.
fn place_object(new: &mut NewObject, default: &str) -> Option<String> {
    if !new.is_namespaced {
        return None;
    }
    let metadata = new.object.get_mut("metadata")?.as_object_mut()?;
    let namespace = metadata.entry("namespace").or_insert_with(|| json!(default));
    namespace.as_str().map(str::to_owned)
}

fn write_path(resource: &ApiResource, namespace: Option<&str>, name: &str) -> String {
    let place = namespace
        .map(|namespace| format!("/namespaces/{}", resources::encode_segment(namespace)))
        .unwrap_or_default();
    format!(
        "/apis/{}{place}/{}/{}",
        resource.api_version,
        resource.plural,
        resources::encode_segment(name)
    )
}

/// Explains the server's refusal of an apply.
fn explain_refusal(answer: &api_answers::Answer, subject: &str, arguments: &str) -> Failure {
    if answer.code == 409 {
        return Failure::negative(format!("{subject} is not changed: {}", answer.message)).hint(format!(
            "another writer has these fields, often Git: change them there; tenure who {arguments} shows the owner of each field"
        ));
    }
    let status = kube::core::Status {
        code: answer.code,
        message: format!("{subject}: {}", answer.message),
        ..kube::core::Status::default()
    };
    let failure = Failure::from(kube::Error::Api(Box::new(status)));
    match answer.code {
        404 => Failure::environment(format!("{subject}: {}", answer.message))
            .hint("the namespace is missing, or the cluster doesn't serve the kind: tenure check --pre shows which"),
        _ => failure,
    }
}

/// Refuses an address that is none of a Git repository.
fn check_url(url: &str) -> Result<(), Failure> {
    if ["http://", "https://", "ssh://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
    {
        return Ok(());
    }
    Err(
        Failure::usage(format!("--url {url:?} is no address of a Git repository"))
            .hint("it begins with http://, https:// or ssh://, such as ssh://git@github.com/org/repository"),
    )
}

/// Refers to an object of the same namespace.
fn make_reference(name: Option<&String>) -> Option<LocalObjectReference> {
    name.map(|name| LocalObjectReference { name: name.clone() })
}
