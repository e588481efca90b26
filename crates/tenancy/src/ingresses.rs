//! The hosts and paths of a cluster's Ingresses, to find another Ingress with the same ones (`ingressOptions.hostnameCollisionScope`).
//!
//! The memory for one namespace is bounded, whoever writes there. Hosts beyond the bound are unknown, and [`IngressIndex::is_full`] reports that. The
//! index stores only hosts, paths and names of Ingresses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The greatest number of hosts and paths of one Ingress, where they are compared.
pub const MOST_OF_ONE: usize = 256;
/// The greatest number of pairs that are stored for a namespace. The index also notes this many more Ingresses whose pairs did not
/// all fit.
pub const MOST_OF_NAMESPACE: usize = 1024;
/// The number of bytes of the digest by which pairs of host and path are compared.
const DIGEST: usize = 16;

/// The digest of a host and a path. All digests have the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairDigest([u8; DIGEST]);

impl PairDigest {
    /// Returns the digest as text.
    #[must_use]
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// Returns the first byte, which spreads many digests over several places.
    #[must_use]
    pub fn first_byte(self) -> u8 {
        let [first, ..] = self.0;
        first
    }
}

/// Returns the digest of texts. Different lists of texts never give the same input.
#[must_use]
pub fn digest_texts(texts: &[&str]) -> PairDigest {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    let mut digest = [0; DIGEST];
    for (to, from) in digest.iter_mut().zip(hasher.finalize()) {
        *to = from;
    }
    PairDigest(digest)
}

/// A host and a path of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// The host. Empty matches every host.
    pub host: String,
    /// The path. A host without a path has `/`.
    pub path: String,
}

/// The hosts and paths of an Ingress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressRoutes(BTreeMap<PairDigest, HostPath>);

impl IngressRoutes {
    /// Returns the hosts and paths of an Ingress's rules. A default backend takes requests that no rule matches, so it has no pair, as in
    /// Capsule. A rule without paths is about its whole host. A slash at the end of a path counts only for an `Exact` path, as in Kubernetes.
    #[must_use]
    pub fn read(ingress: &Value) -> Self {
        let rules = ingress.pointer("/spec/rules").and_then(Value::as_array);
        let mut pairs = BTreeMap::new();
        for rule in rules.into_iter().flatten() {
            let text =
                |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let host = text(rule, "host");
            let mut add = |path: String| {
                let path = if path.is_empty() { "/".to_owned() } else { path };
                let digest = digest_texts(&[&host, &path]);
                pairs.entry(digest).or_insert_with(|| HostPath {
                    host: host.clone(),
                    path,
                });
            };
            let paths = rule.pointer("/http/paths").and_then(Value::as_array);
            match paths.filter(|paths| !paths.is_empty()) {
                None => add(String::new()),
                Some(paths) => {
                    for path in paths {
                        let mut written = text(path, "path");
                        if path.get("pathType").and_then(Value::as_str) != Some("Exact") {
                            written.truncate(written.trim_end_matches('/').len());
                        }
                        add(written);
                    }
                }
            }
        }
        Self(pairs)
    }

    /// Returns the number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Checks whether there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the pairs that `other` doesn't have.
    #[must_use]
    pub fn without(self, other: &Self) -> Vec<(PairDigest, HostPath)> {
        let new = self.0.into_iter();
        new.filter(|(digest, _)| !other.0.contains_key(digest)).collect()
    }
}

/// The hosts and paths of all Ingresses.
#[derive(Clone, Debug, Default)]
pub struct IngressIndex {
    namespaces: HashMap<String, NamespaceRoutes>,
    /// The namespaces with an Ingress that has a pair.
    holders: BTreeSet<(PairDigest, Arc<str>)>,
}

/// The stored pairs of the Ingresses in one namespace.
#[derive(Clone, Debug, Default)]
struct NamespaceRoutes {
    ingresses: BTreeMap<Arc<str>, IngressPairs>,
    pairs: BTreeSet<(PairDigest, Arc<str>)>,
    /// The number of Ingresses whose pairs did not all fit.
    cut: usize,
    /// True if more Ingresses than [`MOST_OF_NAMESPACE`] did not fit, so that `cut` no longer counts all of them.
    is_lost: bool,
}

/// The stored pairs of one Ingress. `is_cut` is true if it has more pairs.
#[derive(Clone, Debug, Default)]
struct IngressPairs {
    pairs: Vec<PairDigest>,
    is_cut: bool,
}

