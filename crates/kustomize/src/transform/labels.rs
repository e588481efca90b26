//! `labels`, `commonLabels` and `commonAnnotations`: adds pairs to the mappings that field specifications name.

use std::collections::BTreeMap;

use go_yaml::node::{Node, Share, Tag};

use crate::collection::Trouble;
use crate::fields::FieldSpec;
use crate::fieldspec::{Create, apply};
use crate::patch::annotations_of;
use crate::resource::Resource;

/// Puts the pairs into all fields.
pub(crate) fn transform(
    pairs: &BTreeMap<String, String>,
    fields: &[FieldSpec],
    resources: &mut [Resource],
) -> Result<(), Trouble> {
    if pairs.is_empty() {
        return Ok(());
    }
    for resource in resources {
        let first_group = resource.notes.shares.saturating_add(1);
        for spec in fields {
            let mut write = |node: &mut Node| {
                if !node.is_map() && !node.is_null() {
                    return Err("wrong node kind: expected a mapping".to_owned());
                }
                if pairs.contains_key("") {
                    // kustomize would write the value over the mapping itself, which isn't text.
                    return Err("a label or annotation without a name can't be set; give it one".to_owned());
                }
                let place = (node.source, node.line);
                for ((key, value), group) in pairs.iter().zip(first_group..) {
                    let mut made = Node::scalar(value.clone(), Tag::Str).with_place(place.0, place.1);
                    if node.get(key).is_none() {
                        made.share = Share { group, writes: 0 };
                    }
                    node.set_field(key, made);
                }
                Ok(())
            };
            if spec.path == "metadata/annotations" && resource.notes.are_annotations() {
                let _ = annotations_of(&mut resource.node);
            }
            apply(&mut resource.node, spec, Create::Map, &mut write)
                .map_err(|message| Trouble::new(resource, message))?;
        }
        let groups = u16::try_from(pairs.len()).unwrap_or(u16::MAX);
        resource.notes.shares = resource.notes.shares.saturating_add(groups);
        resource.settle_shares();
    }
    Ok(())
}
