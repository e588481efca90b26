//! Servers of Git LFS that refuse, lie, or send clients elsewhere.

use serde_json::json;
use tenure_git_server::{Content, Damage, GitServer, LargeFileOptions, Options, SshOptions, Tls};
use tenure_remote_requests::fetch::FetchReason;

use super::{commit_files, expect_refusal, list_batches, locked_options, main_branch, private_bed, read_content};
use crate::bed::{Bed, endpoint, secret};
use crate::ssh::{make_key, write_key};

#[tokio::test]
async fn a_wrong_content_is_refused() {
    let bed = private_bed().await;
    for (options, expected) in [
        (
            LargeFileOptions {
                damage: Some(Damage::Changed),
                ..Default::default()
            },
            "another SHA-256 than the pointer says",
        ),
        (
            LargeFileOptions {
                damage: Some(Damage::Longer),
                ..Default::default()
            },
            "more bytes, and the pointer says 13",
        ),
        (
            LargeFileOptions {
                damage: Some(Damage::Shorter),
                ..Default::default()
            },
            "12 bytes, and the pointer says 13",
        ),
        (
            LargeFileOptions {
                object_size: Some(99),
                ..Default::default()
            },
            "its object has 99 bytes, and the pointer says 13",
        ),
        (
            LargeFileOptions {
                object_code: Some(404),
                ..Default::default()
            },
            "answered 404: it doesn't have the object",
        ),
        (
            LargeFileOptions {
                object_code: Some(410),
                ..Default::default()
            },
            "answered 410: its owner has removed the object",
        ),
        (
            LargeFileOptions {
                object_code: Some(422),
                ..Default::default()
            },
            "answered 422: it takes the pointer for wrong",
        ),
        (
            LargeFileOptions {
                content_status: Some(404),
                ..Default::default()
            },
            "answered 404: it doesn't have the object",
        ),
        (
            LargeFileOptions {
                content_status: Some(503),
                ..Default::default()
            },
            "answered 503: the server has a problem",
        ),
        (
            LargeFileOptions {
                expires_in: Some(-1),
                ..Default::default()
            },
            "an address that has expired already",
        ),
    ] {
        bed.server.serve_large_files(options);
        let error = expect_refusal(&bed, expected).await;
        assert!(error.to_string().contains("\"big.json\""), "{error}");
    }
    bed.server.serve_large_files(LargeFileOptions {
        expires_in: Some(60),
        ..Default::default()
    });
    let (artifact, _) = bed.get_request(&main_branch(&bed)).await;
    assert_eq!(read_content(&bed, &artifact, "big.json"), b"{\"big\": true}");
}

#[tokio::test]
async fn a_refused_batch_says_what_to_do() {
    let bed = private_bed().await;
    let refuse = |status, wait| LargeFileOptions {
        batch_status: Some((status, wait)),
        ..Default::default()
    };
    for (status, expected, is_transient) in [
        (404, "it doesn't have the object, or LFS for this repository", false),
        (413, "the request is too large", false),
        (422, "it takes the pointer for wrong", false),
        (429, "it wants fewer requests", true),
        (500, "the server has a problem", true),
        (501, "LFS is not enabled there", false),
        (507, "its storage is full", false),
        (509, "bandwidth for LFS is used up", false),
    ] {
        bed.server.serve_large_files(refuse(status, None));
        let error = expect_refusal(&bed, expected).await;
        assert_eq!(error.is_transient(), is_transient, "{status}");
        assert_eq!(error.reason(), FetchReason::GitOperationFailed);
        assert!(
            error
                .to_string()
                .contains("it says: This repository is over its data quota."),
            "{error}"
        );
    }
    bed.server.serve_large_files(refuse(429, Some(90)));
    let error = expect_refusal(&bed, "it asks to wait for 90 s").await;
    assert_eq!(error.retry_after().map(|wait| wait.as_secs()), Some(90));
    for status in [401, 403] {
        bed.server.serve_large_files(refuse(status, None));
        let error = expect_refusal(
            &bed,
            "does not accept the Secret's username and password; it says: This",
        )
        .await;
        assert_eq!(error.reason(), FetchReason::AuthenticationFailed);
    }
}

