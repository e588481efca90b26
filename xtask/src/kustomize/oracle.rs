//! Builds a tree with the real kustomize and with ours, and compares the results. The real one has a time limit. Messages are not compared: two errors agree, whatever
//! their texts.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kustomize::{LoadRestrictor, MapTree, Options, build};

/// The time limit of the real one for one tree.
const LIMIT: Duration = Duration::from_secs(60);

/// The comparison of both builds of one tree.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Both built it, with equal bytes.
    Same,
    /// Both refused it: our message, and the real one's.
    BothRefuse(String, String),
    /// Both built it, with different bytes: the difference, one per line, `-` for the real one's and `+` for ours.
    Differs(String),
    /// Only ours refused it, with this message.
    OursRefuses(String),
    /// Only the real one refused it, with this message.
    RealRefuses(String),
    /// The tree refers to a remote source, which ours refuses by design.
    Remote,
    /// The tree needs the hash of a generated resource with a changed kind, which ours refuses by design.
    HashOfOtherKind,
    /// The real one exceeded the time limit.
    TimedOut,
}

impl Verdict {
    /// Checks whether the result is a bug to fix.
    pub(super) fn is_disagreement(&self) -> bool {
        matches!(
            self,
            Verdict::Differs(_) | Verdict::OursRefuses(_) | Verdict::RealRefuses(_)
        )
    }

    /// Returns the class of a verdict, with the subject of a one-sided error. A smaller tree with the same class shows the same bug.
    pub(super) fn class(&self) -> String {
        match self {
            Verdict::Same => "same".to_owned(),
            Verdict::BothRefuse(..) => "both refuse".to_owned(),
            Verdict::Differs(_) => "differs".to_owned(),
            Verdict::OursRefuses(why) => format!("only ours refuses: {}", extract_gist(why)),
            Verdict::RealRefuses(why) => format!("only kustomize refuses: {}", extract_gist(why)),
            Verdict::Remote => "remote".to_owned(),
            Verdict::HashOfOtherKind => "hash of another kind".to_owned(),
            Verdict::TimedOut => "took too long".to_owned(),
        }
    }

    /// Returns the name of the class without details, for a table.
    pub(super) fn title(&self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::BothRefuse(..) => "both refuse",
            Verdict::Differs(_) => "differs",
            Verdict::OursRefuses(_) => "only ours refuses",
            Verdict::RealRefuses(_) => "only kustomize refuses",
            Verdict::Remote => "remote, refused by ours",
            Verdict::HashOfOtherKind => "hash of another kind, refused by ours",
            Verdict::TimedOut => "took too long",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::BothRefuse(ours, real) => write!(formatter, "both refuse\n  ours: {ours}\n  kustomize: {real}"),
            Verdict::Differs(difference) => write!(formatter, "differs\n{difference}"),
            Verdict::OursRefuses(why) => write!(formatter, "only ours refuses: {why}"),
            Verdict::RealRefuses(why) => write!(formatter, "only kustomize refuses: {why}"),
            Verdict::Same | Verdict::Remote | Verdict::HashOfOtherKind | Verdict::TimedOut => {
                formatter.write_str(self.title())
            }
        }
    }
}

