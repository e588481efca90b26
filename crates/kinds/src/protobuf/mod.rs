//! Reads protobuf request bodies, which typed Go clients send for every built-in kind.
//!
//! This module reads the frame (`k8s\0` and `runtime.Unknown`) and translates a message into JSON, the form that all other code uses. The
//! translation follows a table recorded from Kubernetes' `generated.proto` files. This module never writes protobuf, because every such
//! client reads JSON answers.

mod extent;
mod messages;
mod wire;

use serde_json::{Map, Value};

use crate::schema::BuiltinSchemas;
pub use extent::Extent;
use wire::Reader;

/// A body that does not match its declared form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The first four bytes are not `k8s\0`.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NotFramed,
    /// The body ends in the middle of a field, or holds an impossible number.
    #[error("the protobuf body is truncated or malformed at byte {0}")]
    Malformed(usize),
    /// Text that is not UTF-8.
    #[error("the protobuf body has a string that is not UTF-8 at byte {0}")]
    NotUtf8(usize),
    /// Messages within messages without end.
    #[error("the protobuf body is nested too deeply")]
    TooDeep,
    /// A kind that is not served in protobuf.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The `apiVersion` of the frame.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// The frame declares content other than protobuf.
    #[error("unsupported content type {0:?} in a protobuf frame")]
    ContentType(String),
}

const MAGIC: &[u8] = b"k8s\0";

/// Returns whether a body begins with the protobuf frame.
pub fn is_framed(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// Decodes a framed body into JSON form, `apiVersion` and `kind` included.
///
/// # Errors
/// A body that is not a frame, of an unknown kind, or malformed; the server answers 400.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let Frame { api_version, kind, raw } = Frame::read(body)?;
    let definition = find_definition(api_version, kind)?;
    let mut object = messages::decode(&definition, raw)?;
    if let Value::Object(map) = &mut object {
        map.insert("apiVersion".into(), api_version.into());
        map.insert("kind".into(), kind.into());
    }
    Ok(object)
}

/// Returns the maximum number of parts that [`decode`] makes of a body. For a body that it refuses, the result covers the parts made before
/// the error. JSON inside the body is passed to `json` and not counted.
pub fn measure_extent<'a>(body: &'a [u8], json: &mut dyn FnMut(&'a [u8])) -> Extent {
    let mut sum = Extent::default();
    let Ok(Frame { api_version, kind, raw }) = Frame::read(body) else {
        return sum;
    };
    if let Ok(definition) = find_definition(api_version, kind) {
        // A malformed part ends the count, as it ends the decoding.
        let _counted = extent::measure_message(&mut sum, json, &definition, Reader::new(raw, 0), 0);
        sum.maps += 1;
        sum.entries += 2;
        sum.texts += 4;
        sum.bytes += api_version.len() + kind.len() + 16;
    }
    sum
}

/// The frame of a message: its type and its bytes.
struct Frame<'a> {
    api_version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
}

impl<'a> Frame<'a> {
    fn read(body: &'a [u8]) -> Result<Self, ProtobufError> {
        let frame = body.strip_prefix(MAGIC).ok_or(ProtobufError::NotFramed)?;
        let (mut api_version, mut kind, mut content_type) = ("", "", "");
        let mut raw: &[u8] = &[];
        let mut reader = Reader::new(frame, MAGIC.len());
        while let Some((number, value)) = reader.read_field()? {
            match number {
                1 => {
                    let mut meta = value.message()?;
                    while let Some((number, value)) = meta.read_field()? {
                        match number {
                            1 => api_version = value.text()?,
                            2 => kind = value.text()?,
                            _ => {}
                        }
                    }
                }
                2 => raw = value.bytes()?,
                4 => content_type = value.text()?,
                _ => {}
            }
        }
        if !matches!(content_type, "" | "application/vnd.kubernetes.protobuf") {
            return Err(ProtobufError::ContentType(content_type.to_owned()));
        }
        Ok(Self { api_version, kind, raw })
    }
}

fn find_definition(api_version: &str, kind: &str) -> Result<String, ProtobufError> {
    if kind == "DeleteOptions" {
        return Ok("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions".to_owned());
    }
    let name = BuiltinSchemas::instance().definition_name(api_version, kind);
    let name = name.filter(|name| messages::is_known(name));
    name.map(|name| name.to_owned())
        .ok_or_else(|| ProtobufError::UnknownKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })
}

/// Returns an empty object, for messages without fields.
fn empty_object() -> Value {
    Value::Object(Map::new())
}

#[cfg(test)]
mod tests;
