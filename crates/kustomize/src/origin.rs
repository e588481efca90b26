//! The origin annotations of `buildMetadata`: the source of a resource or of a transformation.

use crate::tree::clean_path;

/// The content of an origin annotation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The path from the root of the build.
    path: String,
    configured_in: String,
    api_version: String,
    kind: String,
    name: String,
    namespace: String,
}

impl Origin {
    /// Returns the origin of a target below.
    pub(crate) fn append_path(&self, path: &str) -> Self {
        let joined = if self.path.is_empty() {
            clean_path(path)
        } else {
            clean_path(&format!("{}/{path}", self.path))
        };
        Origin {
            path: joined,
            ..Origin::default()
        }
    }

    /// Returns the origin of something that a kustomization file here configures.
    pub(crate) fn configured_in(&self, file: &str, api_version: &str, kind: &str) -> Self {
        Origin {
            path: String::new(),
            configured_in: self.append_path(file).path,
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            ..Origin::default()
        }
    }

    /// Returns the origin of something that a resource in this file configures.
    pub(crate) fn configured_by(&self, api_version: &str, kind: &str, name: &str, namespace: &str) -> Self {
        Origin {
            path: String::new(),
            configured_in: self.path.clone(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        }
    }

    fn format_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, value) in [("path", &self.path), ("configuredIn", &self.configured_in)] {
            if !value.is_empty() {
                lines.push(format!("{name}: {value}"));
            }
        }
        let by = [
            ("apiVersion", &self.api_version),
            ("kind", &self.kind),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ];
        if by.iter().any(|(_, value)| !value.is_empty()) {
            lines.push("configuredBy:".to_owned());
            lines.extend(
                by.iter()
                    .filter(|(_, value)| !value.is_empty())
                    .map(|(name, value)| format!("  {name}: {value}")),
            );
        }
        lines
    }

    /// Returns the annotation's text.
    pub(crate) fn to_text(&self) -> String {
        self.format_lines().into_iter().map(|line| line + "\n").collect()
    }

    /// Returns the text as an element of a list.
    pub(crate) fn to_item(&self) -> String {
        let lines = self.format_lines();
        lines
            .iter()
            .enumerate()
            .map(|(index, line)| format!("{}{line}\n", if index == 0 { "- " } else { "  " }))
            .collect()
    }
}