/// The namespace and name of an Ingress that has a host and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl IngressIndex {
    /// Records the hosts and paths of an Ingress, or its removal.
    pub fn set_ingress(&mut self, namespace: &str, name: &str, pairs: Option<&IngressRoutes>) {
        self.forget(namespace, name);
        let Some(pairs) = pairs.filter(|pairs| !pairs.is_empty()) else {
            self.sweep(namespace);
            return;
        };
        let shelf = self.namespaces.entry(namespace.to_owned()).or_default();
        let room = MOST_OF_NAMESPACE.saturating_sub(shelf.pairs.len()).min(MOST_OF_ONE);
        let kept: Vec<PairDigest> = pairs.0.keys().copied().take(room).collect();
        let is_cut = kept.len() < pairs.len();
        if is_cut && shelf.cut >= MOST_OF_NAMESPACE {
            shelf.is_lost = true;
            return;
        }
        shelf.cut = shelf.cut.saturating_add(usize::from(is_cut));
        let (name, namespace): (Arc<str>, Arc<str>) = (name.into(), namespace.into());
        for digest in &kept {
            shelf.pairs.insert((*digest, Arc::clone(&name)));
            self.holders.insert((*digest, Arc::clone(&namespace)));
        }
        shelf.ingresses.insert(name, IngressPairs { pairs: kept, is_cut });
    }

    /// Removes an Ingress and its pairs.
    fn forget(&mut self, namespace: &str, name: &str) {
        let Some(shelf) = self.namespaces.get_mut(namespace) else {
            return;
        };
        let Some((name, held)) = shelf.ingresses.remove_entry(name) else {
            return;
        };
        shelf.cut = shelf.cut.saturating_sub(usize::from(held.is_cut));
        for digest in held.pairs {
            shelf.pairs.remove(&(digest, Arc::clone(&name)));
            if find_first(&shelf.pairs, digest, "").is_none() {
                self.holders.remove(&(digest, namespace.into()));
            }
        }
    }

    /// Removes a namespace. The removals of its Ingresses are reported one by one, and maybe later, when a namespace with the same name may
    /// exist again.
    pub fn forget_namespace(&mut self, namespace: &str) {
        if let Some(shelf) = self.namespaces.get_mut(namespace) {
            shelf.is_lost = false;
        }
        self.sweep(namespace);
    }

    /// Removes a namespace without Ingresses, unless some of its Ingresses could not be stored.
    fn sweep(&mut self, namespace: &str) {
        let is_bare = |shelf: &NamespaceRoutes| shelf.ingresses.is_empty() && !shelf.is_lost;
        if self.namespaces.get(namespace).is_some_and(is_bare) {
            self.namespaces.remove(namespace);
        }
    }

    /// Checks whether the index is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    /// Checks whether a namespace has more pairs than the index stores, or would have with `more` pairs
    /// of this Ingress.
    #[must_use]
    pub fn is_full(&self, namespace: &str, name: &str, more: usize) -> bool {
        let Some(shelf) = self.namespaces.get(namespace) else {
            return more > MOST_OF_NAMESPACE;
        };
        let own = shelf.ingresses.get(name).map_or(0, |held| held.pairs.len());
        let others = shelf.pairs.len().saturating_sub(own);
        shelf.cut > 0 || shelf.is_lost || others.saturating_add(more) > MOST_OF_NAMESPACE
    }

    /// Returns an Ingress of a namespace with this pair, other than the Ingress `but`.
    #[must_use]
    pub fn find_in(&self, namespace: &str, digest: PairDigest, but: (&str, &str)) -> Option<IngressName> {
        let shelf = self.namespaces.get(namespace)?;
        let own = if but.0 == namespace { but.1 } else { "" };
        let name = find_first(&shelf.pairs, digest, own)?;
        Some(IngressName {
            namespace: namespace.to_owned(),
            name: name.to_string(),
        })
    }

    /// Returns an Ingress of any namespace with this pair, other than the Ingress `but`.
    #[must_use]
    pub fn find(&self, digest: PairDigest, but: (&str, &str)) -> Option<IngressName> {
        let beside = find_first(&self.holders, digest, but.0);
        let there = self.find_in(but.0, digest, but);
        there.or_else(|| self.find_in(beside?, digest, but))
    }
}

