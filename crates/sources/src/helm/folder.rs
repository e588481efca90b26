//! A chart in the files of another source: its folder, links resolved, without what `.helmignore` names, and with the charts of the same source that it needs. Pure.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::archive::{
    ArchiveError, ChartFile, ChartTree, FILE_BYTES, LONGEST_PATH, MOST_FILES, UNPACKED_BYTES, check_archive,
    read_archive, read_metadata,
};
use super::error::ChartError;
use super::ignore::HelmIgnore;
use super::metadata::{CHART_FILE, Dependency, Metadata, read_lenient_version};
use crate::fetch_budgets::GrowingCharge;
use crate::limits::describe_bytes;
use crate::tree::{Entry, Node, Tree};

/// Links in the way of one path.
const MOST_LINKS: usize = 40;
/// Folders in folders.
const MOST_DEPTH: usize = 64;

/// A chart as the source has it.
pub(super) enum FoundChart {
    /// A packaged chart.
    Archive(bytes::Bytes),
    Folder(ChartTree),
}

/// The files of a source, from which charts are read.
pub(super) struct ChartReader<'a> {
    pub(super) tree: &'a Tree,
    pub(super) cancelled: &'a std::sync::atomic::AtomicBool,
    /// The charge for files of packaged charts. Other files are in the tree's memory.
    pub(super) memory: RefCell<GrowingCharge>,
}

/// The files of one folder while they are collected.
struct Walk {
    files: ChartTree,
    ignore: HelmIgnore,
    visited: usize,
    bytes: u64,
}

