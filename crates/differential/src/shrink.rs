//! Finds the shortest story with the same difference: removes steps, then parts of their bodies.

use serde_json::Value;
use tenure_testkit::exchange::Step;

use crate::run::{Outcome, run};
use crate::servers::Servers;

/// The most stories that are tried.
const BUDGET: usize = 120;

/// Shrinks a story that differs with this signature.
///
/// # Errors
/// If a server can't be reached.
pub(crate) async fn shrink_story(
    servers: &Servers,
    story: &[Step],
    first: Outcome,
    signature: &str,
) -> anyhow::Result<Outcome> {
    let mut best = first;
    let mut steps: Vec<Step> = story.iter().take(best.recorded.len()).cloned().collect();
    let mut budget = BUDGET;
    let mut index = steps.len();
    while index > 0 && budget > 0 {
        index -= 1;
        let mut candidate = steps.clone();
        candidate.remove(index);
        if let Some(outcome) = still_differs(servers, &candidate, signature, &mut budget).await? {
            (steps, best) = (candidate, outcome);
        }
    }
    let mut place = 0;
    while budget > 0 {
        let Some(candidate) = without_part(&steps, place) else {
            break;
        };
        match still_differs(servers, &candidate, signature, &mut budget).await? {
            Some(outcome) => (steps, best) = (candidate, outcome),
            None => place += 1,
        }
    }
    Ok(best)
}

async fn still_differs(
    servers: &Servers,
    steps: &[Step],
    signature: &str,
    budget: &mut usize,
) -> anyhow::Result<Option<Outcome>> {
    *budget -= 1;
    let outcome = run(servers, steps).await?;
    let same = outcome
        .difference
        .as_ref()
        .is_some_and(|difference| difference.signature == signature);
    Ok(same.then_some(outcome))
}

/// Returns the steps without the part of a body with this number.
fn without_part(steps: &[Step], number: usize) -> Option<Vec<Step>> {
    let mut left = number;
    for (index, step) in steps.iter().enumerate() {
        let body = step.edit.as_ref().map_or(&step.body, |edit| &edit.merge);
        if let Some(smaller) = remove(body, &mut left) {
            let mut steps = steps.to_vec();
            if let Some(step) = steps.get_mut(index) {
                match &mut step.edit {
                    Some(edit) => edit.merge = smaller,
                    None => step.body = smaller,
                }
            }
            return Some(steps);
        }
    }
    None
}

/// Returns the value without its part of this number, in the order of a walk. The walk counts the number down.
fn remove(value: &Value, left: &mut usize) -> Option<Value> {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let mut map = map.clone();
                if *left == 0 {
                    map.remove(key);
                    return Some(Value::Object(map));
                }
                *left -= 1;
                if let Some(smaller) = remove(inner, left) {
                    map.insert(key.clone(), smaller);
                    return Some(Value::Object(map));
                }
            }
            None
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                let mut items = items.clone();
                if *left == 0 {
                    items.remove(index);
                    return Some(Value::Array(items));
                }
                *left -= 1;
                if let Some(smaller) = remove(inner, left) {
                    if let Some(item) = items.get_mut(index) {
                        *item = smaller;
                    }
                    return Some(Value::Array(items));
                }
            }
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_part_is_removed_once() {
        let value = json!({"a": {"b": 1}, "c": [1, {"d": 2}]});
        let smaller: Vec<Value> = (0..6).filter_map(|mut number| remove(&value, &mut number)).collect();
        let expected = [
            json!({"c": [1, {"d": 2}]}),
            json!({"a": {}, "c": [1, {"d": 2}]}),
            json!({"a": {"b": 1}}),
            json!({"a": {"b": 1}, "c": [{"d": 2}]}),
            json!({"a": {"b": 1}, "c": [1]}),
            json!({"a": {"b": 1}, "c": [1, {}]}),
        ];
        assert_eq!(smaller, expected);
        assert_eq!(remove(&value, &mut 6), None);
    }
}
