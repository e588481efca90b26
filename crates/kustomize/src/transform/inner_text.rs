//! Replacement targets inside the JSON or YAML text of a field.

use go_yaml::json::inner_value;
use go_yaml::node::{Data, Node, Style};
use go_yaml::read::{Lines, Source, first_node};
use go_yaml::scalar::Dialect;
use go_yaml::{notation, rewrite};

use crate::meter;
use crate::transform::field_paths::{MAXIMUM_NODES, look_up, visit_exact, visit_matches};

/// Writes into the JSON or YAML text of a field on the path. Returns whether such a field exists.
pub(crate) fn write_in_text(
    root: &mut Node,
    parts: &[String],
    value: &Node,
    create: Option<&Node>,
) -> Result<bool, String> {
    for length in 1..parts.len() {
        let (Some(outer), Some(inner)) = (parts.get(..length), parts.get(length..)) else {
            return Ok(false);
        };
        meter::check()?;
        let Ok(Some(field)) = look_up(root, outer) else {
            continue;
        };
        if !field.is_scalar() {
            continue;
        }
        // The nodes that are read from the text, and the text written from them, are dropped after the field has its new value.
        let passing = meter::in_passing();
        let text = field.text().to_owned();
        meter::count_text(2 * text.len());
        let source = Source {
            file: field.source,
            lines: if field.style == Style::Literal {
                Lines::After(field.line)
            } else {
                Lines::On(field.line)
            },
            maximum_nodes: MAXIMUM_NODES,
            scanner: Dialect::V3,
        };
        let Ok(Some(mut inside)) = first_node(&text, source) else {
            return Ok(false);
        };
        let is_json = text.trim_start().starts_with(['{', '[']);
        let (mut count, mut whole) = (0, false);
        let mut set = |target: &mut Node| {
            count += 1;
            match &target.data {
                Data::Scalar(_) => target.set_text(value.text()),
                _ => {
                    whole = true;
                    *target = value.clone();
                }
            }
            Ok(())
        };
        if visit_matches(&mut inside, inner, create, &mut set).is_err() || count == 0 {
            return Ok(false);
        }
        let new = if inside.is_scalar() {
            // A null, which nothing can be put into: only the blanks around it go.
            inside.text().to_owned()
        } else if is_json {
            match json_text(&inside, &text) {
                Ok(new) => new,
                // kustomize then treats the field like any other: it reads the text and drops the result.
                Err(_) => return Ok(false),
            }
        } else {
            yaml_text(&inside, &text, whole)
                .map_err(|why| format!("'{}' holds YAML text, in which {why}", outer.join(".")))?
        };
        meter::count_text(new.len());
        meter::check()?;
        drop(passing);
        let mut set = |field: &mut Node| {
            field.set_text(new.as_str());
            Ok(())
        };
        visit_exact(root, outer, &mut set)?;
        return Ok(true);
    }
    Ok(false)
}

/// Returns the nodes of JSON text as JSON, on several lines where the old text was.
fn json_text(node: &Node, old: &str) -> Result<String, String> {
    let json = inner_value(node).map_err(|problem| problem.message)?;
    let pretty = old.contains('\n') && old.contains("  ");
    Ok(if pretty {
        serde_json::to_string_pretty(&json).unwrap_or_default()
    } else {
        crate::generate::go_json(&json)
    })
}

/// Returns the nodes of YAML text as YAML in the old text's notation.
fn yaml_text(node: &Node, old: &str, whole: bool) -> Result<String, String> {
    if whole {
        return Err("a list or a mapping can't be replaced as a whole, only the scalars in it".to_owned());
    }
    let text = rewrite::write_document(node, &notation::read_notation(old)?)?;
    Ok(text.trim().to_owned())
}
