//! Metered evaluation. The count follows a kube-apiserver: one for each variable, field and index, the creation of lists and maps, and for
//! each call the cost from [`crate::cost`]. `&&`, `||` and `?:` are free.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cost;
use crate::extension::{Check, Decision, Extension};
use crate::failure::Failure;
use crate::meter::Meter;
use crate::plan::{Attribute, Base, Call, Fold, Grow, Index, Node, Qualifier, Step};
use crate::value::{Entries, Items, Key, List, Map, Value};

/// The inputs of an evaluation: the values of variables, and the authorizer.
pub trait Variables<'a> {
    /// Returns the value of a variable.
    fn get(&self, name: &str) -> Option<Value<'a>>;

    /// Returns the field of a variable, if the variable computes its fields on demand.
    fn field(&self, variable: &str, field: &str) -> Option<Result<Value<'a>, Failure>> {
        let _ = (variable, field);
        None
    }

    /// Answers a check of the `authorizer` library.
    fn authorize(&self, check: &Check) -> Decision {
        let _ = check;
        Decision::default()
    }
}

/// Variables by name.
impl<'a, const N: usize> Variables<'a> for [(&str, Value<'a>); N] {
    fn get(&self, name: &str) -> Option<Value<'a>> {
        let found = self.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    }
}

/// Variables by name.
impl<'a> Variables<'a> for BTreeMap<String, Value<'a>> {
    fn get(&self, name: &str) -> Option<Value<'a>> {
        BTreeMap::get(self, name).cloned()
    }
}

const LIST: u64 = 10;
const MAP: u64 = 30;

/// The value of an expression, or the reason why it has none.
type Outcome<'a> = Result<Value<'a>, Failure>;

/// A local variable.
enum Slot<'a, 'p> {
    /// Computed when it is first read.
    Lazy(&'p Node),
    Ready(Outcome<'a>),
}

/// The state of one evaluation: the variables, the meter, and the local variables.
pub(crate) struct Evaluator<'a, 'p, 'v> {
    variables: &'v dyn Variables<'a>,
    meter: &'v mut Meter,
    slots: Vec<Slot<'a, 'p>>,
}

impl<'a, 'p, 'v> Evaluator<'a, 'p, 'v> {
    pub(crate) fn new(variables: &'v dyn Variables<'a>, meter: &'v mut Meter, slots: usize) -> Self {
        Self {
            variables,
            meter,
            slots: (0..slots).map(|_| Slot::Ready(Ok(Value::Null))).collect(),
        }
    }

    pub(crate) fn evaluate(&mut self, node: &'p Node) -> Outcome<'a> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Attribute(attribute) => {
                let found = self.resolve_attribute(attribute);
                // A choice costs only its chosen branch. A test costs only its qualifiers.
                if !matches!(attribute.base, Base::Choice(_)) && !attribute.test {
                    self.meter.spend(1)?;
                }
                match found? {
                    Value::Optional(found) if attribute.test => Ok(Value::Bool(found.is_some())),
                    found => Ok(found),
                }
            }
            Node::And(terms) => self.evaluate_logical(terms, false),
            Node::Or(terms) => self.evaluate_logical(terms, true),
            Node::OptionalOr { first, second, unwrap } => match self.evaluate(first)? {
                Value::Optional(None) => self.evaluate(second),
                Value::Optional(Some(value)) if *unwrap => Ok((*value).clone()),
                other => Ok(other),
            },
            Node::NotStrictlyFalse(argument) => {
                let value = self.evaluate(argument);
                self.meter.spend(1)?;
                match value {
                    Ok(Value::Bool(value)) => Ok(Value::Bool(value)),
                    Err(failure) if failure.cancelled => Err(failure),
                    _ => Ok(Value::Bool(true)),
                }
            }
            Node::Call(call) => self.evaluate_call(call),
            Node::List(items) => self.evaluate_list(items),
            Node::Map(entries) => self.evaluate_map(entries),
            Node::Member { argument, list, keys } => {
                let value = self.evaluate(argument)?;
                let found = match (keys, Key::of(&value), list) {
                    (Some(keys), Some(key), _) => keys.contains(&key),
                    (_, _, Value::List(items)) => crate::compare::list_contains(items, &value, self.meter)?,
                    _ => false,
                };
                Ok(Value::Bool(found))
            }
            Node::Fold(fold) => self.evaluate_fold(fold),
        }
    }

