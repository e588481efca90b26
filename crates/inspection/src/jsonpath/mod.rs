//! Kubernetes' dialect of JSONPath, as `kubectl -o jsonpath=…` has it: templates with ranges, filters, slices, unions, recursive descent and quoted text. Answers of the
//! real kubectl are the tests. Fields of an object have one order here; kubectl's wildcards give them in any order.

use serde_json::Value;

mod evaluate;
mod parse;
mod text;

pub use text::{write_go_value, write_json};

/// The deepest nesting of ranges, and of filters and unions.
const DEEPEST: usize = 32;

/// A problem of a template, or of a template with an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonPathError(String);

/// A parsed template.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Vec<Action>);

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
enum Action {
    /// Prints text, or the results of `{…}`.
    Print(Vec<Node>),
    /// `{range …}`: the body for each result. After a range without `{end}`, the body follows once more for the whole object, as in kubectl.
    Range {
        nodes: Vec<Node>,
        body: Vec<Action>,
        is_closed: bool,
    },
    /// `{end}` without a range.
    StrayEnd,
}

/// A step of an expression.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    /// A text, a number or a Boolean.
    Constant(Value),
    Field(String),
    Slice(Slice),
    Wildcard,
    Recursive,
    Union(Vec<Vec<Node>>),
    Filter {
        left: Vec<Node>,
        /// The operator and the right side; without these, the left side has to exist.
        comparison: Option<(String, Vec<Node>)>,
    },
    /// `range` and `end` are in the actions, so any word left here is unknown.
    Word(String),
}

/// Elements of a list: `[from:to:step]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    step: Option<i64>,
    /// Whether the brackets have one index.
    is_index: bool,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Fails when the template is not complete.
    pub fn parse(template: &str) -> Result<Self, JsonPathError> {
        parse::parse_template(template)
            .map(Self)
            .map_err(|why| JsonPathError(format!("error parsing jsonpath {template}, {why}")))
    }

    /// Parses the path of a column, which may lack braces and the first dot: `metadata.name`.
    ///
    /// # Errors
    /// Fails when the text is no path.
    pub fn parse_relaxed(path: &str) -> Result<Self, JsonPathError> {
        let inner = path
            .strip_prefix('{')
            .and_then(|path| path.strip_suffix('}'))
            .unwrap_or(path);
        let inner = inner.strip_prefix('.').unwrap_or(inner);
        if inner.contains(['{', '}']) || (inner.is_empty() && !path.is_empty()) {
            let forms = "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'";
            return Err(JsonPathError(forms.to_owned()));
        }
        Self::parse(&format!("{{.{inner}}}"))
    }

    /// Returns the results of each action.
    ///
    /// # Errors
    /// Fails when the template doesn't fit the object, such as an index behind the end of a list.
    pub fn find(&self, data: &Value) -> Result<Vec<Vec<Value>>, JsonPathError> {
        let found = evaluate::evaluate(&self.0, data).map_err(JsonPathError)?;
        let own = |results: Vec<evaluate::Found<'_>>| results.into_iter().map(evaluate::Found::into_value).collect();
        Ok(found.into_iter().map(own).collect())
    }

    /// Returns the text of the template for an object.
    ///
    /// # Errors
    /// As of [`Self::find`].
    pub fn print(&self, data: &Value) -> Result<String, JsonPathError> {
        let found = evaluate::evaluate(&self.0, data).map_err(JsonPathError)?;
        let actions = found.iter().map(|results| {
            let texts: Vec<String> = results.iter().map(|found| text::write_result(found.value())).collect();
            texts.join(" ")
        });
        Ok(actions.collect())
    }

    /// Returns the results of each action as a JSON list, as kubectl's `jsonpath-as-json` does.
    ///
    /// # Errors
    /// As of [`Self::find`].
    pub fn print_json(&self, data: &Value) -> Result<String, JsonPathError> {
        let lists = self.find(data)?.into_iter().map(|results| {
            let mut text = String::new();
            text::write_pretty(&Value::Array(results), 0, &mut text);
            text.push('\n');
            text
        });
        Ok(lists.collect())
    }
}
