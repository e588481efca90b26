//! `.helmignore`: the files of a folder that are no part of the chart, as Helm reads the patterns. Pure.

use crate::glob::{Glob, Steps, TooMuchWork};

/// The most patterns of one file.
const MOST_PATTERNS: usize = 1000;

/// The patterns of a chart.
#[derive(Debug)]
pub(super) struct HelmIgnore {
    rules: Vec<Rule>,
    steps: Steps,
}

#[derive(Debug)]
struct Rule {
    glob: Glob,
    /// Only files that match are part of the chart.
    is_negated: bool,
    is_for_folders: bool,
    /// Whether the pattern is for the whole path, and not for the last part.
    is_for_path: bool,
}

impl HelmIgnore {
    /// Reads the patterns, and adds Helm's own pattern.
    ///
    /// # Errors
    /// Says which pattern can't be read.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        for line in text.lines().map(str::trim) {
            if !line.is_empty() && !line.starts_with('#') {
                rules.push(Rule::read(line)?);
            }
            if rules.len() > MOST_PATTERNS {
                return Err(format!(".helmignore has more than {MOST_PATTERNS} patterns"));
            }
        }
        rules.push(Rule::read("templates/.?*")?);
        Ok(Self {
            rules,
            steps: Steps::new(),
        })
    }

    /// Checks whether a path of the chart is left out.
    pub(super) fn excludes(&self, path: &str, is_folder: bool) -> Result<bool, TooMuchWork> {
        for rule in &self.rules {
            if rule.is_for_folders && !is_folder {
                if rule.is_negated {
                    return Ok(true);
                }
                continue;
            }
            if rule.matches(path, &self.steps)? != rule.is_negated {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Rule {
    fn read(line: &str) -> Result<Self, String> {
        if line.contains("**") {
            return Err(".helmignore: double-star (**) syntax is not supported".to_owned());
        }
        let (is_negated, rest) = match line.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (is_for_folders, rest) = match rest.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let (is_rooted, rest) = match rest.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        Ok(Self {
            glob: Glob::for_part(rest).map_err(|problem| format!(".helmignore: {problem}"))?,
            is_negated,
            is_for_folders,
            is_for_path: is_rooted || rest.contains('/'),
        })
    }

    fn matches(&self, path: &str, steps: &Steps) -> Result<bool, TooMuchWork> {
        let text = if self.is_for_path {
            path
        } else {
            path.rsplit('/').next().unwrap_or(path)
        };
        self.glob.matches(text, steps)
    }
}

#[cfg(test)]
mod tests {
    use super::HelmIgnore;

    #[test]
    fn paths_are_left_out_as_helm_does() {
        let read = HelmIgnore::read("# comment\n\n*.tmp\n/top.txt\ndocs/\nci/*.yaml\n").unwrap();
        for (path, is_folder, expected) in [
            ("a.tmp", false, true),
            ("deep/a.tmp", false, true),
            ("top.txt", false, true),
            ("deep/top.txt", false, false),
            ("docs", true, true),
            ("docs", false, false),
            ("ci/a.yaml", false, true),
            ("x/ci/a.yaml", false, false),
            ("templates/.swp", false, true),
            ("templates/a.yaml", false, false),
            ("Chart.yaml", false, false),
        ] {
            assert_eq!(read.excludes(path, is_folder).unwrap(), expected, "{path}");
        }
        let only = HelmIgnore::read("!*.yaml").unwrap();
        assert!(!only.excludes("a.yaml", false).unwrap() && only.excludes("a.txt", false).unwrap());
        assert!(HelmIgnore::read("a/**").is_err() && HelmIgnore::read("[").is_err());
    }
}
