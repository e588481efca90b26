//! Submodules of repositories.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tenure_git_server::{Content, HttpAuthentication, Options, Repository};
use tenure_remote_requests::artifact::StoredArtifact;
use tenure_remote_requests::fetch::{FetchReason, Fetched};
use tenure_sources::{FetchError, GitRequest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::bed::{Bed, endpoint, secret};

fn list_paths(bed: &Bed, artifact: &StoredArtifact) -> Vec<String> {
    bed.load(artifact).iter().map(|(path, _)| path.to_owned()).collect()
}

fn recursive_request(bed: &Bed) -> GitRequest {
    let mut request = bed.request(json!({"branch": "main"}));
    request.asked.submodules = true;
    request
}

/// Commits submodules, each with its path, address and commit, and other files.
async fn commit_files(repository: &Repository, modules: &[(&str, &str, &str)], files: &[(&str, &str)]) -> String {
    let mut changes: Vec<(String, Content)> = Vec::new();
    let mut text = String::new();
    for (path, address, commit) in modules {
        text.push_str(&format!("[submodule \"{path}\"]\n\tpath = {path}\n\turl = {address}\n"));
        changes.push(((*path).to_owned(), Content::Submodule((*commit).to_owned())));
    }
    changes.push((".gitmodules".to_owned(), text.into()));
    changes.extend(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).into())));
    repository.commit(changes, "modules").await.unwrap()
}

async fn expect_refusal(bed: &Bed, expected: &str) -> FetchError {
    let (error, message) = bed.refuse_request(&recursive_request(bed)).await;
    assert!(message.contains(expected), "{expected}: {message}");
    assert!(!error.is_stalled(), "{message}");
    bed.assert_tidy();
    error
}

#[tokio::test]
async fn nested_submodules_are_fetched_at_their_recorded_commits() {
    let bed = Bed::new().await;
    let deep = bed.server.create("deep").await.unwrap();
    let library = bed.server.create("library").await.unwrap();
    let deepest = deep
        .commit([("d.yaml", "d"), ("d.jpg", "d"), ("note.txt", "d")], "deep")
        .await
        .unwrap();
    let inner = commit_files(&library, &[("in", "../deep.git", &deepest)], &[("l.yaml", "old")]).await;
    library.commit([("l.yaml", "new")], "later").await.unwrap();
    let address = bed.server.http_url("library");
    let modules = [
        ("lib/one", "../library.git", inner.as_str()),
        ("lib/two", &address, &inner),
    ];
    commit_files(
        &bed.repository,
        &modules,
        &[("own.yaml", "own"), ("lib/own.yaml", "own")],
    )
    .await;
    let (without, _) = bed.get(json!({"branch": "main"})).await;
    assert_eq!(list_paths(&bed, &without), ["lib/own.yaml", "own.yaml"]);
    let mut request = recursive_request(&bed);
    let Fetched::Stored { artifact, .. } = bed.fetch(&request, Some(&without)).await.unwrap() else {
        panic!("nothing new");
    };
    assert_eq!(
        list_paths(&bed, &artifact),
        [
            "lib/one/in/d.yaml",
            "lib/one/in/note.txt",
            "lib/one/l.yaml",
            "lib/own.yaml",
            "lib/two/in/d.yaml",
            "lib/two/in/note.txt",
            "lib/two/l.yaml",
            "own.yaml"
        ]
    );
    let tree = bed.load(&artifact);
    assert_eq!(tree.entry("lib/one/l.yaml"), Some(tenure_sources::Entry::File(b"old")));
    assert!(matches!(
        bed.fetch(&request, Some(&artifact)).await.unwrap(),
        Fetched::Unchanged { .. }
    ));
    // Ignore patterns of the source apply to everything.
    request.asked.ignore = Some("/lib/two\n*.txt\n".to_owned());
    let (artifact, _) = bed.get_request(&request).await;
    assert_eq!(
        list_paths(&bed, &artifact),
        [
            "lib/one/in/d.jpg",
            "lib/one/in/d.yaml",
            "lib/one/l.yaml",
            "lib/own.yaml",
            "own.yaml"
        ]
    );
    // With sparse folders, only the submodules in them are fetched.
    let mut request = recursive_request(&bed);
    request.asked.sparse = vec!["lib/one".to_owned()];
    let (artifact, _) = bed.get_request(&request).await;
    assert_eq!(
        list_paths(&bed, &artifact),
        ["lib/one/in/d.yaml", "lib/one/in/note.txt", "lib/one/l.yaml"]
    );
    bed.assert_tidy();

    // A submodule without an address is refused, unless its files are excluded anyway.
    let nowhere = [("lib/nowhere", Content::Submodule(inner.clone()))];
    bed.repository.commit(nowhere, "nowhere").await.unwrap();
    expect_refusal(&bed, "the submodule \"lib/nowhere\" has no address").await;
    for ignore in ["/lib/nowhere/\n", "/lib/\n"] {
        let mut request = recursive_request(&bed);
        request.asked.ignore = Some(ignore.to_owned());
        bed.get_request(&request).await;
    }
    bed.repository
        .commit([("lib/nowhere", Content::Removed)], "somewhere")
        .await
        .unwrap();

    // A commit that does not exist.
    let missing = "1".repeat(40);
    let modules = [("lib/one", "../library.git", missing.as_str()), modules[1]];
    commit_files(&bed.repository, &modules, &[]).await;
    expect_refusal(&bed, "submodule \"lib/one\": ").await;
}

