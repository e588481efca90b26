//! The step from rendered to desired objects: identified, of known kinds, allowed here, labelled with their owner, in the order of their apply.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Value, json};
use tenure_api::inventory::split_api_version;
use tenure_api::metadata::{OWNER_NAME, OWNER_NAMESPACE};
use tenure_api::other_controllers::advise_on_missing_kind;
use tenure_api::{ObjectId, ObjectView, reason};
use tenure_tenancy::Placement;
use tenure_tenancy::write_scope::{self, Scope};

use super::apply_mode::ApplyMode;
use super::context::Context;
use super::order;
use super::stored_form;
use super::types::Snapshot;
use super::{Phase, flux_components, outcome, watched_objects};
use crate::answer::KindAnswer;
use crate::confidential;
use crate::object::{Object, Origin, RenderedObject};
use crate::plan::{KindReference, Request, Stage, Watched};
use tenure_remote_requests::artifact::ArtifactFacts;

/// An object that the Kustomization applies, identified and labelled.
#[derive(Clone, Debug)]
pub(super) struct DesiredObject {
    pub(super) target: Watched,
    pub(super) object: Object,
    pub(super) origin: Origin,
    pub(super) digest: String,
    pub(super) stage: Stage,
    /// Whether the object has confidential content.
    pub(super) confidential: bool,
}

/// The result of a rendering: the objects to apply, and the objects that are left out.
#[derive(Clone, Debug, Default)]
pub(super) struct Desired {
    /// In the order of their apply.
    pub(super) objects: Vec<DesiredObject>,
    /// Namespaces that the tenant doesn't have yet. Nothing is applied before they exist.
    pub(super) new_namespaces: Vec<DesiredObject>,
    /// The objects in these namespaces.
    pub(super) in_new_namespaces: Vec<DesiredObject>,
    /// Objects of kinds that the cluster does not know: not applied, and not pruned either.
    pub(super) unknown: Vec<(ObjectId, String)>,
    /// Components of Flux's installation that Tenure replaces: they are neither applied nor pruned.
    pub(super) replaced: Vec<ObjectId>,
    /// Digest of everything that was built.
    pub(super) digest: String,
    /// The ids of all these objects, applied or not.
    ids: HashSet<ObjectId>,
    /// The objects with confidential content.
    confidential: HashSet<ObjectId>,
}

impl Desired {
    pub(super) fn contains(&self, id: &ObjectId) -> bool {
        self.ids.contains(id)
    }

    /// Returns the number of objects, applied or not.
    pub(super) fn count(&self) -> usize {
        self.ids.len()
    }

    /// Checks whether an object may contain values of another object that is a Secret.
    pub(super) fn holds_values_of_others(&self, id: &ObjectId) -> bool {
        self.confidential.contains(id)
    }

    /// Checks whether an object, applied or not, has confidential content.
    pub(super) fn is_confidential(&self, id: &ObjectId) -> bool {
        confidential::is_secret(id) || self.confidential.contains(id)
    }
}

/// A rendered object with its id and its kind.
struct Identified<'a> {
    id: ObjectId,
    kind: KindReference,
    rendered: &'a RenderedObject,
}

