//! Paths to fields: their order, their text form in messages, and the reading of paths that users type. Paths are independent of schemas
//! and sets.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde_json::Value;

use crate::json;

/// A step from a container to one of its values.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// The field of a map or struct with this name.
    Field(Arc<str>),
    /// The item of a list map with these key fields, sorted by name.
    Key(Arc<[KeyField]>),
    /// The item of a list set that is this scalar.
    Value(Arc<Value>),
    /// The item of a list at this position. Kubernetes reads it but never writes it.
    Index(i64),
}

/// A key field of a list-map item.
#[derive(Clone, Debug)]
pub struct KeyField {
    /// The name of the field.
    pub name: Arc<str>,
    /// The value; the schema's default if the item lacks the field.
    pub value: Value,
}

impl PathElement {
    /// Returns the step to the field `name`.
    #[must_use]
    pub fn field(name: &str) -> Self {
        Self::Field(Arc::from(name))
    }

    /// Returns the step to the list-map item with these key fields, in any order.
    #[must_use]
    pub fn key<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        Self::from_key_fields(
            fields
                .into_iter()
                .map(|(name, value)| KeyField {
                    name: Arc::from(name),
                    value,
                })
                .collect(),
        )
    }

    pub(crate) fn from_key_fields(mut fields: Vec<KeyField>) -> Self {
        fields.sort_by(|left, right| left.name.cmp(&right.name));
        Self::Key(Arc::from(fields))
    }

    /// Returns the step to the list-set item `value`.
    #[must_use]
    pub fn value(value: Value) -> Self {
        Self::Value(Arc::new(value))
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    pub(crate) fn write_text(&self, out: &mut String) {
        match self {
            Self::Field(name) => {
                out.push('.');
                out.push_str(name);
            }
            Self::Key(fields) => {
                out.push('[');
                for (index, field) in fields.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(&field.name);
                    out.push('=');
                    json::write_text(out, &field.value);
                }
                out.push(']');
            }
            Self::Value(value) => {
                out.push_str("[=");
                json::write_text(out, value);
                out.push(']');
            }
            Self::Index(index) => out.push_str(&format!("[{index}]")),
        }
    }
}

impl Ord for PathElement {
    /// Fields before keys before values before indexes, as FieldsV1 sorts them.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => {
                let first_difference = left
                    .iter()
                    .zip(right.iter())
                    .map(|(left, right)| {
                        left.name
                            .cmp(&right.name)
                            .then_with(|| json::compare_values(&left.value, &right.value))
                    })
                    .find(|order| order.is_ne());
                first_difference.unwrap_or_else(|| left.len().cmp(&right.len()))
            }
            (Self::Value(left), Self::Value(right)) => json::compare_values(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            (left, right) => left.rank().cmp(&right.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

impl fmt::Display for PathElement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write_text(&mut out);
        formatter.write_str(&out)
    }
}

/// A path from an object's root, written as in Kubernetes' messages: `.spec.ports[port=80,protocol="TCP"].name`,
/// `.metadata.finalizers[="a"]`.
///
/// Reading is more lenient, for users: the first dot is optional, and a field name with dots or brackets may be written as `['name']` or
/// `["name"]`.
///
/// ```
/// use structured_merge::FieldPath;
/// let path: FieldPath = r#"spec.containers[name="app"].image"#.parse()?;
/// assert_eq!(path.to_string(), r#".spec.containers[name="app"].image"#);
/// # Ok::<(), structured_merge::PathError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(pub Vec<PathElement>);

impl FieldPath {
    /// Creates a path of plain field names.
    #[must_use]
    pub fn of_fields(names: &[&str]) -> Self {
        Self(names.iter().map(|name| PathElement::field(name)).collect())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        for element in &self.0 {
            element.write_text(&mut out);
        }
        formatter.write_str(&out)
    }
}

/// A text that is not a path, and where it stops being one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a field path: {problem} at character {at}; write it like .spec.containers[name=\"app\"].image"
)]
pub struct PathError {
    text: String,
    at: usize,
    problem: &'static str,
}

