//! The parsed form of an ArtifactGenerator: its sources, and a recipe for each artifact.
//!
//! Invalid specs are refused before anything is looked at: duplicate or missing aliases, paths that lead out of the source, and lists that are too long. The matches of
//! patterns are found with the files.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::artifact_generator::{ArtifactSource, CopyOperation, OutputArtifact};
use tenure_api::names::{NamespaceName, ObjectName, is_dns_subdomain};
use tenure_api::{ArtifactGenerator, ArtifactGeneratorSpec};

use super::template::{Captures, PathPattern, fill_template};
use super::{Copy, Recipe, Strategy};
use crate::list_limits::{COPIES, EXCLUDES, GENERATOR_ENTRIES, PATTERN, RECIPES};

/// The kinds of sources whose files can be copied.
const KINDS: [&str; 5] = [
    "Bucket",
    "ExternalArtifact",
    "GitRepository",
    "HelmChart",
    "OCIRepository",
];
/// The most commas within braces of one pattern, which bounds its alternatives.
const ALTERNATIVES: usize = 20;
/// The estimated bytes that a recipe or a copy ([`ENTRY`]), and a text ([`TEXT`]), need besides their content.
const ENTRY: usize = 256;
const TEXT: usize = 24;
/// Longest value of a label.
const LABEL: usize = 63;

/// The reason why a generator's spec is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GeneratorProblem {
    /// The spec is invalid.
    Invalid(String),
    /// The memory for recipes is used up by the other generators of the namespace.
    NoRoom,
}

fn fail_invalid<T>(message: impl Into<String>) -> Result<T, GeneratorProblem> {
    Err(GeneratorProblem::Invalid(message.into()))
}

/// The parsed `spec.pathPattern`: `@ALIAS/PATTERN`.
pub(super) struct FolderPattern {
    /// The alias of the source whose folders are matched.
    pub(super) alias: String,
    /// The pattern of the folders in this source.
    pub(super) pattern: PathPattern,
}

/// Checks the parts of the spec that don't depend on the content of the sources. Returns the parsed `spec.pathPattern`, if it is set.
pub(super) fn check(generator: &ArtifactGenerator) -> Result<Option<FolderPattern>, GeneratorProblem> {
    let spec = &generator.spec;
    for (field, length) in [
        ("spec.sources", spec.sources.len()),
        ("spec.artifacts", spec.artifacts.len()),
    ] {
        if length == 0 || length > GENERATOR_ENTRIES {
            return fail_invalid(format!(
                "{field} has {length} entries, and may have 1 to {GENERATOR_ENTRIES}"
            ));
        }
    }
    let mut aliases = BTreeSet::new();
    for (index, source) in spec.sources.iter().enumerate() {
        check_source(index, source)?;
        if !aliases.insert(source.alias.as_str()) {
            return fail_invalid(format!("duplicate source alias '{}' found", source.alias));
        }
    }
    if let Some(metadata) = &spec.common_metadata
        && metadata.labels.len().max(metadata.annotations.len()) > crate::list_limits::COMMON_METADATA
    {
        return fail_invalid("spec.commonMetadata has more than 100 labels or annotations");
    }
    let folders = match spec.path_pattern.as_deref() {
        None | Some("") => None,
        Some(text) => Some(read_folders(text, &aliases)?),
    };
    if folders.is_none() {
        // With a pattern, the recipes are read after the values of its names are known.
        list_recipes(spec, None, usize::MAX)?;
    }
    Ok(folders)
}

fn check_source(index: usize, source: &ArtifactSource) -> Result<(), GeneratorProblem> {
    let field = format!("spec.sources[{index}]");
    if !KINDS.contains(&source.kind.as_str()) {
        return fail_invalid(format!("{field}.kind must be one of {}", KINDS.join(", ")));
    }
    if !is_alias(&source.alias) {
        return fail_invalid(format!(
            "{field}.alias must be lower-case letters, digits, - and _, begin and end with a letter or digit, and be no longer than 63"
        ));
    }
    let named = |error: tenure_api::names::NameError| GeneratorProblem::Invalid(format!("{field}: {error}"));
    ObjectName::new(source.name.clone()).map_err(named)?;
    if let Some(namespace) = &source.namespace {
        NamespaceName::new(namespace.clone()).map_err(named)?;
    }
    Ok(())
}

fn is_alias(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let part = |byte: &u8| edge(Some(byte)) || b"-_".contains(byte);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && bytes.iter().all(part) && edge(bytes.first()) && edge(bytes.last())
}

