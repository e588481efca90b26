//! Who owns which field: after every write, and by server-side apply.

use serde_json::Value;

use super::{Operation, Outcome, Registry};
use crate::http::ApiError;

impl Registry {
    /// Settles the owners of fields after a create, an update or a patch.
    #[expect(
        clippy::unnecessary_wraps,
        clippy::unused_self,
        reason = "takes the field manager's place until it is wired"
    )]
    pub(crate) fn manage_fields(&self, _op: &Operation, _live: Option<&Value>, new: Value) -> Result<Value, ApiError> {
        Ok(new)
    }

    /// Server-side apply.
    #[expect(
        clippy::unused_async,
        clippy::unused_self,
        reason = "takes the field manager's place until it is wired"
    )]
    pub(crate) async fn apply(
        &self,
        _op: &Operation,
        _name: &str,
        _config: &Value,
        _force: bool,
    ) -> Result<Outcome, ApiError> {
        Err(ApiError::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
        ]))
    }
}
