//! The transformer `replicas`.

use go_yaml::node::{Node, Tag};

use crate::collection::{Collection, Trouble};
use crate::fields::{FieldSpec, Replica};
use crate::fieldspec::{Create, apply};

/// Sets the count on resources of the name; `Ok(false)` if no resource has the name.
pub(crate) fn transform(replica: &Replica, fields: &[FieldSpec], resources: &mut Collection) -> Result<bool, Trouble> {
    let mut found = false;
    for spec in fields {
        for position in resources.matching_any(|id| id.name == replica.name && id.gvk.is_selected(&spec.gvk)) {
            found = true;
            let Some(resource) = resources.list.get_mut(position) else {
                continue;
            };
            let mut write = |node: &mut Node| {
                if !node.is_scalar() {
                    return Err("replicas must be a scalar".to_owned());
                }
                node.assign_scalar(Node::scalar(replica.count.to_string(), Tag::Int));
                Ok(())
            };
            apply(&mut resource.node, spec, Create::Scalar, &mut write)
                .map_err(|message| Trouble::new(resource, message))?;
            if spec.path != "spec/replicas" {
                resource.settle_shares();
            }
        }
    }
    Ok(found)
}
