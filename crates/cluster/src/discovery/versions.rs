//! The older form of discovery: a list of groups, and one document for each of their versions (`APIResourceList`).
//!
//! Bounds the requests for one group ([`MOST_VERSIONS`]), and refuses names that are unsafe in a path: another cluster's server chose them.

use serde_json::Value;
use tenure_api::ObjectView;

use super::{NamedResource, Resource};

/// The largest number of versions of one group that are requested. With more versions, the group is partly unknown.
pub const MOST_VERSIONS: usize = 16;

/// The longest name of a group or a version.
const LONGEST_NAME: usize = 253;

/// A version of a group, which has a discovery document of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupVersion {
    group: String,
    version: String,
}

impl GroupVersion {
    pub(super) fn new(group: &str, version: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
        }
    }

    /// Returns the group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the path of the document.
    #[must_use]
    pub fn path(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }

    /// Adds the group and the version to a resource.
    pub(super) fn name(&self, mut named: NamedResource) -> NamedResource {
        named.resource.group.clone_from(&self.group);
        named.resource.version.clone_from(&self.version);
        named
    }
}

/// Reads the groups of an `APIGroupList`, or the core group of `APIVersions`. Each group has its versions with the preferred one first.
pub(super) fn read_groups(document: &Value) -> Option<Vec<(String, Vec<String>)>> {
    let view = ObjectView::new(document);
    if document.get("groups").is_some_and(Value::is_array) {
        let groups = view.list_views("/groups").filter_map(|group| {
            let name = group.read_text("/name");
            let preferred = group.find_text("/preferredVersion/version");
            let versions = group
                .list_views("/versions")
                .filter_map(|version| version.find_text("/version"));
            is_safe(name).then(|| (name.to_owned(), order_versions(preferred, versions)))
        });
        return Some(groups.collect());
    }
    if document.get("versions").is_some_and(Value::is_array) {
        let versions = view.list_texts("/versions");
        return Some(vec![(String::new(), order_versions(None, versions))]);
    }
    None
}

/// Returns the versions without repetition, with the preferred one first. The result has at most one version above the limit, which shows that more exist.
fn order_versions<'a>(preferred: Option<&'a str>, versions: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut ordered: Vec<String> = Vec::new();
    for version in preferred.into_iter().chain(versions) {
        if ordered.len() > MOST_VERSIONS {
            break;
        }
        if is_safe(version) && !ordered.iter().any(|known| known == version) {
            ordered.push(version.to_owned());
        }
    }
    ordered
}

/// Reads the resources of an `APIResourceList`, without subresources. The caller knows the version.
pub(super) fn read_resources(document: &Value) -> Option<Vec<NamedResource>> {
    document.get("resources").filter(|resources| resources.is_array())?;
    let view = ObjectView::new(document);
    let resources = view.list_views("/resources").filter_map(|resource| {
        let plural = resource.read_text("/name");
        let has_verb = |verb: &str| resource.list_texts("/verbs").any(|known| known == verb);
        (!plural.contains('/')).then(|| NamedResource {
            resource: Resource {
                group: String::new(),
                version: String::new(),
                kind: resource.read_text("/kind").to_owned(),
                plural: plural.to_owned(),
                namespaced: resource
                    .find("/namespaced")
                    .and_then(Value::as_bool)
                    .unwrap_or_default(),
                watchable: has_verb("watch") && has_verb("list"),
            },
            singular: resource.read_text("/singularName").to_owned(),
            short_names: resource.list_texts("/shortNames").map(str::to_owned).collect(),
        })
    });
    Some(resources.collect())
}

/// Whether the name of a group or version is safe as a part of a path.
fn is_safe(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(is_plain) && !name.contains("..") && name != "."
}
