//! The existing objects, parsed for a round. Parsed objects of the previous round are reused. Two states of an object are never held at once.

use std::collections::BTreeMap;

use tenure_api::ObjectId;
use tenure_planner::Live;

use crate::cluster_view::live_objects::ObservedState;
use crate::limits::object_memory::ObjectMemory;

/// The known states of objects, as text.
pub(super) type ObservedObjects = BTreeMap<ObjectId, ObservedState>;

/// The approximate ratio of memory between parsed objects and their text.
const PARSED: u64 = 8;

/// Estimates the text size of parsed objects.
pub(super) fn estimate_text_bytes(parsed: u64) -> usize {
    usize::try_from(parsed / PARSED).unwrap_or(usize::MAX)
}

/// Returns the size of the texts.
pub(super) fn count_bytes(observed: &ObservedObjects) -> usize {
    observed.values().map(ObservedState::len).sum()
}

/// Estimates the memory of the texts after parsing.
pub(super) fn estimate_parsed_bytes(observed: &ObservedObjects) -> u64 {
    PARSED.saturating_mul(count_bytes(observed) as u64)
}

/// Parses the known objects, as far as memory allows. Objects that the previous round parsed from the same text are reused.
pub(super) fn parse_objects(
    now: &ObservedObjects,
    (before, parsed): (&ObservedObjects, BTreeMap<ObjectId, Live>),
    object_memory: &ObjectMemory,
) -> BTreeMap<ObjectId, Live> {
    let is_same = |id: &ObjectId| match (before.get(id), now.get(id)) {
        (Some(before), Some(now)) => before.is_same(now),
        _ => false,
    };
    let mut parsed = parsed;
    // The other objects free their memory first.
    parsed.retain(|id, live| live.object().is_some() && is_same(id));
    object_memory.begin_round();
    let look = |(id, known): (&ObjectId, &ObservedState)| {
        let live = parsed.remove(id).unwrap_or_else(|| known.read());
        (id.clone(), object_memory.admit_live(live))
    };
    now.iter().map(look).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_planner::Object;
    use tenure_sources::{BudgetLimits, ByteBudget};
    use tokio::time::Instant;

    use super::*;

    async fn make_memory(bytes: u64) -> ObjectMemory {
        let room = ObjectMemory::new(ByteBudget::new(BudgetLimits {
            what: "objects that are looked at",
            lane: bytes,
            all: bytes,
            lane_setting: "--lane",
            all_setting: "--all",
            is_half: false,
        }));
        room.reserve_memory("team", Instant::now()).await;
        room
    }

    fn known(value: &str) -> ObservedState {
        ObservedState::from_answer(Live::Present(Object(json!({ "value": value }))))
    }

    fn id(name: &str) -> ObjectId {
        format!("team_{name}__ConfigMap").parse().unwrap()
    }

    #[tokio::test]
    async fn unchanged_objects_are_parsed_once() {
        let object_memory = make_memory(1 << 20).await;
        let before = ObservedObjects::from([
            (id("same"), known("a")),
            (id("changed"), known("a")),
            (id("gone"), known("a")),
        ]);
        let first = parse_objects(&before, (&ObservedObjects::new(), BTreeMap::new()), &object_memory);
        // Marked, to distinguish reused objects from parsed ones.
        let mark = |live| match live {
            Live::Present(mut object) => {
                object.0["kept"] = json!(true);
                Live::Present(object)
            }
            other => other,
        };
        let first = first.into_iter().map(|(id, live)| (id, mark(live))).collect();
        let now = ObservedObjects::from([
            (id("same"), known("a")),
            (id("changed"), known("b")),
            (id("new"), known("a")),
        ]);
        let second = parse_objects(&now, (&before, first), &object_memory);
        let seen: Vec<_> = second
            .iter()
            .map(|(id, live)| (id.name.as_str(), live.object().unwrap().to_string()))
            .collect();
        let expected = [
            ("changed", r#"{"value":"b"}"#),
            ("new", r#"{"value":"a"}"#),
            ("same", r#"{"kept":true,"value":"a"}"#),
        ];
        assert_eq!(seen, expected.map(|(name, text)| (name, text.to_owned())));
    }

    #[tokio::test]
    async fn object_without_memory_is_parsed_in_later_round() {
        let object_memory = make_memory(1 << 20).await;
        let large = "x".repeat(600_000);
        let before = ObservedObjects::from([(id("a"), known(&large)), (id("b"), known(&large))]);
        let first = parse_objects(&before, (&ObservedObjects::new(), BTreeMap::new()), &object_memory);
        assert!(first[&id("a")].object().is_some());
        assert!(first[&id("b")].object().is_none());
        // The first object is gone, so memory is available for the second, whose text is unchanged.
        let now = ObservedObjects::from([(id("b"), known(&large))]);
        let second = parse_objects(&now, (&before, first), &object_memory);
        assert!(second[&id("b")].object().is_some());
    }
}
