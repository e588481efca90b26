//! The file and line of a field from Git, in the built object. `who` and `diff` both use it, so they can't disagree.

use kustomize::BuiltResource;
use serde_json::Value;
use structured_merge::{FieldPath, KeyField, PathElement};
use tenure_api::ObjectView;
use tenure_planner::Origin;

/// Returns the file and line that set a field. `None` if Git doesn't set it.
///
/// A field that a patch sets is located in the patch. A field without a line of its own has the line of the nearest field around it.
#[must_use]
pub fn locate_field(built: &BuiltResource, path: &FieldPath) -> Option<Origin> {
    let pointer = find_pointer(&built.object, path).or_else(|| find_text_pointer(&built.object, path))?;
    let location = built.locate(&pointer)?;
    Some(Origin {
        path: location.path,
        line: location.line,
    })
}

/// Returns the JSON pointer of a field that an object has. Keyed list items become indices.
fn find_pointer(object: &Value, path: &FieldPath) -> Option<String> {
    let mut at = object;
    let mut pointer = String::new();
    for element in &path.0 {
        let part = match element {
            PathElement::Field(name) => name.replace('~', "~0").replace('/', "~1"),
            PathElement::Index(index) => index.to_string(),
            PathElement::Key(keys) => find_item(at.as_array()?, keys)?.to_string(),
            PathElement::Value(value) => {
                let mut items = at.as_array()?.iter();
                items.position(|item| item == value.as_ref())?.to_string()
            }
        };
        pointer.push('/');
        pointer.push_str(&part);
        at = object.pointer(&pointer)?;
    }
    Some(pointer)
}

/// Finds the list item with these keys. The API server adds defaults to keys, such as the protocol of a port, so an item may lack some of them.
fn find_item(items: &[Value], keys: &[KeyField]) -> Option<usize> {
    let matches = |item: &Value| {
        let found = keys
            .iter()
            .map(|key| item.get(&*key.name).map(|value| *value == key.value));
        found.collect::<Vec<_>>()
    };
    let is_exact = |item: &&Value| matches(item).iter().all(|found| *found == Some(true));
    let agrees = |item: &&Value| {
        let found = matches(item);
        found.contains(&Some(true)) && !found.contains(&Some(false))
    };
    let position = |is_meant: &dyn Fn(&&Value) -> bool| items.iter().position(|item| is_meant(&item));
    position(&is_exact).or_else(|| position(&agrees))
}

/// Returns the pointer of a Secret's entry that Git writes as text: the API server moves `stringData` into `data`.
fn find_text_pointer(object: &Value, path: &FieldPath) -> Option<String> {
    let (first, rest) = path.0.split_first()?;
    if ObjectView::new(object).read_text("/kind") != "Secret" || *first != PathElement::field("data") {
        return None;
    }
    let mut written = vec![PathElement::field("stringData")];
    written.extend_from_slice(rest);
    find_pointer(object, &FieldPath(written))
}

#[cfg(test)]
mod tests;
