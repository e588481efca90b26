//! Replays the corpus, one trial for each case: the library gives the recorded bytes for the input, or refuses it if the real tool does. A
//! case whose notes have `refused` is a difference that the README lists: the real tool builds the input, and this library must refuse it
//! with that text.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    clippy::disallowed_methods,
    reason = "tests may panic, and the cases are in files"
)]

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use kustomize::{Options, build};
use tenure_trials::Suite;

mod disk;
mod substitutions;

/// Returns the quoted value of a key of a case's notes.
fn find_note(notes: &str, key: &str) -> Option<String> {
    let line = notes
        .lines()
        .find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))?;
    Some(line.trim().trim_matches('"').to_owned())
}

fn check(case: &Path) -> Result<(), String> {
    let read = |name: &str| fs::read_to_string(case.join(name)).ok();
    let notes = read("origin.toml").ok_or("it has no origin.toml; record it with cargo xtask baseline")?;
    let inside = find_note(&notes, "build").unwrap_or_default();
    let ours = build(&disk::read_tree(&case.join("input")), &inside, &Options::default());
    let refused = find_note(&notes, "refused");
    match (ours, read("want.yaml"), read("want.err")) {
        (Err(error), Some(_), None) if refused.as_ref().is_some_and(|says| error.to_string().contains(says)) => Ok(()),
        (Ok(_), _, _) if refused.is_some() => Err("is noted as refused in its origin.toml, but builds".to_owned()),
        (Ok(built), Some(want), None) if built.to_yaml() == want => Ok(()),
        (Ok(built), Some(want), None) => Err(similar::TextDiff::from_lines(&want, built.to_yaml())
            .unified_diff()
            .header("want", "ours")
            .to_string()),
        (Err(error), Some(_), None) => Err(format!("should build, but: {error}")),
        (Ok(built), None, Some(error)) => Err(format!("should be refused ({error}), but gives\n{}", built.to_yaml())),
        (Err(error), None, Some(_)) => match find_note(&notes, "says") {
            Some(says) if !error.to_string().contains(&says) => Err(format!("should say '{says}', but says: {error}")),
            _ => Ok(()),
        },
        _ => Err("it needs want.yaml or want.err, and not both".to_owned()),
    }
}

fn main() -> ExitCode {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut cases: Vec<_> = fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    let cases = cases.into_iter().map(|case| {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        (name, move || check(&case))
    });
    let mut suite = Suite::default();
    suite.add("corpus", 961, cases);
    substitutions::add(&mut suite);
    suite.run()
}
