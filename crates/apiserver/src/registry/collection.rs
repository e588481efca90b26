//! Deleting all objects that selectors match.

use std::sync::Arc;

use tenure_store::Entry;

use super::{DeleteOptions, ListOptions, Listing, ObjectExt, Operation, Registry};
use crate::conversion::BATCH;
use crate::http::ApiError;
use crate::stored::decode_stored;

/// Bytes of objects that are read at once.
const READ: usize = 64 * 1024;

impl Registry {
    /// Deletes each object of a list, and returns the list with the objects as they were before. One that vanished meanwhile is
    /// no fault.
    pub(crate) async fn delete_collection(
        &self,
        op: &Arc<Operation>,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Listing, ApiError> {
        options.validate()?;
        super::delete::warn_of_children(op, options);
        let mut page = self.list(op, list).await?;
        // What a webhook converted is kept: it is not asked again about objects that are gone.
        let converted = page.items.are_converted_elsewhere();
        let mut listed = Vec::new();
        while let Some(batch) = page.items.batch(if converted { BATCH.1 } else { READ }).await? {
            for item in batch {
                let object = match item.decoded {
                    Some(object) => object,
                    None => decode_stored(&item.entry)?,
                };
                let mut one = Operation::clone(op);
                if op.resource.namespaced {
                    one.namespace = Some(object.namespace().to_owned());
                }
                match self.delete_asked(&one, object.name(), "", options).await {
                    Ok(_) => {}
                    Err(error) if error.code == 404 => {}
                    Err(error) => return Err(error),
                }
                listed.push(if converted {
                    Arc::new(Entry {
                        revision: item.entry.revision,
                        bytes: serde_json::to_vec(&object).map_err(ApiError::internal)?.into(),
                    })
                } else {
                    item.entry
                });
            }
        }
        Ok(self.chosen(op, page.revision, listed, converted))
    }
}
