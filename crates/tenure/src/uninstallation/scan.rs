//! Scans all objects of a cluster, of every kind, and keeps the metadata of those that an uninstallation could delete.

use std::collections::BTreeSet;

use tenure_api::ObjectView;
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE, TENANT_LABEL};
use tenure_cluster::discovery::{Discovery, KindLookup};
use tenure_planner::uninstallation::{BOUNDING_KINDS, ObservedObject};

use super::Uninstallation;
use super::observe::see_item;
use crate::failure::Failure;
use crate::resources::{self, Resource};

/// The API group of metrics. Their objects are listed by themselves.
const MEASUREMENTS: &str = "metrics.k8s.io";
/// A kind with many objects that expire by themselves.
const EVENT: &str = "Event";
/// The kind of definitions.
const DEFINITION: &str = "CustomResourceDefinition";
/// The label of APIServices that the API server keeps for its own groups.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The media type for lists of metadata.
const ONLY_METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The metadata of the objects that an uninstallation could delete, by the reason.
#[derive(Default)]
pub(super) struct Scan {
    /// Objects of kinds that the installation defines.
    pub(super) custom: Vec<ObservedObject>,
    /// The names of CustomResourceDefinitions.
    pub(super) definitions: Vec<String>,
    /// The APIServices that the API server keeps for groups of these definitions.
    pub(super) group_services: Vec<ObservedObject>,
    /// The objects with an owner.
    pub(super) owned: Vec<ObservedObject>,
    /// The objects that Tenure wrote to bound the namespaces of Tenants.
    pub(super) bounds: Vec<ObservedObject>,
    /// The objects in the platform namespace.
    pub(super) inside: Vec<ObservedObject>,
}

impl Uninstallation {
    /// Scans all objects. Fails if a part of the cluster is unreadable.
    pub(super) async fn scan(&self, installed: &[ObservedObject]) -> Result<Scan, Failure> {
        let discovery = resources::discover_resources(&self.administrator).await?;
        if let Some(group) = discovery.stale_groups().find(|group| *group != MEASUREMENTS) {
            return Err(Failure::environment(format!(
                "the API server doesn't know the kinds of {group}, so the objects to delete are unknown, and nothing was deleted"
            ))
            .hint("kubectl get apiservices says which one doesn't answer"));
        }
        let defined = list_defined(installed);
        check_served(&discovery, installed)?;
        let mut scan = Scan::default();
        for resource in discovery.list_preferred().map(Resource::from) {
            if resource.group == MEASUREMENTS || resource.kind == EVENT {
                continue;
            }
            self.scan_kind(&resource, &defined, &mut scan).await?;
        }
        Ok(scan)
    }

    async fn scan_kind(
        &self,
        resource: &Resource,
        defined: &BTreeSet<(String, String)>,
        scan: &mut Scan,
    ) -> Result<(), Failure> {
        let path = resource.path(None);
        let api = resource.api();
        let mut seen: Vec<ObservedObject> = Vec::new();
        let is_defined = defined.contains(&(resource.group.clone(), resource.kind.clone()));
        let is_kept = |seen: &ObservedObject| {
            let object = ObjectView::new(&seen.object);
            let is_definition = resource.kind == DEFINITION;
            is_defined
                || is_definition
                || is_inside(object)
                || has_owner(object)
                || is_bound(resource, object)
                || is_group_service(object)
        };
        self.visit_pages((&path, &[]), ONLY_METADATA, |page| {
            let Some(page) = page else {
                seen.clear();
                return;
            };
            let items = ObjectView::new(page).list("/items").iter();
            let items = items.map(|item| see_item(&path, item, (&api.api_version, &resource.kind)));
            seen.extend(items.filter(is_kept));
        })
        .await?;
        for seen in seen {
            let object = ObjectView::new(&seen.object);
            let (owned, bound, inside) = (has_owner(object), is_bound(resource, object), is_inside(object));
            if resource.kind == DEFINITION {
                scan.definitions.push(object.read_text("/metadata/name").to_owned());
            }
            for (list, is_in) in [
                (&mut scan.custom, is_defined),
                (&mut scan.group_services, is_group_service(object)),
                (&mut scan.owned, owned),
                (&mut scan.bounds, bound),
                (&mut scan.inside, inside),
            ] {
                if is_in {
                    list.push(seen.clone());
                }
            }
        }
        Ok(())
    }
}

/// Whether the API server keeps this APIService for a group, and deletes it by itself.
fn is_group_service(object: ObjectView<'_>) -> bool {
    object.read_text("/kind") == "APIService" && object.find_label(AUTOMANAGED) == Some("true")
}

fn is_inside(object: ObjectView<'_>) -> bool {
    object.read_text("/metadata/namespace") == PLATFORM_NAMESPACE
}

fn has_owner(object: ObjectView<'_>) -> bool {
    !object.list("/metadata/ownerReferences").is_empty()
}

/// Whether Tenure wrote an object to bound a namespace of a Tenant.
fn is_bound(resource: &Resource, object: ObjectView<'_>) -> bool {
    let is_kind = |(group, kind): &(&str, &str)| resource.group == *group && resource.kind == *kind;
    BOUNDING_KINDS.iter().any(is_kind)
        && object.find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE)
        && object.find_label(TENANT_LABEL).is_some()
}

/// Returns the groups and kinds that the installation defines.
fn list_defined(installed: &[ObservedObject]) -> BTreeSet<(String, String)> {
    let definitions = installed.iter().filter_map(read_definition);
    definitions
        .map(|(group, kind)| (group.to_owned(), kind.to_owned()))
        .collect()
}

fn read_definition(seen: &ObservedObject) -> Option<(&str, &str)> {
    let object = ObjectView::new(&seen.object);
    let is_there = object.read_text("/kind") == DEFINITION && !object.is_being_deleted();
    is_there.then(|| (object.read_text("/spec/group"), object.read_text("/spec/names/kind")))
}

/// Checks that defined kinds are served, because an unserved kind may still have objects.
fn check_served(discovery: &Discovery, installed: &[ObservedObject]) -> Result<(), Failure> {
    let unserved = installed
        .iter()
        .filter_map(read_definition)
        .find(|(group, kind)| !matches!(discovery.find(group, None, kind), KindLookup::Served(_)));
    match unserved {
        None => Ok(()),
        Some((group, kind)) => Err(Failure::environment(format!(
            "kind {kind} of {group} is defined, but isn't served, so its objects are unknown, and nothing was deleted"
        ))
        .hint("a new definition is served in a moment; otherwise let it serve a version, and try again")),
    }
}