/// Returns the last clause of an error without the parts that differ from tree to tree: digits and quoted words.
fn extract_gist(error: &str) -> String {
    let line = error.trim().lines().next_back().unwrap_or("");
    let clause = line.rsplit(": ").next().unwrap_or(line);
    clause
        .split([' ', ','])
        .filter(|word| word.chars().all(|letter| letter.is_alphabetic() || letter == '\''))
        .take(8)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Checks that a kustomize is on PATH, and fails otherwise.
pub(super) fn check_kustomize_exists() -> anyhow::Result<()> {
    Command::new("kustomize")
        .arg("version")
        .output()
        .context("there is no kustomize on PATH")?;
    Ok(())
}

/// Returns the output or the error of the real one; `None` after the time limit. The output goes through files in `scratch`.
fn run_real(
    directory: &Path,
    restrictor: LoadRestrictor,
    scratch: &Path,
) -> anyhow::Result<Option<Result<Vec<u8>, String>>> {
    let restriction = match restrictor {
        LoadRestrictor::None => "LoadRestrictionsNone",
        LoadRestrictor::RootOnly => "LoadRestrictionsRootOnly",
    };
    let (out, err) = (scratch.join("stdout"), scratch.join("stderr"));
    let mut child = Command::new("kustomize")
        .args(["build", "--load-restrictor", restriction])
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?)
        .spawn()
        .context("starting kustomize")?;
    let start = Instant::now();
    let mut pause = Duration::from_millis(4);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(16));
    };
    if status.success() {
        // A distribution's build may not know its version, and writes (devel) into the label.
        let text = std::fs::read_to_string(&out)?.replace("kustomize-(devel)", "kustomize-v5.8.1");
        return Ok(Some(Ok(text.into_bytes())));
    }
    let text = String::from_utf8_lossy(&std::fs::read(&err)?).into_owned();
    let errors: Vec<&str> = text.lines().filter(|line| !line.starts_with("# Warning")).collect();
    Ok(Some(Err(errors.join("\n").trim().to_owned())))
}

/// Builds the directory `inside` of a tree with both; `disk` is the place of the tree for the real one.
pub(super) fn compare_tree(
    tree: &MapTree,
    inside: &str,
    disk: &Path,
    load_restrictor: LoadRestrictor,
    scratch: &Path,
) -> anyhow::Result<Verdict> {
    let options = Options {
        load_restrictor,
        ..Options::default()
    };
    let ours = build(tree, inside, &options);
    if let Err(error) = &ours
        && error.to_string().contains("is remote: nothing is fetched")
    {
        return Ok(Verdict::Remote);
    }
    if let Err(error) = &ours
        && error.to_string().contains("gets a name suffix hash here")
    {
        return Ok(Verdict::HashOfOtherKind);
    }
    let Some(real) = run_real(&disk.join(inside), load_restrictor, scratch)? else {
        return Ok(Verdict::TimedOut);
    };
    Ok(match (ours, real) {
        (Ok(ours), Ok(real)) => {
            let ours = ours.to_yaml();
            if ours.as_bytes() == real {
                Verdict::Same
            } else {
                Verdict::Differs(find_difference(&String::from_utf8_lossy(&real), &ours))
            }
        }
        (Ok(_), Err(real)) => Verdict::RealRefuses(real),
        (Err(ours), Ok(_)) => Verdict::OursRefuses(ours.to_string()),
        (Err(ours), Err(real)) => Verdict::BothRefuse(ours.to_string(), real),
    })
}

fn find_difference(real: &str, ours: &str) -> String {
    similar::TextDiff::from_lines(real, ours)
        .unified_diff()
        .header("kustomize", "ours")
        .to_string()
}

/// Reads a directory of the disk into a tree, links as links. Files above the size limit of builds are left out.
pub(super) fn read_tree(root: &Path) -> anyhow::Result<MapTree> {
    let mut tree = MapTree::new();
    add_folder(root, "", &mut tree)?;
    Ok(tree)
}

/// Larger files are data of a repository, not configuration.
const LARGEST: u64 = 32 << 20;

fn add_folder(root: &Path, inside: &str, tree: &mut MapTree) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(root.join(inside))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name == ".git" {
            continue;
        }
        let path = if inside.is_empty() {
            name
        } else {
            format!("{inside}/{name}")
        };
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            tree.insert_link(&path, &std::fs::read_link(entry.path())?.to_string_lossy());
        } else if kind.is_dir() {
            tree.insert_directory(&path);
            add_folder(root, &path, tree)?;
        } else if kind.is_file() && entry.metadata()?.len() <= LARGEST {
            tree.insert(&path, std::fs::read(entry.path())?);
        }
    }
    Ok(())
}

/// A folder for one thread's files, removed on drop.
pub(super) struct Scratch(std::path::PathBuf);

impl Scratch {
    /// Makes a folder that no other thread or process has.
    pub(super) fn new(name: &str) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("kustomize-{}-{name}", std::process::id()));
        if path.exists() {
            bail!("{} exists; remove it", path.display());
        }
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// Returns the path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If the removal fails, the folder is still in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
