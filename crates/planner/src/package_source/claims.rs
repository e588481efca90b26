//! The names of all artifacts, and the PackageSources that want them. Two PackageSources can make one name, since a dot and a dash become the same letter.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenure_api::PackageSource;

use super::list_artifact_names;

/// The artifacts of all PackageSources.
#[derive(Clone, Debug, Default)]
pub struct ArtifactIndex {
    sources: BTreeMap<String, Claims>,
    claimants: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Claims {
    /// A source without a time of creation counts as the newest one.
    age: (bool, Option<Timestamp>),
    artifacts: BTreeSet<String>,
}

impl ArtifactIndex {
    /// Stores the artifacts of a PackageSource, or that it is gone. Returns the other PackageSources whose plans may change.
    pub fn put(&mut self, name: &str, source: Option<&PackageSource>) -> BTreeSet<String> {
        let claims = source.map(|source| {
            let created = source.metadata.creation_timestamp.as_ref().map(|time| time.0);
            Claims {
                age: (created.is_none(), created),
                artifacts: list_artifact_names(source).collect(),
            }
        });
        if self.sources.get(name) == claims.as_ref() {
            return BTreeSet::new();
        }
        let mut affected = BTreeSet::new();
        for artifact in self
            .sources
            .remove(name)
            .into_iter()
            .flat_map(|claims| claims.artifacts)
        {
            if let Some(claimants) = self.claimants.get_mut(&artifact) {
                claimants.remove(name);
                affected.extend(claimants.iter().cloned());
                if claimants.is_empty() {
                    self.claimants.remove(&artifact);
                }
            }
        }
        if let Some(claims) = claims {
            for artifact in &claims.artifacts {
                let claimants = self.claimants.entry(artifact.clone()).or_default();
                affected.extend(claimants.iter().cloned());
                claimants.insert(name.to_owned());
            }
            self.sources.insert(name.to_owned(), claims);
        }
        affected
    }

    /// Returns the artifacts of a PackageSource that belong to an older one, with its name.
    #[must_use]
    pub fn look_up(&self, name: &str) -> BTreeMap<String, String> {
        let Some(own) = self.sources.get(name) else {
            return BTreeMap::new();
        };
        let find_older = |artifact: &String| {
            let others = self.claimants.get(artifact)?.iter();
            let others = others.filter_map(|other| Some((self.sources.get(other)?.age, other)));
            let (_, first) = others.min()?;
            (first != name).then(|| (artifact.clone(), first.clone()))
        };
        own.artifacts.iter().filter_map(find_older).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(name: &str, created: &str, component: &str) -> PackageSource {
        serde_json::from_value(json!({
            "apiVersion": "cozystack.io/v1alpha1", "kind": "PackageSource",
            "metadata": { "name": name, "creationTimestamp": created },
            "spec": { "variants": [{ "name": "default", "components": [{ "name": component, "path": "x" }] }] },
        }))
        .unwrap()
    }

    #[test]
    fn older_source_has_the_name() {
        let mut index = ArtifactIndex::default();
        let (old, new) = (
            source("a.b", "2026-01-01T00:00:00Z", "c"),
            source("a-b", "2026-01-02T00:00:00Z", "c"),
        );
        assert_eq!(index.put("a-b", Some(&new)), BTreeSet::new());
        assert_eq!(index.put("a.b", Some(&old)), ["a-b".to_owned()].into());
        let name = "a-b-default-c".to_owned();
        assert_eq!(index.look_up("a-b"), [(name, "a.b".to_owned())].into());
        assert_eq!(index.look_up("a.b"), BTreeMap::new());
        assert_eq!(index.put("a.b", None), ["a-b".to_owned()].into());
        assert_eq!(index.look_up("a-b"), BTreeMap::new());
    }
}
