//! Any text as one of the small files and headers that a repository or a registry sends: `.gitmodules`, ignore files, challenges, credentials of registries, lists of
//! tags, and the pointers, settings and answers of Git LFS. The first byte selects which one.

use crate::git::lfs_pointer::{self, LONGEST, Reading, describe_pointer};
use crate::git::modules::{read_modules, resolve_address};
use crate::git::object::{read_commit, read_tag_target, read_tree};
use crate::git::oid::Algorithm;
use crate::ignore::Ignore;
use crate::lfs::fuzzing as lfs;
use crate::oci::fuzzing as oci;

pub fn check(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    match first % 10 {
        0 => check_modules(text),
        1 => check_ignore(text),
        2 => check_objects(bytes),
        3 => oci::check_challenge(text),
        4 => oci::check_credentials(bytes),
        5 => oci::check_tags(bytes),
        6 => oci::check_bundle(bytes),
        7 => check_pointer(bytes),
        8 => lfs::check_config(text),
        _ => lfs::check_answer(bytes),
    }
}

/// A pointer that is written again in the specification's form is the same pointer.
fn check_pointer(bytes: &[u8]) {
    let reading = lfs_pointer::read(bytes);
    assert_eq!(describe_pointer(bytes).is_none(), reading == Reading::Content);
    assert!(bytes.len() < LONGEST || reading == Reading::Content);
    if let Reading::Pointer(pointer) = reading {
        let written = format!(
            "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n",
            pointer.id, pointer.size
        );
        assert_eq!(lfs_pointer::read(written.as_bytes()), reading);
    }
}

fn check_modules(text: &str) {
    let Ok(modules) = read_modules(text) else { return };
    for (path, url) in &modules {
        assert!(path.len() <= text.len() && url.len() <= text.len());
        for parent in ["https://example.com/team/app.git", "ssh://git@example.com:22/a/b/c"] {
            let Ok(address) = resolve_address(parent, url) else {
                continue;
            };
            if url.starts_with("./") || url.starts_with("../") {
                let host = parent.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
                assert!(
                    address.starts_with(&format!("{host}/")),
                    "a relative address leads to another host"
                );
            }
        }
    }
    // Comments and empty lines change nothing.
    let spaced: String = text.lines().map(|line| format!("{line}\n")).collect();
    assert_eq!(read_modules(&spaced).as_ref(), Ok(&modules));
}

fn check_ignore(text: &str) {
    let (patterns, path) = text.split_once('\0').unwrap_or((text, "a/b.yaml"));
    let ignore = Ignore::new(&[("a".to_owned(), patterns.to_owned())], Some(patterns));
    let answer = ignore.excludes(path);
    // Asking costs work, and gives the same answer as long as there is some left.
    for _ in 0..3 {
        let again = ignore.excludes(path);
        assert!(again.is_none() || again == answer);
    }
}

fn check_objects(bytes: &[u8]) {
    if let Some(commit) = read_commit(bytes) {
        assert!(commit.subject.chars().count() <= 200 && !commit.subject.contains(char::is_control));
    }
    let _target = read_tag_target(bytes);
    for algorithm in [Algorithm::Sha1, Algorithm::Sha256] {
        let Some(entries) = read_tree(bytes, algorithm) else {
            continue;
        };
        // Mode, space, name, zero, id: nothing is left out.
        let least: usize = entries
            .iter()
            .map(|entry| entry.name.len() + 7 + algorithm.length())
            .sum();
        assert!(least <= bytes.len() && bytes.len() <= least + entries.len());
    }
}

/// Returns the first inputs.
pub fn seeds() -> Vec<Vec<u8>> {
    let with = |number: u8, text: &[u8]| [&[number], text].concat();
    let id = [7; 20];
    let tree = [
        b"100644 a\0".as_slice(),
        &id,
        b"40000 d\0",
        &id,
        b"120000 l\0",
        &id,
        b"160000 m\0",
        &id,
        b"100755 x\0",
        &id,
    ]
    .concat();
    let mut seeds = vec![
        with(0, b"# ours\n[submodule \"a b\"]\n\tpath = lib/a ; a comment\n\turl = \"https://example.com/a#b\"\n[submodule \"c\"]\npath=lo\\\nng\nurl = ../../x\n"),
        with(0, b"[SubModule.c]\nURL = git@example.com:a/b\npath = \"q\\\"\\t\"\n"),
        with(1, b"# comment\n*.md\n!keep.md\n/a/**/b\n**/x[a-c!]*\n\\#z\\ \ndir/\n\0a/b/keep.md"),
        with(1, b"a*b*c*d*e\n[^]]?\n\0aaaaaaaaaaaaaaaaaaaa"),
        with(2, b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nparent 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor a <a@example.com> 1 +0000\n\nsubject\n\nmore\n"),
        with(2, b"object 4b825dc642cb6eb9a060e54bf8d69288fbee4904\ntype commit\ntag v1\n\nwords\n"),
        with(2, &tree),
    ];
    let others = oci::text_seeds().into_iter().chain(lfs::text_seeds());
    seeds.extend(others.map(|(number, text)| with(number, text.as_bytes())));
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_around_the_first_inputs_keep_their_promises() {
        super::super::check_around(&seeds(), check);
    }
}
