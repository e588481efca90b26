//! Repositories and servers that exceed bounds, and cancelled fetches.

use std::time::Duration;

use serde_json::json;
use tenure_git_server::{Content, Options, ProtocolVersions};
use tenure_remote_requests::fetch::FetchFailure;
use tenure_sources::{FetchError, Limits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::bed::{Bed, endpoint, noise};

#[tokio::test]
async fn every_bound_holds_and_is_named() {
    for versions in [ProtocolVersions::All, ProtocolVersions::OnlyZero] {
        let mut bed = Bed::with(Options {
            versions,
            ..Options::default()
        })
        .await;
        let files = (0..30).map(|n| (format!("d{n}/f"), Content::File(noise(n, 10_000))));
        bed.repository.commit(files, "many").await.unwrap();
        let zeros = vec![0; 2 << 20];
        bed.repository.commit([("zeros", zeros)], "a small bomb").await.unwrap();
        let main = json!({"branch": "main"});
        bed.get(main.clone()).await;
        let limits = Limits::default();
        for (limits, what, shown) in [
            (
                Limits {
                    received_bytes: 50 << 10,
                    ..limits
                },
                "received bytes",
                "50 KiB",
            ),
            (
                Limits {
                    received_bytes: 10,
                    ..limits
                },
                "received bytes",
                "10 bytes",
            ),
            (Limits { objects: 20, ..limits }, "objects", "20"),
            (Limits { files: 40, ..limits }, "files", "40"),
            (
                Limits {
                    file_bytes: 1 << 20,
                    ..limits
                },
                "bytes of one file",
                "1 MiB",
            ),
            (
                Limits {
                    unpacked_bytes: 2 << 20,
                    ..limits
                },
                "unpacked bytes",
                "2 MiB",
            ),
            (
                Limits {
                    object_bytes: 2 << 20,
                    ..limits
                },
                "bytes of all objects",
                "2 MiB",
            ),
        ] {
            bed.limits = limits;
            let (error, message) = bed.refuse(main.clone()).await;
            let named = matches!(&error, FetchError::TooLarge { what: w, limit, .. } if *w == what && limit == shown);
            assert!(named, "{versions:?} {what}: {error:?}");
            assert!(message.starts_with("repository over the size limit: "), "{message}");
            assert_eq!(
                (error.reason().as_str(), error.is_transient()),
                ("GitOperationFailed", false)
            );
            bed.assert_tidy();
        }
        bed.limits = Limits {
            path_bytes: 4,
            ..limits
        };
        let (error, message) = bed.refuse(main.clone()).await;
        assert!(
            matches!(error, FetchError::InvalidTree { .. }) && message.contains("longer than 4 bytes"),
            "{message}"
        );
        bed.limits = Limits { depth: 1, ..limits };
        let (error, message) = bed.refuse(main.clone()).await;
        assert!(
            matches!(error, FetchError::InvalidTree { .. }) && message.contains("more than 1 parts"),
            "{message}"
        );
        bed.limits = Limits {
            references: 1,
            ..limits
        };
        let commit = bed.repository.resolve("main").await.unwrap().unwrap();
        for n in 0..5 {
            bed.repository.tag(&format!("v1.0.{n}"), &commit).await.unwrap();
        }
        let (error, _) = bed.refuse(json!({"semver": "1.x"})).await;
        assert!(
            matches!(error, FetchError::TooLarge { what: "references", .. }),
            "{error}"
        );
    }
}

#[tokio::test]
async fn server_without_shallow_support_is_bounded() {
    let mut bed = Bed::with(Options {
        versions: ProtocolVersions::OnlyZero,
        ..Options::default()
    })
    .await;
    // Without this capability no depth can be requested, and the whole history is sent.
    for n in 0..20 {
        bed.repository
            .commit([("big", noise(n, 50_000))], "again")
            .await
            .unwrap();
    }
    let old = bed.repository.resolve("main~19").await.unwrap().unwrap();
    bed.limits.received_bytes = 500_000;
    bed.get(json!({"branch": "main"})).await;
    let (error, _) = bed.refuse(json!({"commit": old})).await;
    assert!(
        matches!(
            error,
            FetchError::TooLarge {
                what: "received bytes",
                ..
            }
        ),
        "{error}"
    );
}

/// Trees that share their subtrees: 2^30 files in thirty objects.
#[tokio::test]
async fn a_tree_bomb_is_counted() {
    let bed = Bed::new().await;
    bed.repository.commit([("a", "1")], "first").await.unwrap();
    let git = |arguments: Vec<String>, input: String| {
        let mut command = tokio::process::Command::new("git");
        command
            .args(arguments)
            .current_dir(bed.repository.folder())
            .env("GIT_CONFIG_GLOBAL", "/dev/null");
        command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        async move {
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
            let output = child.wait_with_output().await.unwrap();
            assert!(output.status.success());
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        }
    };
    let mut tree = git(vec!["rev-parse".to_owned(), "main^{tree}".to_owned()], String::new()).await;
    for _ in 0..30 {
        tree = git(
            vec!["mktree".to_owned()],
            format!("040000 tree {tree}\ta\n040000 tree {tree}\tb\n"),
        )
        .await;
    }
    let person = [
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@example.com",
        "commit-tree",
        "-m",
        "bomb",
    ];
    let mut arguments: Vec<String> = person.iter().map(|text| (*text).to_owned()).collect();
    arguments.push(tree);
    let commit = git(arguments, String::new()).await;
    bed.repository.set_reference("refs/heads/bomb", &commit).await.unwrap();
    let (error, _) = bed.refuse(json!({"branch": "bomb"})).await;
    assert!(matches!(error, FetchError::TooLarge { what: "files", .. }), "{error}");
}

/// Starts a server that answers every connection with these bytes and then keeps it open or closes it.
async fn start_answering(bytes: Vec<u8>, endless: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/app.git", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let bytes = bytes.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).await;
                while stream.write_all(&bytes).await.is_ok() {
                    if !endless {
                        break;
                    }
                }
                if bytes.is_empty() {
                    let _ = stream.read(&mut buffer).await;
                }
            });
        }
    });
    url
}

