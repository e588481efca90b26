//! Checks of a variant and of a Package's changes, before anything is written.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::names::{is_dns_label, is_dns_subdomain};
use tenure_api::package_source::{CRD_POLICIES, WAIT_STRATEGIES};
use tenure_api::{Package, reason};

use super::selection::{Problem, ReleaseName, Selection};
use crate::chart_values::{Layer, check_size};
use crate::cycle;
use crate::list_limits::{EXPRESSION, HEALTH_CHECK_EXPRESSIONS};
use crate::package_settings::{COMPONENTS, DEPENDENCIES};

/// Components that a Package changes.
const CHANGED_COMPONENTS: usize = 1000;

/// Checks everything that doesn't depend on other Packages.
pub(super) fn check_selection(package: &Package, selection: &Selection<'_>) -> Result<(), Problem> {
    check_lengths(package, selection)?;
    check_names(selection)?;
    for component in selection.components.iter().filter(|component| component.is_enabled) {
        check_component(selection, &component.spec.name)?;
    }
    check_cycle(selection)?;
    for (name, component) in &package.spec.components {
        if let Some(values) = &component.values {
            let layer = Layer::of(values);
            layer
                .and_then(|_| check_size(values))
                .map_err(|error| Problem::invalid(format!("spec.components[{}].values: {error}", visible(name))))?;
        }
    }
    Ok(())
}

fn visible(name: &str) -> String {
    let shown: String = name.chars().take(253).collect();
    tenure_api::text::visible_line(&shown).into_owned()
}

/// Names a field of a component, for a message.
fn name_field(selection: &Selection<'_>, component: &str, field: &str) -> String {
    let source = selection.source.metadata.name.as_deref().unwrap_or_default();
    format!(
        "PackageSource/{source}: spec.variants[{}].components[{}].{field}",
        visible(&selection.variant.name),
        visible(component)
    )
}

fn check_lengths(package: &Package, selection: &Selection<'_>) -> Result<(), Problem> {
    let variant = selection.variant;
    let lists = [
        ("components", variant.components.len(), COMPONENTS),
        ("dependsOn", variant.depends_on.len(), DEPENDENCIES),
    ];
    for (field, length, most) in lists {
        if length > most {
            return Err(Problem::invalid(format!(
                "spec.variants[{}].{field} of the PackageSource has {length} entries, and {most} is the most: split the PackageSource",
                visible(&variant.name)
            )));
        }
    }
    let changed = package.spec.components.len();
    let ignored = package.spec.ignore_dependencies.len();
    if changed > CHANGED_COMPONENTS || ignored > CHANGED_COMPONENTS {
        return Err(Problem::invalid(format!(
            "spec.components has {changed} entries, spec.ignoreDependencies {ignored}, and {CHANGED_COMPONENTS} is the most of each"
        )));
    }
    Ok(())
}

/// Refuses two components of one name, and two enabled components with one release.
fn check_names(selection: &Selection<'_>) -> Result<(), Problem> {
    let mut names = BTreeSet::new();
    for component in &selection.variant.components {
        if !names.insert(component.name.as_str()) {
            return Err(Problem::new(
                reason::packages::NAME_CONFLICT,
                format!(
                    "variant {} of the PackageSource has two components {}: rename one of them",
                    visible(&selection.variant.name),
                    visible(&component.name)
                ),
            ));
        }
    }
    let mut releases: BTreeMap<&ReleaseName, &str> = BTreeMap::new();
    for component in selection.components.iter().filter(|component| component.is_enabled) {
        if let Some(other) = releases.insert(&component.release, &component.spec.name) {
            return Err(Problem::new(
                reason::packages::NAME_CONFLICT,
                format!(
                    "components {} and {} both want {}: give one of them another install.releaseName",
                    visible(other),
                    visible(&component.spec.name),
                    component.release
                ),
            ));
        }
    }
    Ok(())
}

