//! Conversion between nodes and JSON values: the meaning of a resource after all its text has been resolved.

use std::borrow::Cow;

use memchr::{memchr, memchr3};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::emit::may_be_block;
use super::node::{Data, Node, Remark, Style, Tag};
use super::number;
use super::scalar::{Dialect, Scalar, resolve, resolve_node};
use crate::meter;

/// The reason why a node has no JSON value, and its place.
#[derive(Debug)]
pub struct NotJson {
    /// The line of the node, from 1; 0 when unknown.
    pub line: u32,
    /// The file of the node, by its number.
    pub source: u32,
    /// The error.
    pub message: String,
}

/// Returns the text of a string after Go wrote it as JSON and read that as YAML. Go writes next-line characters into JSON unescaped. Its
/// YAML reader then treats them as line breaks and folds them.
///
/// # Errors
/// If that reader takes the text after a next-line character for the marker of a document.
fn without_next_lines(text: String) -> Result<String, &'static str> {
    if !text.contains(NEXT_LINE) {
        return Ok(text);
    }
    let is_marker = |line: &str| {
        let rest = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
        rest.is_some_and(|rest| rest.starts_with([' ', NEXT_LINE]))
    };
    if text.split_inclusive(NEXT_LINE).skip(1).any(is_marker) {
        return Err("found a document marker after a next-line character (U+0085)");
    }
    let mut folded = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(NEXT_LINE) {
        let (before, after) = rest.split_at(at);
        folded.push_str(before.trim_end_matches(' '));
        let next = after.trim_start_matches([' ', NEXT_LINE]);
        let blanks = after.len() - next.len();
        let ends = after.get(..blanks).unwrap_or("").matches(NEXT_LINE).count();
        if ends == 1 {
            folded.push(' ');
        } else {
            folded.extend(std::iter::repeat_n('\n', ends - 1));
        }
        rest = next;
    }
    folded.push_str(rest);
    Ok(folded)
}

const NEXT_LINE: char = '\u{85}';

/// Returns the value of a resource's node, as kustomize prints it: read by yaml.v3, through JSON, read again by yaml.v2.
///
/// # Errors
/// For repeated keys, keys that aren't strings, tags that don't fit, and numbers that JSON can't hold.
pub fn resource_value(node: &Node) -> Result<Value, NotJson> {
    let place = Place {
        printed: true,
        ..Place::default()
    };
    root_value(node, place)
}

/// Returns the value of a resource's node during a build, as yaml.v3 reads it, in JSON.
///
/// # Errors
/// As [`resource_value`], except for characters that only printing refuses.
pub fn inner_value(node: &Node) -> Result<Value, NotJson> {
    root_value(node, Place::default())
}

fn root_value(node: &Node, place: Place) -> Result<Value, NotJson> {
    if node.remark != Remark::BeforeComment {
        return node_value(node, place.root());
    }
    let mut node = node.clone();
    end_before_comment(&mut node);
    node_value(&node, place.root())
}

/// Adjusts the last text of a document that ends with a comment. Go writes a blank line before that comment, and a block that keeps its
/// trailing blank lines then also keeps this one.
fn end_before_comment(root: &mut Node) {
    if root.remark != Remark::BeforeComment {
        return;
    }
    root.remark = Remark::None;
    let mut last = Some(root);
    while let Some(node) = last.take().filter(|node| node.style != Style::Flow) {
        let is_kept = is_block(node) && super::folded::is_kept(node.text()) && may_be_block(node.text());
        last = match &mut node.data {
            Data::Map(entries) => entries.last_mut().map(|(_, value)| value),
            Data::Seq(items) => items.last_mut(),
            Data::Scalar(text) => {
                if is_kept {
                    meter::count_text(text.len());
                    *text = format!("{text}\n").into();
                }
                None
            }
        };
    }
}

/// The position and the purpose of a value.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    is_root: bool,
    /// The value is in `{}` or `[]`, where plain scalars may contain less.
    in_flow: bool,
    /// Strings are read again by yaml.v2.
    printed: bool,
    /// Nodes are decoded without being written first, so their meaning doesn't change.
    as_is: bool,
}

