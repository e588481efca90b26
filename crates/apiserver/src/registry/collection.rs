//! Deleting all objects that selectors match.

use serde_json::Value;

use super::encode::decode_stored;
use super::{DeleteOptions, ListOptions, ObjectExt, Operation, Registry};
use crate::http::ApiError;

impl Registry {
    /// Deletes each object of a list, and returns the list's revision and objects as they were before. One that vanished
    /// meanwhile is no fault.
    pub(crate) async fn delete_collection(
        &self,
        op: &Operation,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<(u64, Vec<Value>), ApiError> {
        options.validate()?;
        super::delete::warn_of_children(op, options);
        let page = self.list(op, list).await?;
        let mut listed = Vec::with_capacity(page.items.len());
        for item in page.items {
            let object = match item.decoded {
                Some(object) => object,
                None => decode_stored(&item.entry)?,
            };
            let mut one = op.clone();
            if op.resource.namespaced {
                one.namespace = Some(object.namespace().to_owned());
            }
            match self.delete_asked(&one, object.name(), "", options).await {
                Ok(_) => {}
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
            listed.push(object);
        }
        Ok((page.revision, listed))
    }
}
