//! `cargo xtask dist DIR`: writes the files of a release: the program as one static file, its list of components, its manual pages and completions, the installation as
//! one file, and the files for an image. A program that needs a part of the machine where it runs is refused, unless its target was requested.

pub(crate) mod elf;
mod image;
pub(crate) mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::{cargo, generate};

/// The target for this machine's processor whose programs contain their C library.
pub(crate) const STATIC_TARGET: &str = match cfg!(target_arch = "aarch64") {
    true => "aarch64-unknown-linux-musl",
    false => "x86_64-unknown-linux-musl",
};
/// The profile of programs for others.
pub(crate) const PROFILE: &str = "dist";
/// The variable with flags of the C compiler for musl on ARM.
const ARM_FLAGS: &str = "CFLAGS_aarch64_unknown_linux_musl";
/// The shells with completions.
const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

/// Arguments: the folder, the target and the authorities.
#[derive(Debug, clap::Args)]
pub(crate) struct Dist {
    /// The folder; created if it doesn't exist, and empty otherwise.
    folder: PathBuf,
    /// The target. A program for a target of musl contains its C library; other programs need one where they run.
    #[arg(long, value_name = "TRIPLE", default_value = STATIC_TARGET)]
    target: String,
    /// The cargo profile. `dev` is for a trial: it builds faster, and the program is larger and slower.
    #[arg(long, value_name = "NAME", default_value = PROFILE)]
    profile: String,
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
        let built = build(&self.target, &self.profile, None)?;
        let program = folder.join("tenure");
        fs::copy(&built, &program).with_context(|| built.display().to_string())?;
        if is_static(&self.target) {
            ensure!(
                !elf::wants_loader(&fs::read(&program)?)?,
                "{} is not static: it names a loader",
                built.display()
            );
        }
        write_pages(&folder, &program)?;
        fs::write(folder.join("tenure.cdx.json"), sbom::write_sbom(&self.target)?)?;
        fs::write(folder.join("install.yaml"), write_installation(None)?)?;
        fs::write(folder.join("Dockerfile"), image::DOCKERFILE)?;
        fs::copy(&self.authorities, folder.join("ca-certificates.crt"))
            .with_context(|| format!("{}: --authorities names another file", self.authorities.display()))?;
        fs::write(folder.join("SHA256SUMS"), write_sums(&folder)?)?;
        let size = fs::metadata(&program)?.len();
        println_to_stderr(&format!("{}: {size} bytes, for {}", program.display(), self.target));
        Ok(())
    }
}

/// Whether programs for the target contain their C library.
pub(crate) fn is_static(target: &str) -> bool {
    target.ends_with("-linux-musl")
}

/// Builds the program, with a variable that names its published image. If the build is impossible, the error names the missing part.
pub(crate) fn build(target: &str, profile: &str, image: Option<(&str, &str)>) -> Result<PathBuf> {
    let sysroot = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .context("rustc")?;
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout)?.trim());
    ensure!(
        sysroot.join("lib/rustlib").join(target).join("lib").is_dir(),
        "Rust's library for {target} isn't installed: `rustup target add {target}` does it, and needs the network. \
         `--target x86_64-unknown-linux-gnu` builds a program that needs a C library where it runs"
    );
    let mut command = cargo::make_command("cargo");
    command.args([
        "build",
        "--profile",
        profile,
        "--locked",
        "--package",
        "tenure",
        "--bin",
        "tenure",
        "--target",
        target,
    ]);
    command.envs(image);
    if is_static(target)
        && let Some((name, compiler)) = choose_compiler(target, &|name| std::env::var_os(name).is_some(), &is_on_path)
    {
        command.env(name, compiler);
    }
    if target == "aarch64-unknown-linux-musl" && std::env::var_os(ARM_FLAGS).is_none() {
        // GCC's C parts would otherwise call functions of its own library, which Rust's files for musl don't have in every release.
        command.env(ARM_FLAGS, "-mno-outline-atomics");
    }
    cargo::run_command(command).context(format!(
        "the program can't be built for this target. Its C parts (ring, mimalloc) need a C compiler for it: install musl-tools, \
         or name one with {}",
        name_compiler(target)
    ))?;
    // cargo calls the folder of its profile `dev` differently.
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(cargo::find_target().join(target).join(folder).join("tenure"))
}

/// Lets the program write its own pages and completions, so that they match it.
pub(crate) fn write_pages(folder: &Path, program: &Path) -> Result<()> {
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
    cargo::run_command(command)
}

