//! The files of a commit that stay out of its artifact.
//!
//! Flux's default patterns, `.sourceignore` and `spec.ignore` have the meaning of source-controller: the last pattern that matches a file or a folder above it decides,
//! also below an excluded folder. If any pattern is given, only the defaults for Git's own files remain. Matching backtracks at most once per `*`, and its steps are
//! counted over all files, so patterns can't use up time.

use std::cell::Cell;

const VERSION_CONTROL: [&str; 4] = [".git/", ".gitignore", ".gitmodules", ".gitattributes"];

const DEFAULTS: [&str; 20] = [
    "*.jpg",
    "*.jpeg",
    "*.gif",
    "*.png",
    "*.wmv",
    "*.flv",
    "*.tar.gz",
    "*.zip",
    ".github/",
    ".circleci/",
    ".travis.yml",
    ".gitlab-ci.yml",
    "appveyor.yml",
    ".drone.yml",
    "cloudbuild.yaml",
    "codeship-services.yml",
    "codeship-steps.yml",
    "**/.goreleaser.yml",
    "**/.sops.yaml",
    "**/.flux.yaml",
];

/// The file with patterns for its folder and everything below.
pub(crate) const IGNORE_FILE: &str = ".sourceignore";

/// Characters that may be compared for all files together.
const STEPS: u64 = 1 << 30;

/// A pattern, and the folder that it applies to.
#[derive(Debug, Clone)]
struct Pattern {
    folder: Vec<String>,
    parts: Vec<String>,
    include: bool,
    folders_only: bool,
    /// True if the pattern has a slash and is matched from its folder on; otherwise any part of a path can match.
    anchored: bool,
}

/// The patterns of a source, weakest first.
#[derive(Debug, Clone)]
pub(crate) struct Ignore {
    patterns: Vec<Pattern>,
    steps: Steps,
}

/// The number of characters that may still be compared.
#[derive(Debug, Clone)]
struct Steps(Cell<u64>);

impl Steps {
    fn use_steps(&self, steps: usize) {
        self.0.set(self.0.get().saturating_sub(steps as u64));
    }
}

impl Ignore {
    /// Collects the patterns of `.sourceignore` files, given with their folders, and of `spec.ignore`.
    pub(crate) fn new(files: &[(String, String)], spec: Option<&str>) -> Self {
        let mut given = Vec::new();
        for (folder, text) in files {
            given.extend(read(text, folder));
        }
        given.extend(read(spec.unwrap_or_default(), ""));
        let defaults: &[&str] = if given.is_empty() { &DEFAULTS } else { &[] };
        let mut patterns: Vec<Pattern> = VERSION_CONTROL
            .iter()
            .chain(defaults)
            .map(|line| parse_pattern(line, ""))
            .collect();
        patterns.append(&mut given);
        Self {
            patterns,
            steps: Steps(Cell::new(STEPS)),
        }
    }

    /// Collects only the patterns of one `.sourceignore`, for everything below it, and of `spec.ignore`. Without a repository there are no files of Git to exclude.
    pub(crate) fn from_texts(file: Option<&str>, spec: Option<&str>) -> Self {
        let texts = [file, spec].into_iter().flatten();
        Self {
            patterns: texts.flat_map(|text| read(text, "")).collect(),
            steps: Steps(Cell::new(STEPS)),
        }
    }

    /// Checks whether a file is excluded; `None` if the work for this and all previous files exceeds its limit.
    pub(crate) fn excludes(&self, path: &str) -> Option<bool> {
        let parts: Vec<&str> = path.split('/').collect();
        for pattern in self.patterns.iter().rev() {
            let matches = pattern.matches(&parts, &self.steps);
            if self.steps.0.get() == 0 {
                return None;
            }
            if matches {
                return Some(!pattern.include);
            }
        }
        Some(false)
    }
}

fn read<'a>(text: &'a str, folder: &'a str) -> impl Iterator<Item = Pattern> + 'a {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| parse_pattern(line, folder))
}

/// Parses a line of an ignore file that is in this folder.
fn parse_pattern(line: &str, folder: &str) -> Pattern {
    let line = line.trim_end_matches('\r');
    let (include, line) = match line.strip_prefix('!') {
        Some(line) => (true, line),
        None => (false, line),
    };
    // Spaces at the end count only after a backslash.
    let line = if line.ends_with("\\ ") {
        line
    } else {
        line.trim_end_matches(' ')
    };
    let (folders_only, line) = match line.strip_suffix('/') {
        Some(line) => (true, line),
        None => (false, line),
    };
    let split = |path: &str| path.split('/').map(str::to_owned).collect();
    Pattern {
        folder: if folder.is_empty() { Vec::new() } else { split(folder) },
        parts: split(line),
        include,
        folders_only,
        anchored: line.contains('/'),
    }
}

