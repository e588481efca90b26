//! Entries are found in any notation, and the chosen version is Flux's.

use std::sync::atomic::AtomicBool;

use super::{Index, ListedVersion, choose_version, read_index};

const INDEX: &str = r#"
apiVersion: v1
generated: "2024-01-01T00:00:00Z"
entries:
  other:
  - version: 9.9.9
    urls: [other-9.9.9.tgz]
  app:
  - apiVersion: v2
    created: "2024-03-01T10:00:00Z"
    digest: sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    annotations: {a: [1, {b: c}]}
    urls:
    - app-1.1.0.tgz
    - https://mirror.example/app-1.1.0.tgz
    version: 1.1.0
  - {version: "1.0.0", urls: ["app-1.0.0.tgz"], digest: short}
  - version: 2.0.0-rc.1
  - version: not-a-version
    urls: []
"#;

fn read(text: &str, chart: &str) -> Result<Index, String> {
    read_index(text, Some(chart), &AtomicBool::new(false))
}

fn versions(text: &str) -> Vec<ListedVersion> {
    read(text, "app").unwrap().versions.unwrap()
}

fn choose(wanted: &str) -> Result<String, String> {
    choose_version("app", &versions(INDEX), wanted).map(|listed| listed.version.clone())
}

#[test]
fn versions_of_one_chart_are_read() {
    let found = versions(INDEX);
    assert_eq!(found.len(), 4);
    assert_eq!(found[0].url.as_deref(), Some("app-1.1.0.tgz"));
    assert_eq!(found[0].digest.as_deref(), Some("a".repeat(64).as_str()));
    assert_eq!(found[1].digest, None);
    assert_eq!(found[3].url, None);
    assert_eq!(read(INDEX, "missing").unwrap().versions, None);
    let json = r#"{"apiVersion":"v1","entries":{"app":[{"version":"1.0.0","urls":["a.tgz"]}]}}"#;
    assert_eq!(versions(json)[0].url.as_deref(), Some("a.tgz"));
}

#[test]
fn chosen_version_is_the_highest_in_range() {
    for (wanted, expected) in [
        ("", "1.1.0"),
        ("*", "1.1.0"),
        ("1.0.0", "1.0.0"),
        ("1.x", "1.1.0"),
        ("~1.0", "1.0.0"),
        ("<1.1", "1.0.0"),
        (">=1.0.0-0", "2.0.0-rc.1"),
        ("not-a-version", "not-a-version"),
    ] {
        assert_eq!(choose(wanted).as_deref(), Ok(expected), "{wanted}");
    }
    assert_eq!(
        choose("3.x").unwrap_err(),
        "no 'app' chart with version matching '3.x' found"
    );
    assert!(choose("latest").unwrap_err().starts_with("improper constraint"));
    assert!(choose_version("app", &[], "").is_err());
}

#[test]
fn later_creation_wins_among_equal_versions() {
    let text = "apiVersion: v1\nentries:\n  app:\n  - {version: 1.0.0+a, created: '2024-01-01T00:00:00Z'}\n  - {version: 1.0.0+b, created: '2024-02-01T00:00:00Z'}\n  - {version: 1.0.0+c}\n";
    let all = versions(text);
    assert_eq!(choose_version("app", &all, "1.x").unwrap().version, "1.0.0+b");
}

#[test]
fn unreadable_indexes_are_refused() {
    for (text, problem) in [
        ("", "empty index.yaml file"),
        ("# comment\n", "empty index.yaml file"),
        ("entries: {}\n", "no API version specified"),
        ("apiVersion: ''\nentries: {}\n", "no API version specified"),
        ("apiVersion: v1\nentries: []\n", "entries is no map"),
        ("apiVersion: v1\nentries: {app: text}\n", "has no list of versions"),
        ("apiVersion: v1\nentries: {app: [text]}\n", "is no map"),
        ("apiVersion: v1\nentries: {app: [], app: []}\n", "twice"),
        ("apiVersion: v1\nentries: {}\nentries: {}\n", "twice"),
        ("- a\n", "it is no map"),
        ("<html>", "it is no map"),
        (
            "apiVersion: v1\nentries: {app: [{version: [1]}]}\n",
            "in place of a text",
        ),
        ("apiVersion: v1\nentries: {app: [\n", "line"),
    ] {
        let found = read(text, "app").unwrap_err();
        assert!(found.contains(problem), "{text:?}: {found}");
    }
    assert!(read(&format!("apiVersion: v1\nentries: {{{}: []}}", "a".repeat(5000)), "app").is_err());
}

#[test]
fn cancelled_reading_ends() {
    let many = "- x\n".repeat(5000);
    let text = format!("apiVersion: v1\nother:\n{many}entries: {{}}\n");
    assert!(read_index(&text, None, &AtomicBool::new(true)).is_err());
    assert!(read_index(&text, None, &AtomicBool::new(false)).is_ok());
}