/// Returns the first name for a digest other than this one.
fn find_first<'a>(pairs: &'a BTreeSet<(PairDigest, Arc<str>)>, digest: PairDigest, but: &str) -> Option<&'a str> {
    let same = pairs.range((digest, Arc::from(""))..);
    let mut same = same.take_while(|(found, _)| *found == digest);
    same.find(|(_, name)| &**name != but).map(|(_, name)| &**name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ingress(rules: &[(&str, &str, &str)]) -> IngressRoutes {
        let rules = rules.iter().map(|(host, path, kind)| {
            json!({ "host": host, "http": { "paths": [{ "path": path, "pathType": kind, "backend": {} }] } })
        });
        IngressRoutes::read(&json!({ "spec": { "rules": rules.collect::<Vec<_>>() } }))
    }

    fn digest(host: &str, path: &str) -> PairDigest {
        digest_texts(&[host, path])
    }

    #[test]
    fn equivalent_routes_are_equal() {
        let same = ingress(&[("a", "/x", "Prefix"), ("a", "/x/", "Prefix"), ("a", "/x", "Exact")]);
        assert_eq!(same.len(), 1);
        let different = ingress(&[
            ("a", "/x", "Exact"),
            ("a", "/x/", "Exact"),
            ("a", "/", "Prefix"),
            ("b", "/x", "Exact"),
            ("", "/x", "Exact"),
        ]);
        assert_eq!(different.len(), 5);
        let whole = IngressRoutes::read(
            &json!({ "spec": { "rules": [{ "host": "a" }, { "host": "a", "http": { "paths": [] } }] } }),
        );
        assert_eq!(whole, ingress(&[("a", "", "ImplementationSpecific")]));
        assert_eq!(whole, ingress(&[("a", "/", "Prefix")]));
    }

    #[test]
    fn malformed_ingress_is_read_without_error() {
        for odd in [
            json!(null),
            json!({ "spec": { "defaultBackend": { "service": {} } } }),
            json!({ "spec": { "rules": 7 } }),
        ] {
            assert!(IngressRoutes::read(&odd).is_empty(), "{odd}");
        }
        let odd = IngressRoutes::read(&json!({ "spec": { "rules": [7, { "host": 7, "http": { "paths": [7] } }] } }));
        assert_eq!(odd, ingress(&[("", "/", "Prefix")]));
    }

    #[test]
    fn ingress_search_skips_the_ingress_itself() {
        let mut index = IngressIndex::default();
        let pairs = ingress(&[("a", "/", "Prefix")]);
        let pair = digest("a", "/");
        index.set_ingress("one", "web", Some(&pairs));
        assert_eq!(index.find(pair, ("one", "web")), None);
        assert_eq!(index.find(pair, ("two", "web")).unwrap().namespace, "one");
        assert_eq!(index.find_in("one", pair, ("one", "other")).unwrap().name, "web");
        assert_eq!(index.find_in("two", pair, ("one", "other")), None);
        index.set_ingress("two", "web", Some(&pairs));
        assert_eq!(index.find(pair, ("one", "web")).unwrap().namespace, "two");
        index.set_ingress("one", "twin", Some(&pairs));
        assert_eq!(index.find(pair, ("one", "web")).unwrap().name, "twin");
        // The Ingress moves to another namespace, and is removed later.
        index.set_ingress("one", "twin", Some(&ingress(&[("b", "/", "Prefix")])));
        index.set_ingress("one", "web", None);
        index.set_ingress("two", "web", None);
        assert_eq!(index.find(pair, ("", "")), None);
        index.set_ingress("one", "twin", None);
        assert!(index.is_empty() && index.holders.is_empty(), "{index:?}");
    }

    /// A namespace with thousands of Ingresses takes no room of another one.
    #[test]
    fn ingress_index_is_bounded_per_namespace() {
        let mut index = IngressIndex::default();
        for number in 0..5000 {
            let pairs = ingress(&[(&format!("host-{number}"), "/", "Prefix")]);
            index.set_ingress("greedy", &format!("web-{number}"), Some(&pairs));
        }
        let shelf = &index.namespaces["greedy"];
        assert_eq!(shelf.pairs.len(), MOST_OF_NAMESPACE);
        assert!(shelf.ingresses.len() <= 2 * MOST_OF_NAMESPACE);
        assert_eq!(index.holders.len(), MOST_OF_NAMESPACE);
        assert!(index.is_full("greedy", "web-1", 1) && !index.is_full("other", "web", 1));
        for number in 0..5000 {
            index.set_ingress("greedy", &format!("web-{number}"), None);
        }
        assert!(
            index.is_full("greedy", "web-1", 1),
            "nobody knows what there was no room for"
        );
        index.forget_namespace("greedy");
        assert!(index.is_empty() && index.holders.is_empty());
        let large: Vec<String> = (0..1000).map(|number| format!("/{number}")).collect();
        let large: Vec<(&str, &str, &str)> = large.iter().map(|path| ("a", path.as_str(), "Exact")).collect();
        index.set_ingress("other", "web", Some(&ingress(&large)));
        assert_eq!(index.namespaces["other"].pairs.len(), MOST_OF_ONE);
        assert!(index.is_full("other", "next", 1));
        index.set_ingress("other", "web", None);
        assert!(
            !index.is_full("other", "next", MOST_OF_NAMESPACE) && index.is_full("other", "next", MOST_OF_NAMESPACE + 1)
        );
    }
}