    /// Evaluates `&&` and `||`. One decisive term is enough, even if another term failed.
    fn evaluate_logical(&mut self, terms: &'p [Node], decisive: bool) -> Outcome<'a> {
        let mut failed = None;
        for term in terms {
            match self.evaluate(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or_else(|| Some(Failure::no_such_overload())),
                Err(failure) if failure.cancelled => return Err(failure),
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn evaluate_call(&mut self, call: &'p Call) -> Outcome<'a> {
        let mut arguments = Vec::with_capacity(call.arguments.len());
        let mut failed = None;
        for argument in &call.arguments {
            match self.evaluate(argument) {
                Ok(value) => arguments.push(value),
                Err(failure) if failure.cancelled => return Err(failure),
                Err(failure) => failed = failed.or(Some(failure)),
            }
            // Only calls with one or two arguments look at the others after one has failed.
            if failed.is_some() && call.arguments.len() > 2 {
                break;
            }
        }
        if let Some(failure) = failed {
            if call.arguments.len() <= 2 {
                self.meter.spend(1)?;
            }
            return Err(failure);
        }
        // Measuring and converting texts is free for Kubernetes, however long they are.
        for argument in &arguments {
            match argument {
                Value::String(text) => self.meter.spend_effort(text.len())?,
                Value::Bytes(bytes) => self.meter.spend_effort(bytes.len())?,
                _ => {}
            }
        }
        let result = match (&call.pattern, call.function.as_str()) {
            (Some(pattern), function) => {
                crate::functions::regex::with_pattern(function, &arguments, pattern, self.meter)
            }
            (None, "check") => self.authorize(&arguments),
            (None, function) => (call.implementation)(function, &arguments, self.meter),
        };
        if result.as_ref().is_err_and(|failure| failure.cancelled) {
            return result;
        }
        let spent = cost::of_call(call, &arguments, result.as_ref().ok());
        self.meter.spend(spent)?;
        result
    }

    fn authorize(&mut self, arguments: &[Value<'a>]) -> Outcome<'a> {
        let [Value::Extension(Extension::Check(check)), Value::String(verb)] = arguments else {
            return Err(Failure::no_such_overload());
        };
        let check = check.with_verb(verb);
        let decision = self.variables.authorize(&check);
        Ok(Value::Extension(Extension::Decision(Arc::new(decision))))
    }

    fn evaluate_list(&mut self, items: &'p [(Node, bool)]) -> Outcome<'a> {
        let mut values = Vec::with_capacity(items.len());
        for (item, optional) in items {
            match (self.evaluate(item)?, optional) {
                (value, false) => values.push(value),
                (Value::Optional(value), true) => values.extend(value.map(|value| (*value).clone())),
                (_, true) => {
                    return Err(Failure::new(
                        "cannot initialize optional list element from non-optional value",
                    ));
                }
            }
        }
        self.meter
            .spend_effort(values.len() * std::mem::size_of::<Value<'_>>())?;
        self.meter.spend(LIST)?;
        Ok(Value::from(values))
    }

    fn evaluate_map(&mut self, entries: &'p [(Node, Node, bool)]) -> Outcome<'a> {
        let mut made = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.evaluate(key)?;
            let value = self.evaluate(value)?;
            let key = self.make_key(&key)?;
            match (value, optional) {
                (value, false) => {
                    made.insert(key, value);
                }
                (Value::Optional(Some(value)), true) => {
                    made.insert(key, (*value).clone());
                }
                (Value::Optional(None), true) => {
                    made.remove(&key);
                }
                (_, true) => {
                    return Err(Failure::new("cannot initialize optional entry from non-optional value"));
                }
            }
        }
        self.meter.spend(MAP)?;
        Ok(Map::from_entries(made))
    }

    /// Returns a value as the key of a new map.
    fn make_key(&mut self, value: &Value<'a>) -> Result<Key, Failure> {
        if let Value::String(text) = value {
            self.meter.spend_effort(text.len())?;
        }
        Key::of(value)
            .filter(|_| !matches!(value, Value::Double(_)))
            .ok_or_else(|| Failure::new("unsupported key type"))
    }

    fn resolve_attribute(&mut self, attribute: &'p Attribute) -> Outcome<'a> {
        let mut qualifiers = attribute.qualifiers.as_slice();
        let base = match &attribute.base {
            Base::Variable(name) => {
                // Fields that are computed when they are asked for.
                let first = match qualifiers.first().map(|first| &first.index) {
                    Some(Index::Constant(Value::String(field))) => self.variables.field(name, field),
                    _ => None,
                };
                match first {
                    Some(found) => {
                        self.meter.spend(1)?;
                        let (found, rest) = (found?, qualifiers.get(1..).unwrap_or_default());
                        let optional = qualifiers.first().is_some_and(|first| first.optional);
                        qualifiers = rest;
                        if optional {
                            Value::optional(Some(found))
                        } else if attribute.test && rest.is_empty() {
                            Value::Bool(true)
                        } else {
                            found
                        }
                    }
                    None => match self.variables.get(name) {
                        Some(value) => value,
                        None => return Err(Failure::new(format!("no such attribute(s): {name}"))),
                    },
                }
            }
            Base::Local(slot) => self.evaluate_local(*slot)?,
            Base::Node(node) => self.evaluate(node)?,
            Base::Choice(choice) => match self.evaluate(&choice.0)? {
                Value::Bool(true) => self.resolve_attribute(&choice.1)?,
                Value::Bool(false) => self.resolve_attribute(&choice.2)?,
                _ => return Err(Failure::no_such_overload()),
            },
        };
        self.apply_qualifiers(base, qualifiers, attribute.test)
    }

    fn evaluate_local(&mut self, slot: usize) -> Outcome<'a> {
        let node = match self.slots.get(slot) {
            Some(Slot::Ready(value)) => return value.clone(),
            Some(Slot::Lazy(node)) => *node,
            None => return Err(Failure::new("no such attribute(s)")),
        };
        let value = self.evaluate(node);
        self.set(slot, Slot::Ready(value.clone()));
        value
    }

    fn set(&mut self, slot: usize, value: Slot<'a, 'p>) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = value;
        }
    }

    fn apply_qualifiers(&mut self, base: Value<'a>, qualifiers: &'p [Qualifier], test: bool) -> Outcome<'a> {
        if qualifiers.is_empty() {
            return Ok(base);
        }
        let (mut value, mut optional) = match base {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(value)) => ((*value).clone(), true),
            other => (other, false),
        };
        let last = qualifiers.len() - 1;
        for (position, qualifier) in qualifiers.iter().enumerate() {
            optional |= qualifier.optional;
            let tested = test && position == last;
            let index = match &qualifier.index {
                Index::Constant(value) => value.clone(),
                Index::Attribute(attribute) => self.resolve_attribute(attribute)?,
                Index::Node(node) => self.evaluate(node)?,
            };
            let found = match find(&value, &index, optional || tested) {
                Ok(found) => found,
                Err(failure) => {
                    self.meter.spend(1)?;
                    return Err(failure);
                }
            };
            if found.is_some() || !optional || tested {
                self.meter.spend(1)?;
            }
            if tested {
                return Ok(match (optional, found) {
                    (false, found) => Value::Bool(found.is_some()),
                    (true, found) => Value::Optional(found.map(Arc::new)),
                });
            }
            value = match found {
                Some(found) => found,
                None => return Ok(Value::Optional(None)),
            };
        }
        Ok(if optional { Value::optional(Some(value)) } else { value })
    }

    fn evaluate_fold(&mut self, fold: &'p Fold) -> Outcome<'a> {
        let range = self.evaluate(&fold.range)?;
        self.set(fold.accumulator, Slot::Lazy(&fold.start));
        match &fold.step {
            Step::General(step) => self.iterate_range(fold, &range, |evaluator| {
                let value = evaluator.evaluate(step);
                if let Err(failure) = &value
                    && failure.cancelled
                {
                    return Err(failure.clone());
                }
                evaluator.set(fold.accumulator, Slot::Ready(value));
                Ok(())
            })?,
            Step::Grow { filter, grow } => {
                let mut grown = Grown::of(&fold.start);
                self.iterate_range(fold, &range, |evaluator| {
                    evaluator.evaluate_growth(filter.as_ref(), grow, &mut grown)
                })?;
                self.set(fold.accumulator, Slot::Ready(grown.finish()));
            }
        }
        self.evaluate(&fold.result)
    }

    fn iterate_range(
        &mut self,
        fold: &'p Fold,
        range: &Value<'a>,
        mut step: impl FnMut(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let keys = match range {
            Value::Map(map) => map.keys(),
            _ => Vec::new(),
        };
        let count = match range {
            Value::List(list) => list.len(),
            Value::Map(_) => keys.len(),
            other => {
                let name = go_name(other);
                return Err(Failure::new(format!("got '{name}', expected iterable type")));
            }
        };
        for index in 0..count {
            self.meter.spend_effort(1)?;
            let (first, second) = match (range, fold.second_variable) {
                (Value::List(list), None) => (item_at(list, index), Ok(Value::Null)),
                (Value::List(list), Some(_)) => (Ok(Value::Int(index as i64)), item_at(list, index)),
                (Value::Map(map), second) => {
                    let key = keys.get(index).cloned().unwrap_or(Value::Null);
                    let value = match second {
                        Some(_) => map.find(&key).map(|found| found.unwrap_or(Value::Null)),
                        None => Ok(Value::Null),
                    };
                    (Ok(key), value)
                }
                _ => (Ok(Value::Null), Ok(Value::Null)),
            };
            self.set(fold.variable, Slot::Ready(first));
            if let Some(slot) = fold.second_variable {
                self.set(slot, Slot::Ready(second));
            }
            match self.evaluate(&fold.condition) {
                Ok(Value::Bool(false)) => break,
                Err(failure) if failure.cancelled => return Err(failure),
                _ => {}
            }
            step(self)?;
        }
        Ok(())
    }

    /// Runs an iteration of a macro that builds a list or a map.
    fn evaluate_growth(
        &mut self,
        filter: Option<&'p Node>,
        grow: &'p Grow,
        grown: &mut Grown<'a>,
    ) -> Result<(), Failure> {
        let fatal = |outcome: Outcome<'a>| match outcome {
            Err(failure) if failure.cancelled => Err(failure),
            other => Ok(other),
        };
        if let Some(filter) = filter {
            match fatal(self.evaluate(filter))? {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => return Ok(()),
                Ok(_) => {
                    grown.failed = Some(Failure::no_such_overload());
                    return Ok(());
                }
                Err(failure) => {
                    grown.failed = Some(failure);
                    return Ok(());
                }
            }
        }
        // The accumulator is read.
        self.meter.spend(1)?;
        match grow {
            Grow::Item(item, constant) => {
                let value = fatal(self.evaluate(item))?;
                self.meter.spend(if *constant { 1 } else { LIST + 1 })?;
                self.meter.spend_effort(std::mem::size_of::<Value<'_>>())?;
                grown.add_value(value, |grown, value| {
                    grown.items.push(value);
                    Ok(())
                });
            }
            Grow::Entry(key, value) => {
                let key = fatal(self.evaluate(key))?;
                let value = fatal(self.evaluate(value))?;
                self.meter.spend(1)?;
                self.meter.spend_effort(2 * std::mem::size_of::<Value<'_>>())?;
                let key = key.and_then(|key| self.make_key(&key));
                grown.add_value(value, |grown, value| grown.insert(key?, value));
            }
            Grow::Entries(entries) => {
                let entries = fatal(self.evaluate(entries))?;
                self.meter.spend(1)?;
                self.meter.spend_effort(2 * std::mem::size_of::<Value<'_>>())?;
                grown.add_value(entries, |grown, entries| {
                    let Value::Map(map) = entries else {
                        return Err(Failure::no_such_overload());
                    };
                    for key in map.keys() {
                        let value = map.find(&key)?.unwrap_or(Value::Null);
                        let key = Key::of(&key).ok_or_else(|| Failure::new("unsupported key type"))?;
                        grown.insert(key, value)?;
                    }
                    Ok(())
                });
            }
        }
        Ok(())
    }
}

/// The list or map that a macro has built so far.
struct Grown<'a> {
    is_map: bool,
    items: Vec<Value<'a>>,
    entries: BTreeMap<Key, Value<'a>>,
    failed: Option<Failure>,
}

impl<'a> Grown<'a> {
    fn of(start: &Node) -> Self {
        Self {
            is_map: matches!(start, Node::Constant(Value::Map(_))),
            items: Vec::new(),
            entries: BTreeMap::new(),
            failed: None,
        }
    }

    /// Adds a value, unless an earlier step failed.
    fn add_value(&mut self, value: Outcome<'a>, add: impl FnOnce(&mut Self, Value<'a>) -> Result<(), Failure>) {
        if self.failed.is_some() {
            return;
        }
        if let Err(failure) = value.and_then(|value| add(self, value)) {
            self.failed = Some(failure);
        }
    }

    fn insert(&mut self, key: Key, value: Value<'a>) -> Result<(), Failure> {
        if self.entries.contains_key(&key) {
            return Err(Failure::new(format!(
                "insert failed: key {} already exists",
                crate::functions::format::show_value(&key.value())
            )));
        }
        self.entries.insert(key, value);
        Ok(())
    }

    fn finish(self) -> Outcome<'a> {
        match self.failed {
            Some(failure) => Err(failure),
            None if self.is_map => Ok(Value::Map(Map {
                entries: Entries::Made(Arc::new(self.entries)),
            })),
            None => Ok(Value::List(List {
                items: Items::Made(Arc::new(self.items)),
                shape: None,
            })),
        }
    }
}

/// Returns a kube-apiserver's name for the type of a value that can't be iterated.
fn go_name(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Duration(_) => "types.Duration",
        Value::Optional(_) => "*types.Optional",
        Value::Type(_) => "*types.Type",
        Value::List(_) | Value::Map(_) | Value::Extension(_) | Value::Preserved(_) => "value",
    }
}

fn item_at<'a>(list: &List<'a>, index: usize) -> Outcome<'a> {
    list.get(index).unwrap_or_else(|| Err(Failure::out_of_bounds(index)))
}

/// Returns the value at an index. A missing value is an error, unless `asking` is true.
pub(crate) fn find<'a>(value: &Value<'a>, index: &Value<'a>, asking: bool) -> Result<Option<Value<'a>>, Failure> {
    let absent = |failure: Failure| if asking { Ok(None) } else { Err(failure) };
    let shown = || crate::functions::format::show_value(index);
    match value {
        Value::Map(map) => match map.find(index)? {
            Some(found) => Ok(Some(found)),
            None => absent(Failure::no_such_key(shown())),
        },
        Value::List(list) => {
            let position = match index {
                Value::Int(position) => usize::try_from(*position).ok(),
                Value::Uint(position) => usize::try_from(*position).ok(),
                Value::Double(position) if position.fract() == 0.0 && *position >= 0.0 => Some(*position as usize),
                Value::Double(_) => return Err(Failure::new(format!("unsupported index value {} in list", shown()))),
                other => {
                    let name = other.type_of();
                    return Err(Failure::new(format!(
                        "unsupported index type '{}' in list",
                        name.name()
                    )));
                }
            };
            match position.and_then(|position| list.get(position)) {
                Some(found) => found.map(Some),
                None => absent(Failure::out_of_bounds(shown())),
            }
        }
        _ => absent(Failure::no_such_key(shown())),
    }
}
