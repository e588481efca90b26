//! An order to replace a credential before it is due, as an annotation on the FluxAccessRequest.
//!
//! There is one annotation for each named namespace, and one for all. The author needs the verb `approve` on the request's target, and the order has the author's
//! own name. Admission enforces both (`crates/admission-rules`). This module writes and reads orders, and finds those that are still open. An executed order
//! stays in place: the ledger has its id, so no user needs the right to remove it. An order longer than [`LONGEST`], or without an author or a time, is ignored.
//!
//! ```text
//! rotate.access.tenure.dev/team-a: |
//!   leak/by: olga
//!   at: 2026-11-26T07:02:27Z
//!   cause: the laptop was stolen
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use tenure_api::access::{FluxAccessRequest, LEAK_PREFIX, ROTATE, ROTATE_PREFIX};
use tenure_api::text::visible_line;

use super::rotation;
use tenure_api::digest::digest_bytes;

pub use tenure_api::access::LONGEST_ORDER as LONGEST;

/// The maximum length of a cause, in characters.
pub const LONGEST_CAUSE: usize = 256;
/// The number of digits of a digest in an order's id.
const ID: usize = 12;
/// The separator between the ids of several orders.
const AND: char = '+';

/// A user's order to replace a request's credential before it is due, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RotationOrder {
    /// The namespace. Unset: all namespaces of the request.
    pub namespace: Option<String>,
    /// The author.
    pub by: String,
    /// The time, by the author's clock.
    pub at: Timestamp,
    /// True if the credential has leaked: the old one ends as soon as the new one is proven.
    pub is_leak: bool,
    /// The reason.
    pub cause: String,
}

impl RotationOrder {
    /// Returns the key and the value of the annotation.
    #[must_use]
    pub fn write(&self) -> (String, String) {
        let key = name_key(self.namespace.as_deref());
        let cause: String = self.cause.chars().take(LONGEST_CAUSE).collect();
        let leak = if self.is_leak { LEAK_PREFIX } else { "" };
        let value = format!(
            "{leak}by: {}\nat: {}\ncause: {}\n",
            self.by,
            self.at,
            visible_line(&cause)
        );
        (key, value)
    }

    /// Reads an annotation. None if it is no order, or can't be read.
    #[must_use]
    pub fn read(key: &str, value: &str) -> Option<Self> {
        let namespace = match key.strip_prefix(ROTATE_PREFIX) {
            Some(namespace) => Some(namespace.to_owned()),
            None if key == ROTATE => None,
            None => return None,
        };
        if value.chars().count() > LONGEST {
            return None;
        }
        let rest = value.strip_prefix(LEAK_PREFIX);
        let mut lines = rest.unwrap_or(value).lines();
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned);
        let (by, at) = (field("by")?, field("at")?.parse().ok()?);
        let cause = field("cause").unwrap_or_default();
        (!by.is_empty()).then(|| Self {
            namespace,
            by,
            at,
            is_leak: rest.is_some(),
            cause,
        })
    }

    /// Checks whether the order is still to be executed in at least one of its namespaces.
    #[must_use]
    pub fn is_open(&self, request: &FluxAccessRequest) -> bool {
        let (key, value) = self.write();
        let id = hash_order((&key, &value));
        let ledgers = request.status.iter().flat_map(|status| &status.credentials);
        let mut ledgers = ledgers.filter(|ledger| self.is_about(&ledger.namespace));
        ledgers.any(|ledger| !is_handled(ledger.handled_order.as_deref(), &id))
    }

    /// Checks whether the order is for the credential in this namespace.
    fn is_about(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|named| named == namespace)
    }
}

/// Checks whether the ledger's ids of executed orders contain this one.
fn is_handled(handled: Option<&str>, id: &str) -> bool {
    handled.is_some_and(|handled| handled.split(AND).any(|one| one == id))
}

fn name_key(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{ROTATE_PREFIX}{namespace}"),
        None => ROTATE.to_owned(),
    }
}

/// Returns the id with which the ledger records an executed order.
fn hash_order((key, value): (&str, &str)) -> String {
    let digest = digest_bytes(format!("{key}\n{value}").as_bytes());
    let hash = digest.rsplit(':').next().unwrap_or_default();
    hash.chars().take(ID).collect()
}

/// Lists the orders for a namespace with their ids, sorted by key: two at most.
fn list(annotations: Option<&BTreeMap<String, String>>, namespace: &str) -> Vec<(String, RotationOrder)> {
    let keys = [None, Some(namespace)].map(name_key);
    let all = keys.iter().filter_map(|key| {
        let value = annotations?.get(key)?;
        let order = RotationOrder::read(key, value).filter(|order| order.is_about(namespace))?;
        Some((hash_order((key, value)), order))
    });
    all.collect()
}

