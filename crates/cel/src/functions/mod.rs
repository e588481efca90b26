//! The functions, one module for each library. A function gets evaluated arguments and returns its result.

pub(crate) mod authorizer;
pub(crate) mod conversions;
pub(crate) mod format;
pub(crate) mod lists;
pub(crate) mod named_formats;
pub(crate) mod network;
pub(crate) mod numbers;
pub(crate) mod operators;
pub(crate) mod regex;
pub(crate) mod strings;

use crate::failure::Failure;
use crate::meter::Meter;
use crate::value::Value;

/// A function: its name, since one implementation serves several, its arguments, and the meter.
pub(crate) type Implementation = for<'a> fn(&str, &[Value<'a>], &mut Meter) -> Result<Value<'a>, Failure>;

/// Returns the implementation of a function.
pub(crate) fn find(function: &str) -> Option<Implementation> {
    Some(match function {
        "!_" | "-_" | "_+_" | "_-_" | "_*_" | "_/_" | "_%_" | "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_"
        | "size" => operators::call,
        "@in" => test_membership,
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint" => {
            conversions::call
        }
        "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate" | "getDayOfWeek" | "getHours"
        | "getMinutes" | "getSeconds" | "getMilliseconds" => conversions::call_calendar,
        "charAt" | "contains" | "endsWith" | "lowerAscii" | "replace" | "split" | "startsWith" | "strings.quote"
        | "substring" | "trim" | "upperAscii" => strings::call,
        // The functions of texts and of lists.
        "indexOf" | "lastIndexOf" => strings::find_index,
        "join" => strings::join_texts,
        "format" => format::call,
        "find" | "findAll" | "matches" => regex::call,
        "isSorted" | "max" | "min" | "sum" => lists::aggregate,
        "distinct"
        | "first"
        | "flatten"
        | "last"
        | "lists.range"
        | "reverse"
        | "slice"
        | "sort"
        | "@sortByAssociatedKeys"
        | "sets.contains"
        | "sets.equivalent"
        | "sets.intersects" => lists::call,
        "hasValue"
        | "optional.none"
        | "optional.of"
        | "optional.ofNonZeroValue"
        | "optional.unwrap"
        | "unwrapOpt"
        | "value" => lists::call_optional,
        "cel.@mapInsert" => lists::insert,
        "getEscapedPath" | "getHost" | "getHostname" | "getPort" | "getQuery" | "getScheme" | "isURL" | "url" => {
            network::call_url
        }
        "cidr"
        | "containsCIDR"
        | "containsIP"
        | "family"
        | "ip"
        | "ip.isCanonical"
        | "isCIDR"
        | "isGlobalUnicast"
        | "isIP"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isLoopback"
        | "isUnspecified"
        | "masked"
        | "prefixLength" => network::call_address,
        "add" | "asApproximateFloat" | "asInteger" | "isInteger" | "isQuantity" | "quantity" | "sign" | "sub"
        | "compareTo" | "isGreaterThan" | "isLessThan" | "isSemver" | "major" | "minor" | "patch" | "semver" => {
            numbers::call
        }
        "validate" => named_formats::validate,
        name if name.starts_with("format.") => named_formats::find_named,
        "allowed" | "check" | "error" | "errored" | "fieldSelector" | "group" | "labelSelector" | "name"
        | "namespace" | "path" | "reason" | "resource" | "serviceAccount" | "subresource" => authorizer::call,
        _ => return None,
    })
}

/// Implements `in`, for an item of a list or a key of a map.
pub(crate) fn test_membership<'a>(_: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Value<'a>, Failure> {
    match arguments {
        [value, Value::List(list)] => crate::compare::list_contains(list, value, meter).map(Value::Bool),
        [key, Value::Map(map)] => Ok(Value::Bool(map.find(key)?.is_some())),
        _ => Err(Failure::no_such_overload()),
    }
}

/// Returns the effort for a number of values, in bytes.
pub(crate) fn effort_of_values(count: usize) -> usize {
    count.saturating_mul(std::mem::size_of::<Value<'_>>())
}
