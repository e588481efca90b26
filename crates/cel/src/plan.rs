//! A checked expression, prepared for evaluation: names are resolved, constants computed and patterns compiled.
//!
//! The nodes follow the cost units of a kube-apiserver. A chain of fields and indices is one attribute with qualifiers. A choice between
//! attributes is also one attribute.

use std::collections::BTreeSet;

use regex::Regex;

use crate::ast::{Comprehension, Expr, Kind, Literal};
use crate::checker::{Checked, Reference};
use crate::failure::Failure;
use crate::functions::{self, Implementation};
use crate::meter::{Allowance, Meter};
use crate::pattern;
use crate::value::{Key, List, Map, Text, Value};

/// A step of an evaluation.
#[derive(Debug)]
pub(crate) enum Node {
    Constant(Value<'static>),
    Attribute(Attribute),
    And(Vec<Node>),
    Or(Vec<Node>),
    /// `or` and `orValue` of optionals; the second is evaluated only if it is needed.
    OptionalOr {
        first: Box<Node>,
        second: Box<Node>,
        unwrap: bool,
    },
    NotStrictlyFalse(Box<Node>),
    Call(Box<Call>),
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    /// A test whether a value is one of a constant list.
    Member {
        argument: Box<Node>,
        list: Value<'static>,
        keys: Option<BTreeSet<Key>>,
    },
    Fold(Box<Fold>),
}

/// A call of a function, with its arguments.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: String,
    /// If the checker found just one that fits.
    pub(crate) overload: Option<&'static str>,
    pub(crate) arguments: Vec<Node>,
    pub(crate) implementation: Implementation,
    /// The compiled pattern, if it is constant.
    pub(crate) pattern: Option<Regex>,
}

/// A value and the fields and indices that are read from it, such as `object.spec.replicas`.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) base: Base,
    pub(crate) qualifiers: Vec<Qualifier>,
    /// Whether the last qualifier is only a presence test.
    pub(crate) test: bool,
}

/// The value from which the qualifiers of an attribute are read.
#[derive(Debug)]
pub(crate) enum Base {
    Variable(String),
    Local(usize),
    Node(Box<Node>),
    Choice(Box<(Node, Attribute, Attribute)>),
}

/// A field or an index that is read from a value.
#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) index: Index,
    pub(crate) optional: bool,
}

/// The key or position of a qualifier: constant, or computed at the evaluation.
#[derive(Debug)]
pub(crate) enum Index {
    Constant(Value<'static>),
    Attribute(Attribute),
    Node(Node),
}

/// A comprehension. Numbers are the places of its local variables.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Node,
    pub(crate) start: Node,
    pub(crate) condition: Node,
    pub(crate) step: Step,
    pub(crate) result: Node,
    pub(crate) accumulator: usize,
    pub(crate) variable: usize,
    pub(crate) second_variable: Option<usize>,
}

/// The change of the accumulator in an iteration.
#[derive(Debug)]
pub(crate) enum Step {
    General(Node),
    /// Adds an item to a list, or entries to a map, in place.
    Grow {
        filter: Option<Node>,
        grow: Grow,
    },
}

/// The addition to a list or a map in one iteration.
#[derive(Debug)]
pub(crate) enum Grow {
    /// The flag is whether the one-item list is a constant, which costs nothing.
    Item(Node, bool),
    Entry(Node, Node),
    Entries(Node),
}

/// Plans an expression; the number is how many places for local variables it needs.
pub(crate) fn plan(root: &Expr, checked: &Checked) -> (Result<Node, String>, usize) {
    let mut planner = Planner {
        checked,
        scopes: Vec::new(),
        slots: 0,
    };
    let planned = planner.plan_node(root).map_err(|failure| failure.to_string());
    (planned, planner.slots)
}

/// The local variables in scope, and the number of places that they need.
struct Planner<'c> {
    checked: &'c Checked,
    scopes: Vec<(String, usize)>,
    slots: usize,
}

