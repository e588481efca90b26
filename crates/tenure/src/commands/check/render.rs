//! The objects of a folder, as a reconciler would apply them, with the place of each field. The build fetches nothing, and reads nothing outside the repository.

use std::path::Path;

use kustomize::{Budget, BuiltResource, Error, Options, Overrides};

use crate::commands::build::disk::Disk;
use crate::failure::Failure;

/// A folder below the root of its repository.
pub(super) struct Folder<'a> {
    pub(super) root: &'a Path,
    pub(super) inside: &'a str,
    pub(super) target_namespace: Option<&'a str>,
}

/// The reason why the folder has no objects.
pub(super) enum Unrendered {
    /// The disk refused a read.
    Unreadable(Failure),
    /// The files can't be built.
    Refused(Error),
}

/// Builds a folder as a reconciler would: a folder without a kustomization counts as one that names every YAML file below it.
pub(super) fn build_folder(folder: &Folder<'_>, budget: Budget) -> Result<Vec<BuiltResource>, Unrendered> {
    let files = Disk::new(folder.root.to_owned());
    let options = Options {
        budget,
        generate_missing: true,
        overrides: Overrides {
            namespace: folder.target_namespace.map(str::to_owned),
            ..Overrides::default()
        },
        ..Options::default()
    };
    match kustomize::build(&files, folder.inside, &options) {
        Ok(built) => Ok(built.resources),
        Err(error) => Err(match files.trouble() {
            Some(trouble) => Unrendered::Unreadable(Failure::environment(format!("{error} ({trouble})"))),
            None => Unrendered::Refused(error),
        }),
    }
}

/// Returns the file that represents the whole folder: its kustomization, if it has one.
pub(super) fn name_file(inside: &str, folder: &Path) -> String {
    let names = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
    let found = names.into_iter().find(|name| folder.join(name).is_file());
    match (inside, found) {
        ("", name) => name.unwrap_or("kustomization.yaml").to_owned(),
        (inside, Some(name)) => format!("{inside}/{name}"),
        (inside, None) => inside.to_owned(),
    }
}
