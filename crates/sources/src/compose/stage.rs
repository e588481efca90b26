//! The files of an artifact during composing: each copy has the meaning of `cp`. Pure.
//!
//! No path is both a file and a folder. Symbolic links are refused: their targets are not in the artifact that the links would be copied to.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use tenure_remote_requests::composition::{Copy, Recipe, Strategy};

use super::ComposeError;
use crate::fetch_budgets::GrowingCharge;
use crate::glob::{Glob, Steps, TooMuchWork, is_pattern};
use crate::limits::{Limits, describe_bytes};
use crate::tar_reader::{TarError, TarKind, TarReader};
use crate::tree::{Entry, Node, Tree, check_path};
use crate::yaml_merge;

/// Bytes that a file is charged besides its path and content.
const ENTRY: u64 = 160;

/// The content and mode of a file of the composed artifact.
#[derive(Debug, Clone)]
pub(super) struct Staged {
    pub(super) content: Bytes,
    pub(super) is_executable: bool,
}

/// The files of an artifact while it is composed, with the sources that they come from and the bounds.
pub(super) struct Stage<'a> {
    pub(super) files: BTreeMap<String, Staged>,
    sources: &'a BTreeMap<String, Tree>,
    limits: &'a Limits,
    memory: &'a mut GrowingCharge,
    cancelled: &'a AtomicBool,
    pub(super) steps: Steps,
    /// Bytes of all files that were copied, overwritten ones included.
    bytes: u64,
    /// Entries of all archives that were extracted.
    entries: u64,
}

impl From<TooMuchWork> for ComposeError {
    fn from(_: TooMuchWork) -> Self {
        Self::Invalid("its patterns take too much work for so many files".to_owned())
    }
}

