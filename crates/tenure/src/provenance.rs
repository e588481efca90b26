//! The origin of an object: the Kustomization that applied it, the commit, and for each field the file and line. Nothing is stored: the origin is computed from the
//! applied artifact and from the build, which is pure.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use kustomize::BuiltResource;
use serde_json::Value;
use structured_merge::FieldPath;
use tenure_api::metadata::{KUSTOMIZE_CONTROLLER, OWNER_NAME, OWNER_NAMESPACE};
use tenure_api::{ObjectId, ObjectView, Tenant};
use tenure_controllers::RebuiltObjects;
use tenure_inspection::field_origin::locate_field;
use tenure_inspection::object_facts::describe_identity;
use tenure_tenancy::{NamespaceFacts, Placement, Settings, TenancyFacts, TenantFacts};

use crate::artifact_client::ArtifactAccess;
use crate::failure::{Failure, write_chain};

/// The number of namespaces that are read at the same time.
const READ_AT_ONCE: usize = 16;

/// The origin of an object: lines for people, and the object as Git declares it, if it could be built.
#[derive(Default)]
pub(crate) struct Provenance {
    is_applied: bool,
    summary: Vec<String>,
    built: Option<BuiltResource>,
}

/// A Kustomization that applied an object, and its source.
struct ApplyingKustomization {
    kustomization: Value,
    source: Value,
}

impl Provenance {
    /// Finds the origin of an object. Unknown parts are noted in the summary and are no error, since the owner of a field is known without them.
    pub(crate) async fn find(client: &kube::Client, object: &Value, artifacts: &ArtifactAccess) -> Self {
        let view = ObjectView::new(object);
        let (Some(name), Some(namespace)) = (view.find_label(OWNER_NAME), view.find_label(OWNER_NAMESPACE)) else {
            return Self {
                is_applied: false,
                summary: vec!["No Kustomization applied this object.".to_owned()],
                built: None,
            };
        };
        let applied = match find_applied(client, namespace, name).await {
            Ok(applied) => applied,
            Err(why) => {
                return Self {
                    is_applied: true,
                    summary: vec![format!("Applied by Kustomization {namespace}/{name} ({why}).")],
                    built: None,
                };
            }
        };
        let revision = ObjectView::new(&applied.kustomization)
            .read_text("/status/lastAppliedRevision")
            .to_owned();
        let url = ObjectView::new(&applied.source).read_text("/spec/url");
        let placement = read_placement(client, namespace).await;
        let mut summary = vec![
            format!(
                "Applied by Kustomization {namespace}/{name} as {}.",
                describe_identity(
                    placement.as_ref().map_err(String::as_str),
                    &applied.kustomization,
                    namespace
                )
            ),
            format!("From {url} at {revision}."),
        ];
        let built = build_object(artifacts, &applied, object).await;
        if let Err(why) = &built {
            summary.push(format!("File and line are not known here: {why}."));
        }
        Self {
            is_applied: true,
            summary,
            built: built.ok(),
        }
    }

    /// Whether the object's labels name a Kustomization.
    pub(crate) fn is_applied(&self) -> bool {
        self.is_applied
    }

    /// Returns the lines before the table.
    pub(crate) fn summary(&self) -> &[String] {
        &self.summary
    }

    /// Whether a manager's fields come from Git.
    pub(crate) fn is_by(&self, manager: &str) -> bool {
        manager == KUSTOMIZE_CONTROLLER
    }

    /// Returns the file and line of a field.
    pub(crate) fn line_of(&self, path: &FieldPath) -> Option<String> {
        locate_field(self.built.as_ref()?, path).map(|origin| origin.to_string())
    }
}

async fn find_applied(client: &kube::Client, namespace: &str, name: &str) -> Result<ApplyingKustomization, String> {
    let kustomization = get_object(
        client,
        "kustomize.toolkit.fluxcd.io",
        "v1",
        "Kustomization",
        "kustomizations",
        namespace,
        name,
    )
    .await?;
    let source = find_source(client, &kustomization).await?;
    Ok(ApplyingKustomization { kustomization, source })
}

/// Returns the source of a Kustomization.
async fn find_source(client: &kube::Client, kustomization: &Value) -> Result<Value, String> {
    let kustomization = ObjectView::new(kustomization);
    let kind = kustomization.read_text("/spec/sourceRef/kind");
    let plural = match kind {
        "GitRepository" => "gitrepositories",
        "OCIRepository" => "ocirepositories",
        "Bucket" => "buckets",
        "ExternalArtifact" => "externalartifacts",
        _ => return Err(format!("its source is a {kind}")),
    };
    let source_namespace = Some(kustomization.read_text("/spec/sourceRef/namespace"))
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| kustomization.read_text("/metadata/namespace"));
    let source_name = kustomization.read_text("/spec/sourceRef/name");
    get_object(
        client,
        "source.toolkit.fluxcd.io",
        "v1",
        kind,
        plural,
        source_namespace,
        source_name,
    )
    .await
}

/// Returns the objects of a Kustomization as Git defines them, or the reason why they are unknown.
pub(crate) async fn rebuild_object(
    client: &kube::Client,
    kustomization: &Value,
    artifacts: &ArtifactAccess,
) -> Result<RebuiltObjects, String> {
    let source = find_source(client, kustomization).await?;
    artifacts.rebuild(kustomization, &source).await
}

