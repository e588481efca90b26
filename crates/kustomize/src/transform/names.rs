//! The transformers `namePrefix` and `nameSuffix`.

use go_yaml::node::Node;

use crate::collection::{Collection, Trouble};
use crate::fields::FieldSpec;
use crate::fieldspec::{Create, apply};
use crate::id::Gvk;
use crate::meter;

/// The prefix or the suffix transformer.
#[derive(Debug, Clone)]
pub(crate) struct Affix {
    pub(crate) text: String,
    pub(crate) is_prefix: bool,
    pub(crate) fields: Vec<FieldSpec>,
}

/// Checks for kinds whose names have a meaning outside of the build. Their names are not changed.
fn is_kept(gvk: &Gvk) -> bool {
    matches!(gvk.kind.as_str(), "CustomResourceDefinition" | "Namespace")
        || (gvk.kind == "APIService" && gvk.group == "apiregistration.k8s.io")
}

impl Affix {
    pub(crate) fn transform(&self, resources: &mut Collection) -> Result<(), Trouble> {
        for resource in &mut resources.list {
            let id = resource.original_id();
            if is_kept(&id.gvk) {
                continue;
            }
            for spec in self.fields.iter().filter(|spec| id.gvk.is_selected(&spec.gvk)) {
                if spec.path == "metadata/name" && !self.text.is_empty() {
                    let notes = &mut resource.notes;
                    let list = if self.is_prefix {
                        &mut notes.prefixes
                    } else {
                        &mut notes.suffixes
                    };
                    meter::count_text(2 * (32 + self.text.len()));
                    list.extend(self.text.split(',').map(str::to_owned));
                    resource.store_previous_id();
                }
                let mut write = |node: &mut Node| {
                    if !node.is_scalar() {
                        return Err("a name must be a scalar".to_owned());
                    }
                    let old = node.text().to_owned();
                    let new = if self.is_prefix {
                        format!("{}{old}", self.text)
                    } else {
                        format!("{old}{}", self.text)
                    };
                    node.assign_scalar(Node::untyped(new));
                    Ok(())
                };
                apply(&mut resource.node, spec, Create::Scalar, &mut write)
                    .map_err(|message| Trouble::new(resource, message))?;
                if spec.path != "metadata/name" {
                    resource.settle_shares();
                }
            }
        }
        Ok(())
    }
}