#[tokio::test]
async fn credentials_are_for_the_repositorys_server_alone() {
    let mut bed = private_bed().await;
    bed.get_request(&main_branch(&bed)).await;
    let requests = bed.server.large_file_requests();
    assert!(
        requests.iter().all(|request| request.authorization.is_some()),
        "{requests:?}"
    );

    // Another port is another host. It refuses addresses with a signature and other credentials.
    let other = GitServer::start(bed.folder.path().join("other"), Options::default())
        .await
        .unwrap();
    let is_storage = LargeFileOptions {
        is_storage: true,
        ..Default::default()
    };
    other.serve_large_files(is_storage.clone());
    let storage = other.create("app").await.unwrap();
    storage.store_large_file(b"{\"big\": true}").unwrap();
    let address = format!("http://{}", other.http_address());
    let stored = LargeFileOptions {
        storage: Some(address.clone()),
        ..Default::default()
    };
    bed.server.serve_large_files(stored.clone());
    expect_refusal(&bed, "a loopback address, which sources may not reach").await;
    assert_eq!(other.requests(), 0);
    bed.policy.allow.push(endpoint(&format!("{address}/app")));
    let (artifact, _) = bed.get_request(&main_branch(&bed)).await;
    assert_eq!(read_content(&bed, &artifact, "big.json"), b"{\"big\": true}");
    let [request] = other.large_file_requests().try_into().unwrap();
    assert_eq!(request.authorization, None);
    other.serve_large_files(LargeFileOptions {
        content_status: Some(403),
        ..is_storage.clone()
    });
    let error = expect_refusal(&bed, "it refuses the address that the LFS server gave for the content").await;
    assert_eq!(error.reason(), FetchReason::GitOperationFailed);

    // The same after a redirect of a content, whose answer names our own credentials.
    other.serve_large_files(is_storage.clone());
    let redirected = LargeFileOptions {
        redirect_contents: Some(address.clone()),
        ..Default::default()
    };
    bed.server.serve_large_files(redirected);
    let (artifact, _) = bed.get_request(&main_branch(&bed)).await;
    assert_eq!(read_content(&bed, &artifact, "big.json"), b"{\"big\": true}");
    assert!(
        other
            .large_file_requests()
            .iter()
            .all(|request| request.authorization.is_none())
    );
    // A batch that is redirected has the objects of the other server, which has them for all clients.
    let redirected = LargeFileOptions {
        redirect_batches: Some(address.clone()),
        ..Default::default()
    };
    bed.server.serve_large_files(redirected);
    let (artifact, _) = bed.get_request(&main_branch(&bed)).await;
    assert_eq!(read_content(&bed, &artifact, "big.json"), b"{\"big\": true}");
    assert!(
        other
            .large_file_requests()
            .iter()
            .all(|request| request.authorization.is_none())
    );
    // And if it has not: our credentials are not tried there.
    let locked = GitServer::start(bed.folder.path().join("locked"), locked_options())
        .await
        .unwrap();
    locked
        .create("app")
        .await
        .unwrap()
        .store_large_file(b"{\"big\": true}")
        .unwrap();
    let address = format!("http://{}", locked.http_address());
    bed.policy.allow.push(endpoint(&format!("{address}/app")));
    bed.server.serve_large_files(LargeFileOptions {
        redirect_batches: Some(address.clone()),
        ..Default::default()
    });
    let error = expect_refusal(&bed, "credentials are only sent to the host of spec.url").await;
    assert_eq!(error.reason(), FetchReason::AuthenticationFailed);
    // A circle ends.
    let itself = format!("http://{}", bed.server.http_address());
    bed.server.serve_large_files(LargeFileOptions {
        redirect_batches: Some(itself),
        ..Default::default()
    });
    expect_refusal(&bed, "there were too many in a row").await;
    // A committer names no other server.
    bed.server.serve_large_files(LargeFileOptions::default());
    let config = format!("[lfs]\n\turl = {address}/app.git/info/lfs\n");
    bed.repository.commit([(".lfsconfig", config)], "config").await.unwrap();
    expect_refusal(
        &bed,
        "lfs.url of .lfsconfig: it leads to another server than the repository",
    )
    .await;
    // The path on the same server may be another.
    let fork = bed.server.create("fork").await.unwrap();
    fork.store_large_file(b"{\"big\": true}").unwrap();
    let config = format!("[lfs]\n\turl = {}/info/lfs\n", bed.server.http_url("fork"));
    bed.repository.commit([(".lfsconfig", config)], "config").await.unwrap();
    bed.get_request(&main_branch(&bed)).await;
    assert!(list_batches(&bed).last().unwrap().target.starts_with("/fork.git/"));
    for (config, expected) in [
        (Content::Link("big.json".to_owned()), "is no regular file"),
        (vec![0xff].into(), "is not UTF-8 text"),
        (vec![b'#'; 70 << 10].into(), "is larger than 64 KiB"),
        ("[lfs]\nurl = \"open".into(), "line 2 has a value that is not closed"),
    ] {
        bed.repository.commit([(".lfsconfig", config)], "config").await.unwrap();
        expect_refusal(&bed, expected).await;
    }
}