/// A copy step of a recipe, with its compiled patterns of excluded files.
struct Copying<'c> {
    copy: &'c Copy,
    exclude: Vec<(Glob, bool)>,
    /// The parts of `from` before the first part with a pattern. A pattern of excluded files may be relative to this root.
    root: String,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        sources: &'a BTreeMap<String, Tree>,
        limits: &'a Limits,
        memory: &'a mut GrowingCharge,
        cancelled: &'a AtomicBool,
    ) -> Self {
        Self {
            files: BTreeMap::new(),
            sources,
            limits,
            memory,
            cancelled,
            steps: Steps::new(),
            bytes: 0,
            entries: 0,
        }
    }

    /// Executes all copies of a recipe, in order.
    pub(super) fn follow_recipe(&mut self, recipe: &Recipe) -> Result<(), ComposeError> {
        for copy in &recipe.copies {
            self.execute_copy(copy).map_err(|error| match error {
                ComposeError::Invalid(problem) => ComposeError::Invalid(format!(
                    "failed to apply copy operation from '@{}/{}' to '@artifact/{}': {problem}",
                    copy.alias, copy.from, copy.to
                )),
                error => error,
            })?;
        }
        Ok(())
    }

    /// Executes one copy of a recipe: a file, a folder, or all matches of a pattern.
    fn execute_copy(&mut self, copy: &Copy) -> Result<(), ComposeError> {
        let tree = self.sources.get(&copy.alias);
        let tree = tree.ok_or_else(|| ComposeError::Invalid(format!("source alias '{}' not found", copy.alias)))?;
        let read = |pattern: &String| {
            let glob = Glob::for_path(pattern).map_err(|problem| format!("invalid exclude pattern: {problem}"))?;
            Ok((glob, !pattern.contains('/')))
        };
        let exclude = copy
            .exclude
            .iter()
            .map(read)
            .collect::<Result<_, String>>()
            .map_err(ComposeError::Invalid)?;
        let is_glob = is_pattern(&copy.from);
        let root = if is_glob {
            let parts = copy.from.split('/').take_while(|part| !is_pattern(part));
            parts.collect::<Vec<_>>().join("/")
        } else {
            copy.from.clone()
        };
        let copying = Copying { copy, exclude, root };
        if is_glob {
            return self.copy_matching(tree, &copying);
        }
        match tree.entry(&copy.from) {
            None => Err(ComposeError::Invalid(format!("source '{}' does not exist", copy.from))),
            Some(Entry::Link(_)) => Err(refuse_link(&copy.from)),
            Some(Entry::Directory) if copy.strategy == Strategy::Extract => Err(ComposeError::Invalid(format!(
                "extract strategy is not supported for directories, got '{}'",
                copy.from
            ))),
            // A folder keeps its name; the root has no name.
            Some(Entry::Directory) => {
                let to = join_path(&copy.to, name_of(&copy.from));
                self.copy_folder(tree, &copying, &copy.from, &to)
            }
            Some(Entry::File(content)) => self.copy_single(tree, &copying, content),
        }
    }

    /// Copies a file that the copy names.
    fn copy_single(&mut self, tree: &Tree, copying: &Copying<'_>, content: &[u8]) -> Result<(), ComposeError> {
        let copy = copying.copy;
        if self.is_excluded(&copying.exclude, &copy.from, "")? {
            return Ok(());
        }
        if copy.strategy == Strategy::Extract {
            if !is_archive(&copy.from) {
                return Err(ComposeError::Invalid(format!(
                    "extract strategy requires tarball file (.tar.gz or .tgz), got '{}'",
                    copy.from
                )));
            }
            return self.extract_archive(&copy.from, content, &copy.to);
        }
        let to = if copy.into_folder || self.is_folder(&copy.to) {
            join_path(&copy.to, name_of(&copy.from))
        } else {
            copy.to.clone()
        };
        self.stage_source_file(tree, copy.strategy, &copy.from, to)
    }

    /// Copies all files below a folder.
    fn copy_folder(&mut self, tree: &Tree, copying: &Copying<'_>, folder: &str, to: &str) -> Result<(), ComposeError> {
        // An excluded folder excludes all paths below it. Paths are sorted, so these come directly after it.
        let mut left_out: Option<String> = None;
        let mut kept = String::new();
        for path in list_below(tree, folder) {
            if left_out.as_deref().is_some_and(|out| is_below(path, out)) {
                continue;
            }
            self.steps.take_steps(path.len())?;
            if let Some(out) = self.find_excluded(copying, folder, path, &mut kept)? {
                left_out = Some(out);
                continue;
            }
            let inner = if folder.is_empty() {
                path
            } else {
                path.get(folder.len() + 1..).unwrap_or_default()
            };
            self.stage_source_file(tree, copying.copy.strategy, path, join_path(to, inner))?;
        }
        Ok(())
    }

    /// Returns the first excluded one of a path and its parent folders below `folder`. `kept` is the last folder that was found not to be excluded.
    fn find_excluded(
        &self,
        copying: &Copying<'_>,
        folder: &str,
        path: &str,
        kept: &mut String,
    ) -> Result<Option<String>, ComposeError> {
        if copying.exclude.is_empty() {
            return Ok(None);
        }
        let begin = if folder.is_empty() { 0 } else { folder.len() + 1 };
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > begin);
        for end in ends.chain([path.len()]) {
            let step = path.get(..end).unwrap_or_default();
            if !kept.is_empty() && (kept == step || is_below(kept, step)) {
                continue;
            }
            if self.is_excluded(&copying.exclude, step, &copying.root)? {
                return Ok(Some(step.to_owned()));
            }
        }
        path.rsplit_once('/').map_or("", |(parent, _)| parent).clone_into(kept);
        Ok(None)
    }

    /// Copies the files and folders that match a pattern, except excluded ones. Fails if there are none.
    fn copy_matching(&mut self, tree: &Tree, copying: &Copying<'_>) -> Result<(), ComposeError> {
        let copy = copying.copy;
        let matches = if copy.strategy == Strategy::Extract {
            self.match_files(tree, &copy.from)?
        } else {
            self.match_parts(tree, &copy.from)?
        };
        if matches.is_empty() {
            return Err(ComposeError::Invalid(format!(
                "no files match pattern '{}' in source '{}'",
                copy.from, copy.alias
            )));
        }
        let mut kept = Vec::with_capacity(matches.len());
        for path in matches {
            if !self.is_excluded(&copying.exclude, &path, &copying.root)? {
                kept.push(path);
            }
        }
        if kept.is_empty() {
            return Err(ComposeError::Invalid(format!(
                "all files matching pattern '{}' in source '{}' were excluded",
                copy.from, copy.alias
            )));
        }
        for path in kept {
            match (tree.entry(&path), copy.strategy) {
                (Some(Entry::File(content)), Strategy::Extract) if is_archive(&path) => {
                    self.extract_archive(&path, content, &copy.to)?;
                }
                (_, Strategy::Extract) | (None, _) => {}
                (Some(Entry::Link(_)), _) => return Err(refuse_link(&path)),
                (Some(Entry::File(_)), strategy) => {
                    let to = join_path(&copy.to, place_match(&copy.from, &path));
                    self.stage_source_file(tree, strategy, &path, to)?;
                }
                (Some(Entry::Directory), _) => {
                    let to = join_path(&copy.to, place_match(&copy.from, &path));
                    self.copy_folder(tree, copying, &path, &to)?;
                }
            }
        }
        Ok(())
    }

    /// Lists the files and folders that a pattern matches part by part, as Go's `fs.Glob` does: a `**` also matches exactly one part.
    fn match_parts(&self, tree: &Tree, pattern: &str) -> Result<Vec<String>, ComposeError> {
        let parts = pattern.split('/').map(Glob::for_part);
        let parts: Vec<Glob> = parts.collect::<Result<_, _>>().map_err(ComposeError::Invalid)?;
        let mut found: Vec<String> = Vec::new();
        let mut looked_at = String::new();
        for (path, _) in tree.iter() {
            self.check_cancelled()?;
            // Take as many parts of the path as the pattern has.
            let mut ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            let Some(end) = ends.nth(parts.len() - 1) else {
                continue;
            };
            let candidate = path.get(..end).unwrap_or_default();
            // Paths below one folder are adjacent.
            if candidate == looked_at {
                continue;
            }
            candidate.clone_into(&mut looked_at);
            let mut matches = true;
            for (part, name) in parts.iter().zip(candidate.split('/')) {
                if !part.matches(name, &self.steps)? {
                    matches = false;
                    break;
                }
            }
            if matches {
                found.push(candidate.to_owned());
            }
        }
        found.sort_by(|one, other| one.split('/').cmp(other.split('/')));
        found.dedup();
        Ok(found)
    }

    /// Lists the files whose whole path matches a pattern.
    fn match_files(&self, tree: &Tree, pattern: &str) -> Result<Vec<String>, ComposeError> {
        let glob = Glob::for_path(pattern).map_err(ComposeError::Invalid)?;
        let mut found = Vec::new();
        for (path, node) in tree.iter() {
            self.check_cancelled()?;
            if glob.matches(path, &self.steps)? {
                if matches!(node, Node::Link(_)) && is_archive(path) {
                    return Err(refuse_link(path));
                }
                found.push(path.to_owned());
            }
        }
        Ok(found)
    }

    /// Checks whether a path is excluded: by the whole path, by its name if a pattern is a name, or relative to the root of the copy.
    fn is_excluded(&self, exclude: &[(Glob, bool)], path: &str, root: &str) -> Result<bool, ComposeError> {
        let inner = if root.is_empty() {
            None
        } else {
            path.strip_prefix(root).and_then(|inner| inner.strip_prefix('/'))
        };
        let tried = [Some(path), inner];
        for (glob, is_name) in exclude {
            for text in tried.into_iter().flatten() {
                if glob.matches(text, &self.steps)? || (*is_name && glob.matches(name_of(text), &self.steps)?) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Adds a file of a source to the artifact at the path `to`, by the copy's strategy.
    fn stage_source_file(
        &mut self,
        tree: &Tree,
        strategy: Strategy,
        from: &str,
        to: String,
    ) -> Result<(), ComposeError> {
        let content = match tree.node(from) {
            Some(Node::File(content)) => content.clone(),
            Some(Node::Link(_)) => return Err(refuse_link(from)),
            None => return Ok(()),
        };
        let staged = match (strategy, self.files.get(&to)) {
            (Strategy::Merge, Some(there)) => {
                let merged = yaml_merge::merge_documents(&there.content, &content);
                let merged =
                    merged.map_err(|problem| ComposeError::Invalid(format!("'{from}' into '{to}': {problem}")))?;
                self.memory
                    .add_blocking(merged.len() as u64)
                    .map_err(ComposeError::OverBudget)?;
                Staged {
                    content: merged.into(),
                    is_executable: false,
                }
            }
            _ => Staged {
                content,
                is_executable: tree.is_executable(from),
            },
        };
        self.stage_file(to, staged)
    }

    /// Stores a file at a path of the artifact, within the bounds.
    fn stage_file(&mut self, to: String, staged: Staged) -> Result<(), ComposeError> {
        self.check_cancelled()?;
        check_path(&to, self.limits).map_err(|problem| ComposeError::Invalid(format!("the path {to:?} {problem}")))?;
        self.memory
            .add_blocking(to.len() as u64 + ENTRY)
            .map_err(ComposeError::OverBudget)?;
        self.bytes = self.bytes.saturating_add(staged.content.len() as u64);
        let too_large = |what, limit| Err(ComposeError::TooLarge { what, limit });
        // An overwritten file counts as well, because copying it was work.
        if self.bytes > self.limits.unpacked_bytes.saturating_mul(4) {
            return too_large(
                "bytes that are copied",
                describe_bytes(self.limits.unpacked_bytes.saturating_mul(4)),
            );
        }
        if self.files.len() >= self.limits.files as usize {
            return too_large("files", self.limits.files.to_string());
        }
        if self.is_folder(&to) {
            return Err(ComposeError::Invalid(format!(
                "{to:?} is a folder already, and can't become a file"
            )));
        }
        let mut above = to.as_str();
        while let Some((folder, _)) = above.rsplit_once('/') {
            if self.files.contains_key(folder) {
                return Err(ComposeError::Invalid(format!(
                    "{folder:?} is a file already, and can't become a folder"
                )));
            }
            above = folder;
        }
        self.files.insert(to, staged);
        Ok(())
    }

    fn is_folder(&self, path: &str) -> bool {
        let below = format!("{path}/");
        path.is_empty()
            || self
                .files
                .range(below.clone()..)
                .next()
                .is_some_and(|(found, _)| found.starts_with(&below))
    }

    /// Adds the files inside an archive to the artifact, below the path `to`.
    fn extract_archive(&mut self, archive: &str, content: &[u8], to: &str) -> Result<(), ComposeError> {
        let invalid =
            |problem: String| ComposeError::Invalid(format!("failed to extract tarball '{archive}': {problem}"));
        // Headers and padding come on top of the files.
        let overhead = u64::from(self.limits.files).saturating_mul(1536);
        let bound = self.limits.unpacked_bytes.saturating_add(overhead);
        let failed = |left: u64, error: TarError| match error {
            // The archive is cut off at the bound.
            _ if left == 0 => invalid(format!("it unpacks to more than {bound} bytes")),
            TarError::Invalid(problem) => invalid(problem),
            TarError::Io(error) => invalid(error.to_string()),
        };
        let mut reader = TarReader::new(MultiGzDecoder::new(content).take(bound));
        loop {
            self.check_cancelled()?;
            let next = reader.next();
            let Some(entry) = next.map_err(|error| failed(reader.inner().limit(), error))? else {
                return Ok(());
            };
            self.entries += 1;
            if self.entries > u64::from(self.limits.files) {
                return Err(ComposeError::TooLarge {
                    what: "entries of all archives that are extracted",
                    limit: self.limits.files.to_string(),
                });
            }
            let (size, is_executable) = match entry.kind {
                TarKind::Folder => continue,
                TarKind::Link(_) => return Err(invalid(format!("{:?} is a symbolic link", entry.path))),
                TarKind::File { size, is_executable } => (size, is_executable),
            };
            check_path(&entry.path, self.limits)
                .map_err(|problem| invalid(format!("the path {:?} {problem}", entry.path)))?;
            if size > self.limits.file_bytes {
                return Err(ComposeError::TooLarge {
                    what: "bytes of one file",
                    limit: describe_bytes(self.limits.file_bytes),
                });
            }
            self.memory.add_blocking(size).map_err(ComposeError::OverBudget)?;
            let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
            let read = reader.read_to_end(&mut bytes);
            read.map_err(|error| failed(reader.inner().limit(), error.into()))?;
            let staged = Staged {
                content: bytes.into(),
                is_executable,
            };
            self.stage_file(join_path(to, &entry.path), staged)?;
        }
    }

    fn check_cancelled(&self) -> Result<(), ComposeError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(ComposeError::Cancelled);
        }
        Ok(())
    }
}

