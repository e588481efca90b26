//! `tenure install --image REGISTRY/NAME:TAG`: the registry reports the digest, with the user's credentials.

use std::path::Path;
use std::process::{Command, Output};

use base64::Engine as _;
use serde_json::json;
use tenure_registry_server::{Access, Artifact, RegistryServer};

use crate::process::tenure;

/// Runs `install --export` with an image, and with the Docker configuration in a folder.
async fn export(image: String, config: &Path) -> Output {
    let mut command = tenure(&["install", "--export", "--image", &image]);
    let path = std::env::join_paths(
        std::iter::once(config.to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    command.env("DOCKER_CONFIG", config).env("PATH", path.unwrap());
    tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap()
}

/// Checks that the command ends with this exit code, and says these words on standard error.
fn check_output(output: &Output, code: i32, words: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    for word in words {
        assert!(error.contains(word), "no {word:?}: {error}");
    }
    assert!(!error.contains("sesame"), "{error}");
}

/// Writes a program from another process. A file that this process writes could still be open in a child of another test, and then it can't be run.
fn write_program(path: &Path, text: &str) {
    let mut command = Command::new("sh");
    command
        .args(["-c", "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"", "sh", text])
        .arg(path);
    assert!(command.status().unwrap().success());
}

async fn start() -> (RegistryServer, String, String) {
    let registry = RegistryServer::start().await.unwrap();
    let digest = registry.push("team/tenure", "1.0", &Artifact::from_files(&[("tenure", "program")]));
    let image = format!("{}/team/tenure:1.0", registry.address());
    (registry, image, digest)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_becomes_a_digest() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, image, digest) = start().await;
    let output = export(image.clone(), folder.path()).await;
    check_output(&output, 0, &[&format!("image {image}: its registry reports {digest}")]);
    let objects = String::from_utf8(output.stdout).unwrap();
    assert!(objects.contains(&format!("image: {image}@{digest}\n")), "{objects}");

    let missing = format!("{}/team/tenure:2.0", registry.address());
    let output = export(missing, folder.path()).await;
    check_output(&output, 3, &["has no tag 2.0 of team/tenure", "docker login"]);
    let output = export("registry.example/team/Tenure:1".to_owned(), folder.path()).await;
    check_output(&output, 2, &["it is no name of an image", "small letters"]);
    drop(registry);
    let output = export(image, folder.path()).await;
    check_output(&output, 3, &["can't connect", "@sha256:"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_users_credentials_open_a_private_image() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, image, digest) = start().await;
    let address = registry.address();
    registry.require(Access::Basic {
        pair: "anna:sesame".to_owned(),
    });
    let write =
        |config: serde_json::Value| std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();

    let output = export(image.clone(), folder.path()).await;
    check_output(
        &output,
        3,
        &["refuses to show team/tenure", &format!("docker login {address}")],
    );
    write(
        json!({ "auths": { address.to_string(): { "auth": base64::engine::general_purpose::STANDARD.encode("anna:sesame") } } }),
    );
    let output = export(image.clone(), folder.path()).await;
    check_output(&output, 0, &[&digest]);
    write(json!({ "auths": { address.to_string(): { "auth": "sesame" } } }));
    let output = export(image.clone(), folder.path()).await;
    check_output(
        &output,
        2,
        &["the configuration of Docker can't be used", "docker login"],
    );
    std::fs::write(folder.path().join("config.json"), "sesame").unwrap();
    let output = export(image, folder.path()).await;
    check_output(&output, 2, &["config.json: it is no JSON", "DOCKER_CONFIG=DIR"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_the_users_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let (registry, image, digest) = start().await;
    let address = registry.address();
    registry.require(Access::Basic {
        pair: "anna:sesame".to_owned(),
    });
    let config = json!({ "auths": {}, "credsStore": "trial" });
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let program = folder.path().join("docker-credential-trial");
    let answers = format!(
        "#!/bin/sh\nread -r server || true\nif [ \"$1 $server\" = 'get {address}' ]; then echo '{{\"Username\":\"anna\",\"Secret\":\"sesame\"}}'; \
         else echo credentials not found in native keychain; exit 1; fi\n"
    );
    write_program(&program, &answers);
    let output = export(image.clone(), folder.path()).await;
    check_output(&output, 0, &[&digest]);

    write_program(
        &program,
        "#!/bin/sh\necho credentials not found in native keychain; exit 1\n",
    );
    let output = export(image.clone(), folder.path()).await;
    check_output(&output, 3, &["refuses to show team/tenure"]);
    write_program(&program, "#!/bin/sh\necho sesame; exit 2\n");
    let output = export(image.clone(), folder.path()).await;
    check_output(&output, 3, &["docker-credential-trial get: exit status: 2"]);
    std::fs::remove_file(&program).unwrap();
    let output = export(image, folder.path()).await;
    check_output(&output, 3, &["docker-credential-trial get:"]);
}
