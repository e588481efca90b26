//! The bootstrap of a platform from a repository: what the repository gets, what the cluster gets, and when the bootstrap refuses.
//!
//! ```text
//! repository: branch, folder ─┐                ┌─▶ key ─▶ proof ─▶ commits ─▶ install ─▶ start
//! cluster: key, installation ─┼─▶ plan ─▶ steps┤
//! wanted: files of the folder ┘                └─▶ or a refusal, before the first write
//! ```
//!
//! All state is in the repository and in the cluster. So a bootstrap that stopped after any step goes on with the next plan, and the plan of a finished bootstrap has
//! no step that writes. The deploy key is proved before the first commit: a key that can push ends the bootstrap.

mod flux;
mod host;
mod manifests;
mod push;
mod repository;
#[cfg(test)]
mod tests;

use tenure_api::text::count_of;

pub use flux::{FLUX_ACCOUNT, FLUX_NAMESPACE, FluxSync};
pub use host::{HostAddress, choose_username, find_host, is_same_host};
pub use manifests::{
    DEPLOY_KEY_SECRET, PLATFORM_ACCOUNT, PLATFORM_SURFACE, PlatformSource, REPOSITORY_SOURCE, build_installation,
    list_platform_objects, make_surface, write_components, write_kustomization, write_sync,
};
pub use push::{PushOutcome, read_push};
pub use repository::{
    COMPONENTS_FILE, EntryKind, Folder, KUSTOMIZATION_FILE, OWN_FOLDER, RepositoryFacts, SYNC_FILE, list_needed_files,
};

use repository::Layout;

/// The most names in a message.
const MOST_NAMES: usize = 5;

/// The reason for which nothing is bootstrapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The fact that prevents the bootstrap, and its place.
    pub message: String,
    /// The action for the user.
    pub hint: String,
}

impl Refusal {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }
}

/// The files that the folder of the installation has after the bootstrap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedFiles {
    /// The installation; `None` where the controllers are a part of the control plane, in a repository of Flux.
    pub components: Option<String>,
    /// The platform's Surface; `None` in a repository of Flux, which has Flux's own source.
    pub sync: Option<String>,
}

/// The choices of the administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// The folder of the repository that the cluster applies.
    pub folder: Folder,
    /// Manifests that the folder has already become a part of the platform.
    pub accepts_content: bool,
    /// The version of the program, for the messages of commits.
    pub version: String,
}

/// The state of the deploy key in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The Secret does not exist.
    Missing,
    /// The Secret has a key.
    Present {
        /// The host keys in the Secret.
        known_hosts: String,
    },
    /// The Secret exists and is no key that a bootstrap made. The text says why.
    Unusable(String),
}

/// The observed facts about the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFacts {
    /// The deploy key; `None` if the source needs none.
    pub key: Option<KeyState>,
    /// The number of objects of the installation that are missing, and that differ.
    pub installation: (usize, usize),
    /// The number of objects that start the reconciliation and are missing or differ.
    pub start: usize,
    /// Other controllers that hold their Leases now, such as `kustomize-controller`.
    pub other_controllers: Vec<String>,
}

/// Everything from which a plan follows.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The administrator's choices.
    pub choices: Choices,
    /// The repository.
    pub repository: RepositoryFacts,
    /// The files that the repository gets.
    pub files: WantedFiles,
    /// The cluster.
    pub cluster: ClusterFacts,
    /// The host keys that the cluster is to trust; `None` keeps those of the key.
    pub known_hosts: Option<String>,
}

/// A commit that the bootstrap adds to the branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The message.
    pub message: String,
    /// The files, as paths in the repository and contents.
    pub files: Vec<(String, String)>,
}

/// A step of a bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes the deploy key in the cluster, with the host keys.
    MakeKey,
    /// Writes other host keys beside the deploy key.
    PinHost,
    /// Proves that the key reads the repository and can't push. Writes nothing, unless the host's API adds the key.
    ProveKey,
    /// Adds commits to the branch, in one push.
    Push(Vec<Commit>),
    /// Writes objects of the installation: created, changed.
    Install(usize, usize),
    /// Writes objects that start the reconciliation.
    Start(usize),
    /// Waits until the platform has applied the head of the branch.
    Wait,
}

impl Step {
    /// Whether the step writes to the repository or to the cluster.
    #[must_use]
    pub fn is_change(&self) -> bool {
        !matches!(self, Self::ProveKey | Self::Wait)
    }

    /// Returns the step and its reason in one line.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::MakeKey => "make a deploy key in the cluster: there is no key yet".to_owned(),
            Self::PinHost => "pin the server's keys beside the deploy key: they differ from the given ones".to_owned(),
            Self::ProveKey => "prove that the deploy key reads the repository and can't push".to_owned(),
            Self::Push(commits) => {
                let messages: Vec<&str> = commits.iter().map(|commit| commit.message.as_str()).collect();
                let count = count_of(commits.len(), "commit");
                format!("push {count}: {}", messages.join("; "))
            }
            Self::Install(created, changed) => {
                format!("install: {} missing, {changed} different", count_of(*created, "object"))
            }
            Self::Start(count) => format!(
                "start the reconciliation: {} missing or different",
                count_of(*count, "object")
            ),
            Self::Wait => "wait until the platform has applied the commit".to_owned(),
        }
    }
}