async fn get_object(
    client: &kube::Client,
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Result<Value, String> {
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    match api.get(name).await {
        Ok(object) => serde_json::to_value(object).map_err(|error| error.to_string()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the placement of a namespace. It takes the rights to get the namespace and the Tenant that the namespace names, which owners have.
pub(crate) async fn read_placement(client: &kube::Client, namespace: &str) -> Result<Placement, String> {
    place_beside(client, namespace, None).await
}

/// Returns the placement of a namespace, and whether another namespace belongs to the same tenant.
pub(crate) async fn place_beside(
    client: &kube::Client,
    namespace: &str,
    other: Option<&str>,
) -> Result<Placement, String> {
    let settings = Settings::default();
    if namespace == settings.platform_namespace {
        // The name alone decides the placement of the platform namespace, which few users may read.
        return Ok(TenancyFacts::default().find_placement(namespace));
    }
    let own = match read_namespace(client, namespace).await? {
        NamespaceRead::Found(facts) => facts,
        NamespaceRead::Missing => return Err(format!("there is no namespace {namespace}")),
        NamespaceRead::Forbidden => return Err(format!("you may not get namespace {namespace}")),
    };
    // Only Tenants that the namespace names in its label or ownerReferences can have the namespace.
    let owners = own.tenant_owners.iter().map(|owner| &owner.name);
    let named: BTreeSet<&String> = own.tenant_label.iter().chain(owners).collect();
    let mut tenants = Vec::new();
    for name in named {
        tenants.extend(read_tenant(client, name).await?);
    }
    // The namespace's Kustomizations may apply to every namespace of the same tenant.
    let of_same = tenants.iter().filter(|tenant| tenant.recorded.contains_key(namespace));
    let mut others: BTreeMap<String, Option<(String, String)>> = other
        .filter(|other| *other != namespace)
        .map(|other| (other.to_owned(), None))
        .into_iter()
        .collect();
    for tenant in of_same {
        let recorded = tenant.recorded.iter().filter(|(name, _)| *name != namespace);
        let record = |uid: &String| Some((tenant.name.clone(), uid.clone()));
        others.extend(recorded.map(|(name, uid)| (name.clone(), record(uid))));
    }
    let reads = others.into_iter().map(|(name, recorded)| async move {
        let read = read_namespace(client, &name).await?;
        Ok::<_, String>(match (read, recorded) {
            (NamespaceRead::Found(facts), _) => Some(facts),
            // A user of one namespace may not read its neighbours. The record of the Tenant counts for these.
            (NamespaceRead::Forbidden, Some((tenant, uid))) => Some(NamespaceFacts {
                name,
                uid,
                tenant_label: Some(tenant),
                ..NamespaceFacts::default()
            }),
            // No Tenant of this namespace has recorded the other one, so it belongs to none of them.
            (NamespaceRead::Forbidden, None) | (NamespaceRead::Missing, _) => None,
        })
    });
    let mut reads = futures::stream::iter(reads).buffered(READ_AT_ONCE);
    let mut namespaces = Vec::new();
    while let Some(read) = reads.next().await {
        namespaces.extend(read?);
    }
    drop(reads);
    namespaces.push(own);
    let tenancy = TenancyFacts {
        settings,
        tenants,
        namespaces,
    };
    Ok(tenancy.find_placement(namespace))
}

/// Returns the failure of a command that can't go on without the placement of a namespace.
pub(crate) fn refuse_placement(namespace: &str, why: &str) -> Failure {
    Failure::environment(format!("the tenant of namespace {namespace} is unknown, and decides what may be applied there: {why}"))
        .hint("ask an administrator for the verb get on this namespace, and on tenants.capsule.clastix.io with the name of its Tenant")
}

/// The result of the read of a namespace.
enum NamespaceRead {
    Found(NamespaceFacts),
    Missing,
    Forbidden,
}

async fn read_namespace(client: &kube::Client, name: &str) -> Result<NamespaceRead, String> {
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    match namespaces.get_opt(name).await {
        Ok(Some(namespace)) => Ok(NamespaceRead::Found(NamespaceFacts::from(&namespace.metadata))),
        Ok(None) => Ok(NamespaceRead::Missing),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(NamespaceRead::Forbidden),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => Err(write_chain(&error)),
    }
}

/// Returns a Tenant; `None` if it is missing, or if the cluster has no Tenants.
async fn read_tenant(client: &kube::Client, name: &str) -> Result<Option<TenantFacts>, String> {
    let tenants: Api<Tenant> = Api::all(client.clone());
    match tenants.get_opt(name).await {
        Ok(found) => Ok(found.as_ref().map(TenantFacts::from)),
        Err(kube::Error::Api(status)) if status.code == 403 => Err(format!("you may not get Tenant {name}")),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => Err(write_chain(&error)),
    }
}

/// Returns the file and line where the source of a Kustomization declares an object that the Kustomization applied, or the reason why they are unknown.
pub(crate) async fn locate_declaration(
    artifacts: &ArtifactAccess,
    (kustomization, source): (&Value, &Value),
    id: &ObjectId,
) -> Result<String, String> {
    let built = artifacts.rebuild(kustomization, source).await?;
    let built = built.take_object(id).map_err(|error| error.to_string())?;
    let origin = locate_field(&built, &FieldPath(Vec::new()));
    Ok(origin.map(|origin| origin.to_string()).unwrap_or_default())
}

/// Builds the applied content again, and picks the object.
async fn build_object(
    artifacts: &ArtifactAccess,
    applied: &ApplyingKustomization,
    object: &Value,
) -> Result<BuiltResource, String> {
    let id = ObjectId::from_object(object).map_err(|error| error.to_string())?;
    let built = artifacts.rebuild(&applied.kustomization, &applied.source).await?;
    built.take_object(&id).map_err(|error| error.to_string())
}
