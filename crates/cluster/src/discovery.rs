//! The kinds that an API server serves, read from discovery documents.
//!
//! A server answers in one of two forms. Aggregated discovery (KEP-3352) is one document with all resources. The older form lists groups and
//! versions, and each version has a document of its own ([`GroupVersion`]). Servers before Kubernetes 1.27, kcp and some proxies have the older form alone.
//!
//! Both clients and the command line use this module. A missing kind is unserved only if its group was read completely. Else it is unknown.

mod versions;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tenure_api::ObjectView;

use crate::error::ClusterError;

pub use versions::{GroupVersion, MOST_VERSIONS};

/// The path of the core group's document.
pub const CORE_PATH: &str = "/api";

/// The path of the document of all other groups.
pub const GROUPS_PATH: &str = "/apis";

/// The media types to accept: one document with all resources, or else the list of groups.
pub const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The media type of the older form.
pub const ACCEPT_PLAIN: &str = "application/json";

/// Checks whether a server that answered [`ACCEPT`] with this status needs a request with [`ACCEPT_PLAIN`].
#[must_use]
pub fn is_form_refused(code: u16) -> bool {
    matches!(code, 400 | 406 | 415)
}

/// A resource of the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The name in paths, such as `deployments`.
    pub plural: String,
    /// Whether the objects are namespaced.
    pub namespaced: bool,
    /// Whether the resource can be watched.
    pub watchable: bool,
}

impl Resource {
    /// Returns `group/version`, or `version` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the namespace in the path of an object; `None` for a cluster-scoped kind, even if the object names a namespace.
    #[must_use]
    pub fn scope<'a>(&self, namespace: &'a str) -> Option<&'a str> {
        (self.namespaced && !namespace.is_empty()).then_some(namespace)
    }
}

/// A resource with the other names by which `kubectl` accepts it: the singular and the short names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedResource {
    /// The resource.
    pub resource: Resource,
    /// The singular, such as `deployment`.
    pub singular: String,
    /// The short names, such as `deploy`.
    pub short_names: Vec<String>,
}

/// The result of a look-up of a kind in discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindLookup {
    /// The kind is served as this resource.
    Served(Resource),
    /// The kind is not served.
    Unserved,
    /// The kind may be served: the documents of its group are stale.
    Unknown,
}

/// The kinds that an API server serves.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    groups: HashMap<String, Arc<Group>>,
    /// The names of the groups in the server's order.
    order: Vec<String>,
}

/// The kinds of one group.
#[derive(Clone, Debug, Default)]
struct Group {
    name: String,
    /// The resources in the server's order, by its preferred version.
    resources: Vec<NamedResource>,
    /// The versions of each kind in this order, as indexes into `resources`.
    kinds: HashMap<String, Vec<usize>>,
    /// Whether the resources of a version are unknown.
    is_stale: bool,
    /// The versions that have a document of their own; empty in the aggregated form.
    versions: Vec<String>,
    /// Whether these documents were requested.
    is_read: bool,
}

impl Discovery {
    /// Reads the documents at [`CORE_PATH`] and [`GROUPS_PATH`].
    ///
    /// # Errors
    /// [`ClusterError::Decode`] if a document has neither form.
    pub fn read(documents: &[Value]) -> Result<Self, ClusterError> {
        let mut discovery = Self::default();
        for document in documents {
            if let Some(groups) = document.get("items").and_then(Value::as_array) {
                for group in groups {
                    discovery.add_aggregated(ObjectView::new(group));
                }
            } else if let Some(groups) = versions::read_groups(document) {
                for (group, versions) in groups {
                    discovery.add_unread(&group, versions);
                }
            } else {
                return Err(ClusterError::Decode {
                    what: "discovery".to_owned(),
                    problem: "it is neither an APIGroupDiscoveryList nor a list of groups or versions".to_owned(),
                });
            }
        }
        Ok(discovery)
    }

