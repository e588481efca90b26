//! Properties of damaged trees: for the corpus' inputs with lines lost, doubled, moved or corrupted, the library returns the same answer
//! each time, without a panic.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use kustomize::{Limits, MapTree, Options, build};
use proptest::prelude::*;

/// The inputs of the corpus: files by path.
static INPUTS: LazyLock<Vec<BTreeMap<String, Vec<u8>>>> = LazyLock::new(|| {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut cases: Vec<_> = fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    cases
        .iter()
        .map(|case| {
            let mut files = BTreeMap::new();
            collect_files(&case.join("input"), "", &mut files);
            files
        })
        .collect()
});

fn collect_files(root: &Path, inside: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(root.join(inside)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if inside.is_empty() {
            name
        } else {
            format!("{inside}/{name}")
        };
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            collect_files(root, &path, files);
        } else if kind.is_file() {
            files.insert(path, fs::read(entry.path()).unwrap());
        }
    }
}

/// A damage to one file. Positions are taken modulo the number of lines.
#[derive(Debug, Clone)]
enum Damage {
    Lose(usize),
    Double(usize),
    Swap(usize, usize),
    Indent(usize),
    Spoil(usize, u8),
    Graft(usize, &'static str),
    Cut(usize),
}

fn generate_damage() -> impl Strategy<Value = Damage> {
    let grafts = vec![
        "null\n",
        "- []\n",
        "? x\n",
        "&a [*a]\n",
        "<<: *a\n",
        "  - {}\n",
        "kind: List\n",
        "!!binary '?'\n",
        "$patch: delete\n",
        "metadata: null\n",
        "name: {}\n",
        "---\n",
        "...\n",
        "\u{2028}",
        "\t",
        "'",
        "\"",
        "{",
        "]",
        ": ",
        "\u{0}",
        "%TAG ! x\n",
        "|9\n",
        "resources: [..]\n",
        "components: [.]\n",
        "9999999999999999999999",
        "[[[[[[[[[[[[[[[[",
        "spec: !!map []\n",
    ];
    prop_oneof![
        any::<usize>().prop_map(Damage::Lose),
        any::<usize>().prop_map(Damage::Double),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Damage::Swap(a, b)),
        any::<usize>().prop_map(Damage::Indent),
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Damage::Spoil(at, byte)),
        (any::<usize>(), prop::sample::select(grafts)).prop_map(|(at, text)| Damage::Graft(at, text)),
        any::<usize>().prop_map(Damage::Cut),
    ]
}

fn apply_damage(bytes: &mut Vec<u8>, damage: &Damage) {
    let mut lines: Vec<Vec<u8>> = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    if lines.is_empty() {
        return;
    }
    let count = lines.len();
    match damage {
        Damage::Lose(at) => {
            lines.remove(at % count);
        }
        Damage::Double(at) => lines.insert(at % count, lines[at % count].clone()),
        Damage::Swap(a, b) => lines.swap(a % count, b % count),
        Damage::Indent(at) => lines[at % count].insert(0, b' '),
        Damage::Spoil(at, byte) => {
            let line = &mut lines[at % count];
            let place = at / count % line.len().max(1);
            if let Some(spoilt) = line.get_mut(place) {
                *spoilt = *byte;
            }
        }
        Damage::Graft(at, text) => {
            let line = &mut lines[at % count];
            let place = at / count % (line.len() + 1);
            line.splice(place..place, text.bytes());
        }
        Damage::Cut(at) => lines.truncate(at % count),
    }
    *bytes = lines.concat();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_tree_gets_the_same_answer_twice(
        case in any::<prop::sample::Index>(),
        done in prop::collection::vec((any::<prop::sample::Index>(), generate_damage()), 1..6),
    ) {
        let mut files = case.get(&INPUTS).clone();
        let paths: Vec<String> = files.keys().cloned().collect();
        for (file, what) in &done {
            if !paths.is_empty() {
                apply_damage(files.get_mut(file.get(&paths)).unwrap(), what);
            }
        }
        let mut tree = MapTree::new();
        for (path, bytes) in &files {
            tree.insert(path, bytes.clone());
        }
        let limits = Limits { nodes: 50_000, documents: 500, ..Limits::default() };
        let options = Options { limits, generate_missing: true, ..Options::default() };
        let tops = files.keys().filter_map(|path| path.rsplit_once('/')).map(|(directory, _)| directory);
        for directory in std::iter::once("").chain(tops.take(3)) {
            let answer = || match build(&tree, directory, &options) {
                Ok(built) => built.to_yaml(),
                Err(error) => error.to_string(),
            };
            prop_assert_eq!(answer(), answer());
        }
    }
}
