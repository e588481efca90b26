//! The state of the objects, as the watches last reported it: read at each scrape, and stored nowhere. The number of objects that are listed by name
//! is bounded, with the same bound for each tenant.

use std::collections::{BTreeMap, HashMap};

use tenure_exposition::{FamilyKind, Labels, begin_family, write_family, write_series};

use super::share::decide_share;
use crate::cluster_view::key::Kind;

/// Facts about one object that only its own kind knows how to find.
#[derive(Debug, Default)]
pub(crate) struct Described {
    pub(crate) revision: String,
    /// A label that only this kind of objects has, as in Flux's configuration of kube-state-metrics.
    pub(crate) more: Option<(&'static str, String)>,
}

/// The facts about one object for the metrics, as a visit of all objects shows them.
pub(crate) struct ObjectSample<'a> {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The status of the object's condition Ready.
    pub(crate) ready: &'static str,
    pub(crate) is_suspended: bool,
    /// Returns the other facts, which cost more to compute.
    pub(crate) describe: &'a dyn Fn() -> Described,
}

/// The source of the metrics about objects and lanes. The hub implements it.
pub(crate) trait StateView: Send + Sync + std::fmt::Debug {
    /// Returns the share to which a namespace's objects count. A tenant has one share, and so has each namespace without a tenant.
    fn find_owner(&self, namespace: &str) -> String;

    /// Returns the name of the lane of a namespace. The number of lanes is at most the number of tenants plus two.
    fn find_lane(&self, namespace: &str) -> String;

