//! `patches`, `patchesStrategicMerge` and `patchesJson6902`: distinguishes the kinds of patches and applies them.

use go_yaml::json::through_json;
use go_yaml::node::{Node, Tag};

use crate::collection::{Collection, Trouble};
use crate::jsonpatch::{self, Operation};
use crate::merge::{Merged, merge_resource};
use crate::meter;
use crate::resource::{Notes, Resource};
use crate::selector::Matcher;

/// The content of a patch.
#[derive(Debug)]
pub(crate) enum Content {
    /// Strategic merge patches, each a partial resource.
    Merge(Vec<Resource>),
    /// JSON 6902 operations.
    Json(Vec<Operation>),
}

/// A patch, ready to apply.
#[derive(Debug)]
pub(crate) struct PreparedPatch {
    pub(crate) content: Content,
    pub(crate) target: Option<Matcher>,
    /// Written in `patchesStrategicMerge`, which finds its targets by id and copies the patch first.
    pub(crate) is_legacy_merge: bool,
    /// Written in `patchesJson6902`, which doesn't note the resource's id before.
    pub(crate) is_legacy_json: bool,
    /// The patch's place: file number and line.
    pub(crate) place: (u32, u32),
}

/// A failure of a patch.
#[derive(Debug)]
pub(crate) enum PatchTrouble {
    /// The patch finds no target, or too many; the text says which.
    Target(String),
    /// A resource can't take the patch.
    Resource(Trouble),
    /// An error in one of several patches of a step, with the line and field of that patch.
    At {
        line: u32,
        field: String,
        trouble: Box<PatchTrouble>,
    },
}

impl PreparedPatch {
    pub(crate) fn transform(&self, resources: &mut Collection) -> Result<(), PatchTrouble> {
        match &self.content {
            Content::Merge(patches) => self.merge(patches, resources),
            Content::Json(operations) => {
                let Some(target) = &self.target else {
                    return Err(PatchTrouble::Target(
                        "must specify a target for a JSON patch".to_owned(),
                    ));
                };
                for resource in resources.list.iter_mut().filter(|resource| target.fits(resource)) {
                    meter::check().map_err(PatchTrouble::Target)?;
                    self.apply_json(resource, operations).map_err(PatchTrouble::Resource)?;
                }
                Ok(())
            }
        }
    }

    fn merge(&self, patches: &[Resource], resources: &mut Collection) -> Result<(), PatchTrouble> {
        if let Some(target) = &self.target {
            let [patch] = patches else {
                return Err(PatchTrouble::Target(
                    "several strategic merge patches in one entry can't have a target; give each its own entry"
                        .to_owned(),
                ));
            };
            for resource in resources.list.iter_mut().filter(|resource| target.fits(resource)) {
                meter::check().map_err(PatchTrouble::Target)?;
                merge_targeted(resource, patch).map_err(PatchTrouble::Resource)?;
            }
            resources.drop_empty();
            let list = std::mem::take(&mut resources.list);
            return resources.append_all(list).map_err(PatchTrouble::Resource);
        }
        for patch in patches {
            let id = patch.original_id();
            meter::check().map_err(PatchTrouble::Target)?;
            let position = resources.find_only(&id).map_err(|message| {
                PatchTrouble::Target(if self.is_legacy_merge {
                    message
                } else {
                    format!("the strategic merge patch finds no resource, or several: {message}")
                })
            })?;
            let Some(resource) = resources.list.get_mut(position) else {
                continue;
            };
            if self.is_legacy_merge {
                merge_targeted(resource, patch).map_err(PatchTrouble::Resource)?;
                resources.drop_empty();
            } else {
                merge(resource, patch.clone()).map_err(PatchTrouble::Resource)?;
            }
        }
        Ok(())
    }

