//! Builds the pages of `docs` as a book with mdbook, and checks the links and anchors of the built pages. Links that leave the book are changed to lead to the files of
//! the repository. `cargo xtask tidy` checks the links in the Markdown files, without a build and without anchors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{cargo, tidy};

/// The version of mdbook with which the book is known to build without warnings.
const VERSION: &str = "0.5.4";
/// Names the folder with mdbook.
const FOLDER: &str = "TENURE_MDBOOK";
const SOURCES: &str = "docs";
const SUMMARY: &str = "SUMMARY.md";
/// The folder of the book, as `book.toml` names it.
const BOOK: &str = "target/book";

/// Arguments of `cargo xtask docs`.
#[derive(Args)]
pub(crate) struct Docs {
    /// The address of the repository's files, to which links to files outside of the book lead, such as `https://git.example/tenure/blob/main`. Default: this checkout.
    #[arg(long, value_name = "ADDRESS")]
    repository: Option<String>,
}

impl Docs {
    /// Builds the book and checks it.
    ///
    /// # Errors
    /// When mdbook is missing, fails or warns, and when a page is not in the summary or a link leads nowhere.
    pub(crate) fn run(&self) -> Result<()> {
        let root = tidy::find_root();
        let mut findings = check_summary(&root.join(SOURCES))?;
        let book = root.join(BOOK);
        if book.exists() {
            fs::remove_dir_all(&book).with_context(|| format!("can't remove {}", book.display()))?;
        }
        findings.extend(build_pages()?);
        let mut pages = BTreeMap::new();
        for file in list_files(&book)?.into_iter().filter(|file| file.ends_with(".html")) {
            let text = fs::read_to_string(book.join(&file)).with_context(|| format!("can't read {file}"))?;
            pages.insert(file, text);
        }
        let checker = Checker::new(&root, &pages, self.repository.as_deref());
        for (name, text) in &pages {
            let (changed, wrong) = checker.check(name, text);
            findings.extend(wrong);
            if changed != *text {
                fs::write(book.join(name), changed).with_context(|| format!("can't write {name}"))?;
            }
        }
        if !findings.is_empty() {
            bail!("{} findings\n{}", findings.len(), findings.join("\n"));
        }
        writeln!(std::io::stdout(), "{} pages: {BOOK}/index.html", pages.len())?;
        Ok(())
    }
}

/// Runs mdbook, and returns its warnings.
fn build_pages() -> Result<Vec<String>> {
    let program = find_program(std::env::var_os(FOLDER).map(PathBuf::from), std::env::var_os("PATH"))?;
    let output = cargo::make_command(&program)
        .arg("build")
        .output()
        .with_context(|| format!("can't run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("mdbook build: {}\n{text}", output.status);
    }
    let is_warning = |line: &&str| line.contains("WARN") || line.contains("ERROR");
    Ok(text.lines().filter(is_warning).map(str::to_owned).collect())
}

/// Finds mdbook in the named folder, else in the folders of `PATH`.
fn find_program(folder: Option<PathBuf>, path: Option<std::ffi::OsString>) -> Result<PathBuf> {
    let path = path.unwrap_or_default();
    let folders = folder.into_iter().chain(std::env::split_paths(&path));
    let mut programs = folders.map(|folder| folder.join("mdbook"));
    let program = programs.find(|program| program.is_file()).with_context(|| {
        format!(
            "mdbook is missing in PATH, and in the folder that {FOLDER} names: cargo install mdbook --version {VERSION} --locked --no-default-features"
        )
    })?;
    // mdbook runs in the project's folder.
    Ok(std::path::absolute(program)?)
}

/// Checks that the summary has each page exactly once.
fn check_summary(sources: &Path) -> Result<Vec<String>> {
    let summary = fs::read_to_string(sources.join(SUMMARY)).context("docs/SUMMARY.md is missing")?;
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    for page in summary
        .lines()
        .filter_map(|line| line.split_once("](")?.1.strip_suffix(')'))
    {
        *listed.entry(page).or_default() += 1;
    }
    let mut findings = Vec::new();
    for (page, times) in &listed {
        if *times > 1 {
            findings.push(format!("{SOURCES}/{SUMMARY} names {page} {times} times"));
        }
        if !sources.join(page).is_file() {
            findings.push(format!("{SOURCES}/{SUMMARY} names {page}, which does not exist"));
        }
    }
    for file in list_files(sources)? {
        if file.ends_with(".md") && file != SUMMARY && !listed.contains_key(file.as_str()) {
            findings.push(format!("{SOURCES}/{file} is not in {SOURCES}/{SUMMARY}: add a line"));
        }
    }
    Ok(findings)
}

/// Lists the files below a folder, relative to it.
fn list_files(folder: &Path) -> Result<BTreeSet<String>> {
    let mut files = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(inner) = folders.pop() {
        let entries = fs::read_dir(folder.join(&inner)).with_context(|| format!("can't read {}", inner.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.to_string_lossy().into_owned());
            }
        }
    }
    Ok(files)
}

/// Checks the links of pages against the other pages of the book and the files of the repository.
struct Checker<'a> {
    root: &'a Path,
    /// The anchors of each page.
    anchors: BTreeMap<&'a str, BTreeSet<&'a str>>,
    repository: Option<&'a str>,
}

/// The target of a link in a page of the book, which decides whether the link is changed.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// A file of the book, or a page outside of the repository: the link stays.
    Kept,
    /// A file of the repository, with the anchor of the link.
    Source(String),
    /// Nothing; the problem.
    Missing(String),
}