impl Place {
    fn root(self) -> Self {
        Place { is_root: true, ..self }
    }

    fn inside(self, node: &Node) -> Self {
        Place {
            is_root: false,
            in_flow: self.in_flow || node.style == Style::Flow,
            ..self
        }
    }
}

fn node_value(node: &Node, place: Place) -> Result<Value, NotJson> {
    let inside = place.inside(node);
    spend_value(node)?;
    match &node.data {
        Data::Scalar(_) => scalar_value(node, place),
        Data::Seq(items) => items
            .iter()
            .map(|item| node_value(item, inside))
            .collect::<Result<Vec<_>, _>>()
            .map(Value::Array),
        Data::Map(entries) => {
            let mut map = Map::new();
            for (key, held) in entries.iter() {
                if !key.is_scalar() {
                    return Err(fail(key, "invalid map key"));
                }
                if place.is_root && key.tagged && key.is_null() && key.text().is_empty() {
                    // Go decodes no text from it, and leaves the field out.
                    continue;
                }
                let name = key_text(key, place.is_root, inside).map_err(|message| fail(key, message))?;
                let name = print_string(name, place).map_err(|message| fail(key, message))?;
                meter::count_text(64 + name.len());
                match map.entry(name) {
                    Entry::Vacant(vacant) => {
                        vacant.insert(node_value(held, inside)?);
                    }
                    Entry::Occupied(_) => {
                        let mut before = entries.iter().filter(|(known, _)| known.text() == key.text());
                        let first = before.next().map_or(0, |(known, _)| known.line);
                        return Err(fail(
                            key,
                            format!("mapping key \"{}\" already defined at line {first}", key.text()),
                        ));
                    }
                }
            }
            Ok(Value::Object(map))
        }
    }
}

/// Spends the cost of a node's value, without the cost of its key.
fn spend_value(node: &Node) -> Result<(), NotJson> {
    meter::count_text(size_of::<Value>() + node.text().len());
    meter::check().map_err(|message| fail(node, message))
}

/// Returns the text of a key. The root is decoded into a map of strings, so its keys may look like numbers. Other keys must be strings.
///
/// # Errors
/// If the key is not usable as a text, with the reason.
fn key_text(key: &Node, is_of_root: bool, place: Place) -> Result<Cow<'_, str>, String> {
    let text = key.text();
    if key.tag == Tag::Null && !text.is_empty() {
        // kustomize never finds such a key in a search, and writes it twice.
        return Err(format!("the key `{text}` is null; quote it, or leave the field out"));
    }
    let is_text = !key.tagged && (key.style == Style::Quoted || text.is_empty());
    let is_written_as_text = !place.as_is && place.in_flow && is_quoted_in_flow(key);
    if !is_text && !is_written_as_text && (key.tagged || !is_of_root) {
        let what = resolve_node(key, Dialect::V3)?;
        let is_foreign = key.tagged && !matches!(key.tag, Tag::Str | Tag::Merge);
        if !is_of_root && (is_foreign || !matches!(what, Scalar::Text(_))) {
            return Err(format!("the key `{text}` is not a string; quote it"));
        }
        if key.tag == Tag::Binary
            && let Scalar::Text(decoded) = what
        {
            return Ok(decoded);
        }
    }
    Ok(if key.style == Style::Folded && !place.as_is {
        super::folded::written_and_read(text).into()
    } else {
        text.into()
    })
}

fn fail(node: &Node, message: impl Into<String>) -> NotJson {
    NotJson {
        line: node.line,
        source: node.source,
        message: message.into(),
    }
}

