//! Files in Git LFS.

mod servers;

use serde_json::json;
use tenure_git_server::{Content, GitServer, HttpAuthentication, LargeFileRequest, Mirror, Options};
use tenure_remote_requests::artifact::StoredArtifact;
use tenure_remote_requests::fetch::Fetched;
use tenure_sources::{BudgetLimits, ByteBudget, Entry, FetchError, GitRequest, Node};

use crate::bed::{Bed, noise, secret};

fn main_branch(bed: &Bed) -> GitRequest {
    bed.request(json!({"branch": "main"}))
}

fn locked_options() -> Options {
    Options {
        authentication: Some(HttpAuthentication::Basic {
            username: "git".to_owned(),
            password: "hush".to_owned(),
        }),
        ..Options::default()
    }
}

/// Makes a server that requires a password, with a file in LFS, and the Secret for it.
async fn private_bed() -> Bed {
    let mut bed = Bed::with(locked_options()).await;
    bed.secret = secret(&[("username", "git"), ("password", "hush")]);
    commit_files(&bed, &[("big.json", b"{\"big\": true}")]).await;
    bed
}

/// Commits pointers to these contents, and stores the contents.
async fn commit_files(bed: &Bed, files: &[(&str, &[u8])]) {
    let pointers = files
        .iter()
        .map(|(path, content)| (*path, bed.repository.store_large_file(content).unwrap()));
    bed.repository.commit(pointers, "large").await.unwrap();
}

fn read_content(bed: &Bed, artifact: &StoredArtifact, path: &str) -> Vec<u8> {
    match bed.load(artifact).entry(path) {
        Some(Entry::File(content)) => content.to_vec(),
        other => panic!("{path}: {other:?}"),
    }
}

fn list_batches(bed: &Bed) -> Vec<LargeFileRequest> {
    let is_batch = |request: &LargeFileRequest| request.target.ends_with("/info/lfs/objects/batch");
    bed.server.large_file_requests().into_iter().filter(is_batch).collect()
}

async fn expect_refusal(bed: &Bed, expected: &str) -> FetchError {
    let (error, message) = bed.refuse_request(&main_branch(bed)).await;
    assert!(message.contains(expected), "{expected}: {message}");
    assert!(message.contains("is in Git LFS"), "{message}");
    for secret in ["hush", "Signature", "4f3d9c"] {
        assert!(!message.contains(secret), "{message}");
    }
    assert!(!error.is_stalled(), "{message}");
    bed.assert_tidy();
    error
}

#[tokio::test]
async fn contents_are_in_the_place_of_pointers() {
    let bed = Bed::new().await;
    let (one, two) = (noise(1, 300 << 10), noise(2, 70 << 10));
    commit_files(&bed, &[("a/one", &one), ("again", &one), ("two.yaml", &two)]).await;
    let pointer = bed.repository.store_large_file(&two).unwrap();
    let others: [(&str, Content); 4] = [
        (
            "run.sh",
            Content::Executable(bed.repository.store_large_file(b"#!/bin/sh\n").unwrap().into_bytes()),
        ),
        ("link", Content::Link("two.yaml".to_owned())),
        ("small", "own".into()),
        // Not a pointer, but a text about one.
        ("about.md", format!("A pointer:\n{pointer}").into()),
    ];
    bed.repository.commit(others, "others").await.unwrap();
    let (artifact, _) = bed.get_request(&main_branch(&bed)).await;
    assert_eq!(read_content(&bed, &artifact, "a/one"), one);
    assert_eq!(read_content(&bed, &artifact, "again"), one);
    assert_eq!(read_content(&bed, &artifact, "two.yaml"), two);
    assert_eq!(read_content(&bed, &artifact, "run.sh"), b"#!/bin/sh\n");
    assert_eq!(read_content(&bed, &artifact, "small"), b"own");
    assert_eq!(
        read_content(&bed, &artifact, "about.md"),
        format!("A pointer:\n{pointer}").as_bytes()
    );
    let tree = bed.load(&artifact);
    assert!(
        tree.iter()
            .any(|(path, node)| path == "link" && *node == Node::Link("two.yaml".to_owned()))
    );
    bed.assert_tidy();
    let [batch] = list_batches(&bed).try_into().unwrap();
    let request: serde_json::Value = serde_json::from_str(&batch.body).unwrap();
    assert_eq!(request["ref"]["name"], "refs/heads/main");
    assert_eq!(request["objects"].as_array().unwrap().len(), 3);
    assert_eq!(bed.server.large_file_requests().len(), 4, "one request for each object");

    // The same commit gives the same artifact, and is not fetched again.
    let (again, _) = bed.get_request(&main_branch(&bed)).await;
    assert_eq!(again.facts, artifact.facts);
    let before = bed.server.large_file_requests().len();
    let unchanged = bed.fetch(&main_branch(&bed), Some(&artifact)).await.unwrap();
    assert!(matches!(unchanged, Fetched::Unchanged { .. }));
    assert_eq!(bed.server.large_file_requests().len(), before);

    // It is the artifact of a repository that has the contents themselves.
    let other = bed.server.create("plain").await.unwrap();
    let files: [(&str, Content); 7] = [
        ("a/one", one.clone().into()),
        ("again", one.into()),
        ("two.yaml", two.into()),
        ("run.sh", Content::Executable(b"#!/bin/sh\n".to_vec())),
        ("link", Content::Link("two.yaml".to_owned())),
        ("small", "own".into()),
        ("about.md", format!("A pointer:\n{pointer}").into()),
    ];
    other.commit(files, "plain").await.unwrap();
    let plain = bed.request_spec(json!({"url": bed.server.http_url("plain"), "ref": {"branch": "main"}}));
    let (plain, _) = bed.get_request(&plain).await;
    assert_eq!(plain.facts.digest, artifact.facts.digest);
}

