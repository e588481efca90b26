//! JSON Pointers (RFC 6901): `/spec/replicas`, `/metadata/annotations/example.com~1key`, `/spec/list/0`.
//!
//! The module parses such a text, and finds, removes and replaces the value at the place. A place that a document doesn't have is no error; a text that is no pointer
//! is one.

use serde_json::Value;

/// A parsed JSON Pointer. A negative index counts from the end of a list, as in Flux's patches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer(Vec<String>);

impl Pointer {
    /// Reads a pointer.
    ///
    /// # Errors
    /// The problem of the text.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(if text.is_empty() {
                "is the whole object"
            } else {
                "doesn't begin with a slash"
            });
        };
        rest.split('/').map(unescape_step).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the unescaped parts of the pointer.
    pub(crate) fn steps(&self) -> &[String] {
        &self.0
    }

    /// Finds the value at the place.
    pub(crate) fn find<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(document, |at, step| find_step(at, step))
    }

    /// Removes the value at the place; the later items of a list move up.
    pub(crate) fn remove(&self, document: &mut Value) {
        let Some((last, parent)) = self.0.split_last() else {
            return;
        };
        match find_mut(document, parent) {
            Some(Value::Object(map)) => {
                map.remove(last);
            }
            Some(Value::Array(list)) => {
                if let Some(index) = find_index(last, list.len()) {
                    list.remove(index);
                }
            }
            _ => {}
        }
    }

    /// Replaces the value at the place, if there is one.
    pub(crate) fn replace(&self, document: &mut Value, value: Value) {
        if let Some(place) = find_mut(document, &self.0) {
            *place = value;
        }
    }
}

fn unescape_step(step: &str) -> Result<String, &'static str> {
    let mut read = String::with_capacity(step.len());
    let mut letters = step.chars();
    while let Some(letter) = letters.next() {
        if letter != '~' {
            read.push(letter);
            continue;
        }
        read.push(match letters.next() {
            Some('0') => '~',
            Some('1') => '/',
            _ => return Err("has a ~ that is neither ~0 nor ~1"),
        });
    }
    Ok(read)
}

/// Parses a part of a pointer as an index into a list of this length.
fn find_index(step: &str, length: usize) -> Option<usize> {
    let index = match step.strip_prefix('-') {
        Some(back) => length.checked_sub(back.parse().ok()?)?,
        None => step.parse().ok()?,
    };
    (index < length).then_some(index)
}

/// Returns the field or the list item that one part of a pointer selects.
pub(crate) fn find_step<'v>(at: &'v Value, step: &str) -> Option<&'v Value> {
    match at {
        Value::Object(map) => map.get(step),
        Value::Array(list) => list.get(find_index(step, list.len())?),
        _ => None,
    }
}

fn find_mut<'v>(document: &'v mut Value, steps: &[String]) -> Option<&'v mut Value> {
    steps.iter().try_fold(document, |at, step| match at {
        Value::Object(map) => map.get_mut(step),
        Value::Array(list) => {
            let index = find_index(step, list.len())?;
            list.get_mut(index)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pointers_are_read_and_what_is_none_is_refused() {
        for (text, steps) in [
            ("/a/b", vec!["a", "b"]),
            ("/", vec![""]),
            ("/a~1b/c~0d/~01", vec!["a/b", "c~d", "~1"]),
        ] {
            assert_eq!(Pointer::parse(text).unwrap().steps(), steps, "{text}");
        }
        for text in ["", "a", "a/b", "/a~", "/a~2", "/~"] {
            assert!(Pointer::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn existing_values_are_found_removed_and_replaced() {
        let document = json!({ "a": { "b": [1, { "c": 2 }, 3] }, "": 4 });
        let pointer = |text| Pointer::parse(text).unwrap();
        let found = |text| pointer(text).find(&document).cloned();
        assert_eq!(found("/a/b/1/c"), Some(json!(2)));
        assert_eq!(found("/"), Some(json!(4)));
        assert_eq!(found("/a/b/-1"), Some(json!(3)));
        for text in ["/a/x", "/a/b/3", "/a/b/-", "/a/b/-4", "/a/b/-0", "/a/b/x", "/a/b/0/c"] {
            assert_eq!(found(text), None, "{text}");
        }
        let without = |text| {
            let mut left = document.clone();
            pointer(text).remove(&mut left);
            left
        };
        assert_eq!(without("/a/b/0")["a"]["b"], json!([{ "c": 2 }, 3]));
        assert_eq!(without("/a"), json!({ "": 4 }));
        assert_eq!(without("/none/of/these"), document);
        let mut changed = document.clone();
        pointer("/a/b/1/c").replace(&mut changed, json!("new"));
        pointer("/a/none").replace(&mut changed, json!("new"));
        assert_eq!(changed["a"], json!({ "b": [1, { "c": "new" }, 3] }));
    }
}
