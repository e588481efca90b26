//! The artifact of a bucket, and the objects that are fetched for it.

use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest as _, Sha256};
use tenure_bucket_server::Answer;
use tenure_remote_requests::bucket::FetchRequest;
use tenure_remote_requests::fetch::Fetched;
use tenure_sources::Entry;

use super::Stand;

/// Returns the revision of objects with these keys and marks, as Flux computes it.
fn compute_revision(objects: &[(&str, &str)]) -> String {
    let lines: String = objects.iter().map(|(key, mark)| format!("{key} {mark}\n")).collect();
    let digest = Sha256::digest(lines);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

// md5sum of "one", "two" and "three".
const ONE: &str = "f97c5d29941bfb1b2fdab0874906ab82";
const TWO: &str = "b8a9f715dbb64fd5c56e7783c6820a61";
const THREE: &str = "35d6d33467aae9a2e3dccb4b6b027878";

#[tokio::test]
async fn only_what_has_changed_is_fetched() {
    let stand = Stand::new().await;
    stand.put(&[
        ("deploy/a.yaml", "one"),
        ("deploy/b.yaml", "two"),
        ("folder/", ""),
        ("z", "three"),
    ]);
    let first = stand.get(stand.make_request()).await;
    let all = [("deploy/a.yaml", ONE), ("deploy/b.yaml", TWO), ("z", THREE)];
    assert_eq!(first.facts.revision, compute_revision(&all));
    assert_eq!(stand.list(&first), ["deploy/a.yaml", "deploy/b.yaml", "z"]);
    assert_eq!(stand.load(&first).entry("deploy/b.yaml"), Some(Entry::File(b"two")));
    assert_eq!(
        stand.take_asked(),
        ["", ".sourceignore", "deploy/a.yaml", "deploy/b.yaml", "z"]
    );

    // Nothing has changed: one page is read, and no object.
    let again = stand.fetch(stand.ask_again(&first)).await.unwrap();
    assert_eq!(
        again,
        Fetched::Unchanged {
            revision: first.facts.revision.clone()
        }
    );
    assert_eq!(stand.take_asked(), ["", ".sourceignore"]);

    // One object has changed, one is new and one was deleted.
    stand.put(&[("deploy/a.yaml", "three"), ("c", "two")]);
    stand.server.remove("apps", "z");
    let second = stand.get(stand.ask_again(&first)).await;
    let all = [("c", TWO), ("deploy/a.yaml", THREE), ("deploy/b.yaml", TWO)];
    assert_eq!(second.facts.revision, compute_revision(&all));
    assert_eq!(stand.load(&second).entry("deploy/a.yaml"), Some(Entry::File(b"three")));
    assert_eq!(stand.load(&second).entry("deploy/b.yaml"), Some(Entry::File(b"two")));
    assert_eq!(stand.take_asked(), ["", ".sourceignore", "c", "deploy/a.yaml"]);

    // Fetched from nothing, the artifact is the same, byte for byte.
    let whole = stand.get(stand.make_request()).await;
    assert_eq!(whole.facts, second.facts);
    stand.take_asked();

    // A mark that is not the MD5 of its content only shows changes: the object is fetched again whenever another one has changed.
    stand.server.put_marked("apps", "parts", b"one", &format!("{ONE}-2"));
    let third = stand.get(stand.ask_again(&whole)).await;
    stand.put(&[("c", "one")]);
    stand.take_asked();
    let fourth = stand.get(stand.ask_again(&third)).await;
    assert_eq!(stand.take_asked(), ["", ".sourceignore", "c", "parts"]);
    assert_eq!(stand.list(&fourth), ["c", "deploy/a.yaml", "deploy/b.yaml", "parts"]);
    // A mark of another content is not trusted.
    stand.server.put_marked("apps", "c", b"new", TWO);
    let fifth = stand.get(stand.ask_again(&fourth)).await;
    assert_eq!(stand.load(&fifth).entry("c"), Some(Entry::File(b"new")));
}

#[tokio::test]
async fn requested_objects_are_stored() {
    let stand = Stand::new().await;
    stand.server.set_page(2);
    stand.put(&[
        (".sourceignore", "*.md\n!keep.md\n"),
        ("app/a.yaml", "a"),
        ("app/b c+d/ü&<é>.yaml", "b"),
        ("app/keep.md", "c"),
        ("app/picture.png", "d"),
        ("app/readme.md", "e"),
        ("other/f.yaml", "f"),
        ("zero", ""),
    ]);
    let all = stand.get(stand.make_request()).await;
    let expected = [
        ".sourceignore",
        "app/a.yaml",
        "app/b c+d/ü&<é>.yaml",
        "app/keep.md",
        // Flux excludes such files from repositories, but not from buckets.
        "app/picture.png",
        "other/f.yaml",
        "zero",
    ];
    assert_eq!(stand.list(&all), expected);
    assert_eq!(stand.load(&all).entry("zero"), Some(Entry::File(b"")));
    // Objects below a prefix. The patterns of the specification come last. Paths are whole keys.
    let some = stand
        .get(FetchRequest {
            prefix: "app/".to_owned(),
            ignore: Some("*.png\n*.yaml\n!readme.md\n".to_owned()),
            ..stand.make_request()
        })
        .await;
    assert_eq!(stand.list(&some), [".sourceignore", "app/keep.md", "app/readme.md"]);
    // Another prefix makes another artifact, even of the same objects.
    let wide = FetchRequest {
        prefix: "app".to_owned(),
        ..stand.ask_again(&some)
    };
    assert!(matches!(stand.fetch(wide).await.unwrap(), Fetched::Stored { .. }));
    // An empty bucket gives an empty artifact.
    stand.server.put("empty", "folder/", b"");
    let empty = stand
        .get(FetchRequest {
            bucket: "empty".to_owned(),
            ..stand.make_request()
        })
        .await;
    assert_eq!(
        (stand.list(&empty), empty.facts.revision),
        (Vec::new(), compute_revision(&[]))
    );
}

#[tokio::test]
async fn objects_changed_during_fetch_are_stored_as_received() {
    let stand = Stand::new().await;
    stand.put(&[("a", "one"), ("b", "two"), ("c", "three")]);
    let lists = AtomicUsize::new(0);
    stand.server.answer_with(move |request| {
        if request.target.contains("list-type") {
            lists.fetch_add(1, Ordering::Relaxed);
        }
        let listed = lists.load(Ordering::Relaxed) == 1;
        match request.target.as_str() {
            "/apps/a" if listed => Some(Answer::new(200, "three").with("ETag", format!("\"{THREE}\""))),
            "/apps/b" if listed => Some(Answer::error(404, "NoSuchKey", "")),
            _ => None,
        }
    });
    let artifact = stand.get(stand.make_request()).await;
    assert_eq!(artifact.facts.revision, compute_revision(&[("a", THREE), ("c", THREE)]));
    assert_eq!(stand.load(&artifact).entry("a"), Some(Entry::File(b"three")));
    // The next fetch notices the difference.
    let next = stand.get(stand.ask_again(&artifact)).await;
    assert_eq!(
        next.facts.revision,
        compute_revision(&[("a", ONE), ("b", TWO), ("c", THREE)])
    );
}
