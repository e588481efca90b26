//! `vars`: replaces `$(NAME)` in the fields that are known to contain it.

use std::cell::Cell;
use std::collections::BTreeMap;

use go_yaml::node::{Data, Node, Style, Tag};

use crate::collection::{Collection, Trouble};
use crate::fields::{FieldSpec, Variable};
use crate::fieldspec::{Create, apply};
use crate::meter;
use crate::transform::field_paths::{look_up, smarter_split};

/// A var's value, with its type.
#[derive(Debug, Clone)]
struct VarValue {
    text: String,
    tag: Tag,
    /// The value comes from a confidential resource.
    is_secret: bool,
}

/// The values of all vars by name, and whether a confidential value was written since the last check.
#[derive(Debug, Default)]
struct VarTable {
    held: BTreeMap<String, VarValue>,
    secret_was_written: Cell<bool>,
}

impl VarTable {
    /// Returns the value for a name.
    fn use_value(&self, name: &str) -> Option<&VarValue> {
        let held = self.held.get(name)?;
        if held.is_secret {
            self.secret_was_written.set(true);
        }
        Some(held)
    }
}

/// Replaces all vars.
///
/// # Errors
/// If the resource of a var is missing, or that resource lacks the field.
pub(crate) fn transform(
    vars: &[Variable],
    fields: &[FieldSpec],
    resources: &mut Collection,
) -> Result<(), (String, Option<Trouble>)> {
    if vars.is_empty() {
        return Ok(());
    }
    let mut values = VarTable::default();
    for var in vars {
        meter::count_steps(resources.list.len());
        meter::check().map_err(|message| (message, None))?;
        values.held.insert(
            var.name.clone(),
            read_value(var, resources).map_err(|message| (message, None))?,
        );
    }
    for resource in &mut resources.list {
        for spec in fields {
            let mut write = |node: &mut Node| replace_references(node, &values);
            let applied = apply(&mut resource.node, spec, Create::Nothing, &mut write);
            resource.notes.holds_secret |= values.secret_was_written.take();
            if let Err(message) = applied {
                return Err((String::new(), Some(Trouble::new(resource, message))));
            }
            resource.settle_shares();
        }
    }
    Ok(())
}

fn read_value(var: &Variable, resources: &Collection) -> Result<VarValue, String> {
    let Some(resource) = resources
        .list
        .iter()
        .find(|resource| resource.notes.var_names.contains(&var.name))
    else {
        return Err(format!(
            "var '{}' cannot be mapped to a field in the set of known resources",
            var.name
        ));
    };
    // Positions may be written as name[0].
    let mut path = Vec::new();
    for part in smarter_split(&var.field_path) {
        match part.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
            Some((name, index)) if !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()) => {
                if !name.is_empty() {
                    path.push(name.to_owned());
                }
                path.push(index.to_owned());
            }
            _ => path.push(part),
        }
    }
    let found = look_up(&resource.node, &path).ok().flatten();
    let missing = || {
        format!(
            "field '{}' specified in var '{}' not found in corresponding resource",
            var.field_path, var.name
        )
    };
    let node = found.ok_or_else(missing)?;
    let Data::Scalar(text) = &node.data else {
        return Err(format!(
            "field '{}' of var '{}' is not a scalar",
            var.field_path, var.name
        ));
    };
    let held = |text: String, tag: Tag| {
        Ok(VarValue {
            text,
            tag,
            is_secret: resource.is_confidential(),
        })
    };
    match node.tag {
        Tag::Int => {
            let number: i64 = text.parse().map_err(|_| missing())?;
            held(number.to_string(), Tag::Int)
        }
        Tag::Float => {
            let float: f64 = text.parse().map_err(|_| missing())?;
            held(plain_float(float), Tag::Float)
        }
        Tag::Bool => held(text.to_lowercase(), Tag::Bool),
        _ => held(text.to_string(), Tag::Str),
    }
}

fn plain_float(float: f64) -> String {
    let json = go_yaml::format_json(float);
    if json.contains('e') { format!("{float}") } else { json }
}

fn replace_references(node: &mut Node, values: &VarTable) -> Result<(), String> {
    if node.is_null() {
        return Ok(());
    }
    match &mut node.data {
        Data::Scalar(_) => {
            if node.is_string() {
                replace_scalar(node, values)?;
            }
            Ok(())
        }
        Data::Map(entries) => {
            for (key, value) in entries.iter_mut() {
                if !key.is_string() {
                    return Err(format!(
                        "invalid map key: value='{}', tag='{}'",
                        key.text(),
                        key.tag.name()
                    ));
                }
                if value.is_string() {
                    replace_scalar(value, values)?;
                }
            }
            Ok(())
        }
        Data::Seq(items) => {
            for item in items.iter_mut() {
                if !item.is_string() {
                    return Err("invalid value type expect a string".to_owned());
                }
                replace_scalar(item, values)?;
            }
            Ok(())
        }
    }
}

fn replace_scalar(node: &mut Node, values: &VarTable) -> Result<(), String> {
    let (text, tag) = expand_text(node.text(), values)?;
    node.set_text(text);
    node.share.writes = node.share.writes.saturating_add(1);
    node.tag = tag;
    node.tagged = false;
    node.style = Style::Plain;
    Ok(())
}

/// Expands `$(NAME)`; a text that is nothing else takes the value's type. `$$` is a dollar; unknown names stay.
fn expand_text(input: &str, values: &VarTable) -> Result<(String, Tag), String> {
    // A text may contain one long value many times.
    let _passing = meter::in_passing();
    meter::count_steps(input.len() / 16);
    let mut output = String::new();
    let mut rest = input;
    let mut closes = true;
    while let Some(position) = rest.find('$') {
        output.push_str(rest.get(..position).unwrap_or(""));
        let after = rest.get(position + 1..).unwrap_or("");
        let Some(next) = after.chars().next() else {
            output.push('$');
            rest = "";
            break;
        };
        // If no closing bracket follows, the loop does not search for one again.
        let end = if next == '(' && closes { after.find(')') } else { None };
        closes &= next != '(' || end.is_some();
        match (next, end) {
            ('$', _) => {
                output.push('$');
                rest = after.get(1..).unwrap_or("");
            }
            ('(', Some(end)) => {
                let name = after.get(1..end).unwrap_or("");
                match values.use_value(name) {
                    Some(held) if input.len() == name.len() + 3 => {
                        return Ok((held.text.clone(), held.tag));
                    }
                    Some(held) => {
                        meter::count_text(held.text.len());
                        meter::check()?;
                        output.push_str(&held.text);
                    }
                    None => output.push_str(&format!("$({name})")),
                }
                rest = after.get(end + 1..).unwrap_or("");
            }
            (other, _) => {
                output.push('$');
                output.push(other);
                rest = after.get(other.len_utf8()..).unwrap_or("");
            }
        }
    }
    output.push_str(rest);
    Ok((output, Tag::Str))
}