fn scalar_value(node: &Node, place: Place) -> Result<Value, NotJson> {
    let meant = if place.as_is && !node.tagged && matches!(node.style, Style::Folded | Style::LeftOut) {
        match node.style {
            Style::Folded => Scalar::Text(node.text().into()),
            _ => Scalar::Null,
        }
    } else if !place.as_is && !place.in_flow && is_block_that_begins_with_a_tab(node) {
        return Err(fail(node, TAB_IN_BLOCK));
    } else if place.in_flow && !place.as_is && is_quoted_in_flow(node) {
        Scalar::Text(node.text().into())
    } else {
        resolve_node(node, Dialect::V3).map_err(|message| fail(node, message))?
    };
    match meant {
        Scalar::Text(text) => print_string(text, place)
            .map(|text| Value::String(text.into()))
            .map_err(|message| fail(node, message)),
        Scalar::Float(float) => {
            float_value(float).ok_or_else(|| fail(node, format!("JSON cannot hold the number `{}`", node.text())))
        }
        other => Ok(scalar_json(other)),
    }
}

const TAB_IN_BLOCK: &str = "a text of several lines begins with a tab, and kustomize can't read that again once it has written it as a \
                            block: begin it with something else";

/// Checks whether a value has a text that begins with a tab and that yaml.v3 writes as a block.
fn begins_with_a_tab_as_block(value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with('\t') && text.contains('\n') && may_be_block(text),
        Value::Array(items) => items.iter().any(begins_with_a_tab_as_block),
        Value::Object(map) => map.values().any(begins_with_a_tab_as_block),
        _ => false,
    }
}

/// Checks whether Go's emitter writes a text as a block that starts with a tab. Go's scanner then takes the tab for indentation.
fn is_block_that_begins_with_a_tab(node: &Node) -> bool {
    let text = node.text();
    is_block(node) && text.starts_with('\t') && may_be_block(text)
}

/// Checks whether a node has a block style.
fn is_block(node: &Node) -> bool {
    match node.style {
        Style::Literal | Style::Folded => node.is_scalar(),
        Style::Plain => node.text().contains('\n'),
        _ => false,
    }
}

/// Checks whether Go's emitter quotes a scalar only inside `{}` or `[]`, which makes it a text there.
fn is_quoted_in_flow(node: &Node) -> bool {
    match node.style {
        Style::Folded => !node.tagged,
        Style::Plain if !node.tagged => match node.tag {
            Tag::Null => node.text().is_empty(),
            Tag::Timestamp => node.text().contains(':'),
            Tag::None => {
                let text = node.text();
                text.is_empty() || text.contains(':') && matches!(resolve(text, Dialect::V3), Scalar::Timestamp(_))
            }
            _ => false,
        },
        _ => false,
    }
}

/// Returns a string, read again by yaml.v2 when it is printed.
fn print_string(text: Cow<'_, str>, place: Place) -> Result<Cow<'_, str>, &'static str> {
    if place.printed { through_text(text) } else { Ok(text) }
}

fn scalar_json(scalar: Scalar<'_>) -> Value {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Bool(truth) => Value::Bool(truth),
        Scalar::Int(integer) => integer_value(integer),
        Scalar::Float(float) => float_value(float).unwrap_or(Value::Null),
        Scalar::Text(text) => Value::String(text.into_owned()),
        Scalar::Timestamp(text) => Value::String(text),
        Scalar::Merge => Value::String("<<".to_owned()),
    }
}

/// Returns a text after it was written as JSON and read by yaml.v2.
fn through_text(text: Cow<'_, str>) -> Result<Cow<'_, str>, &'static str> {
    // Of the characters that JSON writes without escapes, only the critical ones begin with DEL or one of these bytes.
    let is_harmless = if text.is_ascii() {
        memchr(0x7f, text.as_bytes()).is_none()
    } else {
        memchr3(0x7f, 0xc2, 0xef, text.as_bytes()).is_none()
    };
    if is_harmless {
        return Ok(text);
    }
    let refused =
        |character: char| matches!(character, '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}');
    if text.contains(refused) {
        return Err("control characters are not allowed");
    }
    if !text.contains(NEXT_LINE) {
        return Ok(text);
    }
    without_next_lines(text.into_owned()).map(Cow::Owned)
}

fn integer_value(integer: i128) -> Value {
    if let Ok(signed) = i64::try_from(integer) {
        return Value::Number(signed.into());
    }
    u64::try_from(integer).map_or(Value::Null, |unsigned| Value::Number(unsigned.into()))
}

