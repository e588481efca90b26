//! A folder of a source becomes a chart as Flux packages it, and nothing outside the source is reached.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use super::super::archive::read_metadata;
use super::super::error::ChartError;
use super::{ChartReader, FoundChart};
use crate::archive_writer::ArchiveWriter;
use crate::budget::BudgetLimits;
use crate::limits::Limits;
use crate::tree::Tree;

const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.0.0\n";
const OTHER: &str = "apiVersion: v2\nname: other\nversion: 2.1.0\n";

/// Makes a tree; a content that begins with `-> ` makes a link.
fn make_tree(entries: &[(&str, &str)]) -> Tree {
    let (limits, trees) = (Limits::default(), BudgetLimits::unlimited("trees"));
    let mut bytes = Vec::new();
    let mut archive = ArchiveWriter::new(&mut bytes, &limits, &trees);
    for (path, content) in entries {
        match content.strip_prefix("-> ") {
            Some(target) => archive.add_link(path, target.as_bytes()).unwrap(),
            None => {
                let content = content.as_bytes();
                archive.add_file(path, false, (content.len() as u64, content)).unwrap();
            }
        }
    }
    archive.finish().unwrap();
    Tree::from_archive(bytes.as_slice(), ("sha256:x", 64 << 20), &limits).unwrap()
}

fn read(entries: &[(&str, &str)], path: &str) -> Result<BTreeMap<String, String>, ChartError> {
    let tree = make_tree(entries);
    let cancelled = AtomicBool::new(false);
    let reader = ChartReader {
        tree: &tree,
        cancelled: &cancelled,
        memory: std::cell::RefCell::new(crate::fuzzing::unlimited_charge()),
    };
    let FoundChart::Folder(mut files) = reader.read_chart(path)? else {
        return Ok(BTreeMap::new());
    };
    let metadata = read_metadata(&files).map_err(ChartError::Reference)?;
    reader.add_dependencies(path, &mut files, &metadata)?;
    let text = |content: &[u8]| String::from_utf8_lossy(content).into_owned();
    Ok(files
        .into_iter()
        .map(|(path, file)| (path, text(&file.content)))
        .collect())
}

fn list(entries: &[(&str, &str)], path: &str) -> Vec<String> {
    read(entries, path).unwrap().into_keys().collect()
}

#[test]
fn folder_is_read_without_ignored_files() {
    let entries = [
        ("charts/app/.helmignore", "*.md\nci/\n"),
        ("charts/app/Chart.yaml", CHART),
        ("charts/app/README.md", "x"),
        ("charts/app/ci/a.yaml", "x"),
        ("charts/app/templates/.hidden", "x"),
        ("charts/app/templates/a.yaml", "x"),
        ("other.yaml", "x"),
    ];
    for path in [
        "charts/app",
        "./charts/app/",
        "charts/../charts/app",
        "../../charts/app",
    ] {
        assert_eq!(
            list(&entries, path),
            [".helmignore", "Chart.yaml", "templates/a.yaml"],
            "{path}"
        );
    }
    let root = [("Chart.yaml", CHART), ("templates/a.yaml", "x")];
    assert_eq!(list(&root, "."), ["Chart.yaml", "templates/a.yaml"]);
}

#[test]
fn links_are_followed_within_the_source() {
    let entries = [
        ("shared/values.yaml", "a: 1\n"),
        ("shared/lib/x.yaml", "x"),
        ("app/Chart.yaml", CHART),
        ("app/lib", "-> ../shared/lib"),
        ("app/values.yaml", "-> ../shared/values.yaml"),
    ];
    assert_eq!(read(&entries, "app").unwrap()["values.yaml"], "a: 1\n");
    assert_eq!(list(&entries, "app"), ["Chart.yaml", "lib/x.yaml", "values.yaml"]);
    for target in ["-> /etc/passwd", "-> ../../../etc/passwd", "-> missing", "-> loop"] {
        let found = read(&[("app/Chart.yaml", CHART), ("app/loop", target)], "app").unwrap_err();
        assert!(found.to_string().contains("leads to nothing"), "{target}: {found}");
    }
    let found = read(&[("app/Chart.yaml", CHART), ("app/again", "-> .")], "app").unwrap_err();
    assert!(found.to_string().contains("a link leads back"), "{found}");
}

#[test]
fn missing_charts_are_refused() {
    for path in ["app", "values.yaml/x", "app\0"] {
        let found = read(&[("values.yaml", "x")], path).err();
        assert!(matches!(found, Some(ChartError::Reference(_))), "{path}");
    }
    let found = read(&[("app/values.yaml", "x")], "app").unwrap_err();
    assert!(found.to_string().contains("no 'Chart.yaml' found"), "{found}");
}

#[test]
fn charts_of_the_same_source_are_added() {
    let needs = |entry: &str| format!("{CHART}dependencies:\n- {entry}\n");
    let chart = needs("{name: other, version: 2.x, repository: 'file://../other', alias: db}");
    let entries = [
        ("app/Chart.yaml", chart.as_str()),
        ("other/Chart.yaml", OTHER),
        ("other/templates/a.yaml", "x"),
    ];
    let files = read(&entries, "app").unwrap();
    assert_eq!(files["charts/db/templates/a.yaml"], "x");
    assert!(files["charts/db/Chart.yaml"].contains("name: db\n"));

    let present = needs("{name: other, version: 2.x, repository: 'https://other.example'}");
    let entries = [
        ("app/Chart.yaml", present.as_str()),
        ("app/charts/other/Chart.yaml", OTHER),
    ];
    assert_eq!(list(&entries, "app"), ["Chart.yaml", "charts/other/Chart.yaml"]);
}

#[test]
fn missing_dependencies_are_named() {
    for (entry, problem) in [
        (
            "{name: b, version: 1.x, repository: 'https://b.example'}",
            "failed to add remote dependency 'b'",
        ),
        (
            "{name: b, version: 1.x, repository: '@alias'}",
            "failed to add remote dependency 'b'",
        ),
        (
            "{name: b, version: 1.x, repository: 'file://../none'}",
            "no chart found at '../none'",
        ),
        ("{name: b, version: 1.x}", "no chart found at 'charts/b'"),
        (
            "{name: other, version: 1.x, repository: 'file://../other'}",
            "can't get a valid version",
        ),
        (
            "{name: other, version: x.y, repository: 'file://../other'}",
            "invalid version/constraint",
        ),
    ] {
        let chart = format!("{CHART}dependencies:\n- {entry}\n");
        let entries = [("app/Chart.yaml", chart.as_str()), ("other/Chart.yaml", OTHER)];
        let found = read(&entries, "app").unwrap_err();
        assert!(matches!(found, ChartError::Dependency(_)), "{entry}");
        assert!(found.to_string().contains(problem), "{entry}: {found}");
    }
}