/// Identifies, checks and labels the rendered objects. Ends the plan if an object is invalid or not allowed here.
pub(super) fn find_desired(
    context: &mut Context<'_>,
    artifact: &ArtifactFacts,
    rendered: &[RenderedObject],
) -> Phase<Desired> {
    context.revision = Some(artifact.revision.clone());
    let identified = identify_objects(context, rendered)?;
    let defined = list_defined_kinds(rendered);
    let scopes = find_scopes(context, &identified, &defined)?;

    let mut desired = Desired {
        digest: digest_of(rendered),
        ..Desired::default()
    };
    let mut denials = Vec::new();
    let reach = context.find_bounds();
    let new_namespaces = list_new_namespaces(&reach, &identified, &scopes);
    let mut seen: BTreeMap<ObjectId, Origin> = BTreeMap::new();
    for Identified { mut id, kind, rendered } in identified {
        let origin = rendered.origin.clone();
        let Some(scope) = scopes.get(&kind) else {
            let advice = advise_on_missing_kind(&kind.api_version);
            let message = format!(
                "no matches for kind {:?} in version {:?} ({origin}){}",
                kind.kind,
                kind.api_version,
                advice.map(|advice| format!(": {advice}")).unwrap_or_default()
            );
            desired.ids.insert(id.clone());
            desired.unknown.push((id, message));
            continue;
        };
        let mut object = rendered.object.0.clone();
        if *scope == Scope::Cluster && !id.namespace.is_empty() {
            id.namespace.clear();
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("namespace");
            }
        }
        let new_of = write_scope::find_new_namespace(&reach, *scope, &id);
        let is_in_new_namespace = new_namespaces.contains(&id.namespace);
        if new_of.is_none()
            && !is_in_new_namespace
            && let Err(denial) = write_scope::check_object(&reach, *scope, &id)
        {
            denials.push((denial, origin));
            continue;
        }
        if let Some(first) = seen.insert(id.clone(), origin.clone()) {
            let message = format!("{} is defined twice: {first} and {origin}", id.subject());
            return Err(outcome::plan_failed(context.fork(), reason::BUILD_FAILED, message));
        }
        if flux_components::is_replaced(context.snapshot, &id, &object) {
            desired.ids.insert(id.clone());
            desired.replaced.push(id);
            continue;
        }
        stored_form::write_stored_form(&id, &mut object);
        write_owner_labels(&mut object, context.namespace, context.name);
        if let Some(tenant) = new_of {
            write_scope::claim_namespace(&mut object, tenant);
        }
        desired.ids.insert(id.clone());
        if rendered.confidential {
            desired.confidential.insert(id.clone());
        }
        let (_, version) = split_api_version(&kind.api_version);
        let list = match (new_of.is_some(), is_in_new_namespace) {
            (true, _) => &mut desired.new_namespaces,
            (false, true) => &mut desired.in_new_namespaces,
            (false, false) => &mut desired.objects,
        };
        list.push(DesiredObject {
            target: Watched {
                version: version.to_owned(),
                id: id.clone(),
            },
            digest: context.ignored.digest_desired(&object),
            object: Object(object),
            origin,
            stage: find_stage_in_mode(context, &id),
            confidential: rendered.confidential || confidential::is_secret(&id),
        });
    }
    context.built = Some(desired.digest.clone());
    if let Some((first, _)) = denials.first() {
        let reason = first.reason.as_str();
        let lines: Vec<String> = denials
            .iter()
            .map(|(denial, origin)| format!("{} ({origin})", denial.message))
            .collect();
        for (denial, origin) in &denials {
            context.withhold(origin.to_string(), denial.message.clone());
        }
        // No part of the revision is applied: a commit is applied within the tenant's bounds, or not at all.
        return Err(outcome::plan_failed(context.fork(), reason, lines.join("\n")));
    }
    desired.objects.sort_by(|one, other| {
        let stages = one.stage.cmp(&other.stage);
        stages.then_with(|| order::compare(&one.target.id, &other.target.id))
    });
    for id in &desired.replaced {
        context.withhold(
            id.subject(),
            "Tenure does in its place what Flux's installation does: it is left as it is",
        );
    }
    for (id, message) in &desired.unknown {
        context.withhold(id.subject(), message.clone());
    }
    context.watch = watched_objects::list_watched(context, &desired);
    Ok(desired)
}

/// Lists the names of the desired namespaces that the tenant doesn't have yet.
fn list_new_namespaces(
    reach: &Placement,
    identified: &[Identified<'_>],
    scopes: &BTreeMap<KindReference, Scope>,
) -> BTreeSet<String> {
    let is_new = |identified: &&Identified<'_>| {
        let scope = scopes.get(&identified.kind);
        scope.is_some_and(|scope| write_scope::find_new_namespace(reach, *scope, &identified.id).is_some())
    };
    identified
        .iter()
        .filter(is_new)
        .map(|identified| identified.id.name.clone())
        .collect()
}

/// Finds the stage of an object. The administrator's own stage is only for objects without another stage. The stage for bounds exists only if the bounded objects may
/// be applied without their bounds.
fn find_stage_in_mode(context: &Context<'_>, id: &ObjectId) -> Stage {
    match find_stage(context.snapshot, id) {
        Stage::Rest | Stage::Custom if context.mode == ApplyMode::Partial && order::is_protection(id) => {
            Stage::Protections
        }
        stage => stage,
    }
}

