//! `cargo xtask release`: makes everything that a release has, and pushes the image and the chart. `--dry-run` uses a registry and a control plane of its own, so nothing
//! leaves the machine.

mod archive;
mod chart;
mod image;
mod notes;
mod oci;
mod origin;
mod package_managers;
mod registry;
pub(crate) mod trial;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use archive::Entry;
use image::PlatformProgram;
use oci::{Layout, digest_of};
use origin::Origin;
use package_managers::Package;
use registry::{LocalRegistry, Transfer};

use crate::dist::{self, elf, println_to_stderr, sbom};
use crate::{cargo, tidy};

/// The version of the program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The variable with the repository of the published image, for the build of the program.
const RELEASE_IMAGE: &str = "TENURE_RELEASE_IMAGE";
/// The address of the repository in a dry run: a name that leads nowhere.
const NO_REPOSITORY: &str = "https://git.example/owner/tenure";

/// Arguments: the tag, the names, the programs, and how far to go.
#[derive(Debug, clap::Args)]
pub(crate) struct Release {
    /// The tag of the release [default: v and the version in Cargo.toml].
    #[arg(long)]
    tag: Option<String>,
    /// Only check that the tag is the version and that CHANGELOG.md has a finished section for it.
    #[arg(long, conflicts_with = "dry_run")]
    check: bool,
    /// Push to a registry of its own, pull from there by digest, and install what was pulled on the real control plane in TENURE_KUBERNETES_BIN.
    #[arg(long)]
    dry_run: bool,
    /// End the dry run before the installation.
    #[arg(long, requires = "dry_run")]
    without_cluster: bool,
    /// Push the image and the chart, after `skopeo login`.
    #[arg(long, conflicts_with = "dry_run")]
    push: bool,
    /// The folder for the files; its content is replaced [default: target/release-files].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The repository of the image, without a tag. The chart is in charts/tenure below it.
    #[arg(long, value_name = "REGISTRY/NAME", conflicts_with = "dry_run")]
    image: Option<String>,
    /// The address of the Git repository, below which releases are downloaded.
    #[arg(long, value_name = "URL", conflicts_with = "dry_run")]
    repository: Option<String>,
    /// The identity of the builder, for the statement of origin.
    #[arg(long, value_name = "URI")]
    builder: Option<String>,
    /// A program that is built already. Can be repeated. Without it, the program is built for this machine.
    #[arg(long = "program", value_name = "TARGET=FILE", value_parser = read_program)]
    programs: Vec<(String, PathBuf)>,
    /// The cargo profile of a program that is built. `dev` uses the program of the tests, which needs a C library.
    #[arg(long, value_name = "NAME", default_value = dist::PROFILE)]
    profile: String,
    /// The authorities for the certificates of sources, for the image.
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/certs/ca-certificates.crt")]
    authorities: PathBuf,
}

/// The names and digests by which users install the image and the chart of a release.
#[derive(Debug)]
pub(crate) struct ReleaseReferences {
    /// `REGISTRY/NAME:VERSION`.
    image: String,
    /// The digest of the image.
    digest: String,
    /// `REGISTRY/NAME/charts/tenure`.
    chart: String,
    /// The digest of the chart.
    chart_digest: String,
}

impl Release {
    pub(crate) fn run(&self) -> Result<()> {
        let usual = format!("v{VERSION}");
        let tag = self.tag.as_deref().unwrap_or(&usual);
        notes::check_tag(tag, VERSION)?;
        let changelog = fs::read_to_string(tidy::find_root().join("CHANGELOG.md"))?;
        let section = notes::find_section(&changelog, VERSION)?;
        let finished = section.check_finished();
        if self.dry_run {
            if let Err(problem) = finished {
                println_to_stderr(&format!("before the release: {problem}"));
            }
        } else {
            finished?;
        }
        if self.check {
            return Ok(());
        }
        let registry = self.dry_run.then(LocalRegistry::start).transpose()?;
        let (image, repository) = match &registry {
            Some(registry) => (format!("{}/tenure", registry.address()), NO_REPOSITORY.to_owned()),
            None => (
                self.image
                    .clone()
                    .context("--image REGISTRY/NAME says where the image goes")?,
                self.repository
                    .clone()
                    .context("--repository URL says where the release is")?,
            ),
        };
        let origin = Origin::read(&repository, tag, self.builder.as_deref())?;
        let folder = self
            .out
            .clone()
            .unwrap_or_else(|| cargo::find_target().join("release-files"));
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        fs::create_dir_all(folder.join("files"))?;
        let folder = folder.canonicalize()?;
        let programs = self.find_programs(&image)?;
        let made = self.make(&folder, &programs, &image, &origin)?;
        fs::write(
            folder.join("notes.md"),
            notes::write_notes(
                &section,
                &origin,
                &format!("{}@{}", made.image, made.digest),
                &made.chart,
            ),
        )?;
        println_to_stderr(&format!("{}: image {} {}", folder.display(), made.image, made.digest));
        let Some(registry) = registry else {
            if self.push {
                push_release(&folder, &made, &Transfer::ToOthers)?;
            }
            return Ok(());
        };
        push_release(&folder, &made, &Transfer::OnThisMachine)?;
        let pulled = pull_release(&folder, &made)?;
        println_to_stderr(&format!("pulled by digest: {}", pulled.display()));
        if self.without_cluster {
            return Ok(());
        }
        let done = trial::run_beside_kubernetes(&folder, &pulled, &made);
        drop(registry);
        done
    }

