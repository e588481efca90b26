//! Finds the objects of Kustomizations that the user may read: those with their labels, and those in their inventories. It reads only metadata. An unreadable object
//! never counts as missing.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use serde_json::Value;
use tenure_api::metadata::OWNER_NAME;
use tenure_api::text::count_of;
use tenure_api::{ObjectId, ObjectView};
use tenure_cluster::Resource;
use tenure_cluster::discovery::{Discovery, KindLookup};
use tenure_controllers::RebuiltObjects;
use tenure_inspection::ownership::writers::Address;
use tenure_inspection::ownership::{KustomizationName, OwnerState, assess_owner_state, read_inventory, read_owner};

use crate::artifact_client::ArtifactAccess;
use crate::failure::{Failure, write_chain};
use crate::inspection::ONLY_METADATA;
use crate::paged_reads::{self, ReadRefusal};
use crate::{provenance, resources};

/// The number of concurrent requests.
const AT_ONCE: usize = 8;
/// The media type for the metadata of a list.
const LIST_METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The applied objects that the user may read, with the Kustomizations that own or list them.
pub(super) struct ObjectReads {
    discovery: Discovery,
    objects: BTreeMap<ObjectId, Value>,
    owners: BTreeMap<ObjectId, KustomizationName>,
    kustomizations: BTreeMap<KustomizationName, Kustomization>,
    inventories: BTreeMap<ObjectId, BTreeSet<KustomizationName>>,
    built: BTreeMap<KustomizationName, RebuiltObjects>,
    notes: BTreeSet<String>,
    /// The kinds that the user may not list.
    forbidden: BTreeSet<String>,
    /// False if an object that counts could not be read.
    is_complete: bool,
}

/// The result of the read of a Kustomization: found, missing, or not readable.
enum Kustomization {
    There(Value),
    Gone,
    Unseen,
}

/// A read object with its owner by label, the Kustomizations that list it, and the object that Git declares.
pub(super) struct ReadObject<'a> {
    pub(super) id: &'a ObjectId,
    pub(super) object: &'a Value,
    pub(super) owner: &'a KustomizationName,
    pub(super) keeper: OwnerState,
    pub(super) claimants: Vec<KustomizationName>,
    pub(super) declared: Option<&'a Value>,
}

/// The answer to a request; a refusal is reported, and the survey continues.
enum Answer {
    Object(Value),
    Absent,
    Refused(String),
}

impl ObjectReads {
    /// Reads the Kustomizations and applied objects of one namespace, or of all.
    pub(super) async fn make(
        client: &kube::Client,
        namespace: Option<&str>,
        artifacts: &ArtifactAccess,
    ) -> Result<Self, Failure> {
        let mut survey = Self {
            discovery: resources::discover_resources(client).await?,
            objects: BTreeMap::new(),
            owners: BTreeMap::new(),
            kustomizations: BTreeMap::new(),
            inventories: BTreeMap::new(),
            built: BTreeMap::new(),
            notes: BTreeSet::new(),
            forbidden: BTreeSet::new(),
            is_complete: true,
        };
        survey.list_kustomizations(client, namespace).await?;
        survey.list_labelled(client, namespace).await;
        survey.look_at_inventories(client).await;
        survey.look_at_owners(client).await;
        survey.build(client, artifacts).await;
        Ok(survey)
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.owners.len()
    }