/// Returns a float after a way through JSON: a float without a fraction becomes an integer, if it fits.
fn float_value(float: f64) -> Option<Value> {
    if !float.is_finite() {
        return None;
    }
    match resolve(&number::format_json(float), Dialect::V2) {
        Scalar::Int(integer) => Some(integer_value(integer)),
        _ => Number::from_f64(float).map(Value::Number),
    }
}

/// Returns the value of a kustomization file or another file that yaml.v2 reads: later keys win, timestamps stay text.
///
/// # Errors
/// If a tag doesn't fit its text, or a key isn't a scalar.
pub fn configuration_value(node: &Node) -> Result<Value, NotJson> {
    let mut value = patch_value(node)?;
    fold_next_lines(&mut value).map_err(|message| fail(node, message))?;
    Ok(value)
}

/// Folds the next-line characters in all strings.
fn fold_next_lines(value: &mut Value) -> Result<(), &'static str> {
    match value {
        Value::String(text) if text.contains(NEXT_LINE) => {
            *text = without_next_lines(std::mem::take(text))?;
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(fold_next_lines),
        Value::Object(map) => map.values_mut().try_for_each(fold_next_lines),
        _ => Ok(()),
    }
}

/// Returns the value of a JSON patch's operations: as [`configuration_value`], but not written and read again.
///
/// # Errors
/// As [`configuration_value`].
pub fn patch_value(node: &Node) -> Result<Value, NotJson> {
    spend_value(node)?;
    match &node.data {
        Data::Scalar(_) => configuration_scalar(node),
        Data::Seq(items) => items
            .iter()
            .map(patch_value)
            .collect::<Result<Vec<_>, _>>()
            .map(Value::Array),
        Data::Map(entries) => {
            let mut map = Map::new();
            for (key, held) in entries.iter() {
                if key.tag == Tag::Merge {
                    merge_into(&mut map, held)?;
                    continue;
                }
                map.insert(configuration_key(key)?, patch_value(held)?);
            }
            Ok(Value::Object(map))
        }
    }
}

fn merge_into(map: &mut Map<String, Value>, held: &Node) -> Result<(), NotJson> {
    match &held.data {
        Data::Map(_) => {
            if let Value::Object(merged) = patch_value(held)? {
                map.extend(merged);
            }
            Ok(())
        }
        Data::Seq(items) => items.iter().rev().try_for_each(|item| merge_into(map, item)),
        Data::Scalar(_) => Err(fail(held, "map merge requires map or sequence of maps as the value")),
    }
}

/// Returns the text of a key as sigs.k8s.io/yaml turns it into a JSON key.
pub fn configuration_key(key: &Node) -> Result<String, NotJson> {
    match configuration_scalar(key)? {
        Value::String(text) => Ok(text),
        Value::Bool(truth) => Ok(truth.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(fail(key, format!("the key `{}` can't be used in JSON", key.text()))),
    }
}

fn configuration_scalar(node: &Node) -> Result<Value, NotJson> {
    if !node.is_scalar() {
        return Err(fail(node, "a key must be a scalar"));
    }
    let read = if node.tagged {
        resolve_node(node, Dialect::V2).map_err(|message| fail(node, message))?
    } else if !matches!(node.style, Style::Plain | Style::LeftOut) {
        Scalar::Text(node.text().into())
    } else {
        resolve(node.text(), Dialect::V2)
    };
    Ok(match read {
        Scalar::Float(float) if !float.is_finite() => {
            return Err(fail(node, format!("JSON cannot hold the number `{}`", node.text())));
        }
        Scalar::Timestamp(_) => Value::String(node.text().to_owned()),
        other => scalar_json(other),
    })
}

/// Returns the nodes of a JSON value, as yaml.v3 would read them from its own output; numbers are floats, as Go decodes
/// them.
pub fn from_value(value: &Value) -> Node {
    match value {
        Value::Null => Node::scalar("null", Tag::Null),
        Value::Bool(truth) => Node::scalar(truth.to_string(), Tag::Bool),
        Value::Number(number) => number_node(number.as_f64().unwrap_or(0.0)),
        // yaml.v3 writes this one without quotes, and reads it as something else than text.
        Value::String(text) if text == "<<" => Node::scalar("<<", Tag::Merge),
        Value::String(text) => string_node(text),
        Value::Array(items) => Node::seq(items.iter().map(from_value).collect()).in_flow(items.is_empty()),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| (string_node(key), from_value(value)));
            Node::mapping(entries.collect()).in_flow(map.is_empty())
        }
    }
}

