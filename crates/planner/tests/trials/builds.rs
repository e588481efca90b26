//! The rendered objects of a scenario's revisions.

use serde::Deserialize;
use serde_json::Value;
use tenure_planner::kustomization::{RenderFailure, RenderRequest, Rendered};

use crate::world::make_rendered;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Build {
    Objects(Vec<Value>),
    /// Objects of files that were changed after they had been encrypted.
    Changed {
        objects: Vec<Value>,
        files: Vec<String>,
    },
    Fails(String),
}

impl Build {
    /// The answer to a request for it.
    pub(crate) fn render(&self, request: &RenderRequest) -> Rendered {
        let (objects, files) = match self {
            Self::Objects(objects) => (objects, Vec::new()),
            Self::Changed { objects, files } => (objects, files.clone()),
            Self::Fails(message) => {
                let failure = RenderFailure {
                    message: message.clone(),
                    artifact_missing: false,
                };
                return Rendered::new(request, Err(failure), Vec::new());
            }
        };
        let namespace = request.overlay.target_namespace.as_deref();
        let objects = objects.iter().enumerate();
        let objects = objects
            .map(|(index, object)| make_rendered(object, index, namespace))
            .collect();
        Rendered::new(request, Ok(objects), files)
    }
}
