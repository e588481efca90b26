//! Substitution of variables in finished resources, as Flux's kustomize-controller does it. The YAML text of each resource is substituted
//! and then read again, so a value gets the type that its text has there.
//!
//! After the substitution, a resource must still be a single object with a kind and a name. A value from a Secret must not change the
//! identity of the object or the name of a field, because names appear in messages and other texts.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use go_words::substitution::{Problem, Scope, SubstitutionError, substitute};
use go_yaml::events::{EventKind, EventReader};
use go_yaml::json::{configuration_value, from_value, resource_value};
use go_yaml::node::{Data, Node};
use go_yaml::read::{Lines, Source, first_node};
use go_yaml::scalar::Dialect;
use serde_json::Value;

use crate::collection::Trouble;
use crate::meter;
use crate::resource::Resource;

/// The prefix of every error in this module, in Flux's words.
const FAILED: &str = "post build failed";

/// The value of a variable. Its debug form doesn't show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Variable {
    /// The value that replaces the variable.
    pub value: Vec<u8>,
    /// Whether the value is secret. A resource that uses such a variable is confidential.
    pub is_secret: bool,
}

impl fmt::Debug for Variable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Variable(hidden)")
    }
}

/// Variables to substitute in all resources, after the build and before [`Overrides`](crate::Overrides) puts its labels and annotations on
/// them. A variable that isn't there is an error unless the expression has a default.
///
/// ```
/// use kustomize::{MapTree, Options, Substitution, Variable, build};
///
/// let mut tree = MapTree::new();
/// tree.insert("kustomization.yaml", "resources: [account.yaml]\n");
/// tree.insert("account.yaml", "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: ${name}-${part:=web}\n");
/// let name = Variable { value: b"shop".to_vec(), is_secret: false };
/// let substitution = Substitution::new([("name".to_owned(), name)].into());
/// let options = Options { substitution: Some(substitution), ..Options::default() };
/// assert_eq!(build(&tree, "", &options)?.resources[0].object["metadata"]["name"], "shop-web");
/// # Ok::<(), kustomize::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Substitution {
    variables: Arc<BTreeMap<String, Variable>>,
    /// A label or an annotation, and the value with which it leaves its resource alone.
    pub unless: Option<(String, String)>,
}

impl Substitution {
    /// Substitutes these variables in all resources.
    #[must_use]
    pub fn new(variables: BTreeMap<String, Variable>) -> Self {
        Self {
            variables: Arc::new(variables),
            unless: None,
        }
    }

    /// Substitutes in one resource. `maximum_nodes` is how many nodes it may have then.
    pub(crate) fn apply(&self, resource: &mut Resource, maximum_nodes: usize) -> Result<(), Trouble> {
        if !has_dollar(&resource.node) || self.leaves_alone(resource) {
            return Ok(());
        }
        let Ok(before) = resource_value(&resource.node) else {
            // The error is reported when all resources are converted to values.
            return Ok(());
        };
        let text = go_yaml::emit::write_document(&before);
        meter::count_text(text.len());
        let (value, is_secret) = self.substitute_value(resource, &text, false, maximum_nodes)?;
        let refused = |message: &str| refuse_field(resource, &resource.node, message);
        let is_set = |path: &str| {
            value
                .pointer(path)
                .and_then(Value::as_str)
                .is_some_and(|text| !text.is_empty())
        };
        if !is_set("/kind") || !is_set("/metadata/name") {
            return Err(refused(
                "a substitution leaves the object without a kind or name that is a string",
            ));
        }
        let kind = value.pointer("/kind").and_then(Value::as_str).unwrap_or_default();
        if kind.ends_with("List") && kind != resource.kind() {
            return Err(refused("a substitution makes a list of the object"));
        }
        if is_secret {
            // The object must have equal names for all other values of its Secrets.
            let other = self.substitute_value(resource, &text, true, maximum_nodes);
            if !other.is_ok_and(|(other, _)| has_same_names(&value, &other)) {
                return Err(refused(
                    "a variable from a Secret is a part of its apiVersion, kind, name or namespace, or of the name of a field, or changes \
                     them, and these are shown wherever they are spoken of: take the variable from a ConfigMap",
                ));
            }
            resource.notes.holds_secret = true;
        }
        let mut node = from_value(&value);
        copy_places(&mut node, &resource.node);
        resource.node = node;
        Ok(())
    }

