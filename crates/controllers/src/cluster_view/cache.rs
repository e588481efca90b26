//! The objects of the reconciled kinds, and the namespaces, as the controller's own watches and writes last saw them. The cache never goes back: an
//! older revision does not replace a newer one, and a late answer does not bring back a deleted object.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_cluster::RawObject;

/// A change of one object in the cache. `old` is missing for a created object, and `new` for a deleted one.
pub(crate) struct Change<K> {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) old: Option<Arc<K>>,
    pub(crate) new: Option<Arc<K>>,
}

/// The caches of all kinds, each found by the type of its objects and created on first use.
#[derive(Debug, Default)]
pub(crate) struct CacheByKind(RwLock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl CacheByKind {
    /// Returns the cache of one kind.
    pub(crate) fn get<K: Send + Sync + 'static>(&self) -> Arc<Cache<K>> {
        let find = |known: &HashMap<TypeId, Arc<dyn Any + Send + Sync>>| {
            let found = known.get(&TypeId::of::<K>()).cloned()?;
            found.downcast::<Cache<K>>().ok()
        };
        let known = find(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        known.unwrap_or_else(|| {
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            find(&known).unwrap_or_else(|| {
                let new = Arc::<Cache<K>>::default();
                known.insert(TypeId::of::<K>(), Arc::clone(&new) as _);
                new
            })
        })
    }

    /// Sets the cache of one kind, before its first use.
    pub(crate) fn set<K: Send + Sync + 'static>(&self, cache: Cache<K>) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(TypeId::of::<K>(), Arc::new(cache));
    }
}

/// One kind's objects by namespace and name.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    objects: RwLock<Objects<K>>,
    removals: AtomicU64,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: RwLock::default(),
            removals: AtomicU64::new(0),
        }
    }
}

/// The namespace and the name of an object.
type Names = (String, String);

/// Returns the terms by which an object is found, besides its name: the value of a label, or a name in the object.
type ListTerms<K> = fn(&K) -> Vec<String>;

/// The objects of one kind, and the index by which a term finds them.
#[derive(Debug)]
struct Objects<K> {
    all: BTreeMap<Names, Arc<K>>,
    list_terms: Option<ListTerms<K>>,
    /// Objects by term.
    by_term: HashMap<String, BTreeSet<Names>>,
    /// Objects with more terms than the limit. A lookup goes through all of them.
    wide: BTreeSet<Names>,
}

/// The limit of indexed terms per object. The writer of an object chooses the number of its terms, and a term needs more memory here than in the
/// object.
const MOST_TERMS: usize = 64;

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            list_terms: None,
            by_term: HashMap::new(),
            wide: BTreeSet::new(),
        }
    }
}

impl<K: Resource> Objects<K> {
    fn insert(&mut self, names: Names, object: K) {
        let object = Arc::new(object);
        let old = self.all.insert(names.clone(), Arc::clone(&object));
        let Some(list_terms) = self.list_terms else { return };
        let (before, now) = (old.as_deref().map(list_terms).unwrap_or_default(), list_terms(&object));
        // Most changes are of a status.
        if before == now {
            return;
        }
        self.forget_terms(&names, &before);
        if now.len() > MOST_TERMS {
            self.wide.insert(names);
            return;
        }
        for term in now {
            self.by_term.entry(term).or_default().insert(names.clone());
        }
    }

    fn remove(&mut self, names: &Names) -> Option<Arc<K>> {
        let object = self.all.remove(names)?;
        if let Some(list_terms) = self.list_terms {
            self.forget_terms(names, &list_terms(&object));
        }
        Some(object)
    }

    fn forget_terms(&mut self, names: &Names, terms: &[String]) {
        if terms.len() > MOST_TERMS {
            self.wide.remove(names);
            return;
        }
        for term in terms {
            if let Some(found) = self.by_term.get_mut(term) {
                found.remove(names);
                if found.is_empty() {
                    self.by_term.remove(term);
                }
            }
        }
    }
}