    /// Finds a kind in exactly this version, or without a version in the version that the server prefers.
    #[must_use]
    pub fn find(&self, group: &str, version: Option<&str>, kind: &str) -> KindLookup {
        let Some(group) = self.groups.get(group) else {
            return KindLookup::Unserved;
        };
        let versions = group.kinds.get(kind).into_iter().flatten();
        let found = versions
            .filter_map(|place| group.resources.get(*place))
            .find(|named| version.is_none_or(|version| named.resource.version == version));
        match found {
            Some(named) => KindLookup::Served(named.resource.clone()),
            None if group.is_unknown() => KindLookup::Unknown,
            None => KindLookup::Unserved,
        }
    }

    /// Iterates over every kind once, in the version that the server prefers.
    pub fn list_preferred(&self) -> impl Iterator<Item = &NamedResource> {
        self.in_order().flat_map(|group| {
            group.resources.iter().enumerate().filter_map(|(place, named)| {
                (group.kinds.get(&named.resource.kind)?.first() == Some(&place)).then_some(named)
            })
        })
    }

    /// Iterates over the groups with a version whose resources are unknown.
    pub fn stale_groups(&self) -> impl Iterator<Item = &str> {
        let stale = self.in_order().filter(|group| group.is_unknown());
        stale.map(|group| group.name.as_str())
    }

    /// Returns the versions of a group, if each of them has a document of its own.
    #[must_use]
    pub fn list_versions(&self, group: &str) -> Vec<GroupVersion> {
        let group = self.groups.get(group);
        group.map(|group| group.list_documents()).unwrap_or_default()
    }

    /// Returns the versions whose documents were not requested, group by group.
    #[must_use]
    pub fn list_unread(&self) -> Vec<Vec<GroupVersion>> {
        let unread = self.in_order().filter(|group| !group.is_read);
        let versions = unread.map(|group| group.list_documents());
        versions.filter(|versions| !versions.is_empty()).collect()
    }

    /// Takes the documents of all versions of a group. `None` stands for a version without an answer.
    pub fn take_versions(&mut self, group: &str, documents: &[(GroupVersion, Option<Value>)]) {
        let Some(known) = self.groups.get_mut(group) else {
            return;
        };
        let mut read = Group {
            name: known.name.clone(),
            versions: known.versions.clone(),
            is_read: true,
            ..Group::default()
        };
        for (version, document) in documents {
            let resources = document.as_ref().and_then(versions::read_resources);
            match resources {
                Some(resources) => resources.into_iter().for_each(|named| read.add(version.name(named))),
                None => read.is_stale = true,
            }
        }
        read.is_stale |= documents.len() < known.versions.len();
        *known = Arc::new(read);
    }

    /// Marks a group as unknown.
    pub fn mark_unknown(&mut self, group: &str) {
        self.group_or_new(group).is_stale = true;
    }

    /// Copies the groups whose versions have documents of their own and were read before, unless their versions have changed.
    pub(crate) fn keep_read_groups(&mut self, before: &Self) {
        for group in self.groups.values_mut() {
            let known = before.groups.get(&group.name).filter(|known| known.is_read);
            if let Some(known) = known.filter(|known| !group.versions.is_empty() && known.versions == group.versions) {
                *group = Arc::clone(known);
            }
        }
    }

    /// Returns a copy of the discovery without one kind.
    pub(crate) fn without(&self, group: &str, kind: &str) -> Self {
        let mut rest = self.clone();
        if let Some(group) = rest.groups.get_mut(group) {
            Arc::make_mut(group).kinds.remove(kind);
        }
        rest
    }

    /// Iterates over the groups in the server's order.
    fn in_order(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.order.iter().filter_map(|name| self.groups.get(name))
    }

    fn group_or_new(&mut self, name: &str) -> &mut Group {
        let group = self.groups.entry(name.to_owned()).or_insert_with(|| {
            self.order.push(name.to_owned());
            Arc::new(Group {
                name: name.to_owned(),
                ..Group::default()
            })
        });
        Arc::make_mut(group)
    }

    /// Adds a group whose versions have documents of their own, which were not requested yet.
    fn add_unread(&mut self, group: &str, versions: Vec<String>) {
        let group = self.group_or_new(group);
        group.is_stale |= versions.is_empty();
        group.versions = versions;
    }

