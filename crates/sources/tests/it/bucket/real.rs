//! Fetches from a real store that another client has filled.

use std::process::Stdio;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tenure_remote_requests::bucket::FetchRequest;
use tenure_remote_requests::fetch::Fetched;
use tenure_sources::{BucketError, Entry};
use tokio::process::Command;

use super::{BUCKET, Stand};
use crate::bed::{find_program, secret};

const ID: &str = "AKIDEXAMPLE";
const SECRET: &str = "open/sesame+";

/// The fetches of the other tests also work with a real store, Versity's gateway, which curl fills. The test runs only if both are installed.
#[tokio::test]
async fn a_real_store_is_understood() {
    let (Some(program), Some(curl)) = (find_program("versitygw"), find_program("curl")) else {
        println!("skipped: versitygw or curl is not on PATH");
        return;
    };
    let mut stand = Stand::new().await;
    let folder = stand.folder.path().join("gateway");
    for name in ["data", "marks"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    let port = tenure_test_ports::reserve_port();
    let address = format!("127.0.0.1:{port}");
    let _child = Command::new(program)
        .args([
            "--port",
            &address,
            "--access",
            ID,
            "--secret",
            SECRET,
            "--region",
            "eu-west-1",
            "-q",
            "posix",
            "--sidecar",
        ])
        .args([folder.join("marks"), folder.join("data")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    for _ in 0..600 {
        if tokio::net::TcpStream::connect(&address).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let put = async |path: &str, content: &str| {
        let digest: String = Sha256::digest(content)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut command = Command::new(&curl);
        command.args([
            "-sS",
            "--fail-with-body",
            "-X",
            "PUT",
            "--aws-sigv4",
            "aws:amz:eu-west-1:s3",
            "--user",
        ]);
        command.args([
            format!("{ID}:{SECRET}"),
            "-H".to_owned(),
            format!("x-amz-content-sha256: {digest}"),
        ]);
        command.args(["-H", "Content-Type: application/octet-stream"]);
        if !content.is_empty() {
            command.args(["--data-binary", content]);
        }
        let done = command.arg(format!("http://{address}/{path}")).output().await.unwrap();
        assert!(
            done.status.success(),
            "{path}: {}",
            String::from_utf8_lossy(&done.stdout)
        );
    };
    put(BUCKET, "").await;
    put("apps/deploy/a.yaml", "one").await;
    for number in 0..5 {
        put(&format!("apps/deploy/{number}.yaml"), &number.to_string()).await;
    }
    put("apps/.sourceignore", "3.yaml").await;

    stand.policy.allow.push(format!("http://{address}").parse().unwrap());
    stand.secrets.credentials = secret(&[("accesskey", ID), ("secretkey", SECRET)]);
    // The store says that its region is not us-east-1.
    let usual = FetchRequest {
        endpoint: address.clone(),
        ..stand.make_request()
    };
    let ask = || usual.clone();
    let first = stand.get(ask()).await;
    let expected = [
        ".sourceignore",
        "deploy/0.yaml",
        "deploy/1.yaml",
        "deploy/2.yaml",
        "deploy/4.yaml",
        "deploy/a.yaml",
    ];
    assert_eq!(stand.list(&first), expected);
    assert_eq!(stand.load(&first).entry("deploy/a.yaml"), Some(Entry::File(b"one")));
    let again = || FetchRequest {
        known: Some(first.clone()),
        ..ask()
    };
    assert!(matches!(stand.fetch(again()).await, Ok(Fetched::Unchanged { .. })));
    put("apps/deploy/a.yaml", "two").await;
    let second = stand.get(again()).await;
    assert_eq!(stand.load(&second).entry("deploy/a.yaml"), Some(Entry::File(b"two")));
    assert_eq!(stand.load(&second).entry("deploy/4.yaml"), Some(Entry::File(b"4")));
    // The store's refusals are understood.
    let other = FetchRequest {
        bucket: "other".to_owned(),
        ..ask()
    };
    let (error, message) = stand.refuse(other).await;
    assert!(matches!(error, BucketError::NoBucket { .. }), "{message}");
    for (keys, problem) in [
        (None, "without credentials"),
        (
            secret(&[("accesskey", ID), ("secretkey", "sesame")]),
            "isn't the one of its accesskey",
        ),
    ] {
        let region = Some("eu-west-1".to_owned());
        let asked = FetchRequest { region, ..ask() };
        stand.secrets.credentials = keys;
        let (_, message) = stand.refuse(asked).await;
        assert!(message.contains(problem), "{problem}: {message}");
    }
}
