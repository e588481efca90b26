//! Parts of repositories: sparse folders, and included files of other repositories.

use serde_json::json;
use tenure_git_server::Content;
use tenure_remote_requests::artifact::IncludedArtifact;
use tenure_remote_requests::fetch::Fetched;
use tenure_remote_requests::git::IncludeRequest;
use tenure_sources::{FetchError, GitRequest, GitSecrets, SourceKey};

use crate::bed::{Bed, source};

const FILES: [(&str, &str); 7] = [
    (".sourceignore", "deploy/\n"),
    ("README.md", "read me"),
    ("app/.sourceignore", "*.txt\n"),
    ("app/a.txt", "a"),
    ("app/a.yaml", "a"),
    ("application/b.yaml", "b"),
    ("deploy/base/c.yaml", "c"),
];

fn list_paths(bed: &Bed, artifact: &tenure_remote_requests::artifact::StoredArtifact) -> Vec<String> {
    bed.load(artifact).iter().map(|(path, _)| path.to_owned()).collect()
}

fn sparse_request(bed: &Bed, folders: &[&str]) -> GitRequest {
    let mut request = bed.request(json!({"branch": "main"}));
    request.asked.sparse = folders.iter().map(|folder| (*folder).to_owned()).collect();
    request
}

#[tokio::test]
async fn only_the_folders_asked_for_are_taken() {
    let bed = Bed::new().await;
    bed.repository.commit(FILES, "files").await.unwrap();
    // A folder whose name only begins the same is not selected. Ignore files of folders that are not selected have no effect.
    let (artifact, _) = bed.get_request(&sparse_request(&bed, &["app", "deploy/base"])).await;
    assert_eq!(
        list_paths(&bed, &artifact),
        ["app/.sourceignore", "app/a.yaml", "deploy/base/c.yaml"]
    );
    let (artifact, _) = bed.get_request(&sparse_request(&bed, &["README.md"])).await;
    assert_eq!(list_paths(&bed, &artifact), ["README.md"]);

    // The same commit with other folders is another artifact.
    let known = Some(&artifact);
    let again = bed.fetch(&sparse_request(&bed, &["README.md"]), known).await.unwrap();
    assert!(matches!(again, Fetched::Unchanged { .. }), "{again:?}");
    let other = bed.fetch(&sparse_request(&bed, &["app"]), known).await.unwrap();
    assert!(matches!(other, Fetched::Stored { .. }), "{other:?}");

    for missing in ["nothing", "app/nothing", "README.md/x"] {
        let (error, message) = bed.refuse_request(&sparse_request(&bed, &["app", missing])).await;
        assert!(matches!(error, FetchError::MissingFolder { .. }), "{message}");
        assert!(message.contains(&format!("{missing:?} does not exist")), "{message}");
    }
    bed.assert_tidy();
}

#[tokio::test]
async fn unselected_files_do_not_count() {
    let mut bed = Bed::new().await;
    let many = (0..50).map(|at| (format!("many/{at}"), "x"));
    bed.repository.commit(many, "many").await.unwrap();
    bed.repository.commit([("few/a", "x")], "few").await.unwrap();
    bed.limits.files = 10;
    let (error, _) = bed.refuse_request(&sparse_request(&bed, &[])).await;
    assert!(matches!(error, FetchError::TooLarge { what: "files", .. }));
    let (artifact, _) = bed.get_request(&sparse_request(&bed, &["few"])).await;
    assert_eq!(list_paths(&bed, &artifact), ["few/a"]);
}

/// Makes a repository beside the bed's own, and stores its artifact.
async fn store_beside(bed: &Bed, name: &str, files: &[(&str, Content)]) -> IncludedArtifact {
    bed.repository.commit_on(name, files.to_vec(), "beside").await.unwrap();
    let mut request = bed.request(json!({ "branch": name }));
    request.source = SourceKey::new("GitRepository", "team", name, "1").unwrap();
    let (artifact, _) = bed.get_request(&request).await;
    IncludedArtifact::from(&artifact)
}

/// Makes a request that includes stored artifacts of other sources, each from one path to another.
fn request_including(bed: &Bed, includes: &[(&str, &IncludedArtifact, &str, &str)]) -> GitRequest {
    let mut asked = bed.request(json!({"branch": "main"})).asked;
    let include = |(name, artifact, from, to): &(&str, &IncludedArtifact, &str, &str)| IncludeRequest {
        name: (*name).to_owned(),
        uid: "1".to_owned(),
        artifact: (*artifact).clone(),
        from: (*from).to_owned(),
        to: (*to).to_owned(),
    };
    asked.include = includes.iter().map(include).collect();
    GitRequest::read(source(), asked, &GitSecrets::default()).unwrap()
}

