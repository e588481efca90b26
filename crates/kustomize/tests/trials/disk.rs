//! Reads a directory of the disk into a tree, links as links.

use std::path::Path;

use kustomize::MapTree;

pub(crate) fn read_tree(root: &Path) -> MapTree {
    let mut tree = MapTree::new();
    add_directory(root, "", &mut tree);
    tree
}

fn add_directory(root: &Path, inside: &str, tree: &mut MapTree) {
    for entry in std::fs::read_dir(root.join(inside)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if inside.is_empty() {
            name
        } else {
            format!("{inside}/{name}")
        };
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            tree.insert_link(&path, std::fs::read_link(entry.path()).unwrap().to_str().unwrap());
        } else if kind.is_dir() {
            tree.insert_directory(&path);
            add_directory(root, &path, tree);
        } else {
            tree.insert(&path, std::fs::read(entry.path()).unwrap());
        }
    }
}