/// The steps of a bootstrap, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Whether a step writes.
    #[must_use]
    pub fn is_change(&self) -> bool {
        self.steps.iter().any(Step::is_change)
    }

    /// Returns the commits of the plan.
    #[must_use]
    pub fn commits(&self) -> &[Commit] {
        let mut pushes = self.steps.iter().filter_map(|step| match step {
            Step::Push(commits) => Some(commits.as_slice()),
            _ => None,
        });
        pushes.next().unwrap_or_default()
    }
}

/// Reads Flux's source and Kustomization from a repository that `flux bootstrap` made; `None` for another repository.
///
/// # Errors
/// When the repository is Flux's, and its files can't be used.
pub fn find_flux(repository: &RepositoryFacts, folder: &Folder) -> Result<Option<FluxSync>, Refusal> {
    flux::find_sync(repository, folder)
}

/// Plans the bootstrap.
///
/// # Errors
/// The reason for which nothing is written.
pub fn plan(snapshot: &Snapshot) -> Result<Plan, Refusal> {
    let commits = plan_commits(&snapshot.choices, &snapshot.repository, &snapshot.files)?;
    if let [first, ..] = snapshot.cluster.other_controllers.as_slice() {
        return Err(Refusal::new(
            format!(
                "{} reconciles this cluster: two controllers of one kind undo each other's work",
                snapshot.cluster.other_controllers.join(" and ")
            ),
            format!(
                "stop it first, such as kubectl -n flux-system scale deployment {first} --replicas 0; docs/howto/switching-from-flux.md has the other steps"
            ),
        ));
    }
    let mut steps = Vec::new();
    match &snapshot.cluster.key {
        None => {}
        Some(KeyState::Missing) => steps.extend([Step::MakeKey, Step::ProveKey]),
        Some(KeyState::Present { known_hosts }) => {
            let wanted = snapshot.known_hosts.as_ref();
            if wanted.is_some_and(|wanted| wanted != known_hosts) {
                steps.push(Step::PinHost);
            }
            steps.push(Step::ProveKey);
        }
        Some(KeyState::Unusable(problem)) => {
            return Err(Refusal::new(
                format!("the Secret for the deploy key can't be used: {problem}"),
                "delete the Secret if nothing else needs it; the same command makes a new key",
            ));
        }
    }
    if !commits.is_empty() {
        steps.push(Step::Push(commits));
    }
    if let (created, changed) = snapshot.cluster.installation
        && created + changed > 0
    {
        steps.push(Step::Install(created, changed));
    }
    if snapshot.cluster.start > 0 {
        steps.push(Step::Start(snapshot.cluster.start));
    }
    steps.push(Step::Wait);
    Ok(Plan { steps })
}

/// Plans the commits alone: the first bootstrap adds two, the installation and then the Surface. Later, one commit has all changed files.
///
/// # Errors
/// The reason for which nothing is written into the repository.
pub fn plan_commits(
    choices: &Choices,
    repository: &RepositoryFacts,
    files: &WantedFiles,
) -> Result<Vec<Commit>, Refusal> {
    let layout = repository::check_repository(repository, choices, files)?;
    let own = |name: &str| choices.folder.join(&format!("{OWN_FOLDER}/{name}"));
    let is_changed = |name: &str, text: &str| !repository.has_text(&own(name), text);
    let changed = |name: &'static str, text: Option<&String>| {
        let text = text.filter(|text| is_changed(name, text));
        text.map(|text| (own(name), text.clone()))
    };
    let components = changed(COMPONENTS_FILE, files.components.as_ref());
    let sync = changed(SYNC_FILE, files.sync.as_ref());
    // An administrator may patch the installation in this file, so an existing one stays.
    let is_listed = repository.entries.contains_key(&own(KUSTOMIZATION_FILE));
    let has_files = files.components.is_some() || files.sync.is_some();
    let kustomization = (has_files && !is_listed).then(|| (own(KUSTOMIZATION_FILE), write_kustomization(files)));
    let version = &choices.version;
    let commit = |message: String, files: Vec<Option<(String, String)>>| {
        let files: Vec<_> = files.into_iter().flatten().collect();
        (!files.is_empty()).then_some(Commit { message, files })
    };
    let is_update = repository.entries.contains_key(&own(COMPONENTS_FILE));
    let about = match is_update {
        true => format!("Update the installation of Tenure to {version}"),
        false => format!("Add the installation of Tenure {version}"),
    };
    let commits = match layout {
        Layout::Bootstrapped | Layout::Flux => vec![commit(about, vec![components, sync, kustomization])],
        Layout::New => vec![
            commit(about, vec![components]),
            commit("Add the platform's Surface".to_owned(), vec![sync, kustomization]),
        ],
    };
    Ok(commits.into_iter().flatten().collect())
}

/// Joins names for a message, with the number of omitted names.
fn join_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let shown = names.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
