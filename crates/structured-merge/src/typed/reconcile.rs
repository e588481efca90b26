//! Adjusts field sets to a schema: sets from before a schema change, and sets without the structs that they imply.

use crate::path::PathElement;
use crate::schema::{DEDUCED, ListRelation, MapType, Schema, Type, TypeRef};
use crate::set::{FieldSet, Node};

/// Adjusts a set: a manager of a part of an atomic list or map becomes the owner of the whole list or map. `None` if nothing changes. After
/// a change from atomic to granular, a manager of the whole keeps only that member.
pub(super) fn reconcile_set(schema: &Schema, type_ref: TypeRef, set: &FieldSet) -> Option<FieldSet> {
    match reconcile_below(schema, schema.get(type_ref), set) {
        Below::Kept => None,
        Below::Changed(set) => Some(set),
        // The root is never a member, so there is nothing to own it by.
        Below::Collapsed => Some(FieldSet::new()),
    }
}

/// The effect of a changed schema on the fields below a node.
enum Below {
    Kept,
    Changed(FieldSet),
    /// The container of these fields is atomic.
    Collapsed,
}

fn reconcile_below(schema: &Schema, built: &Type, set: &FieldSet) -> Below {
    if set.is_empty() {
        return Below::Kept;
    }
    // Without a value to tell, an open type counts as a map.
    if let Some(map) = &built.map {
        if map.element == Some(DEDUCED) && map.fields.is_empty() {
            return Below::Kept;
        }
        if map.atomic {
            return Below::Collapsed;
        }
        return reconcile_each(
            set,
            |element| {
                let type_ref = match element {
                    PathElement::Field(name) => map.type_of(name),
                    _ => map.element,
                };
                type_ref.map(|type_ref| schema.get(type_ref))
            },
            schema,
        );
    }
    match (built.scalar, &built.list) {
        (None, Some(list)) if list.relation == ListRelation::Atomic => Below::Collapsed,
        (None, Some(list)) => reconcile_each(set, |_| Some(schema.get(list.element)), schema),
        _ => Below::Kept,
    }
}

fn reconcile_each<'s>(set: &FieldSet, type_of: impl Fn(&PathElement) -> Option<&'s Type>, schema: &Schema) -> Below {
    let mut changed: Option<FieldSet> = None;
    for (at, node) in set.nodes.iter().enumerate() {
        // A field that the schema doesn't know stays unchanged.
        let Some(built) = type_of(&node.element) else {
            continue;
        };
        let replacement = match reconcile_below(schema, built, &node.children) {
            Below::Kept => continue,
            Below::Changed(children) => Node {
                element: node.element.clone(),
                member: node.member,
                children,
            },
            Below::Collapsed => Node {
                element: node.element.clone(),
                member: true,
                children: FieldSet::new(),
            },
        };
        let copy = changed.get_or_insert_with(|| set.clone());
        if let Some(place) = copy.nodes.get_mut(at) {
            *place = replacement;
        }
    }
    changed.map_or(Below::Kept, Below::Changed)
}

/// Returns the set with every declared struct field on the way to a member as a member too. The set of an apply omits these fields, but
/// they have to be removed when nothing else is in them.
pub(super) fn with_named_fields(schema: &Schema, type_ref: Option<TypeRef>, set: &FieldSet) -> FieldSet {
    let built = type_ref.map(|type_ref| schema.get(type_ref));
    let map: Option<&MapType> = built.and_then(|built| built.map.as_ref());
    let nodes = set.nodes.iter().map(|node| {
        if node.children.is_empty() {
            return node.clone();
        }
        let (declared, type_ref) = match &node.element {
            PathElement::Field(name) => {
                let field = map.and_then(|map| map.field(name));
                (field.is_some(), map.and_then(|map| map.type_of(name)))
            }
            PathElement::Key(_) => (
                false,
                built.and_then(|built| built.list.as_ref()).map(|list| list.element),
            ),
            _ => (false, None),
        };
        Node {
            element: node.element.clone(),
            member: node.member || declared,
            children: with_named_fields(schema, type_ref, &node.children),
        }
    });
    FieldSet { nodes: nodes.collect() }
}