impl FromStr for FieldPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut reader = Reader { text, at: 0 };
        reader.read_path().map(Self).map_err(|problem| PathError {
            text: text.to_owned(),
            at: reader.at,
            problem,
        })
    }
}

/// The text of a path, and the position of the next character.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn eat_char(&mut self, wanted: char) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn take_until(&mut self, ends: &[char]) -> &'a str {
        let rest = self.rest();
        let length = rest.find(ends).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or("")
    }

    fn read_path(&mut self) -> Result<Vec<PathElement>, &'static str> {
        let mut elements = Vec::new();
        self.eat_char('.');
        while !self.rest().is_empty() {
            if self.eat_char('[') {
                elements.push(self.read_bracket()?);
            } else {
                if !elements.is_empty() && !self.eat_char('.') {
                    return Err("a dot or a bracket is missing");
                }
                let name = self.take_until(&['.', '[', ']']);
                if name.is_empty() {
                    return Err("a field name is missing");
                }
                elements.push(PathElement::field(name));
            }
        }
        Ok(elements)
    }

    fn read_bracket(&mut self) -> Result<PathElement, &'static str> {
        let element = if self.eat_char('=') {
            PathElement::value(self.read_scalar()?)
        } else if self.rest().starts_with(['"', '\'']) {
            match self.read_scalar()? {
                Value::String(name) => PathElement::field(&name),
                _ => return Err("a quoted field name is missing"),
            }
        } else if let Ok(index) = self.rest().split(']').next().unwrap_or("").parse() {
            self.take_until(&[']']);
            PathElement::Index(index)
        } else {
            let mut fields = Vec::new();
            loop {
                let name = self.take_until(&['=', ']', ',']);
                if name.is_empty() || !self.eat_char('=') {
                    return Err("a key is missing");
                }
                fields.push(KeyField {
                    name: Arc::from(name),
                    value: self.read_scalar()?,
                });
                if !self.eat_char(',') {
                    break PathElement::from_key_fields(fields);
                }
            }
        };
        if self.eat_char(']') {
            Ok(element)
        } else {
            Err("a closing bracket is missing")
        }
    }

    fn read_scalar(&mut self) -> Result<Value, &'static str> {
        if self.eat_char('\'') {
            let text = self.take_until(&['\'']);
            return if self.eat_char('\'') {
                Ok(Value::from(text))
            } else {
                Err("a closing quote is missing")
            };
        }
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<Value>();
        if let Some(Ok(value)) = values.next() {
            self.at += values.byte_offset();
            return Ok(value);
        }
        // A bare word is a string: [name=app].
        let word = self.take_until(&[',', ']']);
        if word.is_empty() || word.starts_with(['"', '{', '[']) {
            Err("a value is missing")
        } else {
            Ok(Value::from(word))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, written: Result<&str, &str>) {
        let found = text.parse::<FieldPath>();
        match (&found, written) {
            (Ok(path), Ok(written)) => assert_eq!(path.to_string(), written),
            (Err(error), Err(problem)) => assert_eq!(error.problem, problem),
            _ => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn reads_paths() {
        check(".spec.replicas", Ok(".spec.replicas"));
        check("spec.replicas", Ok(".spec.replicas"));
        check(
            r#"spec.ports[protocol="TCP",port=80].name"#,
            Ok(r#".spec.ports[port=80,protocol="TCP"].name"#),
        );
        check("spec.containers[name=app]", Ok(r#".spec.containers[name="app"]"#));
        check(r#"metadata.finalizers[="a/b"]"#, Ok(r#".metadata.finalizers[="a/b"]"#));
        check(
            r#"metadata.labels["app.kubernetes.io/name"]"#,
            Ok(".metadata.labels.app.kubernetes.io/name"),
        );
        check("metadata.labels['a.b']", Ok(".metadata.labels.a.b"));
        check("a[3]", Ok(".a[3]"));
        check("", Ok(""));
        check("a..b", Err("a field name is missing"));
        check("a[", Err("a key is missing"));
        check("a[name=", Err("a value is missing"));
        check("a[name=b", Err("a closing bracket is missing"));
        check("a]b", Err("a dot or a bracket is missing"));
    }
}
