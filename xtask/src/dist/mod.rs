//! `cargo xtask dist DIR`: writes the files of a release: the program as one static file, its list of components, its manual pages and completions, the installation as
//! one file, and the files for an image. A program that needs a part of the machine where it runs is refused, unless its target was requested.

mod elf;
mod image;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::{cargo, generate, tidy};

/// The target whose programs contain their C library.
const STATIC_TARGET: &str = "x86_64-unknown-linux-musl";
/// The shells with completions.
const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

/// Arguments: the folder, the target and the authorities.
#[derive(Debug, clap::Args)]
pub(crate) struct Dist {
    /// The folder; created if it doesn't exist, and empty otherwise.
    folder: PathBuf,
    /// The target. A target other than the static one contains no C library, and its files are named for it.
    #[arg(long, value_name = "TRIPLE", default_value = STATIC_TARGET)]
    target: String,
    /// The authorities for the certificates of sources, for the image.
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/certs/ca-certificates.crt")]
    authorities: PathBuf,
}

impl Dist {
    pub(crate) fn run(&self) -> Result<()> {
        fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        let folder = self.folder.canonicalize()?;
        ensure!(
            fs::read_dir(&folder)?.next().is_none(),
            "{} is not empty: what is in it could be taken for a part of this",
            folder.display()
        );
        let built = self.build()?;
        let program = folder.join("tenure");
        fs::copy(&built, &program).with_context(|| built.display().to_string())?;
        if self.target == STATIC_TARGET {
            ensure!(
                !elf::wants_loader(&fs::read(&program)?)?,
                "{} is not static: it names a loader",
                built.display()
            );
        }
        self.write_pages(&folder, &program)?;
        fs::write(folder.join("tenure.cdx.json"), sbom::write(&self.target)?)?;
        fs::write(folder.join("install.yaml"), write_installation()?)?;
        fs::write(folder.join("Dockerfile"), image::DOCKERFILE)?;
        fs::copy(&self.authorities, folder.join("ca-certificates.crt"))
            .with_context(|| format!("{}: --authorities names another file", self.authorities.display()))?;
        fs::write(folder.join("SHA256SUMS"), write_sums(&folder)?)?;
        let size = fs::metadata(&program)?.len();
        println_to_stderr(&format!("{}: {size} bytes, for {}", program.display(), self.target));
        Ok(())
    }

    /// Builds the program. If the build is impossible, the error names the missing part.
    fn build(&self) -> Result<PathBuf> {
        let sysroot = Command::new("rustc")
            .args(["--print", "sysroot"])
            .output()
            .context("rustc")?;
        let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout)?.trim());
        ensure!(
            sysroot.join("lib/rustlib").join(&self.target).join("lib").is_dir(),
            "Rust's library for {0} isn't installed: `rustup target add {0}` does it, and needs the network. \
             `--target x86_64-unknown-linux-gnu` builds a program that needs a C library where it runs",
            self.target
        );
        let mut command = cargo::command("cargo");
        command.args([
            "build",
            "--profile",
            "dist",
            "--locked",
            "--package",
            "tenure",
            "--bin",
            "tenure",
            "--target",
        ]);
        command.arg(&self.target);
        if self.target == STATIC_TARGET
            && let Some((name, compiler)) = choose_compiler(&|name| std::env::var_os(name).is_some(), &is_on_path)
        {
            command.env(name, compiler);
        }
        cargo::finish(command).context(
            "the program can't be built for this target. Its C parts (ring, mimalloc) need a C compiler for it: install musl-tools, \
             or name one with CC_x86_64_unknown_linux_musl",
        )?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| tidy::root().join("target"), PathBuf::from);
        Ok(target.join(&self.target).join("dist/tenure"))
    }

    /// Lets the program write its own pages and completions, so that they match it.
    fn write_pages(&self, folder: &Path, program: &Path) -> Result<()> {
        let completions = folder.join("completions");
        fs::create_dir(&completions)?;
        for shell in SHELLS {
            let output = Command::new(program).args(["completion", shell]).output()?;
            ensure!(output.status.success(), "tenure completion {shell}: {}", output.status);
            fs::write(completions.join(format!("tenure.{shell}")), output.stdout)?;
        }
        let pages = folder.join("man");
        fs::create_dir(&pages)?;
        let mut command = Command::new(program);
        command.arg("man").arg(&pages);
        cargo::finish(command)
    }
}