/// Finds the stage of an object if all objects of a stage are applied or none.
pub(crate) fn find_stage(snapshot: &Snapshot, id: &ObjectId) -> Stage {
    match order::find_stage(id) {
        Stage::Rest if snapshot.settings.has_own_stage(id) => Stage::Custom,
        stage => stage,
    }
}

fn identify_objects<'a>(context: &Context<'_>, rendered: &'a [RenderedObject]) -> Phase<Vec<Identified<'a>>> {
    let mut identified = Vec::with_capacity(rendered.len());
    let mut problems = Vec::new();
    for rendered in rendered {
        let object = &rendered.object.0;
        match ObjectId::from_object(object) {
            Ok(id) => {
                let kind = KindReference {
                    api_version: ObjectView::new(object).read_text("/apiVersion").to_owned(),
                    kind: id.kind.clone(),
                };
                identified.push(Identified { id, kind, rendered });
            }
            Err(error) => problems.push(format!("{}: {error}", rendered.origin)),
        }
    }
    if problems.is_empty() {
        return Ok(identified);
    }
    Err(outcome::plan_failed(
        context.fork(),
        reason::BUILD_FAILED,
        problems.join("\n"),
    ))
}

/// Returns the scope of every kind that the cluster knows, or will know after this build's CustomResourceDefinitions are applied.
fn find_scopes(
    context: &Context<'_>,
    identified: &[Identified<'_>],
    defined: &BTreeMap<(String, String), Scope>,
) -> Phase<BTreeMap<KindReference, Scope>> {
    let kinds: BTreeSet<&KindReference> = identified.iter().map(|identified| &identified.kind).collect();
    let asked = &context.snapshot.kinds;
    let missing: Vec<KindReference> = kinds
        .iter()
        .filter(|kind| !asked.contains_key(**kind))
        .map(|kind| (*kind).clone())
        .collect();
    if !missing.is_empty() {
        return Err(context.fork().plan_again(vec![Request::ResolveKinds(missing)]));
    }
    let mut scopes = BTreeMap::new();
    for kind in kinds {
        let (group, _) = split_api_version(&kind.api_version);
        match asked.get(kind) {
            Some(KindAnswer::Served(scope)) => {
                scopes.insert(kind.clone(), *scope);
            }
            Some(KindAnswer::Failed(failure)) => {
                let message = format!(
                    "can't look up kind {:?} in version {:?}: {}",
                    kind.kind, kind.api_version, failure.message
                );
                return Err(outcome::fail_with(
                    context.fork(),
                    reason::RECONCILIATION_FAILED,
                    message,
                    failure.is_transient(),
                ));
            }
            Some(KindAnswer::Unknown) | None => {
                if let Some(scope) = defined.get(&(group.to_owned(), kind.kind.clone())) {
                    scopes.insert(kind.clone(), *scope);
                }
            }
        }
    }
    Ok(scopes)
}

/// Lists the kinds that CustomResourceDefinitions in the build define, by group and kind.
fn list_defined_kinds(rendered: &[RenderedObject]) -> BTreeMap<(String, String), Scope> {
    rendered
        .iter()
        .map(|rendered| rendered.object.view())
        .filter(|object| object.read_text("/kind") == "CustomResourceDefinition")
        .map(|object| {
            let scope = if object.read_text("/spec/scope") == "Cluster" {
                Scope::Cluster
            } else {
                Scope::Namespaced
            };
            let text = |path: &str| object.read_text(path).to_owned();
            ((text("/spec/group"), text("/spec/names/kind")), scope)
        })
        .collect()
}

fn write_owner_labels(object: &mut Value, namespace: &str, name: &str) {
    write_label(object, OWNER_NAME, json!(name));
    write_label(object, OWNER_NAMESPACE, json!(namespace));
}

/// Writes a label, even if the labels have a wrong type.
pub(super) fn write_label(object: &mut Value, key: &str, value: Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if !labels.is_object() {
        *labels = json!({});
    }
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(key.to_owned(), value);
    }
}

fn digest_of(rendered: &[RenderedObject]) -> String {
    let mut text = String::new();
    for rendered in rendered {
        text.push_str(&rendered.object.0.to_string());
        text.push('\n');
    }
    tenure_api::digest::digest_bytes(text.as_bytes())
}
