//! CEL's types, their written forms, and the rules of assignability.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A type of the language.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// Anything; checked when evaluated.
    Dyn,
    /// The type of an expression that already has an error.
    Error,
    /// `null`.
    Null,
    /// `bool`.
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// An unsigned 64-bit integer.
    Uint,
    /// A 64-bit floating-point number.
    Double,
    /// Text, counted in code points.
    String,
    /// Bytes.
    Bytes,
    /// A point in time.
    Timestamp,
    /// A span of time.
    Duration,
    /// A list of one type.
    List(Arc<Type>),
    /// A map from one type to another.
    Map(Arc<(Type, Type)>),
    /// A value that may be absent.
    Optional(Arc<Type>),
    /// A type as a value; `None` is any type.
    Type(Option<Arc<Type>>),
    /// An object with declared fields, or one of the types of Kubernetes' libraries, by name.
    Object(Arc<str>),
    /// A type known by its name only.
    Opaque(Arc<str>),
    /// A type variable of a function's signature, or one that the checker made.
    Parameter(Arc<str>),
}

impl Type {
    /// Returns a list of this type.
    pub fn list(items: Type) -> Self {
        Self::List(Arc::new(items))
    }

    /// Returns a map with these types.
    pub fn map(keys: Type, values: Type) -> Self {
        Self::Map(Arc::new((keys, values)))
    }

    /// Returns an optional of this type.
    pub fn optional(inner: Type) -> Self {
        Self::Optional(Arc::new(inner))
    }

    /// Returns an object type by its name.
    pub fn object(name: &str) -> Self {
        Self::Object(name.into())
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Returns the name of a type, as `type(value)` prints it.
    pub fn name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Error => "!error!",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Object(name) | Self::Opaque(name) | Self::Parameter(name) => name,
        }
    }

    /// Reads a type as signatures spell it.
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.trim();
        let inner = |name: &str| text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(items) = inner("list") {
            return Self::list(Self::parse(items));
        }
        if let Some(both) = inner("map") {
            let parts = split_top(both);
            if let [keys, values] = parts.as_slice() {
                return Self::map(Self::parse(keys), Self::parse(values));
            }
        }
        if let Some(value) = inner("optional_type") {
            return Self::optional(Self::parse(value));
        }
        if let Some(value) = inner("type") {
            return Self::Type(Some(Arc::new(Self::parse(value))));
        }
        match text {
            "dyn" => Self::Dyn,
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "timestamp" => Self::Timestamp,
            "duration" => Self::Duration,
            "type" => Self::Type(None),
            "net.IP" | "net.CIDR" => Self::Opaque(text.into()),
            name if name.len() == 1 => Self::Parameter(name.into()),
            name => Self::Object(name.into()),
        }
    }
}

/// Splits at commas that are not inside parentheses.
pub(crate) fn split_top(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0usize, 0usize);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.extend(text.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..).filter(|rest| !rest.trim().is_empty()));
    parts
}

/// Writes the type as error messages do.
impl fmt::Display for Type {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => out.write_str("null"),
            Self::Timestamp => out.write_str("timestamp"),
            Self::Duration => out.write_str("duration"),
            Self::List(items) => write!(out, "list({items})"),
            Self::Map(both) => write!(out, "map({}, {})", both.0, both.1),
            Self::Optional(inner) => write!(out, "optional_type({inner})"),
            Self::Type(Some(inner)) => write!(out, "type({inner})"),
            other => out.write_str(other.name()),
        }
    }
}

/// The types that the checker has found for type variables.
#[derive(Debug, Default, Clone)]
pub(crate) struct Substitutions(HashMap<Arc<str>, Type>);

impl Substitutions {
    /// Sets the type of a type variable.
    pub(crate) fn bind(&mut self, name: &Arc<str>, to: Type) {
        self.0.insert(name.clone(), to);
    }

    fn find(&self, of: &Type) -> Option<&Type> {
        match of {
            Type::Parameter(name) => self.0.get(name),
            _ => None,
        }
    }

