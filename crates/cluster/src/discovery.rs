//! What an API server serves: aggregated discovery (KEP-3352) as data.
//!
//! The one reading of it, for whoever asks: the mapping of clients, and the names that people type. Refuses to guess: a kind that a
//! document lacks is unserved only where nothing of its group is stale; else it is not known.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use tenure_api::ObjectView;

use crate::error::ClusterError;

/// The paths to read, each with [`ACCEPT`].
pub const PATHS: [&str; 2] = ["/api", "/apis"];

/// What to accept, so that the answer is one document with everything in it.
pub const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// One resource of the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version, as `v1`.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name in paths, as `deployments`.
    pub plural: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether it can be watched.
    pub watchable: bool,
}

impl Resource {
    /// `group/version`, or `version` of the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The namespace to address an object with: none for a cluster-scoped kind, whatever the object says.
    #[must_use]
    pub fn scope<'a>(&self, namespace: &'a str) -> Option<&'a str> {
        (self.namespaced && !namespace.is_empty()).then_some(namespace)
    }
}

/// A resource with the other names that people call it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The resource.
    pub resource: Resource,
    /// `deployment`.
    pub singular: String,
    /// `deploy`.
    pub short_names: Vec<String>,
}

/// What discovery says of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sought {
    /// It is served, as this.
    Served(Resource),
    /// It is not.
    Unserved,
    /// What is known of its group is stale: it may be served.
    Unknown,
}

/// What an API server serves.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// In the server's order: by group, then by the version that it prefers.
    resources: Vec<Named>,
    /// Every version of a kind, in that order: places in `resources`.
    kinds: HashMap<(String, String), Vec<usize>>,
    /// Groups of which a version is stale.
    stale: HashSet<String>,
}

impl Discovery {
    /// Reads the answers to [`PATHS`].
    ///
    /// # Errors
    /// [`ClusterError::Decode`] when one is not a discovery document.
    pub fn read(documents: &[Value]) -> Result<Self, ClusterError> {
        let mut discovery = Self::default();
        for document in documents {
            let Some(groups) = document.get("items").and_then(Value::as_array) else {
                return Err(ClusterError::Decode {
                    what: "discovery".to_owned(),
                    problem: "it is not an APIGroupDiscoveryList; Kubernetes 1.30 or newer is needed".to_owned(),
                });
            };
            groups.iter().for_each(|group| discovery.add(ObjectView::of(group)));
        }
        Ok(discovery)
    }

    /// A kind in exactly this version, or, without one, in the version that the server prefers.
    #[must_use]
    pub fn find(&self, group: &str, version: Option<&str>, kind: &str) -> Sought {
        let versions = self.kinds.get(&(group.to_owned(), kind.to_owned()));
        let found = versions
            .into_iter()
            .flatten()
            .filter_map(|place| self.resources.get(*place))
            .find(|named| version.is_none_or(|version| named.resource.version == version));
        match found {
            Some(named) => Sought::Served(named.resource.clone()),
            None if self.stale.contains(group) => Sought::Unknown,
            None => Sought::Unserved,
        }
    }

    /// Every kind once, in the version that the server prefers.
    pub fn preferred(&self) -> impl Iterator<Item = &Named> {
        self.resources.iter().enumerate().filter_map(|(place, named)| {
            let key = (named.resource.group.clone(), named.resource.kind.clone());
            (self.kinds.get(&key)?.first() == Some(&place)).then_some(named)
        })
    }

    /// The groups of which the server doesn't know all that is served.
    pub fn stale_groups(&self) -> impl Iterator<Item = &str> {
        self.stale.iter().map(String::as_str)
    }

    /// The same without a kind.
    pub(crate) fn without(&self, group: &str, kind: &str) -> Self {
        let mut rest = self.clone();
        rest.kinds.remove(&(group.to_owned(), kind.to_owned()));
        rest
    }

