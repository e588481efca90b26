//! The maximum lengths of the lists in a spec. Flux's definitions set no maximum, so an object of a megabyte can name thousands of objects that are looked up, watched
//! or laid over the files again and again. A longer list is a mistake, and is reported once.

use kustomize::ObjectSelector;
use tenure_api::selector::Selector;
use tenure_api::{AlertSpec, KustomizationSpec, ReceiverSpec, Surface};

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
/// Variables of one rendering: those of `spec.postBuild.substitute` and those that are read in the cluster.
pub const VARIABLES: usize = 2000;
/// Bytes of one variable's value.
pub const VARIABLE_BYTES: usize = 256 << 10;
/// Bytes of the names and values of all variables of one rendering.
pub const VARIABLES_BYTES: usize = 1 << 20;
/// Entries of `spec.healthCheckExprs`.
pub const HEALTH_CHECK_EXPRESSIONS: usize = 50;
/// Bytes of one expression.
pub const EXPRESSION: usize = 4 << 10;
/// Bytes of all expressions of a Kustomization.
pub const EXPRESSIONS: usize = 32 << 10;
/// The number of calls with a regular expression in the expressions of a Kustomization: one can take long to compile.
pub const PATTERN_CALLS: usize = 16;
/// Entries of `spec.ignore`.
pub const IGNORE_RULES: usize = 50;
/// Paths of all entries of `spec.ignore`.
pub const IGNORE_PATHS: usize = 500;
/// Bytes of one path, or of one part of a target, of `spec.ignore`.
pub const IGNORE_TEXT: usize = 1 << 10;
/// Parts of targets of `spec.ignore` that are patterns, not just names.
pub const IGNORE_PATTERNS: usize = 32;
/// Entries of a GitRepository's `spec.include`.
pub const INCLUDES: usize = 20;
/// Entries of a GitRepository's `spec.sparseCheckout`.
pub const SPARSE_FOLDERS: usize = 100;
/// Sources of an ArtifactGenerator, and artifacts that it makes.
pub const GENERATOR_ENTRIES: usize = 1000;
/// Copies of one artifact, and exclude patterns of one copy.
pub const COPIES: usize = 500;
/// Exclude patterns of one copy.
pub const EXCLUDES: usize = 100;
/// Bytes of a pattern, and of a path, of an ArtifactGenerator.
pub const PATTERN: usize = 1 << 10;
/// The approximate memory in bytes for the recipes of an ArtifactGenerator: a pattern multiplies its text.
pub const RECIPES: usize = 1 << 20;
/// Recipes of all ArtifactGenerators of a tenant, or of a namespace without a tenant, in bytes.
pub const TENANT_RECIPES: usize = 16 << 20;
/// A Receiver's `spec.resources`.
pub const RECEIVER_RESOURCES: usize = 100;
/// A Receiver's `spec.events`, and labels of one of its `resources`.
pub const RECEIVER_WORDS: usize = 100;
/// Objects that one request to a Receiver asks to reconcile.
pub const RECEIVER_REQUESTS: usize = 1000;
/// Objects that are checked for one request to a Receiver: an object counts for each entry that names it.
pub const RECEIVER_CANDIDATES: usize = 5000;
/// Bytes of the host keys of a Surface's source.
pub const KNOWN_HOSTS: usize = 16 << 10;
/// An Alert's `spec.eventSources`, and labels of one of them.
pub const EVENT_SOURCES: usize = 100;
/// Entries of an Alert's `spec.inclusionList`, and of its `spec.exclusionList`.
pub const ALERT_PATTERNS: usize = 20;
/// Bytes of one such entry.
pub const ALERT_PATTERN: usize = 1 << 10;
/// Expressions of all Alerts that are tried for one event, and bytes of its message that they are tried on.
pub const PATTERNS_TRIED: usize = 200;
/// See [`PATTERNS_TRIED`].
pub const PATTERNS_BYTES: usize = 1 << 20;
/// Entries of an Alert's `spec.eventMetadata`, and bytes of all of them.
pub const EVENT_METADATA: usize = 50;
/// Bytes of an event's metadata, including those that an Alert or an object adds.
pub const EVENT_METADATA_BYTES: usize = 16 << 10;
/// Bytes of an event's reported message (Flux's bound is as many letters).
pub const EVENT_MESSAGE_BYTES: usize = 39_000;
/// Alerts of one lane that are checked closely for one event, beyond the check that they name its object.
pub const ALERTS_LOOKED_AT: usize = 1000;
/// Alerts of one lane that may report one event.
pub const ALERTS_SELECTED: usize = 100;
/// The most namespaces of a lane in which events of HelmReleases are watched.
pub const RELEASE_NAMESPACES: usize = 64;
/// A Surface's `spec.sources`.
pub const SOURCES: usize = 100;
/// Paths of one source of a Surface.
pub const PATHS: usize = 200;

