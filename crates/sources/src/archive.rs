//! Writes the archive of a commit: walks over the commit's trees in a pack and copies the blobs.
//!
//! An artifact holds regular files and symbolic links, sorted by path. Blobs go from the pack into the archive one at a time, without a working tree. Submodules are left
//! out, and files in Git LFS are pointers; a caller can request their lists.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::rc::Rc;

use crate::archive_writer::{ArchiveWriter, WriteError, Written};
use crate::budget::{BudgetLimits, OverBudget};
use crate::fetch_budgets::GrowingCharge;
use crate::git::modules;
use crate::git::object::{self, Mode};
use crate::git::oid::{Algorithm, Oid};
use crate::git::pack::{ObjectKind, Pack, PackError};
use crate::git::pointer_list::{PointerList, TooManyPointers};
use crate::ignore::{IGNORE_FILE, Ignore};
use crate::limits::{Limits, describe_bytes};
use crate::tree::check_path;

/// Bytes of all ignore files of a commit.
const IGNORE_BYTES: usize = 256 << 10;
/// Bytes of one ignore file.
const IGNORE_FILE_BYTES: u64 = 64 << 10;
/// The file that lists the addresses of submodules.
const MODULES_FILE: &str = ".gitmodules";
/// The file with settings for Git LFS, and its longest size in bytes.
pub(crate) const LFS_CONFIG_FILE: &str = ".lfsconfig";
const LFS_CONFIG_BYTES: u64 = 64 << 10;
/// A placeholder name for all files of a folder that is not read.
const ANY_FILE: &str = "\u{fffd}";
/// The most submodules that one commit may list, with or without an address.
const MOST_LINKS: usize = 1000;

/// Why a commit can't be made into an archive.
#[derive(Debug)]
pub(crate) enum ArchiveError {
    Pack(PackError),
    /// The path and what is wrong with it.
    InvalidTree(String),
    TooLarge {
        what: &'static str,
        limit: String,
    },
    /// A selected folder or file is missing in the commit.
    MissingFolder(String),
    /// A file of an included source or a submodule conflicts with another file, or can't be read.
    Misplaced(String),
    /// A budget has no capacity for the files, or for their list.
    OverBudget(OverBudget),
    /// The archive could not be written.
    Write(io::Error),
}

impl From<PackError> for ArchiveError {
    fn from(error: PackError) -> Self {
        Self::Pack(error)
    }
}

impl From<WriteError> for ArchiveError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Invalid(problem) => Self::InvalidTree(problem),
            WriteError::TooLarge { what, limit } => Self::TooLarge { what, limit },
            WriteError::OverBudget(refused) => Self::OverBudget(refused),
            WriteError::Io(error) => Self::Write(error),
        }
    }
}

/// The contents of all ignore files of an artifact, each with its folder.
#[derive(Default)]
pub(crate) struct IgnoreFiles {
    files: Vec<(String, String)>,
    bytes: usize,
}

impl IgnoreFiles {
    /// Refuses an ignore file that is too large.
    pub(crate) fn check_size(path: &str, size: u64) -> Result<(), ArchiveError> {
        if size > IGNORE_FILE_BYTES {
            return Err(ArchiveError::InvalidTree(format!("{path:?} is larger than 64 KiB")));
        }
        Ok(())
    }

    /// Adds an ignore file, within the bound of all ignore files together.
    pub(crate) fn add(&mut self, folder: &str, content: String) -> Result<(), ArchiveError> {
        self.bytes += content.len();
        if self.bytes > IGNORE_BYTES {
            return Err(ArchiveError::TooLarge {
                what: "bytes of all ignore files",
                limit: describe_bytes(IGNORE_BYTES as u64),
            });
        }
        self.files.push((folder.to_owned(), content));
        Ok(())
    }

    /// Returns the files so that patterns of an inner folder come after, and win over, patterns of outer folders.
    pub(crate) fn into_sorted(mut self) -> Vec<(String, String)> {
        self.files.sort();
        self.files
    }
}

impl From<TooManyPointers> for ArchiveError {
    fn from(_: TooManyPointers) -> Self {
        Self::TooLarge {
            what: TooManyPointers::WHAT,
            limit: TooManyPointers::limit(),
        }
    }
}

/// The files of a commit that go into its artifact.
#[derive(Clone, Copy)]
pub(crate) struct Selection<'a> {
    /// Folders or files to take; all if the list is empty.
    pub(crate) sparse: &'a [String],
    /// `None` if no file is excluded. `Some` if patterns exclude files: those of the repository's ignore files, and these of `spec.ignore`.
    pub(crate) ignoring: Option<Option<&'a str>>,
    /// Whether to list the submodules.
    pub(crate) submodules: bool,
}

/// The submodules of a commit: their paths and commits, and the text of `.gitmodules`.
#[derive(Debug, Default)]
pub(crate) struct Submodules {
    /// Their paths and commits.
    pub(crate) links: Vec<(String, Oid)>,
    /// The paths of submodules whose files are excluded by patterns.
    pub(crate) excluded: BTreeSet<String>,
    /// The content of `.gitmodules`.
    pub(crate) file: Option<String>,
}

