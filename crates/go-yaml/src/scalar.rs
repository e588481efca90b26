//! The meaning of a plain scalar in both dialects: YAML 1.1 as yaml.v2 reads it (kustomization files and the final output), and the mixture
//! of versions that yaml.v3 reads (resources).

use std::borrow::Cow;

use super::node::{Node, Style, Tag};
use super::number;
use super::timestamp;

/// A scalar with its meaning.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar<'text> {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer of up to 64 bits, with or without a sign.
    Int(i128),
    /// A floating-point number.
    Float(f64),
    /// A string.
    Text(Cow<'text, str>),
    /// The timestamp as RFC 3339.
    Timestamp(String),
    /// The key `<<`.
    Merge,
}

impl Scalar<'_> {
    fn into_owned(self) -> Scalar<'static> {
        match self {
            Scalar::Null => Scalar::Null,
            Scalar::Bool(truth) => Scalar::Bool(truth),
            Scalar::Int(integer) => Scalar::Int(integer),
            Scalar::Float(float) => Scalar::Float(float),
            Scalar::Text(text) => Scalar::Text(text.into_owned().into()),
            Scalar::Timestamp(time) => Scalar::Timestamp(time),
            Scalar::Merge => Scalar::Merge,
        }
    }

    /// Returns the type.
    #[must_use]
    pub fn tag(&self) -> Tag {
        match self {
            Scalar::Null => Tag::Null,
            Scalar::Bool(_) => Tag::Bool,
            Scalar::Int(_) => Tag::Int,
            Scalar::Float(_) => Tag::Float,
            Scalar::Text(_) => Tag::Str,
            Scalar::Timestamp(_) => Tag::Timestamp,
            Scalar::Merge => Tag::Merge,
        }
    }
}

/// The Go library that reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// yaml.v2: `yes`, `on` and `y` are booleans.
    V2,
    /// yaml.v3: only `true` and `false` are booleans; `0o17` is an integer.
    V3,
}

/// Returns the meaning of plain text.
#[must_use]
pub fn resolve(text: &str, dialect: Dialect) -> Scalar<'_> {
    resolve_wanted(text, dialect, true)
}

fn resolve_wanted(text: &str, dialect: Dialect, timestamps: bool) -> Scalar<'_> {
    let Some(first) = text.bytes().next() else {
        return Scalar::Null;
    };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => resolve_word(text, dialect),
        b'.' => resolve_dotted(text),
        b'+' | b'-' | b'0'..=b'9' => resolve_numeric(text, dialect, timestamps),
        b'<' if text == "<<" && dialect == Dialect::V2 => Scalar::Text(text.into()),
        b'<' if text == "<<" => Scalar::Merge,
        _ => Scalar::Text(text.into()),
    }
}

fn resolve_word(text: &str, dialect: Dialect) -> Scalar<'_> {
    match text {
        "true" | "True" | "TRUE" => Scalar::Bool(true),
        "false" | "False" | "FALSE" => Scalar::Bool(false),
        "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" if dialect == Dialect::V2 => Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" if dialect == Dialect::V2 => Scalar::Bool(false),
        _ => Scalar::Text(text.into()),
    }
}

fn resolve_dotted(text: &str) -> Scalar<'_> {
    match text {
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" => Scalar::Float(f64::INFINITY),
        _ => number::parse_float(text).map_or_else(|| Scalar::Text(text.into()), Scalar::Float),
    }
}

fn resolve_numeric(text: &str, dialect: Dialect, timestamps: bool) -> Scalar<'_> {
    match text {
        "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if timestamps && let Some(time) = timestamp::normalize(text) {
        return Scalar::Timestamp(time);
    }
    let plain: String = text.chars().filter(|character| *character != '_').collect();
    if let Some(integer) = number::parse_integer(&plain) {
        return Scalar::Int(integer);
    }
    if number::looks_like_yaml_float(&plain)
        && let Some(float) = number::parse_float(&plain)
    {
        return Scalar::Float(float);
    }
    // yaml.v3 also accepts "0o-7" and similar texts as numbers. No author means a number by these, so they are texts here.
    let _ = dialect;
    Scalar::Text(text.into())
}

