//! YAML over YAML, as Helm merges values. Maps are merged, everything else is replaced.
//!
//! Both texts come from tenants: the work on them is bounded, and errors don't quote them.

use go_yaml::json::configuration_value;
use go_yaml::meter::{self, Allowance};
use go_yaml::read::{Lines, Source, first_document, split_documents};
use go_yaml::scalar::Dialect;
use serde_json::{Map, Value};

/// Bytes of one text.
const LONGEST: usize = 4 << 20;
/// Nodes of one document, aliases expanded.
const MOST_NODES: usize = 500_000;
/// Maps within maps.
const MOST_DEPTH: usize = 200;
/// The bytes and steps that reading and writing one file may take.
const ALLOWANCE: Allowance = Allowance {
    bytes: 256 << 20,
    steps: 50_000_000,
};

/// Merges the documents of `over` into those of `base`, and writes the result.
pub(crate) fn merge_documents(base: &[u8], over: &[u8]) -> Result<Vec<u8>, String> {
    let _metering = meter::start_metering(ALLOWANCE, None);
    let mut merged = read(base).map_err(|problem| format!("the existing file {problem}"))?;
    let over = read(over).map_err(|problem| format!("the merged file {problem}"))?;
    lay_over(&mut merged, over, 0)?;
    let text = go_yaml::emit::write_document(&Value::Object(merged));
    if let Some(spent) = meter::exhausted_limit() {
        return Err(format!("is too large to be merged: {spent}"));
    }
    Ok(text.into_bytes())
}

/// Merges texts with a name each, a later one over an earlier one, and writes the result.
pub(crate) fn merge_maps<'a>(texts: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<Vec<u8>, String> {
    let _metering = meter::start_metering(ALLOWANCE, None);
    let mut merged = Map::new();
    for (name, text) in texts {
        let over = read(text).map_err(|problem| format!("the file '{name}' {problem}"))?;
        lay_over(&mut merged, over, 0)?;
    }
    let text = go_yaml::emit::write_document(&Value::Object(merged));
    if let Some(spent) = meter::exhausted_limit() {
        return Err(format!("the files are too large to be merged: {spent}"));
    }
    Ok(text.into_bytes())
}

/// Reads a text that is a map.
pub(crate) fn read_map(text: &[u8]) -> Result<Map<String, Value>, String> {
    let _metering = meter::start_metering(ALLOWANCE, None);
    let read = read(text)?;
    if let Some(spent) = meter::exhausted_limit() {
        return Err(format!("is too large: {spent}"));
    }
    Ok(read)
}

/// Reads all documents of a text and merges them in order.
fn read(text: &[u8]) -> Result<Map<String, Value>, String> {
    if text.len() > LONGEST {
        return Err(format!("is longer than {LONGEST} bytes"));
    }
    let text = std::str::from_utf8(text).map_err(|_| "is not UTF-8 text")?;
    let unread = |line: u32| format!("can't be read as YAML: line {line}");
    let mut merged = Map::new();
    for chunk in split_documents(text).map_err(|error| unread(error.line))? {
        let source = Source {
            file: 0,
            lines: Lines::After(chunk.lines_before),
            maximum_nodes: MOST_NODES,
            scanner: Dialect::V2,
        };
        let Some(node) = first_document(chunk.text, source).map_err(|error| unread(error.line))? else {
            continue;
        };
        match configuration_value(&node).map_err(|error| unread(error.line))? {
            Value::Object(map) => lay_over(&mut merged, map, 0)?,
            Value::Null => {}
            _ => return Err("is YAML, and no map".to_owned()),
        }
    }
    Ok(merged)
}

/// Merges `over` into `base`: maps are merged by key, and any other value replaces the existing one.
fn lay_over(base: &mut Map<String, Value>, over: Map<String, Value>, depth: usize) -> Result<(), String> {
    if depth > MOST_DEPTH {
        return Err(format!("has maps within maps more than {MOST_DEPTH} deep"));
    }
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Object(base)), Value::Object(over)) => lay_over(base, over, depth + 1)?,
            (_, value) => drop(base.insert(key, value)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::merge_documents;

    fn check(base: &str, over: &str, expected: &str) {
        let merged = merge_documents(base.as_bytes(), over.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(merged).unwrap(), expected);
    }

    #[test]
    fn maps_are_merged_and_the_rest_is_replaced() {
        check(
            "image:\n  name: app\n  tag: v1\nports: [1, 2]\n",
            "image:\n  tag: v2\nports:\n- 3\nnew: true\n",
            "image:\n  name: app\n  tag: v2\nnew: true\nports:\n- 3\n",
        );
        check("a: 1\n", "a:\n", "a: null\n");
        check("a: {b: 1}\n", "a: text\n", "a: text\n");
        check("a: 1\n---\nb: 2\n", "---\nc: 3\n---\nc: 4\n", "a: 1\nb: 2\nc: 4\n");
        check("", "a: 1\n", "a: 1\n");
    }

    #[test]
    fn yaml_without_a_map_is_refused_without_quoting() {
        for text in ["- secret\n", "secret\n", "a: [secret\n", "\u{0}secret"] {
            let problem = merge_documents(b"a: 1\n", text.as_bytes()).unwrap_err();
            assert!(!problem.contains("secret"), "{problem}");
        }
    }

    #[test]
    fn a_bomb_of_aliases_ends() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let names = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{names}]\n"));
        }
        assert!(merge_documents(b"a: 1\n", bomb.as_bytes()).is_err());
    }
}