    fn leaves_alone(&self, resource: &Resource) -> bool {
        self.unless.as_ref().is_some_and(|(name, value)| {
            ["labels", "annotations"]
                .iter()
                .any(|field| resource.text_map(field).get(name) == Some(value))
        })
    }

    /// Returns the value of a resource's text after the substitution, and whether the text uses a Secret's value. `is_other` replaces the
    /// values of Secrets with other values.
    fn substitute_value(
        &self,
        resource: &Resource,
        text: &str,
        is_other: bool,
        maximum_nodes: usize,
    ) -> Result<(Value, bool), Trouble> {
        let mut used = VariableScope {
            variables: &self.variables,
            is_secret: false,
            is_other,
        };
        let made = substitute(text, &mut used).map_err(|error| make_trouble(resource, &error))?;
        let is_secret = used.is_secret;
        let refused = |message: &str| refuse_field(resource, &resource.node, message);
        let made = String::from_utf8(made)
            .map_err(|_| refused("a substitution cuts a letter in two: the result is not UTF-8"))?;
        if has_several_documents(&made) {
            return Err(refused(
                "a substitution ends the document, and one object would become several",
            ));
        }
        let value = read(&made, maximum_nodes).map_err(|message| {
            let why = if is_secret || resource.is_confidential() {
                "; it is not said why, since that could quote what the object holds".to_owned()
            } else {
                format!(": {message}")
            };
            refused(&format!("the result of the substitution can't be read{why}"))
        })?;
        Ok((value, is_secret))
    }
}

/// Returns whether two objects have equal names and equal fields.
fn has_same_names(one: &Value, other: &Value) -> bool {
    IDENTITY.iter().all(|path| one.pointer(path) == other.pointer(path)) && has_same_keys(one, other)
}

fn has_same_keys(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let same = |(key, one)| other.get(key).is_some_and(|other| has_same_keys(one, other));
            one.len() == other.len() && one.iter().all(same)
        }
        (Value::Array(one), Value::Array(other)) => {
            let more = one.iter().skip(other.len()).chain(other.iter().skip(one.len()));
            one.iter().zip(other).all(|(one, other)| has_same_keys(one, other)) && !more.into_iter().any(has_keys)
        }
        (one, other) => !has_keys(one) && !has_keys(other),
    }
}

fn has_keys(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => items.iter().any(has_keys),
        _ => false,
    }
}

/// The identity of an object: its version, its kind, its name and its namespace.
const IDENTITY: [&str; 4] = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];

/// The variables of a substitution. `is_secret` becomes true once a secret one is used.
struct VariableScope<'value> {
    variables: &'value BTreeMap<String, Variable>,
    is_secret: bool,
    /// True if secret variables get another value, to compare both results.
    is_other: bool,
}

impl<'value> Scope<'value> for VariableScope<'value> {
    fn find(&mut self, name: &str) -> Option<&'value [u8]> {
        let variable = self.variables.get(name)?;
        self.is_secret |= variable.is_secret;
        if variable.is_secret && self.is_other {
            return Some(if variable.value == b"x" { b"y" } else { b"x" });
        }
        Some(&variable.value)
    }

    fn spend(&mut self, bytes: usize, steps: usize) -> bool {
        meter::count_bytes(bytes);
        meter::count_steps(steps);
        meter::exhausted_limit().is_none()
    }
}

/// Checks whether a resource contains anything to substitute. Other resources are not rewritten.
fn has_dollar(node: &Node) -> bool {
    meter::count_steps(1);
    match &node.data {
        Data::Scalar(text) => text.contains('$'),
        Data::Map(entries) => entries.iter().any(|(key, value)| has_dollar(key) || has_dollar(value)),
        Data::Seq(items) => items.iter().any(has_dollar),
    }
}

