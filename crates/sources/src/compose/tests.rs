//! Copies give the results of Flux's controller; files and patterns of tenants can do no harm.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::AtomicBool;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};
use tenure_remote_requests::composition::{Copy, Recipe, Strategy};

use super::stage::Stage;
use crate::archive_writer::ArchiveWriter;
use crate::budget::{BudgetLimits, ByteBudget};
use crate::fetch_budgets::{FetchBudgets, GrowingCharge};
use crate::glob::Steps;
use crate::limits::Limits;
use crate::tree::Tree;

/// Files with their content; a content that begins with `-> ` makes a link.
type Files<'a> = &'a [(&'a str, &'a str)];

fn make_tree(files: Files<'_>) -> Tree {
    let (limits, room) = (Limits::default(), BudgetLimits::unlimited("trees"));
    let mut bytes = Vec::new();
    let mut archive = ArchiveWriter::new(&mut bytes, &limits, &room);
    for (path, content) in files {
        match content.strip_prefix("-> ") {
            Some(target) => archive.add_link(path, target.as_bytes()).unwrap(),
            None => archive
                .add_file(path, path.ends_with(".sh"), (content.len() as u64, content.as_bytes()))
                .unwrap(),
        }
    }
    archive.finish().unwrap();
    Tree::from_archive(bytes.as_slice(), ("sha256:0", 1 << 30), &limits).unwrap()
}

fn make_copy(from: &str, to: &str, exclude: &[&str], strategy: Strategy) -> Copy {
    let (alias, from) = from.strip_prefix('@').unwrap().split_once('/').unwrap();
    Copy {
        alias: alias.to_owned(),
        from: from.trim_end_matches('/').to_owned(),
        to: to.trim_end_matches('/').to_owned(),
        into_folder: to.is_empty() || to.ends_with('/'),
        exclude: exclude.iter().map(|pattern| (*pattern).to_owned()).collect(),
        strategy,
    }
}

fn plain_copy(from: &str, to: &str) -> Copy {
    make_copy(from, to, &[], Strategy::Overwrite)
}

fn compose_within(
    limits: &Limits,
    sources: &BTreeMap<String, Tree>,
    copies: Vec<Copy>,
) -> Result<BTreeMap<String, String>, String> {
    let budget = ByteBudget::new(BudgetLimits::unlimited("bytes"));
    let held = budget.try_acquire("lane", 0).unwrap();
    let (mut memory, cancelled) = (GrowingCharge::new_used(held), AtomicBool::new(false));
    let mut stage = Stage::new(sources, limits, &mut memory, &cancelled);
    let recipe = Recipe {
        copies,
        ..Recipe::default()
    };
    stage.follow_recipe(&recipe).map_err(|error| error.to_string())?;
    let shown = stage.files.iter().map(|(path, file)| {
        let mark = if file.is_executable { " (executable)" } else { "" };
        (
            path.clone(),
            format!("{}{mark}", String::from_utf8_lossy(&file.content)),
        )
    });
    Ok(shown.collect())
}