/// A written archive, and the commit's submodules and Git LFS settings, whose content is not in the repository.
#[derive(Debug)]
pub(crate) struct Archived {
    pub(crate) written: Written,
    pub(crate) submodules: Submodules,
    pub(crate) lfs_config: LfsConfigFile,
}

/// The content of `.lfsconfig`, if there is one, or why it can't be read.
pub(crate) type LfsConfigFile = Option<Result<String, String>>;

/// The result of a walk over a commit's trees: its files, and the special files that other steps need.
struct WalkResult {
    files: Vec<FoundFile>,
    ignores: Vec<(String, String)>,
    submodules: Submodules,
    lfs_config: LfsConfigFile,
}

/// A file or symbolic link that the walk has found.
struct FoundFile {
    path: String,
    mode: Mode,
    oid: Oid,
    excluded: bool,
    /// A reason to refuse the file. It counts only if no pattern excludes the file.
    problem: Option<String>,
}

/// Writes the archive of a tree, and lists the pointers of Git LFS in it.
pub(crate) fn write_archive(
    pack: &mut Pack<'_>,
    tree: Oid,
    selection: Selection<'_>,
    limits: &Limits,
    (trees, memory): (&BudgetLimits, &mut GrowingCharge),
    mut pointers: Option<&mut PointerList>,
    out: impl Write,
) -> Result<Archived, ArchiveError> {
    let WalkResult {
        mut files,
        ignores,
        mut submodules,
        lfs_config,
    } = walk_tree(pack, tree, selection, limits, memory)?;
    if let Some(ignore) = selection.ignoring {
        let ignore = Ignore::new(&ignores, ignore);
        for (path, _) in &submodules.links {
            if ignore.excludes(&format!("{path}/{ANY_FILE}")) == Some(true) {
                submodules.excluded.insert(path.clone());
            }
        }
        for file in &mut files {
            pack.check()?;
            let excluded = ignore.excludes(&file.path);
            file.excluded = excluded.ok_or_else(|| {
                ArchiveError::InvalidTree("its ignore files take too much work for so many files".to_owned())
            })?;
        }
        files.retain(|file| !file.excluded);
    }
    if let Some(problem) = files.iter_mut().find_map(|file| file.problem.take()) {
        return Err(ArchiveError::InvalidTree(problem));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));

    let mut archive = ArchiveWriter::new(out, limits, trees);
    for file in &files {
        let content = read_blob(pack, file)?;
        if file.mode == Mode::Link {
            archive.add_link(&file.path, &content)?;
        } else {
            if let Some(pointers) = &mut pointers {
                pointers.add(&file.path, 0, &content)?;
            }
            let is_executable = file.mode == Mode::Executable;
            archive.add_file(&file.path, is_executable, (content.len() as u64, content.as_slice()))?;
        }
    }
    Ok(Archived {
        written: archive.finish()?,
        submodules,
        lfs_config,
    })
}

/// Lists the selected files and links, and the content of all ignore files among them with their folders.
fn walk_tree(
    pack: &mut Pack<'_>,
    root: Oid,
    selection: Selection<'_>,
    limits: &Limits,
    memory: &mut GrowingCharge,
) -> Result<WalkResult, ArchiveError> {
    let algorithm: Algorithm = root.algorithm();
    let mut files = Vec::new();
    let mut ignores = IgnoreFiles::default();
    let mut taken = SelectedPaths::new(selection.sparse);
    let mut submodules = Submodules::default();
    let mut lfs_config = None;
    let mut visited = 0_u32;
    let mut folders = vec![(String::new(), root)];
    while let Some((folder, oid)) = folders.pop() {
        let missing = || ArchiveError::InvalidTree(format!("the server did not send folder {folder:?} ({oid})"));
        let content = pack.read(&oid, ObjectKind::Tree)?.ok_or_else(missing)?;
        let entries = object::read_tree(&content, algorithm)
            .ok_or_else(|| ArchiveError::InvalidTree(format!("folder {folder:?} ({oid}) is malformed")))?;
        for entry in entries {
            // Folders count too: trees that share folders could list more folders than fit into memory.
            visited = visited.saturating_add(1);
            if visited > limits.files {
                return Err(ArchiveError::TooLarge {
                    what: "files",
                    limit: limits.files.to_string(),
                });
            }
            let name = String::from_utf8_lossy(entry.name);
            let path = if folder.is_empty() {
                name.clone().into_owned()
            } else {
                format!("{folder}/{name}")
            };
            // Trees that share folders make many long paths out of few bytes.
            let bytes = path.len() + 2 * size_of::<FoundFile>();
            memory.add_blocking(bytes as u64).map_err(ArchiveError::OverBudget)?;
            let problem = if std::str::from_utf8(entry.name).is_err() {
                Some(format!("the name {name:?} in folder {folder:?} is not UTF-8"))
            } else if name.contains('/') {
                Some(format!("the name {name:?} in folder {folder:?} has a slash"))
            } else {
                let checked = check_path(&path, limits);
                checked.err().map(|problem| format!("the path {path:?} {problem}"))
            };
            if selection.submodules && path == MODULES_FILE {
                submodules.file = Some(modules_file(pack, entry.mode, entry.oid)?);
            }
            if path == LFS_CONFIG_FILE {
                lfs_config = Some(read_text(pack, entry.mode, entry.oid, LFS_CONFIG_BYTES)?);
            }
            if !taken.selects(&path) {
                continue;
            }
            let has_files = entry.mode == Mode::Tree || (entry.mode == Mode::Submodule && selection.submodules);
            if has_files && problem.is_some() {
                // The folder is not read: it is excluded as a whole, or refused.
                files.push(FoundFile {
                    path: format!("{path}/{ANY_FILE}"),
                    mode: Mode::File,
                    oid: entry.oid,
                    excluded: false,
                    problem,
                });
                continue;
            }
            match entry.mode {
                Mode::Tree => folders.push((path, entry.oid)),
                Mode::Submodule if selection.submodules => {
                    if submodules.links.len() >= MOST_LINKS {
                        return Err(ArchiveError::TooLarge {
                            what: "submodules",
                            limit: MOST_LINKS.to_string(),
                        });
                    }
                    submodules.links.push((path, entry.oid));
                }
                Mode::Submodule => {}
                mode => {
                    let mut file = FoundFile {
                        path,
                        mode,
                        oid: entry.oid,
                        excluded: false,
                        problem,
                    };
                    if name == IGNORE_FILE {
                        match ignore_file(pack, &file)? {
                            Ok(content) => ignores.add(&folder, content)?,
                            Err(problem) => file.problem = Some(problem),
                        }
                    }
                    files.push(file);
                }
            }
        }
    }
    taken.refuse_missing()?;
    Ok(WalkResult {
        files,
        ignores: ignores.into_sorted(),
        submodules,
        lfs_config,
    })
}

