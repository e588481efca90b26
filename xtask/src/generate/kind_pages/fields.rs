//! Tables of the fields of one object in a schema. A nested object gets a section of its own, whose title is its path.

use anyhow::{Result, bail};
use serde_json::{Map, Value};

/// The keywords that the tables show, or that add nothing for a reader.
const KNOWN: [&str; 21] = [
    "additionalProperties",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields",
];
const RULES: &str = "x-kubernetes-validations";
const COLUMNS: [&str; 5] = ["field", "type", "default", "meaning", "refused"];
/// The beginning of a refusal by a list of values.
const EXCEPT: &str = "values except";
/// The required fields of a condition, by which a list of conditions is recognized.
const CONDITION: [&str; 4] = ["lastTransitionTime", "reason", "status", "type"];

/// Writes the section of an object, and those of the objects in its fields. `depth` is the level of the title.
pub(super) fn write_level(path: &str, schema: &Value, depth: usize, page: &mut String) -> Result<()> {
    check_keywords(path, schema)?;
    page.push_str(&format!("\n{} `{path}`\n", "#".repeat(depth)));
    if let Some(text) = schema.get("description").and_then(Value::as_str) {
        page.push_str(&format!("\n{}\n", escape_text(text)));
    }
    let required = list_texts(schema, "required");
    let mut rows = Vec::new();
    let mut nested = Vec::new();
    for (name, field) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let path = format!("{path}.{name}");
        check_keywords(&path, field)?;
        let inner = find_object(&path, field);
        let (meaning, default) = split_default(field);
        let mut refused = list_refusals(&path, field)?;
        if required.contains(&name.as_str()) {
            refused.insert(0, "a missing value".to_owned());
        }
        // Controllers write the status, so a reader wants to know its values alone.
        if path.starts_with("status.") {
            refused.retain(|refusal| refusal.starts_with(EXCEPT));
        }
        rows.push([
            format!("`{path}`"),
            describe_type(field, inner.as_ref().map(|(path, _)| path.as_str())),
            default,
            meaning,
            refused.join("; "),
        ]);
        nested.extend(inner.filter(|_| !is_conditions(field)));
    }
    if rows.is_empty() {
        page.push_str("\nThis object has no fields.\n");
    } else {
        page.push('\n');
        page.push_str(&write_table(&rows));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields").is_some() {
        page.push_str("\nFields that are not in the table are stored, and have no effect.\n");
    }
    let rules = list_rules(schema);
    if !rules.is_empty() {
        page.push_str(&format!(
            "\nRules of `{path}`, by the message of the refusal:\n\n{rules}"
        ));
    }
    for (path, schema) in nested {
        write_level(&path, schema, 3, page)?;
    }
    Ok(())
}

/// Writes rows as a table. A column without content is left out.
fn write_table(rows: &[[String; 5]]) -> String {
    let used: Vec<usize> = (0..COLUMNS.len())
        .filter(|column| {
            rows.iter()
                .any(|row| row.get(*column).is_some_and(|cell| !cell.is_empty()))
        })
        .collect();
    let line = |cells: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = used.iter().map(|column| cells(*column)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut table = line(&|column| COLUMNS.get(column).copied().unwrap_or_default().to_owned());
    table.push_str(&format!("|{}\n", "---|".repeat(used.len())));
    for row in rows {
        table.push_str(&line(&|column| row.get(column).cloned().unwrap_or_default()));
    }
    table
}

/// Refuses a keyword that no page shows. Otherwise a new rule of a schema would be missing in the pages.
fn check_keywords(path: &str, schema: &Value) -> Result<()> {
    let keywords = schema.as_object().into_iter().flat_map(Map::keys);
    let unknown: Vec<&String> = keywords
        .filter(|keyword| !KNOWN.contains(&keyword.as_str()) && *keyword != RULES)
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    bail!(
        "{path}: the tables of fields don't show {unknown:?}: add it in {}",
        file!()
    )
}

/// Finds the object with fields in a field: the field itself, or the items of a list or a map.
fn find_object<'a>(path: &str, field: &'a Value) -> Option<(String, &'a Value)> {
    if field.get("properties").is_some() {
        return Some((path.to_owned(), field));
    }
    let items = field.get("items").map(|items| (format!("{path}[]"), items));
    let values = field.get("additionalProperties").filter(|values| values.is_object());
    let values = values.map(|values| (format!("{path}.*"), values));
    items.or(values).and_then(|(path, inner)| find_object(&path, inner))
}

/// Describes the type. `inner` is the path of the object with fields in it.
fn describe_type(field: &Value, inner: Option<&str>) -> String {
    let text = name_type(field, false);
    match inner {
        Some(_) if is_conditions(field) => "[list of conditions](README.md#conditions)".to_owned(),
        Some(path) => format!("[{text}](#{})", make_anchor(path)),
        None => text,
    }
}