impl<'a> Checker<'a> {
    fn new(root: &'a Path, pages: &'a BTreeMap<String, String>, repository: Option<&'a str>) -> Self {
        let anchors = |(name, text): (&'a String, &'a String)| (name.as_str(), list_values(text, " id=\"").collect());
        Self {
            root,
            anchors: pages.iter().map(anchors).collect(),
            repository,
        }
    }

    /// Returns the page with changed links, and its findings.
    fn check(&self, page: &str, text: &str) -> (String, Vec<String>) {
        let mut findings = Vec::new();
        let mut changed = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((attribute, at)) = find_link(rest) {
            let (before, from) = rest.split_at(at + attribute.len());
            let (link, after) = from.split_once('"').unwrap_or((from, ""));
            changed.push_str(before);
            match self.resolve(page, &link.replace("&amp;", "&")) {
                Target::Kept => changed.push_str(link),
                Target::Source(path) => changed.push_str(&self.address(page, &path)),
                Target::Missing(problem) => {
                    changed.push_str(link);
                    findings.push(format!("{page}: {problem}"));
                }
            }
            changed.push('"');
            rest = after;
        }
        changed.push_str(rest);
        (changed, findings)
    }

    fn resolve(&self, page: &str, link: &str) -> Target {
        if link.contains("://") || link.starts_with("mailto:") || link.starts_with("data:") {
            return Target::Kept;
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let inside = match path {
            "" => Some(page.to_owned()),
            path => join_path(page, path),
        };
        if let Some(inside) = &inside {
            if let Some(anchors) = self.anchors.get(inside.as_str()) {
                if anchor.is_empty() || anchors.contains(anchor) {
                    return Target::Kept;
                }
                return Target::Missing(format!("{link} leads to {inside}, which has no anchor {anchor}"));
            }
            if self.root.join(BOOK).join(inside).is_file() {
                return Target::Kept;
            }
        }
        // mdbook changes the ending of every link to a Markdown file.
        let source = join_path(&format!("{SOURCES}/{page}"), path);
        let markdown = source.as_deref().and_then(|source| source.strip_suffix(".html"));
        let markdown = markdown.map(|source| format!("{source}.md"));
        let found = source
            .into_iter()
            .chain(markdown)
            .find(|source| self.root.join(source).exists());
        let fragment = link.get(path.len()..).unwrap_or_default();
        match found {
            Some(found) => Target::Source(format!("{found}{fragment}")),
            None => Target::Missing(format!("{link} leads nowhere")),
        }
    }

    /// Returns the address of a file of the repository, for a link in a page.
    fn address(&self, page: &str, path: &str) -> String {
        match self.repository {
            Some(repository) => format!("{}/{path}", repository.trim_end_matches('/')),
            None => {
                let depth = BOOK.split('/').count() + page.matches('/').count();
                format!("{}{path}", "../".repeat(depth))
            }
        }
    }
}

/// Finds the next link: its attribute, and the place of the attribute.
fn find_link(text: &str) -> Option<(&'static str, usize)> {
    let found = [" href=\"", " src=\""].map(|attribute| Some((attribute, text.find(attribute)?)));
    found.into_iter().flatten().min_by_key(|(_, at)| *at)
}

/// Lists the values of an attribute.
fn list_values<'a>(text: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    text.split(attribute).skip(1).filter_map(|rest| rest.split('"').next())
}

/// Joins a relative link to the file that contains it. `None` if it leaves the root.
fn join_path(file: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_each_page_once() {
        let findings = check_summary(&tidy::find_root().join(SOURCES)).expect("a summary");
        assert!(findings.is_empty(), "{findings:#?}");
    }

    #[test]
    fn links_are_checked_and_lead_to_the_repository() {
        let root = tidy::find_root();
        let page = |id: &str| format!("<h2 id=\"{id}\">A</h2>");
        let pages = BTreeMap::from([
            ("index.html".to_owned(), page("a")),
            ("howto/first.html".to_owned(), page("b")),
        ]);
        let checker = Checker::new(&root, &pages, None);
        let check = |link: &str, want: &str| {
            let (text, findings) = checker.check(
                "howto/first.html",
                &format!("<a class=\"x\" href=\"{link}\">x</a> \"y\""),
            );
            if findings.is_empty() {
                assert_eq!(text, format!("<a class=\"x\" href=\"{want}\">x</a> \"y\""));
            } else {
                assert_eq!(findings, [format!("howto/first.html: {want}")]);
            }
        };
        check("#b", "#b");
        check("../index.html#a", "../index.html#a");
        check("https://kubernetes.io/docs#a", "https://kubernetes.io/docs#a");
        check("../../CONTRIBUTING.html#a", "../../../CONTRIBUTING.md#a");
        check("../../xtask/src/docs.rs", "../../../xtask/src/docs.rs");
        check("#c", "#c leads to howto/first.html, which has no anchor c");
        check("../missing.html", "../missing.html leads nowhere");
        check("../../../../missing", "../../../../missing leads nowhere");
    }

    #[test]
    fn published_links_lead_to_an_address() {
        let root = tidy::find_root();
        let pages = BTreeMap::new();
        let checker = Checker::new(&root, &pages, Some("https://git.example/tenure/"));
        let (text, findings) = checker.check("a/b.html", "<a href=\"../../Cargo.toml\">");
        assert_eq!(
            (text.as_str(), findings.len()),
            ("<a href=\"https://git.example/tenure/Cargo.toml\">", 0)
        );
    }

    #[test]
    fn missing_program_error_names_the_install_command() {
        let error = find_program(None, Some("/missing".into())).expect_err("an error");
        let words = ["cargo install mdbook --version", FOLDER];
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
}
