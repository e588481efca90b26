//! The branch of the repository: its entries, the folder of the platform, and the checks before a commit. A link never leads a write or a rendering elsewhere, and
//! files of others are never overwritten.

use std::collections::BTreeMap;
use std::fmt;

use super::manifests::{HEADER, is_listed};
use super::{Choices, Refusal, WantedFiles, flux, join_names};

/// The folder below the platform's folder that the bootstrap writes.
pub const OWN_FOLDER: &str = "tenure-system";
/// The file with the installation.
pub const COMPONENTS_FILE: &str = "tenure-components.yaml";
/// The file with the platform's Surface.
pub const SYNC_FILE: &str = "tenure-sync.yaml";
/// The file that lists the others.
pub const KUSTOMIZATION_FILE: &str = "kustomization.yaml";
/// The names of a kustomization.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// The largest number of links that one path may follow.
const MOST_LINKS: usize = 40;

/// A folder of a repository: a clean path, empty for the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folder(String);

impl Folder {
    /// Reads a path as a user writes it, such as `./clusters/production`.
    ///
    /// # Errors
    /// When the path is absolute, leaves the repository, or has parts that Git doesn't store.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| Err(format!("{text:?}: {why}"));
        if text.starts_with('/') {
            return refuse("the path is relative to the root of the repository, such as clusters/production");
        }
        let mut parts = Vec::new();
        for part in text.split('/').filter(|part| !matches!(*part, "" | ".")) {
            if part == ".." {
                return refuse("the path leaves the repository");
            }
            if part.eq_ignore_ascii_case(".git") || part.contains('\\') || part.chars().any(char::is_control) {
                return refuse("a part of the path is no name of a folder");
            }
            if part == OWN_FOLDER {
                return refuse("the command adds the folder tenure-system by itself");
            }
            parts.push(part);
        }
        Ok(Self(parts.join("/")))
    }

    /// Returns a path below the folder.
    #[must_use]
    pub fn join(&self, below: &str) -> String {
        match self.0.as_str() {
            "" => below.to_owned(),
            folder => format!("{folder}/{below}"),
        }
    }

    /// Returns the path as a Surface has it: `./clusters/production`.
    #[must_use]
    pub fn relative(&self) -> String {
        format!("./{}", self.0)
    }

    /// Returns the part of a path below the folder; `None` for a path elsewhere.
    fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        match self.0.as_str() {
            "" => Some(path),
            folder => path.strip_prefix(folder)?.strip_prefix('/'),
        }
    }

    /// Lists the folder and the folders above it, without the root.
    fn ancestors(&self) -> impl Iterator<Item = &str> {
        let ends = self.0.match_indices('/').map(|(at, _)| at);
        let ends = ends.chain((!self.0.is_empty()).then_some(self.0.len()));
        ends.filter_map(|end| self.0.get(..end))
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.0.as_str() {
            "" => "the root of the repository",
            folder => folder,
        })
    }
}

/// The kind of an entry of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file.
    File,
    /// A symbolic link.
    Link,
    /// A commit of another repository.
    Submodule,
}

/// The branch of the repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepositoryFacts {
    /// The commit at the tip of the branch; `None` in a repository without a commit.
    pub head: Option<String>,
    /// Every entry of the commit, by its path.
    pub entries: BTreeMap<String, EntryKind>,
    /// The contents of the [needed files](list_needed_files), and the targets of links.
    pub texts: BTreeMap<String, String>,
}

impl RepositoryFacts {
    /// Whether the branch has this file with this text. The ends of lines may differ: some programs convert them.
    pub(super) fn has_text(&self, path: &str, text: &str) -> bool {
        let found = self.texts.get(path).map(|found| found.replace("\r\n", "\n"));
        self.entries.get(path) == Some(&EntryKind::File) && found.as_deref() == Some(text)
    }

    pub(super) fn find_text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }
}