    fn apply_json(&self, resource: &mut Resource, operations: &[Operation]) -> Result<(), Trouble> {
        let before = Trouble::new(resource, "");
        let fail = |message: String| Trouble {
            id: before.id.clone(),
            source: before.source,
            line: before.line,
            message,
        };
        let noted = resource.notes.are_annotations();
        if !self.is_legacy_json {
            resource.store_previous_id();
        }
        // kustomize keeps its notes in annotations, so a patch may rely on the field being there.
        if !self.is_legacy_json || noted {
            let _ = annotations_of(&mut resource.node);
        }
        through_json(&mut resource.node).map_err(|problem| fail(problem.message))?;
        resource.node.unshare();
        resource.note_labels_are_read();
        resource.show_origin();
        jsonpatch::apply(&mut resource.node, operations, self.place).map_err(fail)?;
        resource.settle_annotations();
        resource.hide_origin();
        Ok(())
    }
}

/// The annotation that represents kustomize's notes while a patch is merged.
const NOTES: &str = "internal.config.kubernetes.io/previousNames";

/// Returns the annotations; creates an empty mapping if they are missing, because kustomize stores its notes there.
pub(crate) fn annotations_of(node: &mut Node) -> Option<&mut Node> {
    let metadata = node.map_field("metadata")?;
    if metadata.get("annotations").is_some_and(Node::is_null) {
        metadata.remove("annotations");
    }
    metadata.map_field("annotations")
}

/// Merges a copy of the patch whose labels and annotations are all strings, as kustomize does for selected targets.
fn merge_targeted(resource: &mut Resource, patch: &Resource) -> Result<(), Trouble> {
    let mut copy = patch.clone();
    for field in ["labels", "annotations"] {
        let map = copy.text_map(field);
        copy.set_text_map(field, &map);
    }
    copy.set_name(patch.name());
    copy.set_namespace(patch.namespace());
    copy.set_api_version(resource.api_version());
    merge(resource, copy)
}

/// Merges one strategic merge patch; the resource keeps its name, namespace and kind unless the patch may change them.
fn merge(resource: &mut Resource, patch: Resource) -> Result<(), Trouble> {
    let place = Trouble::new(resource, "");
    let (name, namespace, kind) = (
        resource.name().to_owned(),
        resource.namespace().to_owned(),
        resource.kind().to_owned(),
    );
    let Notes {
        allow_name_change,
        allow_kind_change,
        ..
    } = patch.notes;
    if allow_name_change || allow_kind_change {
        resource.store_previous_id();
    }
    let has_notes = resource.notes.are_annotations();
    if has_notes && let Some(annotations) = annotations_of(&mut resource.node) {
        annotations.set_field(NOTES, Node::quoted(""));
    }
    let node = std::mem::replace(&mut resource.node, Node::scalar("", Tag::Null));
    let merged = merge_resource(node, patch.node, &resource.schema).map_err(|message| Trouble {
        id: place.id,
        source: place.source,
        line: place.line,
        // A Secret already has a message that quotes nothing, and no other message may replace it.
        message: if place.message.is_empty() {
            message
        } else {
            place.message.clone()
        },
    })?;
    // kustomize forgets to take the new root when a patch replaces it, so `$patch: replace` there changes nothing.
    let Merged { node, replaced } = merged;
    let Some(node) = node.map(|node| replaced.unwrap_or(node)) else {
        return Ok(());
    };
    resource.node = node;
    resource.settle_shares();
    // A patch that takes the annotations away takes kustomize's notes with them, and so the names that it had.
    let kept = resource
        .node
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"));
    if has_notes && kept.is_none_or(|annotations| annotations.remove(NOTES).is_none()) {
        resource.notes = Notes {
            touched_by: std::mem::take(&mut resource.notes.touched_by),
            shares: resource.notes.shares,
            holds_secret: resource.notes.holds_secret,
            ..Notes::default()
        };
    }
    if resource.node.is_empty() {
        return Ok(());
    }
    if !allow_kind_change {
        resource.set_kind(&kind);
    }
    if !allow_name_change {
        resource.set_name(&name);
    }
    resource.set_namespace(&namespace);
    Ok(())
}
