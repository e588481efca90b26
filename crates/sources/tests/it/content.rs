//! The content of an artifact.

use std::process::Stdio;

use serde_json::json;
use tenure_git_server::Content;
use tenure_sources::{Entry, FetchError, Node};
use tokio::io::AsyncWriteExt as _;

use crate::bed::Bed;

#[tokio::test]
async fn files_links_and_long_names_arrive_as_committed() {
    let bed = Bed::new().await;
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(130));
    let target = format!("../{}", "t".repeat(150));
    let binary: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let files = [
        ("run.sh", Content::Executable(b"#!/bin/sh\n".to_vec())),
        ("empty", Content::from("")),
        ("base/kustomization.yaml", Content::from("resources: []\n")),
        (long.as_str(), Content::from("long")),
        ("link", Content::Link("./base//kustomization.yaml".to_owned())),
        ("outside", Content::Link("/etc/passwd".to_owned())),
        ("upward/link", Content::Link(target.clone())),
        ("binary", Content::File(binary.clone())),
        ("module", Content::Submodule("a".repeat(40))),
        ("ünïcode/ß.yaml", Content::from("x")),
    ];
    bed.repository.commit(files, "all").await.unwrap();
    let (artifact, _) = bed.get(json!({"branch": "main"})).await;
    let tree = bed.load(&artifact);
    assert_eq!(tree.len(), 9, "{tree:?}");
    assert_eq!(tree.entry("empty"), Some(Entry::File(b"")));
    assert_eq!(tree.entry(&long), Some(Entry::File(b"long")));
    assert_eq!(tree.entry("link"), Some(Entry::Link("./base//kustomization.yaml")));
    assert_eq!(tree.entry("outside"), Some(Entry::Link("/etc/passwd")));
    assert_eq!(tree.entry("upward/link"), Some(Entry::Link(&target)));
    assert_eq!(tree.entry("binary"), Some(Entry::File(&binary)));
    assert_eq!(tree.entry("base"), Some(Entry::Directory));
    assert_eq!(tree.entry(""), Some(Entry::Directory));
    for absent in ["bas", "module", "base/", "/base", "link/x", "none"] {
        assert_eq!(tree.entry(absent), None, "{absent}");
    }
    assert_eq!(tree.list("base"), ["kustomization.yaml"]);
    assert_eq!(tree.list("ünïcode"), ["ß.yaml"]);
    assert_eq!(tree.list("").len(), 9);
    assert!(matches!(
        tree.iter().next(),
        Some(("base/kustomization.yaml", Node::File(_)))
    ));
}

#[tokio::test]
async fn equal_content_gives_equal_bytes() {
    let bed = Bed::new().await;
    let files = [
        ("a", Content::from("1")),
        ("b/x", Content::Executable(vec![1])),
        ("l", Content::Link("a".to_owned())),
    ];
    bed.repository.commit(files.clone(), "one").await.unwrap();
    let (first, _) = bed.get(json!({"branch": "main"})).await;
    let other = bed.server.create("other").await.unwrap();
    other.commit([("b/y", "later removed")], "zero").await.unwrap();
    other.commit([("b/y", Content::Removed)], "zero").await.unwrap();
    for (path, content) in files.into_iter().rev() {
        other.commit([(path, content)], "step by step").await.unwrap();
    }
    let request = bed.request_spec(json!({"url": bed.server.http_url("other"), "ref": {"branch": "main"}}));
    let (second, _) = bed.get_request(&request).await;
    assert_ne!(first.facts.revision, second.facts.revision);
    assert_eq!((&first.facts.digest, first.size), (&second.facts.digest, second.size));
    assert!(first.facts.digest.starts_with("sha256:") && first.facts.digest.len() == 71);
    let hex = first.facts.digest.trim_start_matches("sha256:");
    assert_eq!(first.path, format!("gitrepository/team/app/1/{hex}.tar.gz"));
}

#[tokio::test]
async fn ignored_files_stay_out() {
    let bed = Bed::new().await;
    let files = [
        (".gitignore", "x"),
        (".github/workflow.yaml", "x"),
        ("logo.png", "x"),
        ("app.yaml", "x"),
        ("docs/a.md", "x"),
    ];
    bed.repository.commit(files, "defaults").await.unwrap();
    let names = |tree: tenure_sources::Tree| tree.iter().map(|(path, _)| path.to_owned()).collect::<Vec<_>>();
    let (artifact, _) = bed.get(json!({"branch": "main"})).await;
    assert_eq!(names(bed.load(&artifact)), ["app.yaml", "docs/a.md"]);

    bed.repository
        .commit([("docs/.sourceignore", "*.md\n")], "own")
        .await
        .unwrap();
    let (artifact, _) = bed.get(json!({"branch": "main"})).await;
    assert_eq!(
        names(bed.load(&artifact)),
        [".github/workflow.yaml", "app.yaml", "docs/.sourceignore", "logo.png"]
    );
    let url = bed.server.http_url("app");
    let spec = json!({"url": url, "ref": {"branch": "main"}, "ignore": "/*\n!/docs\n.sourceignore\n!docs/a.md"});
    let (artifact, _) = bed.get_request(&bed.request_spec(spec)).await;
    assert_eq!(names(bed.load(&artifact)), ["docs/a.md"]);

    bed.repository
        .commit([(".sourceignore", Content::Link("/etc/passwd".to_owned()))], "evil")
        .await
        .unwrap();
    let (error, message) = bed.refuse(json!({"branch": "main"})).await;
    assert!(
        matches!(error, FetchError::InvalidTree { .. }) && message.contains("symbolic link"),
        "{message}"
    );
    bed.assert_tidy();
}

