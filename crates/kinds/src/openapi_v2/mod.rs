//! OpenAPI v2 made from the OpenAPI v3 documents that are served: one document of everything, as JSON and in the protobuf
//! form that client-go asks for. Pure. Refuses to know anything that is not in version 3: what version 2 can't say is left out.

mod convert;
mod gnostic;

use bytes::Bytes;
use serde_json::{Value, json};

/// The document in both forms.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// As JSON.
    pub json: Bytes,
    /// As gnostic's protobuf.
    pub protobuf: Bytes,
}

/// Joins documents of version 3; what is defined more than once is taken from the first.
pub fn render(documents: impl IntoIterator<Item = Value>, minor: &str) -> Rendered {
    let (mut paths, mut definitions) = Default::default();
    for document in documents {
        convert::add(&document, &mut paths, &mut definitions);
    }
    let document = json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": format!("1.{minor}")},
        "paths": Value::Object(paths),
        "definitions": Value::Object(definitions),
        "securityDefinitions": {
            "BearerToken": {
                "description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header",
            },
        },
        "security": [{"BearerToken": []}],
    });
    Rendered {
        json: Bytes::from(document.to_string()),
        protobuf: Bytes::from(gnostic::document(&document)),
    }
}
