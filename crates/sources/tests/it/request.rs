//! Valid and invalid specifications.

use serde_json::{Value, json};
use tenure_sources::{FetchError, GitRequest, Reference, RemoteUrl, SourceKey};

use crate::bed::read_spec;

fn request_with(key: &str, value: Value) -> Result<GitRequest, FetchError> {
    let mut spec = json!({"url": "https://git.example.com/team/app"});
    spec[key] = value;
    read_spec(spec, None)
}

#[test]
fn references_have_fluxs_precedence() {
    let id = "0123456789abcdef0123456789abcdef01234567";
    let all = json!({"commit": id, "name": "refs/heads/n", "semver": "1.x", "tag": "t", "branch": "b"});
    let without = |keys: &[&str]| {
        let mut value = all.clone();
        for key in keys {
            value.as_object_mut().unwrap().remove(*key);
        }
        request_with("ref", value).unwrap().reference
    };
    assert_eq!(
        without(&[]),
        Reference::Commit {
            id: id.to_owned(),
            branch: Some("b".to_owned())
        }
    );
    assert_eq!(without(&["commit"]), Reference::Name("refs/heads/n".to_owned()));
    assert!(matches!(without(&["commit", "name"]), Reference::Semver(range) if range.to_string() == "1.x"));
    assert_eq!(without(&["commit", "name", "semver"]), Reference::Tag("t".to_owned()));
    assert_eq!(
        without(&["commit", "name", "semver", "tag"]),
        Reference::Branch("b".to_owned())
    );
    for empty in [json!({}), json!({"branch": "", "tag": ""}), Value::Null] {
        assert_eq!(
            request_with("ref", empty).unwrap().reference,
            Reference::Branch("master".to_owned())
        );
    }
}

#[test]
fn urls_are_read_strictly() {
    for (text, shown) in [
        ("https://GitHub.com/team/app.git", "https://github.com/team/app.git"),
        ("http://git.example.com:80/x", "http://git.example.com/x"),
        (
            "https://user:pa%20ss@git.example.com:8443/x",
            "https://git.example.com:8443/x",
        ),
        ("ssh://git@git.example.com/x", "ssh://git.example.com/x"),
        (
            "ssh://git@git.example.com:2222/~me/x",
            "ssh://git.example.com:2222/~me/x",
        ),
        ("https://[2001:db8::1]/x", "https://[2001:db8::1]/x"),
        ("https://127.1/x", "https://127.0.0.1/x"),
    ] {
        let url = RemoteUrl::parse(text).unwrap();
        assert_eq!(url.to_string(), shown);
        assert_eq!(format!("{url:?}"), format!("RemoteUrl({shown})"));
    }
    for text in [
        "",
        "x",
        "git.example.com/x",
        "git@github.com:team/app",
        "file:///etc",
        "git://a/b",
        "ext::sh -c x",
        "git::https://a/b",
        "ftp://a/b",
        "https://",
        "https:///x",
        "https://a",
        "https://a/",
        "https://a/x?y",
        "https://a/x#y",
        "https://a/ x",
        "https://a/x\n",
        "https://a\\b/x",
        "ssh://-oProxyCommand=x/y",
        "ssh://a/-x",
        "https://a/-x",
        "ssh://-u@a/x",
        "https://a:0/x",
        "https://a:99999/x",
        "http://a%00b/x",
        "ssh://a%20b/x",
        "https://u:secret@a/x?y",
        "ssh://u%0a:secret@a/x",
        "javascript:1",
        "https://u:secret@a:99999/x",
        "u:secret@a",
        "https://[::1/x",
    ] {
        let error = RemoteUrl::parse(text).unwrap_err();
        assert!(matches!(error, FetchError::InvalidUrl { .. }), "{text}");
        assert_eq!(
            (error.reason().as_str(), error.is_stalled(), error.is_transient()),
            ("URLInvalid", true, false)
        );
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn ambiguous_reference_names_are_refused() {
    for bad in [
        "-x",
        "a b",
        "a..b",
        "a~1",
        "a^",
        "a:b",
        "a?",
        "a*",
        "a[b",
        "a\\b",
        "a\n",
        "/a",
        "a/",
        "a//b",
        "a.lock",
        "a/.b",
        "@{x}",
        "@",
        "a.",
        "--upload-pack=x",
        &"x".repeat(600),
    ] {
        for (key, field) in [("branch", "spec.ref.branch"), ("tag", "spec.ref.tag")] {
            let error = request_with("ref", json!({key: bad})).unwrap_err();
            assert!(
                error.to_string().contains(field) && error.is_stalled(),
                "{bad}: {error}"
            );
        }
        assert!(
            request_with("ref", json!({"name": format!("refs/heads/{bad}")})).is_err()
                || bad == "-x"
                || bad.starts_with("--")
                || bad == "@"
        );
    }
    for bad in ["main", "heads/main", "refs", "-refs/x"] {
        assert!(request_with("ref", json!({"name": bad})).is_err(), "{bad}");
    }
    for bad in ["abc", "HEAD", &"g".repeat(40), &"a".repeat(41), "--all"] {
        assert!(request_with("ref", json!({"commit": bad})).is_err(), "{bad}");
    }
}

#[test]
fn sources_have_names_that_are_folders() {
    SourceKey::new("GitRepository", "team-a", "app.v1", "6f1c-2").unwrap();
    for bad in [
        "",
        "..",
        ".",
        "a/b",
        "A",
        "a_b",
        "-a",
        "a-",
        ".a",
        "a\0",
        &"a".repeat(254),
    ] {
        assert!(SourceKey::new("GitRepository", bad, "x", "1").is_err(), "{bad}");
        assert!(SourceKey::new("GitRepository", "x", bad, "1").is_err(), "{bad}");
        assert!(SourceKey::new("GitRepository", "x", "x", bad).is_err(), "{bad}");
    }
}