/// Lists the entries whose contents a plan needs: the files that the bootstrap writes, those of Flux, the kustomizations around them, and all links.
#[must_use]
pub fn list_needed_files(entries: &BTreeMap<String, EntryKind>, folder: &Folder) -> Vec<String> {
    let is_needed = |path: &str| {
        let Some(below) = folder.strip(path) else { return false };
        match below.split_once('/') {
            None => KUSTOMIZATIONS.contains(&below),
            Some((OWN_FOLDER, name)) => !name.contains('/'),
            Some((flux::FOLDER, name)) => flux::FILES.contains(&name),
            Some(_) => false,
        }
    };
    let is_needed = |(path, kind): &(&String, &EntryKind)| match kind {
        EntryKind::File => is_needed(path),
        EntryKind::Link => true,
        EntryKind::Submodule => false,
    };
    entries.iter().filter(is_needed).map(|(path, _)| path.clone()).collect()
}

/// What made the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// No bootstrap yet.
    New,
    /// An earlier bootstrap, at least its first commit.
    Bootstrapped,
    /// `flux bootstrap`.
    Flux,
}

/// Checks that the bootstrap may write into the folder, and that no link leads out of it.
pub(super) fn check_repository(
    repository: &RepositoryFacts,
    choices: &Choices,
    files: &WantedFiles,
) -> Result<Layout, Refusal> {
    let folder = &choices.folder;
    check_path(repository, folder)?;
    check_links(repository, folder)?;
    check_own_folder(repository, folder)?;
    let has = |path: String| repository.entries.contains_key(&path);
    let own = |name: &str| folder.join(&format!("{OWN_FOLDER}/{name}"));
    let layout = match (has(own(SYNC_FILE)), flux::is_flux(repository, folder)) {
        (_, true) => Layout::Flux,
        (true, false) => Layout::Bootstrapped,
        (false, false) => Layout::New,
    };
    if files.components.is_some() || files.sync.is_some() {
        check_kustomizations(repository, folder, files)?;
    }
    // After the first commit alone, the folder is still one that the bootstrap has accepted.
    if layout == Layout::New && !has(own(COMPONENTS_FILE)) && !choices.accepts_content {
        check_content(repository, folder)?;
    }
    Ok(layout)
}

/// Checks that each part of the folder's path is a folder, or nothing yet.
fn check_path(repository: &RepositoryFacts, folder: &Folder) -> Result<(), Refusal> {
    let own = folder.join(OWN_FOLDER);
    for path in folder.ancestors().chain([own.as_str()]) {
        let what = match repository.entries.get(path) {
            None => continue,
            Some(EntryKind::Link) => format!(
                "is a symbolic link to {:?}",
                repository.find_text(path).unwrap_or_default()
            ),
            Some(EntryKind::File) => "is a file".to_owned(),
            Some(EntryKind::Submodule) => "is a submodule".to_owned(),
        };
        return Err(Refusal::new(
            format!("{path} {what}: the bootstrap writes only into folders of this repository"),
            "name another folder with --path, or replace the entry in the repository by a folder",
        ));
    }
    Ok(())
}

/// Checks that all links of the folder stay in it, however many links a path follows.
fn check_links(repository: &RepositoryFacts, folder: &Folder) -> Result<(), Refusal> {
    let links = repository.entries.iter().filter(|(_, kind)| **kind == EntryKind::Link);
    for (path, _) in links.filter(|(path, _)| folder.strip(path).is_some()) {
        if !stays_inside(repository, folder, path) {
            return Err(Refusal::new(
                format!(
                    "{path} is a symbolic link out of {folder}, to {:?}: the cluster would apply files that the folder doesn't show",
                    repository.find_text(path).unwrap_or_default()
                ),
                "replace the link by the files, or name another folder with --path",
            ));
        }
    }
    Ok(())
}

