//! Compares with the real kustomize on real repositories, when both are at hand.

use std::path::{Path, PathBuf};
use std::process::Command;

use kustomize::{Options, build};

use crate::disk;

/// All directories with a kustomization below a folder.
fn kustomizations(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut names: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    for path in names {
        if path.is_dir() && !path.is_symlink() {
            kustomizations(&path, found);
        } else if path.file_name().is_some_and(|name| {
            ["kustomization.yaml", "kustomization.yml", "Kustomization"]
                .iter()
                .any(|known| name == *known)
        }) {
            found.push(folder.to_path_buf());
        }
    }
}

#[test]
fn real_repositories_build_to_the_same_bytes() {
    let Ok(folder) = std::env::var("TENURE_REAL_REPOS") else {
        println!("skipped: TENURE_REAL_REPOS names no folder");
        return;
    };
    if Command::new("kustomize").arg("version").output().is_err() {
        println!("skipped: there is no kustomize on PATH");
        return;
    }
    let folder = PathBuf::from(folder).canonicalize().unwrap();
    let tree = disk::tree(&folder);
    let mut found = Vec::new();
    kustomizations(&folder, &mut found);
    assert!(!found.is_empty());
    let (mut built, mut refused, mut wrong) = (0, 0, Vec::new());
    for directory in &found {
        let real = Command::new("kustomize").arg("build").arg(directory).output().unwrap();
        let relative = directory.strip_prefix(&folder).unwrap().to_str().unwrap();
        match (real.status.success(), build(&tree, relative, &Options::default())) {
            (true, Ok(ours)) if ours.to_yaml().as_bytes() == real.stdout => built += 1,
            (true, Ok(ours)) => {
                let want = String::from_utf8_lossy(&real.stdout).into_owned();
                let diff = similar::TextDiff::from_lines(&want, ours.to_yaml())
                    .unified_diff()
                    .to_string();
                wrong.push(format!(
                    "{relative}: differs\n{}",
                    diff.lines().take(40).collect::<Vec<_>>().join("\n")
                ));
            }
            (true, Err(error)) => wrong.push(format!("{relative}: the real one builds it, we say: {error}")),
            (false, Err(error)) => {
                println!(
                    "{relative}\n  ours: {error}\n  real: {}",
                    String::from_utf8_lossy(&real.stderr).trim()
                );
                refused += 1;
            }
            (false, Ok(_)) => {
                wrong.push(format!(
                    "{relative}: the real one refuses it: {}",
                    String::from_utf8_lossy(&real.stderr)
                ));
            }
        }
    }
    println!("{built} the same, {refused} refused by both, of {}", found.len());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
