//! The metadata of an event, from all objects that add some. Flux's order, from the lowest to the highest precedence: the object's annotations, the Alert's
//! `eventMetadata`, its `summary`, the object's controller.

use std::collections::BTreeMap;

use tenure_api::AlertSpec;
use tenure_api::metadata::EVENT_METADATA_PREFIX;

use crate::alert_event::AlertEvent;

/// The metadata of an event after all sources are merged, and the keys that several sources set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CombinedMetadata {
    /// The values, by name.
    pub metadata: BTreeMap<String, String>,
    /// The names with several values, and their sources; the last one takes precedence.
    pub conflicts: BTreeMap<String, String>,
}

/// Combines the metadata of an event for an Alert.
#[must_use]
pub fn combine_metadata(news: &AlertEvent, spec: &AlertSpec) -> CombinedMetadata {
    let own_prefix = format!("{}/", news.object.group());
    let behind = |prefix: &str| -> Vec<(String, String)> {
        let found = news.metadata.iter();
        found
            .filter_map(|(key, value)| Some((key.strip_prefix(prefix)?.to_owned(), value.clone())))
            .collect()
    };
    let copied = spec.event_metadata.iter();
    let summary = spec.summary.clone().filter(|summary| !summary.is_empty());
    let layers = [
        ("involved object annotations", behind(EVENT_METADATA_PREFIX)),
        (
            "Alert object .spec.eventMetadata",
            copied.map(|(key, value)| (key.clone(), value.clone())).collect(),
        ),
        (
            "Alert object .spec.summary",
            summary
                .map(|summary| ("summary".to_owned(), summary))
                .into_iter()
                .collect(),
        ),
        ("involved object controller metadata", behind(&own_prefix)),
    ];
    let mut combined = CombinedMetadata::default();
    let mut sources_by_key: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (who, entries) in layers {
        for (key, value) in entries {
            sources_by_key.entry(key.clone()).or_default().push(who);
            combined.metadata.insert(key, value);
        }
    }
    combined.conflicts = sources_by_key
        .into_iter()
        .filter(|(_, who)| who.len() > 1)
        .map(|(key, who)| (key, who.join(", ")))
        .collect();
    combined
}