fn check_component(selection: &Selection<'_>, name: &str) -> Result<(), Problem> {
    let Some(component) = selection
        .components
        .iter()
        .find(|component| component.spec.name == name)
    else {
        return Ok(());
    };
    let install = component.install;
    let fail = |field: &str, problem: String| {
        let field = name_field(selection, name, field);
        Err(Problem::invalid(format!("{field} {problem}")))
    };
    let namespace = component.release.namespace.as_str();
    if namespace.is_empty() {
        return fail(
            "install.namespace",
            "is empty: name the namespace of the release".to_owned(),
        );
    }
    if !is_dns_label(namespace) {
        return fail(
            "install.namespace",
            format!("{:?} is not the name of a namespace", visible(namespace)),
        );
    }
    if !is_dns_subdomain(&component.release.name) {
        let shown = visible(&component.release.name);
        return fail("install.releaseName", format!("{shown:?} is not the name of an object"));
    }
    let words: [(&str, Option<&String>, &[&str]); 2] = [
        ("install.upgradeCRDs", install.upgrade_crds.as_ref(), &CRD_POLICIES),
        ("install.waitStrategy", install.wait_strategy.as_ref(), &WAIT_STRATEGIES),
    ];
    for (field, word, known) in words {
        if let Some(word) = word.filter(|word| !word.is_empty() && !known.contains(&word.as_str())) {
            return fail(
                field,
                format!("{:?} must be one of {}", visible(word), known.join(", ")),
            );
        }
    }
    if install.depends_on.len() > DEPENDENCIES {
        return fail(
            "install.dependsOn",
            format!(
                "has {} entries, and {DEPENDENCIES} is the most",
                install.depends_on.len()
            ),
        );
    }
    if install.health_check_exprs.len() > HEALTH_CHECK_EXPRESSIONS {
        return fail(
            "install.healthCheckExprs",
            format!("has more than {HEALTH_CHECK_EXPRESSIONS} entries"),
        );
    }
    let expressions = install.health_check_exprs.iter().flat_map(|check| {
        let optional = [check.failed.as_deref(), check.in_progress.as_deref()];
        optional.into_iter().flatten().chain([check.current.as_str()])
    });
    if expressions.into_iter().any(|text| text.len() > EXPRESSION) {
        return fail(
            "install.healthCheckExprs",
            format!("has an expression of more than {EXPRESSION} bytes"),
        );
    }
    Ok(())
}

/// Refuses components that wait for each other. Disabled components count, since a Package may enable them.
fn check_cycle(selection: &Selection<'_>) -> Result<(), Problem> {
    let edges: BTreeMap<&str, &[String]> = selection
        .components
        .iter()
        .map(|component| (component.spec.name.as_str(), component.install.depends_on.as_slice()))
        .collect();
    // Components that wait for no other one are removed, again and again. The rest has a cycle.
    let mut waiting: BTreeMap<&str, usize> = BTreeMap::new();
    let mut dependents: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, depends_on) in &edges {
        let known: BTreeSet<&str> = depends_on
            .iter()
            .map(String::as_str)
            .filter(|name| edges.contains_key(name))
            .collect();
        waiting.insert(name, known.len());
        for dependency in known {
            dependents.entry(dependency).or_default().push(name);
        }
    }
    let mut free: Vec<&str> = waiting
        .iter()
        .filter(|(_, count)| **count == 0)
        .map(|(name, _)| *name)
        .collect();
    while let Some(name) = free.pop() {
        waiting.remove(name);
        for dependent in dependents.get(name).into_iter().flatten() {
            if let Some(count) = waiting.get_mut(dependent) {
                *count -= 1;
                if *count == 0 {
                    free.push(dependent);
                }
            }
        }
    }
    let names = |name: &str| edges.get(name).map(|names| names.to_vec());
    let found = waiting
        .keys()
        .find_map(|name| cycle::find_cycle(name, names(name).unwrap_or_default(), names));
    match found {
        None => Ok(()),
        Some(found) => Err(Problem::new(
            reason::packages::DEPENDENCY_CYCLE,
            format!(
                "components of variant {} wait for each other: {}; remove one of these from install.dependsOn",
                visible(&selection.variant.name),
                visible(&cycle::describe_cycle(&found))
            ),
        )),
    }
}
