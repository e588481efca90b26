//! Objects and lists in the form that the client asked for: themselves, their metadata only, or rows of a table.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::http::negotiate::View;
use crate::http::query::Query;
use crate::http::{ApiError, Body, respond};
use crate::kinds;
use crate::registry::{Item, ListResult, Operation, Registry, decode_stored, kind_prefix, without_kind};
use crate::table::{IncludeObject, partial_metadata};

/// How to answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) view: View,
    /// What a table's rows carry: `None`, `Metadata` or `Object`.
    pub(crate) include: IncludeObject,
}

impl Form {
    pub(crate) fn new(view: View, query: &Query) -> Result<Self, ApiError> {
        let text = query.get("includeObject").unwrap_or_default();
        let include = IncludeObject::parse(text).ok_or_else(|| {
            ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {text:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))
        })?;
        Ok(Self { view, include })
    }

    /// Whether it shows nothing of a version, and so what is shown is made from what is stored.
    pub(crate) fn is_of_what_is_stored(self) -> bool {
        match self.view {
            View::Object => false,
            View::Table => self.include != IncludeObject::Object,
            View::Metadata => true,
        }
    }

    /// Whether stored bytes may be sent as they are.
    pub(crate) fn is_plain(self) -> bool {
        self.view == View::Object
    }
}

/// One object.
pub(crate) fn object(
    registry: &Registry,
    op: &Operation,
    form: Form,
    status: StatusCode,
    object: Value,
) -> Response<Body> {
    respond::value(status, &shaped(registry, op, form, object, true))
}

/// An object in its form, as the answer or as part of a watch.
pub(crate) fn shaped(registry: &Registry, op: &Operation, form: Form, object: Value, columns: bool) -> Value {
    match form.view {
        View::Object => object,
        View::Metadata => partial_metadata(&object),
        View::Table => {
            let revision = object
                .pointer("/metadata/resourceVersion")
                .cloned()
                .unwrap_or(Value::Null);
            let metadata = json!({"resourceVersion": revision});
            kinds::columns(&op.resource).table([&object], &metadata, form.include, registry.now(), columns)
        }
    }
}

/// A list.
pub(crate) fn list(
    registry: &Registry,
    op: &Operation,
    form: Form,
    page: ListResult,
) -> Result<Response<Body>, ApiError> {
    let mut metadata = if form.view == View::Object {
        list_metadata(op, page.revision)
    } else {
        json!({"resourceVersion": page.revision.to_string()})
    };
    if let Some(map) = metadata.as_object_mut() {
        if let Some(next) = page.next {
            map.insert("continue".to_owned(), Value::from(next));
        }
        if let Some(remaining) = page.remaining {
            map.insert("remainingItemCount".to_owned(), Value::from(remaining));
        }
    }
    if form.is_plain() {
        return plain_list(op, &metadata, &page.items);
    }
    let objects = page
        .items
        .into_iter()
        .map(|item| match item.decoded {
            Some(object) => Ok(object),
            None => decode_stored(&item.entry),
        })
        .collect::<Result<Vec<Value>, ApiError>>()?;
    let value = match form.view {
        View::Table => kinds::columns(&op.resource).table(&objects, &metadata, form.include, registry.now(), true),
        View::Metadata => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "items": Some(&objects)
                .filter(|objects| !objects.is_empty())
                .map(|objects| objects.iter().map(partial_metadata).collect::<Vec<_>>()),
        }),
        View::Object => json!({
            "kind": op.resource.list_kind, "apiVersion": op.resource.api_version(), "metadata": metadata,
            "items": objects.into_iter().map(|object| listed(op, object)).collect::<Vec<_>>(),
        }),
    };
    Ok(respond::value(StatusCode::OK, &value))
}

/// What a list says of itself. One of custom resources always says where it goes on, though it ends here.
pub(crate) fn list_metadata(op: &Operation, revision: u64) -> Value {
    let revision = revision.to_string();
    if op.resource.is_custom() {
        json!({"continue": "", "resourceVersion": revision})
    } else {
        json!({"resourceVersion": revision})
    }
}

/// An object as an item of a list: the list's kind says what built-in ones are.
pub(crate) fn listed(op: &Operation, mut object: Value) -> Value {
    if !op.resource.is_custom()
        && let Some(map) = object.as_object_mut()
    {
        map.remove("kind");
        map.remove("apiVersion");
    }
    object
}

/// A list of stored bytes, joined without reading them.
fn plain_list(op: &Operation, metadata: &Value, items: &[Item]) -> Result<Response<Body>, ApiError> {
    let size: usize = items.iter().map(|item| item.entry.bytes.len() + 1).sum();
    let mut out = Vec::with_capacity(size + 256);
    let head = json!({"kind": op.resource.list_kind, "apiVersion": op.resource.api_version(), "metadata": metadata});
    serde_json::to_writer(&mut out, &head).map_err(ApiError::internal)?;
    out.pop();
    let prefix = kind_prefix(&op.resource);
    out.extend_from_slice(b",\"items\":[");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match &item.decoded {
            Some(object) => {
                serde_json::to_writer(&mut out, &listed(op, object.clone())).map_err(ApiError::internal)?;
            }
            None => {
                let (head, tail) = without_kind(&item.entry.bytes, &prefix);
                out.extend_from_slice(head);
                out.extend_from_slice(tail);
            }
        }
    }
    out.extend_from_slice(b"]}\n");
    Ok(respond::bytes(StatusCode::OK, respond::JSON, Bytes::from(out)))
}
