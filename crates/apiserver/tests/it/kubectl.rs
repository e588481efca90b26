//! Sessions with kubectl (`tests/kubectl/transcript.txt`, `breadth.txt`, `parts.txt`), recorded against a real
//! kube-apiserver 1.36.3, run over TLS against this server: every output and exit code matches. Without a kubectl
//! 1.36 on the PATH the test is skipped.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};

use regex::Regex;
use tenure_apiserver::{Config, Server};

fn kubectl(home: &Path, arguments: &[String]) -> std::io::Result<Output> {
    Command::new("kubectl")
        .args(arguments)
        .env("HOME", home)
        .env("KUBECONFIG", home.join("kubeconfig"))
        // For `kubectl edit`: an editor without a user.
        .env("KUBE_EDITOR", "sed -i s/before/after/")
        .output()
}

/// Normalises ages, times and column widths, which differ between runs.
fn normalize_text(text: &str, files: &str) -> String {
    let mut text = text.replace(files, "@");
    for (pattern, replacement) in [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
        (
            r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d \+0000",
            "<time>",
        ),
        (r"\b\d+s\b", "<age>"),
        ("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uid>"),
        (r"[ \t]+", " "),
        (r" +\n", "\n"),
    ] {
        text = Regex::new(pattern)
            .unwrap()
            .replace_all(&text, replacement)
            .into_owned();
    }
    text.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_reads_as_on_a_real_server() {
    check("transcript.txt", "", true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn most_subcommands_read_as_on_a_real_server() {
    // The recording had no controller manager, which would create a ConfigMap in the namespace.
    check("breadth.txt", "/breadth", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_autoscalers_and_pod_parts_match_real_server() {
    check("parts.txt", "/parts", false).await;
}

/// Runs the commands of a transcript, whose files are in a folder.
async fn check(transcript: &str, folder: &str, controllers: bool) {
    let home = tempfile::tempdir().unwrap();
    let version = kubectl(home.path(), &["version".to_owned(), "--client".to_owned()]);
    let version = version
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    if !version.contains("v1.36.") {
        println!("skipped: no kubectl 1.36 on the PATH");
        return;
    }
    let config = Config {
        controllers,
        ..Config::new(home.path().join("data"))
    };
    let server = Server::open(config).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    server
        .write_admin_kubeconfig(&home.path().join("kubeconfig"), listener.local_addr().unwrap())
        .unwrap();
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener).await.unwrap() }
    });

    let here = format!("{}/tests/kubectl", env!("CARGO_MANIFEST_DIR"));
    let files = format!("{here}{folder}");
    let transcript = std::fs::read_to_string(format!("{here}/{transcript}")).unwrap();
    let mut wrong = String::new();
    for step in transcript.split("\n$ ") {
        let (command, rest) = step.trim_start_matches("$ ").split_once('\n').unwrap();
        let (want, code) = rest.trim_end().rsplit_once('[').unwrap();
        let arguments: Vec<String> = command
            .split(' ')
            .map(|word| word.replace("@/", &format!("{files}/")))
            .collect();
        let directory = home.path().to_owned();
        let output = tokio::task::spawn_blocking(move || kubectl(&directory, &arguments))
            .await
            .unwrap()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let got = normalize_text(&text, &files);
        let got_code = output.status.code().unwrap();
        if got != want.trim() || format!("{got_code}]") != code {
            writeln!(
                wrong,
                "$ {command}\nwant [{code}\n{}\ngot [{got_code}]\n{got}\n",
                want.trim()
            )
            .unwrap();
        }
    }
    server.close().await;
    serving.await.unwrap();
    assert!(wrong.is_empty(), "{wrong}");
}
