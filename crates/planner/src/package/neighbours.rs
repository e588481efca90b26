//! Facts about the other Packages that a plan needs: the state of dependencies, names that others claim first, and shared namespaces.
//!
//! The index holds a summary of each Package. A change of one summary names the Packages whose plan may change, so no plan visits all Packages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::{Package, PackageSource};

use super::overrides::Overrides;
use super::selection::{ReleaseName, list_dependencies, select_variant};
use crate::cycle;

/// The summary of a Package for others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageFacts {
    /// The time of its creation.
    pub created: Option<Timestamp>,
    /// The Packages that it waits for.
    pub depends_on: Vec<String>,
    /// The HelmReleases that it wants, and whether their Pods are privileged.
    pub releases: BTreeMap<ReleaseName, bool>,
    /// The HelmReleases that its status records.
    pub recorded: BTreeSet<ReleaseName>,
    /// The reason for which its HelmReleases are unknown.
    pub problem: Option<String>,
    /// Whether it is ready for its generation.
    pub is_ready: bool,
}

impl PackageFacts {
    /// Summarises a Package.
    #[must_use]
    pub fn of(package: &Package, source: Option<&PackageSource>, overrides: Option<&Overrides>) -> Self {
        let metadata = &package.metadata;
        let status = package.status.as_ref();
        let recorded = status.map(|status| status.releases.as_slice()).unwrap_or_default();
        let mut facts = Self {
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            recorded: recorded
                .iter()
                .map(|release| ReleaseName {
                    namespace: release.namespace.clone(),
                    name: release.name.clone(),
                })
                .collect(),
            ..Self::default()
        };
        if metadata.deletion_timestamp.is_some() {
            facts.problem = Some("it is being deleted".to_owned());
            return facts;
        }
        match select_variant(package, source, overrides) {
            Err(problem) => facts.problem = Some(format!("it has the reason {}", problem.reason)),
            Ok(selection) => {
                facts.depends_on = list_dependencies(package, selection.variant, overrides);
                let enabled = selection.components.iter().filter(|component| component.is_enabled);
                for component in enabled {
                    let privileged = facts.releases.entry(component.release.clone()).or_default();
                    *privileged |= component.install.privileged;
                }
            }
        }
        let ready = status.and_then(|status| condition::find(&status.conditions, condition::READY));
        facts.is_ready = facts.problem.is_none()
            && ready.is_some_and(|ready| {
                ready.status == ConditionStatus::True && ready.observed_generation == metadata.generation
            });
        facts
    }

    fn claims(&self) -> impl Iterator<Item = &ReleaseName> {
        self.releases.keys().chain(&self.recorded)
    }
}

/// The state of a Package that another one depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DependencyFacts {
    /// The Package doesn't exist.
    Missing,
    /// The Package exists.
    Found(Arc<PackageFacts>),
}

/// The facts about other Packages for the plan of one: its dependencies, a cycle, claimed HelmReleases, and privileged namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// The Packages that it depends on, by name.
    pub dependencies: BTreeMap<String, DependencyFacts>,
    /// The path from one Package to the next back to this one.
    pub cycle: Option<Vec<String>>,
    /// The HelmReleases that another Package claims first, with the name of that Package.
    pub claimed: BTreeMap<ReleaseName, String>,
    /// The namespaces in which other Packages have privileged components.
    pub privileged: BTreeSet<String>,
}

/// The summaries of all Packages.
#[derive(Clone, Debug, Default)]
pub struct PackageIndex {
    facts: BTreeMap<String, Arc<PackageFacts>>,
    claims: BTreeMap<ReleaseName, BTreeSet<String>>,
    dependents: BTreeMap<String, BTreeSet<String>>,
    privileged: BTreeMap<String, BTreeSet<String>>,
    users: BTreeMap<String, BTreeSet<String>>,
}

impl PackageIndex {
    /// Stores the summary of a Package, or that it is gone. Returns the other Packages whose plans may change.
    pub fn put(&mut self, name: &str, facts: Option<PackageFacts>) -> BTreeSet<String> {
        let before = self.facts.get(name).cloned();
        let facts = facts.map(Arc::new);
        if before == facts {
            return BTreeSet::new();
        }
        let mut affected = self.list_affected(name, before.as_deref());
        if let Some(before) = &before {
            self.unlink(name, before);
        }
        match facts {
            None => drop(self.facts.remove(name)),
            Some(facts) => {
                self.link(name, &facts);
                self.facts.insert(name.to_owned(), facts);
            }
        }
        let after = self.facts.get(name).cloned();
        affected.extend(self.list_affected(name, after.as_deref()));
        affected.remove(name);
        affected
    }

