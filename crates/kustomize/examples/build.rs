//! Builds a directory of the disk: `cargo run --example build -- DIR [INSIDE]`.
//!
//! The example shows how a caller uses the library: read files into a tree, keep links as links, build, print. It reads everything below
//! DIR, so bases must be below DIR too. INSIDE names the kustomization to build; the default is DIR itself.

#![expect(
    clippy::disallowed_methods,
    reason = "an example of a caller, which reads files so that the library need not"
)]

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use kustomize::{MapTree, Options, build_each};

fn read(root: &Path, inside: &str, tree: &mut MapTree) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root.join(inside))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if inside.is_empty() {
            name
        } else {
            format!("{inside}/{name}")
        };
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            tree.insert_link(&path, &std::fs::read_link(entry.path())?.to_string_lossy());
        } else if kind.is_dir() {
            tree.insert_directory(&path);
            read(root, &path, tree)?;
        } else {
            tree.insert(&path, std::fs::read(entry.path())?);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().unwrap_or_else(|| ".".to_owned());
    let inside = arguments.next().unwrap_or_default();
    let mut tree = MapTree::new();
    let mut errors = std::io::stderr();
    if let Err(error) = read(Path::new(&root), "", &mut tree) {
        let _ = writeln!(errors, "{root}: {error}");
        return ExitCode::FAILURE;
    }
    // A late error fails the whole build, so the example prints nothing before the end.
    let mut documents = Vec::new();
    match build_each(&tree, &inside, &Options::default(), &mut |resource| {
        documents.push(resource.to_yaml().into_boxed_str());
    }) {
        Ok(warnings) => {
            for warning in &warnings {
                let _ = writeln!(errors, "# Warning: {warning}");
            }
            match std::io::stdout().write_all(documents.join("---\n").as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            let _ = writeln!(errors, "Error: {error}");
            ExitCode::FAILURE
        }
    }
}