fn refuse_link(path: &str) -> ComposeError {
    ComposeError::Invalid(format!(
        "'{path}' is a symbolic link, which can't be copied: name what it leads to, or leave it out by exclude"
    ))
}

/// Returns the place of a match below the target. A pattern that ends with `/**` removes the part before that.
fn place_match<'m>(pattern: &str, path: &'m str) -> &'m str {
    let folder = pattern.strip_suffix("/**");
    let inner = folder.and_then(|folder| path.strip_prefix(folder)?.strip_prefix('/'));
    inner.unwrap_or(path)
}

fn is_archive(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    path.ends_with(".tar.gz") || path.ends_with(".tgz")
}

fn join_path(folder: &str, inner: &str) -> String {
    match (folder, inner) {
        ("", inner) => inner.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, inner) => format!("{folder}/{inner}"),
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|inner| inner.starts_with('/'))
}

/// Lists all files and links below a folder, with their whole paths.
fn list_below<'t>(tree: &'t Tree, folder: &str) -> impl Iterator<Item = &'t str> + use<'t> {
    let prefix = if folder.is_empty() {
        String::new()
    } else {
        format!("{folder}/")
    };
    tree.iter_from(&prefix)
        .map(|(path, _)| path)
        .take_while(move |path| path.starts_with(&prefix))
}
