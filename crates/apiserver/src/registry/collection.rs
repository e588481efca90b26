//! Deletion of all objects that selectors match.

use std::sync::Arc;

use tenure_store::Entry;

use super::{DeleteOptions, ListOptions, Listing, ObjectExt, Operation, Registry};
use crate::conversion::BATCH;
use crate::http::ApiError;
use crate::stored::decode_stored;

/// Bytes of objects in one read.
const READ: usize = 64 * 1024;

impl Registry {
    /// Deletes each object of a list. Returns the list with the objects in their last state. An object that was
    /// deleted meanwhile is no fault.
    pub(crate) async fn delete_collection(
        &self,
        op: &Arc<Operation>,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Listing, ApiError> {
        options.validate()?;
        super::delete::warn_of_remaining_pods(op, options);
        let mut page = self.list(op, list).await?;
        // Converted objects are kept, so that the webhook is not called again for deleted objects.
        let converted = page.items.are_converted_elsewhere();
        let mut listed = Vec::new();
        while let Some(batch) = page.items.read_batch(if converted { BATCH.1 } else { READ }).await? {
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
        Ok(self.list_chosen(op, page.revision, listed, converted))
    }
}