    /// Returns the programs, by target. Builds one if none is named.
    fn find_programs(&self, image: &str) -> Result<Vec<(String, PathBuf)>> {
        if !self.programs.is_empty() {
            return Ok(self.programs.clone());
        }
        if self.profile == "dev" {
            // With the features of the whole workspace, as the tests have built it.
            let mut command = cargo::make_command("cargo");
            command
                .args(["build", "--workspace", "--locked", "--bin", "tenure"])
                .env(RELEASE_IMAGE, image);
            cargo::run_command(command)?;
            let target = dist::STATIC_TARGET.replace("musl", "gnu");
            return Ok(vec![(target, cargo::find_target().join("debug/tenure"))]);
        }
        let target = dist::STATIC_TARGET.to_owned();
        let program = dist::build(&target, &self.profile, Some((RELEASE_IMAGE, image)))?;
        Ok(vec![(target, program)])
    }

    /// Makes all files of the release.
    fn make(
        &self,
        folder: &Path,
        programs: &[(String, PathBuf)],
        image: &str,
        origin: &Origin,
    ) -> Result<ReleaseReferences> {
        let files = folder.join("files");
        let own = find_own(programs)?;
        let pages = folder.join("pages");
        fs::create_dir(&pages)?;
        dist::write_pages(&pages, own)?;
        let authorities = fs::read(&self.authorities)
            .with_context(|| format!("{}: --authorities names another file", self.authorities.display()))?;
        let (mut builds, mut packages) = (Vec::new(), Vec::new());
        for (target, path) in programs {
            let program = fs::read(path).with_context(|| path.display().to_string())?;
            let wants_loader = elf::wants_loader(&program).with_context(|| path.display().to_string())?;
            ensure!(
                !wants_loader || (self.dry_run && !dist::is_static(target)),
                "{}: it needs a C library where it runs, which the image has not. Build it for a target of musl",
                path.display()
            );
            let architecture = image::name_architecture(target)?.to_owned();
            let components = sbom::write_sbom(target)?;
            let name = format!("tenure-{VERSION}-linux-{architecture}");
            fs::write(files.join(format!("{name}.cdx.json")), &components)?;
            let packed = archive::pack_compressed(&list_package(&program, &pages)?, origin.time)?;
            packages.push(Package {
                file: format!("{name}.tar.gz"),
                checksum: oci::make_checksum(&packed),
                architecture: architecture.clone(),
            });
            fs::write(files.join(format!("{name}.tar.gz")), packed)?;
            builds.push(PlatformProgram {
                architecture,
                program,
                components: serde_json::from_str(&components)?,
            });
        }
        let mut layout = Layout::default();
        let root = image::add_image(&mut layout, &builds, &authorities, origin)?;
        layout.write(&folder.join("image"), &root, VERSION)?;
        let (named, digest) = (format!("{image}:{VERSION}"), digest_of(&root).to_owned());
        let pinned = format!("{named}@{digest}");
        fs::write(folder.join("image.txt"), &pinned)?;
        fs::write(files.join("install.yaml"), dist::write_installation(Some(&pinned))?)?;
        let (chart, chart_digest) = make_chart(folder, image, &pinned, origin)?;
        fs::write(
            files.join("tenure.yaml"),
            package_managers::write_krew(&packages, origin),
        )?;
        if packages.len() > 1 {
            fs::write(
                files.join("tenure.rb"),
                package_managers::write_formula(&packages, origin)?,
            )?;
        }
        fs::write(files.join("SHA256SUMS"), dist::write_sums(&files)?)?;
        Ok(ReleaseReferences {
            image: named,
            digest,
            chart,
            chart_digest,
        })
    }
}