/// Refuses lists of a Kustomization that are too long.
///
/// # Errors
/// A message that names the field, its length, and the maximum.
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
        (
            "spec.healthCheckExprs",
            spec.health_check_exprs.len(),
            HEALTH_CHECK_EXPRESSIONS,
        ),
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
    )?;
    check_expressions("spec.healthCheckExprs and spec.dependsOn", list_expressions(spec))?;
    check_ignore(spec)
}

/// Refuses variables that are too many or too large; `whose` names their place.
///
/// # Errors
/// A message that names the variable or the number, and the maximum.
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

/// Refuses `spec.ignore` with too many rules, paths or patterns, or with too long texts.
fn check_ignore(spec: &KustomizationSpec) -> Result<(), String> {
    let paths = spec.ignore.iter().map(|rule| rule.paths.len()).sum();
    check(&[
        ("spec.ignore", spec.ignore.len(), IGNORE_RULES),
        ("spec.ignore[].paths", paths, IGNORE_PATHS),
    ])?;
    for (index, rule) in spec.ignore.iter().enumerate() {
        let targets = rule.target.iter().flat_map(list_parts);
        let texts = targets.chain(rule.paths.iter().map(String::as_str));
        if let Some(text) = texts.into_iter().find(|text| text.len() > IGNORE_TEXT) {
            let length = text.len();
            return Err(format!(
                "spec.ignore[{index}] has a text of {length} bytes, and {IGNORE_TEXT} is the most"
            ));
        }
    }
    let patterns = count_patterns(spec);
    if patterns > IGNORE_PATTERNS {
        return Err(format!(
            "spec.ignore has {patterns} patterns in its targets, and {IGNORE_PATTERNS} is the most: write names as they are"
        ));
    }
    Ok(())
}

/// Returns the number of parts of targets in `spec.ignore` that have to be compiled.
pub(crate) fn count_patterns(spec: &KustomizationSpec) -> usize {
    let targets = spec.ignore.iter().filter_map(|rule| rule.target.as_ref());
    let names = targets.flat_map(list_names);
    names.filter(|name| !ObjectSelector::is_plain(name)).count()
}

/// Lists the set fields of a selector that may be patterns: group, version, kind, name and namespace.
fn list_names(selector: &Selector) -> impl Iterator<Item = &str> {
    let parts = [
        &selector.group,
        &selector.version,
        &selector.kind,
        &selector.name,
        &selector.namespace,
    ];
    parts.into_iter().filter_map(|part| part.as_deref())
}

fn list_parts(selector: &Selector) -> impl Iterator<Item = &str> {
    let selectors = [&selector.label_selector, &selector.annotation_selector];
    list_names(selector).chain(selectors.into_iter().filter_map(|part| part.as_deref()))
}

/// Refuses expressions that are too long, or that call regular expressions too often.
pub(crate) fn check_expressions<'a>(
    whose: &str,
    expressions: impl Iterator<Item = (String, &'a str)>,
) -> Result<(), String> {
    let (mut length, mut calls) = (0_usize, 0_usize);
    for (field, text) in expressions {
        if text.len() > EXPRESSION {
            return Err(format!(
                "{field} has {} bytes, and {EXPRESSION} is the most of an expression",
                text.len()
            ));
        }
        length += text.len();
        // Calls are counted by the function names in the text, since a call must contain the name. `findAll` is counted by its beginning `find`.
        calls += ["matches", "find"]
            .map(|word| text.matches(word).count())
            .iter()
            .sum::<usize>();
    }
    if length > EXPRESSIONS {
        return Err(format!(
            "the expressions of {whose} have {length} bytes together, and {EXPRESSIONS} is the most"
        ));
    }
    if calls > PATTERN_CALLS {
        return Err(format!(
            "the expressions of {whose} call matches, find or findAll {calls} times, and {PATTERN_CALLS} is the most"
        ));
    }
    Ok(())
}

