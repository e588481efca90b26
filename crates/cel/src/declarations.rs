//! The functions that a Kubernetes 1.36 apiserver declares for expressions, with the types of each overload.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::types::{Type, split_top};

/// A signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) parameters: Vec<Type>,
    pub(crate) result: Type,
    /// The type variables that it mentions.
    pub(crate) variables: Vec<Arc<str>>,
}

/// The declarations, one line for each overload: function, overload, whether it is called on its first argument,
/// parameters and result.
const TABLE: &str = include_str!("declarations.txt");

static FUNCTIONS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for line in TABLE.lines() {
        if let Some((name, overload)) = parse(line) {
            functions.entry(name).or_default().push(overload);
        }
    }
    functions
});

/// Returns the overloads of a function.
pub(crate) fn find_function(name: &str) -> Option<&'static [Overload]> {
    FUNCTIONS.get(name).map(Vec::as_slice)
}

fn parse(line: &'static str) -> Option<(&'static str, Overload)> {
    let (name, rest) = line.split_once(' ')?;
    let (id, rest) = rest.split_once(' ')?;
    let (style, rest) = rest.split_once(" (")?;
    // The parameters end where their parenthesis closes.
    let mut depth = 1usize;
    let end = rest.char_indices().find_map(|(at, letter)| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })?;
    let parameters: Vec<Type> = split_top(rest.get(..end)?).into_iter().map(Type::parse).collect();
    let result = Type::parse(rest.get(end + 1..)?);
    let mut variables = Vec::new();
    parameters
        .iter()
        .chain([&result])
        .for_each(|one| collect_variables(one, &mut variables));
    Some((
        name,
        Overload {
            id,
            member: style == "member",
            parameters,
            result,
            variables,
        },
    ))
}

fn collect_variables(within: &Type, variables: &mut Vec<Arc<str>>) {
    match within {
        Type::Parameter(name) if !variables.contains(name) => variables.push(name.clone()),
        Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => collect_variables(inner, variables),
        Type::Map(both) => {
            collect_variables(&both.0, variables);
            collect_variables(&both.1, variables);
        }
        _ => {}
    }
}

/// Returns the names that stand for types.
pub(crate) fn type_name(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "string" => Type::String,
        "null_type" => Type::Null,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "list" => Type::list(Type::Parameter("A".into())),
        "map" => Type::map(Type::Parameter("A".into()), Type::Parameter("B".into())),
        "type" => Type::Type(None),
        "net.IP" | "net.CIDR" => Type::Opaque(name.into()),
        "optional_type" => Type::optional(Type::Parameter("V".into())),
        _ => return None,
    })
}
