//! Estimates for calls of Kubernetes' libraries: their cost and the sizes of their results.

use crate::ast::{Expr, Kind, Literal};
use crate::cost::{AUTHORIZATION, LETTER, LIST, PATTERN_LETTER};
use crate::estimate::{Estimator, Range};
use crate::types::Type;

/// The assumed length of a pattern that is not constant, in characters.
const LONGEST_PATTERN: f64 = 128.0;

/// A format's text at most.
const LONGEST_FORMAT: u64 = 64;

/// Returns the cost and the result's size of a call; `None` for calls with the standard cost of the language.
pub(crate) fn estimate_call(
    estimator: &mut Estimator<'_>,
    function: &str,
    overload: &str,
    target: Option<&Expr>,
    arguments: &[Expr],
) -> Option<(Range, Option<Range>)> {
    if let Some(found) = of_lists(estimator, overload, target, arguments) {
        return Some(found);
    }
    let one = Some((Range::exact(1), None));
    let first = |estimator: &mut Estimator<'_>| arguments.first().map(|first| estimator.size_or_unknown(first));
    match function {
        "check" => Some((Range::exact(AUTHORIZATION), None)),
        "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name" | "allowed"
        | "reason" | "error" | "errored" => one,
        "fieldSelector" | "labelSelector" => {
            let length = first(estimator)?;
            let requirements = length.scale(0.5).scale(50.0);
            Some((Range::exact(LIST).plus(length.scale(LETTER)).plus(requirements), None))
        }
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            let target = target?;
            let size = estimator.size_or_unknown(target);
            let Some((of, item)) = estimate_items(estimator, target) else {
                return Some((size.scale(LETTER), None));
            };
            let mut each = Range::exact(1);
            if matches!(of, Type::String | Type::Bytes) {
                each = each.plus(item.scale(LETTER));
            }
            Some((size.times(each), None))
        }
        "url" => first(estimator).map(|size| (size.scale(LETTER), Some(size))),
        "lowerAscii" | "upperAscii" | "substring" | "trim" => {
            let size = estimator.size_or_unknown(target?);
            Some((size.scale(LETTER), Some(size)))
        }
        "replace" => {
            let [old, new, ..] = arguments else { return None };
            let size = estimator.size_or_unknown(target?);
            let (old, new) = (estimator.size_or_unknown(old), estimator.size_or_unknown(new));
            Some((size.scale(2.0 * LETTER), Some(estimate_replaced_length(size, old, new))))
        }
        "split" => {
            let size = estimator.size_or_unknown(target?);
            let most = match arguments.get(1).map(|most| &most.kind) {
                Some(Kind::Literal(Literal::Int(most))) => *most as u64,
                _ => size.max,
            };
            Some((size.scale(2.0 * LETTER), Some(Range { min: 0, max: most })))
        }
        "join" => {
            let target = target?;
            let list = estimator.size_or_unknown(target);
            let mut size = Range::default();
            if let Some((_, item)) = estimate_items(estimator, target) {
                size = list.times(item);
            }
            if let Some(separator) = first(estimator) {
                let between = Range {
                    min: list.min.saturating_sub(1),
                    max: list.max.saturating_sub(1),
                };
                size = size.plus(separator.times(between));
            }
            Some((size.scale(LETTER), Some(size)))
        }
        "find" | "findAll" => {
            let size = estimator.size_or_unknown(target?);
            let pattern = first(estimator)?.scale(PATTERN_LETTER);
            let cost = size.plus(Range::exact(1)).scale(LETTER).times(pattern);
            Some((cost, Some(Range { min: 0, max: size.max })))
        }
        "ip" if overload == "cidr_ip" => one,
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            first(estimator).map(|size| (size.scale(LETTER), None))
        }
        "ip.isCanonical" => first(estimator).map(|size| (size.scale(2.0 * LETTER), None)),
        "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "format.named"
        | "sign"
        | "asInteger"
        | "isInteger"
        | "asApproximateFloat"
        | "isGreaterThan"
        | "isLessThan"
        | "compareTo"
        | "add"
        | "sub"
        | "major"
        | "minor"
        | "patch"
        | "getScheme"
        | "getHostname"
        | "getHost"
        | "getPort"
        | "getEscapedPath"
        | "getQuery" => one,
        "containsIP" | "containsCIDR" => {
            let address = Range { min: 4, max: 16 };
            let mut cost = address.plus(address).scale(LETTER);
            if function == "containsCIDR" {
                cost = cost.plus(address.scale(LETTER)).plus(Range::exact(1));
            }
            let size = first(estimator)?;
            if overload.ends_with("_string") {
                cost = cost.plus(size.scale(LETTER));
            }
            Some((cost, None))
        }
        "validate" => {
            let size = first(estimator)?;
            Some((size.scale(LETTER).scale(LONGEST_PATTERN * PATTERN_LETTER), None))
        }
        "_==_" => estimate_equality(estimator, arguments),
        _ => None,
    }
}