    /// Returns notes about unreadable objects, and about the unknown facts that follow.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let forbidden: Vec<&str> = self.forbidden.iter().map(String::as_str).collect();
        let note = match forbidden.as_slice() {
            [] => None,
            kinds => Some(format!(
                "you may not list {}: abandoned objects of these kinds are not found",
                kinds.join(", ")
            )),
        };
        self.notes.iter().cloned().chain(note)
    }

    /// Whether everything was read that the command looks for. Stolen fields need the artifacts, and don't count here.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Iterates over the objects, ordered by name.
    pub(super) fn objects(&self) -> impl Iterator<Item = ReadObject<'_>> {
        self.owners.iter().filter_map(|(id, owner)| {
            let others = self.inventories.get(id).into_iter().flatten();
            let built = self.built.get(owner).and_then(|built| built.find(id));
            Some(ReadObject {
                id,
                object: self.objects.get(id)?,
                owner,
                keeper: match self.kustomizations.get(owner) {
                    Some(Kustomization::There(kustomization)) => assess_owner_state(Some(kustomization), id),
                    Some(Kustomization::Gone) => assess_owner_state(None, id),
                    Some(Kustomization::Unseen) | None => OwnerState::Unseen,
                },
                claimants: others.filter(|other| *other != owner).cloned().collect(),
                declared: built.map(|built| &built.object),
            })
        })
    }

    /// Returns the address of an object for requests.
    pub(super) fn address_of(&self, id: &ObjectId) -> Option<Address> {
        let KindLookup::Served(resource) = self.discovery.find(&id.group, None, &id.kind) else {
            return None;
        };
        Some(Address {
            group: resource.group.clone(),
            resource: resource.plural.clone(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        })
    }

    /// Notes an object that could not be read, so the result is incomplete.
    fn refuse(&mut self, what: &str, why: &str) {
        self.is_complete = false;
        self.notes.insert(format!("{what} could not be read: {why}"));
    }

    fn find_kustomizations(&self) -> KindLookup {
        self.discovery
            .find("kustomize.toolkit.fluxcd.io", None, "Kustomization")
    }

    async fn list_kustomizations(&mut self, client: &kube::Client, namespace: Option<&str>) -> Result<(), Failure> {
        let resource = match self.find_kustomizations() {
            KindLookup::Served(resource) => resource,
            KindLookup::Unserved => {
                return Err(Failure::environment("the cluster serves no Kustomizations")
                    .hint("tenure install makes that so, and tenure up serves them"));
            }
            KindLookup::Unknown => {
                return Err(Failure::environment(
                    "whether the cluster serves Kustomizations is not known at the moment",
                ));
            }
        };
        let listed = list_objects(
            client,
            &resources::write_collection(&resource, namespace),
            "application/json",
            "",
        )
        .await;
        let listed = listed.map_err(|refusal| match refusal {
            ReadRefusal::Forbidden(message) => Failure::environment(message)
                .hint("-n NAMESPACE asks about one namespace; ask an administrator for the right to list Kustomizations there"),
            other => Failure::environment(other.to_string()),
        });
        for kustomization in listed? {
            let Some(name) = name_of(&kustomization) else { continue };
            match read_inventory(&kustomization) {
                Ok(inventory) => {
                    for id in inventory {
                        self.inventories.entry(id).or_default().insert(name.clone());
                    }
                }
                Err(elsewhere) => {
                    self.notes
                        .insert(format!("the objects of Kustomization {name} are {elsewhere}"));
                }
            }
            self.kustomizations.insert(name, Kustomization::There(kustomization));
        }
        Ok(())
    }

    /// Lists the objects with a Kustomization's label, of every kind that can be listed.
    async fn list_labelled(&mut self, client: &kube::Client, namespace: Option<&str>) {
        let kinds: Vec<Resource> = self
            .discovery
            .list_preferred()
            .map(|named| named.resource.clone())
            .filter(|resource| resource.watchable && (namespace.is_none() || resource.namespaced))
            .collect();
        let lists = kinds.into_iter().map(|resource| async move {
            let path = resources::write_collection(&resource, namespace);
            (list_objects(client, &path, LIST_METADATA, OWNER_NAME).await, resource)
        });
        let listed: Vec<_> = futures::stream::iter(lists).buffer_unordered(AT_ONCE).collect().await;
        for (objects, resource) in listed {
            match objects {
                Ok(objects) => objects
                    .into_iter()
                    .for_each(|object| self.store_object(&resource, object)),
                Err(ReadRefusal::Forbidden(_)) => {
                    self.is_complete = false;
                    self.forbidden.insert(resource.plural);
                }
                Err(refusal) => self.refuse(&resource.plural, &refusal.to_string()),
            }
        }
    }

    fn store_object(&mut self, resource: &Resource, object: Value) {
        let view = ObjectView::new(&object);
        let id = ObjectId {
            namespace: view.read_text("/metadata/namespace").to_owned(),
            name: view.read_text("/metadata/name").to_owned(),
            group: resource.group.clone(),
            kind: resource.kind.clone(),
        };
        let inventory = self.inventories.get(&id).and_then(|names| names.first().cloned());
        if let Some(owner) = read_owner(&object).or(inventory) {
            self.owners.insert(id.clone(), owner);
            self.objects.insert(id, object);
        }
    }

    /// Reads objects in inventories that no list showed: in another namespace, or without the label.
    async fn look_at_inventories(&mut self, client: &kube::Client) {
        let missing = self.inventories.keys().filter(|id| !self.objects.contains_key(*id));
        let (mut places, mut unknown): (Vec<(ObjectId, Resource)>, BTreeSet<String>) = Default::default();
        for id in missing {
            match self.discovery.find(&id.group, None, &id.kind) {
                KindLookup::Served(resource) => places.push((id.clone(), resource.clone())),
                KindLookup::Unserved => {}
                KindLookup::Unknown => {
                    unknown.insert(id.group.clone());
                }
            }
        }
        for group in unknown {
            self.refuse(
                &format!("all objects of {group}"),
                "the kinds of the group are not known at the moment",
            );
        }
        let looks = places.into_iter().map(|(id, resource)| async move {
            let path = resources::write_path(&resource, &id.namespace, &id.name);
            (get_object(client, &path, ONLY_METADATA).await, id, resource)
        });
        let looked: Vec<_> = futures::stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        for (answer, id, resource) in looked {
            match answer {
                Answer::Object(object) => self.store_object(&resource, object),
                Answer::Absent => {}
                Answer::Refused(why) => self.refuse(&id.subject(), &why),
            }
        }
    }

    /// Reads the Kustomizations of other namespaces that labels name.
    async fn look_at_owners(&mut self, client: &kube::Client) {
        let KindLookup::Served(resource) = self.find_kustomizations() else {
            return;
        };
        let unknown: BTreeSet<&KustomizationName> = self
            .owners
            .values()
            .filter(|owner| !self.kustomizations.contains_key(*owner))
            .collect();
        let paths: Vec<(KustomizationName, String)> = unknown
            .into_iter()
            .map(|owner| {
                (
                    owner.clone(),
                    resources::write_path(&resource, &owner.namespace, &owner.name),
                )
            })
            .collect();
        let looks = paths
            .into_iter()
            .map(|(owner, path)| async move { (owner, get_object(client, &path, "application/json").await) });
        let looked: Vec<_> = futures::stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        for (owner, answer) in looked {
            let found = match answer {
                Answer::Object(object) => Kustomization::There(object),
                Answer::Absent => Kustomization::Gone,
                Answer::Refused(why) => {
                    self.refuse(&format!("Kustomization {owner}"), &why);
                    Kustomization::Unseen
                }
            };
            self.kustomizations.insert(owner, found);
        }
    }

    /// Builds the objects that each Kustomization declares in Git, if the artifacts are available.
    async fn build(&mut self, client: &kube::Client, artifacts: &ArtifactAccess) {
        let owners: BTreeSet<&KustomizationName> = self.owners.values().collect();
        let mut unknown = None;
        for owner in owners {
            let Some(Kustomization::There(kustomization)) = self.kustomizations.get(owner) else {
                continue;
            };
            match provenance::rebuild_object(client, kustomization, artifacts).await {
                Ok(built) => {
                    self.built.insert(owner.clone(), built);
                }
                Err(why) => {
                    let (count, _, _) = unknown.get_or_insert((0_usize, owner.clone(), why));
                    *count += 1;
                }
            }
        }
        if let Some((count, owner, why)) = unknown {
            let others = if count > 1 {
                format!(" and of {}", count_of(count - 1, "other"))
            } else {
                String::new()
            };
            self.notes.insert(format!(
                "of Kustomization {owner}{others} the state in Git isn't known, so stolen fields aren't found: {why}"
            ));
        }
    }
}

