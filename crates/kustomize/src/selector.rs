//! Selection of resources: anchored patterns for names and kinds, and label selectors in Kubernetes' notation.

use std::collections::BTreeMap;

use regex::Regex;

use crate::fields::Selector;
use crate::id::{Gvk, ResourceId};
use crate::options::PatchTarget;
use crate::resource::Resource;

/// A selector, ready to match.
#[derive(Debug)]
pub(crate) struct Matcher {
    group: Option<Pattern>,
    version: Option<Pattern>,
    kind: Option<Pattern>,
    name: Option<Pattern>,
    namespace: Option<Pattern>,
    labels: Vec<Requirement>,
    annotations: Vec<Requirement>,
    /// The selector contains only labels or annotations.
    pub(crate) is_only_labels: bool,
    pub(crate) has_labels: bool,
}

impl Matcher {
    /// Prepares a selector.
    ///
    /// # Errors
    /// If a pattern or a label selector can't be read.
    pub(crate) fn new(selector: &Selector) -> Result<Self, String> {
        Self::with_patterns(selector, crate::pattern::compile)
    }

    fn with_patterns(selector: &Selector, compile: Compile) -> Result<Self, String> {
        let gvk = &selector.gvk;
        let pattern = |text: &str| compile_pattern(text, compile);
        Ok(Matcher {
            group: pattern(&gvk.group)?,
            version: pattern(&gvk.version)?,
            kind: pattern(&gvk.kind)?,
            name: pattern(&selector.name)?,
            namespace: pattern(&selector.namespace)?,
            labels: parse_requirements(&selector.label_selector)?,
            annotations: parse_requirements(&selector.annotation_selector)?,
            is_only_labels: [&gvk.group, &gvk.version, &gvk.kind, &selector.name, &selector.namespace]
                .iter()
                .all(|part| part.is_empty()),
            has_labels: !selector.label_selector.is_empty() || !selector.annotation_selector.is_empty(),
        })
    }

    pub(crate) fn fits_gvk(&self, gvk: &Gvk) -> bool {
        fits_pattern(self.group.as_ref(), &gvk.group)
            && fits_pattern(self.version.as_ref(), &gvk.version)
            && fits_pattern(self.kind.as_ref(), &gvk.kind)
    }

    pub(crate) fn fits_name(&self, name: &str) -> bool {
        fits_pattern(self.name.as_ref(), name)
    }

    pub(crate) fn fits_namespace(&self, namespace: &str) -> bool {
        fits_pattern(self.namespace.as_ref(), namespace)
    }

    /// Matches a current or previous id, as written. Replacements use this.
    pub(crate) fn fits_id(&self, id: &ResourceId) -> bool {
        self.fits_gvk(&id.gvk) && self.fits_name(&id.name) && self.fits_namespace(&id.namespace)
    }

    pub(crate) fn fits_labels(&self, resource: &Resource) -> bool {
        let all = |requirements: &[Requirement], field: &str| {
            requirements.is_empty() || {
                let map = resource.text_map(field);
                requirements.iter().all(|requirement| requirement.fits(&map))
            }
        };
        all(&self.labels, "labels") && all(&self.annotations, "annotations")
    }

    /// Matches the first or the current name and namespace, and the current kind. Patches use this.
    pub(crate) fn fits(&self, resource: &Resource) -> bool {
        // The cheapest questions first: most resources are not meant by most patches.
        let original = resource.notes.previous.first().map(|(name, _, _)| name.as_str());
        (self.fits_name(original.unwrap_or_else(|| resource.name())) || self.fits_name(resource.name()))
            && fits_pattern(self.kind.as_ref(), resource.kind())
            && self.fits_gvk(&resource.gvk())
            && (self.namespace.is_none()
                || self.fits_namespace(resource.original_id().effective_namespace())
                || self.fits_namespace(resource.current_id().effective_namespace()))
            && self.fits_labels(resource)
    }
}

/// Selects objects outside of a build: as a patch's target does, by the fields of the object.
#[derive(Debug)]
pub struct ObjectSelector(Matcher);

impl ObjectSelector {
    /// Prepares a selector. Its patterns are those of names: small ones.
    ///
    /// # Errors
    /// If a pattern or a label selector can't be read, or a pattern becomes too big.
    pub fn new(target: &PatchTarget) -> Result<Self, String> {
        Matcher::with_patterns(&Selector::from(target), crate::pattern::compile_small).map(Self)
    }

    /// Checks whether a part of a selector is compared literally. Any other part must be compiled.
    pub fn is_plain(part: &str) -> bool {
        is_plain(part)
    }