/// Returns the cost of a comparison. Kubernetes' own types have special costs.
fn estimate_equality(estimator: &mut Estimator<'_>, arguments: &[Expr]) -> Option<(Range, Option<Range>)> {
    let [left, right] = arguments else { return None };
    let (of, other) = (estimator.type_of(left), estimator.type_of(right));
    if of != other {
        return None;
    }
    let cost = match &of {
        Type::Opaque(name) if matches!(&**name, "net.IP" | "net.CIDR") => Range::exact(1),
        Type::Object(name) => match &**name {
            "kubernetes.NamedFormat" => Range {
                min: 1,
                max: LONGEST_FORMAT,
            }
            .scale(LETTER),
            "kubernetes.URL" => Range { min: 1, max: 1 }.scale(LETTER),
            "kubernetes.Quantity" | "kubernetes.Semver" => Range::exact(1),
            name if name.starts_with("kubernetes.authorization.") => Range::exact(1),
            _ => return None,
        },
        _ => return None,
    };
    Some((cost, None))
}

/// Returns the type and size of a list's items; `None` if the expression is no list.
fn estimate_items(estimator: &Estimator<'_>, list: &Expr) -> Option<(Type, Range)> {
    let of = match estimator.type_of(list) {
        Type::List(items) => (*items).clone(),
        Type::Map(both) => both.0.clone(),
        Type::Optional(inner) => (*inner).clone(),
        _ => return None,
    };
    let mut path = estimator.visible_path(list);
    let size = if path.is_empty() {
        None
    } else {
        path.push("@items".to_owned());
        estimator.schema_size(&path)
    };
    Some((of, size.unwrap_or(Range::UNKNOWN)))
}

/// Returns the length of a text after parts of it are replaced.
fn estimate_replaced_length(size: Range, old: Range, new: Range) -> Range {
    let count = |length: u64, by: u64| (length as f64 / by as f64).ceil() as u64;
    let (longest, kept_most) = if old.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if new.max <= old.min {
        (0, size.max)
    } else {
        (count(size.max, old.min), 0)
    };
    let (shortest, kept_least) = if old.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if old.max <= new.min {
        (0, size.min)
    } else {
        (count(size.min, old.max), 0)
    };
    let times = Range {
        min: shortest,
        max: longest,
    };
    times.times(new).plus(Range {
        min: kept_least,
        max: kept_most,
    })
}

/// Functions of the lists and sets libraries.
fn of_lists(
    estimator: &mut Estimator<'_>,
    overload: &str,
    target: Option<&Expr>,
    arguments: &[Expr],
) -> Option<(Range, Option<Range>)> {
    let number = |index: usize, otherwise: u64| match arguments.get(index).map(|argument| &argument.kind) {
        Some(Kind::Literal(Literal::Int(number))) => u64::try_from(*number).unwrap_or(0),
        _ => otherwise,
    };
    let allocating = |factor: f64, size: Range| {
        let cost = size.scale(factor).plus(Range::exact(1 + LIST));
        Some((cost, Some(size)))
    };
    let among_themselves = |estimator: &mut Estimator<'_>, list: &Expr, texts: bool| {
        let size = estimator.size_or_unknown(list);
        allocating(if texts { 2.0 + LETTER } else { 2.0 }, size.times(size))
    };
    match overload {
        "list_slice" => {
            let size = estimator.size_or_unknown(target?);
            let length = number(1, size.max).wrapping_sub(number(0, 0));
            allocating(1.0, Range::exact(length))
        }
        "lists_range" => allocating(1.0, Range::exact(number(0, u64::MAX))),
        "list_reverse" => allocating(1.0, estimator.size_or_unknown(target?)),
        "list_flatten" => allocating(1.0, estimator.size_or_unknown(target?)),
        "list_flatten_int" => {
            let depth = number(0, u64::MAX) as f64;
            allocating(depth, estimator.size_or_unknown(target?))
        }
        "list_distinct" => among_themselves(estimator, target?, false),
        "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list" => {
            let [left, right] = arguments else { return None };
            let size = estimator.size_or_unknown(left).times(estimator.size_or_unknown(right));
            let factor = if overload == "list_sets_equivalent_list" {
                2.0
            } else {
                1.0
            };
            Some((size.scale(factor).plus(Range::exact(1)), None))
        }
        other if other.starts_with("list_") && other.ends_with("_sort") => {
            let texts = other.contains("string") || other.contains("bytes");
            among_themselves(estimator, target?, texts)
        }
        other if other.ends_with("_sortByAssociatedKeys") => {
            let texts = other.contains("string") || other.contains("bytes");
            among_themselves(estimator, arguments.first()?, texts)
        }
        _ => None,
    }
}
