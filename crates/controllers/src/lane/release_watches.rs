//! The watches of a lane for the events that helm-controller writes about HelmReleases: at most one for a namespace, while an Alert of the lane names it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_planner::list_limits::RELEASE_NAMESPACES;
use tokio::task::JoinHandle;

/// The watches of one lane.
#[derive(Debug, Default)]
pub(crate) struct ReleaseWatches(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The namespaces that the Alerts of each namespace name.
    named: BTreeMap<String, BTreeSet<String>>,
    watches: BTreeMap<String, Watch>,
}

/// A watch, which ends with the value.
#[derive(Debug)]
struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ReleaseWatches {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the namespaces that the Alerts of a namespace name, and opens and closes watches. Namespaces outside the lane are forgotten: they took their Alerts along.
    pub(crate) fn update(
        &self,
        namespace: &str,
        named: BTreeSet<String>,
        is_in_lane: impl Fn(&str) -> bool,
        open: impl Fn(&str) -> JoinHandle<()>,
    ) {
        let mut state = self.state();
        let State { named: all, watches } = &mut *state;
        match named.is_empty() {
            true => drop(all.remove(namespace)),
            false => drop(all.insert(namespace.to_owned(), named)),
        }
        all.retain(|namespace, _| is_in_lane(namespace));
        let wanted: BTreeSet<&String> = all.values().flatten().collect();
        let wanted: BTreeSet<&String> = wanted.into_iter().take(RELEASE_NAMESPACES).collect();
        watches.retain(|namespace, _| wanted.contains(namespace));
        for namespace in wanted {
            if !watches.contains_key(namespace) {
                watches.insert(namespace.clone(), Watch(open(namespace)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_watch_is_open_while_an_alert_names_its_namespace() {
        let watches = ReleaseWatches::default();
        let opened = Mutex::new(Vec::new());
        let set = |namespace: &str, named: &[&str]| {
            let open = |namespace: &str| {
                opened.lock().unwrap().push(namespace.to_owned());
                tokio::spawn(std::future::pending())
            };
            let named = named.iter().map(|name| (*name).to_owned()).collect();
            watches.update(namespace, named, |namespace| namespace != "gone", open);
            watches.state().watches.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(set("a", &["a", "b"]), ["a", "b"]);
        assert_eq!(set("b", &["b"]), ["a", "b"]);
        assert_eq!(set("a", &[]), ["b"]);
        assert_eq!(set("gone", &["c"]), ["b"]);
        assert_eq!(set("b", &[]), [""; 0]);
        assert_eq!(*opened.lock().unwrap(), ["a", "b"], "no watch is opened twice");
        let many: Vec<String> = (0..RELEASE_NAMESPACES + 9).map(|index| format!("n{index}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(set("a", &many).len(), RELEASE_NAMESPACES);
    }
}