#[tokio::test]
async fn only_selected_files_are_fetched() {
    let bed = Bed::new().await;
    let missing = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 9\n",
        "1".repeat(64)
    );
    commit_files(&bed, &[("deploy/a.json", b"{}")]).await;
    let lost = [("media/film.mp4", missing.clone()), ("logo.png", missing.clone())];
    bed.repository.commit(lost, "lost").await.unwrap();
    expect_refusal(&bed, "\"media/film.mp4\" is in Git LFS").await;
    let mut request = main_branch(&bed);
    request.asked.ignore = Some("/media\n*.png\n".to_owned());
    let (artifact, _) = bed.get_request(&request).await;
    assert_eq!(read_content(&bed, &artifact, "deploy/a.json"), b"{}");
    let mut request = main_branch(&bed);
    request.asked.sparse = vec!["deploy".to_owned()];
    let (artifact, _) = bed.get_request(&request).await;
    assert_eq!(read_content(&bed, &artifact, "deploy/a.json"), b"{}");

    // The repository itself can leave files out. They stay pointers, as in a clone.
    let config = [(".lfsconfig", "[lfs]\n\tfetchexclude = /media/\n")];
    bed.repository.commit(config, "config").await.unwrap();
    let (artifact, _) = bed.get_request(&main_branch(&bed)).await;
    assert_eq!(read_content(&bed, &artifact, "deploy/a.json"), b"{}");
    assert_eq!(read_content(&bed, &artifact, "media/film.mp4"), missing.as_bytes());
    // If nothing remains, no server is asked.
    let config = [(".lfsconfig", "[lfs]\n\tfetchexclude = *\n")];
    bed.repository.commit(config, "config").await.unwrap();
    let before = bed.server.large_file_requests().len();
    let (artifact, _) = bed.get_request(&main_branch(&bed)).await;
    assert!(read_content(&bed, &artifact, "deploy/a.json").starts_with(b"version "));
    assert_eq!(bed.server.large_file_requests().len(), before);

    // A pointer that leads nowhere, and an empty content, need no server.
    let pointers = [
        (".lfsconfig", String::new()),
        ("media/film.mp4", missing.replace("oid ", "ext-0-x sha256:00\noid ")),
        ("empty", bed.repository.store_large_file(b"").unwrap()),
    ];
    bed.repository.commit(pointers, "others").await.unwrap();
    let (artifact, _) = bed.get_request(&main_branch(&bed)).await;
    assert!(read_content(&bed, &artifact, "media/film.mp4").starts_with(b"version "));
    assert_eq!(read_content(&bed, &artifact, "empty"), b"");
    bed.assert_tidy();
}

