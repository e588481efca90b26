//! Commits and tags that have to be signed.

use serde_json::{Value, json};
use tenure_remote_requests::fetch::{FetchReason, Fetched};
use tenure_remote_requests::git::{VerifyMode, VerifyRequest};
use tenure_sources::{FetchError, GitRequest, GitSecrets, SecretData};

use crate::bed::{Bed, source};
use crate::signing::{Author, run_git, write};

/// Makes a request for objects that these keys have signed.
fn signed_request(bed: &Bed, reference: Value, mode: VerifyMode, keys: &SecretData) -> GitRequest {
    let mut asked = bed.request(reference).asked;
    asked.verify = Some(VerifyRequest {
        mode,
        secret: "keys".to_owned(),
    });
    let secrets = GitSecrets {
        keys: Some(keys.clone()),
        ..GitSecrets::default()
    };
    GitRequest::read(source(), asked, &secrets).unwrap()
}

async fn expect_refusal(bed: &Bed, request: &GitRequest, reason: FetchReason, expected: &str) {
    let (error, message) = bed.refuse_request(request).await;
    assert_eq!(error.reason(), reason, "{message}");
    assert!(message.contains(expected), "{message}");
    assert!(!error.is_stalled());
    bed.assert_tidy();
}

#[tokio::test]
async fn only_commits_signed_by_trusted_key_are_stored() {
    let bed = Bed::new().await;
    let folder = bed.repository.folder().to_owned();
    let (author, other) = (Author::new(1), Author::new(2));
    let main = || json!({"branch": "main"});
    let request = |keys: &SecretData| signed_request(&bed, main(), VerifyMode::Head, keys);
    let plain = bed.repository.commit([("a", "good")], "first").await.unwrap();
    let bad = FetchReason::InvalidCommitSignature;
    expect_refusal(
        &bed,
        &request(&author.secret()),
        bad,
        "unsupported signature type: empty",
    )
    .await;
    assert!(!bed.folder.path().join("artifacts/gitrepository").exists());

    let signed = author.sign_commit(&folder, &plain);
    bed.repository.set_reference("refs/heads/main", &signed).await.unwrap();
    let (artifact, _) = bed.get_request(&request(&author.secret())).await;
    let message = artifact.verified.clone().unwrap();
    let expected = format!("verified signature of\n\t- commit '{signed}' with key 'SHA256:");
    assert!(message.starts_with(&expected), "{message}");
    assert_eq!(bed.load(&artifact).len(), 1);

    // The same request needs no fetch. With other keys, the stored artifact is verified again.
    let again = bed.fetch(&request(&author.secret()), Some(&artifact)).await.unwrap();
    assert!(matches!(again, Fetched::Unchanged { .. }), "{again:?}");
    let error = bed.fetch(&request(&other.secret()), Some(&artifact)).await.unwrap_err();
    assert!(
        error.to_string().contains("no trusted SSH key made the signature"),
        "{error}"
    );
    let both = SecretData::from([
        ("a.sshpub".to_owned(), author.secret().remove("author.sshpub").unwrap()),
        ("b.sshpub".to_owned(), other.secret().remove("author.sshpub").unwrap()),
    ]);
    let again = bed.fetch(&request(&both), Some(&artifact)).await.unwrap();
    assert!(matches!(again, Fetched::Stored { .. }), "{again:?}");

    // Other files under the same signature; and the signature of another commit.
    let evil = bed
        .repository
        .commit_on("evil", [("a", "evil")], "first")
        .await
        .unwrap();
    let tree = String::from_utf8(run_git(&folder, &["rev-parse", &format!("{evil}^{{tree}}")], b"")).unwrap();
    let content = String::from_utf8(run_git(&folder, &["cat-file", "commit", &signed], b"")).unwrap();
    let (_, rest) = content.split_once('\n').unwrap();
    let forged = write(&folder, "commit", &format!("tree {}\n{rest}", tree.trim()));
    bed.repository.set_reference("refs/heads/main", &forged).await.unwrap();
    expect_refusal(
        &bed,
        &request(&author.secret()),
        bad,
        "the signature is not good for the SSH key",
    )
    .await;
    assert_eq!(bed.archives().len(), 1);
    let (_, signature) = content.split_once("\ngpgsig ").unwrap();
    let (signature, _) = signature.split_once("\n\n").unwrap();
    let content = String::from_utf8(run_git(&folder, &["cat-file", "commit", &evil], b"")).unwrap();
    let moved = write(
        &folder,
        "commit",
        &content.replacen("\n\n", &format!("\ngpgsig {signature}\n\n"), 1),
    );
    bed.repository.set_reference("refs/heads/main", &moved).await.unwrap();
    expect_refusal(
        &bed,
        &request(&author.secret()),
        bad,
        "the signature is not good for the SSH key",
    )
    .await;
    // Signed by another author.
    let others = other.sign_commit(&folder, &plain);
    bed.repository.set_reference("refs/heads/main", &others).await.unwrap();
    expect_refusal(
        &bed,
        &request(&author.secret()),
        bad,
        "no trusted SSH key made the signature",
    )
    .await;
    // A bare commit is verified, too.
    let bare = |id: &str| signed_request(&bed, json!({ "commit": id }), VerifyMode::Head, &author.secret());
    bed.repository.set_reference("refs/heads/main", &signed).await.unwrap();
    bed.get_request(&bare(&signed)).await;
    bed.repository.set_reference("refs/heads/main", &plain).await.unwrap();
    expect_refusal(&bed, &bare(&plain), bad, "unsupported signature type: empty").await;
}

