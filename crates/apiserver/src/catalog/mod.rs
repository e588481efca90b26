//! The served resources, built in or from CustomResourceDefinitions, in one table that is replaced as a whole.

mod resource;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

pub use resource::Resource;
use tenure_kinds::built_in;
pub use tenure_kinds::kind::{CustomKind, Origin, ScalePaths, Subresource};
use tenure_kinds::openapi_v2::Rendered;

/// An immutable table of resources; a change of CustomResourceDefinitions creates a new one.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// Resources by group, version and plural, with slashes between them.
    resources: HashMap<String, Arc<Resource>>,
    /// Resources in discovery's order: built-in ones as recorded, then custom ones.
    order: Vec<Arc<Resource>>,
    /// Hashes of the OpenAPI v3 documents of custom kinds, by their path below `/openapi/v3/`.
    document_hashes: BTreeMap<String, String>,
    /// The OpenAPI v2 document of the table, built at the first request.
    openapi_v2: OnceLock<Rendered>,
}

fn catalog_key(group: &str, version: &str, plural: &str) -> String {
    [group, version, plural].join("/")
}

impl Catalog {
    /// Returns the table of built-in resources.
    #[must_use]
    pub fn builtin() -> Self {
        let mut catalog = Self::default();
        for resource in built_in::list_resources() {
            catalog.insert(Arc::new(Resource::new(resource, None)));
        }
        catalog
    }

    /// Returns this table's built-in resources, followed by these custom resources with the hashes of their OpenAPI
    /// documents.
    #[must_use]
    pub fn with_custom(
        &self,
        custom: impl IntoIterator<Item = Arc<Resource>>,
        document_hashes: BTreeMap<String, String>,
    ) -> Self {
        let mut catalog = Self {
            document_hashes,
            ..Self::default()
        };
        for resource in &self.order {
            if matches!(resource.origin, Origin::Builtin) {
                catalog.insert(resource.clone());
            }
        }
        for resource in custom {
            catalog.insert(resource);
        }
        catalog
    }

    fn insert(&mut self, resource: Arc<Resource>) {
        let key = catalog_key(&resource.group, &resource.version, &resource.plural);
        if self.resources.insert(key, resource.clone()).is_none() {
            self.order.push(resource);
        }
    }

    /// Returns the resource in a URL.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&catalog_key(group, version, plural))
    }

    /// Returns the resource of a kind in a version.
    #[must_use]
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.order
            .iter()
            .find(|resource| resource.group == group && resource.version == version && resource.kind == kind)
    }

    /// Returns any version of a resource, the stored one first.
    #[must_use]
    pub fn find_any_version(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        let mut found = self
            .order
            .iter()
            .filter(|resource| resource.group == group && resource.plural == plural);
        let first = found.next()?;
        if first.is_storage_version() {
            return Some(first);
        }
        found.find(|resource| resource.is_storage_version()).or(Some(first))
    }

    /// Returns the version in which objects of a built-in resource are stored, if it is another version of the same
    /// group.
    #[must_use]
    pub fn find_stored(&self, resource: &Resource) -> Option<&Arc<Resource>> {
        if resource.is_custom() || resource.is_storage_version() || resource.stored_as.0 != resource.group {
            return None;
        }
        self.order
            .iter()
            .find(|other| other.stored_as == resource.stored_as && other.is_storage_version())
    }

    /// Returns all resources in discovery's order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.order.iter()
    }

    /// Returns the groups in discovery's order, each with its versions, the preferred one first.
    #[must_use]
    pub fn groups(&self) -> Vec<(String, Vec<String>)> {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for resource in &self.order {
            match groups.iter_mut().find(|(group, _)| *group == resource.group) {
                Some((_, versions)) if versions.contains(&resource.version) => {}
                Some((_, versions)) => versions.push(resource.version.clone()),
                None => groups.push((resource.group.clone(), vec![resource.version.clone()])),
            }
        }
        groups
    }

    /// Returns the resources of one group and version in discovery's order.
    pub fn in_version<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.order
            .iter()
            .filter(move |resource| resource.group == group && resource.version == version)
    }

    /// Returns the OpenAPI documents of custom kinds: paths below `/openapi/v3/` and hashes.
    pub fn custom_documents(&self) -> impl Iterator<Item = (&str, &str)> {
        self.document_hashes
            .iter()
            .map(|(path, hash)| (path.as_str(), hash.as_str()))
    }

    /// Returns the OpenAPI v2 document of this table. The first call builds it with `make`.
    pub(crate) fn openapi_v2(&self, make: impl FnOnce() -> Rendered) -> &Rendered {
        self.openapi_v2.get_or_init(make)
    }

    /// Returns the built-in resources of another table.
    pub(crate) fn builtin_of(other: &Self) -> Self {
        other.with_custom([], BTreeMap::new())
    }

    /// Checks whether a built-in resource is served in any version of this group.
    #[must_use]
    pub fn has_builtin_group(&self, group: &str) -> bool {
        self.iter()
            .any(|resource| resource.group == group && !resource.is_custom())
    }

    /// Checks whether a resource is served in this group and version.
    #[must_use]
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.in_version(group, version).next().is_some()
    }
}
