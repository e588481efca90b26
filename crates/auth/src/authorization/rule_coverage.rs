//! The comparison of rights: whether a set of rules allows at least as much as another, and which rights are missing.
//! Rights are broken down to single ones, and one rule has to cover each. So the answer may be "no" although several
//! rules together would cover a right, exactly as in kube-apiserver.

use std::collections::HashMap;

use tenure_checkpoint::checkpoint;

use super::rules::{PolicyRule, path_matches};

/// Number of single rights from which a write is refused instead of compared. The lists of one rule multiply, and a
/// request of a few kilobytes could keep a processor busy for hours.
const MOST_RIGHTS: usize = 100_000;

/// Checks whether `rules` grant more than [`MOST_RIGHTS`] single rights.
pub(super) fn too_many(rules: &[PolicyRule]) -> bool {
    let mut total: usize = 0;
    for rule in rules {
        let resources = rule
            .api_groups
            .len()
            .saturating_mul(rule.resources.len())
            .saturating_mul(rule.verbs.len())
            .saturating_mul(rule.resource_names.len().max(1));
        let paths = rule.non_resource_urls.len().saturating_mul(rule.verbs.len());
        total = total.saturating_add(resources).saturating_add(paths);
    }
    total > MOST_RIGHTS
}

/// Returns the single rights of `wanted` that no rule of `held` covers.
pub(super) fn find_missing(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    wanted
        .iter()
        .flat_map(break_down)
        .filter(|right| {
            !held.iter().any(|rule| {
                checkpoint();
                covers_rule(rule, right)
            })
        })
        .collect()
}

/// Splits the rule into rules with one verb, one group, one resource and one name, or one path, each.
fn break_down(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |item: &String| vec![item.clone()];
    let mut out = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let single = PolicyRule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..PolicyRule::default()
                };
                if rule.resource_names.is_empty() {
                    out.push(single);
                    continue;
                }
                for name in &rule.resource_names {
                    out.push(PolicyRule {
                        resource_names: one(name),
                        ..single.clone()
                    });
                }
            }
        }
    }
    for path in &rule.non_resource_urls {
        for verb in &rule.verbs {
            out.push(PolicyRule {
                verbs: one(verb),
                non_resource_urls: one(path),
                ..PolicyRule::default()
            });
        }
    }
    out
}

/// Checks whether the rule `held` covers the single right `right`.
fn covers_rule(held: &PolicyRule, right: &PolicyRule) -> bool {
    let all = |held: &[String], wanted: &[String]| {
        held.iter().any(|item| item == "*") || wanted.iter().all(|item| held.contains(item))
    };
    let resources = held.resources.iter().any(|item| item == "*")
        || right.resources.iter().all(|resource| {
            held.resources.contains(resource)
                || resource
                    .split_once('/')
                    .is_some_and(|(_, sub)| held.resources.iter().any(|item| item.strip_prefix("*/") == Some(sub)))
        });
    let names = if right.resource_names.is_empty() {
        held.resource_names.is_empty()
    } else {
        held.resource_names.is_empty()
            || right
                .resource_names
                .iter()
                .all(|name| held.resource_names.contains(name))
    };
    let paths = right
        .non_resource_urls
        .iter()
        .all(|path| held.non_resource_urls.iter().any(|pattern| path_matches(pattern, path)));
    all(&held.verbs, &right.verbs) && all(&held.api_groups, &right.api_groups) && resources && names && paths
}

/// Joins the verbs of rights on the same resource, so that a message lists each resource once.
pub(super) fn group_by_resource(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut out: Vec<PolicyRule> = Vec::new();
    let mut simple: HashMap<[Vec<String>; 3], PolicyRule> = HashMap::new();
    for rule in rules {
        if !is_simple(&rule) {
            out.push(rule);
            continue;
        }
        let key = [
            rule.api_groups.clone(),
            rule.resources.clone(),
            rule.resource_names.clone(),
        ];
        simple
            .entry(key)
            .and_modify(|same| same.verbs.extend(rule.verbs.iter().cloned()))
            .or_insert(rule);
    }
    out.extend(simple.into_values());
    out
}

/// Checks whether a rule has one group, one resource, at most one name, and no path.
fn is_simple(rule: &PolicyRule) -> bool {
    rule.resource_names.len() <= 1
        && rule.non_resource_urls.is_empty()
        && rule.api_groups.len() == 1
        && rule.resources.len() == 1
}