fn read_folders(text: &str, aliases: &BTreeSet<&str>) -> Result<FolderPattern, GeneratorProblem> {
    let (alias, pattern) = read_source_path("spec.pathPattern", text, aliases)?;
    let pattern = PathPattern::read(pattern);
    Ok(FolderPattern {
        alias: alias.to_owned(),
        pattern: pattern.map_err(|problem| GeneratorProblem::Invalid(format!("spec.pathPattern {problem}")))?,
    })
}

/// Reads `@alias/path`, with an existing alias.
fn read_source_path<'a>(
    field: &str,
    text: &'a str,
    aliases: &BTreeSet<&str>,
) -> Result<(&'a str, &'a str), GeneratorProblem> {
    if text.len() > PATTERN {
        return fail_invalid(format!("{field} is longer than {PATTERN} bytes"));
    }
    let parts = text.strip_prefix('@').and_then(|text| text.split_once('/'));
    let Some((alias, path)) = parts else {
        return fail_invalid(format!("{field} must be @<alias>/<path>, and not {text:?}"));
    };
    if !aliases.contains(alias) {
        return fail_invalid(format!("{field}: source alias '{alias}' not found"));
    }
    Ok((alias, path))
}

/// Lists the recipes, one for each artifact, or one for each artifact and matched folder. Also returns the memory that they take, which has to fit into the bound.
pub(super) fn list_recipes(
    spec: &ArtifactGeneratorSpec,
    matched: Option<&[(String, Captures)]>,
    room: usize,
) -> Result<(BTreeMap<String, Recipe>, usize), GeneratorProblem> {
    let aliases: BTreeSet<&str> = spec.sources.iter().map(|source| source.alias.as_str()).collect();
    let mut recipes: BTreeMap<String, Recipe> = BTreeMap::new();
    let mut made_for: BTreeMap<String, &str> = BTreeMap::new();
    let mut bytes = 0_usize;
    let once = [(String::new(), Captures::new())];
    for (folder, captures) in matched.unwrap_or(&once) {
        let labels = if matched.is_some() {
            read_labels(captures)?
        } else {
            Captures::new()
        };
        for (index, artifact) in spec.artifacts.iter().enumerate() {
            let field = format!("spec.artifacts[{index}]");
            let filled = fill_in(artifact, &labels, captures, matched.is_some())
                .map_err(|problem| GeneratorProblem::Invalid(format!("{field}: {problem}")))?;
            let recipe = read_recipe(&field, &filled, labels.clone(), &aliases)?;
            bytes = bytes.saturating_add(count_bytes(&filled));
            if recipes.len() >= GENERATOR_ENTRIES || bytes > RECIPES {
                return fail_invalid(format!(
                    "it makes more than {GENERATOR_ENTRIES} artifacts, or more than {RECIPES} bytes of what is copied for them: make \
                     spec.pathPattern match less, or use several generators"
                ));
            }
            if bytes > room {
                return Err(GeneratorProblem::NoRoom);
            }
            if let Some(before) = made_for.insert(recipe.name.clone(), folder) {
                return if matched.is_some() {
                    fail_invalid(format!(
                        "spec.pathPattern: folders {before:?} and {folder:?} both resolve to artifact name {:?}",
                        recipe.name
                    ))
                } else {
                    fail_invalid(format!("duplicate artifact name '{}' found", recipe.name))
                };
            }
            recipes.insert(recipe.name.clone(), recipe);
        }
    }
    Ok((recipes, bytes))
}

/// Reads the captures of a pattern as labels.
fn read_labels(captures: &Captures) -> Result<Captures, GeneratorProblem> {
    let mut labels = Captures::new();
    for (name, value) in captures {
        let value = value.to_lowercase();
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = value.as_bytes();
        let is_label = bytes.len() <= LABEL
            && bytes
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
            && edge(bytes.first())
            && edge(bytes.last());
        if !is_label {
            let shown: String = value.chars().take(LABEL).collect();
            return fail_invalid(format!(
                "spec.pathPattern: {{{name}}} stands for {shown:?}, which is no value of a label: letters, digits, -, _ and ., the first \
                 and the last a letter or digit, 63 at most"
            ));
        }
        labels.insert(name.clone(), value);
    }
    Ok(labels)
}

/// Fills in an artifact's name with the label values, and its paths with the original values.
fn fill_in(
    artifact: &OutputArtifact,
    labels: &Captures,
    captures: &Captures,
    has_pattern: bool,
) -> Result<OutputArtifact, String> {
    let mut filled = artifact.clone();
    if has_pattern {
        filled.name = fill_template(&artifact.name, labels)?;
        for copy in &mut filled.copy {
            copy.from = fill_template(&copy.from, captures)?;
            copy.to = fill_template(&copy.to, captures)?;
        }
    }
    Ok(filled)
}