fn compose(sources: &[(&str, Files<'_>)], copies: Vec<Copy>) -> Result<BTreeMap<String, String>, String> {
    let sources = sources
        .iter()
        .map(|(alias, files)| ((*alias).to_owned(), make_tree(files)))
        .collect();
    compose_within(&Limits::default(), &sources, copies)
}

/// Copies from one source and expects these paths.
fn check(files: Files<'_>, copies: Vec<Copy>, expected: &[&str]) {
    let what = format!("{copies:?}");
    let made = compose(&[("s", files)], copies).unwrap_or_else(|problem| panic!("{what}: {problem}"));
    let paths: Vec<&str> = made.keys().map(String::as_str).collect();
    assert_eq!(paths, expected, "{what}");
}

const CONFIG: Files<'static> = &[
    ("README.md", "words"),
    ("config/app.yaml", "app"),
    ("config/deep/db.yaml", "db"),
    ("config/deep/notes.md", "notes"),
    ("other/app.yaml", "other"),
];

#[test]
fn paths_are_copied_as_cp_does() {
    check(CONFIG, vec![plain_copy("@s/config/app.yaml", "")], &["app.yaml"]);
    check(
        CONFIG,
        vec![plain_copy("@s/config/app.yaml", "dest/")],
        &["dest/app.yaml"],
    );
    check(CONFIG, vec![plain_copy("@s/config/app.yaml", "dest")], &["dest"]);
    check(
        CONFIG,
        vec![plain_copy("@s/config/app.yaml", "a/b.yaml")],
        &["a/b.yaml"],
    );
    // A folder keeps its name, with or without a slash; the root has no name.
    let folder = [
        "dest/config/app.yaml",
        "dest/config/deep/db.yaml",
        "dest/config/deep/notes.md",
    ];
    check(CONFIG, vec![plain_copy("@s/config", "dest")], &folder);
    check(CONFIG, vec![plain_copy("@s/config/", "dest/")], &folder);
    check(
        CONFIG,
        vec![plain_copy("@s/", "")],
        &[
            "README.md",
            "config/app.yaml",
            "config/deep/db.yaml",
            "config/deep/notes.md",
            "other/app.yaml",
        ],
    );
    // A target that is a folder by then gets the file inside it.
    check(
        CONFIG,
        vec![plain_copy("@s/other", ""), plain_copy("@s/config/app.yaml", "other")],
        &["other/app.yaml"],
    );
    let made = compose(
        &[("s", CONFIG)],
        vec![plain_copy("@s/other", ""), plain_copy("@s/config/app.yaml", "other")],
    )
    .unwrap();
    assert_eq!(
        made["other/app.yaml"], "app",
        "what comes later is put over what came before"
    );
    let made = compose(&[("s", &[("run.sh", "x")])], vec![plain_copy("@s/run.sh", "bin/")]).unwrap();
    assert_eq!(made["bin/run.sh"], "x (executable)");
}

#[test]
fn patterns_match_part_by_part_as_fluxs_do() {
    // A pattern that ends with `/**` removes the part before that; all others keep the whole path.
    check(
        CONFIG,
        vec![plain_copy("@s/config/**", "dest/")],
        &["dest/app.yaml", "dest/deep/db.yaml", "dest/deep/notes.md"],
    );
    check(
        CONFIG,
        vec![plain_copy("@s/*/app.yaml", "dest/")],
        &["dest/config/app.yaml", "dest/other/app.yaml"],
    );
    check(CONFIG, vec![plain_copy("@s/config/*.yaml", "")], &["config/app.yaml"]);
    // `**` is one part, not many. Flux's documentation says otherwise, but its controller does this.
    check(
        CONFIG,
        vec![plain_copy("@s/**/*.yaml", "")],
        &["config/app.yaml", "other/app.yaml"],
    );
    check(
        CONFIG,
        vec![plain_copy("@s/c?nf[h-j]g/app.yaml", "")],
        &["config/app.yaml"],
    );
    check(
        CONFIG,
        vec![plain_copy("@s/*", "")],
        &[
            "README.md",
            "config/app.yaml",
            "config/deep/db.yaml",
            "config/deep/notes.md",
            "other/app.yaml",
        ],
    );
}

#[test]
fn exclusions_match_paths_names_and_pattern_roots() {
    let all = |exclude: &[&str]| vec![make_copy("@s/**", "", exclude, Strategy::Overwrite)];
    check(
        CONFIG,
        all(&["*.md"]),
        &["config/app.yaml", "config/deep/db.yaml", "other/app.yaml"],
    );
    check(CONFIG, all(&["config"]), &["README.md", "other/app.yaml"]);
    check(
        CONFIG,
        all(&["deep"]),
        &["README.md", "config/app.yaml", "other/app.yaml"],
    );
    check(CONFIG, all(&["**/deep/**", "{other,README.md}"]), &["config/app.yaml"]);
    // Excluded paths may also be relative to the part of `from` before any pattern.
    let config = |exclude: &[&str]| vec![make_copy("@s/config/**", "", exclude, Strategy::Overwrite)];
    check(CONFIG, config(&["deep/**"]), &["app.yaml"]);
    check(CONFIG, config(&["config/deep/db.yaml"]), &["app.yaml", "deep/notes.md"]);
    check(
        CONFIG,
        vec![make_copy("@s/config", "", &["deep/db.yaml"], Strategy::Overwrite)],
        &["config/app.yaml", "config/deep/notes.md"],
    );
    // A named file may be excluded without an error; a pattern with all matches excluded is an error.
    check(
        CONFIG,
        vec![make_copy("@s/README.md", "", &["*.md"], Strategy::Overwrite)],
        &[],
    );
    let refused = compose(
        &[("s", CONFIG)],
        vec![make_copy("@s/*.md", "", &["*.md"], Strategy::Overwrite)],
    )
    .unwrap_err();
    assert!(
        refused.contains("all files matching pattern '*.md' in source 's' were excluded"),
        "{refused}"
    );
}

#[test]
fn failed_copies_are_reported_by_name() {
    let link: Files<'_> = &[("a/file", "x"), ("a/link", "-> ../../etc/passwd")];
    let check = |files: Files<'_>, copies: Vec<Copy>, expected: &str| {
        let refused = compose(&[("s", files)], copies).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    };
    check(CONFIG, vec![plain_copy("@s/none", "")], "source 'none' does not exist");
    check(
        CONFIG,
        vec![plain_copy("@s/*.json", "")],
        "no files match pattern '*.json' in source 's'",
    );
    check(CONFIG, vec![plain_copy("@s/[", "")], "syntax error in pattern");
    check(
        CONFIG,
        vec![make_copy("@s/*", "", &["{"], Strategy::Overwrite)],
        "invalid exclude pattern",
    );
    check(
        CONFIG,
        vec![plain_copy("@other/x", "")],
        "source alias 'other' not found",
    );
    check(
        CONFIG,
        vec![plain_copy("@s/README.md", "x"), plain_copy("@s/README.md", "x/")],
        "\"x\" is a file already",
    );
    check(
        CONFIG,
        vec![
            plain_copy("@s/config", ""),
            plain_copy("@s/config/app.yaml", "config/deep/"),
            plain_copy("@s/README.md", "config/deep/app.yaml/x"),
        ],
        "is a file already",
    );
    // Links: by name, by a pattern, and below a folder.
    for from in ["@s/a/link", "@s/a/l*", "@s/a", "@s/**"] {
        check(
            link,
            vec![plain_copy(from, "")],
            "'a/link' is a symbolic link, which can't be copied",
        );
    }
    // The control: a file beside the link, and a folder without the link.
    assert!(compose(&[("s", link)], vec![plain_copy("@s/a/file", "")]).is_ok());
    assert!(
        compose(
            &[("s", link)],
            vec![make_copy("@s/a", "", &["link"], Strategy::Overwrite)]
        )
        .is_ok()
    );
}

