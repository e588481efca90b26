//! The minimum and maximum cost of an expression, estimated before evaluation from the sizes that schemas allow. The numbers follow a
//! kube-apiserver, so both refuse the same rules.

use std::collections::HashMap;

use crate::ast::{ACCUMULATOR, Comprehension, Expr, Id, Kind, Literal};
use crate::checker::{Checked, Reference};
use crate::cost::{LETTER, PATTERN_LETTER};
use crate::estimate_calls as calls;
use crate::shape::Shape;
use crate::types::Type;

/// A range from the minimum to the maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    /// The least value.
    pub min: u64,
    /// The greatest value; `u64::MAX` if it has no bound.
    pub max: u64,
}

impl Range {
    pub(crate) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(crate) const fn exact(value: u64) -> Self {
        Self { min: value, max: value }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    /// Returns the range multiplied by a factor, rounded up.
    pub(crate) fn scale(self, factor: f64) -> Self {
        let scale = |value: u64| (value as f64 * factor).ceil() as u64;
        Self {
            min: scale(self.min),
            max: scale(self.max),
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// Estimates a checked expression. `root` is the schema of its variables.
pub(crate) fn estimate_expression(tree: &Expr, checked: &Checked, root: Option<&Shape>) -> Range {
    let mut estimator = Estimator {
        checked,
        root,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        locals: Vec::new(),
    };
    estimator.estimate_node(tree)
}

/// Sizes of the keys and values of a list or map.
#[derive(Debug, Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

/// A local variable of a comprehension, with the schema path and the sizes of its value.
struct Local {
    name: String,
    path: Vec<String>,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// The state of the estimate of one expression: the paths and sizes of its parts, as far as they are known.
pub(crate) struct Estimator<'e> {
    checked: &'e Checked,
    root: Option<&'e Shape>,
    paths: HashMap<Id, Vec<String>>,
    sizes: HashMap<Id, Range>,
    entries: HashMap<Id, Entries>,
    locals: Vec<Local>,
}

/// The role of an iteration's variable.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Single,
    Key,
    Value,
}

impl Estimator<'_> {
    fn estimate_node(&mut self, expression: &Expr) -> Range {
        match &expression.kind {
            Kind::Literal(_) => Range::default(),
            Kind::Ident(name) => self.estimate_name(expression, name),
            Kind::Select { operand, field, test } => {
                let whole = self.checked.references.get(&expression.id);
                if let Some(Reference::Variable(name)) = whole {
                    return self.estimate_name(expression, &name.clone());
                }
                if let Some(Reference::Type(_)) = whole {
                    return self.estimate_name(expression, field);
                }
                let mut sum = self.estimate_node(operand);
                if *test {
                    return sum;
                }
                if matches!(
                    self.checked.type_of(operand),
                    Type::Map(_) | Type::Object(_) | Type::Parameter(_)
                ) {
                    sum = sum.plus(Range::exact(1));
                }
                let mut path = self.path_of(operand);
                path.push(field.clone());
                self.paths.insert(expression.id, path);
                sum
            }
            Kind::Call {
                function,
                target,
                arguments,
            } => self.estimate_call(expression, function, target.as_deref(), arguments),
            Kind::List(elements) => {
                let mut sum = Range::exact(10);
                let mut item = Range { min: u64::MAX, max: 0 };
                if elements.is_empty() {
                    item.min = 0;
                }
                for element in elements {
                    sum = sum.plus(self.estimate_node(&element.value));
                    item = item.union(self.size_or_unknown(&element.value));
                }
                let entries = Entries {
                    is_list: true,
                    key: Range::exact(1),
                    value: item,
                };
                self.entries.insert(expression.id, entries);
                sum
            }
            Kind::Map(entries) => {
                let mut sum = Range::exact(30);
                let least = if entries.is_empty() { 0 } else { u64::MAX };
                let mut key = Range { min: least, max: 0 };
                let mut value = key;
                for entry in entries {
                    sum = sum
                        .plus(self.estimate_node(&entry.key))
                        .plus(self.estimate_node(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                let made = Entries {
                    is_list: false,
                    key,
                    value,
                };
                self.entries.insert(expression.id, made);
                sum
            }
            Kind::Message(_) => Range::exact(40),
            Kind::Comprehension(fold) if fold.is_binding() => self.estimate_binding(expression, fold),
            Kind::Comprehension(fold) => self.estimate_fold(expression, fold),
        }
    }

    fn estimate_name(&mut self, expression: &Expr, name: &str) -> Range {
        let path = match self.find_local(name) {
            Some(local) => local.path.clone(),
            None => vec![name.to_owned()],
        };
        self.paths.insert(expression.id, path);
        Range::exact(1)
    }

    fn find_local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path_of(&self, expression: &Expr) -> Vec<String> {
        if let Kind::Ident(name) = &expression.kind
            && let Some(local) = self.find_local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expression.id).cloned().unwrap_or_default()
    }

    fn estimate_binding(&mut self, expression: &Expr, fold: &Comprehension) -> Range {
        let sum = self.estimate_node(&fold.range).plus(self.estimate_node(&fold.start));
        self.push_local(&fold.accumulator, &fold.start);
        let sum = sum.plus(self.estimate_node(&fold.result));
        self.locals.pop();
        self.copy_sizes(expression, &fold.result);
        sum
    }

    fn push_local(&mut self, name: &str, value: &Expr) {
        let local = Local {
            name: name.to_owned(),
            path: self.path_of(value),
            size: self.find_size(value),
            entries: self.entry_sizes(value),
        };
        self.locals.push(local);
    }

    fn push_part(&mut self, name: &str, range: &Expr, part: Part) {
        let entries = self.entry_sizes(range);
        let is_list = entries.map_or_else(
            || matches!(self.checked.type_of(range), Type::List(_)),
            |entries| entries.is_list,
        );
        let (step, takes_value) = match (part, is_list) {
            (Part::Single | Part::Value, true) => ("@items", true),
            (Part::Value, false) => ("@values", true),
            (Part::Key, true) => ("@indices", false),
            (Part::Single | Part::Key, false) => ("@keys", false),
        };
        let size = entries.map(|entries| if takes_value { entries.value } else { entries.key });
        let mut path = self.path_of(range);
        path.push(step.to_owned());
        self.locals.push(Local {
            name: name.to_owned(),
            path,
            size,
            entries: None,
        });
    }

    fn estimate_fold(&mut self, expression: &Expr, fold: &Comprehension) -> Range {
        let mut sum = self.estimate_node(&fold.range).plus(self.estimate_node(&fold.start));
        let outside = self.locals.len();
        self.push_local(&fold.accumulator, &fold.start);
        match &fold.second_variable {
            Some(second) => {
                self.push_part(&fold.variable, &fold.range, Part::Key);
                self.push_part(second, &fold.range, Part::Value);
            }
            None => self.push_part(&fold.variable, &fold.range, Part::Single),
        }
        let each = self.estimate_node(&fold.condition);
        let each = self.estimate_node(&fold.step).plus(each);
        self.locals.truncate(outside + 1);
        sum = sum.plus(self.estimate_node(&fold.result));
        self.locals.truncate(outside);
        let count = self.size_or_unknown(&fold.range);
        sum = sum.plus(count.times(each));
        match &fold.start.kind {
            Kind::Literal(_) => {
                if let Some(size) = self.find_size(&fold.start) {
                    self.sizes.insert(expression.id, size);
                }
            }
            Kind::List(_) | Kind::Map(_) => {
                self.sizes.insert(expression.id, count);
                if let Some(entries) = self.entry_sizes(&fold.step) {
                    self.entries.insert(expression.id, entries);
                }
            }
            _ => {}
        }
        sum
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.find_size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entries) = self.entry_sizes(from) {
            self.entries.insert(to.id, entries);
        }
    }

    fn estimate_call(&mut self, expression: &Expr, written: &str, target: Option<&Expr>, arguments: &[Expr]) -> Range {
        let (function, target) = match self.checked.references.get(&expression.id) {
            Some(Reference::Function { name, namespaced, .. }) => (name.clone(), target.filter(|_| !*namespaced)),
            _ => (written.to_owned(), target),
        };
        if function == "dyn"
            && let [argument] = arguments
        {
            let cost = self.estimate_node(argument);
            self.copy_sizes(expression, argument);
            return cost.plus(Range::exact(1));
        }
        let costs: Vec<Range> = arguments.iter().map(|argument| self.estimate_node(argument)).collect();
        let overloads = self.checked.overloads(expression).to_vec();
        if overloads.is_empty() {
            return Range::default();
        }
        let mut sum = Range::default();
        if let Some(target) = target {
            sum = self.estimate_node(target);
        }
        let mut total = Range { min: u64::MAX, max: 0 };
        let mut result: Option<Range> = None;
        for overload in overloads {
            let (cost, size) = self.of_overload(expression, &function, overload, target, arguments, &costs);
            total = total.union(cost);
            if let Some(size) = size {
                result = Some(result.map_or(size, |before| before.union(size)));
            }
            let step = match overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(step), Some(operand)) = (step, arguments.first()) {
                result = self.entry_sizes(operand).map(|entries| entries.value);
                let mut path = self.path_of(operand);
                path.push(step.to_owned());
                self.paths.insert(expression.id, path);
            }
            if result.is_none() {
                result = self.find_size(expression);
            }
        }
        if let Some(result) = result {
            self.sizes.insert(expression.id, result);
        }
        sum.plus(total)
    }

    /// Cost of one overload with its arguments, and the size of its result where that is known.
    fn of_overload(
        &mut self,
        expression: &Expr,
        function: &str,
        overload: &str,
        target: Option<&Expr>,
        arguments: &[Expr],
        costs: &[Range],
    ) -> (Range, Option<Range>) {
        let given = costs.iter().fold(Range::default(), |sum, cost| sum.plus(*cost));
        if let Some((cost, size)) = calls::estimate_call(self, function, overload, target, arguments) {
            return (cost.plus(given), size);
        }
        let size = |estimator: &mut Self, index: usize| {
            arguments
                .get(index)
                .map_or(Range::UNKNOWN, |argument| estimator.size_or_unknown(argument))
        };
        let target_size = target.map_or(Range::UNKNOWN, |target| self.size_or_unknown(target));
        let fixed = Range::exact(1).plus(given);
        match overload {
            "string_format" => (target_size.scale(LETTER).plus(given), None),
            "string_to_bytes" => {
                let text = size(self, 0);
                let result = Range {
                    min: text.min,
                    max: text.max.wrapping_mul(4),
                };
                (text.scale(LETTER).plus(given), Some(result))
            }
            "bytes_to_string" => {
                let bytes = size(self, 0);
                let result = Range {
                    min: bytes.min / 4,
                    max: bytes.max,
                };
                (bytes.scale(LETTER).plus(given), Some(result))
            }
            "strings_quote" => {
                let text = size(self, 0);
                let result = Range {
                    min: text.min.wrapping_add(2),
                    max: text.max.wrapping_mul(2).wrapping_add(2),
                };
                (text.scale(LETTER).plus(given), Some(result))
            }
            "starts_with_string" | "ends_with_string" => (size(self, 0).scale(LETTER).plus(given), None),
            "in_list" => (size(self, 1).scale(1.0).plus(given), None),
            "matches_string" => {
                let text = target_size.plus(Range::exact(1)).scale(LETTER);
                (text.times(size(self, 0).scale(PATTERN_LETTER)).plus(given), None)
            }
            "contains_string" => {
                let part = size(self, 0).scale(LETTER);
                (target_size.scale(LETTER).times(part).plus(given), None)
            }
            "logical_or" | "logical_and" => {
                // The first term is always evaluated.
                let min = costs.first().map_or(0, |first| first.min);
                (Range { min, max: given.max }, None)
            }
            "conditional" => {
                let result = size(self, 1).union(size(self, 2));
                if let [_, yes, no] = arguments
                    && let (Some(yes), Some(no)) = (self.entry_sizes(yes), self.entry_sizes(no))
                {
                    self.entries.insert(expression.id, yes.union(no));
                }
                let cost = match costs {
                    [condition, yes, no] => condition.plus(yes.union(*no)),
                    _ => given,
                };
                (cost, Some(result))
            }
            "add_string" | "add_bytes" | "add_list" => {
                let result = size(self, 0).plus(size(self, 1));
                if let [left, right] = arguments
                    && let (Some(left), Some(right)) = (self.entry_sizes(left), self.entry_sizes(right))
                {
                    self.entries.insert(expression.id, left.union(right));
                }
                let cost = if overload == "add_list" {
                    fixed
                } else {
                    result.scale(LETTER).plus(given)
                };
                (cost, Some(result))
            }
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals" => {
                let max = size(self, 0).max.min(size(self, 1).max);
                let cost = Range {
                    min: u64::from(max > 0),
                    max,
                };
                (cost.scale(LETTER).plus(given), None)
            }
            _ => (fixed, None),
        }
    }

    pub(crate) fn type_of(&self, expression: &Expr) -> Type {
        self.checked.type_of(expression).clone()
    }

    pub(crate) fn size_or_unknown(&mut self, expression: &Expr) -> Range {
        self.find_size(expression).unwrap_or(Range::UNKNOWN)
    }

    /// Returns the size that the schema gives a path.
    pub(crate) fn schema_size(&self, path: &[String]) -> Option<Range> {
        let (_, steps) = path.split_first()?;
        let mut shape = self.root?;
        for step in steps {
            if step == "@keys" {
                return shape.is_map().then_some(Range { min: 0, max: 0 });
            }
            shape = shape.find_step(step)?;
        }
        Some(Range {
            min: 0,
            max: shape.maximum_length(),
        })
    }

    /// Returns the path of an expression, as far as it leads through the schema.
    pub(crate) fn visible_path(&self, expression: &Expr) -> Vec<String> {
        let path = self.path_of(expression);
        if path.first().is_some_and(|first| first == ACCUMULATOR) {
            return Vec::new();
        }
        path
    }

    fn find_size(&mut self, expression: &Expr) -> Option<Range> {
        if let Some(known) = self.sizes.get(&expression.id) {
            return Some(*known);
        }
        if let Some(size) = literal_size(expression) {
            return Some(Range::exact(size));
        }
        let path = self.path_of(expression);
        if let Some(size) = self.schema_size(&path) {
            self.sizes.insert(expression.id, size);
            return Some(size);
        }
        if is_scalar(self.checked.type_of(expression)) {
            return Some(Range::exact(1));
        }
        match &expression.kind {
            Kind::Ident(name) => self.find_local(name)?.size,
            _ => None,
        }
    }

    fn entry_sizes(&self, expression: &Expr) -> Option<Entries> {
        if let Some(known) = self.entries.get(&expression.id) {
            return Some(*known);
        }
        match &expression.kind {
            Kind::Ident(name) => self.find_local(name)?.entries,
            _ => None,
        }
    }
}

impl Entries {
    fn union(self, other: Self) -> Self {
        Self {
            is_list: self.is_list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

fn literal_size(expression: &Expr) -> Option<u64> {
    let size = match &expression.kind {
        Kind::Literal(Literal::String(text)) => text.chars().count(),
        Kind::Literal(Literal::Bytes(bytes)) => bytes.len(),
        Kind::Literal(_) => 1,
        Kind::List(elements) => elements.len(),
        Kind::Map(entries) => entries.len(),
        _ => return None,
    };
    u64::try_from(size).ok()
}

fn is_scalar(of: &Type) -> bool {
    match of {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}
