//! The rules of LimitRanges for the objects in their namespace: the requested amounts must be within the bounds.

use serde_json::Value;

use crate::kind::Admitted;
use crate::schema::quantity::Quantity;
use crate::schema::remove_duplicates;
use crate::schema::resources::{Resources, list};
use crate::schema::validation::get_text;

/// Returns the ranges of the request's namespace.
pub(in crate::core_group) fn list_ranges(admitted: &Admitted<'_>) -> Vec<Value> {
    admitted
        .request
        .objects
        .list("", "limitranges", Some(admitted.namespace))
}

/// Refuses an object that violates a range; the error is that of the first such range. `look` checks each limit, by its type.
pub(in crate::core_group) fn check_ranges(
    admitted: &Admitted<'_>,
    look: impl Fn(&str, &Value, &mut Vec<String>),
) -> Result<(), String> {
    for range in list_ranges(admitted) {
        let mut faults = Vec::new();
        for limit in list(&range, "/spec/limits") {
            look(get_text(limit, "type"), limit, &mut faults);
        }
        match remove_duplicates(faults).as_slice() {
            [] => {}
            [only] => return Err(only.clone()),
            many => return Err(format!("[{}]", many.join(", "))),
        }
    }
    Ok(())
}

/// Checks whether requests and limits are within a limit for this type.
pub(in crate::core_group) fn check_limit(
    kind: &str,
    limit: &Value,
    requests: &Resources,
    limits: &Resources,
    faults: &mut Vec<String>,
) {
    for (name, least) in Resources::read(limit.get("min")).0 {
        check_minimum(kind, &name, least, requests.get(&name), limits.get(&name), faults);
    }
    for (name, most) in Resources::read(limit.get("max")).0 {
        let bound = format!("maximum {name} usage per {kind} is {}", most.canonical());
        match (limits.get(&name), requests.get(&name)) {
            (None, _) => faults.push(format!("{bound}.  No limit is specified")),
            (Some(limit), _) if limit > most => {
                faults.push(format!("{bound}, but limit is {}", limit.canonical()));
            }
            (_, Some(request)) if request > most => {
                faults.push(format!("{bound}, but request is {}", request.canonical()));
            }
            _ => {}
        }
    }
    for (name, most) in Resources::read(limit.get("maxLimitRequestRatio")).0 {
        let bound = format!("{name} max limit to request ratio per {kind} is {}", most.canonical());
        let something = |amount: Option<Quantity>| amount.filter(|amount| !amount.is_zero());
        match (something(requests.get(&name)), something(limits.get(&name))) {
            (None, _) => faults.push(format!("{bound}, but no request is specified or request is 0")),
            (_, None) => faults.push(format!("{bound}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let ratio = limit.ratio_to(&request);
                if ratio > most.ratio_to(&Quantity::whole(1)) {
                    faults.push(format!("{bound}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
}

/// Checks whether an amount is at least a minimum.
pub(in crate::core_group) fn check_minimum(
    kind: &str,
    name: &str,
    least: Quantity,
    request: Option<Quantity>,
    limit: Option<Quantity>,
    faults: &mut Vec<String>,
) {
    let bound = format!("minimum {name} usage per {kind} is {}", least.canonical());
    match (request, limit) {
        (None, _) => faults.push(format!("{bound}.  No request is specified")),
        (Some(request), _) if request < least => {
            faults.push(format!("{bound}, but request is {}", request.canonical()));
        }
        (_, Some(limit)) if limit < least => {
            faults.push(format!("{bound}, but limit is {}", limit.canonical()));
        }
        _ => {}
    }
}