impl ChartReader<'_> {
    /// Reads the chart at a path of the source.
    pub(super) fn read_chart(&self, path: &str) -> Result<FoundChart, ChartError> {
        let missing = || ChartError::Reference(format!("no chart found at path '{path}' of the source"));
        let real = self.resolve("", path).ok_or_else(missing)?;
        match self.tree.entry(&real) {
            Some(Entry::File(_)) => match self.tree.node(&real) {
                Some(Node::File(content)) => Ok(FoundChart::Archive(content.clone())),
                _ => Err(missing()),
            },
            Some(Entry::Directory) => self.read_folder(&real).map(FoundChart::Folder),
            Some(Entry::Link(_)) | None => Err(missing()),
        }
    }

    /// Returns the content of a file of the source; `None` if there is no such file.
    pub(super) fn read_file(&self, path: &str) -> Option<bytes::Bytes> {
        match self.tree.node(&self.resolve("", path)?)? {
            Node::File(content) => Some(content.clone()),
            Node::Link(_) => None,
        }
    }

    /// Adds the charts that a chart needs and doesn't have. Returns the number of added charts.
    pub(super) fn add_dependencies(
        &self,
        path: &str,
        files: &mut ChartTree,
        metadata: &Metadata,
    ) -> Result<usize, ChartError> {
        let existing = self.list_existing(files).map_err(ChartError::Dependency)?;
        if existing.len() == metadata.dependencies.len() {
            return Ok(0);
        }
        let is_missing = |needed: &&Dependency| !existing.iter().any(|name| name == needed.inner_name());
        let missing: Vec<&Dependency> = metadata.dependencies.iter().filter(is_missing).collect();
        for needed in &missing {
            self.add_dependency(path, files, needed)?;
        }
        Ok(missing.len())
    }

    /// Reads all files of a packaged chart.
    pub(super) fn unpack(&self, archive: &[u8]) -> Result<ChartTree, ArchiveError> {
        read_archive(archive, self.cancelled, &mut self.memory.borrow_mut())
    }

    /// Lists the names of the charts in `charts/`.
    fn list_existing(&self, files: &ChartTree) -> Result<Vec<String>, String> {
        let mut names = Vec::new();
        for (path, file) in files {
            let Some(inner) = path.strip_prefix("charts/") else {
                continue;
            };
            if inner.starts_with(['_', '.']) {
                continue;
            }
            let metadata = match inner.split_once('/') {
                Some((_, rest)) if rest == CHART_FILE => Metadata::read(&file.content),
                None if inner.ends_with(".tgz") => check_archive(file.content.as_ref(), self.cancelled),
                _ => continue,
            };
            names.push(metadata.map_err(|problem| format!("'{path}': {problem}"))?.name);
        }
        Ok(names)
    }

    fn add_dependency(&self, path: &str, files: &mut ChartTree, needed: &Dependency) -> Result<(), ChartError> {
        let name = needed.inner_name();
        let failed =
            |problem: String| ChartError::Dependency(format!("failed to add local dependency '{name}': {problem}"));
        let local = match needed.repository.as_str() {
            "" => format!("charts/{}", needed.name),
            repository => match repository.strip_prefix("file://") {
                Some(local) => local.to_owned(),
                None => {
                    return Err(ChartError::Dependency(format!(
                        "failed to add remote dependency '{name}': charts of other repositories are not fetched for a chart in a {}: run 'helm dependency build' and commit the folder charts",
                        "GitRepository or Bucket"
                    )));
                }
            },
        };
        let missing = || {
            failed(format!(
                "no chart found at '{local}' (reference '{}')",
                needed.repository
            ))
        };
        let real = self.resolve(path, &local).ok_or_else(missing)?;
        let mut found = match self.read_chart(&real).map_err(|_| missing())? {
            FoundChart::Folder(files) => files,
            FoundChart::Archive(archive) => self.unpack(&archive).map_err(|error| error.explain(failed))?,
        };
        let metadata = read_metadata(&found).map_err(failed)?;
        let range: go_words::version::Range = needed.version.parse().map_err(|error| {
            failed(format!(
                "invalid version/constraint format '{}': {error}",
                needed.version
            ))
        })?;
        if !read_lenient_version(&metadata.version).is_some_and(|version| range.matches(&version)) {
            return Err(failed(format!(
                "can't get a valid version for constraint '{}'",
                needed.version
            )));
        }
        if needed.alias.is_some() {
            let renamed = ChartFile {
                content: metadata.write(name, &metadata.version).into(),
                is_executable: false,
            };
            found.insert(CHART_FILE.to_owned(), renamed);
        }
        let added = found
            .into_iter()
            .map(|(path, file)| (format!("charts/{name}/{path}"), file));
        files.extend(added);
        check_size(files).map_err(failed)
    }

    /// Reads all files of a folder.
    fn read_folder(&self, folder: &str) -> Result<ChartTree, ChartError> {
        let ignore = match self
            .resolve(folder, ".helmignore")
            .and_then(|path| self.tree.node(&path))
        {
            Some(Node::File(content)) => String::from_utf8_lossy(content).into_owned(),
            _ => String::new(),
        };
        let mut walk = Walk {
            files: BTreeMap::new(),
            ignore: HelmIgnore::read(&ignore).map_err(ChartError::Package)?,
            visited: 0,
            bytes: 0,
        };
        self.walk(&mut walk, folder, "", 0).map_err(ChartError::Package)?;
        Ok(walk.files)
    }

    fn walk(&self, walk: &mut Walk, folder: &str, shown: &str, depth: usize) -> Result<(), String> {
        if depth > MOST_DEPTH {
            return Err(format!(
                "'{shown}': folders are more than {MOST_DEPTH} deep, or a link leads back"
            ));
        }
        for name in self.tree.list(folder) {
            walk.visited += 1;
            if walk.visited > MOST_FILES {
                return Err(format!("the chart has more than {MOST_FILES} files"));
            }
            let path = join(shown, name);
            if path.len() > LONGEST_PATH {
                return Err(format!("a path is longer than {LONGEST_PATH} bytes"));
            }
            let real = join(folder, name);
            let real = match self.tree.entry(&real) {
                Some(Entry::Link(_)) => self
                    .resolve("", &real)
                    .ok_or_else(|| format!("the link '{path}' leads to nothing in the source"))?,
                _ => real,
            };
            let is_folder = matches!(self.tree.entry(&real), Some(Entry::Directory));
            let excluded = walk.ignore.excludes(&path, is_folder);
            if excluded.map_err(|_| ".helmignore takes too much work for so many files".to_owned())? {
                continue;
            }
            match self.tree.node(&real) {
                None => self.walk(walk, &real, &path, depth + 1)?,
                Some(Node::File(content)) => {
                    walk.add_file(path, content.clone(), self.tree.is_executable(&real))?;
                }
                Some(Node::Link(_)) => return Err(format!("the link '{path}' leads to nothing in the source")),
            }
        }
        Ok(())
    }

    /// Resolves a path from a folder, following links. A path never leaves the source: `..` at the root stays there.
    fn resolve(&self, folder: &str, path: &str) -> Option<String> {
        let mut parts: Vec<String> = split(folder).map(str::to_owned).collect();
        let mut waiting: Vec<String> = split(path).map(str::to_owned).collect();
        waiting.reverse();
        let mut links = 0;
        while let Some(part) = waiting.pop() {
            if part == ".." {
                parts.pop();
                continue;
            }
            parts.push(part);
            let at = parts.join("/");
            if at.len() > LONGEST_PATH {
                return None;
            }
            match self.tree.entry(&at)? {
                Entry::Link(target) => {
                    links += 1;
                    if links > MOST_LINKS || target.len() > LONGEST_PATH {
                        return None;
                    }
                    parts.pop();
                    if target.starts_with('/') {
                        parts.clear();
                    }
                    waiting.extend(split(target).map(str::to_owned).collect::<Vec<_>>().into_iter().rev());
                }
                Entry::File(_) | Entry::Directory => {}
            }
        }
        Some(parts.join("/"))
    }
}

impl Walk {
    fn add_file(&mut self, path: String, content: bytes::Bytes, is_executable: bool) -> Result<(), String> {
        let size = content.len() as u64;
        if size > FILE_BYTES {
            return Err(format!("'{path}' is larger than {}", describe_bytes(FILE_BYTES)));
        }
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > UNPACKED_BYTES {
            return Err(format!("the chart has more than {}", describe_bytes(UNPACKED_BYTES)));
        }
        self.files.insert(path, ChartFile { content, is_executable });
        Ok(())
    }
}

/// Checks that a chart with its dependencies is not too large.
fn check_size(files: &ChartTree) -> Result<(), String> {
    let bytes: u64 = files.values().map(|file| file.content.len() as u64).sum();
    if bytes > UNPACKED_BYTES || files.len() > MOST_FILES {
        let limit = describe_bytes(UNPACKED_BYTES);
        return Err(format!(
            "the chart has more than {limit}, or more than {MOST_FILES} files"
        ));
    }
    Ok(())
}

fn split(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !matches!(*part, "" | "."))
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

#[cfg(test)]
mod tests;