fn name_of(object: &Value) -> Option<KustomizationName> {
    let view = ObjectView::new(object);
    Some(KustomizationName {
        namespace: view.find_text("/metadata/namespace")?.to_owned(),
        name: view.find_text("/metadata/name")?.to_owned(),
    })
}

/// Returns all objects of a collection with the label; all objects without one.
async fn list_objects(client: &kube::Client, path: &str, accept: &str, label: &str) -> Result<Vec<Value>, ReadRefusal> {
    let path = match label {
        "" => path.to_owned(),
        label => format!("{path}?labelSelector={}", resources::encode_segment(label)),
    };
    let mut objects = Vec::new();
    match paged_reads::visit_objects(client, &path, (accept, usize::MAX), |object| objects.push(object)).await {
        Ok(_) => Ok(objects),
        // The list so far is incomplete.
        Err(ReadRefusal::Absent) => Err(ReadRefusal::Failed("the cluster no longer serves the kind".to_owned())),
        Err(refusal) => Err(refusal),
    }
}

async fn get_object(client: &kube::Client, path: &str, accept: &str) -> Answer {
    match resources::find_at(client, path, accept).await {
        Ok(Some(object)) => Answer::Object(object),
        Ok(None) => Answer::Absent,
        Err(kube::Error::Api(status)) => Answer::Refused(status.message.clone()),
        Err(error) => Answer::Refused(write_chain(&error)),
    }
}