/// Checks whether YAML 1.1 would read plain text as something other than a string. Text of several lines is always a string.
pub(crate) fn is_non_string_in_yaml_1_1(text: &str) -> bool {
    if text.is_empty() || text.contains('\n') {
        return false;
    }
    // Text that isn't a plain scalar (a comment, a flow collection) is read as the thing that it looks like.
    let trimmed = text.trim_matches(' ');
    if trimmed.starts_with('#') {
        return true;
    }
    match resolve(trimmed, Dialect::V2) {
        Scalar::Text(_) | Scalar::Timestamp(_) => false,
        Scalar::Null | Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float(_) | Scalar::Merge => true,
    }
}

/// Returns the meaning of a node after yaml.v3 wrote it and read it back. Quotes make a string, and a decided tag must fit the text.
///
/// # Errors
/// If the tag doesn't fit the text, in yaml.v3's words.
pub fn resolve_node(node: &Node, dialect: Dialect) -> Result<Scalar<'_>, String> {
    let text = node.text();
    if node.tagged {
        return match with_tag(text, &node.tag, dialect)? {
            Scalar::Text(_) if is_folded_again(node, dialect) => {
                with_tag(&super::folded::written_and_read(text), &node.tag, dialect).map(Scalar::into_owned)
            }
            meant => Ok(meant),
        };
    }
    match &node.tag {
        Tag::Str | Tag::None if is_folded_again(node, dialect) => {
            Ok(Scalar::Text(super::folded::written_and_read(text).into()))
        }
        Tag::Null if node.style == Style::LeftOut && dialect == Dialect::V3 => Ok(Scalar::Text("".into())),
        Tag::Str => Ok(Scalar::Text(text.into())),
        Tag::None if node.style != Style::Plain || text.contains('\n') => Ok(Scalar::Text(text.into())),
        Tag::None => Ok(resolve(text, dialect)),
        tag => {
            let resolved = resolve(text, dialect);
            if resolved.tag() == *tag {
                return Ok(if node.style != Style::Plain {
                    Scalar::Text(text.into())
                } else {
                    resolved
                });
            }
            with_tag(text, tag, dialect)
        }
    }
}

/// Checks whether yaml.v3's emitter writes a text as a folded block before it is decoded.
fn is_folded_again(node: &Node, dialect: Dialect) -> bool {
    node.style == Style::Folded && dialect == Dialect::V3
}

fn with_tag<'text>(text: &'text str, tag: &Tag, dialect: Dialect) -> Result<Scalar<'text>, String> {
    match tag {
        Tag::Str => return Ok(Scalar::Text(text.into())),
        Tag::Binary => return decode_binary(text),
        // These tags, also those of collections, have no meaning for a scalar.
        Tag::Other | Tag::Map | Tag::Seq | Tag::Merge => return Ok(Scalar::Text(text.into())),
        _ => {}
    }
    let resolved = resolve_wanted(text, dialect, *tag == Tag::Timestamp);
    let found = resolved.tag();
    if found == *tag {
        return Ok(resolved);
    }
    if let (Tag::Float, Scalar::Int(integer)) = (tag, &resolved) {
        #[expect(clippy::cast_precision_loss, reason = "Go converts in the same way")]
        return Ok(Scalar::Float(*integer as f64));
    }
    Err(format!("cannot decode {} `{text}` as a {}", found.name(), tag.name()))
}

fn decode_binary(text: &str) -> Result<Scalar<'static>, String> {
    use base64::Engine;
    let compact: String = text
        .chars()
        .filter(|character| !matches!(character, '\r' | '\n'))
        .collect();
    base64::engine::general_purpose::STANDARD
        .decode(compact)
        .map(|bytes| Scalar::Text(String::from_utf8_lossy(&bytes).into_owned().into()))
        .map_err(|_| "!!binary value contains invalid base64 data".to_owned())
}
