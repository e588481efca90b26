//! The artifacts of a PackageSource: a chart for each component of each variant, with its libraries and values files.

use std::collections::BTreeMap;

use tenure_api::artifact_generator::{CopyOperation, OutputArtifact};
use tenure_api::names::{NamespaceName, ObjectName, is_dns_subdomain};
use tenure_api::package_source::{
    GIT_FOLDER, GIT_REPOSITORY, PackageLibrary, PackageSourceReference, PackageVariant, VariantComponent,
};
use tenure_api::{PackageSource, reason};

use super::Problem;
use crate::list_limits::{COPIES, GENERATOR_ENTRIES, PATTERN};
use crate::package_settings::{COMPONENTS, DEPENDENCIES};

/// Variants of a PackageSource.
const VARIANTS: usize = 100;
/// Kinds of sources.
const KINDS: [&str; 2] = [GIT_REPOSITORY, "OCIRepository"];
/// The alias of a source whose name can't be an alias.
const ALIAS: &str = "source";
/// The longest alias.
const LONGEST_ALIAS: usize = 63;

/// Returns the name of the ExternalArtifact with the chart of a component.
#[must_use]
pub fn name_artifact(source: &str, variant: &str, component: &str) -> String {
    format!("{source}-{variant}-{component}").replace('.', "-")
}

/// Lists the names of all ExternalArtifacts that a PackageSource wants.
pub fn list_artifact_names(source: &PackageSource) -> impl Iterator<Item = String> {
    let name = source.metadata.name.as_deref().unwrap_or_default();
    let of_variant = move |variant: &PackageVariant| {
        let components = variant.components.iter();
        let names: Vec<String> = components
            .map(|component| name_artifact(name, &variant.name, &component.name))
            .collect();
        names
    };
    source.spec.variants.iter().flat_map(of_variant)
}

/// Returns the alias of the source in the generator: its name, if that is an alias.
pub(super) fn name_alias(reference: &PackageSourceReference) -> &str {
    let is_alias = reference.name.len() <= LONGEST_ALIAS && !reference.name.contains('.');
    if is_alias { &reference.name } else { ALIAS }
}

fn invalid<T>(message: impl Into<String>) -> Result<T, Problem> {
    fail(reason::packages::INVALID_CONFIGURATION, message)
}

fn fail<T>(reason: &'static str, message: impl Into<String>) -> Result<T, Problem> {
    Err(Problem {
        reason,
        message: message.into(),
    })
}

fn visible(name: &str) -> String {
    let shown: String = name.chars().take(253).collect();
    tenure_api::text::visible_line(&shown).into_owned()
}

/// Lists the artifacts. Without a source there are none.
pub(super) fn list_artifacts(
    source: &PackageSource,
    claimed: &BTreeMap<String, String>,
) -> Result<Vec<OutputArtifact>, Problem> {
    check_variants(source)?;
    let Some(reference) = &source.spec.source_ref else {
        return Ok(Vec::new());
    };
    check_reference(reference)?;
    let base = find_base(reference)?;
    let mut artifacts: Vec<OutputArtifact> = Vec::new();
    let mut made_for: BTreeMap<String, String> = BTreeMap::new();
    for variant in &source.spec.variants {
        let libraries = list_libraries(variant)?;
        for component in &variant.components {
            let field = name_field(variant, component);
            let name = name_artifact(
                source.metadata.name.as_deref().unwrap_or_default(),
                &variant.name,
                &component.name,
            );
            if !is_dns_subdomain(&name) {
                return invalid(format!(
                    "{field}.name: {:?} is not the name of an artifact",
                    visible(&name)
                ));
            }
            if let Some(other) = made_for.insert(name.clone(), field.clone()) {
                return fail(
                    reason::packages::NAME_CONFLICT,
                    format!("{field} and {other} both make the artifact {name}: rename one of them"),
                );
            }
            if let Some(other) = claimed.get(&name) {
                return fail(
                    reason::packages::NAME_CONFLICT,
                    format!(
                        "{field} makes the artifact {name}, which belongs to PackageSource/{other}: rename the component"
                    ),
                );
            }
            artifacts.push(OutputArtifact {
                copy: list_copies(&field, reference, &base, component, &libraries)?,
                name,
                origin_revision: None,
                revision: None,
            });
        }
    }
    if artifacts.len() > GENERATOR_ENTRIES {
        return invalid(format!(
            "spec.variants has {} components, and {GENERATOR_ENTRIES} is the most: split the PackageSource",
            artifacts.len()
        ));
    }
    Ok(artifacts)
}

fn name_field(variant: &PackageVariant, component: &VariantComponent) -> String {
    format!(
        "spec.variants[{}].components[{}]",
        visible(&variant.name),
        visible(&component.name)
    )
}

fn check_variants(source: &PackageSource) -> Result<(), Problem> {
    let variants = &source.spec.variants;
    if variants.len() > VARIANTS {
        return invalid(format!(
            "spec.variants has {} entries, and {VARIANTS} is the most",
            variants.len()
        ));
    }
    let mut names = std::collections::BTreeSet::new();
    for variant in variants {
        let name = visible(&variant.name);
        if variant.name.is_empty() || variant.name.contains(',') {
            return invalid(format!(
                "spec.variants: {name:?} is not the name of a variant: it is empty, or has a comma"
            ));
        }
        if !names.insert(variant.name.as_str()) {
            return fail(
                reason::packages::NAME_CONFLICT,
                format!("spec.variants has two variants {name}: rename one of them"),
            );
        }
        for (field, length, most) in [
            ("components", variant.components.len(), COMPONENTS),
            ("libraries", variant.libraries.len(), COMPONENTS),
            ("dependsOn", variant.depends_on.len(), DEPENDENCIES),
        ] {
            if length > most {
                return invalid(format!(
                    "spec.variants[{name}].{field} has {length} entries, and {most} is the most"
                ));
            }
        }
    }
    Ok(())
}