    /// Returns the facts for the plan of a Package.
    #[must_use]
    pub fn look_up(&self, name: &str) -> Neighbours {
        let Some(own) = self.facts.get(name) else {
            return Neighbours::default();
        };
        let dependency = |other: &String| match self.facts.get(other) {
            None => (other.clone(), DependencyFacts::Missing),
            Some(facts) => (other.clone(), DependencyFacts::Found(facts.clone())),
        };
        let names = |other: &str| Some(self.facts.get(other)?.depends_on.clone());
        let claimed = |release: &ReleaseName| Some((release.clone(), self.find_first_claim(name, own, release)?));
        let namespaces = own.releases.keys().map(|release| release.namespace.as_str());
        let is_privileged = |namespace: &&str| {
            let others = self.privileged.get(*namespace);
            others.is_some_and(|others| others.iter().any(|other| other != name))
        };
        Neighbours {
            dependencies: own.depends_on.iter().map(dependency).collect(),
            cycle: cycle::find_cycle(name, own.depends_on.clone(), names),
            claimed: own.releases.keys().filter_map(claimed).collect(),
            privileged: namespaces.filter(is_privileged).map(str::to_owned).collect(),
        }
    }

    /// Returns the namespaces of the releases that a Package wants.
    #[must_use]
    pub fn list_namespaces(&self, name: &str) -> BTreeSet<String> {
        let releases = self.facts.get(name).into_iter().flat_map(|facts| facts.releases.keys());
        releases.map(|release| release.namespace.clone()).collect()
    }

    /// Returns the Packages that want releases in a namespace.
    #[must_use]
    pub fn list_users(&self, namespace: &str) -> BTreeSet<String> {
        self.users.get(namespace).cloned().unwrap_or_default()
    }

    /// Returns the Package that claims a release before this one: the Package that records it, or else the oldest one.
    fn find_first_claim(&self, name: &str, own: &PackageFacts, release: &ReleaseName) -> Option<String> {
        if own.recorded.contains(release) {
            return None;
        }
        let others = self.claims.get(release)?.iter().filter(|other| *other != name);
        let others: Vec<(&String, &Arc<PackageFacts>)> = others
            .filter_map(|other| Some((other, self.facts.get(other)?)))
            .collect();
        let recorded = others.iter().find(|(_, facts)| facts.recorded.contains(release));
        let age = |name: &str, facts: &PackageFacts| (facts.created.is_none(), facts.created, name.to_owned());
        let older = || {
            let first = others.iter().min_by_key(|(other, facts)| age(other, facts));
            first.filter(|(other, facts)| age(other, facts) < age(name, own))
        };
        recorded.or_else(older).map(|(other, _)| (*other).clone())
    }

    /// Lists the Packages that a summary concerns: dependents, claimants of the same releases, and users of the same namespaces.
    fn list_affected(&self, name: &str, facts: Option<&PackageFacts>) -> BTreeSet<String> {
        let mut affected = self.dependents.get(name).cloned().unwrap_or_default();
        let Some(facts) = facts else {
            return affected;
        };
        for release in facts.claims() {
            affected.extend(self.claims.get(release).into_iter().flatten().cloned());
        }
        for (release, privileged) in &facts.releases {
            if *privileged {
                affected.extend(self.users.get(&release.namespace).into_iter().flatten().cloned());
            }
        }
        // Every Package of a cycle reports it, so a change anywhere on the way concerns all of them.
        let names = |other: &str| Some(self.facts.get(other)?.depends_on.clone());
        affected.extend(
            cycle::find_cycle(name, facts.depends_on.clone(), names)
                .into_iter()
                .flatten(),
        );
        affected
    }

    fn link(&mut self, name: &str, facts: &PackageFacts) {
        for (map, key) in self.list_links(facts) {
            self.select_map(map).entry(key).or_default().insert(name.to_owned());
        }
        for release in facts.claims() {
            self.claims.entry(release.clone()).or_default().insert(name.to_owned());
        }
    }

    fn unlink(&mut self, name: &str, facts: &PackageFacts) {
        for (map, key) in self.list_links(facts) {
            remove_name(self.select_map(map), &key, name);
        }
        for release in facts.claims() {
            remove_name(&mut self.claims, release, name);
        }
    }

