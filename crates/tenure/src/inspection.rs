//! The reads of `tenure tree` and `tenure trace`, with the caller's rights. Of Secrets and ConfigMaps they read only the metadata.

use futures::StreamExt as _;
use http::header::ACCEPT;
use serde_json::Value;
use tenure_api::ObjectId;
use tenure_cluster::discovery::{Discovery, KindLookup as Served};
use tenure_inspection::object_facts::{DescribedState, Findings, MissingFacts, RelatedNamespaces};
use tenure_inspection::tree_lines::describe_state;
use tenure_planner::{Failure as Refusal, Live};

use crate::connect::{Connect, Scope};
use crate::failure::{Failure, write_chain};
use crate::resources::{self, Resource};
use crate::{output, provenance, targets};

/// The number of concurrent reads.
const AT_ONCE: usize = 16;
/// The media type for metadata alone, which every API server supports.
pub(crate) const ONLY_METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The client of one command, with its findings.
pub(crate) struct InspectionClient {
    client: kube::Client,
    discovery: Discovery,
    pub(crate) found: Findings,
}

impl InspectionClient {
    /// Connects, and resolves the object on the command line.
    pub(crate) async fn connect(
        words: &[String],
        connect: &Connect,
        scope: &Scope,
    ) -> Result<(Self, ObjectId), Failure> {
        let (kind, name) = targets::Targets::read_one(words)?;
        let client = connect.client().await?;
        let discovery = resources::discover_resources(&client).await?;
        let served: Vec<Resource> = discovery.list_preferred().map(Resource::from).collect();
        let resource = resources::find_resource(&served, &kind)?;
        let namespace = if resource.namespaced {
            scope
                .namespace(&client)
                .ok_or_else(|| Failure::usage("one object lives in one namespace: name it with -n instead of -A"))?
        } else {
            String::new()
        };
        let id = ObjectId {
            namespace,
            name,
            group: resource.group.clone(),
            kind: resource.kind.clone(),
        };
        let id: ObjectId = id
            .to_string()
            .parse()
            .map_err(|_| Failure::usage(format!("{:?} can't be the name of an object", id.name)))?;
        let mut lookout = Self {
            client,
            discovery,
            found: Findings::default(),
        };
        lookout.read_objects(vec![id.clone()]).await;
        match lookout.found.objects.get(&id) {
            Some(Live::Absent | Live::Unserved) => {
                let failure = Failure::negative(format!("{} does not exist", id.subject()));
                let namespace = Some(id.namespace.as_str()).filter(|namespace| !namespace.is_empty());
                Err(resources::explain_missing(&lookout.client, resource, (namespace, &id.name), failure).await)
            }
            Some(Live::Failed(refusal)) => Err(Failure::environment(refusal.message.clone())),
            _ => Ok((lookout, id)),
        }
    }

    /// Reads objects, several at a time.
    pub(crate) async fn read_objects(&mut self, ids: Vec<ObjectId>) {
        let (client, discovery) = (&self.client, &self.discovery);
        let looks = ids.into_iter().map(|id| async move {
            let live = read_live(client, discovery, &id).await;
            (id, live)
        });
        let looked: Vec<(ObjectId, Live)> = futures::stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        self.found.objects.extend(looked);
    }

    /// Answers one question.
    pub(crate) async fn find(&mut self, sought: MissingFacts) {
        match sought {
            MissingFacts::Object(id) => self.read_objects(vec![id]).await,
            MissingFacts::Placement(neighbours) => {
                let RelatedNamespaces { namespace, other } = &neighbours;
                let other = Some(other.as_str()).filter(|other| !other.is_empty());
                let placement = provenance::place_beside(&self.client, namespace, other).await;
                self.found.placements.insert(neighbours, placement);
            }
        }
    }
}

async fn read_live(client: &kube::Client, discovery: &Discovery, id: &ObjectId) -> Live {
    let resource = match discovery.find(&id.group, None, &id.kind) {
        Served::Served(resource) => resource,
        Served::Unserved => return Live::Unserved,
        Served::Unknown => {
            return Live::Failed(Refusal {
                message: format!("the kinds of group {} are not known at the moment", id.group),
                ..Refusal::default()
            });
        }
    };
    let api_version = resource.api_version();
    let is_content = id.group.is_empty() && ["Secret", "ConfigMap"].contains(&id.kind.as_str());
    let accept = if is_content { ONLY_METADATA } else { "application/json" };
    let path = resources::write_path(&resource, &id.namespace, &id.name);
    let request = match http::Request::get(path).header(ACCEPT, accept).body(Vec::new()) {
        Ok(request) => request,
        Err(error) => {
            return Live::Failed(Refusal {
                message: error.to_string(),
                ..Refusal::default()
            });
        }
    };
    match client.request::<Value>(request).await {
        Ok(mut object) => {
            if let Some(fields) = object.as_object_mut() {
                // A metadata answer has a kind of its own.
                fields.insert("apiVersion".to_owned(), Value::from(api_version));
                fields.insert("kind".to_owned(), Value::from(id.kind.clone()));
            }
            Live::Present(tenure_planner::Object(object))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Live::Absent,
        Err(kube::Error::Api(status)) => Live::Failed(Refusal {
            code: status.code,
            reason: status.reason.as_str().into(),
            message: status.message.clone(),
            ..Refusal::default()
        }),
        Err(error) => Live::Failed(Refusal {
            message: write_chain(&error),
            ..Refusal::default()
        }),
    }
}

/// Describes the state of an object in a few words for people.
pub(crate) fn describe_object_state(state: &DescribedState) -> String {
    let (word, details) = describe_state(state);
    let word = output::paint_tone(word.tone, &word.text);
    match details.as_str() {
        "" => word,
        details => format!("{word}  {details}"),
    }
}

/// Output formats for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// The result as JSON.
    Json,
    /// The result as YAML.
    Yaml,
}

/// Prints data for programs.
pub(crate) fn print_data(data: Result<Value, serde_json::Error>, form: Form) -> Result<(), Failure> {
    let value = data.map_err(|error| Failure::internal(error.to_string()))?;
    match form {
        Form::Json => output::print_json(&value),
        Form::Yaml => output::print_yaml(&value),
    }
}
