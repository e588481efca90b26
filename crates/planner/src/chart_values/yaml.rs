//! Values in a text, as Secrets and ConfigMaps have them: YAML as Helm reads it, with every digit of its numbers. JSON is such a text, too.

use std::collections::BTreeMap;

use go_yaml::merge_keys;
use go_yaml::node::{Data, Node, Style};
use go_yaml::read::{Lines, Source, first_document};
use go_yaml::scalar::{Dialect, Scalar, resolve, resolve_node};

use super::exact::{ExactNumber, ExactValue};
use super::{Path, ValuesError};

/// The most nodes of a text, aliases expanded.
const MOST_NODES: usize = 100_000;

/// Reads the values of a text. An empty text has none.
///
/// # Errors
/// If the text is no YAML, has a key twice, has too many levels or nodes, or is no map.
pub fn read_yaml(text: &str) -> Result<BTreeMap<String, ExactValue>, ValuesError> {
    let source = Source {
        file: 0,
        lines: Lines::After(0),
        maximum_nodes: MOST_NODES,
        scanner: Dialect::V2,
    };
    let fail = |line: u32, problem: &str| ValuesError::at("", format!("line {line}: {problem}"));
    let document = first_document(text, source).map_err(|error| fail(error.line, &error.message))?;
    let Some(mut document) = document else {
        return Ok(BTreeMap::new());
    };
    check_levels(&document, &Path::Root, 0)?;
    if let Some(key) = merge_keys::find_duplicate_key(&document) {
        return Err(fail(
            key.line,
            &format!("the key {:?} occurs twice in one map", key.text()),
        ));
    }
    merge_keys::fold(&mut document, false).map_err(|(line, problem)| fail(line, &problem))?;
    match read_node(&document, &Path::Root)? {
        ExactValue::Map(values) => Ok(values),
        _ => Err(fail(document.line, "the values are no map")),
    }
}

/// Refuses a document that is too deep, before anything visits all of it.
fn check_levels(node: &Node, path: &Path<'_>, levels: usize) -> Result<(), ValuesError> {
    path.check_depth(levels)?;
    match &node.data {
        Data::Scalar(_) => Ok(()),
        Data::Seq(items) => {
            let mut items = items.iter().enumerate();
            items.try_for_each(|(index, item)| check_levels(item, &Path::Index(path, index), levels + 1))
        }
        Data::Map(entries) => entries.iter().try_for_each(|(key, value)| {
            path.check_key(key.text())?;
            check_levels(key, path, levels + 1)?;
            check_levels(value, &Path::Key(path, key.text()), levels + 1)
        }),
    }
}

fn read_node(node: &Node, path: &Path<'_>) -> Result<ExactValue, ValuesError> {
    match &node.data {
        Data::Scalar(_) => read_scalar(node, path),
        Data::Seq(items) => {
            let items = items.iter().enumerate();
            let items = items.map(|(index, item)| read_node(item, &Path::Index(path, index)));
            Ok(ExactValue::List(items.collect::<Result<_, _>>()?))
        }
        Data::Map(entries) => {
            let mut read = BTreeMap::new();
            for (key, value) in entries.iter() {
                let name = read_key(key, path)?;
                let value = read_node(value, &Path::Key(path, &name))?;
                read.insert(name, value);
            }
            Ok(ExactValue::Map(read))
        }
    }
}

/// Reads a key. Helm writes keys that aren't texts as texts.
fn read_key(key: &Node, path: &Path<'_>) -> Result<String, ValuesError> {
    if !key.is_scalar() {
        return Err(ValuesError::new(path, format!("line {}: a key is no text", key.line)));
    }
    match read_scalar(key, path)? {
        ExactValue::Text(text) => Ok(text),
        value => Ok(value.to_string()),
    }
}