    /// Visits every object. Objects of one namespace and kind come in the order of their names.
    fn visit(&self, visit: &mut dyn FnMut(ObjectSample<'_>));

    /// Lists the lanes with processes, and whether each works; empty if lanes are tasks.
    fn list_processes(&self) -> Vec<(String, bool)>;
}

/// Writes the state of the objects.
pub(super) fn write(out: &mut String, view: &dyn StateView) {
    let mut counts: BTreeMap<(String, &str, &str, bool), u64> = BTreeMap::new();
    let mut owners: HashMap<String, usize> = HashMap::new();
    let mut places: HashMap<String, (String, String)> = HashMap::new();
    view.visit(&mut |seen| {
        let (owner, lane) = places
            .entry(seen.namespace.to_owned())
            .or_insert_with(|| (view.find_owner(seen.namespace), view.find_lane(seen.namespace)));
        let sort = (lane.clone(), seen.kind.name, seen.ready, seen.is_suspended);
        *counts.entry(sort).or_default() += 1;
        owners.entry(owner.clone()).or_default();
    });
    let counted = counts.iter().map(|((lane, kind, ready, suspended), count)| {
        let suspended = if *suspended { "true" } else { "false" };
        let labels = [
            ("lane", lane.as_str()),
            ("kind", kind),
            ("ready", ready),
            ("suspended", suspended),
        ];
        (Labels::of(&labels), *count)
    });
    let help = "Number of objects, including objects without a series in gotk_resource_info.";
    write_family(out, ("tenure_resources", FamilyKind::Gauge, help), counted);
    let share = decide_share(owners.len());
    let mut unnamed: BTreeMap<(String, &str), u64> = BTreeMap::new();
    let name = "gotk_resource_info";
    begin_family(
        out,
        name,
        FamilyKind::Gauge,
        "The current state of an object that is reconciled.",
    );
    view.visit(&mut |seen| {
        let Some((owner, lane)) = places.get(seen.namespace) else {
            return;
        };
        let Some(named) = owners.get_mut(owner) else { return };
        let rest = unnamed.entry((lane.clone(), seen.kind.name)).or_default();
        if *named >= share {
            *rest += 1;
            return;
        }
        *named += 1;
        write_series(out, name, &make_labels(&seen), 1);
    });
    let unnamed = unnamed.iter().map(|((lane, kind), count)| {
        let labels = Labels::of(&[("lane", lane), ("kind", kind)]);
        (labels, *count)
    });
    let help = "The number of objects without a series in gotk_resource_info, since other objects of their tenant use its share.";
    write_family(out, ("tenure_resources_unnamed", FamilyKind::Gauge, help), unnamed);
    let processes = view.list_processes();
    let processes = processes
        .iter()
        .map(|(lane, works)| (Labels::of(&[("lane", lane)]), u8::from(*works)));
    let help = "Whether the process of a lane works, where lanes are processes.";
    write_family(out, ("tenure_lane_process_up", FamilyKind::Gauge, help), processes);
}

/// Returns the labels of kube-state-metrics with the configuration that Flux publishes.
fn make_labels(seen: &ObjectSample<'_>) -> Labels {
    let described = (seen.describe)();
    let (group, version) = seen.kind.api_version.split_once('/').unwrap_or_default();
    let labels = Labels::of(&[
        ("customresource_group", group),
        ("customresource_kind", seen.kind.name),
        ("customresource_version", version),
        ("exported_namespace", seen.namespace),
        ("name", seen.name),
        ("ready", seen.ready),
        ("revision", &described.revision),
        ("suspended", if seen.is_suspended { "true" } else { "false" }),
    ]);
    match &described.more {
        Some((name, value)) => labels.with(name, value),
        None => labels,
    }
}

#[cfg(test)]
mod tests {
    use tenure_api::Kustomization;

    use super::super::share::MOST_OF_ONE;
    use super::*;
    use crate::reconcile_loop::reconciled::Reconciled as _;

    /// Two tenants: one has very many objects, with invalid words in their statuses.
    #[derive(Debug)]
    struct Two;

    impl StateView for Two {
        fn find_owner(&self, namespace: &str) -> String {
            self.find_lane(namespace)
        }

        fn find_lane(&self, namespace: &str) -> String {
            format!("tenant/{namespace}")
        }

        fn visit(&self, visit: &mut dyn FnMut(ObjectSample<'_>)) {
            let mut show = |namespace: &str, name: &str, ready, revision: &str| {
                visit(ObjectSample {
                    kind: Kustomization::KIND,
                    namespace,
                    name,
                    ready,
                    is_suspended: false,
                    describe: &|| Described {
                        revision: revision.to_owned(),
                        more: Some(("source_name", "web".to_owned())),
                    },
                });
            };
            show("few", "web", "True", "main@sha1:5e5a3e");
            let long = "\"} 1\ngotk_resource_info{".repeat(1_000);
            for number in 0..50_000 {
                show("many", &format!("n{number}"), "False", &long);
            }
        }

        fn list_processes(&self) -> Vec<(String, bool)> {
            vec![("tenant/few".to_owned(), true)]
        }
    }

    #[test]
    fn objects_beyond_share_of_tenant_are_only_counted() {
        let mut out = String::new();
        write(&mut out, &Two);
        let lines: Vec<&str> = out.lines().collect();
        let few = "gotk_resource_info{customresource_group=\"kustomize.toolkit.fluxcd.io\",customresource_kind=\"Kustomization\",\
                   customresource_version=\"v1\",exported_namespace=\"few\",name=\"web\",ready=\"True\",revision=\"main@sha1:5e5a3e\",\
                   suspended=\"false\",source_name=\"web\"} 1";
        assert!(
            lines.contains(&few),
            "{}",
            lines.iter().take(9).copied().collect::<Vec<_>>().join("\n")
        );
        let named = lines
            .iter()
            .filter(|line| line.starts_with("gotk_resource_info{"))
            .count();
        assert_eq!(named, MOST_OF_ONE + 1);
        for line in [
            "tenure_resources{lane=\"tenant/many\",kind=\"Kustomization\",ready=\"False\",suspended=\"false\"} 50000",
            "tenure_resources_unnamed{lane=\"tenant/many\",kind=\"Kustomization\"} 49000",
            "tenure_resources_unnamed{lane=\"tenant/few\",kind=\"Kustomization\"} 0",
            "tenure_lane_process_up{lane=\"tenant/few\"} 1",
        ] {
            assert!(lines.contains(&line), "{line}");
        }
        assert!(out.len() < 2 << 20, "{} bytes", out.len());
    }
}
