//! Pushes a layout to a registry and pulls it by digest, with skopeo; and Debian's docker-registry on this machine, for a dry run.

use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tenure_api::workload;

use super::oci::digest_of;
use super::{image, read_manifest};
use crate::{cargo, dist};

/// The program of the registry, as Debian calls it.
pub(super) const REGISTRY: &str = "docker-registry";
/// The client of registries.
pub(super) const CLIENT: &str = "skopeo";
/// The time until a registry listens.
const PATIENCE: Duration = Duration::from_secs(60);

/// The registry to which a release is pushed, which decides about TLS and login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transfer {
    /// A registry of others, over TLS, with the user's login.
    ToOthers,
    /// A registry on this machine, over plain HTTP.
    OnThisMachine,
}

/// A registry on this machine. It ends, with all its content, when it is dropped.
#[derive(Debug)]
pub(super) struct LocalRegistry {
    address: String,
    folder: PathBuf,
    child: Child,
}

impl Drop for LocalRegistry {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
        let _left = fs::remove_dir_all(&self.folder);
    }
}

impl LocalRegistry {
    pub(super) fn start() -> Result<Self> {
        for program in [REGISTRY, CLIENT] {
            ensure!(
                dist::is_on_path(program),
                "{program} is not on PATH: Debian's package of this name has it"
            );
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let folder = std::env::temp_dir().join(format!("tenure-registry-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let config = json!({
            "version": 0.1, "log": { "level": "error", "accesslog": { "disabled": true } },
            "storage": { "filesystem": { "rootdirectory": folder.join("data") } }, "http": { "addr": address }
        });
        let file = folder.join("config.yml");
        fs::write(&file, config.to_string())?;
        let child = Command::new(REGISTRY)
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context(REGISTRY)?;
        let mut registry = Self { address, folder, child };
        let started = Instant::now();
        while TcpStream::connect(&registry.address).is_err() {
            if let Some(status) = registry.child.try_wait()? {
                bail!("{REGISTRY}: {status}");
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "{REGISTRY} does not listen on {}",
                registry.address
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(registry)
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

/// Pushes the layout's tag to `REGISTRY/NAME:TAG`, without a change of any digest.
pub(super) fn push_layout(layout: &Path, tag: &str, name: &str, transfer: &Transfer) -> Result<()> {
    let mut command = make_copy_command();
    if *transfer == Transfer::OnThisMachine {
        command.arg("--dest-tls-verify=false");
    }
    command
        .arg(format!("oci:{}:{tag}", layout.display()))
        .arg(format!("docker://{name}"));
    cargo::run_command(command).with_context(|| format!("{name} is not pushed"))
}

/// Pulls `REGISTRY/NAME@DIGEST` from a registry on this machine into a layout.
pub(super) fn pull_image(name: &str, layout: &Path) -> Result<()> {
    fs::create_dir_all(layout)?;
    let mut command = make_copy_command();
    command.arg("--src-tls-verify=false");
    command
        .arg(format!("docker://{name}"))
        .arg(format!("oci:{}:pulled", layout.display()));
    cargo::run_command(command).with_context(|| format!("{name} is not pulled"))
}

/// Copies all platforms, and changes nothing.
fn make_copy_command() -> Command {
    let mut command = Command::new(CLIENT);
    // The machine's policy is about images that run. These are made here, or compared by digest.
    command.args(["--insecure-policy", "copy", "--quiet", "--all", "--preserve-digests"]);
    command
}

/// Extracts the program for this machine's processor from an image.
pub(super) fn extract_program(layout: &Path, digest: &str, program: &Path) -> Result<()> {
    let own = json!({ "architecture": image::name_architecture(std::env::consts::ARCH)?, "os": "linux" });
    let index = read_manifest(layout, digest)?;
    let list = |document: &Value, name: &str| {
        document
            .get(name)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let manifests = list(&index, "manifests");
    let found = manifests
        .iter()
        .find(|descriptor| descriptor.get("platform") == Some(&own));
    let manifest = read_manifest(
        layout,
        digest_of(found.context("the image has no program for this machine")?),
    )?;
    for layer in list(&manifest, "layers") {
        let blob = layout
            .join("blobs/sha256")
            .join(digest_of(&layer).trim_start_matches("sha256:"));
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(blob)?));
        for entry in archive.entries()? {
            let mut entry = entry?;
            if entry.path()?.as_ref() != Path::new(workload::PROGRAM.trim_start_matches('/')) {
                continue;
            }
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            fs::write(program, content)?;
            let mode = std::os::unix::fs::PermissionsExt::from_mode(entry.header().mode()?);
            fs::set_permissions(program, mode)?;
            return Ok(());
        }
    }
    bail!("the image has no {}", workload::PROGRAM)
}

#[cfg(test)]
mod tests {
    use super::super::image::add_image;
    use super::super::image::tests::tiny;
    use super::super::oci::{Layout, read_blobs};
    use super::super::origin::Origin;
    use super::*;

    /// A registry stores the image under the digest that it was made with, and gives back the same bytes.
    #[test]
    fn an_image_survives_a_registry() -> Result<()> {
        if !(dist::is_on_path(REGISTRY) && dist::is_on_path(CLIENT)) {
            println!("skipped: {REGISTRY} and {CLIENT} are not on PATH");
            return Ok(());
        }
        let registry = LocalRegistry::start()?;
        let folder = registry.folder.join("layouts");
        let (made, pulled) = (folder.join("made"), folder.join("pulled"));
        let mut layout = Layout::default();
        let root = add_image(
            &mut layout,
            &[tiny("amd64"), tiny("arm64")],
            b"authorities",
            &Origin::any(),
        )?;
        layout.write(&made, &root, "1.0")?;
        let name = format!("{}/team/tenure", registry.address());
        push_layout(&made, "1.0", &format!("{name}:1.0"), &Transfer::OnThisMachine)?;
        pull_image(&format!("{name}@{}", digest_of(&root)), &pulled)?;
        assert_eq!(read_blobs(&made)?, read_blobs(&pulled)?);
        let program = folder.join("tenure");
        extract_program(&pulled, digest_of(&root), &program)?;
        let output = Command::new("sh").arg(&program).output()?;
        let own = image::name_architecture(std::env::consts::ARCH)?;
        assert_eq!(String::from_utf8(output.stdout)?.trim(), own);
        Ok(())
    }
}