/// Returns the open order for the credential in a namespace. `handled` is the ledger's id of the last executed order. Several open orders become one, which ends
/// the old credential at once if any of them reports a leak.
#[must_use]
pub fn find(
    annotations: Option<&BTreeMap<String, String>>,
    namespace: &str,
    handled: Option<&str>,
) -> Option<rotation::Order> {
    let all = list(annotations, namespace);
    let open: Vec<&RotationOrder> = all
        .iter()
        .filter(|(id, _)| !is_handled(handled, id))
        .map(|(_, order)| order)
        .collect();
    let newest = open.iter().max_by_key(|order| order.at)?;
    let ids: Vec<&str> = all.iter().map(|(id, _)| id.as_str()).collect();
    Some(rotation::Order {
        id: ids.join(&AND.to_string()),
        cause: format!("{} ordered it: {}", newest.by, newest.cause),
        is_leak: open.iter().any(|order| order.is_leak),
    })
}

/// Lists all orders on a request, open and executed.
#[must_use]
pub fn list_all(annotations: Option<&BTreeMap<String, String>>) -> Vec<RotationOrder> {
    let all = annotations.into_iter().flatten();
    all.filter_map(|(key, value)| RotationOrder::read(key, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_order(namespace: Option<&str>, at: &str, is_leak: bool) -> RotationOrder {
        RotationOrder {
            namespace: namespace.map(str::to_owned),
            by: "olga".to_owned(),
            at: at.parse().unwrap(),
            is_leak,
            cause: "a laptop\nwas stolen".to_owned(),
        }
    }

    fn write_annotations(orders: &[RotationOrder]) -> BTreeMap<String, String> {
        orders.iter().map(RotationOrder::write).collect()
    }

    #[test]
    fn an_order_reads_as_it_was_written() {
        let (key, value) = make_order(Some("team-a"), "2026-11-26T07:02:27Z", true).write();
        assert_eq!(key, "rotate.access.tenure.dev/team-a");
        assert!(
            value.starts_with("leak/by: olga\nat: 2026-11-26T07:02:27Z\ncause: "),
            "{value}"
        );
        let read = RotationOrder::read(&key, &value).unwrap();
        assert!(
            read.is_leak && read.by == "olga" && !read.cause.contains('\n'),
            "{read:?}"
        );
        let (key, value) = make_order(None, "2026-11-26T07:02:27Z", false).write();
        assert_eq!(key, "tenure.dev/rotate");
        let read = RotationOrder::read(&key, &value).unwrap();
        assert_eq!((read.namespace, read.is_leak), (None, false));
        for (key, value) in [
            ("rotate.tenure.dev/team-a", value.as_str()),
            (&key, ""),
            (&key, "by: \nat: 2026-11-26T07:02:27Z\n"),
            (&key, "by: olga\nat: yesterday\n"),
            (&key, "at: 2026-11-26T07:02:27Z\nby: olga\n"),
            (&key, &format!("{value}{}", "x".repeat(LONGEST))),
        ] {
            assert_eq!(RotationOrder::read(key, value), None, "{key} {value:.60}");
        }
    }

    #[test]
    fn an_order_is_carried_out_once() {
        let (here, everywhere) = (
            make_order(Some("a"), "2026-01-01T00:00:00Z", true),
            make_order(None, "2026-01-02T00:00:00Z", false),
        );
        let only_here = write_annotations(std::slice::from_ref(&here));
        let first = find(Some(&only_here), "a", None).unwrap();
        assert!(
            first.is_leak && first.cause.starts_with("olga ordered it: "),
            "{first:?}"
        );
        assert_eq!(find(Some(&only_here), "a", Some(&first.id)), None);
        // Another namespace's order doesn't apply, and without annotations there is no order.
        assert_eq!(find(Some(&only_here), "b", None), None);
        assert_eq!(find(None, "a", None), None);
        // Two open orders become one, and the leak counts.
        let both = write_annotations(&[here.clone(), everywhere]);
        let together = find(Some(&both), "a", None).unwrap();
        assert!(together.is_leak);
        assert_eq!(find(Some(&both), "a", Some(&together.id)), None);
        assert!(!find(Some(&both), "b", None).unwrap().is_leak);
        // An executed leak order doesn't turn a later order into a leak. A removed order has no effect.
        let then = find(Some(&both), "a", Some(&first.id)).unwrap();
        assert!(!then.is_leak && then.id != first.id);
        assert_eq!(find(Some(&only_here), "a", Some(&then.id)), None);
        // The same order at a later time is another order.
        let again = write_annotations(&[make_order(Some("a"), "2026-01-03T00:00:00Z", false)]);
        assert!(find(Some(&again), "a", Some(&then.id)).is_some());
    }
}