#[tokio::test]
async fn only_requested_tag_signed_by_trusted_key_is_stored() {
    let bed = Bed::new().await;
    let folder = bed.repository.folder().to_owned();
    let author = Author::new(1);
    let plain = bed.repository.commit([("a", "x")], "first").await.unwrap();
    let signed = author.sign_commit(&folder, &plain);
    let request = |reference: Value, mode| signed_request(&bed, reference, mode, &author.secret());
    for (name, object) in [
        ("v1.0.0", author.sign_tag(&folder, "v1.0.0", &plain)),
        ("v2.0.0", author.sign_tag(&folder, "v2.0.0", &signed)),
        ("light", plain.clone()),
        ("foreign", Author::new(2).sign_tag(&folder, "foreign", &signed)),
    ] {
        bed.repository
            .set_reference(&format!("refs/tags/{name}"), &object)
            .await
            .unwrap();
    }
    bed.repository.annotated_tag("unsigned", &plain, "words").await.unwrap();
    let tag = |name: &str| json!({ "tag": name });

    let (artifact, _) = bed.get_request(&request(tag("v1.0.0"), VerifyMode::Tag)).await;
    let message = artifact.verified.unwrap();
    assert!(
        message.starts_with("verified signature of\n\t- tag 'v1.0.0@") && message.contains("' with key 'SHA256:"),
        "{message}"
    );
    assert!(!message.contains("commit"), "{message}");
    for reference in [
        tag("v2.0.0"),
        json!({ "semver": ">=2.0.0" }),
        json!({ "name": "refs/tags/v2.0.0" }),
    ] {
        let (artifact, _) = bed.get_request(&request(reference, VerifyMode::TagAndHead)).await;
        let message = artifact.verified.unwrap();
        assert!(
            message.contains("- tag 'v2.0.0@") && message.contains(&format!("\n\t- commit '{signed}' with")),
            "{message}"
        );
    }
    let bad_commit = FetchReason::InvalidCommitSignature;
    expect_refusal(
        &bed,
        &request(tag("v1.0.0"), VerifyMode::TagAndHead),
        bad_commit,
        "empty",
    )
    .await;
    expect_refusal(&bed, &request(tag("v1.0.0"), VerifyMode::Head), bad_commit, "empty").await;
    for name in ["light", "unsigned"] {
        let expected = format!("cannot verify signature of tag '{name}");
        expect_refusal(
            &bed,
            &request(tag(name), VerifyMode::Tag),
            FetchReason::InvalidGitObject,
            &expected,
        )
        .await;
    }
    let bad_tag = FetchReason::InvalidTagSignature;
    expect_refusal(
        &bed,
        &request(tag("foreign"), VerifyMode::Tag),
        bad_tag,
        "no trusted SSH key",
    )
    .await;

    // A server that serves an old tag under the newest name.
    let old = bed.repository.resolve("refs/tags/v1.0.0^0").await.unwrap();
    assert_eq!(old.as_deref(), Some(plain.as_str()));
    let old = String::from_utf8(run_git(&folder, &["rev-parse", "refs/tags/v1.0.0"], b"")).unwrap();
    bed.repository
        .set_reference("refs/tags/v3.0.0", old.trim())
        .await
        .unwrap();
    let newest = request(json!({ "semver": ">=1.0.0" }), VerifyMode::Tag);
    expect_refusal(&bed, &newest, bad_tag, "the signed object is named \"v1.0.0\"").await;
    // And a tag that leads to another commit under the same signature.
    let content = String::from_utf8(run_git(&folder, &["cat-file", "tag", old.trim()], b"")).unwrap();
    let moved = write(&folder, "tag", &content.replace(&plain, &signed));
    bed.repository.set_reference("refs/tags/v1.0.0", &moved).await.unwrap();
    expect_refusal(
        &bed,
        &request(tag("v1.0.0"), VerifyMode::Tag),
        bad_tag,
        "the signature is not good",
    )
    .await;
}

#[tokio::test]
async fn a_secret_without_keys_is_named_by_its_entries() {
    let bed = Bed::new().await;
    let mut asked = bed.request(json!({"branch": "main"})).asked;
    asked.verify = Some(VerifyRequest {
        mode: VerifyMode::Head,
        secret: "keys".to_owned(),
    });
    for (secret, expected) in [
        (Some(SecretData::new()), "it has no public key"),
        (None, "it was not read"),
        (
            Some(SecretData::from([("author.asc".to_owned(), b"very secret".to_vec())])),
            "author.asc holds no armored public key",
        ),
    ] {
        let secrets = GitSecrets {
            keys: secret,
            ..GitSecrets::default()
        };
        let error = GitRequest::read(source(), asked.clone(), &secrets).unwrap_err();
        assert_eq!(error.reason(), FetchReason::VerificationError);
        assert!(matches!(error, FetchError::InvalidKeys { .. }));
        assert!(
            error.to_string().contains(expected) && !error.to_string().contains("very secret"),
            "{error}"
        );
    }
}
