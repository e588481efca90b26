//! Reads a JSON body and detects duplicate fields, which `serde_json` alone would silently merge.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{json_syntax, remove_duplicates};

/// The depth at which a body is refused. `serde_json` alone stops at 128.
pub const DEEPEST: usize = 120;

/// The maximum number of field errors in an answer, as in Kubernetes.
pub const MOST_FAULTS: usize = 100;

/// Go's treatment of a field that occurs several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twice {
    /// The last value counts, because the target has no type.
    Last,
    /// Each object adds to the previous one, because the target has a type.
    Filled,
}

/// Parses a body. The second value holds `duplicate field "metadata.name"` for each field given more than once.
///
/// # Errors
/// Why a body is not JSON, in Go's words.
pub fn read_json(body: &[u8], twice: Twice) -> Result<(Value, Vec<String>), String> {
    let error = match read(body, twice) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    match json_syntax::find_syntax_error(body) {
        Some(fault) => Err(fault),
        // `serde_json` refuses some texts that Go accepts, such as half of a surrogate pair.
        None => read(&json_syntax::replace_invalid_text(body), twice).map_err(|_| error.to_string()),
    }
}

fn read(body: &[u8], twice: Twice) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut duplicates = Faults::default();
    let mut path = String::new();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = Seed {
        path: &mut path,
        duplicates: &mut duplicates,
        twice,
        depth: 0,
    }
    .deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((value, remove_duplicates(duplicates.texts)))
}

/// The errors about single fields, up to a limit. A path may be as long as a body, and may occur before each of a hundred thousand fields.
#[derive(Default)]
pub struct Faults {
    /// The errors in order.
    pub texts: Vec<String>,
    bytes: usize,
}

impl Faults {
    const MOST: usize = 10 * MOST_FAULTS;
    const MOST_BYTES: usize = 1024 * 1024;

    /// Adds a text, unless a limit is reached.
    pub fn add(&mut self, text: impl FnOnce() -> String) {
        if self.texts.len() < Self::MOST && self.bytes < Self::MOST_BYTES {
            let text = text();
            self.bytes += text.len();
            self.texts.push(text);
        }
    }
}

/// Reads one value, and reports duplicate fields in it. `path` is the path of the value.
struct Seed<'a> {
    path: &'a mut String,
    duplicates: &'a mut Faults,
    twice: Twice,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        if self.depth > DEEPEST {
            return Err(A::Error::custom("nested too deeply"));
        }
        let mut list = Vec::new();
        let length = self.path.len();
        loop {
            self.path.push_str(&format!("[{}]", list.len()));
            let seed = Seed {
                path: self.path,
                duplicates: self.duplicates,
                twice: self.twice,
                depth: self.depth + 1,
            };
            let item = items.next_element_seed(seed);
            self.path.truncate(length);
            match item? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        if self.depth > DEEPEST {
            return Err(A::Error::custom("nested too deeply"));
        }
        let mut map = Map::new();
        let length = self.path.len();
        while let Some(key) = entries.next_key::<String>()? {
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&key);
            if map.contains_key(&key) {
                self.duplicates.add(|| format!("duplicate field \"{}\"", self.path));
            }
            let seed = Seed {
                path: self.path,
                duplicates: self.duplicates,
                twice: self.twice,
                depth: self.depth + 1,
            };
            let value = entries.next_value_seed(seed);
            self.path.truncate(length);
            match (map.get_mut(&key), value?) {
                (Some(before), value) if self.twice == Twice::Filled => merge_into(before, value),
                (_, value) => {
                    map.insert(key, value);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

/// Fills an object in further; anything else is replaced.
fn merge_into(before: &mut Value, value: Value) {
    match (before, value) {
        (Value::Object(before), Value::Object(more)) => {
            for (key, value) in more {
                match before.get_mut(&key) {
                    Some(before) => merge_into(before, value),
                    None => {
                        before.insert(key, value);
                    }
                }
            }
        }
        (before, value) => *before = value,
    }
}

#[cfg(test)]
mod tests {
    use super::Twice;

    #[test]
    fn duplicates_are_named_with_their_path() {
        let body = br#"{"metadata":{"name":"a","name":"b"},"list":[{"k":1},{"k":1,"k":2}],"data":{"b":1,"b":2,"b":3}}"#;
        let (value, duplicates) = super::read_json(body, Twice::Last).unwrap();
        assert_eq!(
            duplicates,
            [
                "duplicate field \"metadata.name\"",
                "duplicate field \"list[1].k\"",
                "duplicate field \"data.b\""
            ]
        );
        assert_eq!(value.pointer("/data/b"), Some(&serde_json::json!(3)));
        let fault = super::read_json(b"{} x", Twice::Last).unwrap_err();
        assert_eq!(fault, "invalid character 'x' after top-level value");
        let (halved, _) = super::read_json(br#""\ud800""#, Twice::Last).unwrap();
        assert_eq!(halved, "\u{fffd}");
        assert!(super::read_json("[".repeat(100_000).as_bytes(), Twice::Last).is_err());
    }

    #[test]
    fn duplicate_json_objects_are_merged() {
        let body =
            br#"{"metadata":{"name":"a","labels":{"x":"1"}},"metadata":{"labels":{"y":"2"}},"list":[1],"list":[2]}"#;
        let (value, _) = super::read_json(body, Twice::Filled).unwrap();
        let filled = serde_json::json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "list": [2]});
        assert_eq!(value, filled);
    }
}
