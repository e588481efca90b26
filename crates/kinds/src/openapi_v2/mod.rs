//! OpenAPI v2, made from the served OpenAPI v3 documents: one document of everything, as JSON and in the protobuf form that client-go asks
//! for. The conversion is pure. Its only input is version 3, and parts that version 2 can't express are left out.

mod convert;
mod gnostic;

use bytes::Bytes;
use serde_json::{Value, json};

/// The document in both forms.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The document as JSON.
    pub json: Bytes,
    /// The document as gnostic's protobuf.
    pub protobuf: Bytes,
}

/// Joins documents of version 3. For a duplicate definition, the first one counts.
pub fn render_openapi(documents: impl IntoIterator<Item = Value>, minor: &str) -> Rendered {
    let (mut paths, mut definitions) = Default::default();
    for document in documents {
        convert::add_document(&document, &mut paths, &mut definitions);
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
        protobuf: Bytes::from(gnostic::encode_document(&document)),
    }
}