    fn list_links(&self, facts: &PackageFacts) -> Vec<(LinkMap, String)> {
        let dependents = facts.depends_on.iter().map(|name| (LinkMap::Dependents, name.clone()));
        let namespaces = facts.releases.iter().flat_map(|(release, privileged)| {
            let privileged = privileged.then(|| (LinkMap::Privileged, release.namespace.clone()));
            privileged
                .into_iter()
                .chain([(LinkMap::Users, release.namespace.clone())])
        });
        dependents.chain(namespaces).collect()
    }

    fn select_map(&mut self, map: LinkMap) -> &mut BTreeMap<String, BTreeSet<String>> {
        match map {
            LinkMap::Dependents => &mut self.dependents,
            LinkMap::Privileged => &mut self.privileged,
            LinkMap::Users => &mut self.users,
        }
    }
}

/// A map of the index by names.
#[derive(Clone, Copy)]
enum LinkMap {
    /// Packages by the Packages that they depend on.
    Dependents,
    /// Packages by the namespaces of their privileged components.
    Privileged,
    /// Packages by the namespaces of all their components.
    Users,
}

fn remove_name<K: Ord>(map: &mut BTreeMap<K, BTreeSet<String>>, key: &K, name: &str) {
    if let Some(names) = map.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(name: &str) -> ReleaseName {
        ReleaseName {
            namespace: "n".to_owned(),
            name: name.to_owned(),
        }
    }

    fn facts(created: i64, wants: &[&str], records: &[&str], depends_on: &[&str]) -> Option<PackageFacts> {
        Some(PackageFacts {
            created: Some(Timestamp::from_second(created).unwrap()),
            depends_on: depends_on.iter().map(|name| (*name).to_owned()).collect(),
            releases: wants.iter().map(|name| (release(name), *name == "p")).collect(),
            recorded: records.iter().map(|name| release(name)).collect(),
            ..PackageFacts::default()
        })
    }

    fn names(affected: BTreeSet<String>) -> Vec<String> {
        affected.into_iter().collect()
    }

    #[test]
    fn recorded_release_wins_before_the_older_package() {
        let mut index = PackageIndex::default();
        index.put("old", facts(1, &["r"], &[], &[]));
        assert_eq!(names(index.put("new", facts(2, &["r"], &[], &[]))), ["old"]);
        assert_eq!(index.look_up("old").claimed, BTreeMap::new());
        assert_eq!(index.look_up("new").claimed, [(release("r"), "old".to_owned())].into());
        assert_eq!(names(index.put("new", facts(2, &["r"], &["r"], &[]))), ["old"]);
        assert_eq!(index.look_up("old").claimed, [(release("r"), "new".to_owned())].into());
        // A record counts after the component is disabled, until the release is gone.
        index.put("new", facts(2, &[], &["r"], &[]));
        assert_eq!(index.look_up("old").claimed, [(release("r"), "new".to_owned())].into());
        assert_eq!(names(index.put("new", None)), ["old"]);
        assert_eq!(index.look_up("old").claimed, BTreeMap::new());
    }

    #[test]
    fn change_wakes_dependents_and_users_of_a_namespace() {
        let mut index = PackageIndex::default();
        index.put("base", facts(1, &["b"], &[], &[]));
        index.put("app", facts(1, &["a"], &[], &["base"]));
        assert_eq!(names(index.put("base", facts(1, &["b", "p"], &[], &[]))), ["app"]);
        assert_eq!(index.put("base", facts(1, &["b", "p"], &[], &[])), BTreeSet::new());
        assert_eq!(index.look_up("app").privileged, ["n".to_owned()].into());
        assert_eq!(index.look_up("base").privileged, BTreeSet::new());
        assert_eq!(names(index.put("base", None)), ["app"]);
        assert_eq!(
            index.look_up("app").dependencies,
            [("base".to_owned(), DependencyFacts::Missing)].into()
        );
    }

    #[test]
    fn all_packages_of_a_cycle_know_it() {
        let mut index = PackageIndex::default();
        index.put("a", facts(1, &[], &[], &["b"]));
        index.put("b", facts(1, &[], &[], &["c"]));
        assert_eq!(names(index.put("c", facts(1, &[], &[], &["a"]))), ["a", "b"]);
        let cycle = |name: &str| index.look_up(name).cycle.unwrap().join(" ");
        assert_eq!([cycle("a"), cycle("b"), cycle("c")], ["a b c a", "b c a b", "c a b c"]);
    }
}
