//! How-tos that are tested as they are written: their shell blocks, one after the other, in a folder of their own.

use std::process::{Command, Stdio};

use crate::process::{free_port, named};

/// The shell blocks of a page, in their order.
fn shell_blocks(page: &str) -> String {
    let mut script = String::new();
    let mut inside = false;
    for line in page.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside => {
                script.push_str(line);
                script.push('\n');
            }
            _ => {}
        }
    }
    script
}

#[test]
fn the_first_tenant_from_nothing() {
    let has_kubectl = Command::new("kubectl")
        .arg("version")
        .arg("--client")
        .stdout(Stdio::null())
        .status();
    if !has_kubectl.is_ok_and(|status| status.success()) {
        println!("skipped: there is no kubectl on PATH");
        return;
    }
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/howto/first-tenant.md")).unwrap();
    // Ports that nobody else has; everything else as it stands there.
    let port = free_port();
    let script = shell_blocks(&page)
        .replace("tenure up ", &format!("tenure up --port 0 --repository-port {port} "))
        .replace("127.0.0.1:6480", &format!("127.0.0.1:{port}"));
    assert!(script.contains("kubectl delete tenant/team-a"), "{script}");
    let folder = tempfile::tempdir().unwrap();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_tenure"));
    let path = std::env::join_paths(
        std::iter::once(program.parent().unwrap().to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    // Whatever happens, what was started in the background ends with the shell.
    let script = format!("set -eum\ntrap 'kill %1 2>/dev/null || true' EXIT\n{script}");
    let output = named(std::path::Path::new("bash"))
        .args(["-c", &script])
        .env("PATH", path.unwrap())
        // kubectl keeps what it found there.
        .env("HOME", folder.path())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (said, failed) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}\n{failed}");
    for words in [
        "app-app",
        "surface.tenure.dev/app",
        "✓ kustomizations",
        ".spec.replicas",
        "\n2\n",
    ] {
        assert!(said.contains(words), "no {words:?} in:\n{said}\n{failed}");
    }
}