#[tokio::test]
async fn batches_and_their_number_are_bounded() {
    let mut bed = Bed::new().await;
    let files: Vec<(String, Vec<u8>)> = (0..230_u32)
        .map(|n| (format!("f{n}"), n.to_be_bytes().to_vec()))
        .collect();
    let files: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(path, content)| (path.as_str(), content.as_slice()))
        .collect();
    commit_files(&bed, &files).await;
    let (artifact, _) = bed.get_request(&main_branch(&bed)).await;
    assert_eq!(list_batches(&bed).len(), 3);
    for (path, expected) in files {
        assert_eq!(read_content(&bed, &artifact, path), expected);
    }
    let pointer = bed.repository.store_large_file(b"x").unwrap();
    let many = (0..1800).map(|n| (format!("g{n}"), pointer.clone()));
    bed.repository.commit(many, "many").await.unwrap();
    let (error, message) = bed.refuse_request(&main_branch(&bed)).await;
    assert!(matches!(error, FetchError::TooLarge { .. }), "{message}");
    assert!(message.contains("files in Git LFS exceed 2000"), "{message}");

    // More bytes than a limit or a budget allows are refused before any is requested.
    let removed = (0..1800).map(|n| (format!("g{n}"), Content::Removed));
    bed.repository.commit(removed, "fewer").await.unwrap();
    commit_files(&bed, &[("large", &noise(3, 200 << 10))]).await;
    let before = bed.server.large_file_requests().len();
    bed.limits.file_bytes = 100 << 10;
    expect_refusal(&bed, "\"large\" is in Git LFS, and its content can't be fetched: repository over the size limit: bytes of one file exceed 100 KiB").await;
    bed.limits.file_bytes = 10 << 20;
    bed.limits.unpacked_bytes = 300 << 10;
    expect_refusal(
        &bed,
        "unpacked bytes exceed 300 KiB; take less of the repository with spec.sparseCheckout or spec.ignore",
    )
    .await;
    bed.limits.unpacked_bytes = 10 << 20;
    bed.account.trees = BudgetLimits {
        lane: 300 << 10,
        lane_setting: "--tree-bytes",
        ..BudgetLimits::unlimited("files of repositories in memory")
    };
    expect_refusal(&bed, "--tree-bytes").await;
    bed.account.trees = BudgetLimits::unlimited("files of repositories in memory");
    assert_eq!(bed.server.large_file_requests().len(), before);
    // Received contents count with the rest of the fetch.
    bed.limits.received_bytes = 150 << 10;
    let (error, message) = bed.refuse_request(&main_branch(&bed)).await;
    assert!(matches!(error, FetchError::TooLarge { .. }), "{message}");
    assert!(message.contains("received bytes exceed 150 KiB"), "{message}");
    bed.limits.received_bytes = 10 << 20;
    bed.account.memory = ByteBudget::new(BudgetLimits {
        lane: 1 << 20,
        lane_setting: "--fetch-bytes",
        ..BudgetLimits::unlimited("bytes of fetches in memory")
    });
    let (error, message) = bed.refuse_request(&main_branch(&bed)).await;
    assert!(matches!(error, FetchError::OverBudget(_)), "{message}");
    assert!(message.contains("--fetch-bytes"), "{message}");
    bed.assert_tidy();
}

#[tokio::test]
async fn submodules_have_their_own_server() {
    let mut bed = Bed::with(locked_options()).await;
    bed.secret = secret(&[("username", "git"), ("password", "hush")]);
    let library = bed.server.create("library").await.unwrap();
    let pointers = [
        ("l.json", library.store_large_file(b"{\"l\": 1}").unwrap()),
        (
            "docs/film.mp4",
            format!(
                "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 9\n",
                "1".repeat(64)
            ),
        ),
        (".lfsconfig", "[lfs]\nfetchexclude = /docs/\n".to_owned()),
    ];
    let inner = library.commit(pointers, "large").await.unwrap();
    let modules = "[submodule \"lib\"]\n\tpath = lib\n\turl = ../library.git\n";
    let files = [
        (".gitmodules", Content::from(modules)),
        ("lib", Content::Submodule(inner)),
        (
            "own.json",
            bed.repository.store_large_file(b"{\"own\": 1}").unwrap().into(),
        ),
        (
            "lost.json",
            format!(
                "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 9\n",
                "2".repeat(64)
            )
            .into(),
        ),
    ];
    bed.repository.commit(files, "modules").await.unwrap();
    let mut request = main_branch(&bed);
    request.asked.submodules = true;
    request.asked.ignore = Some("/lost.json\n".to_owned());
    let (artifact, _) = bed.get_request(&request).await;
    assert_eq!(read_content(&bed, &artifact, "own.json"), b"{\"own\": 1}");
    assert_eq!(read_content(&bed, &artifact, "lib/l.json"), b"{\"l\": 1}");
    assert!(read_content(&bed, &artifact, "lib/docs/film.mp4").starts_with(b"version "));
    let targets: Vec<String> = list_batches(&bed).into_iter().map(|request| request.target).collect();
    assert_eq!(
        targets,
        ["/app.git/info/lfs/objects/batch", "/library.git/info/lfs/objects/batch"]
    );
    // A file of a submodule that the source leaves out is not requested.
    request.asked.ignore = Some("/lost.json\n/lib/l.json\n".to_owned());
    let before = list_batches(&bed).len();
    bed.get_request(&request).await;
    assert_eq!(list_batches(&bed).len(), before + 1);
    bed.assert_tidy();
}

#[tokio::test]
async fn a_mirror_of_a_local_repository_has_its_contents() {
    let bed = Bed::new().await;
    let local = GitServer::start(bed.folder.path().join("local"), Options::default())
        .await
        .unwrap();
    let local = local.create("app").await.unwrap();
    let pointer = local.store_large_file(b"{\"big\": true}").unwrap();
    local.commit([("big.json", pointer)], "large").await.unwrap();
    let mut mirror = Mirror::new(bed.repository.clone(), local.folder());
    mirror.update().await.unwrap().unwrap();
    let (artifact, _) = bed.get_request(&main_branch(&bed)).await;
    assert_eq!(read_content(&bed, &artifact, "big.json"), b"{\"big\": true}");
}
