//! Reads of one object.

use std::sync::Arc;

use serde_json::Value;
use tenure_store::Entry;

use super::{Answer, Operation, Registry, revision};
use crate::contents::is_verbatim;
use crate::http::ApiError;

impl Registry {
    /// Returns the stored entry of an object, and whether its bytes are sent unchanged.
    pub(crate) async fn get_entry(
        &self,
        op: &Operation,
        name: &str,
        resource_version: Option<&str>,
    ) -> Result<(Arc<Entry>, bool), ApiError> {
        let snapshot = match revision::parse(resource_version)? {
            None | Some(0) => self.store().snapshot(),
            Some(wanted) => revision::not_older_than(self.store(), wanted).await?,
        };
        let entry = snapshot
            .get(&op.key(name))
            .ok_or_else(|| ApiError::not_found(&op.resource, name))?;
        Ok((entry.clone(), is_verbatim(&op.resource)))
    }

    /// Returns an object in the requested version.
    ///
    /// # Errors
    /// 404 if it is missing.
    pub async fn get(&self, op: &Operation, name: &str) -> Result<Value, ApiError> {
        let (entry, _) = self.get_entry(op, name, None).await?;
        self.present(op, &entry).await
    }

    /// Returns the answer of a write as an object in the requested version.
    ///
    /// # Errors
    /// If the stored object is unreadable, or can't be converted to that version.
    pub async fn present_answer(&self, op: &Operation, answer: Answer) -> Result<Value, ApiError> {
        match answer {
            Answer::Stored(entry) => self.present(op, &entry).await,
            Answer::Object(object) => Ok(object),
        }
    }
}