#[tokio::test]
async fn deltas_of_a_packed_repository_are_resolved() {
    let bed = Bed::new().await;
    // Similar files, so that git makes chains of deltas.
    let text = |n: usize| {
        (0..400)
            .map(|line| format!("line {line} of {}\n", line * n / 7))
            .collect::<String>()
    };
    let files: Vec<_> = (0..60).map(|n| (format!("d{}/f{n}.yaml", n % 5), text(n))).collect();
    bed.repository.commit(files.clone(), "alike").await.unwrap();
    let mut command = tokio::process::Command::new("git");
    command
        .args(["repack", "-adfq", "--depth=50"])
        .current_dir(bed.repository.folder());
    assert!(command.status().await.unwrap().success());
    let (artifact, _) = bed.get(json!({"branch": "main"})).await;
    let tree = bed.load(&artifact);
    for (path, content) in files {
        assert_eq!(tree.entry(&path), Some(Entry::File(content.as_bytes())), "{path}");
    }
}

/// Commits a tree with these entries, in the input format of `mktree`.
async fn commit_tree(bed: &Bed, entries: &[u8]) -> String {
    let tree = run_git(bed, &["mktree", "-z"], entries).await;
    let person = ["-c", "user.name=x", "-c", "user.email=x@example.com"];
    let arguments = [person.as_slice(), &["commit-tree", "-m", "names", &tree]].concat();
    let commit = run_git(bed, &arguments, b"").await;
    bed.repository.set_reference("refs/heads/main", &commit).await.unwrap();
    commit
}

async fn run_git(bed: &Bed, arguments: &[&str], input: &[u8]) -> String {
    let mut child = tokio::process::Command::new("git")
        .args(arguments)
        .current_dir(bed.repository.folder())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Names, paths and ignore files count only if no pattern excludes them.
#[tokio::test]
async fn ignored_files_may_have_any_name() {
    let bed = Bed::new().await;
    let blob = run_git(&bed, &["hash-object", "-w", "--stdin"], b"a: b").await;
    let not_text = run_git(&bed, &["hash-object", "-w", "--stdin"], b"\xff").await;
    let latin = |kind: &str, id: &str| [format!("{kind} {id}\tcaf").as_bytes(), b"\xe9.txt\0"].concat();
    let file = |id: &str, name: &str| format!("100644 blob {id}\t{name}\0").into_bytes();
    let names = run_git(&bed, &["mktree", "-z"], &latin("100644 blob", &blob)).await;
    let folder = run_git(&bed, &["mktree", "-z"], &latin("040000 tree", &names)).await;
    let ignores = run_git(&bed, &["mktree", "-z"], &file(&not_text, ".sourceignore")).await;
    let long = run_git(&bed, &["mktree", "-z"], &file(&blob, &"x".repeat(5000))).await;
    let cases = [
        ("a name", names, "is not UTF-8"),
        ("a folder's name", folder, "is not UTF-8"),
        ("an ignore file", ignores, "is not UTF-8 text"),
        ("a long path", long, "the path"),
    ];
    for (what, tree, problem) in cases {
        let root = [
            file(&blob, "app.yaml"),
            format!("040000 tree {tree}\tlegacy\0").into_bytes(),
        ];
        commit_tree(&bed, &root.concat()).await;
        let (_, message) = bed.refuse(json!({"branch": "main"})).await;
        assert!(message.contains(problem), "{what}: {message}");
        let spec = json!({"url": bed.server.http_url("app"), "ref": {"branch": "main"}, "ignore": "/legacy/\n"});
        let (artifact, _) = bed.get_request(&bed.request_spec(spec)).await;
        let tree = bed.load(&artifact);
        let names: Vec<&str> = tree.iter().map(|(path, _)| path).collect();
        assert_eq!(names, ["app.yaml"], "{what}");
        let spec =
            json!({"url": bed.server.http_url("app"), "ref": {"branch": "main"}, "sparseCheckout": ["app.yaml"]});
        bed.get_request(&bed.request_spec(spec)).await;
    }
    // The files of a submodule are below its path.
    let link = [format!("160000 commit {}\t", "1".repeat(40)).as_bytes(), b"caf\xe9\0"].concat();
    commit_tree(&bed, &[file(&blob, "app.yaml"), link].concat()).await;
    let mut request = bed.request(json!({"branch": "main"}));
    request.asked.submodules = true;
    let (_, message) = bed.refuse_request(&request).await;
    assert!(message.contains("is not UTF-8"), "{message}");
    request.asked.ignore = Some("caf*/\n".to_owned());
    bed.get_request(&request).await;
    // The patterns see a replacement character for bytes that are no UTF-8.
    commit_tree(&bed, &[file(&blob, "app.yaml"), latin("100644 blob", &blob)].concat()).await;
    let spec = json!({"url": bed.server.http_url("app"), "ref": {"branch": "main"}, "ignore": "caf?.txt\n"});
    bed.get_request(&bed.request_spec(spec)).await;
}