#[tokio::test]
async fn files_of_other_repositories_are_moved_to_their_target() {
    let bed = Bed::new().await;
    bed.repository.commit([("own.yaml", "own")], "own").await.unwrap();
    let files = [
        ("kit/run.sh", Content::Executable(b"#!".to_vec())),
        ("kit/link", Content::Link("run.sh".to_owned())),
        ("kit/note.txt", "note".into()),
        ("other.yaml", "other".into()),
    ];
    let base = store_beside(&bed, "base", &files).await;
    let mut request = request_including(&bed, &[("base", &base, "", "base"), ("base", &base, "kit", "kit")]);
    request.asked.ignore = Some("/base/*.yaml\n*.txt\n".to_owned());
    let (artifact, _) = bed.get_request(&request).await;
    assert_eq!(
        list_paths(&bed, &artifact),
        ["base/kit/link", "base/kit/run.sh", "kit/link", "kit/run.sh", "own.yaml"]
    );
    assert_eq!(artifact.included, [base.clone(), base.clone()]);
    // The same request gives the same archive, byte for byte.
    let (again, _) = bed.get_request(&request).await;
    assert_eq!(again.facts, artifact.facts);

    // A single file.
    let one = request_including(&bed, &[("base", &base, "other.yaml", "deep/er.yaml")]);
    let (artifact, _) = bed.get_request(&one).await;
    assert_eq!(list_paths(&bed, &artifact), ["deep/er.yaml", "own.yaml"]);

    // Another artifact of an included source makes another artifact of this one, although its own commit is the same.
    let known = Some(&artifact);
    assert!(matches!(
        bed.fetch(&one, known).await.unwrap(),
        Fetched::Unchanged { .. }
    ));
    let newer = store_beside(&bed, "base", &[("other.yaml", "newer".into())]).await;
    let newer = request_including(&bed, &[("base", &newer, "other.yaml", "deep/er.yaml")]);
    let Fetched::Stored { artifact, .. } = bed.fetch(&newer, known).await.unwrap() else {
        panic!("nothing new")
    };
    assert_eq!(
        bed.load(&artifact).entry("deep/er.yaml"),
        Some(tenure_sources::Entry::File(b"newer"))
    );
    bed.assert_tidy();
}

#[tokio::test]
async fn nothing_is_put_over_or_behind_something_else() {
    let bed = Bed::new().await;
    let own = [
        ("own.yaml", Content::from("own")),
        ("folder/in.yaml", "in".into()),
        ("out", Content::Link("../../etc".to_owned())),
    ];
    bed.repository.commit(own, "own").await.unwrap();
    let base = store_beside(&bed, "base", &[("a/in.yaml", "a".into()), ("b.yaml", "b".into())]).await;
    for (from, to, expected) in [
        (
            "b.yaml",
            "own.yaml",
            "\"own.yaml\" is in the included repository \"base\" and in the repository itself",
        ),
        ("a", "folder", "\"folder/in.yaml\" is in"),
        // Behind a link that leads out, and below a file; and a file in place of a folder.
        ("", "out", "\"out\" of the repository itself is no folder"),
        ("", "out/er", "\"out\" of the repository itself is no folder"),
        ("a", "own.yaml/x", "\"own.yaml\" of the repository itself is no folder"),
        (
            "b.yaml",
            "folder",
            "\"folder\" of the included repository \"base\" is no folder",
        ),
        ("gone", "base", "there is no file at \"gone\""),
        ("a/in", "base", "there is no file at \"a/in\""),
        // The planner refuses all of these earlier.
        ("", "../up", "has an empty, \".\" or \"..\" part"),
        ("", ".git/hooks", "leads into .git"),
    ] {
        let (error, message) = bed
            .refuse_request(&request_including(&bed, &[("base", &base, from, to)]))
            .await;
        assert!(matches!(error, FetchError::Misplaced { .. }), "{message}");
        assert!(message.contains(expected), "{from} {to}: {message}");
    }
    // Files may be added to an existing folder.
    let (artifact, _) = bed
        .get_request(&request_including(&bed, &[("base", &base, "b.yaml", "folder/b.yaml")]))
        .await;
    assert_eq!(
        list_paths(&bed, &artifact),
        ["folder/b.yaml", "folder/in.yaml", "out", "own.yaml"]
    );
    bed.assert_tidy();
}

#[tokio::test]
async fn everything_that_is_included_counts_against_one_limit() {
    let mut bed = Bed::new().await;
    bed.repository
        .commit([("own", vec![b'x'; 40 << 10])], "own")
        .await
        .unwrap();
    let base = store_beside(&bed, "base", &[("a", vec![b'x'; 40 << 10].into())]).await;
    bed.limits.unpacked_bytes = 100 << 10;
    let once = request_including(&bed, &[("base", &base, "", "one")]);
    bed.get_request(&once).await;
    let twice = request_including(&bed, &[("base", &base, "", "one"), ("base", &base, "", "two")]);
    let (error, message) = bed.refuse_request(&twice).await;
    assert!(
        matches!(
            error,
            FetchError::TooLarge {
                what: "unpacked bytes",
                ..
            }
        ),
        "{message}"
    );
    bed.limits.unpacked_bytes = 100 << 20;
    bed.limits.files = 2;
    let (error, message) = bed.refuse_request(&twice).await;
    assert!(matches!(error, FetchError::TooLarge { what: "files", .. }), "{message}");
    // Bytes that are read for a small part of a large archive count, too.
    bed.limits.files = 100;
    bed.limits.unpacked_bytes = 50 << 10;
    let includes: Vec<_> = ["b", "c", "d", "e", "f", "g"]
        .map(|to| ("base", &base, "a", to))
        .to_vec();
    let (error, _) = bed.refuse_request(&request_including(&bed, &includes)).await;
    assert!(matches!(error, FetchError::TooLarge { .. }));
    bed.assert_tidy();
}