#[test]
fn yaml_is_merged_over_what_is_there() {
    let sources: &[(&str, Files<'_>)] = &[
        ("chart", &[("values.yaml", "image:\n  tag: v1\n  name: app\n")]),
        (
            "git",
            &[("prod.yaml", "image:\n  tag: v2\n"), ("broken.yaml", "- list\n")],
        ),
    ];
    let merge = |from: &str| make_copy(from, "values.yaml", &[], Strategy::Merge);
    let made = compose(sources, vec![plain_copy("@chart/", ""), merge("@git/prod.yaml")]).unwrap();
    assert_eq!(made["values.yaml"], "image:\n  name: app\n  tag: v2\n");
    // With no file to merge into, the file is copied.
    assert_eq!(
        compose(sources, vec![merge("@git/prod.yaml")]).unwrap()["values.yaml"],
        "image:\n  tag: v2\n"
    );
    let refused = compose(sources, vec![plain_copy("@chart/", ""), merge("@git/broken.yaml")]).unwrap_err();
    assert!(
        refused.contains("'broken.yaml' into 'values.yaml': the merged file is YAML, and no map"),
        "{refused}"
    );
}

/// An archive of these entries.
fn pack_entries(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, kind, content) in entries {
        let mut header = Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_cksum();
        archive.append(&header, *content).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// A source with archives, which are not text.
fn trees_with(archives: &[(&str, Vec<u8>)]) -> BTreeMap<String, Tree> {
    let (limits, room) = (Limits::default(), BudgetLimits::unlimited("trees"));
    let mut bytes = Vec::new();
    let mut archive = ArchiveWriter::new(&mut bytes, &limits, &room);
    for (path, content) in archives {
        archive
            .add_file(path, false, (content.len() as u64, content.as_slice()))
            .unwrap();
    }
    archive.finish().unwrap();
    let tree = Tree::from_archive(bytes.as_slice(), ("sha256:0", 1 << 30), &limits).unwrap();
    BTreeMap::from([("s".to_owned(), tree)])
}

fn extract_copies(from: &str) -> Vec<Copy> {
    vec![make_copy(from, "charts/", &[], Strategy::Extract)]
}

#[test]
fn archives_are_extracted() {
    let chart = pack_entries(&[
        ("app/", EntryType::Directory, b""),
        ("app/Chart.yaml", EntryType::Regular, b"name: app"),
    ]);
    let sources = trees_with(&[
        ("x/one.tgz", chart.clone()),
        ("x/y/TWO.TAR.GZ", chart),
        ("x/words.md", b"no archive".to_vec()),
    ]);
    let limits = Limits::default();
    let made = compose_within(&limits, &sources, extract_copies("@s/x/one.tgz")).unwrap();
    assert_eq!(
        made,
        BTreeMap::from([("charts/app/Chart.yaml".to_owned(), "name: app".to_owned())])
    );
    // Here `**` is any number of parts, and files that are no archives are skipped.
    assert_eq!(
        compose_within(&limits, &sources, extract_copies("@s/**/*"))
            .unwrap()
            .len(),
        1
    );
    for (from, expected) in [
        (
            "@s/x/words.md",
            "extract strategy requires tarball file (.tar.gz or .tgz), got 'x/words.md'",
        ),
        ("@s/x", "extract strategy is not supported for directories"),
        ("@s/*.tgz", "no files match pattern"),
    ] {
        let refused = compose_within(&limits, &sources, extract_copies(from)).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn extracted_entries_stay_within_the_artifact() {
    let limits = Limits {
        files: 1000,
        unpacked_bytes: 1 << 20,
        ..Limits::default()
    };
    let many: Vec<String> = (0..1001).map(|number| format!("f{number}")).collect();
    let many: Vec<(&str, EntryType, &[u8])> = many
        .iter()
        .map(|name| (name.as_str(), EntryType::Regular, b"".as_slice()))
        .collect();
    let folders = vec![("d/", EntryType::Directory, b"".as_slice()); 1001];
    let large = vec![0_u8; 6 << 20];
    for (entries, expected) in [
        (vec![("../out", EntryType::Regular, b"x".as_slice())], "\"..\" part"),
        (vec![("/etc/passwd", EntryType::Regular, b"x")], "has an empty"),
        (vec![("a/../../b", EntryType::Regular, b"x")], "\"..\" part"),
        (vec![(".git/config", EntryType::Regular, b"x")], "leads into .git"),
        (vec![("link", EntryType::Symlink, b"")], "is a symbolic link"),
        (vec![("hard", EntryType::Link, b"")], "neither a file nor a link"),
        (vec![("device", EntryType::Char, b"")], "neither a file nor a link"),
        (many, "entries of all archives that are extracted exceed 1000"),
        (folders, "entries of all archives that are extracted exceed 1000"),
        (
            vec![("large", EntryType::Regular, large.as_slice())],
            "it unpacks to more than",
        ),
    ] {
        let sources = trees_with(&[("a.tgz", pack_entries(&entries))]);
        let refused = compose_within(&limits, &sources, extract_copies("@s/a.tgz")).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
    // The control: an archive within the bounds is extracted.
    let sources = trees_with(&[("a.tgz", pack_entries(&[("in", EntryType::Regular, b"x")]))]);
    assert!(compose_within(&limits, &sources, extract_copies("@s/a.tgz")).is_ok());
    let mut cut = pack_entries(&[("in", EntryType::Regular, b"x")]);
    cut.truncate(20);
    cut.write_all(b"garbage").unwrap();
    assert!(compose_within(&limits, &trees_with(&[("a.tgz", cut)]), extract_copies("@s/a.tgz")).is_err());
}

#[test]
fn copies_and_patterns_that_multiply_end() {
    let limits = Limits {
        files: 1000,
        unpacked_bytes: 1 << 20,
        ..Limits::default()
    };
    let names: Vec<String> = (0..900).map(|number| format!("f/{number}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let sources = BTreeMap::from([("s".to_owned(), make_tree(&files))]);
    let copies = |times: usize| {
        (0..times)
            .map(|time| plain_copy("@s/f", &format!("to{time}/")))
            .collect()
    };
    assert!(compose_within(&limits, &sources, copies(1)).is_ok());
    let refused = compose_within(&limits, &sources, copies(2)).unwrap_err();
    assert!(refused.contains("files exceed 1000"), "{refused}");
    // The same file over itself, many times.
    let large = "x".repeat(1 << 20);
    let sources = BTreeMap::from([("s".to_owned(), make_tree(&[("large", &large)]))]);
    let over = |times: usize| vec![plain_copy("@s/large", "to"); times];
    assert!(compose_within(&limits, &sources, over(4)).is_ok());
    let refused = compose_within(&limits, &sources, over(5)).unwrap_err();
    assert!(refused.contains("bytes that are copied exceed 4 MiB"), "{refused}");
    // Patterns that match nothing, over names that almost match.
    let name = "a".repeat(200);
    let names: Vec<String> = (0..1000).map(|number| format!("{name}{number}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let sources = BTreeMap::from([("s".to_owned(), make_tree(&files))]);
    let bomb = "*a".repeat(300) + "b";
    let exclude = vec![bomb.as_str(); 100];
    let budget = ByteBudget::new(BudgetLimits::unlimited("bytes"));
    let mut memory = GrowingCharge::new_used(budget.try_acquire("lane", 0).unwrap());
    let (limits, cancelled) = (Limits::default(), AtomicBool::new(false));
    let mut run = |exclude: &[&str]| {
        let mut stage = Stage::new(&sources, &limits, &mut memory, &cancelled);
        stage.steps = Steps::with_count(1 << 24);
        let copies = vec![make_copy("@s/**", "", exclude, Strategy::Overwrite)];
        let recipe = Recipe {
            copies,
            ..Recipe::default()
        };
        stage.follow_recipe(&recipe).map_err(|error| error.to_string())
    };
    assert!(
        run(&exclude)
            .unwrap_err()
            .contains("take too much work for so many files")
    );
    // The control: the same number of ordinary patterns.
    assert_eq!(run(&["*.md"; 10]), Ok(()));
}

#[test]
fn a_full_budget_is_reported_by_its_setting() {
    let account = FetchBudgets {
        memory: ByteBudget::new(BudgetLimits {
            what: "bytes of fetches",
            lane: 1 << 10,
            all: 1 << 10,
            lane_setting: "--fetches-per-tenant",
            all_setting: "--fetches",
            is_half: false,
        }),
        ..FetchBudgets::unlimited()
    };
    let mut memory = GrowingCharge::new_used(account.memory.try_acquire("lane", 0).unwrap());
    let (limits, cancelled) = (Limits::default(), AtomicBool::new(false));
    let sources = BTreeMap::from([("s".to_owned(), make_tree(CONFIG))]);
    let mut stage = Stage::new(&sources, &limits, &mut memory, &cancelled);
    let recipe = Recipe {
        copies: (0..20).map(|number| plain_copy("@s/", &format!("{number}/"))).collect(),
        ..Recipe::default()
    };
    let refused = stage.follow_recipe(&recipe).unwrap_err().to_string();
    assert!(refused.contains("--fetches-per-tenant"), "{refused}");
}
