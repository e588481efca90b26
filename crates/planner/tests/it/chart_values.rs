//! The laws of the merge of values, for random layers: identity, associativity, exact numbers, and the same bytes where nothing changes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value};
use tenure_planner::chart_values::{ExactNumber, ExactValue, Layer, Override, read_yaml};

/// Numbers at the limits of every type.
const NUMBERS: [&str; 12] = [
    "0",
    "-0",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "123456789012345678901234567890",
    "1e400",
    "0.1",
    "0.1000000000000000055511151231257827",
    "1.0",
    "1e-400",
];

fn number() -> impl Strategy<Value = ExactValue> {
    prop::sample::select(&NUMBERS[..]).prop_map(|text| ExactValue::Number(ExactNumber::read(text).unwrap()))
}

fn value() -> impl Strategy<Value = ExactValue> {
    let leaf = prop_oneof![
        Just(ExactValue::Null),
        any::<bool>().prop_map(ExactValue::Bool),
        number(),
        "[a-c~/]{0,3}".prop_map(ExactValue::Text),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(ExactValue::List),
            map_of(inner).prop_map(ExactValue::Map),
        ]
    })
}

/// Few keys, so that layers meet.
fn map_of(value: impl Strategy<Value = ExactValue>) -> impl Strategy<Value = BTreeMap<String, ExactValue>> {
    prop::collection::btree_map("[ab/~]", value, 0..4)
}

fn layer() -> impl Strategy<Value = Layer> {
    map_of(value()).prop_map(Layer::from)
}

/// Values that Kubernetes stores exactly.
fn stored() -> impl Strategy<Value = Map<String, Value>> {
    map_of(value()).prop_filter_map("Kubernetes can't store it", |values| {
        ExactValue::Map(values).to_value().ok()?.as_object().cloned()
    })
}

/// Finds a value as a reader of all layers does: the highest layer with the path decides, and a value above the path hides lower layers.
fn find_in_layers<'a>(layers: &'a [BTreeMap<String, ExactValue>], path: &[String]) -> Option<&'a ExactValue> {
    for values in layers.iter().rev() {
        let (first, rest) = path.split_first()?;
        let mut at = values.get(first);
        for step in rest {
            match at {
                Some(ExactValue::Map(entries)) => at = entries.get(step),
                None => break,
                // Another kind of value hides everything below it.
                Some(_) => return None,
            }
        }
        if at.is_some() {
            return at;
        }
    }
    None
}

fn list_leaves(values: &BTreeMap<String, ExactValue>, path: &[String], leaves: &mut Vec<Vec<String>>) {
    for (key, value) in values {
        let path: Vec<String> = path.iter().cloned().chain([key.clone()]).collect();
        match value {
            ExactValue::Map(entries) if !entries.is_empty() => list_leaves(entries, &path, leaves),
            _ => leaves.push(path),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn empty_layer_changes_nothing(one in layer()) {
        prop_assert_eq!(Layer::default().merge(one.clone()), one.clone());
        prop_assert_eq!(one.clone().merge(Layer::default()), one.clone());
        prop_assert_eq!(one.clone().merge(one.clone()).into_values(), one.into_values());
    }

    #[test]
    fn layers_merge_in_any_grouping(a in layer(), b in layer(), c in layer(), d in layer()) {
        let left = a.clone().merge(b.clone()).merge(c.clone()).merge(d.clone());
        let right = a.clone().merge(b.clone().merge(c.clone().merge(d.clone())));
        let middle = a.merge(b).merge(c.merge(d));
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(&left, &middle);
    }

    #[test]
    fn highest_layer_with_a_value_decides(layers in prop::collection::vec(map_of(value()), 1..4)) {
        let merged = layers.iter().cloned().map(Layer::from).reduce(Layer::merge).unwrap().into_values();
        let mut leaves = Vec::new();
        list_leaves(&merged, &[], &mut leaves);
        for path in leaves {
            let expected = find_in_layers(&layers, &path);
            let found = find_in_layers(std::slice::from_ref(&merged), &path);
            // An empty map of a high layer shows lower maps, so only other values have one origin.
            if !matches!(found, Some(ExactValue::Map(_))) {
                prop_assert_eq!(found, expected, "{:?}", path);
            }
        }
    }

    #[test]
    fn no_digit_is_lost(values in map_of(value())) {
        let text = ExactValue::Map(values.clone()).to_string();
        prop_assert_eq!(read_yaml(&text), Ok(values));
    }

    #[test]
    fn stored_values_come_back_as_the_same_bytes(values in stored()) {
        let bytes = serde_json::to_string(&values).unwrap();
        let layer = Layer::of(&values).unwrap();
        prop_assert_eq!(serde_json::to_string(&layer.to_object().unwrap()).unwrap(), bytes.clone());
        // An empty change has the same bytes, too.
        let effective = Override::default().apply(&layer, &layer).unwrap();
        prop_assert_eq!(serde_json::to_string(&effective.values).unwrap(), bytes);
    }

    #[test]
    fn number_is_stored_with_its_value_or_refused(whole in any::<i64>(), fraction in "[0-9]{1,20}", exponent in -320_i32..320) {
        for text in [whole.to_string(), format!("{whole}.{fraction}"), format!("{whole}.{fraction}e{exponent}")] {
            let number = ExactNumber::read(&text).unwrap();
            if let Some(stored) = number.to_number() {
                prop_assert_eq!(ExactNumber::from(&stored), number, "{}", text);
            }
        }
    }
}
