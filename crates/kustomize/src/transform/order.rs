//! `sortOptions`: the order in which resources are written.

use std::cmp::Ordering;

use crate::config::{default_order, rank_kind, sort_text};
use crate::fields::SortOptions;
use crate::id::{Gvk, ResourceId};
use crate::resource::Resource;

/// Sorts the resources, if at all.
///
/// # Errors
/// If the options contradict each other.
pub(crate) fn sort(options: Option<&SortOptions>, resources: &mut Vec<Resource>) -> Result<(), String> {
    let (first, last) = match options {
        None => default_order(),
        Some(options) => match options.order.as_str() {
            "legacy" => options.legacy.clone().unwrap_or_else(default_order),
            "fifo" if options.legacy.is_some() => {
                return Err("legacySortOptions is set but the selected sort order is 'fifo', not 'legacy'".to_owned());
            }
            "fifo" => return Ok(()),
            _ => {
                return Err("the field 'sortOptions.order' must be one of [fifo, legacy]".to_owned());
            }
        },
    };
    let mut keyed: Vec<(i64, String, String, Gvk, Resource)> = std::mem::take(resources)
        .into_iter()
        .map(|resource| {
            let id = resource.current_id();
            (
                rank_kind(&id.gvk.kind, &first, &last),
                sort_text(&id.gvk),
                id_text(&id),
                id.gvk,
                resource,
            )
        })
        .collect();
    keyed.sort_by(|a, b| {
        if a.3 == b.3 {
            return a.2.cmp(&b.2);
        }
        let by_kind = a.0.cmp(&b.0);
        if by_kind != Ordering::Equal {
            return by_kind;
        }
        let namespaces =
            a.3.kind == "Namespace" && b.3.kind == "Namespace" && (a.3.group.is_empty() || b.3.group.is_empty());
        if namespaces { b.1.cmp(&a.1) } else { a.1.cmp(&b.1) }
    });
    resources.extend(keyed.into_iter().map(|(_, _, _, _, resource)| resource));
    Ok(())
}

fn id_text(id: &ResourceId) -> String {
    let namespace = if id.namespace.is_empty() { "~X" } else { &id.namespace };
    let name = if id.name.is_empty() { "~N" } else { &id.name };
    format!("{}|{namespace}|{name}", id.gvk)
}
