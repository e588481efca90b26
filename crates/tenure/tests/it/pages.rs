//! Pages of the documentation that tests run as written: their shell blocks one after the other, in a folder.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::make_command;

/// Returns the shell blocks of a page, in order.
pub(crate) fn shell_blocks(page: &str) -> String {
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

pub(crate) fn read_page(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../../docs/howto/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

pub(crate) fn has_program(name: &str) -> bool {
    let found = Command::new(name)
        .arg("--help")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
}

/// Runs a script in a folder, with the program on PATH. The script's background processes always end with it.
pub(crate) fn run_script(folder: &Path, script: &str, prepare: impl FnOnce(&mut Command)) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_tenure"));
    let path = std::env::join_paths(
        std::iter::once(program.parent().unwrap().to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let script = format!("set -eum\ntrap 'kill %1 2>/dev/null || true' EXIT\n{script}");
    // A page waits until something exists, and would wait forever if it never exists.
    let mut command = make_command(Path::new("timeout"));
    command
        .args(["300", "bash", "-c", &script])
        .env("PATH", path.unwrap())
        // kubectl stores its cache there.
        .env("HOME", folder)
        .current_dir(folder);
    prepare(&mut command);
    let output = command.output().unwrap();
    let text = format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{text}");
    text
}
