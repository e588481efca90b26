//! The values of each changed component, and the changes that can't be applied.

use std::collections::BTreeMap;

use tenure_api::package_values::EffectiveValues;
use tenure_api::{Package, reason, text};

use crate::chart_values::write_json;
use crate::outcome;
use crate::package::{Overrides, Problem, ReleaseValues, Selection, merge_values};
use tenure_api::digest::digest_bytes;

/// The most bytes of values in one status, and of paths.
const MOST_BYTES: usize = 32 << 10;
/// The most listed paths of one component.
const MOST_PATHS: usize = 100;
/// Bytes of the names, or of the problems, in one message.
const SHOWN: usize = 4 << 10;

/// The result of the changes.
#[derive(Debug, Default)]
pub(super) struct Merge {
    /// The values of the changed components.
    pub(super) components: BTreeMap<String, EffectiveValues>,
    /// The reason for which some changes, or all, are not applied.
    pub(super) problem: Option<Problem>,
}

/// Lays the changes over the Package.
pub(super) fn merge(package: &Package, overrides: &Overrides, selection: &Selection<'_>) -> Merge {
    let mut merge = Merge::default();
    let mut invalid = Vec::new();
    let mut missing = Vec::new();
    for name in overrides.components.keys() {
        let component = selection
            .components
            .iter()
            .find(|component| component.spec.name == *name);
        let namespace = component.map(|component| component.release.namespace.as_str());
        match (component, merge_values(package, Some(overrides), name, namespace)) {
            (_, Err(error)) => invalid.push(format!("spec.components[{}]: {error}", text::visible_line(name))),
            (None, Ok(_)) => missing.push(name.clone()),
            (Some(component), Ok(ReleaseValues::Changed(effective))) if component.is_enabled => {
                let cut = |mut paths: Vec<String>| {
                    paths.truncate(MOST_PATHS);
                    paths
                };
                // As text: a patch of the status would drop every null.
                let json = write_json(&effective.values);
                let values = EffectiveValues {
                    digest: digest_bytes(json.as_bytes()),
                    overridden: cut(effective.overridden),
                    replaced: cut(effective.replaced),
                    values: Some(json),
                };
                merge.components.insert(name.clone(), values);
            }
            (Some(_), Ok(_)) => {}
        }
    }
    limit_size(&mut merge.components);
    merge.problem = describe_problem(&invalid, &missing, selection);
    merge
}

/// Removes all values if they are too large for a status, and all paths if those are. The digests stay.
fn limit_size(components: &mut BTreeMap<String, EffectiveValues>) {
    let values = components.values().filter_map(|component| component.values.as_ref());
    let values: usize = values.map(String::len).sum();
    let paths = components.values();
    let paths = paths.flat_map(|component| component.overridden.iter().chain(&component.replaced));
    let paths: usize = paths.map(String::len).sum();
    for component in components.values_mut() {
        if values > MOST_BYTES {
            component.values = None;
        }
        if paths > MOST_BYTES {
            component.overridden.clear();
            component.replaced.clear();
        }
    }
}

fn describe_problem(invalid: &[String], missing: &[String], selection: &Selection<'_>) -> Option<Problem> {
    if !invalid.is_empty() {
        return Some(Problem::new(
            reason::packages::INVALID,
            format!(
                "{}\nThe HelmReleases of these components stay as they are",
                outcome::join_some(invalid, "\n", SHOWN)
            ),
        ));
    }
    if missing.is_empty() {
        return None;
    }
    let known: Vec<String> = selection
        .components
        .iter()
        .map(|component| component.spec.name.clone())
        .collect();
    let known = match known.is_empty() {
        true => "none".to_owned(),
        false => outcome::join_names(&known, SHOWN),
    };
    Some(Problem::new(
        reason::packages::COMPONENT_NOT_FOUND,
        format!(
            "spec.components: variant {} of the PackageSource does not install {}; it installs {known}. The other changes are applied",
            text::visible_line(&selection.variant.name),
            outcome::join_names(missing, SHOWN)
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_and_paths_leave_digests() {
        let check = |value: usize, path: usize, expected: (bool, bool)| {
            let component = EffectiveValues {
                digest: "sha256:0".to_owned(),
                values: Some("v".repeat(value)),
                overridden: vec!["p".repeat(path)],
                replaced: Vec::new(),
            };
            let mut components = BTreeMap::from([("a".to_owned(), component.clone()), ("b".to_owned(), component)]);
            limit_size(&mut components);
            for component in components.values() {
                assert_eq!(component.digest, "sha256:0");
                assert_eq!((component.values.is_some(), !component.overridden.is_empty()), expected);
            }
        };
        check(16 << 10, 16 << 10, (true, true));
        check((16 << 10) + 1, 16 << 10, (false, true));
        check(16 << 10, (16 << 10) + 1, (true, false));
    }
}