fn name_type(field: &Value, is_plural: bool) -> String {
    let name = match field.get("type").and_then(Value::as_str) {
        Some("array") => {
            let items = field.get("items").map(|items| name_type(items, true));
            let items = items.unwrap_or_else(|| "values".to_owned());
            return format!("list{} of {items}", if is_plural { "s" } else { "" });
        }
        Some("object") if field.get("additionalProperties").is_some_and(Value::is_object) => {
            let values = field.get("additionalProperties").map(|values| name_type(values, true));
            return format!(
                "map{} of {}",
                if is_plural { "s" } else { "" },
                values.unwrap_or_default()
            );
        }
        Some("string") if field.get("format").and_then(Value::as_str) == Some("date-time") => "time",
        Some(name) => name,
        None => "value of any type",
    };
    match (is_plural, name) {
        (true, "value of any type") => "values of any type".to_owned(),
        (true, name) => format!("{name}s"),
        (false, name) => name.to_owned(),
    }
}

fn is_conditions(field: &Value) -> bool {
    field.get("items").is_some_and(|items| {
        let mut required = list_texts(items, "required");
        required.sort_unstable();
        required == CONDITION
    })
}

/// Returns the identifier that Markdown gives a title.
fn make_anchor(title: &str) -> String {
    let kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    title.to_lowercase().chars().filter(kept).collect()
}

/// Returns the meaning of a field, and its default: of the schema, else the sentence of the description that begins with `Default: `.
fn split_default(field: &Value) -> (String, String) {
    const BEGINNING: &str = "Default: ";
    let text = field.get("description").and_then(Value::as_str).unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = text.match_indices(BEGINNING).map(|(at, _)| at).find(|at| {
        text.get(..*at)
            .is_some_and(|before| before.is_empty() || before.ends_with(". "))
    });
    let (meaning, sentence) = match sentence {
        Some(at) => {
            let (before, from) = text.split_at(at);
            let (sentence, after) = from.split_once(". ").unwrap_or((from.trim_end_matches('.'), ""));
            let sentence = sentence.trim_start_matches(BEGINNING).to_owned();
            (format!("{before}{after}").trim_end().to_owned(), sentence)
        }
        None => (text, String::new()),
    };
    let default = match field.get("default") {
        Some(Value::String(text)) => quote_code(text),
        Some(other) => quote_code(&other.to_string()),
        None if is_one_value(&sentence) => quote_code(&sentence),
        None => escape_text(&sentence),
    };
    (escape_text(&meaning), default)
}

/// Checks whether a default is a value, such as `1m`, and not a description of it.
fn is_one_value(text: &str) -> bool {
    !text.is_empty() && !text.contains([' ', '`']) && !matches!(text, "all" | "any" | "none")
}