fn number_node(float: f64) -> Node {
    let text = number::format_general(float);
    let tag = resolve(&text, Dialect::V3).tag();
    Node::scalar(text, tag)
}

fn string_node(text: &str) -> Node {
    // yaml.v3 also quotes texts with another meaning in YAML 1.1: old booleans and base-60 numbers.
    let plain = matches!(resolve(text, Dialect::V3), Scalar::Text(_))
        && !matches!(resolve(text, Dialect::V2), Scalar::Bool(_))
        && super::emit::may_be_plain(text);
    if plain { Node::string(text) } else { Node::quoted(text) }
}

/// Rewrites a node in place as if Go had written and read it as JSON once. Its lines stay. A JSON patch does this to a resource.
///
/// # Errors
/// As [`resource_value`].
pub fn through_json(node: &mut Node) -> Result<(), NotJson> {
    end_before_comment(node);
    let value = inner_value(node)?;
    if begins_with_a_tab_as_block(&value) {
        return Err(fail(node, TAB_IN_BLOCK));
    }
    rewrite_node(node, Place::default().root());
    Ok(())
}

/// Rewrites a node in place as if Go had written it as JSON and read that as YAML. Its lines stay. kustomize does this to the items of a
/// list of resources.
///
/// # Errors
/// As [`resource_value`].
pub fn through_json_text(node: &mut Node) -> Result<(), NotJson> {
    resource_value(node)?;
    rewrite_as_text(node, Place::default());
    Ok(())
}

fn rewrite_as_text(node: &mut Node, place: Place) {
    let place = Place {
        printed: true,
        as_is: true,
        ..place
    };
    let inside = place.inside(node);
    match &mut node.data {
        Data::Seq(items) => items.iter_mut().for_each(|item| rewrite_as_text(item, inside)),
        Data::Map(entries) => {
            for (key, value) in entries.iter_mut() {
                *key = Node::quoted(key.text()).with_place_of(key);
                rewrite_as_text(value, inside);
            }
        }
        Data::Scalar(_) => {
            let read = match scalar_value(node, place) {
                Ok(Value::String(text)) => Node::quoted(text),
                Ok(Value::Number(number)) if number.is_f64() => {
                    let text = number::format_json(number.as_f64().unwrap_or_default());
                    let tag = resolve(&text, Dialect::V3).tag();
                    Node::scalar(text, tag)
                }
                Ok(Value::Number(number)) => Node::scalar(number.to_string(), Tag::Int),
                Ok(other) => from_value(&other),
                Err(_) => return,
            };
            *node = read.with_place_of(node);
            return;
        }
    }
    node.tagged = false;
    node.style = Style::Flow;
}

fn rewrite_node(node: &mut Node, place: Place) {
    let inside = place.inside(node);
    match &mut node.data {
        Data::Seq(items) => items.iter_mut().for_each(|item| rewrite_node(item, inside)),
        Data::Map(entries) => {
            for (key, value) in entries.iter_mut() {
                *key = string_node(key.text()).with_place_of(key);
                rewrite_node(value, inside);
            }
        }
        Data::Scalar(_) => {
            if let Ok(value) = scalar_value(node, place) {
                let mut read = from_value(&value).with_place_of(node);
                if node.style == Style::Literal && read.style == Style::Quoted {
                    read.style = Style::Literal;
                }
                *node = read;
            }
        }
    }
    if !node.is_scalar() {
        node.tagged = false;
        node.style = if node.is_empty() { Style::Flow } else { Style::Plain };
    }
}