impl Planner<'_> {
    fn plan_node(&mut self, expression: &Expr) -> Result<Node, Failure> {
        match &expression.kind {
            Kind::Literal(literal) => Ok(Node::Constant(make_constant(literal))),
            Kind::Ident(name) => Ok(self.plan_name(expression, name)),
            Kind::Select { operand, field, test } => {
                if let Some(Reference::Variable(name)) = self.checked.references.get(&expression.id) {
                    return Ok(self.plan_name(expression, &name.clone()));
                }
                if let Some(Reference::Type(named)) = self.checked.references.get(&expression.id) {
                    return Ok(Node::Constant(Value::Type(named.clone())));
                }
                let mut attribute = self.plan_attribute(operand)?;
                attribute.qualifiers.push(Qualifier {
                    index: Index::Constant(Value::from(field.clone())),
                    optional: false,
                });
                attribute.test = *test;
                Ok(Node::Attribute(attribute))
            }
            Kind::Call {
                function,
                target,
                arguments,
            } => self.plan_call(expression, function, target.as_deref(), arguments),
            Kind::List(elements) => {
                let items = elements
                    .iter()
                    .map(|element| Ok((self.plan_node(&element.value)?, element.optional)))
                    .collect::<Result<Vec<_>, Failure>>()?;
                let all_constant = items
                    .iter()
                    .all(|(node, optional)| constant_of(node).is_some() && !optional);
                Ok(if all_constant {
                    let values: Vec<Value<'static>> = items
                        .iter()
                        .filter_map(|(node, _)| constant_of(node))
                        .cloned()
                        .collect();
                    Node::Constant(Value::from(values))
                } else {
                    Node::List(items)
                })
            }
            Kind::Map(entries) => {
                let entries = entries
                    .iter()
                    .map(|entry| {
                        Ok((
                            self.plan_node(&entry.key)?,
                            self.plan_node(&entry.value)?,
                            entry.optional,
                        ))
                    })
                    .collect::<Result<Vec<_>, Failure>>()?;
                let constants: Option<Vec<_>> = entries
                    .iter()
                    .map(|(key, value, optional)| {
                        (!optional).then_some((Key::of(constant_of(key)?)?, constant_of(value)?.clone()))
                    })
                    .collect();
                Ok(match constants {
                    Some(constants) => Node::Constant(Map::from_entries(constants.into_iter().collect())),
                    None => Node::Map(entries),
                })
            }
            Kind::Message(name) => Err(Failure::new(format!("unknown type: {name}"))),
            Kind::Comprehension(fold) => self.plan_fold(fold),
        }
    }

    fn plan_name(&mut self, expression: &Expr, name: &str) -> Node {
        if let Some((_, slot)) = self.scopes.iter().rev().find(|(known, _)| known == name) {
            return Node::Attribute(Attribute::of(Base::Local(*slot)));
        }
        if let Some(Reference::Type(named)) = self.checked.references.get(&expression.id) {
            return Node::Constant(Value::Type(named.clone()));
        }
        Node::Attribute(Attribute::of(Base::Variable(name.to_owned())))
    }

    /// Plans an expression that gets qualifiers. An attribute is used unchanged. Any other node becomes the base of a new attribute.
    fn plan_attribute(&mut self, expression: &Expr) -> Result<Attribute, Failure> {
        Ok(as_attribute(self.plan_node(expression)?))
    }

    fn plan_call(
        &mut self,
        expression: &Expr,
        written: &str,
        target: Option<&Expr>,
        arguments: &[Expr],
    ) -> Result<Node, Failure> {
        let (function, namespaced, overloads) = match self.checked.references.get(&expression.id) {
            Some(Reference::Function {
                name,
                namespaced,
                overloads,
            }) => (name.clone(), *namespaced, overloads.clone()),
            _ => (written.to_owned(), false, Vec::new()),
        };
        let overload = match overloads.as_slice() {
            [only] => Some(*only),
            _ => None,
        };
        let mut nodes = Vec::new();
        if let Some(target) = target.filter(|_| !namespaced) {
            nodes.push(self.plan_node(target)?);
        }
        for argument in arguments {
            nodes.push(self.plan_node(argument)?);
        }
        match function.as_str() {
            "_&&_" => return Ok(Node::And(nodes)),
            "_||_" => return Ok(Node::Or(nodes)),
            "_?_:_" => {
                return expect_three(nodes).map(|(condition, yes, no)| {
                    let choice = Box::new((condition, as_attribute(yes), as_attribute(no)));
                    Node::Attribute(Attribute::of(Base::Choice(choice)))
                });
            }
            "_[_]" | "_[?_]" | "_?._" => {
                let (operand, index) = expect_two(nodes)?;
                let mut attribute = as_attribute(operand);
                attribute.qualifiers.push(Qualifier {
                    index: match index {
                        Node::Constant(value) => Index::Constant(value),
                        Node::Attribute(attribute) => Index::Attribute(attribute),
                        other => Index::Node(other),
                    },
                    optional: function != "_[_]",
                });
                return Ok(Node::Attribute(attribute));
            }
            "or" | "orValue" => {
                let (first, second) = expect_two(nodes)?;
                return Ok(Node::OptionalOr {
                    first: Box::new(first),
                    second: Box::new(second),
                    unwrap: function == "orValue",
                });
            }
            "@not_strictly_false" => {
                let argument = nodes.pop().ok_or_else(Failure::no_such_overload)?;
                return Ok(Node::NotStrictlyFalse(Box::new(argument)));
            }
            "@in" if overload == Some("in_list") => {
                let (argument, list) = expect_two(nodes)?;
                return Ok(plan_membership(argument, list));
            }
            _ => {}
        }
        self.plain_call(function, overload, nodes)
    }

    fn plain_call(
        &mut self,
        function: String,
        overload: Option<&'static str>,
        arguments: Vec<Node>,
    ) -> Result<Node, Failure> {
        let implementation =
            functions::find(&function).ok_or_else(|| Failure::new(format!("no such overload: {function}")))?;
        let converts = matches!(
            function.as_str(),
            "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint"
        );
        if converts && let [Node::Constant(value)] = arguments.as_slice() {
            let mut meter = Meter::new(Allowance::of_cost(u64::MAX));
            return implementation(&function, std::slice::from_ref(value), &mut meter).map(Node::Constant);
        }
        let mut compiled = None;
        if matches!(function.as_str(), "matches" | "find" | "findAll")
            && let Some(Node::Constant(Value::String(text))) = arguments.get(1)
        {
            compiled = Some(
                pattern::compile(text).map_err(|problem| Failure::new(format!("error parsing regexp: {problem}")))?,
            );
        }
        Ok(Node::Call(Box::new(Call {
            function,
            overload,
            arguments,
            implementation,
            pattern: compiled,
        })))
    }

    fn add_slot(&mut self, name: &str) -> usize {
        let slot = self.slots;
        self.slots += 1;
        self.scopes.push((name.to_owned(), slot));
        slot
    }

    fn plan_fold(&mut self, fold: &Comprehension) -> Result<Node, Failure> {
        let start = self.plan_node(&fold.start)?;
        let range = self.plan_node(&fold.range)?;
        let outside = self.scopes.len();
        let accumulator = self.add_slot(&fold.accumulator);
        let variable = self.add_slot(&fold.variable);
        let second_variable = fold.second_variable.as_ref().map(|name| self.add_slot(name));
        let condition = self.plan_node(&fold.condition)?;
        let step = self.plan_node(&fold.step)?;
        self.scopes.truncate(outside + 1);
        let result = self.plan_node(&fold.result)?;
        self.scopes.truncate(outside);
        let grows = match constant_of(&start) {
            Some(Value::List(list)) => list.is_empty(),
            Some(Value::Map(map)) => map.is_empty(),
            _ => false,
        };
        let step = if grows && fold.accumulator == crate::ast::ACCUMULATOR {
            recognize_growth(step, accumulator)
        } else {
            Step::General(step)
        };
        Ok(Node::Fold(Box::new(Fold {
            range,
            start,
            condition,
            step,
            result,
            accumulator,
            variable,
            second_variable,
        })))
    }
}