fn http_answer(content_type: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[tokio::test]
async fn servers_that_are_no_git_servers() {
    let git = "application/x-git-upload-pack-advertisement";
    let mut bed = Bed::new().await;
    for (bytes, words) in [
        (
            http_answer("text/html", "<html>"),
            "its answer is of type \"text/html\"",
        ),
        (http_answer(git, "nonsense"), "a line has no length"),
        (http_answer(git, "0003"), "a line has no length"),
        (http_answer(git, "fff0short"), "in the middle of its answer"),
        (http_answer(git, ""), "in the middle of its answer"),
        (http_answer(git, "000eversion 2\n0000"), "it offers no fetch"),
        (http_answer(git, "000bERR no!"), "the Git server at http"),
        (
            b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n".to_vec(),
            "answered HTTP 500: the server has a problem",
        ),
        (
            b"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n".to_vec(),
            "answered HTTP 404: there is no such repository",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "broke"),
        (b"\x16\x03\x01".to_vec(), "broke"),
    ] {
        let url = start_answering(bytes, false).await;
        bed.policy.allow = vec![endpoint(&url)];
        let (_, message) = bed.refuse_request(&bed.request_spec(json!({"url": url}))).await;
        assert!(message.contains(words), "{words}: {message}");
    }
    let gzip = format!("HTTP/1.1 200 OK\r\nContent-Type: {git}\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n");
    let url = start_answering(gzip.into_bytes(), false).await;
    bed.policy.allow = vec![endpoint(&url)];
    let (_, message) = bed.refuse_request(&bed.request_spec(json!({"url": url}))).await;
    assert!(message.contains("encoded"), "{message}");
    // No server listens there.
    let port = tenure_test_ports::reserve_port();
    let url = format!("http://127.0.0.1:{port}/app.git");
    bed.policy.allow = vec![endpoint(&url)];
    let (error, message) = bed.refuse_request(&bed.request_spec(json!({"url": url}))).await;
    assert!(
        message.contains(&format!("can't connect to 127.0.0.1:{port}")),
        "{message}"
    );
    assert!(error.is_transient());
    // The name is too long for any resolver, so the test needs no network.
    let host = "x".repeat(70);
    let url = format!("http://{host}/app.git");
    let (error, message) = bed.refuse_request(&bed.request_spec(json!({"url": url}))).await;
    assert!(
        message.contains(&format!("can't resolve host {host:?}")) && error.is_transient(),
        "{message}"
    );
}

#[tokio::test]
async fn an_endless_answer_ends() {
    let mut bed = Bed::new().await;
    bed.limits.received_bytes = 1 << 20;
    for bytes in [
        // An endless header, and an endless list of references.
        b"HTTP/1.1 200 OK\r\nX-Y: ".to_vec(),
        b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(),
    ] {
        let url = start_answering(bytes, true).await;
        bed.policy.allow = vec![endpoint(&url)];
        let (error, message) = bed.refuse_request(&bed.request_spec(json!({"url": url}))).await;
        let bounded = matches!(error, FetchError::TooLarge { .. } | FetchError::Broken { .. });
        assert!(bounded, "{message}");
    }
}

#[tokio::test]
async fn a_silent_server_costs_the_timeout_only() {
    let mut bed = Bed::new().await;
    let url = start_answering(Vec::new(), false).await;
    bed.policy.allow = vec![endpoint(&url)];
    let mut request = bed.request_spec(json!({"url": url}));
    request.asked.timeout = Duration::from_millis(200);
    let (error, message) = bed.refuse_request(&request).await;
    assert!(
        matches!(error, FetchError::Timeout { .. }) && error.is_transient(),
        "{message}"
    );
    assert!(message.contains("took longer than 0.2 s (spec.timeout)"), "{message}");
    bed.assert_tidy();
}

#[tokio::test]
async fn a_server_says_when_it_may_be_asked_again() {
    let mut bed = Bed::new().await;
    let date = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(90);
    let date = jiff::fmt::rfc2822::to_string(&date.to_zoned(jiff::tz::TimeZone::UTC)).unwrap();
    let date = date.replace("+0000", "GMT");
    for (header, expected) in [
        ("Retry-After: 300\r\n", Some(300..=300)),
        (&format!("Retry-After: {date}\r\n"), Some(80..=90)),
        ("Retry-After: soon\r\n", None),
        ("", None),
    ] {
        let answer = format!("HTTP/1.1 429 Too Many Requests\r\n{header}Content-Length: 0\r\n\r\n");
        let url = start_answering(answer.into_bytes(), false).await;
        bed.policy.allow.push(endpoint(&url));
        let request = bed.request_spec(json!({"url": url, "ref": {"branch": "main"}}));
        let (error, message) = bed.refuse_request(&request).await;
        let retry_after = FetchFailure::from(&error).retry_after;
        assert_eq!(retry_after.is_some(), expected.is_some(), "{message}");
        assert!(
            retry_after.is_none_or(|retry_after| expected.unwrap().contains(&retry_after)),
            "{retry_after:?}: {message}"
        );
        assert_eq!(
            message.contains("it asks to wait for"),
            retry_after.is_some(),
            "{message}"
        );
    }
}
