//! Dotenv files in SOPS' form: one `KEY=value` per line, comments that begin with `#`, and `\n` for a line end in a value.

use zeroize::Zeroizing;

use crate::error::Error;
use crate::text;
use crate::tree::{Comment, Document, Entry, Node, NodeCounter, Span, Value};

/// Reads a dotenv file into a document.
///
/// # Errors
/// For a line that is neither empty, nor a comment, nor a pair.
pub(crate) fn read(file: &str, count: &mut NodeCounter) -> Result<Document, Error> {
    let mut entries = Vec::new();
    for (index, line) in file.split('\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        count.count_node(1)?;
        go_yaml::meter::count_text(line.len());
        if let Some(comment) = line.strip_prefix('#') {
            entries.push(Entry::Comment(Comment::new(comment, Span::default())));
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err(Error::Syntax {
                line: index + 1,
                what: "it is not a line of a dotenv file: there is no `=`",
            });
        };
        entries.push(Entry::Pair {
            key: key.to_owned(),
            value: Node::text(value.replace("\\n", "\n")),
            whole: Span::default(),
        });
    }
    Ok(Document {
        entries,
        cuts: Vec::new(),
        is_flow: false,
    })
}

/// Writes a document as a dotenv file.
///
/// # Errors
/// When a value is a map or a list.
pub(crate) fn write(document: &Document) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut file = Zeroizing::new(Vec::new());
    for entry in &document.entries {
        match entry {
            Entry::Comment(comment) => {
                file.push(b'#');
                file.extend_from_slice(comment.text.as_bytes());
            }
            Entry::Pair { key, value, .. } => {
                file.extend_from_slice(key.as_bytes());
                file.push(b'=');
                match &value.value {
                    Value::Text(text) => file.extend_from_slice(text.replace('\n', "\\n").as_bytes()),
                    Value::Bytes(bytes) => {
                        for byte in bytes.iter() {
                            match byte {
                                b'\n' => file.extend_from_slice(b"\\n"),
                                other => file.push(*other),
                            }
                        }
                    }
                    other => file.extend_from_slice(&as_text(other)?),
                }
            }
        }
        file.push(b'\n');
    }
    go_yaml::meter::count_bytes(file.len());
    Ok(file)
}

/// Writes a simple value as a text (`stores.ValToString`).
///
/// # Errors
/// When the value is a map or a list.
pub(crate) fn as_text(value: &Value) -> Result<Zeroizing<Vec<u8>>, Error> {
    let written = match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => text::float_of_value(*number),
        Value::Text(text) | Value::Time(text) => text.to_string(),
        Value::Bytes(bytes) => return Ok(bytes.clone()),
        Value::Comment(_) | Value::Map(_) | Value::List(_) => {
            return Err(Error::Unwritable("a value with parts can't be written in this format"));
        }
    };
    Ok(Zeroizing::new(written.into_bytes()))
}