    /// Replaces known variables; with `free_to_dyn` the unknown ones become `dyn`.
    pub(crate) fn apply(&self, to: &Type, free_to_dyn: bool) -> Type {
        if let Some(found) = self.find(to) {
            return self.apply(found, free_to_dyn);
        }
        match to {
            Type::Parameter(_) if free_to_dyn => Type::Dyn,
            Type::List(items) => Type::list(self.apply(items, free_to_dyn)),
            Type::Map(both) => Type::map(self.apply(&both.0, free_to_dyn), self.apply(&both.1, free_to_dyn)),
            Type::Optional(inner) => Type::optional(self.apply(inner, free_to_dyn)),
            Type::Type(Some(inner)) => Type::Type(Some(Arc::new(self.apply(inner, free_to_dyn)))),
            other => other.clone(),
        }
    }

    /// Checks whether values of the types `from` are assignable to `to`. If all types agree, the bindings of type variables are stored.
    pub(crate) fn accept(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mut trial = self.clone();
        let agreed = from.len() == to.len() && from.iter().zip(to).all(|(from, to)| trial.is_assignable(from, to));
        if agreed {
            *self = trial;
        }
        agreed
    }

    fn is_assignable(&mut self, from: &Type, to: &Type) -> bool {
        if matches!(to, Type::Parameter(_)) {
            match self.stand_for(from, to) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if matches!(from, Type::Parameter(_)) {
            return self.stand_for(to, from).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(from), Type::List(to)) | (Type::Optional(from), Type::Optional(to)) => {
                self.is_assignable(from, to)
            }
            (Type::Map(from), Type::Map(to)) => {
                self.is_assignable(&from.0, &to.0) && self.is_assignable(&from.1, &to.1)
            }
            (from, to) => from == to,
        }
    }

    /// Returns whether `variable` can be `candidate`, and whether it was something before.
    fn stand_for(&mut self, candidate: &Type, variable: &Type) -> (bool, bool) {
        if candidate == variable {
            return (true, true);
        }
        let Type::Parameter(name) = variable else {
            return (false, false);
        };
        if let Some(known) = self.0.get(name).cloned() {
            if *candidate == known {
                return (true, true);
            }
            if !self.is_assignable(candidate, &known) {
                return (false, true);
            }
            let wider = if less_specific(candidate, &known) {
                candidate.clone()
            } else {
                known
            };
            if self.is_free_of(variable, &wider) {
                self.bind(name, wider);
            }
            return (true, true);
        }
        if self.is_free_of(variable, candidate) {
            self.bind(name, candidate.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Returns whether a variable does not occur in a type. A type can't contain itself.
    fn is_free_of(&self, variable: &Type, within: &Type) -> bool {
        if variable == within {
            return false;
        }
        match within {
            Type::Parameter(_) => self.find(within).is_none_or(|found| self.is_free_of(variable, found)),
            Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => self.is_free_of(variable, inner),
            Type::Map(both) => self.is_free_of(variable, &both.0) && self.is_free_of(variable, &both.1),
            _ => true,
        }
    }
}

fn is_nullable(of: &Type) -> bool {
    matches!(
        of,
        Type::Null | Type::Object(_) | Type::Opaque(_) | Type::Optional(_) | Type::Duration | Type::Timestamp
    )
}

/// Returns the less specific of two types that agree.
pub(crate) fn most_general(left: Type, right: &Type) -> Type {
    if less_specific(&left, right) {
        left
    } else {
        right.clone()
    }
}

fn less_specific(left: &Type, right: &Type) -> bool {
    match (left, right) {
        (Type::Dyn | Type::Parameter(_), _) => true,
        (_, Type::Dyn | Type::Parameter(_)) => false,
        (Type::List(left), Type::List(right)) | (Type::Optional(left), Type::Optional(right)) => {
            less_specific(left, right)
        }
        (Type::Map(left), Type::Map(right)) => less_specific(&left.0, &right.0) && less_specific(&left.1, &right.1),
        (Type::Type(_), Type::Type(_)) => true,
        (left, right) => left == right,
    }
}