/// Chooses the compiler for the C parts, unless one is set. A compiler for musl is preferred, else the machine's own is used. The C parts use nothing of a C library that
/// musl doesn't have; otherwise the program wouldn't link.
fn choose_compiler(
    is_set: &dyn Fn(&str) -> bool,
    is_there: &dyn Fn(&str) -> bool,
) -> Option<(&'static str, &'static str)> {
    const VARIABLE: &str = "CC_x86_64_unknown_linux_musl";
    if is_set(VARIABLE) || is_set("CC") || is_set("TARGET_CC") {
        return None;
    }
    let known = ["x86_64-linux-musl-gcc", "musl-gcc", "cc"];
    known
        .into_iter()
        .find(|name| is_there(name))
        .map(|name| (VARIABLE, name))
}

fn is_on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Writes all of `deploy/` in one file.
fn write_installation() -> Result<String> {
    let mut text = String::from("# Choose the image: it is in the Deployment, and names none that is published.\n");
    for object in generate::objects()? {
        text.push_str("---\n");
        text.push_str(&kustomize::to_yaml(&object));
    }
    Ok(text)
}

/// Writes a line for each file, as `sha256sum --check` reads them.
fn write_sums(folder: &Path) -> Result<String> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    let mut text = String::new();
    for file in files {
        let digest = Sha256::digest(fs::read(&file)?);
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let Some(name) = file.strip_prefix(folder)?.to_str() else {
            bail!("{} has no name that can be written", file.display());
        };
        text.push_str(&format!("{digits}  {name}\n"));
    }
    Ok(text)
}

fn println_to_stderr(text: &str) {
    use std::io::Write as _;
    let _reader_gone = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_is_chosen_that_is_there() {
        let chosen = |set: &[&str], there: &[&str]| {
            choose_compiler(&|name| set.contains(&name), &|name| there.contains(&name)).map(|(_, name)| name)
        };
        assert_eq!(chosen(&[], &["cc", "musl-gcc"]), Some("musl-gcc"));
        assert_eq!(chosen(&[], &["cc"]), Some("cc"));
        assert_eq!(chosen(&["CC_x86_64_unknown_linux_musl"], &["cc"]), None);
        assert_eq!(chosen(&[], &[]), None);
    }

    #[test]
    fn what_is_installed_is_one_file() -> Result<()> {
        let text = write_installation()?;
        let objects = kustomize::manifests("install.yaml", &text, &kustomize::Limits::default())?;
        let built: Vec<_> = objects
            .into_iter()
            .map(|built| generate::write_plainly(&built.object))
            .collect();
        let expected: Vec<_> = generate::objects()?.iter().map(generate::write_plainly).collect();
        assert!(built == expected, "the file holds other objects than are installed");
        Ok(())
    }

    #[test]
    fn every_file_has_its_sum() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("tenure-dist-{}", std::process::id()));
        fs::create_dir_all(folder.join("man"))?;
        fs::write(folder.join("man/a"), "")?;
        fs::write(folder.join("b"), "b")?;
        let sums = write_sums(&folder);
        fs::remove_dir_all(&folder)?;
        let sums = sums?;
        assert!(
            sums.contains("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  man/a\n"),
            "{sums}"
        );
        assert_eq!(sums.lines().count(), 2, "{sums}");
        Ok(())
    }

    /// A target that is not installed is refused before the build, with the solution.
    #[test]
    fn a_target_that_is_not_there_is_named() {
        let dist = Dist {
            folder: PathBuf::new(),
            target: "z80-unknown-cpm".to_owned(),
            authorities: PathBuf::new(),
        };
        let refused = dist.build().map_err(|error| error.to_string());
        assert!(refused.is_err_and(|error| error.contains("rustup target add z80-unknown-cpm")));
    }
}