fn read_scalar(node: &Node, path: &Path<'_>) -> Result<ExactValue, ValuesError> {
    let fail = |problem: String| ValuesError::new(path, format!("line {}: {problem}", node.line));
    let is_plain = node.style == Style::Plain && !node.tagged;
    if is_plain && let Some(number) = ExactNumber::read(node.text()) {
        return Ok(ExactValue::Number(number));
    }
    // The reader has decided the types by a newer version of YAML. Helm reads `yes` as true.
    let meant = match is_plain {
        true => resolve(node.text(), Dialect::V2),
        false => resolve_node(node, Dialect::V2).map_err(fail)?,
    };
    match meant {
        Scalar::Null => Ok(ExactValue::Null),
        Scalar::Bool(truth) => Ok(ExactValue::Bool(truth)),
        Scalar::Int(integer) => Ok(ExactValue::Number(integer.into())),
        Scalar::Float(float) => {
            let exact = read_decimal(node.text());
            let number = exact.or_else(|| {
                float
                    .is_finite()
                    .then(|| ExactNumber::read(&go_yaml::format_json(float)))?
            });
            let number = number.ok_or_else(|| fail(format!("{:?} is no number that JSON can hold", node.text())))?;
            Ok(ExactValue::Number(number))
        }
        Scalar::Text(text) => Ok(ExactValue::Text(text.into_owned())),
        Scalar::Timestamp(_) | Scalar::Merge => Ok(ExactValue::Text(node.text().to_owned())),
    }
}

/// Reads a decimal number that YAML writes in more ways than JSON: `+1.5`, `.5`, `5.`, `007.5`, `1_000.5`.
fn read_decimal(text: &str) -> Option<ExactNumber> {
    let plain: String = text.chars().filter(|character| *character != '_').collect();
    let (sign, unsigned) = match plain.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, format!("e{exponent}")),
        None => (unsigned, String::new()),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let fraction = if fraction.is_empty() {
        String::new()
    } else {
        format!(".{fraction}")
    };
    ExactNumber::read(&format!("{sign}{whole}{fraction}{exponent}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_of_a_number_is_kept() {
        let text = "a: 9007199254740993\nb: 9223372036854775807\nc: 1e400\nd: 0.1\ne: 123456789012345678901234567890\nf: 0x1F\ng: +1.50\nh: .5\n\
                    i: 1_000\nj: \"1e400\"\nk: 2026-01-01\nl: yes\nm: ~\nq: [1, { o: 010 }]\n";
        let values = ExactValue::Map(read_yaml(text).unwrap());
        assert_eq!(
            values.to_string(),
            "{\"a\":9007199254740993,\"b\":9223372036854775807,\"c\":1e400,\"d\":0.1,\"e\":123456789012345678901234567890,\"f\":31,\
             \"g\":1.50,\"h\":0.5,\"i\":1000,\"j\":\"1e400\",\"k\":\"2026-01-01\",\"l\":true,\"m\":null,\"q\":[1,{\"o\":8}]}"
        );
        assert_eq!(
            values.to_value().unwrap_err().to_string(),
            "/c: Kubernetes can't store the number 1e400 exactly: write it as a text, in quotes"
        );
    }

    #[test]
    fn json_and_anchors_are_read() {
        let values = read_yaml("{\"a\": {\"b\": [1, 2.5e3, \"x\\u0041\"]}}").unwrap();
        assert_eq!(ExactValue::Map(values).to_string(), "{\"a\":{\"b\":[1,2.5e3,\"xA\"]}}");
        let values = read_yaml("base: &base { a: 1, b: 2 }\nmore: { <<: *base, b: 3 }\n").unwrap();
        assert_eq!(
            ExactValue::Map(values).to_string(),
            "{\"base\":{\"a\":1,\"b\":2},\"more\":{\"a\":1,\"b\":3}}"
        );
        assert_eq!(read_yaml("# nothing\n"), Ok(BTreeMap::new()));
    }

    #[test]
    fn broken_texts_name_the_line_or_the_path() {
        let check = |text: &str, expected: &str| {
            let error = read_yaml(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("a: 1\na: 2\n", "line 2: the key \"a\" occurs twice in one map");
        check("- a\n", "the values are no map");
        check("a: [1\n", "line");
        check(
            "a:\n  b: .inf\n",
            "/a/b: line 2: \".inf\" is no number that JSON can hold",
        );
        check(
            &format!("a: {}1{}\n", "[".repeat(150), "]".repeat(150)),
            "more than 100 levels",
        );
    }
}