impl<K: Resource> Cache<K> {
    /// Creates a cache whose objects can also be found by these terms.
    pub(crate) fn by_terms(list_terms: ListTerms<K>) -> Self {
        Self {
            objects: RwLock::new(Objects {
                list_terms: Some(list_terms),
                ..Objects::default()
            }),
            ..Self::default()
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects<K>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns one object.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read().all.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Returns the objects with a term.
    pub(crate) fn find(&self, term: &str) -> Vec<Arc<K>> {
        let objects = self.read();
        let names = objects.by_term.get(term).into_iter().flatten();
        let named = names.filter_map(|names| objects.all.get(names));
        let wide = objects.wide.iter().filter_map(|names| objects.all.get(names));
        let has_term = |object: &K| {
            let terms = objects.list_terms.map(|list_terms| list_terms(object));
            terms.is_some_and(|terms| terms.iter().any(|own| own == term))
        };
        named
            .chain(wide.filter(|object| has_term(object)))
            .map(Arc::clone)
            .collect()
    }

    /// Returns all objects of a namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let from = Bound::Included((namespace.to_owned(), String::new()));
        self.read()
            .all
            .range((from, Bound::Unbounded))
            .take_while(|((own, _), _)| own == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// Checks whether the cache is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.read().all.is_empty()
    }

    /// Returns all objects.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.read().all.values().cloned().collect()
    }

    /// Stores an object from a watch, and returns the replaced object. A newer object in the cache stays.
    pub(crate) fn observe(&self, object: K) -> Option<Arc<K>> {
        let mut objects = self.write();
        let key = make_key(&object);
        let old = objects.all.get(&key).cloned();
        let newer = old.as_ref().is_none_or(|old| is_newer(&object, old.as_ref()));
        if newer {
            objects.insert(key, object);
        }
        old
    }

    /// Stores an object as a watch reported it. Returns `None` if the object can't be read.
    pub(crate) fn take_seen(&self, seen: &RawObject) -> Option<Change<K>>
    where
        K: DeserializeOwned,
    {
        let value = seen.read().inspect_err(|error| {
            tracing::warn!(namespace = seen.namespace, name = seen.name, %error, "an object can't be read");
        });
        let object: K = read_object(value.ok()?)?;
        let (namespace, name) = make_key(&object);
        let old = self.observe(object);
        let new = self.get(&namespace, &name);
        Some(Change {
            namespace,
            name,
            old,
            new,
        })
    }

    /// Records a deletion that a watch reported.
    pub(crate) fn take_gone(&self, namespace: &str, name: &str, revision: &str) -> Change<K> {
        Change {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            old: self.remove(namespace, name, parse_revision(revision)),
            new: None,
        }
    }

    /// Stores an object from the answer to a write, but only if the cache still has this object.
    pub(crate) fn record_written(&self, object: K) {
        let mut objects = self.write();
        let key = make_key(&object);
        let is_older = |old: &Arc<K>| {
            read_uid(old.as_ref()) == read_uid(&object) && read_revision(old.as_ref()) < read_revision(&object)
        };
        if objects.all.get(&key).is_some_and(is_older) {
            objects.insert(key, object);
        }
    }

    /// Removes an object that a watch reported as deleted at a revision. An object that was created later stays.
    pub(crate) fn remove(&self, namespace: &str, name: &str, gone: u64) -> Option<Arc<K>> {
        let mut objects = self.write();
        let key = (namespace.to_owned(), name.to_owned());
        if objects
            .all
            .get(&key)
            .is_some_and(|object| read_revision(object.as_ref()) > gone)
        {
            return None;
        }
        self.removals.fetch_add(1, Ordering::AcqRel);
        objects.remove(&key)
    }

    /// Returns the number of removals so far. A caller reads it before it reads an object without the watch.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Stores an object that was read without the watch, unless an object was removed since then: the removed object may have been this one.
    pub(crate) fn record_found(&self, object: K, removals: u64) {
        let mut objects = self.write();
        if self.removals() != removals {
            return;
        }
        let key = make_key(&object);
        if objects.all.get(&key).is_none_or(|old| is_newer(&object, old.as_ref())) {
            objects.insert(key, object);
        }
    }
}

/// Checks whether an object is newer than another of its name. Revisions grow across all objects of a kind, so this also orders re-created objects.
fn is_newer<K: Resource>(object: &K, old: &K) -> bool {
    read_revision(old) < read_revision(object)
        || (read_uid(old) != read_uid(object) && read_revision(old) == read_revision(object))
}

fn make_key<K: Resource>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn read_uid<K: Resource>(object: &K) -> Option<&str> {
    object.meta().uid.as_deref()
}

/// Returns the revision as a number for comparison (KEP-5504 makes that part of the API). A revision that is not a number counts as the oldest.
fn read_revision<K: Resource>(object: &K) -> u64 {
    parse_revision(object.meta().resource_version.as_deref().unwrap_or_default())
}

/// Returns a `resourceVersion` as a number, or 0 if it is not a number.
pub(crate) fn parse_revision(resource_version: &str) -> u64 {
    resource_version.parse().unwrap_or(0)
}

/// Reads an object, without its status if the status can't be read. A writer of the status must not be able to hide an object with it. Otherwise the
/// controller would keep the last spec that it saw, and neither suspend nor delete the object.
pub(crate) fn read_object<K: DeserializeOwned>(mut object: Value) -> Option<K> {
    // No code reads these fields, and they are most of an object.
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let kind = std::any::type_name::<K>();
    let error = match K::deserialize(&object) {
        Ok(read) => return Some(read),
        Err(error) => error,
    };
    let had_status = object
        .as_object_mut()
        .and_then(|object| object.remove("status"))
        .is_some();
    if had_status && let Ok(read) = serde_json::from_value(object) {
        tracing::warn!(%error, kind, "an object's status can't be read: it is treated as empty, and written again");
        return Some(read);
    }
    tracing::warn!(%error, kind, "an object can't be read; it is left alone");
    None
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use serde_json::json;

    use super::*;

    fn namespace(uid: &str, revision: u64) -> Namespace {
        let metadata = json!({ "name": "team", "uid": uid, "resourceVersion": revision.to_string() });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn late_events_and_answers_leave_cache_unchanged() {
        let cache: Cache<Namespace> = Cache::default();
        let check = |expected: Option<&str>| {
            let found = cache.get("", "team");
            assert_eq!(found.as_ref().and_then(|found| read_uid(found.as_ref())), expected);
        };
        cache.observe(namespace("one", 5));
        // Re-created, and read without the watch, which reports the end of the old object later.
        cache.record_found(namespace("two", 9), cache.removals());
        check(Some("two"));
        cache.observe(namespace("one", 6));
        cache.remove("", "team", 8);
        check(Some("two"));
        // An object that was read before the watch reported its deletion does not come back.
        let before = cache.removals();
        cache.remove("", "team", 10);
        cache.record_found(namespace("two", 9), before);
        check(None);
    }

    /// Returns the words of an annotation as terms.
    fn list_words(namespace: &Namespace) -> Vec<String> {
        let words = namespace
            .annotations()
            .get("words")
            .map(String::as_str)
            .unwrap_or_default();
        words.split_whitespace().map(str::to_owned).collect()
    }

    fn saying(name: &str, words: &str, revision: u64) -> Namespace {
        let metadata = json!({ "name": name, "uid": name, "resourceVersion": revision.to_string(), "annotations": { "words": words } });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn cache_finds_objects_by_their_current_terms() {
        let cache = Cache::by_terms(list_words);
        let find = |term: &str| -> Vec<String> { cache.find(term).iter().map(|found| found.name_any()).collect() };
        let many: Vec<String> = (0..=MOST_TERMS).map(|number| format!("many-{number}")).collect();
        cache.observe(saying("a", "x y", 1));
        cache.observe(saying("b", "y", 2));
        cache.observe(saying("c", &many.join(" "), 3));
        assert_eq!(
            (find("x"), find("y"), find("z")),
            (vec!["a".into()], vec!["a".into(), "b".into()], vec![])
        );
        // An object with more terms than the limit is found too.
        assert_eq!((find("many-7"), find("many-64")), (vec!["c".into()], vec!["c".into()]));

        // An older version changes nothing. A newer version moves the object, and so does the answer to a write.
        cache.observe(saying("a", "z", 0));
        assert_eq!((find("x"), find("z")), (vec!["a".into()], vec![]));
        cache.observe(saying("a", "z", 4));
        cache.record_written(saying("c", "z", 5));
        cache.record_written(saying("b", &many.join(" "), 6));
        assert_eq!((find("x"), find("y")), (vec![], vec![]));
        assert_eq!(
            (find("z"), find("many-7")),
            (vec!["a".into(), "c".into()], vec!["b".into()])
        );
        for name in ["a", "b", "c"] {
            cache.remove("", name, 9);
        }
        assert_eq!((find("z"), find("many-7")), (vec![], vec![]));
        let objects = cache.read();
        assert!(objects.by_term.is_empty() && objects.wide.is_empty());
    }
}