/// Lists the expressions of a Kustomization, each with the path of its field.
pub(crate) fn list_expressions(spec: &KustomizationSpec) -> impl Iterator<Item = (String, &str)> {
    let ready = spec.depends_on.iter().enumerate().filter_map(|(index, dependency)| {
        let text = dependency.ready_expr.as_deref().filter(|text| !text.is_empty())?;
        Some((format!("spec.dependsOn[{index}].readyExpr"), text))
    });
    let health = spec.health_check_exprs.iter().enumerate().flat_map(|(index, check)| {
        let of = [
            ("inProgress", check.in_progress.as_deref()),
            ("failed", check.failed.as_deref()),
            ("current", Some(check.current.as_str())),
        ];
        of.into_iter().filter_map(move |(name, text)| {
            let text = text.filter(|text| !text.is_empty())?;
            Some((format!("spec.healthCheckExprs[{index}].{name}"), text))
        })
    });
    ready.chain(health)
}

/// Refuses lists of a Receiver that are too long.
///
/// # Errors
/// As [`check_kustomization`].
pub(crate) fn check_receiver(spec: &ReceiverSpec) -> Result<(), String> {
    check(&[
        ("spec.resources", spec.resources.len(), RECEIVER_RESOURCES),
        ("spec.events", spec.events.len(), RECEIVER_WORDS),
    ])?;
    for (index, resource) in spec.resources.iter().enumerate() {
        let field = format!("spec.resources[{index}].matchLabels");
        check(&[(&field, resource.match_labels.len(), RECEIVER_WORDS)])?;
    }
    let filters = list_filters(spec);
    check_expressions("spec.resourceFilter and spec.resources", filters.into_iter())
}

/// Lists the expressions of a Receiver, each with the path of its field.
pub(crate) fn list_filters(spec: &ReceiverSpec) -> Vec<(String, &str)> {
    let of_all = spec
        .resource_filter
        .iter()
        .map(|text| ("spec.resourceFilter".to_owned(), text));
    let of_one =
        spec.resources.iter().enumerate().filter_map(|(index, resource)| {
            Some((format!("spec.resources[{index}].filter"), resource.filter.as_ref()?))
        });
    let all = of_all.chain(of_one).map(|(field, text)| (field, text.as_str()));
    all.filter(|(_, text)| !text.is_empty()).collect()
}

/// Refuses lists of an Alert that are too long.
///
/// # Errors
/// As [`check_kustomization`].
pub(crate) fn check_alert(spec: &AlertSpec) -> Result<(), String> {
    check(&[
        ("spec.eventSources", spec.event_sources.len(), EVENT_SOURCES),
        ("spec.inclusionList", spec.inclusion_list.len(), ALERT_PATTERNS),
        ("spec.exclusionList", spec.exclusion_list.len(), ALERT_PATTERNS),
        ("spec.eventMetadata", spec.event_metadata.len(), EVENT_METADATA),
    ])?;
    for (index, source) in spec.event_sources.iter().enumerate() {
        let field = format!("spec.eventSources[{index}].matchLabels");
        check(&[(&field, source.match_labels.len(), EVENT_SOURCES)])?;
    }
    let lists = [
        ("spec.inclusionList", &spec.inclusion_list),
        ("spec.exclusionList", &spec.exclusion_list),
    ];
    for (field, list) in lists {
        if let Some(index) = list.iter().position(|pattern| pattern.len() > ALERT_PATTERN) {
            return Err(format!("{field}[{index}] is longer than {ALERT_PATTERN} bytes"));
        }
    }
    let bytes: usize = spec
        .event_metadata
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if bytes > EVENT_METADATA_BYTES {
        return Err(format!(
            "spec.eventMetadata holds more than {EVENT_METADATA_BYTES} bytes"
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
            (&field("patches"), source.patches.len(), PATCHES),
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
