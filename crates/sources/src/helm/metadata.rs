//! `Chart.yaml` and its relatives: the name, the version and the dependencies of a chart. Pure.

use go_words::version::Version;
use serde_json::{Map, Value};

use crate::yaml_merge::read_map;

/// The file with the metadata of a chart.
pub(super) const CHART_FILE: &str = "Chart.yaml";
/// The file with the default values of a chart.
pub(super) const VALUES_FILE: &str = "values.yaml";

/// The metadata of a chart.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) dependencies: Vec<Dependency>,
    /// The fields of the file, for another copy of it.
    fields: Map<String, Value>,
}

/// A chart that a chart needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) version: String,
    /// The address of the chart. It is empty or `file://` in the same source, and a repository otherwise.
    pub(super) repository: String,
    /// The name within the chart, if it is another one.
    pub(super) alias: Option<String>,
}

impl Dependency {
    /// Returns the name within the chart.
    pub(super) fn inner_name(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.name)
    }
}

impl Metadata {
    /// Reads `Chart.yaml`.
    ///
    /// # Errors
    /// Says which field is missing or wrong.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let fields = read_map(text).map_err(|problem| format!("{CHART_FILE} {problem}"))?;
        let read = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, version) = (read("name"), read("version"));
        let invalid = |problem: String| Err(format!("validation: {problem}"));
        if name.is_empty() {
            return invalid("chart.metadata.name is required".to_owned());
        }
        if name == "." || name == ".." || name.contains(['/', '\\']) || name.chars().any(char::is_control) {
            return invalid(format!("chart.metadata.name {name:?} is invalid"));
        }
        if version.is_empty() {
            return invalid("chart.metadata.version is required".to_owned());
        }
        if read_lenient_version(&version).is_none() {
            return invalid(format!("chart.metadata.version {version:?} is invalid"));
        }
        if !matches!(read("type").as_str(), "" | "application" | "library") {
            return invalid("chart.metadata.type must be application or library".to_owned());
        }
        Ok(Self {
            name,
            version,
            dependencies: read_dependencies(&fields)?,
            fields,
        })
    }

    /// Returns `Chart.yaml` with another name or version.
    pub(super) fn write(&self, name: &str, version: &str) -> Vec<u8> {
        let mut fields = self.fields.clone();
        fields.insert("name".to_owned(), name.into());
        fields.insert("version".to_owned(), version.into());
        go_yaml::emit::write_document(&Value::Object(fields)).into_bytes()
    }
}

/// Reads the list of dependencies in `Chart.yaml`, `Chart.lock`, `requirements.yaml` or `requirements.lock`.
///
/// # Errors
/// Says that the list has another form.
pub(super) fn read_dependencies(fields: &Map<String, Value>) -> Result<Vec<Dependency>, String> {
    let listed = match fields.get("dependencies") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(listed)) => listed,
        Some(_) => return Err("dependencies is no list".to_owned()),
    };
    let read = |value: &Value| {
        let read = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let dependency = Dependency {
            name: read("name"),
            version: read("version"),
            repository: read("repository"),
            alias: Some(read("alias")).filter(|alias| !alias.is_empty()),
        };
        let is_name = |name: &str| {
            let known = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
            !name.is_empty() && name != "." && name != ".." && name.chars().all(known)
        };
        if !is_name(&dependency.name) || !is_name(dependency.inner_name()) {
            return Err("a dependency has no valid name".to_owned());
        }
        Ok(dependency)
    };
    listed.iter().map(read).collect()
}

/// Reads a version as Helm does: `v1.2` is `1.2.0`.
pub(super) fn read_lenient_version(text: &str) -> Option<Version> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (rest, build) = text
        .split_once('+')
        .map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (numbers, prerelease) = rest
        .split_once('-')
        .map_or((rest, None), |(numbers, pre)| (numbers, Some(pre)));
    let mut parts: Vec<&str> = numbers.split('.').collect();
    if parts.len() > 3 {
        return None;
    }
    parts.resize(3, "0");
    let mut whole = parts.join(".");
    if let Some(prerelease) = prerelease {
        whole.push('-');
        whole.push_str(prerelease);
    }
    if let Some(build) = build {
        whole.push('+');
        whole.push_str(build);
    }
    go_words::version::parse(&whole).ok()
}

/// Returns a version with other build metadata.
///
/// # Errors
/// Says that the text is no version.
pub(super) fn set_build_metadata(version: &str, metadata: &str) -> Result<String, String> {
    let invalid = || format!("failed to parse version from chart metadata as SemVer: {version:?}");
    let known = read_lenient_version(version).ok_or_else(invalid)?.to_string();
    let bare = known.split('+').next().unwrap_or_default();
    let changed = go_words::version::parse(&format!("{bare}+{metadata}"));
    changed
        .map(|version| version.to_string())
        .map_err(|error| format!("failed to set SemVer metadata on chart version: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{Metadata, set_build_metadata};

    #[test]
    fn charts_without_name_or_version_are_refused() {
        for (text, problem) in [
            ("", "name is required"),
            ("name: a", "version is required"),
            ("name: a/b\nversion: 1.0.0", "name \"a/b\" is invalid"),
            ("name: a\nversion: one", "version \"one\" is invalid"),
            ("name: a\nversion: 1.0.0\ntype: other", "type must be"),
            ("- a", "Chart.yaml is YAML, and no map"),
            ("name: a\nversion: 1.0.0\ndependencies: {}", "dependencies is no list"),
            ("name: a\nversion: 1.0.0\ndependencies: [{name: ../b}]", "no valid name"),
        ] {
            let found = Metadata::read(text.as_bytes()).unwrap_err();
            assert!(found.contains(problem), "{text}: {found}");
        }
    }

    #[test]
    fn version_gets_build_metadata() {
        for (version, expected) in [
            ("1.2.3", "1.2.3+7"),
            ("v1.2", "1.2.0+7"),
            ("1.0.0-rc.1+old", "1.0.0-rc.1+7"),
        ] {
            assert_eq!(set_build_metadata(version, "7").as_deref(), Ok(expected));
        }
        assert!(set_build_metadata("latest", "7").is_err());
    }

    #[test]
    fn rewritten_metadata_keeps_other_fields() {
        let read = Metadata::read(b"apiVersion: v2\nname: a\nversion: 1.0.0\nannotations:\n  b: c\n").unwrap();
        let written = String::from_utf8(read.write("a", "1.0.0+1")).unwrap();
        assert_eq!(
            written,
            "annotations:\n  b: c\napiVersion: v2\nname: a\nversion: 1.0.0+1\n"
        );
    }
}