/// Follows a link of the folder part by part, through other links. A path that leaves the folder, even for a part of the way, is outside. So is an endless one.
fn stays_inside(repository: &RepositoryFacts, folder: &Folder, link: &str) -> bool {
    let mut at: Vec<String> = Vec::new();
    let below = folder.strip(link).unwrap_or_default();
    let mut rest: Vec<String> = below.split('/').rev().map(str::to_owned).collect();
    let mut links = 0_usize;
    while let Some(part) = rest.pop() {
        match part.as_str() {
            "" | "." => continue,
            ".." if at.pop().is_none() => return false,
            ".." => continue,
            _ => at.push(part),
        }
        let path = folder.join(&at.join("/"));
        if repository.entries.get(&path) != Some(&EntryKind::Link) {
            continue;
        }
        links += 1;
        let target = repository.find_text(&path).unwrap_or("/");
        if target.starts_with('/') || links > MOST_LINKS {
            return false;
        }
        at.pop();
        rest.extend(target.split('/').rev().map(str::to_owned));
    }
    true
}

/// Checks that the bootstrap's own folder holds only its own files.
fn check_own_folder(repository: &RepositoryFacts, folder: &Folder) -> Result<(), Refusal> {
    let own = folder.join(OWN_FOLDER);
    let prefix = format!("{own}/");
    let is_foreign = |(path, kind): &(&String, &EntryKind)| {
        let Some(name) = path.strip_prefix(&prefix) else {
            return false;
        };
        let is_file = **kind == EntryKind::File;
        let is_own = match name {
            COMPONENTS_FILE | SYNC_FILE => {
                is_file && repository.find_text(path).is_some_and(|text| text.starts_with(HEADER))
            }
            KUSTOMIZATION_FILE => is_file,
            _ => false,
        };
        !is_own
    };
    let found: Vec<&str> = repository
        .entries
        .iter()
        .filter(is_foreign)
        .map(|(path, _)| path.as_str())
        .collect();
    if found.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(
        format!("{own} holds other things: {}", join_names(found.into_iter())),
        "move them to another folder of the repository, or name another folder with --path",
    ))
}

/// Checks that existing kustomizations list the files of the bootstrap. Otherwise the platform would not apply its own installation.
fn check_kustomizations(repository: &RepositoryFacts, folder: &Folder, files: &WantedFiles) -> Result<(), Refusal> {
    let own = folder.join(&format!("{OWN_FOLDER}/{KUSTOMIZATION_FILE}"));
    let wanted = [
        files.components.as_ref().map(|_| COMPONENTS_FILE),
        files.sync.as_ref().map(|_| SYNC_FILE),
    ];
    let above = KUSTOMIZATIONS.map(|name| (folder.join(name), vec![OWN_FOLDER]));
    let inside = (own, wanted.into_iter().flatten().collect());
    for (path, wanted) in above.into_iter().chain([inside]) {
        let Some(text) = repository.find_text(&path) else {
            continue;
        };
        if let Some(missing) = wanted.into_iter().find(|name| !is_listed(text, name)) {
            return Err(Refusal::new(
                format!("{path} doesn't list {missing}, so the platform would not apply its own installation"),
                format!("add it to the file's resources: - {missing}"),
            ));
        }
    }
    Ok(())
}

/// Checks that the folder has no manifests yet.
fn check_content(repository: &RepositoryFacts, folder: &Folder) -> Result<(), Refusal> {
    let is_manifest = |path: &&str| {
        let Some(below) = folder.strip(path) else { return false };
        let is_hidden = below.split('/').any(|part| part.starts_with('.'));
        let name = below.rsplit('/').next().unwrap_or_default();
        let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml") || KUSTOMIZATIONS.contains(&name);
        !is_hidden && is_yaml
    };
    let found: Vec<&str> = repository
        .entries
        .keys()
        .map(String::as_str)
        .filter(is_manifest)
        .collect();
    if found.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(
        format!(
            "{folder} holds other things, which the cluster would apply with all rights: {}",
            join_names(found.into_iter())
        ),
        "name an empty folder with --path, such as clusters/production; --accept-content makes these manifests a part of the platform",
    ))
}