impl Pattern {
    fn matches(&self, path: &[&str], steps: &Steps) -> bool {
        steps.use_steps(1 + self.folder.len());
        let Some((folder, path)) = path.split_at_checked(self.folder.len()) else {
            return false;
        };
        if path.is_empty() || !folder.iter().zip(&self.folder).all(|(a, b)| a == b) {
            return false;
        }
        if self.anchored {
            return self.matches_from_start(path, steps);
        }
        let Some(name) = self.parts.first() else { return false };
        match path.iter().position(|part| match_part(name, part, steps)) {
            // The last part is the file itself; all parts before it are folders.
            Some(position) => !self.folders_only || position + 1 < path.len(),
            None => false,
        }
    }

    /// Matches the path or a folder above it. `**` before a part advances to the first part that matches, without backtracking. At the end `**` adds nothing, so `a/**`
    /// is `/a`, and `/**` alone, as in Flux, is nothing.
    fn matches_from_start(&self, path: &[&str], steps: &Steps) -> bool {
        let mut rest = path.iter();
        let mut matched = false;
        let mut anywhere = false;
        for (index, part) in self.parts.iter().enumerate() {
            steps.use_steps(1 + part.len());
            match part.as_str() {
                "" => anywhere = false,
                "**" if index + 1 == self.parts.len() => break,
                "**" => anywhere = true,
                part if part.contains("**") => return false,
                part if anywhere => {
                    anywhere = false;
                    if rest.len() == 0 {
                        return false;
                    }
                    matched = rest.any(|name| match_part(part, name, steps));
                }
                part => match rest.next() {
                    Some(name) if match_part(part, name, steps) => matched = true,
                    _ => return false,
                },
            }
        }
        matched && !(self.folders_only && rest.len() == 0)
    }
}

/// Matches one part: `*`, `?`, `[a-z]`, `[^a]` and backslash. A malformed pattern matches nothing.
fn match_part(pattern: &str, name: &str, steps: &Steps) -> bool {
    steps.use_steps(pattern.len() + name.len());
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut in_name) = (0_usize, 0_usize);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if at == pattern.len() && in_name == name.len() {
            return true;
        }
        // A bracket is read to its end for each character.
        steps.use_steps(match pattern.get(at) {
            Some('[') => pattern.len() - at,
            _ => 1,
        });
        if steps.0.get() == 0 {
            return false;
        }
        if pattern.get(at) == Some(&'*') {
            star = Some((at + 1, in_name));
            at += 1;
            continue;
        }
        let step = name.get(in_name).and_then(|c| match_one(pattern.get(at..)?, *c));
        if let Some(used) = step {
            at += used;
            in_name += 1;
            continue;
        }
        match star {
            Some((after, from)) if from < name.len() => {
                star = Some((after, from + 1));
                at = after;
                in_name = from + 1;
            }
            _ => return false,
        }
    }
}

/// Matches one character; returns the length of the matched part of the pattern.
fn match_one(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '\\' => (*pattern.get(1)? == c).then_some(2),
        '[' => {
            let mut at = 1;
            let negated = pattern.get(at) == Some(&'^');
            if negated {
                at += 1;
            }
            let first = at;
            let mut found = false;
            loop {
                if pattern.get(at) == Some(&']') && at > first {
                    return (found != negated).then_some(at + 1);
                }
                let low = read_bound(pattern, &mut at)?;
                let mut high = low;
                if pattern.get(at) == Some(&'-') {
                    at += 1;
                    high = read_bound(pattern, &mut at)?;
                }
                found |= (low..=high).contains(&c);
            }
        }
        literal => (*literal == c).then_some(1),
    }
}