    /// Adds a group of the aggregated document with all its resources.
    fn add_aggregated(&mut self, group: ObjectView<'_>) {
        let name = group.read_text("/metadata/name").to_owned();
        let known = self.group_or_new(&name);
        for version in group.list_views("/versions") {
            known.is_stale |= version.read_text("/freshness") == "Stale";
            for resource in version.list_views("/resources") {
                let has_verb = |verb: &str| resource.list_texts("/verbs").any(|known| known == verb);
                known.add(NamedResource {
                    resource: Resource {
                        group: name.clone(),
                        version: version.read_text("/version").to_owned(),
                        kind: resource.read_text("/responseKind/kind").to_owned(),
                        plural: resource.read_text("/resource").to_owned(),
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

impl Group {
    /// Whether the group may serve unknown kinds.
    fn is_unknown(&self) -> bool {
        self.is_stale || (!self.versions.is_empty() && !self.is_read)
    }

    /// Returns the versions of the group whose documents are requested, at most [`MOST_VERSIONS`].
    fn list_documents(&self) -> Vec<GroupVersion> {
        let versions = self.versions.iter().take(MOST_VERSIONS);
        versions.map(|version| GroupVersion::new(&self.name, version)).collect()
    }

    /// Adds a resource. Its version comes after the versions of the same kind that were added before.
    fn add(&mut self, named: NamedResource) {
        if named.resource.kind.is_empty() || named.resource.plural.is_empty() {
            return;
        }
        let place = self.resources.len();
        self.kinds.entry(named.resource.kind.clone()).or_default().push(place);
        self.resources.push(named);
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
    fn kind_is_found_in_requested_or_preferred_version() {
        let known = discovery(&[(
            "shop",
            vec![
                version("v2", "Current", &[("carts", "Cart")]),
                version("v1", "Current", &[("carts", "Cart"), ("tills", "Till")]),
            ],
        )]);
        let check = |version: Option<&str>, kind: &str, expected: Option<&str>| match known.find("shop", version, kind)
        {
            KindLookup::Served(resource) => assert_eq!(Some(resource.version.as_str()), expected, "{version:?} {kind}"),
            other => assert_eq!((other, expected), (KindLookup::Unserved, None), "{version:?} {kind}"),
        };
        check(None, "Cart", Some("v2"));
        check(Some("v1"), "Cart", Some("v1"));
        check(None, "Till", Some("v1"));
        check(Some("v2"), "Till", None);
        check(None, "Shelf", None);
        let preferred: Vec<String> = known
            .list_preferred()
            .map(|named| named.resource.api_version())
            .collect();
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
        assert_eq!(known.find("metrics", None, "NodeMetrics"), KindLookup::Unknown);
        assert_eq!(known.find("shop", Some("v2"), "Cart"), KindLookup::Unknown);
        assert!(matches!(known.find("shop", None, "Cart"), KindLookup::Served(_)));
        assert_eq!(known.find("elsewhere", None, "Cart"), KindLookup::Unserved);
    }

    #[test]
    fn document_of_another_form_is_refused() {
        assert!(Discovery::read(&[json!({ "kind": "Status" })]).is_err());
        assert!(Discovery::read(&[Value::Null]).is_err());
    }

    /// Returns discovery from `/api` and `/apis` in the form of servers before Kubernetes 1.27 and of kcp.
    fn older_form() -> Discovery {
        let version =
            |group: &str, version: &str| json!({ "groupVersion": format!("{group}/{version}"), "version": version });
        Discovery::read(&[
            json!({ "kind": "APIVersions", "versions": ["v1"] }),
            json!({ "kind": "APIGroupList", "groups": [
                { "name": "shop", "versions": [version("shop", "v1"), version("shop", "v2")],
                  "preferredVersion": version("shop", "v2") },
                { "name": "metrics", "versions": [version("metrics", "v1")] },
            ] }),
        ])
        .unwrap()
    }

    fn read_group(discovery: &mut Discovery, group: &str, answer: impl Fn(&str) -> Option<Value>) {
        let documents: Vec<_> = discovery
            .list_versions(group)
            .into_iter()
            .map(|version| (version.clone(), answer(&version.path())))
            .collect();
        discovery.take_versions(group, &documents);
    }

    fn resource_list(kinds: &[(&str, &str)]) -> Option<Value> {
        let resources: Vec<Value> = kinds
            .iter()
            .map(|(plural, kind)| json!({ "name": plural, "kind": kind, "singularName": "x", "namespaced": true, "verbs": ["list", "watch"] }))
            .collect();
        Some(json!({ "kind": "APIResourceList", "resources": resources }))
    }

    #[test]
    fn kind_is_unknown_until_its_group_is_read() {
        let mut known = older_form();
        assert_eq!(known.find("shop", None, "Cart"), KindLookup::Unknown);
        assert_eq!(known.find("", None, "Pod"), KindLookup::Unknown);
        assert_eq!(known.find("elsewhere", None, "Cart"), KindLookup::Unserved);
        let paths: Vec<String> = known.list_versions("shop").iter().map(GroupVersion::path).collect();
        assert_eq!(paths, ["/apis/shop/v2", "/apis/shop/v1"]);
        assert_eq!(known.list_versions("")[0].path(), "/api/v1");
        read_group(&mut known, "shop", |path| match path {
            "/apis/shop/v2" => resource_list(&[("carts", "Cart"), ("carts/status", "Cart"), ("carts/scale", "Scale")]),
            _ => resource_list(&[("carts", "Cart"), ("tills", "Till")]),
        });
        let version = |known: &Discovery, version, kind| match known.find("shop", version, kind) {
            KindLookup::Served(resource) => resource.api_version(),
            other => format!("{other:?}"),
        };
        assert_eq!(version(&known, None, "Cart"), "shop/v2");
        assert_eq!(version(&known, None, "Till"), "shop/v1");
        assert_eq!(version(&known, Some("v2"), "Till"), "Unserved");
        assert_eq!(version(&known, None, "Scale"), "Unserved");
        assert_eq!(known.list_unread().len(), 2, "the core group and metrics");
    }

    #[test]
    fn group_without_an_answer_leaves_the_others_known() {
        let mut known = older_form();
        read_group(&mut known, "metrics", |_| None);
        read_group(&mut known, "shop", |path| {
            (path == "/apis/shop/v1")
                .then(|| resource_list(&[("carts", "Cart")]))
                .flatten()
        });
        assert_eq!(known.find("metrics", None, "NodeMetrics"), KindLookup::Unknown);
        assert!(matches!(known.find("shop", Some("v1"), "Cart"), KindLookup::Served(_)));
        assert_eq!(known.find("shop", Some("v2"), "Cart"), KindLookup::Unknown);
        assert_eq!(known.stale_groups().collect::<Vec<_>>(), ["", "shop", "metrics"]);
    }

    #[test]
    fn read_groups_are_kept_unless_their_versions_change() {
        let mut before = older_form();
        read_group(&mut before, "shop", |_| resource_list(&[("carts", "Cart")]));
        let mut after = older_form();
        after.keep_read_groups(&before);
        assert!(matches!(after.find("shop", None, "Cart"), KindLookup::Served(_)));
        let mut changed =
            Discovery::read(&[json!({ "groups": [{ "name": "shop", "versions": [{ "version": "v3" }] }] })]).unwrap();
        changed.keep_read_groups(&before);
        assert_eq!(changed.find("shop", None, "Cart"), KindLookup::Unknown);
    }

    #[test]
    fn names_from_a_foreign_server_stay_in_their_path() {
        let groups = |name: &str, versions: &[&str]| {
            let versions: Vec<Value> = versions.iter().map(|version| json!({ "version": version })).collect();
            Discovery::read(&[json!({ "groups": [{ "name": name, "versions": versions }] })]).unwrap()
        };
        for name in ["..", ".", "a/b", "a?b", "a b", "", "a..b", &"a".repeat(300)] {
            assert!(groups(name, &["v1"]).list_unread().is_empty(), "{name:?}");
            assert!(groups("shop", &[name]).list_unread().is_empty(), "{name:?}");
        }
        let many: Vec<String> = (0..10_000).map(|number| format!("v{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let mut known = groups("shop", &many);
        assert_eq!(known.list_versions("shop").len(), MOST_VERSIONS);
        read_group(&mut known, "shop", |_| resource_list(&[("carts", "Cart")]));
        assert_eq!(known.find("shop", None, "Till"), KindLookup::Unknown);
    }
}