impl Attribute {
    fn of(base: Base) -> Self {
        Self {
            base,
            qualifiers: Vec::new(),
            test: false,
        }
    }

    fn is_local(&self, slot: usize) -> bool {
        self.qualifiers.is_empty() && matches!(self.base, Base::Local(own) if own == slot)
    }
}

/// Recognizes the steps of the macros that build lists and maps.
fn recognize_growth(step: Node, accumulator: usize) -> Step {
    let is_grow = |node: &Node| match node {
        Node::Call(call) => {
            let first = call.arguments.first();
            let onto = matches!(first, Some(Node::Attribute(attribute)) if attribute.is_local(accumulator));
            let one_item = match call.arguments.get(1) {
                Some(Node::List(items)) => items.len() == 1,
                Some(Node::Constant(Value::List(items))) => items.len() == 1,
                _ => false,
            };
            onto && ((call.function == "_+_" && one_item) || call.function == "cel.@mapInsert")
        }
        _ => false,
    };
    let filtered = match &step {
        Node::Attribute(Attribute {
            base: Base::Choice(choice),
            qualifiers,
            ..
        }) if qualifiers.is_empty() => {
            choice.2.is_local(accumulator) && matches!(&choice.1.base, Base::Node(node) if is_grow(node))
        }
        _ => false,
    };
    if filtered {
        if let Node::Attribute(Attribute {
            base: Base::Choice(choice),
            ..
        }) = step
        {
            let (filter, yes, no) = *choice;
            return match yes.base {
                Base::Node(node) => match convert_to_growth(*node) {
                    Ok(grow) => Step::Grow {
                        filter: Some(filter),
                        grow,
                    },
                    Err(node) => Step::General(*node),
                },
                base => Step::General(Node::Attribute(Attribute { base, ..no })),
            };
        }
        return Step::General(Node::Constant(Value::Null));
    }
    if is_grow(&step) {
        return match convert_to_growth(step) {
            Ok(grow) => Step::Grow { filter: None, grow },
            Err(step) => Step::General(*step),
        };
    }
    Step::General(step)
}