    /// Returns whether an object is selected.
    pub fn fits(&self, object: &serde_json::Value) -> bool {
        let text = |path: &str| {
            object
                .pointer(path)
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default()
        };
        let all = |requirements: &[Requirement], path: &str| {
            requirements.is_empty() || {
                let map = object.pointer(path).and_then(serde_json::Value::as_object);
                let entries = map.into_iter().flatten();
                let texts = entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
                let map: BTreeMap<String, String> = texts.collect();
                requirements.iter().all(|requirement| requirement.fits(&map))
            }
        };
        let Self(matcher) = self;
        matcher.fits_name(text("/metadata/name"))
            && matcher.fits_namespace(text("/metadata/namespace"))
            && matcher.fits_gvk(&Gvk::new(text("/apiVersion"), text("/kind")))
            && all(&matcher.labels, "/metadata/labels")
            && all(&matcher.annotations, "/metadata/annotations")
    }
}

/// A function that compiles patterns.
type Compile = fn(&str) -> Result<Regex, String>;

/// A pattern that has to match a text as a whole.
#[derive(Debug)]
enum Pattern {
    /// Most names and kinds are literal texts.
    Plain(String),
    Any(Regex),
}

fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':' | b'/'))
}

fn compile_pattern(text: &str, compile: Compile) -> Result<Option<Pattern>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if is_plain(text) {
        return Ok(Some(Pattern::Plain(text.to_owned())));
    }
    compile(&format!("^(?:{text})$"))
        .map(|regex| Some(Pattern::Any(regex)))
        .map_err(|_| format!("'{text}' is not a valid regular expression"))
}

fn fits_pattern(pattern: Option<&Pattern>, text: &str) -> bool {
    match pattern {
        None => true,
        Some(Pattern::Plain(wanted)) => wanted == text,
        Some(Pattern::Any(regex)) => regex.is_match(text),
    }
}

/// A requirement of a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Missing(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Above(String, i64),
    Below(String, i64),
}

impl Requirement {
    fn fits(&self, map: &BTreeMap<String, String>) -> bool {
        let number = |key: &str| map.get(key).and_then(|value| value.parse::<i64>().ok());
        match self {
            Requirement::Exists(key) => map.contains_key(key),
            Requirement::Missing(key) => !map.contains_key(key),
            Requirement::In(key, values) => map.get(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => map.get(key).is_none_or(|value| !values.contains(value)),
            Requirement::Above(key, bound) => number(key).is_some_and(|value| value > *bound),
            Requirement::Below(key, bound) => number(key).is_some_and(|value| value < *bound),
        }
    }
}

/// Reads a label selector: `a`, `!a`, `a=b`, `a==b`, `a!=b`, `a in (b, c)`, `a notin (b)`, `a > 1`, `a < 1`, joined by commas.
fn parse_requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let bad = |why: &str| Err(format!("unable to parse the selector '{text}': {why}"));
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = Vec::new();
    let mut depth = 0_u32;
    let mut part = String::new();
    for character in text.chars() {
        match character {
            '(' => depth += 1,
            ')' if depth == 0 => return bad("a closing parenthesis without an opening one"),
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(character);
    }
    if depth != 0 {
        return bad("a parenthesis isn't closed");
    }
    parts.push(part);
    let mut found = Vec::new();
    for part in parts {
        match parse_requirement(part.trim()) {
            Some(requirement) => found.push(requirement),
            None => return bad(&format!("'{}' is not a requirement", part.trim())),
        }
    }
    Ok(found)
}

fn parse_requirement(text: &str) -> Option<Requirement> {
    let key = |text: &str| {
        let key = text.trim();
        let good = !key.is_empty()
            && key
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
        good.then(|| key.to_owned())
    };
    if let Some(rest) = text.strip_prefix('!') {
        return key(rest).map(Requirement::Missing);
    }
    if let Some(inside) = text.strip_suffix(')') {
        let (head, values) = inside.split_once('(')?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        let name = key(words.next()?)?;
        return match (words.next()?, words.next()) {
            ("in", None) => Some(Requirement::In(name, values)),
            ("notin", None) => Some(Requirement::NotIn(name, values)),
            _ => None,
        };
    }
    if let Some((name, value)) = text.split_once("!=") {
        return Some(Requirement::NotIn(key(name)?, vec![plain_value(value)?]));
    }
    if let Some((name, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Requirement::In(key(name)?, vec![plain_value(value)?]));
    }
    if let Some((name, value)) = text.split_once('>') {
        return Some(Requirement::Above(key(name)?, value.trim().parse().ok()?));
    }
    if let Some((name, value)) = text.split_once('<') {
        return Some(Requirement::Below(key(name)?, value.trim().parse().ok()?));
    }
    key(text).map(Requirement::Exists)
}

fn plain_value(text: &str) -> Option<String> {
    let value = text.trim();
    value
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        .then(|| value.to_owned())
}