/// Estimates the memory of a recipe.
fn count_bytes(artifact: &OutputArtifact) -> usize {
    let of_copy = |copy: &CopyOperation| {
        let exclude: usize = copy.exclude.iter().map(|pattern| pattern.len() + TEXT).sum();
        copy.from.len() + copy.to.len() + exclude + ENTRY
    };
    artifact.name.len() + ENTRY + artifact.copy.iter().map(of_copy).sum::<usize>()
}

fn read_recipe(
    field: &str,
    artifact: &OutputArtifact,
    labels: Captures,
    aliases: &BTreeSet<&str>,
) -> Result<Recipe, GeneratorProblem> {
    if !is_dns_subdomain(&artifact.name) {
        let shown: String = artifact.name.chars().take(300).collect();
        return fail_invalid(format!("artifact name {shown:?} is not a valid Kubernetes object name"));
    }
    if artifact.copy.is_empty() || artifact.copy.len() > COPIES {
        return fail_invalid(format!(
            "{field}.copy has {} entries, and may have 1 to {COPIES}",
            artifact.copy.len()
        ));
    }
    let alias = |name: &str, text: &Option<String>| -> Result<Option<String>, GeneratorProblem> {
        let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        match text.strip_prefix('@') {
            Some(alias) if aliases.contains(alias) => Ok(Some(alias.to_owned())),
            _ => fail_invalid(format!(
                "artifact {} {name} source alias '{}' not found",
                artifact.name,
                text.trim_start_matches('@')
            )),
        }
    };
    let copies = artifact.copy.iter().enumerate();
    Ok(Recipe {
        name: artifact.name.clone(),
        labels,
        revision: alias("revision", &artifact.revision)?,
        origin: alias("originRevision", &artifact.origin_revision)?,
        copies: copies
            .map(|(index, copy)| read_copy(&format!("{field}.copy[{index}]"), copy, aliases))
            .collect::<Result<_, _>>()?,
    })
}

fn read_copy(field: &str, copy: &CopyOperation, aliases: &BTreeSet<&str>) -> Result<Copy, GeneratorProblem> {
    let (alias, from) = read_source_path(&format!("{field}.from"), &copy.from, aliases)?;
    let to = copy.to.strip_prefix("@artifact/").filter(|to| to.len() <= PATTERN);
    let Some(to) = to else {
        return fail_invalid(format!("{field}.to must be @artifact/<path>, {PATTERN} bytes at most"));
    };
    if copy.exclude.len() > EXCLUDES {
        return fail_invalid(format!("{field}.exclude has more than {EXCLUDES} patterns"));
    }
    for pattern in std::iter::once(from).chain(copy.exclude.iter().map(String::as_str)) {
        check_pattern(field, pattern)?;
    }
    let strategy = match copy.strategy.as_deref() {
        None | Some("" | "Overwrite") => Strategy::Overwrite,
        Some("Merge") => Strategy::Merge,
        Some("Extract") => Strategy::Extract,
        Some(_) => return fail_invalid(format!("{field}.strategy must be Overwrite, Merge or Extract")),
    };
    Ok(Copy {
        alias: alias.to_owned(),
        from: clean_path(&format!("{field}.from"), from)?,
        to: clean_path(&format!("{field}.to"), to)?,
        into_folder: copy.to.ends_with('/'),
        exclude: copy.exclude.clone(),
        strategy,
    })
}

fn check_pattern(field: &str, pattern: &str) -> Result<(), GeneratorProblem> {
    let (mut depth, mut commas) = (0_usize, 0_usize);
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth > 0 => commas += 1,
            _ => {}
        }
    }
    if pattern.len() > PATTERN || commas > ALTERNATIVES {
        return fail_invalid(format!(
            "{field}: a pattern is longer than {PATTERN} bytes, or has more than {ALTERNATIVES} alternatives in braces"
        ));
    }
    Ok(())
}

/// Removes empty and `.` parts from a path. A path that leads out of its source, or of the artifact, is refused.
fn clean_path(field: &str, path: &str) -> Result<String, GeneratorProblem> {
    if path.starts_with('/') {
        return fail_invalid(format!("{field}: the path begins with a second /"));
    }
    if path.chars().any(char::is_control) {
        return fail_invalid(format!("{field}: the path has a control character"));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return fail_invalid(format!("{field}: the path has a '..' part"));
    }
    Ok(parts.join("/"))
}
