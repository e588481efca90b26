//! What a specification may say.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_sources::{FetchError, GitRequest, Reference, RemoteUrl, SourceKey};

use crate::bed::source;

fn read(spec: Value) -> Result<GitRequest, FetchError> {
    GitRequest::from_spec(source(), &spec, None)
}

fn with(key: &str, value: Value) -> Result<GitRequest, FetchError> {
    let mut spec = json!({"url": "https://git.example.com/team/app", "interval": "1m"});
    spec[key] = value;
    read(spec)
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
        with("ref", value).unwrap().reference
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
            with("ref", empty).unwrap().reference,
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
            (error.reason(), error.stalled(), error.transient()),
            ("URLInvalid", true, false)
        );
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn names_that_could_be_read_as_something_else_are_refused() {
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
            let error = with("ref", json!({key: bad})).unwrap_err();
            assert!(error.to_string().contains(field) && error.stalled(), "{bad}: {error}");
        }
        assert!(
            with("ref", json!({"name": format!("refs/heads/{bad}")})).is_err()
                || bad == "-x"
                || bad.starts_with("--")
                || bad == "@"
        );
    }
    for bad in ["main", "heads/main", "refs", "-refs/x"] {
        assert!(with("ref", json!({"name": bad})).is_err(), "{bad}");
    }
    for bad in ["abc", "HEAD", &"g".repeat(40), &"a".repeat(41), "--all"] {
        assert!(with("ref", json!({"commit": bad})).is_err(), "{bad}");
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (key, value) in [
        ("verify", json!({"mode": "HEAD"})),
        ("proxySecretRef", json!({"name": "x"})),
        ("serviceAccountName", json!("x")),
        ("recurseSubmodules", json!(true)),
        ("include", json!([{"repository": {"name": "x"}}])),
        ("sparseCheckout", json!(["a"])),
        ("provider", json!("azure")),
    ] {
        let error = with(key, value).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("spec.{key} is set, which is not supported yet; remove the field")
        );
        assert!(error.stalled());
    }
    for (key, value) in [
        ("recurseSubmodules", json!(false)),
        ("include", json!([])),
        ("sparseCheckout", json!([])),
        ("provider", json!("generic")),
        ("suspend", json!(true)),
    ] {
        with(key, value).unwrap();
    }
    assert!(matches!(
        read(json!({})).unwrap_err(),
        FetchError::InvalidField { field: "spec", .. }
    ));
}

#[test]
fn timeouts_are_bounded() {
    assert_eq!(
        read(json!({"url": "https://a/b"})).unwrap().timeout,
        Duration::from_secs(60)
    );
    for (text, seconds) in [
        ("20s", 20.0),
        ("1m30s", 90.0),
        ("500ms", 0.5),
        ("1.5m", 90.0),
        ("1h", 3600.0),
    ] {
        assert_eq!(
            with("timeout", json!(text)).unwrap().timeout,
            Duration::from_secs_f64(seconds),
            "{text}"
        );
    }
    for bad in [
        "",
        "0s",
        "-1s",
        "1",
        "s",
        "1d",
        "2h",
        "1e9s",
        "1m-2s",
        "99999999999999999999s",
        "NaNs",
        "1..5s",
    ] {
        let error = with("timeout", json!(bad)).unwrap_err();
        assert!(error.to_string().contains("spec.timeout"), "{bad}: {error}");
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