/// Returns the variable that names the C compiler for a target.
fn name_compiler(target: &str) -> String {
    format!("CC_{}", target.replace('-', "_"))
}

/// Chooses the compiler for the C parts, unless one is set. A compiler for musl is preferred, else the machine's own is used. The C parts use nothing of a C library that
/// musl doesn't have; otherwise the program wouldn't link.
fn choose_compiler(
    target: &str,
    is_set: &dyn Fn(&str) -> bool,
    is_there: &dyn Fn(&str) -> bool,
) -> Option<(String, String)> {
    let variable = name_compiler(target);
    if is_set(&variable) || is_set("CC") || is_set("TARGET_CC") {
        return None;
    }
    let processor = target.split('-').next().unwrap_or_default();
    let mut known = vec![format!("{processor}-linux-musl-gcc")];
    if target == STATIC_TARGET {
        known.extend(["musl-gcc".to_owned(), "cc".to_owned()]);
    }
    known
        .into_iter()
        .find(|name| is_there(name))
        .map(|name| (variable, name))
}

pub(crate) fn is_on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Writes all of `deploy/` in one file, with the image of a release if there is one.
pub(crate) fn write_installation(image: Option<&str>) -> Result<String> {
    let mut text = match image {
        Some(image) => format!("# kubectl apply --server-side -f install.yaml installs {image}.\n"),
        None => "# Choose the image: it is in the Deployment, and names none that is published.\n".to_owned(),
    };
    let mut images = 0;
    for mut object in generate::list_objects()? {
        let named = object.pointer_mut("/spec/template/spec/containers/0/image");
        if let (Some(named), Some(image)) = (named, image) {
            *named = image.into();
            images += 1;
        }
        text.push_str("---\n");
        text.push_str(&kustomize::to_yaml(&object));
    }
    ensure!(
        image.is_none() || images == 1,
        "{images} objects name an image, and not one"
    );
    Ok(text)
}

/// Writes a line for each file, as `sha256sum --check` reads them.
pub(crate) fn write_sums(folder: &Path) -> Result<String> {
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

pub(crate) fn println_to_stderr(text: &str) {
    use std::io::Write as _;
    let _reader_gone = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_is_chosen_that_is_there() {
        let chosen = |set: &[&str], there: &[&str]| {
            let is_there = |name: &str| there.contains(&name);
            choose_compiler(STATIC_TARGET, &|name| set.contains(&name), &is_there).map(|(_, name)| name)
        };
        assert_eq!(chosen(&[], &["cc", "musl-gcc"]).as_deref(), Some("musl-gcc"));
        assert_eq!(chosen(&[], &["cc"]).as_deref(), Some("cc"));
        assert_eq!(chosen(&[&name_compiler(STATIC_TARGET)], &["cc"]), None);
        assert_eq!(chosen(&[], &[]), None);
        // The machine's own compiler is none for another processor.
        let other =
            |there: &[&str]| choose_compiler("z80-unknown-linux-musl", &|_| false, &|name| there.contains(&name));
        assert_eq!(other(&["cc", "musl-gcc"]), None);
        let own = Some(("CC_z80_unknown_linux_musl".to_owned(), "z80-linux-musl-gcc".to_owned()));
        assert_eq!(other(&["cc", "z80-linux-musl-gcc"]), own);
    }

    #[test]
    fn installation_file_holds_exactly_the_installed_objects() -> Result<()> {
        let text = write_installation(None)?;
        let objects = kustomize::read_manifests("install.yaml", &text, &kustomize::Limits::default())?;
        let built: Vec<_> = objects
            .into_iter()
            .map(|built| generate::write_plainly(&built.object))
            .collect();
        let expected: Vec<_> = generate::list_objects()?.iter().map(generate::write_plainly).collect();
        assert!(built == expected, "the file holds other objects than are installed");
        let image = "registry.example/tenure:1@sha256:aa";
        let released = write_installation(Some(image))?;
        let named = format!("image: {:?}", generate::IMAGE).replace('"', "");
        assert!(text.contains(&named) && !released.contains(&named), "{named}");
        assert!(released.contains(&format!("image: {image}\n")));
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
        let refused = build("z80-unknown-cpm", PROFILE, None).map_err(|error| error.to_string());
        assert!(refused.is_err_and(|error| error.contains("rustup target add z80-unknown-cpm")));
    }
}