fn check_reference(reference: &PackageSourceReference) -> Result<(), Problem> {
    if !KINDS.contains(&reference.kind.as_str()) {
        return invalid(format!(
            "spec.sourceRef.kind: {:?} must be one of {}",
            visible(&reference.kind),
            KINDS.join(", ")
        ));
    }
    if let Err(error) = ObjectName::new(reference.name.clone()) {
        return invalid(format!("spec.sourceRef.name: {error}"));
    }
    if let Err(error) = NamespaceName::new(reference.namespace.clone()) {
        return invalid(format!("spec.sourceRef.namespace: {error}"));
    }
    Ok(())
}

/// Returns the folder that all other paths are relative to. `/` is the root.
fn find_base(reference: &PackageSourceReference) -> Result<Vec<&str>, Problem> {
    match reference.path.as_deref().filter(|path| !path.is_empty()) {
        Some(path) => split_path("spec.sourceRef.path", path),
        None if reference.kind == GIT_REPOSITORY => Ok(vec![GIT_FOLDER]),
        None => Ok(Vec::new()),
    }
}

/// Splits a path into its parts. A path that leads out of its source, or that would be a pattern, is refused.
fn split_path<'a>(field: &str, path: &'a str) -> Result<Vec<&'a str>, Problem> {
    let shown = visible(path);
    if path.contains(['*', '?', '[', ']', '{', '}', '\\']) || path.chars().any(char::is_control) {
        return invalid(format!(
            "{field}: {shown:?} has a character of a pattern: name one folder or file"
        ));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return invalid(format!(
            "{field}: {shown:?} has a '..' part: write the path from the base folder"
        ));
    }
    Ok(parts)
}

/// Lists the libraries of a variant by name.
fn list_libraries(variant: &PackageVariant) -> Result<BTreeMap<&str, &PackageLibrary>, Problem> {
    let mut libraries = BTreeMap::new();
    for (index, library) in variant.libraries.iter().enumerate() {
        let field = format!("spec.variants[{}].libraries[{index}]", visible(&variant.name));
        let last = split_path(&format!("{field}.path"), &library.path)?.last().copied();
        let name = library.name.as_deref().filter(|name| !name.is_empty()).or(last);
        let Some(name) = name.filter(|name| !name.contains('/') && !matches!(*name, "." | "..")) else {
            return invalid(format!(
                "{field}: it has no name, or a name that is no folder: set name or path"
            ));
        };
        split_path(&format!("{field}.name"), name)?;
        if libraries.insert(name, library).is_some() {
            return fail(
                reason::packages::NAME_CONFLICT,
                format!(
                    "{field}: the variant has two libraries {}: rename one of them",
                    visible(name)
                ),
            );
        }
    }
    Ok(libraries)
}

/// Lists the copies of an artifact, in their order: the chart, its libraries, and its values files.
fn list_copies(
    field: &str,
    reference: &PackageSourceReference,
    base: &[&str],
    component: &VariantComponent,
    libraries: &BTreeMap<&str, &PackageLibrary>,
) -> Result<Vec<CopyOperation>, Problem> {
    let chart = split_path(&format!("{field}.path"), &component.path)?;
    let Some(folder) = chart.last() else {
        return invalid(format!("{field}.path is empty: name the folder of the chart"));
    };
    let from = |parts: &[&str], end: &str| {
        let path: Vec<&str> = base.iter().chain(parts).copied().collect();
        format!("@{}/{}{end}", name_alias(reference), path.join("/"))
    };
    let copy = |from: String, to: String, strategy: Option<&str>| CopyOperation {
        exclude: Vec::new(),
        from,
        strategy: strategy.map(str::to_owned),
        to,
    };
    let mut copies = vec![copy(from(&chart, "/**"), format!("@artifact/{folder}/"), None)];
    for name in &component.libraries {
        let Some(library) = libraries.get(name.as_str()) else {
            return fail(
                reason::packages::LIBRARY_NOT_FOUND,
                format!(
                    "{field}.libraries: the variant has no library {:?}: add it to its libraries, or correct the name",
                    visible(name)
                ),
            );
        };
        let path = split_path(&format!("{field}.libraries"), &library.path)?;
        copies.push(copy(
            from(&path, "/**"),
            format!("@artifact/{folder}/charts/{name}/"),
            None,
        ));
    }
    for (index, file) in component.values_files.iter().enumerate() {
        let file_field = format!("{field}.valuesFiles[{index}]");
        let parts = split_path(&file_field, file)?;
        if parts.is_empty() {
            return invalid(format!("{file_field} is empty: name a file of the chart"));
        }
        let path: Vec<&str> = chart.iter().chain(&parts).copied().collect();
        let strategy = if index == 0 { "Overwrite" } else { "Merge" };
        copies.push(copy(
            from(&path, ""),
            format!("@artifact/{folder}/values.yaml"),
            Some(strategy),
        ));
    }
    if copies.len() > COPIES {
        return invalid(format!(
            "{field} has {} libraries and values files, and {} is the most",
            copies.len() - 1,
            COPIES - 1
        ));
    }
    if copies
        .iter()
        .any(|copy| copy.from.len() > PATTERN || copy.to.len() > PATTERN)
    {
        return invalid(format!("{field}: a path is longer than {PATTERN} bytes"));
    }
    Ok(copies)
}
