//! The objects of a folder, as they would be applied, and where each field of theirs is written. Nothing is fetched, and nothing outside the
//! repository is read.

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

/// Why there are no objects.
pub(super) enum Unrendered {
    /// The disk refused.
    Unreadable(Failure),
    /// What is written there can't be built.
    Refused(Error),
}

/// Builds a folder as a reconciler would: one without a kustomization as if one named every YAML file below it.
pub(super) fn build(folder: &Folder<'_>, budget: Budget) -> Result<Vec<BuiltResource>, Unrendered> {
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

/// The file that stands for the whole folder: its kustomization, if it has one.
pub(super) fn name_file(inside: &str, folder: &Path) -> String {
    let names = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
    let found = names.into_iter().find(|name| folder.join(name).is_file());
    match (inside, found) {
        ("", name) => name.unwrap_or("kustomization.yaml").to_owned(),
        (inside, Some(name)) => format!("{inside}/{name}"),
        (inside, None) => inside.to_owned(),
    }
}