/// Lists the values of a field that the API server refuses.
fn list_refusals(path: &str, field: &Value) -> Result<Vec<String>> {
    let mut refused = Vec::new();
    if let Some(values) = field.get("enum").and_then(Value::as_array) {
        let values: Vec<String> = values
            .iter()
            .map(|value| quote_code(&value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
            .collect();
        refused.push(format!("{EXCEPT} {}", values.join(", ")));
    }
    if let Some(pattern) = field.get("pattern").and_then(Value::as_str) {
        refused.push(format!("text that doesn't match {}", quote_code(pattern)));
    }
    for (keyword, one, limit) in [
        ("minLength", "an empty text", "fewer than N characters"),
        ("maxLength", "", "more than N characters"),
        ("minItems", "an empty list", "fewer than N items"),
        ("maxItems", "", "more than N items"),
        ("minProperties", "an empty object", "fewer than N entries"),
        ("maxProperties", "", "more than N entries"),
        ("minimum", "", "less than N"),
        ("maximum", "", "more than N"),
    ] {
        match field.get(keyword).and_then(Value::as_f64) {
            Some(1.0) if !one.is_empty() => refused.push(one.to_owned()),
            Some(number) => refused.push(limit.replace('N', &number.to_string())),
            None => {}
        }
    }
    match field.get("x-kubernetes-list-type").and_then(Value::as_str) {
        None | Some("atomic") => {}
        Some("set") => refused.push("equal items".to_owned()),
        Some("map") => {
            let keys = list_texts(field, "x-kubernetes-list-map-keys");
            let keys: Vec<String> = keys.into_iter().map(quote_code).collect();
            refused.push(format!("two items with the same {}", keys.join(" and ")));
        }
        Some(other) => bail!("{path}: x-kubernetes-list-type {other} is unknown"),
    }
    if field.get("properties").is_none() {
        refused.extend(list_messages(field));
    }
    for (keyword, what) in [("items", "items"), ("additionalProperties", "values")] {
        let inner = field
            .get(keyword)
            .filter(|inner| inner.is_object() && inner.get("properties").is_none());
        if let Some(inner) = inner {
            check_keywords(path, inner)?;
            let inner = list_refusals(path, inner)?;
            refused.extend(inner.into_iter().map(|refusal| format!("{what}: {refusal}")));
        }
    }
    Ok(refused)
}

/// Lists the rules of an object by their messages, as a Markdown list.
pub(super) fn list_rules(schema: &Value) -> String {
    list_messages(schema)
        .into_iter()
        .map(|message| format!("- {message}\n"))
        .collect()
}

/// Returns the messages of the rules, or the rules that have no message.
fn list_messages(schema: &Value) -> Vec<String> {
    let rules = schema.get(RULES).and_then(Value::as_array).into_iter().flatten();
    rules
        .filter_map(|rule| match rule.get("message").and_then(Value::as_str) {
            Some(message) => Some(escape_text(message)),
            None => rule.get("rule").and_then(Value::as_str).map(quote_code),
        })
        .collect()
}

fn list_texts<'a>(schema: &'a Value, keyword: &str) -> Vec<&'a str> {
    let items = schema.get(keyword).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

/// Quotes a text as code in a cell of a table. A text that looks like a link is quoted as HTML, since `cargo xtask tidy` looks for links in code, too.
pub(super) fn quote_code(text: &str) -> String {
    if text.contains("](") || text.contains('`') {
        let characters = text.chars().map(|c| match c {
            '&' | '<' | '>' | '(' | '*' | '_' | '\\' | '`' | '|' | '~' => format!("&#{};", u32::from(c)),
            other => other.to_string(),
        });
        return format!("<code>{}</code>", characters.collect::<String>());
    }
    format!("`{}`", text.replace('|', "\\|"))
}

/// Escapes a description for a cell of a table: pipes everywhere, and outside of code all that Markdown would read as markup. Line breaks become spaces.
pub(super) fn escape_text(text: &str) -> String {
    let text = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|");
    let escape = |(index, part): (usize, &str)| {
        if index % 2 == 1 {
            return part.to_owned();
        }
        part.replace('<', "&lt;").replace('*', "\\*").replace('[', "\\[")
    };
    text.split('`').enumerate().map(escape).collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, want: &str) {
        let mut page = String::new();
        write_level("spec", schema, 2, &mut page).expect("a page");
        assert_eq!(page, want);
    }

    #[test]
    fn object_gets_table_and_nested_objects_get_sections() {
        check(
            &json!({ "type": "object", "description": "What\nit is.", "required": ["name"], "properties": {
                "name": { "type": "string", "minLength": 1, "maxLength": 63, "pattern": "^(a|b)$" },
                "parts": { "type": "array", "maxItems": 2, "description": "Parts | pieces <of> `<it>`. Default: 1m. At most 2.", "items": {
                    "type": "object", "properties": { "wait": { "type": "boolean", "default": true } },
                    "x-kubernetes-validations": [{ "rule": "false", "message": "no *parts*" }],
                } },
            } }),
            "\n## `spec`\n\nWhat it is.\n\n| field | type | default | meaning | refused |\n|---|---|---|---|---|\n\
             | `spec.name` | string |  |  | a missing value; text that doesn't match `^(a\\|b)$`; an empty text; more than 63 characters |\n\
             | `spec.parts` | [list of objects](#specparts) | `1m` | Parts \\| pieces &lt;of> `<it>`. At most 2. | more than 2 items |\n\
             \n### `spec.parts[]`\n\n| field | type | default |\n|---|---|---|\n| `spec.parts[].wait` | boolean | `true` |\n\
             \nRules of `spec.parts[]`, by the message of the refusal:\n\n- no \\*parts\\*\n",
        );
    }

    #[test]
    fn code_resembling_a_link_is_quoted_as_html() {
        assert_eq!(quote_code("^(a|b)$"), r"`^(a\|b)$`");
        assert_eq!(quote_code(r"[a](\.b*)"), "<code>[a]&#40;&#92;.b&#42;)</code>");
    }

    #[test]
    fn conditions_are_a_link() {
        check(
            &json!({ "type": "object", "properties": { "conditions": { "type": "array", "items": {
                "type": "object", "properties": {}, "required": ["type", "status", "reason", "lastTransitionTime"] } } } }),
            "\n## `spec`\n\n| field | type |\n|---|---|\n| `spec.conditions` | [list of conditions](README.md#conditions) |\n",
        );
    }

    #[test]
    fn a_keyword_without_a_place_is_an_error() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "array", "items": { "type": "integer", "multipleOf": 2 } } } });
        let error = write_level("spec", &schema, 2, &mut String::new()).expect_err("an error");
        assert!(error.to_string().contains("multipleOf"), "{error}");
    }
}