#[tokio::test]
async fn an_ssh_server_says_where_contents_are() {
    let pair = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&pair).unwrap();
    let tls = Tls {
        certificate: certificate.pem(),
        key: pair.serialize_pem(),
        client_authority: None,
    };
    let options = |tls| Options {
        tls,
        ssh: Some(SshOptions::loopback(vec![
            make_key(1).public_key().to_openssh().unwrap(),
        ])),
        ..locked_options()
    };
    let mut bed = Bed::with(options(Some(tls))).await;
    let with_key = |bed: &Bed, ca: &str| {
        let hosts = bed.server.known_hosts().unwrap();
        secret(&[
            ("identity", &write_key(&make_key(1))),
            ("known_hosts", &hosts),
            ("ca.crt", ca),
        ])
    };
    bed.secret = with_key(&bed, &certificate.pem());
    commit_files(&bed, &[("big.json", b"{\"big\": true}")]).await;
    let request = bed.request_spec(json!({"url": bed.server.ssh_url("app").unwrap(), "ref": {"branch": "main"}}));
    let (artifact, _) = bed.get_request(&request).await;
    assert_eq!(read_content(&bed, &artifact, "big.json"), b"{\"big\": true}");
    let requests = bed.server.large_file_requests();
    assert!(
        requests.iter().all(|request| request
            .authorization
            .as_deref()
            .is_some_and(|value| value.starts_with("RemoteAuth "))),
        "{requests:?}"
    );
    // The repository may name another path on the same server, and no other.
    let fork = bed.server.create("fork").await.unwrap();
    fork.store_large_file(b"{\"big\": true}").unwrap();
    for (url, is_taken) in [
        (bed.server.ssh_url("fork").unwrap(), true),
        ("ssh://git@else.example/fork.git".to_owned(), false),
        (bed.server.http_url("fork"), false),
    ] {
        let config = format!("[lfs]\n\turl = {url}\n");
        bed.repository.commit([(".lfsconfig", config)], "config").await.unwrap();
        let fetched = bed.fetch(&request, None).await;
        assert_eq!(fetched.is_ok(), is_taken, "{url}: {fetched:?}");
    }

    // A token is not sent in clear text.
    let mut bed = Bed::with(options(None)).await;
    bed.secret = with_key(&bed, "");
    commit_files(&bed, &[("big.json", b"{\"big\": true}")]).await;
    let request = bed.request_spec(json!({"url": bed.server.ssh_url("app").unwrap(), "ref": {"branch": "main"}}));
    let (_, message) = bed.refuse_request(&request).await;
    assert!(
        message.contains("leads from ssh to a URL that is not plain https"),
        "{message}"
    );
    assert!(
        message.contains("\"big.json\"") && !message.contains("RemoteAuth"),
        "{message}"
    );
    bed.assert_tidy();
}
