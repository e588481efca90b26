//! Objects in the format that the client asked for: the objects themselves, only their metadata, or rows of a table.

use http::{Response, StatusCode};
use serde_json::{Value, json};
use tenure_kinds::table::{IncludeObject, partial_metadata};

use crate::http::negotiate::View;
use crate::http::query::Query;
use crate::http::{ApiError, Body, respond};
use crate::kind_properties;
use crate::operation::Operation;
use crate::registry::Registry;

/// The format of the objects in an answer: whole objects, their metadata, or rows of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) view: View,
    /// The content of a table's rows: `None`, `Metadata` or `Object`.
    pub(crate) include: IncludeObject,
}

impl Form {
    /// Unchanged objects.
    pub(crate) const PLAIN: Self = Self {
        view: View::Object,
        include: IncludeObject::None,
    };

    pub(crate) fn new(view: View, query: &Query) -> Result<Self, ApiError> {
        let text = query.get("includeObject").unwrap_or_default();
        let include = IncludeObject::parse(text).ok_or_else(|| {
            ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {text:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))
        })?;
        Ok(Self { view, include })
    }

    /// Checks whether the format shows only fields that are equal in all versions, so that it can be made from the
    /// stored object.
    pub(crate) fn is_version_independent(self) -> bool {
        match self.view {
            View::Object => false,
            View::Table => self.include != IncludeObject::Object,
            View::Metadata => true,
        }
    }

    /// Checks whether stored bytes may be sent unchanged.
    pub(crate) fn is_plain(self) -> bool {
        self.view == View::Object
    }
}

/// Returns the answer with one object.
pub(crate) fn render_object(
    registry: &Registry,
    op: &Operation,
    form: Form,
    status: StatusCode,
    object: Value,
) -> Response<Body> {
    respond::with_value(status, &format_object(registry, op, form, object, true))
}

/// Returns an object in its format, for an answer or a watch.
pub(crate) fn format_object(registry: &Registry, op: &Operation, form: Form, object: Value, columns: bool) -> Value {
    match form.view {
        View::Object => object,
        View::Metadata => partial_metadata(&object),
        View::Table => {
            let revision = object
                .pointer("/metadata/resourceVersion")
                .cloned()
                .unwrap_or(Value::Null);
            let metadata = json!({"resourceVersion": revision});
            kind_properties::find_columns(&op.resource).table(
                [&object],
                &metadata,
                form.include,
                registry.now(),
                columns,
            )
        }
    }
}
