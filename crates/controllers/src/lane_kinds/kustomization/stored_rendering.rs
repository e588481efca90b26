//! The rendered objects of a resting Kustomization, as text. Parsed objects take many times as much memory, and most Kustomizations rest. This module
//! only has the form. Its callers decide whether memory is available, and whether the rendering matches a request.

use serde_json::Value;
use tenure_planner::kustomization::{RenderRequest, Rendered};
use tenure_planner::{Object, Origin, RenderedObject};

/// A rendering, with its objects or their text.
#[derive(Debug)]
pub(super) struct StoredRendering {
    /// The objects are empty while `text` is set.
    rendered: Rendered,
    text: Option<Text>,
}

/// Objects as JSON: a list of the origin's path, the line, whether the object is confidential, and the object. Never printed, because it holds values
/// of Secrets.
struct Text(Box<[u8]>);

impl std::fmt::Debug for Text {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes", self.0.len())
    }
}

impl StoredRendering {
    /// Keeps a successful rendering. A later attempt could not use a failed one.
    pub(super) fn from_success(rendered: Rendered) -> Option<Self> {
        rendered.outcome.is_ok().then_some(Self { rendered, text: None })
    }

    /// Turns the objects into text. They stay objects if the text would differ: the last digit of a number with a fraction may change.
    pub(super) fn compact(&mut self) {
        let Ok(objects) = &mut self.rendered.outcome else {
            return;
        };
        if self.text.is_some() || objects.iter().any(|rendered| has_fraction(&rendered.object.0)) {
            return;
        }
        let objects_as_parts = objects.iter().map(|rendered| {
            let origin = &rendered.origin;
            (&origin.path, origin.line, rendered.confidential, &rendered.object.0)
        });
        let list: Vec<_> = objects_as_parts.collect();
        if let Ok(text) = serde_json::to_vec(&list) {
            self.text = Some(Text(text.into_boxed_slice()));
            *objects = Vec::new();
        }
    }

    /// Returns the rendering with its objects.
    pub(super) fn restore(mut self) -> Option<Rendered> {
        let Some(Text(text)) = self.text else {
            return Some(self.rendered);
        };
        let list: Vec<(String, u32, bool, Value)> = serde_json::from_slice(&text).ok()?;
        let object = |(path, line, confidential, object)| RenderedObject {
            object: Object(object),
            origin: Origin { path, line },
            confidential,
        };
        self.rendered.outcome = Ok(list.into_iter().map(object).collect());
        Some(self.rendered)
    }

    /// Returns the size of the text; `None` while there are objects instead.
    pub(super) fn bytes(&self) -> usize {
        self.text.as_ref().map_or(0, |Text(text)| text.len())
    }

    /// Returns the digest of the artifact.
    pub(super) fn artifact_digest(&self) -> &str {
        &self.rendered.artifact_digest
    }

    /// Assigns the rendering to another artifact with the same files.
    pub(super) fn set_artifact_digest(&mut self, digest: &str) {
        digest.clone_into(&mut self.rendered.artifact_digest);
    }

    /// Checks whether the rendering is the answer to a request.
    pub(super) fn is_of(&self, request: &RenderRequest) -> bool {
        self.rendered.is_of(request)
    }

    /// Checks whether the rendering answers a request if the request's artifact has the same files.
    pub(super) fn is_like(&self, request: &RenderRequest) -> bool {
        self.rendered.is_like(request)
    }
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_fraction),
        Value::Object(fields) => fields.values().any(has_fraction),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_planner::kustomization::RenderFailure;
    use tenure_planner::{Overlay, RenderInputs};

    use super::*;

    fn render(object: Value) -> Rendered {
        let request = RenderRequest {
            artifact_digest: "sha256:1".to_owned(),
            revision: "main@sha1:1".to_owned(),
            path: ".".to_owned(),
            overlay: Overlay::default(),
            inputs: RenderInputs::default(),
        };
        let origin = Origin {
            path: "app.yaml".to_owned(),
            line: 3,
        };
        let rendered = RenderedObject {
            object: Object(object),
            origin,
            confidential: true,
        };
        Rendered::new(&request, Ok(vec![rendered]), vec!["secret.yaml".to_owned()])
    }

    #[test]
    fn compacted_rendering_is_restored_unchanged() {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "data": { "a": "aHVudGVyMg==" }, "n": [u64::MAX, i64::MIN, null, true] });
        let rendered = render(secret);
        let mut kept = StoredRendering::from_success(rendered.clone()).unwrap();
        kept.compact();
        assert!(kept.bytes() > 0 && !format!("{kept:?}").contains("aHVudGVyMg"));
        kept.compact();
        let back = kept.restore().unwrap();
        assert_eq!(back.outcome, rendered.outcome);
        assert_eq!(back.changed_files, rendered.changed_files);
    }

    #[test]
    fn rendering_with_fractions_is_not_compacted() {
        let rendered = render(json!({ "spec": { "list": [0.1, 1.797_693_134_862_315_7e308] } }));
        let mut kept = StoredRendering::from_success(rendered.clone()).unwrap();
        kept.compact();
        assert_eq!(kept.bytes(), 0);
        assert_eq!(kept.restore().unwrap().outcome, rendered.outcome);
    }

    #[test]
    fn failed_rendering_is_not_stored() {
        let mut rendered = render(json!({}));
        rendered.outcome = Err(RenderFailure::default());
        assert!(StoredRendering::from_success(rendered).is_none());
    }
}
