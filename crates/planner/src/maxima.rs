//! How long the lists of a spec may be. Flux's definitions set no maximum, so an object of a megabyte can name thousands of things that
//! are looked up, watched or laid over the files again and again; more than this many is answered, once, as a mistake.

use tenure_api::{KustomizationSpec, Surface};

/// Entries of a Kustomization's `spec.dependsOn`, and of a source's of a Surface.
pub const DEPENDENCIES: usize = 500;
/// Entries of `spec.healthChecks`.
pub const HEALTH_CHECKS: usize = 1000;
/// Entries of `spec.patches`.
pub const PATCHES: usize = 500;
/// Entries of `spec.images`.
pub const IMAGES: usize = 1000;
/// Entries of `spec.components`.
pub const COMPONENTS: usize = 500;
/// Entries of `spec.buildMetadata`.
pub const BUILD_METADATA: usize = 16;
/// Labels, and annotations, of `spec.commonMetadata`.
pub const COMMON_METADATA: usize = 100;
/// Entries of `spec.postBuild.substituteFrom`.
pub const SUBSTITUTE_FROM: usize = 100;
/// Variables of one rendering, those of `spec.postBuild.substitute` and those that are read.
pub const VARIABLES: usize = 2000;
/// Bytes of one variable's value.
pub const VARIABLE_BYTES: usize = 256 << 10;
/// Bytes of the names and values of all variables of one rendering.
pub const VARIABLES_BYTES: usize = 1 << 20;
/// A Surface's `spec.sources`.
pub const SOURCES: usize = 100;
/// Paths of one source of a Surface.
pub const PATHS: usize = 200;

/// Refuses lists of a Kustomization that are too long.
///
/// # Errors
/// A message that names the field, how long it is, and what it may be.
pub(crate) fn check_kustomization(spec: &KustomizationSpec) -> Result<(), String> {
    let common = spec.common_metadata.as_ref();
    let labels = common.and_then(|common| common.labels.as_ref());
    let annotations = common.and_then(|common| common.annotations.as_ref());
    let post_build = spec.post_build.as_ref();
    let from = post_build.map_or(0, |post_build| post_build.substitute_from.len());
    check(&[
        ("spec.postBuild.substituteFrom", from, SUBSTITUTE_FROM),
        ("spec.dependsOn", spec.depends_on.len(), DEPENDENCIES),
        ("spec.healthChecks", spec.health_checks.len(), HEALTH_CHECKS),
        ("spec.patches", spec.patches.len(), PATCHES),
        ("spec.images", spec.images.len(), IMAGES),
        ("spec.components", spec.components.len(), COMPONENTS),
        ("spec.buildMetadata", spec.build_metadata.len(), BUILD_METADATA),
        (
            "spec.commonMetadata.labels",
            labels.map_or(0, |labels| labels.len()),
            COMMON_METADATA,
        ),
        (
            "spec.commonMetadata.annotations",
            annotations.map_or(0, |annotations| annotations.len()),
            COMMON_METADATA,
        ),
    ])?;
    let inline = post_build.and_then(|post_build| post_build.substitute.as_ref());
    let inline = inline.into_iter().flatten();
    check_variables(
        "spec.postBuild.substitute",
        inline.map(|(name, value)| (name.as_str(), value.len())),
    )
}

/// Refuses variables that are too many or too large; `whose` says where they stand.
///
/// # Errors
/// A message that names the variable or the number, and what it may be.
pub(crate) fn check_variables<'a>(
    whose: &str,
    variables: impl Iterator<Item = (&'a str, usize)>,
) -> Result<(), String> {
    let (mut count, mut bytes) = (0_usize, 0_usize);
    for (name, length) in variables {
        if length > VARIABLE_BYTES {
            return Err(format!(
                "{whose}: the value of {name:?} has {length} bytes, and {VARIABLE_BYTES} is the most: put it into the files of the source"
            ));
        }
        count += 1;
        bytes = bytes.saturating_add(name.len()).saturating_add(length);
    }
    if count > VARIABLES {
        return Err(format!(
            "{whose} has {count} variables, and {VARIABLES} is the most: split the object, or move them into the files of the source"
        ));
    }
    if bytes > VARIABLES_BYTES {
        return Err(format!(
            "{whose} has {bytes} bytes of variables, and {VARIABLES_BYTES} is the most: split the object, or move them into the files of the source"
        ));
    }
    Ok(())
}

/// Refuses lists of a Surface that are too long.
///
/// # Errors
/// As [`check_kustomization`].
pub(crate) fn check_surface(surface: &Surface) -> Result<(), String> {
    let sources = &surface.spec.sources;
    check(&[("spec.sources", sources.len(), SOURCES)])?;
    sources.iter().try_for_each(|source| {
        let field = |name: &str| format!("spec.sources[{}].{name}", source.name);
        check(&[
            (&field("paths"), source.paths.len(), PATHS),
            (&field("dependsOn"), source.depends_on.len(), DEPENDENCIES),
        ])
    })
}

fn check(lists: &[(&str, usize, usize)]) -> Result<(), String> {
    match lists.iter().find(|(_, length, maximum)| length > maximum) {
        None => Ok(()),
        Some((field, length, maximum)) => Err(format!(
            "{field} has {length} entries, and {maximum} is the most: split the object, or move them into the files of the source"
        )),
    }
}