    fn add(&mut self, group: ObjectView<'_>) {
        let name = group.read_text("/metadata/name").to_owned();
        for version in group.list_views("/versions") {
            if version.read_text("/freshness") == "Stale" {
                self.stale.insert(name.clone());
            }
            for resource in version.list_views("/resources") {
                // A resource can answer with a kind of another group (Scale); as a top-level resource none does.
                let kind = resource.read_text("/responseKind/kind").to_owned();
                let plural = resource.read_text("/resource").to_owned();
                if kind.is_empty() || plural.is_empty() {
                    continue;
                }
                let has_verb = |verb: &str| resource.list_texts("/verbs").any(|known| known == verb);
                let place = self.resources.len();
                self.kinds.entry((name.clone(), kind.clone())).or_default().push(place);
                self.resources.push(Named {
                    resource: Resource {
                        group: name.clone(),
                        version: version.read_text("/version").to_owned(),
                        kind,
                        plural,
                        namespaced: resource.read_text("/scope") == "Namespaced",
                        watchable: has_verb("watch") && has_verb("list"),
                    },
                    singular: resource.read_text("/singularResource").to_owned(),
                    short_names: resource.list_texts("/shortNames").map(str::to_owned).collect(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(version: &str, freshness: &str, kinds: &[(&str, &str)]) -> Value {
        let resources: Vec<Value> = kinds
            .iter()
            .map(|(plural, kind)| {
                json!({ "resource": plural, "responseKind": { "kind": kind }, "scope": "Namespaced",
                    "singularResource": kind.to_lowercase(), "shortNames": ["x"], "verbs": ["list", "watch"] })
            })
            .collect();
        json!({ "version": version, "freshness": freshness, "resources": resources })
    }

    fn discovery(groups: &[(&str, Vec<Value>)]) -> Discovery {
        let items: Vec<Value> = groups
            .iter()
            .map(|(name, versions)| json!({ "metadata": { "name": name }, "versions": versions }))
            .collect();
        Discovery::read(&[json!({ "items": items })]).unwrap()
    }

    #[test]
    fn a_kind_is_found_in_its_version_or_in_the_preferred_one() {
        let known = discovery(&[(
            "shop",
            vec![
                version("v2", "Current", &[("carts", "Cart")]),
                version("v1", "Current", &[("carts", "Cart"), ("tills", "Till")]),
            ],
        )]);
        let check = |version: Option<&str>, kind: &str, expected: Option<&str>| match known.find("shop", version, kind)
        {
            Sought::Served(resource) => assert_eq!(Some(resource.version.as_str()), expected, "{version:?} {kind}"),
            other => assert_eq!((other, expected), (Sought::Unserved, None), "{version:?} {kind}"),
        };
        check(None, "Cart", Some("v2"));
        check(Some("v1"), "Cart", Some("v1"));
        check(None, "Till", Some("v1"));
        check(Some("v2"), "Till", None);
        check(None, "Shelf", None);
        let preferred: Vec<String> = known.preferred().map(|named| named.resource.api_version()).collect();
        assert_eq!(preferred, ["shop/v2", "shop/v1"]);
    }

    #[test]
    fn a_stale_group_leaves_open_what_it_serves() {
        let known = discovery(&[
            ("metrics", vec![version("v1", "Stale", &[])]),
            (
                "shop",
                vec![
                    version("v2", "Stale", &[]),
                    version("v1", "Current", &[("carts", "Cart")]),
                ],
            ),
        ]);
        assert_eq!(known.find("metrics", None, "NodeMetrics"), Sought::Unknown);
        assert_eq!(known.find("shop", Some("v2"), "Cart"), Sought::Unknown);
        assert!(matches!(known.find("shop", None, "Cart"), Sought::Served(_)));
        assert_eq!(known.find("elsewhere", None, "Cart"), Sought::Unserved);
    }

    #[test]
    fn what_is_no_discovery_is_refused() {
        assert!(Discovery::read(&[json!({ "groups": [] })]).is_err());
        assert!(Discovery::read(&[Value::Null]).is_err());
    }
}
