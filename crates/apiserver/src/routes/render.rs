//! Objects in the form that the client asked for: themselves, their metadata only, or rows of a table.

use http::{Response, StatusCode};
use serde_json::{Value, json};
use tenure_kinds::table::{IncludeObject, partial_metadata};

use crate::http::negotiate::View;
use crate::http::query::Query;
use crate::http::{ApiError, Body, respond};
use crate::kinds;
use crate::operation::Operation;
use crate::registry::Registry;

/// How to answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) view: View,
    /// What a table's rows carry: `None`, `Metadata` or `Object`.
    pub(crate) include: IncludeObject,
}

impl Form {
    /// Objects as they are.
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