#[tokio::test]
async fn credentials_stay_with_the_sources_own_host() {
    let authentication = HttpAuthentication::Basic {
        username: "git".to_owned(),
        password: "hush".to_owned(),
    };
    let mut bed = Bed::with(Options {
        authentication: Some(authentication),
        ..Options::default()
    })
    .await;
    bed.secret = secret(&[("username", "git"), ("password", "hush")]);
    let library = bed.server.create("library").await.unwrap();
    let inner = library.commit([("l.yaml", "l")], "first").await.unwrap();
    commit_files(&bed.repository, &[("lib", "../library.git", &inner)], &[]).await;
    let (artifact, _) = bed.get_request(&recursive_request(&bed)).await;
    assert_eq!(list_paths(&bed, &artifact), ["lib/l.yaml"]);

    // Another port is another host.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let foreign = format!("http://{}/x.git", listener.local_addr().unwrap());
    bed.policy.allow.push(endpoint(&foreign));
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&heads);
    let server = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            noted.lock().unwrap().push(String::from_utf8(head).unwrap());
            let _ = client.write_all(b"HTTP/1.1 401 no\r\nContent-Length: 0\r\n\r\n").await;
        }
    });
    commit_files(&bed.repository, &[("lib", &foreign, &inner)], &[]).await;
    let error = expect_refusal(&bed, "submodule \"lib\": authentication to").await;
    assert_eq!(error.reason(), FetchReason::AuthenticationFailed);
    assert!(!error.to_string().contains("hush"));
    let heads = heads.lock().unwrap().clone();
    assert_eq!(heads.len(), 1);
    assert!(!heads[0].to_ascii_lowercase().contains("authorization"), "{heads:?}");
    server.abort();

    commit_files(
        &bed.repository,
        &[("lib", "git@elsewhere.example:team/x.git", &inner)],
        &[],
    )
    .await;
    expect_refusal(
        &bed,
        "ssh needs a key, and credentials are only sent to the host of spec.url",
    )
    .await;
}

#[tokio::test]
async fn no_address_and_no_path_leads_out() {
    let bed = Bed::new().await;
    let first = bed.repository.commit([("a", "x")], "first").await.unwrap();
    let port = bed.server.http_address().port();
    let inward = format!("http://localhost:{port}/app.git");
    for (address, expected) in [
        ("file:///etc", "invalid Git URL"),
        ("/etc/passwd", "invalid Git URL"),
        ("ext::sh -c id", "invalid Git URL"),
        ("git://example.com/x", "scheme \"git\" is not one of"),
        ("https://example.com/-x", "dash"),
        ("-u./x", "invalid Git URL"),
        ("../../../../x", "leads above the root"),
        ("http://169.254.169.254/latest.git", "a cloud metadata address"),
        ("http://[::1]/x.git", "a loopback address"),
        (inward.as_str(), "a loopback address"),
        ("\"open", "is not closed"),
    ] {
        commit_files(&bed.repository, &[("lib", address, &first)], &[]).await;
        let error = expect_refusal(&bed, expected).await;
        assert_ne!(error.reason(), FetchReason::UrlInvalid);
    }
    // A `.gitmodules` that is a link.
    let link = [(".gitmodules", Content::Link("a".to_owned()))];
    bed.repository.commit(link, "link").await.unwrap();
    expect_refusal(&bed, "\".gitmodules\" is no regular file").await;
    // A path in `.gitmodules` without a submodule puts no files there.
    let odd = format!(
        "[submodule \"x\"]\n\tpath = ../../up\n\turl = {}\n",
        bed.server.http_url("app")
    );
    let modules = [(".gitmodules", odd.into()), ("lib", Content::Removed)];
    bed.repository.commit(modules, "odd").await.unwrap();
    let (artifact, _) = bed.get_request(&recursive_request(&bed)).await;
    assert_eq!(list_paths(&bed, &artifact), ["a"]);
}

#[tokio::test]
async fn their_number_their_depth_and_their_size_are_bounded() {
    let mut bed = Bed::new().await;
    let mut last = bed
        .repository
        .commit([("a", vec![b'x'; 40 << 10])], "first")
        .await
        .unwrap();
    let first = last.clone();
    // A repository that contains itself, ten times nested.
    for _ in 0..10 {
        last = commit_files(&bed.repository, &[("in", "./", &last)], &[]).await;
    }
    let (artifact, _) = bed.get_request(&recursive_request(&bed)).await;
    assert_eq!(list_paths(&bed, &artifact).len(), 11);
    commit_files(&bed.repository, &[("in", "./", &last)], &[]).await;
    let error = expect_refusal(&bed, "submodules in submodules exceed 10").await;
    assert!(matches!(error, FetchError::TooLarge { .. }));

    let names: Vec<String> = (0..33).map(|at| format!("in{at}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "./", first.as_str())).collect();
    commit_files(&bed.repository, &many, &[]).await;
    bed.repository
        .commit([("in", Content::Removed)], "fewer")
        .await
        .unwrap();
    expect_refusal(&bed, "submodules exceed 32").await;

    let removed = names[3..].iter().map(|name| (name.as_str(), Content::Removed));
    bed.repository.commit(removed, "fewer").await.unwrap();
    commit_files(&bed.repository, &many[..3], &[]).await;
    bed.limits.unpacked_bytes = 100 << 10;
    expect_refusal(&bed, "unpacked bytes exceed 100 KiB").await;
    bed.limits.unpacked_bytes = 100 << 20;
    bed.limits.object_bytes = 100 << 10;
    expect_refusal(&bed, "bytes of objects exceed 100 KiB").await;
    bed.limits.object_bytes = 100 << 20;
    bed.limits.files = 3;
    expect_refusal(&bed, "files exceed 3").await;
}