/// Reads the content of `.gitmodules`.
fn modules_file(pack: &mut Pack<'_>, mode: Mode, oid: Oid) -> Result<String, ArchiveError> {
    let text = read_text(pack, mode, oid, modules::LONGEST)?;
    text.map_err(|problem| ArchiveError::InvalidTree(format!("{MODULES_FILE:?} {problem}")))
}

/// Reads a text. The inner error says why it can't be read, and completes the sentence "the file …".
fn read_text(pack: &mut Pack<'_>, mode: Mode, oid: Oid, longest: u64) -> Result<Result<String, String>, ArchiveError> {
    if !matches!(mode, Mode::File | Mode::Executable) {
        return Ok(Err("is no regular file".to_owned()));
    }
    let Some(content) = pack.read(&oid, ObjectKind::Blob)? else {
        return Ok(Err("was not sent by the server".to_owned()));
    };
    if content.len() as u64 > longest {
        return Ok(Err(format!("is larger than {}", describe_bytes(longest))));
    }
    Ok(String::from_utf8(content.to_vec()).map_err(|_| "is not UTF-8 text".to_owned()))
}

/// The paths of `spec.sparseCheckout`, and for each whether the walk has found it.
struct SelectedPaths<'a> {
    folders: &'a [String],
    found: Vec<bool>,
}

impl<'a> SelectedPaths<'a> {
    fn new(folders: &'a [String]) -> Self {
        Self {
            folders,
            found: vec![false; folders.len()],
        }
    }

    /// Checks whether a path is selected, or is a parent of a selected path.
    fn selects(&mut self, path: &str) -> bool {
        let mut takes = self.folders.is_empty();
        for (folder, found) in self.folders.iter().zip(&mut self.found) {
            *found |= folder == path;
            takes |= is_same_or_below(path, folder) || is_same_or_below(folder, path);
        }
        takes
    }

    /// Returns an error if the walk has not found one of the selected paths.
    fn refuse_missing(&self) -> Result<(), ArchiveError> {
        let missing = self.folders.iter().zip(&self.found).find(|(_, found)| !**found);
        missing.map_or(Ok(()), |(folder, _)| Err(ArchiveError::MissingFolder(folder.clone())))
    }
}

fn is_same_or_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reads the patterns of an ignore file. The inner error says why it has none.
fn ignore_file(pack: &mut Pack<'_>, file: &FoundFile) -> Result<Result<String, String>, ArchiveError> {
    let invalid = |problem: &str| Err(format!("{:?} {problem}", file.path));
    if file.mode == Mode::Link {
        return Ok(invalid("is a symbolic link; ignore files must be regular files"));
    }
    let content = read_blob(pack, file)?;
    if content.len() as u64 > IGNORE_FILE_BYTES {
        return Ok(invalid("is larger than 64 KiB"));
    }
    Ok(String::from_utf8(content.to_vec()).or_else(|_| invalid("is not UTF-8 text")))
}

fn read_blob(pack: &mut Pack<'_>, file: &FoundFile) -> Result<Rc<Vec<u8>>, ArchiveError> {
    pack.read(&file.oid, ObjectKind::Blob)?.ok_or_else(|| {
        ArchiveError::InvalidTree(format!(
            "the server did not send the content of {:?} ({})",
            file.path, file.oid
        ))
    })
}
