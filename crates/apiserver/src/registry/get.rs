//! Reading one object.

use std::sync::Arc;

use serde_json::Value;
use tenure_store::Entry;

use super::{Answer, Operation, Registry, revision};
use crate::contents::is_verbatim;
use crate::http::ApiError;

impl Registry {
    /// The stored entry of an object, and whether its bytes are what the client gets.
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

    /// An object in the requested version.
    ///
    /// # Errors
    /// 404 if there is none.
    pub async fn get(&self, op: &Operation, name: &str) -> Result<Value, ApiError> {
        let (entry, _) = self.get_entry(op, name, None).await?;
        self.present(op, &entry).await
    }

    /// What a write answered as an object in the requested version.
    ///
    /// # Errors
    /// When what is stored can't be read, or not in that version.
    pub async fn answered(&self, op: &Operation, answer: Answer) -> Result<Value, ApiError> {
        match answer {
            Answer::Stored(entry) => self.present(op, &entry).await,
            Answer::Object(object) => Ok(object),
        }
    }
}
