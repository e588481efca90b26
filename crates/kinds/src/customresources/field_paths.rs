//! The `fieldPath` of a validation rule: the field below the rule's own field that an error names.

use serde_json::Value;

/// Returns the path as errors write it, `spec.ports[http]`; `None` if the schema has no such field.
pub(super) fn normalize_path(path: &str, schema: &Value) -> Option<String> {
    let mut written = String::new();
    let mut schema = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            let (field, remaining) = after.split_at(end);
            name = field.to_owned();
            rest = remaining;
        } else {
            let (quoted, remaining) = parse_quoted_name(rest.strip_prefix("['")?)?;
            name = quoted;
            rest = remaining;
        }
        if name.is_empty() {
            return None;
        }
        let properties = schema.get("properties").filter(|properties| properties.is_object());
        match properties {
            Some(properties) => {
                schema = properties.get(&name)?;
                if !written.is_empty() {
                    written.push('.');
                }
                written.push_str(&name);
            }
            None => {
                schema = schema.get("additionalProperties").filter(|values| values.is_object())?;
                written.push_str(&format!("[{name}]"));
            }
        }
    }
    (!written.is_empty()).then_some(written)
}

/// Reads up to the closing quote and bracket; returns the name and the rest.
fn parse_quoted_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\'' => return Some((name, text.get(at..)?.strip_prefix("']")?)),
            '\\' => name.push(match letters.next()?.1 {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                same @ ('\'' | '\\') => same,
                _ => return None,
            }),
            other => name.push(other),
        }
    }
    None
}