/// Reads an end of a range in brackets; `None` if it is malformed.
fn read_bound(pattern: &[char], at: &mut usize) -> Option<char> {
    let mut c = *pattern.get(*at)?;
    match c {
        '-' | ']' => return None,
        '\\' => {
            *at += 1;
            c = *pattern.get(*at)?;
        }
        _ => {}
    }
    *at += 1;
    Some(c)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

    use std::cell::Cell;

    use super::{Ignore, Steps};

    fn check(files: &[(&str, &str)], spec: &str, excluded: &[&str], kept: &[&str]) {
        let files: Vec<(String, String)> = files
            .iter()
            .map(|(folder, text)| ((*folder).to_owned(), (*text).to_owned()))
            .collect();
        let ignore = Ignore::new(&files, Some(spec));
        for path in excluded {
            assert!(
                ignore.excludes(path).unwrap(),
                "{path} must be excluded by {files:?} {spec:?}"
            );
        }
        for path in kept {
            assert!(
                !ignore.excludes(path).unwrap(),
                "{path} must be kept by {files:?} {spec:?}"
            );
        }
    }

    #[test]
    fn defaults_hold_until_a_pattern_is_given() {
        let defaults = [
            "a/b.png",
            ".github/x.yaml",
            "a/.github/x",
            "deep/er/.sops.yaml",
            ".gitignore",
            "x.tar.gz",
        ];
        check(
            &[],
            "",
            &defaults,
            &["a.yaml", "github/x", "png", ".sourceignore", "x.tar"],
        );
        check(&[], "# only a comment\n\n", &defaults, &["a.yaml"]);
        check(
            &[],
            "*.txt",
            &["a.txt", "b/c.txt", ".gitignore"],
            &["a/b.png", ".github/x.yaml"],
        );
    }

    #[test]
    fn patterns_can_not_burn_time() {
        // Each match is small and slow; over many files, together they reach the limit.
        let limited = |patterns: String| Ignore {
            steps: Steps(Cell::new(1 << 20)),
            ..Ignore::new(&[(String::new(), patterns)], None)
        };
        let name = "a".repeat(100);
        let slow = format!("*{}b", "a".repeat(50));
        let patterns = format!("{slow}\n").repeat(10);
        let ignore = limited(patterns);
        let files = (0..1_000).take_while(|_| ignore.excludes(&name) == Some(false)).count();
        assert!((3..500).contains(&files), "{files}");
        let brackets = format!("*[{}]c", "x".repeat(600));
        let ignore = limited(brackets);
        let files = (0..1_000).take_while(|_| ignore.excludes(&name) == Some(false)).count();
        assert!((3..500).contains(&files), "{files}");
    }

    #[test]
    fn patterns_mean_what_they_mean_in_flux() {
        check(
            &[],
            "/*\n!/deploy\n/deploy/**/*.md",
            &["a", "b/c", "deploy/x/y.md"],
            &["deploy/a.yaml", "deploy/x/y"],
        );
        check(&[], "deploy/", &["deploy/a", "x/deploy/a"], &["deploy", "x/deploy"]);
        check(&[], "a/b", &["a/b", "a/b/c"], &["x/a/b", "a/bb"]);
        check(&[], "/a", &["a", "a/b"], &["x/a"]);
        check(&[], "**/test", &["test", "a/test", "a/b/test/c"], &["tests"]);
        check(&[], "a/**", &["a/b", "a/b/c", "a"], &["b"]);
        check(&[], "a/**/z", &["a/z", "a/b/z", "a/b/c/z"], &["a/b"]);
        check(
            &[],
            "[a-c]?.ya*ml",
            &["b1.yaml", "cx.yml".replace("yml", "yaXml").as_str()],
            &["d1.yaml", "b.yaml"],
        );
        check(&[], "[^a]x", &["bx"], &["ax"]);
        check(&[], "\\#x\n\\!y\nz\\ ", &["#x", "!y", "z "], &["x", "y", "z"]);
        check(&[], "[", &[], &["[", "a"]);
        check(
            &[],
            "*a*a*a*a*a*a*a*a*a*a*b",
            &[],
            &["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],
        );
    }

    #[test]
    fn ignore_files_cover_their_folder_and_spec_overrides_them() {
        check(
            &[("", "*.md"), ("sub", "!keep.md\n/x")],
            "",
            &["a.md", "sub/b.md", "sub/x"],
            &["sub/keep.md", "x"],
        );
        check(&[("", "*.md")], "!a.md", &["b.md"], &["a.md"]);
    }

    /// Compares every pattern × path with the recorded answers of the real implementation.
    #[test]
    fn answers_are_those_of_the_real_one() {
        let recorded: Recorded = serde_json::from_str(include_str!("../tests/data/ignore.json")).unwrap();
        let mut wrong = Vec::new();
        for case in recorded.cases {
            let ignore = Ignore::new(&case.files, Some(&case.spec));
            let excluded: Vec<&String> = recorded
                .paths
                .iter()
                .filter(|path| ignore.excludes(path).unwrap())
                .collect();
            if excluded != case.excluded.iter().collect::<Vec<_>>() {
                let surplus: Vec<_> = excluded.iter().filter(|path| !case.excluded.contains(path)).collect();
                let missing: Vec<_> = case.excluded.iter().filter(|path| !excluded.contains(path)).collect();
                wrong.push(format!(
                    "{:?} {:?}: too many {surplus:?}, too few {missing:?}",
                    case.files, case.spec
                ));
            }
        }
        assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
    }

    #[derive(serde::Deserialize)]
    struct Recorded {
        paths: Vec<String>,
        cases: Vec<Case>,
    }

    #[derive(serde::Deserialize)]
    struct Case {
        #[serde(default)]
        files: Vec<(String, String)>,
        spec: String,
        excluded: Vec<String>,
    }
}
