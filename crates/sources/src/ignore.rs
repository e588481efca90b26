//! Which files of a commit stay out of its artifact.
//!
//! Owns Flux's default patterns, `.sourceignore` and `spec.ignore`, with the meaning that source-controller gives them: the
//! last pattern that matches a file or a folder above it decides, also below a folder that is excluded. When any pattern is
//! given, of the defaults only those for Git's own files remain. Matching never backtracks more than once per `*`, so no
//! pattern can burn time.

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

/// The file in any folder of a repository that holds patterns for it and everything below.
pub(crate) const IGNORE_FILE: &str = ".sourceignore";

/// A pattern, and the folder it applies to.
#[derive(Debug, Clone)]
struct Pattern {
    folder: Vec<String>,
    parts: Vec<String>,
    include: bool,
    folders_only: bool,
    /// It holds a slash and is matched from the folder on; else any part of a path can match.
    anchored: bool,
}

/// The patterns of a source, weakest first.
#[derive(Debug, Clone)]
pub(crate) struct Ignore {
    patterns: Vec<Pattern>,
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
            .filter_map(|line| pattern(line, ""))
            .collect();
        patterns.append(&mut given);
        Self { patterns }
    }

    /// Whether a file stays out.
    pub(crate) fn excludes(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').collect();
        self.patterns
            .iter()
            .rev()
            .find(|pattern| pattern.matches(&parts))
            .is_some_and(|pattern| !pattern.include)
    }
}

fn read<'a>(text: &'a str, folder: &'a str) -> impl Iterator<Item = Pattern> + 'a {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .filter_map(|line| pattern(line, folder))
}

fn pattern(line: &str, folder: &str) -> Option<Pattern> {
    let line = line.trim_end_matches('\r');
    let (include, line) = match line.strip_prefix('!') {
        Some(line) => (true, line),
        None => (false, line),
    };
    // Spaces at the end count only behind a backslash.
    let line = if line.ends_with("\\ ") {
        line
    } else {
        line.trim_end_matches(' ')
    };
    let (folders_only, line) = match line.strip_suffix('/') {
        Some(line) => (true, line),
        None => (false, line),
    };
    let anchored = line.contains('/');
    let line = line.strip_prefix('/').unwrap_or(line);
    if line.is_empty() {
        return None;
    }
    let parts = line.split('/').map(str::to_owned).collect();
    let folder = if folder.is_empty() {
        Vec::new()
    } else {
        folder.split('/').map(str::to_owned).collect()
    };
    Some(Pattern {
        folder,
        parts,
        include,
        folders_only,
        anchored,
    })
}

impl Pattern {
    fn matches(&self, path: &[&str]) -> bool {
        let Some((folder, path)) = path.split_at_checked(self.folder.len()) else {
            return false;
        };
        if path.is_empty() || !folder.iter().zip(&self.folder).all(|(a, b)| a == b) {
            return false;
        }
        // The last part is the file itself, all before it are folders.
        let last = if self.folders_only { path.len() - 1 } else { path.len() };
        if self.anchored {
            (1..=last).any(|end| path.get(..end).is_some_and(|path| match_parts(&self.parts, path)))
        } else {
            let Some(name) = self.parts.first() else { return false };
            path.iter().take(last).any(|part| match_part(name, part))
        }
    }
}

/// Matches whole paths, where `**` stands for any number of parts; at the end of a pattern for at least one.
fn match_parts(pattern: &[String], path: &[&str]) -> bool {
    let (mut at, mut in_path) = (0_usize, 0_usize);
    let mut star: Option<(usize, usize)> = None;
    loop {
        match (pattern.get(at).map(String::as_str), path.get(in_path)) {
            (None, None) => return true,
            (Some("**"), _) => {
                if at + 1 == pattern.len() {
                    return in_path < path.len();
                }
                star = Some((at + 1, in_path));
                at += 1;
                continue;
            }
            (Some(part), Some(name)) if match_part(part, name) => {
                at += 1;
                in_path += 1;
                continue;
            }
            _ => {}
        }
        match star {
            Some((after, from)) if from < path.len() => {
                star = Some((after, from + 1));
                at = after;
                in_path = from + 1;
            }
            _ => return false,
        }
    }
}

/// Matches one part: `*`, `?`, `[a-z]`, `[!a]` and backslash. A malformed pattern matches nothing.
fn match_part(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut in_name) = (0_usize, 0_usize);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if at == pattern.len() && in_name == name.len() {
            return true;
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

/// Matches one character; returns how much of the pattern that took.
fn match_one(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '\\' => (*pattern.get(1)? == c).then_some(2),
        '[' => {
            let mut at = 1;
            let negated = matches!(pattern.get(at), Some('!' | '^'));
            if negated {
                at += 1;
            }
            let first = at;
            let mut found = false;
            loop {
                let mut low = *pattern.get(at)?;
                if low == ']' && at > first {
                    return (found != negated).then_some(at + 1);
                }
                if low == '\\' {
                    at += 1;
                    low = *pattern.get(at)?;
                }
                at += 1;
                let mut high = low;
                if pattern.get(at) == Some(&'-') && pattern.get(at + 1).is_some_and(|c| *c != ']') {
                    high = *pattern.get(at + 1)?;
                    at += 2;
                    if high == '\\' {
                        high = *pattern.get(at)?;
                        at += 1;
                    }
                }
                found |= (low..=high).contains(&c);
            }
        }
        literal => (*literal == c).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::Ignore;

    fn check(files: &[(&str, &str)], spec: &str, excluded: &[&str], kept: &[&str]) {
        let files: Vec<(String, String)> = files
            .iter()
            .map(|(folder, text)| ((*folder).to_owned(), (*text).to_owned()))
            .collect();
        let ignore = Ignore::new(&files, Some(spec));
        for path in excluded {
            assert!(ignore.excludes(path), "{path} must be excluded by {files:?} {spec:?}");
        }
        for path in kept {
            assert!(!ignore.excludes(path), "{path} must be kept by {files:?} {spec:?}");
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
        check(&[], "a/**", &["a/b", "a/b/c"], &["a", "b"]);
        check(&[], "a/**/z", &["a/z", "a/b/z", "a/b/c/z"], &["a/b"]);
        check(
            &[],
            "[a-c]?.ya*ml",
            &["b1.yaml", "cx.yml".replace("yml", "yaXml").as_str()],
            &["d1.yaml", "b.yaml"],
        );
        check(&[], "[!a]x", &["bx"], &["ax"]);
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
    fn files_of_patterns_apply_to_their_folder_and_spec_comes_last() {
        check(
            &[("", "*.md"), ("sub", "!keep.md\n/x")],
            "",
            &["a.md", "sub/b.md", "sub/x"],
            &["sub/keep.md", "x"],
        );
        check(&[("", "*.md")], "!a.md", &["b.md"], &["a.md"]);
    }
}
