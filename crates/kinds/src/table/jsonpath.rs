//! The part of kubectl's JSONPath that printer columns use: fields, indices, wildcards, and filters on a field.
//!
//! `.spec.replicas`, `.metadata.annotations['a\.b/c']`, `.status.conditions[?(@.type=="Ready")].status`, `.items[*].x`,
//! `.list[-1]`, `.list[0:2]`. Recursive descent and templates are errors.

use serde_json::Value;

/// A path that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSONPath {path:?} at byte {at}")]
pub struct JsonPathError {
    /// The path.
    pub path: String,
    /// The position of the error.
    pub at: usize,
}

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    All,
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    Filter {
        path: JsonPath,
        operator: Operator,
        operand: Value,
    },
    Exists(JsonPath),
}

/// The comparison in a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses a path, with or without braces and leading `$`.
    ///
    /// # Errors
    /// A path outside the supported part of the language.
    pub fn parse(path: &str) -> Result<Self, JsonPathError> {
        let inner = path
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or(path);
        let mut parser = Parser { text: inner, at: 0 };
        parser.take_token("$");
        let parsed = parser.parse_path();
        match parsed {
            Some(found) if parser.rest().is_empty() => Ok(found),
            _ => Err(JsonPathError {
                path: path.to_owned(),
                at: parser.at,
            }),
        }
    }

    /// Returns the values at the path.
    pub fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![root];
        for step in &self.steps {
            found = found.into_iter().flat_map(|value| step.apply(value)).collect();
        }
        found
    }
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            },
            Self::Index(index) => items.get(resolve_index(*index, items.len())).into_iter().collect(),
            Self::Slice(from, to) => {
                let from = from.map_or(0, |from| resolve_index(from, items.len()));
                let to = to
                    .map_or(items.len(), |to| resolve_index(to, items.len()))
                    .min(items.len());
                items
                    .get(from..to)
                    .map(|part| part.iter().collect())
                    .unwrap_or_default()
            }
            Self::Exists(path) => items.iter().filter(|item| !path.find(item).is_empty()).collect(),
            Self::Filter {
                path,
                operator,
                operand,
            } => {
                let holds = |item: &&Value| {
                    path.find(item)
                        .first()
                        .is_some_and(|found| operator.holds(found, operand))
                };
                items.iter().filter(holds).collect()
            }
        }
    }
}

fn resolve_index(index: i64, length: usize) -> usize {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    usize::try_from(if index < 0 { index + length } else { index }).unwrap_or(usize::MAX)
}

impl Operator {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
            _ => None,
        };
        match self {
            Self::Equal => left == right || order.is_some_and(std::cmp::Ordering::is_eq),
            Self::NotEqual => left != right && !order.is_some_and(std::cmp::Ordering::is_eq),
            Self::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Self::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
            Self::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

/// The text of a path, and the position of the next character.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn take_token(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn skip_spaces(&mut self) {
        while self.take_token(" ") {}
    }

    fn parse_path(&mut self) -> Option<JsonPath> {
        let mut steps = Vec::new();
        loop {
            if self.take_token("[") {
                steps.push(self.parse_bracket()?);
            } else if self.take_token(".") {
                if self.rest().starts_with('[') || self.rest().is_empty() {
                    continue;
                }
                steps.push(self.parse_name()?);
            } else if steps.is_empty() && self.rest().starts_with(|first: char| first.is_ascii_alphabetic()) {
                steps.push(self.parse_name()?);
            } else {
                return Some(JsonPath { steps });
            }
        }
    }

    fn parse_name(&mut self) -> Option<Step> {
        if self.take_token("*") {
            return Some(Step::All);
        }
        let mut name = String::new();
        let mut letters = self.rest().chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => {
                    let escaped = letters.next()?;
                    name.push(escaped);
                    self.at += 1 + escaped.len_utf8();
                }
                '.' | '[' | ']' | '(' | ')' | '=' | '!' | '<' | '>' | ' ' | '{' | '}' => break,
                letter => {
                    name.push(letter);
                    self.at += letter.len_utf8();
                }
            }
        }
        (!name.is_empty()).then_some(Step::Field(name))
    }

    fn parse_bracket(&mut self) -> Option<Step> {
        let step = if self.take_token("*") {
            Step::All
        } else if self.take_token("?(") {
            self.parse_filter()?
        } else if self.rest().starts_with(['\'', '"']) {
            Step::Field(self.parse_quoted()?)
        } else {
            self.parse_numbers()?
        };
        self.take_token("]").then_some(step)
    }

    fn parse_numbers(&mut self) -> Option<Step> {
        let first = self.parse_number();
        if self.take_token(":") {
            return Some(Step::Slice(first, self.parse_number()));
        }
        first.map(Step::Index)
    }

    fn parse_number(&mut self) -> Option<i64> {
        let rest = self.rest();
        let length = rest
            .find(|letter: char| !(letter.is_ascii_digit() || letter == '-'))
            .unwrap_or(rest.len());
        let number = rest.get(..length)?.parse().ok()?;
        self.at += length;
        Some(number)
    }

    fn parse_quoted(&mut self) -> Option<String> {
        let quote = self.rest().chars().next()?;
        self.at += 1;
        let mut text = String::new();
        let mut letters = self.rest().chars();
        while let Some(letter) = letters.next() {
            self.at += letter.len_utf8();
            if letter == quote {
                return Some(text);
            }
            if letter == '\\' {
                let escaped = letters.next()?;
                self.at += escaped.len_utf8();
                text.push(escaped);
            } else {
                text.push(letter);
            }
        }
        None
    }

    fn parse_filter(&mut self) -> Option<Step> {
        self.skip_spaces();
        if !self.take_token("@") {
            return None;
        }
        let path = self.parse_path()?;
        self.skip_spaces();
        if self.take_token(")") {
            return Some(Step::Exists(path));
        }
        let operators = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        let operator = operators
            .into_iter()
            .find(|(token, _)| self.take_token(token))
            .map(|(_, operator)| operator)?;
        self.skip_spaces();
        let operand = if self.rest().starts_with(['\'', '"']) {
            Value::String(self.parse_quoted()?)
        } else {
            let rest = self.rest();
            let word = rest.get(..rest.find(')')?)?.trim_end();
            self.at += rest.find(')')?;
            serde_json::from_str(word).ok()?
        };
        self.skip_spaces();
        self.take_token(")").then_some(Step::Filter {
            path,
            operator,
            operand,
        })
    }
}