fn refuse_field(resource: &Resource, at: &Node, message: &str) -> Trouble {
    Trouble {
        id: resource.current_id().to_string(),
        source: at.source,
        line: at.line,
        message: format!("{FAILED}: {message}"),
    }
}

/// Returns an error at the place of the expression. If the resource may contain a Secret's values, the error says only the place and the
/// kind of problem.
fn make_trouble(resource: &Resource, error: &SubstitutionError) -> Trouble {
    let name = error.name();
    let at = find_expression(&resource.node, name).unwrap_or(&resource.node);
    if resource.is_confidential() {
        let problem = match error.problem() {
            Problem::NotSet => "a variable is not set",
            _ => "what begins with `${` is no substitution",
        };
        let message = format!("{problem}; its name isn't said, since it could be a part of what the object holds");
        return refuse_field(resource, at, &message);
    }
    let message = match error.problem() {
        Problem::NotSet => format!(
            "{error}: set it in spec.postBuild, write `${{{name}:=default}}`, or `$${{{name}}}` where no variable is meant"
        ),
        Problem::Spent => error.to_string(),
        _ => format!("{error}, at `${{{name}`: write `$${{` where no variable is meant"),
    };
    refuse_field(resource, at, &message)
}

/// Returns the first text in which a variable is named.
fn find_expression<'node>(node: &'node Node, name: &str) -> Option<&'node Node> {
    meter::count_steps(1);
    let names = |text: &str| {
        text.match_indices("${").any(|(at, begin)| {
            let rest = text.get(at + begin.len()..).unwrap_or_default();
            let rest = rest.strip_prefix('#').unwrap_or(rest).strip_prefix(name);
            rest.is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_'))
        })
    };
    match &node.data {
        Data::Scalar(text) => names(text).then_some(node),
        Data::Map(entries) => entries.iter().find_map(|(key, value)| {
            let in_key = find_expression(key, name).map(|_| value);
            in_key.or_else(|| find_expression(value, name))
        }),
        Data::Seq(items) => items.iter().find_map(|item| find_expression(item, name)),
    }
}

/// Returns whether a text that was one document has become several.
fn has_several_documents(text: &str) -> bool {
    let is_break = |letter: char| matches!(letter, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let is_marker = |line: &str| line.starts_with("---") || line.starts_with("...");
    if !text.split(is_break).any(is_marker) {
        return false;
    }
    let mut events = EventReader::new(text, Dialect::V2);
    let mut documents = 0;
    // The reader reports unreadable text later.
    while let Ok(event) = events.next() {
        match event.what {
            EventKind::StreamEnd => break,
            EventKind::DocumentStart => documents += 1,
            _ => {}
        }
    }
    documents > 1
}

/// Reads the text of one object, as sigs.k8s.io/yaml does.
fn read(text: &str, maximum_nodes: usize) -> Result<Value, String> {
    let source = Source {
        file: 0,
        lines: Lines::On(0),
        maximum_nodes,
        scanner: Dialect::V2,
    };
    let node = first_node(text, source).map_err(|error| error.message)?;
    let node = node.ok_or("it is empty")?;
    configuration_value(&node).map_err(|problem| problem.message)
}

/// Copies the places of the written nodes to the nodes that were read back. A new node gets the place of the node around it.
fn copy_places(node: &mut Node, written: &Node) {
    node.source = written.source;
    node.line = written.line;
    match (&mut node.data, &written.data) {
        (Data::Map(entries), Data::Map(others)) => {
            meter::count_steps(entries.len() + others.len());
            let known: HashMap<&str, &Node> = others.iter().map(|(key, value)| (key.text(), value)).collect();
            for (key, value) in entries.iter_mut() {
                let other = known.get(key.text()).copied();
                place_under(value, other, written);
            }
        }
        (Data::Seq(items), Data::Seq(others)) => {
            let mut others = others.iter();
            for item in items.iter_mut() {
                place_under(item, others.next(), written);
            }
        }
        (_, _) => node.place_all(written.source, written.line),
    }
}

fn place_under(node: &mut Node, written: Option<&Node>, around: &Node) {
    match written {
        Some(written) => copy_places(node, written),
        None => node.place_all(around.source, around.line),
    }
}