/// Writes the chart as a file and as an artifact. Returns its repository and its digest.
fn make_chart(folder: &Path, image: &str, pinned: &str, origin: &Origin) -> Result<(String, String)> {
    let root = tidy::find_root().join("deploy/chart");
    let mut texts = BTreeMap::new();
    for path in list_files(&root)? {
        let name = name_below(&root, &path)?;
        texts.insert(
            name,
            fs::read_to_string(&path).with_context(|| path.display().to_string())?,
        );
    }
    let packed = chart::pack_chart(&texts, pinned, origin)?;
    fs::write(folder.join(format!("files/tenure-{VERSION}.tgz")), &packed)?;
    let description = texts.get("Chart.yaml").context("deploy/chart has no Chart.yaml")?;
    let mut layout = Layout::default();
    let artifact = chart::add_chart(&mut layout, description, packed, origin)?;
    layout.write(&folder.join("chart"), &artifact, VERSION)?;
    let (name, digest) = (format!("{image}/charts/tenure"), digest_of(&artifact).to_owned());
    fs::write(folder.join("chart.txt"), format!("{name}:{VERSION}@{digest}"))?;
    Ok((name, digest))
}

/// Lists the entries of an archive for package managers: the program, its license, its manual and its completions.
fn list_package(program: &[u8], pages: &Path) -> Result<Vec<Entry>> {
    let mut entries = vec![Entry::file("tenure", 0o755, program)];
    for name in ["LICENSE", "NOTICE"] {
        entries.push(Entry::file(name, 0o644, fs::read(tidy::find_root().join(name))?));
    }
    for path in list_files(pages)? {
        entries.push(Entry::file(name_below(pages, &path)?, 0o644, fs::read(&path)?));
    }
    Ok(entries)
}

/// Pushes the image and the chart. The registry has to store both under the digests that they were made with.
fn push_release(folder: &Path, made: &ReleaseReferences, transfer: &Transfer) -> Result<()> {
    registry::push_layout(&folder.join("image"), VERSION, &made.image, transfer)?;
    registry::push_layout(
        &folder.join("chart"),
        VERSION,
        &format!("{}:{VERSION}", made.chart),
        transfer,
    )
}

/// Pulls the image and the chart by digest, compares them, and extracts the program for this machine.
fn pull_release(folder: &Path, made: &ReleaseReferences) -> Result<PathBuf> {
    let name = made.image.strip_suffix(&format!(":{VERSION}")).unwrap_or(&made.image);
    let pulled = folder.join("pulled");
    registry::pull_image(&format!("{name}@{}", made.digest), &pulled.join("image"))?;
    registry::pull_image(&format!("{}@{}", made.chart, made.chart_digest), &pulled.join("chart"))?;
    for part in ["image", "chart"] {
        let (sent, received) = (
            oci::read_blobs(&folder.join(part))?,
            oci::read_blobs(&pulled.join(part))?,
        );
        ensure!(
            sent == received,
            "the registry gave back another {part}: {sent:?}, {received:?}"
        );
    }
    let program = pulled.join("tenure");
    registry::extract_program(&pulled.join("image"), &made.digest, &program)?;
    Ok(program)
}

/// Returns the program that runs on this machine: it writes its own manual.
fn find_own(programs: &[(String, PathBuf)]) -> Result<&Path> {
    let own = programs
        .iter()
        .find(|(target, _)| target.starts_with(std::env::consts::ARCH));
    let (_, path) = own.with_context(|| {
        format!(
            "no program is for {}, this machine's processor: it has to write the manual",
            std::env::consts::ARCH
        )
    })?;
    Ok(path)
}

/// Lists the files below a folder, sorted.
fn list_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| next.display().to_string())? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort();
    Ok(files)
}

fn name_below(folder: &Path, path: &Path) -> Result<String> {
    let name = path.strip_prefix(folder)?.to_str();
    Ok(name
        .with_context(|| format!("{}: its name is no text", path.display()))?
        .to_owned())
}

fn read_program(text: &str) -> Result<(String, PathBuf)> {
    let Some((target, file)) = text.split_once('=') else {
        bail!("TARGET=FILE, such as {}=target/tenure", dist::STATIC_TARGET);
    };
    image::name_architecture(target)?;
    Ok((target.to_owned(), PathBuf::from(file)))
}

/// Reads the manifest with a digest in a layout.
fn read_manifest(folder: &Path, digest: &str) -> Result<Value> {
    let path = folder.join("blobs/sha256").join(digest.trim_start_matches("sha256:"));
    Ok(serde_json::from_slice(
        &fs::read(&path).with_context(|| path.display().to_string())?,
    )?)
}