fn convert_to_growth(node: Node) -> Result<Grow, Box<Node>> {
    let Node::Call(mut call) = node else {
        return Err(Box::new(node));
    };
    let insert = call.function == "cel.@mapInsert";
    let last = call.arguments.pop();
    match (insert, call.arguments.len(), last) {
        (false, 1, Some(Node::List(mut items))) => match items.pop() {
            Some((item, false)) => Ok(Grow::Item(item, false)),
            Some((item, true)) => {
                call.arguments.push(Node::List(vec![(item, true)]));
                Err(Box::new(Node::Call(call)))
            }
            None => Err(Box::new(Node::Call(call))),
        },
        (false, 1, Some(Node::Constant(Value::List(items)))) => match items.get(0) {
            Some(Ok(item)) => Ok(Grow::Item(Node::Constant(item), true)),
            _ => Err(Box::new(Node::Call(call))),
        },
        (true, 1, Some(entries)) => Ok(Grow::Entries(entries)),
        (true, 2, Some(value)) => match call.arguments.pop() {
            Some(key) => Ok(Grow::Entry(key, value)),
            None => Err(Box::new(Node::Call(call))),
        },
        (_, _, last) => {
            call.arguments.extend(last);
            Err(Box::new(Node::Call(call)))
        }
    }
}

fn expect_two(nodes: Vec<Node>) -> Result<(Node, Node), Failure> {
    let nodes: [Node; 2] = nodes.try_into().map_err(|_| Failure::no_such_overload())?;
    Ok(nodes.into())
}

fn expect_three(nodes: Vec<Node>) -> Result<(Node, Node, Node), Failure> {
    let nodes: [Node; 3] = nodes.try_into().map_err(|_| Failure::no_such_overload())?;
    Ok(nodes.into())
}

fn as_attribute(node: Node) -> Attribute {
    match node {
        Node::Attribute(attribute) => attribute,
        other => Attribute::of(Base::Node(Box::new(other))),
    }
}

fn constant_of(node: &Node) -> Option<&Value<'static>> {
    match node {
        Node::Constant(value) => Some(value),
        _ => None,
    }
}

fn make_constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Text::Shared(text.clone())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}

/// Plans a membership test. A test against a constant list of simple values is free and fast.
fn plan_membership(argument: Node, list: Node) -> Node {
    let simple = |items: &List<'static>| {
        items.iter().all(|item| {
            matches!(
                item,
                Ok(Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_))
            )
        })
    };
    match list {
        Node::Constant(Value::List(items)) if items.is_empty() => Node::Constant(Value::Bool(false)),
        Node::Constant(Value::List(items)) if simple(&items) => Node::Member {
            argument: Box::new(argument),
            keys: crate::compare::key_set(&items),
            list: Value::List(items),
        },
        list => Node::Call(Box::new(Call {
            function: "@in".to_owned(),
            overload: Some("in_list"),
            arguments: vec![argument, list],
            implementation: functions::test_membership,
            pattern: None,
        })),
    }
}
