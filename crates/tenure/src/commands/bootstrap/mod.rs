//! `tenure bootstrap`: makes a platform of a cluster and a repository. `tenure_inspection::bootstrap` plans the steps; the module observes, carries them out, and
//! waits. The administrator's credential stays in memory, and goes to the repository's server alone.

mod cluster;
mod credential;
mod deploy_key;
mod git;
mod host_keys;
mod hosts;
mod wait;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use tenure_api::duration::DurationText;
use tenure_inspection::bootstrap::{
    self as bootstrap, ClusterFacts, Commit, Folder, Plan, PlatformSource, Refusal, RepositoryFacts, Snapshot, Step,
    WantedFiles,
};
use tenure_remote_requests::git_host::HostKind;
use tenure_sources::RemoteUrl;

use self::cluster::{Cluster, Objects};
use self::credential::PushCredential;
use self::deploy_key::DeployKeySecret;
use self::git::{Branch, PushFailure};
use self::hosts::HostProject;
use super::create::references::parse_duration;
use super::install;
use crate::connect::Connect;
use crate::failure::Failure;
use crate::interruption::{self, Ended};
use crate::progress::Progress;
use crate::{output, quantity};

/// The number of pushes, if other writers move the branch at the same time.
const ATTEMPTS: u32 = 5;

/// Make a platform of a cluster and a repository: push the installation and the platform's Surface, install, and wait until the cluster reconciles itself.
///
/// You can repeat the command. It adds no commit and changes nothing if nothing differs, continues after an interruption, and upgrades with one commit. Your credential is used
/// for the push alone, and stored nowhere. The cluster gets a deploy key of its own, which may only read.
///
/// The command runs `git` of this machine for the fetch and the push.
#[derive(Debug, Args)]
pub(crate) struct Bootstrap {
    #[command(subcommand)]
    host: Host,
}

#[derive(Debug, Subcommand)]
enum Host {
    Git(GitFlags),
    /// Bootstrap from a project of GitLab, which gets the deploy key over GitLab's API. The token is in GITLAB_TOKEN or --token-file.
    Gitlab(HostFlags),
    /// Bootstrap from a repository of GitHub, which gets the deploy key over GitHub's API. The token is in GITHUB_TOKEN or --token-file.
    Github(HostFlags),
    /// Bootstrap from a repository of Gitea or Forgejo, which gets the deploy key over its API. The token is in GITEA_TOKEN or --token-file.
    Gitea(HostFlags),
}

/// Bootstrap from a repository of any server. You add the deploy key yourself: the command prints it, and waits.
#[derive(Debug, Args)]
struct GitFlags {
    /// Address of the repository for the push: https:// or ssh://.
    #[arg(long, value_name = "URL")]
    url: String,
    /// Address from which the cluster reads, with ssh:// [default: the address in --url].
    #[arg(long, value_name = "URL")]
    source_url: Option<String>,
    /// User name for a push over HTTPS.
    #[arg(long, value_name = "NAME", default_value = "git")]
    username: String,
    /// File with the password or token for a push over HTTPS; - for standard input [default: $GIT_PASSWORD].
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// File with your key for a push over ssh, without a passphrase [default: the keys of your ssh-agent, and ssh's usual ones].
    #[arg(long, value_name = "FILE")]
    private_key_file: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct HostFlags {
    /// Path of the repository at the host, such as group/platform. The repository exists already.
    #[arg(long, value_name = "OWNER/NAME")]
    repository: String,
    /// Name or address of the host [default: gitlab.com or github.com].
    #[arg(long, value_name = "HOST")]
    hostname: Option<String>,
    /// File with a token that may push and manage deploy keys; - for standard input [default: the host's variable].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Address from which the cluster reads, with ssh:// [default: the address that the host reports].
    #[arg(long, value_name = "URL")]
    source_url: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Flags of all kinds of hosts.
#[derive(Debug, Args)]
struct Common {
    /// Folder of the repository that the cluster applies, such as clusters/production. The command writes into its folder tenure-system.
    #[arg(long, value_name = "PATH", value_parser = Folder::parse)]
    path: Folder,
    /// Branch of the repository.
    #[arg(long, value_name = "NAME", default_value = "main")]
    branch: String,
    /// Time between two checks of the repository by the cluster.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    interval: DurationText,
    /// File with the keys of the ssh server, as ssh-keyscan writes them [default: the keys that the cluster has, else ~/.ssh/known_hosts].
    #[arg(long, value_name = "FILE")]
    known_hosts: Option<PathBuf>,
    /// Trust the key that the ssh server shows now, if no other source names one.
    #[arg(long)]
    trust_host_key: bool,
    /// File with certificates of an authority to trust for HTTPS to the repository and the host.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Accept a folder that has manifests already. The cluster applies them, as an administrator.
    #[arg(long)]
    accept_content: bool,
    /// Name of the commits' author.
    #[arg(long, value_name = "NAME", default_value = "Tenure")]
    author_name: String,
    /// Mail address of the commits' author.
    #[arg(long, value_name = "ADDRESS", default_value = "bootstrap@tenure.invalid")]
    author_email: String,
    /// Show the steps, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Time to wait for each part: seconds, or a duration such as 5m.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = quantity::parse_time)]
    timeout: Duration,
    #[command(flatten)]
    choices: install::Choices,
    #[command(flatten)]
    connect: Connect,
}

/// The repository of a bootstrap: its addresses, and the credential for the push.
struct Repository {
    /// The address for the push.
    push_url: String,
    credential: PushCredential,
    /// The address from which the cluster reads, if it is known without the repository's content.
    source_url: Option<String>,
    /// The project at a host with an API.
    project: Option<HostProject>,
}

impl Bootstrap {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let progress = Progress::start();
        match interruption::until_interrupted(self.bootstrap(&progress)).await? {
            Ended::Done(ended) => ended.map(|()| ExitCode::SUCCESS),
            Ended::Interrupted => {
                progress.warn("interrupted: run the same command again to continue; nothing is done twice");
                Ok(interruption::exit_code())
            }
        }
    }

    async fn bootstrap(self, progress: &Progress) -> Result<(), Failure> {
        let (repository, common) = match self.host {
            Host::Git(flags) => (flags.read_repository()?, flags.common),
            Host::Gitlab(flags) => flags.find_repository(HostKind::Gitlab).await?,
            Host::Github(flags) => flags.find_repository(HostKind::Github).await?,
            Host::Gitea(flags) => flags.find_repository(HostKind::Gitea).await?,
        };
        let cluster = Cluster::connect(&common.connect, &common.choices).await?;
        let mut work = Work {
            common,
            repository,
            cluster,
            progress,
        };
        work.run().await
    }
}

impl GitFlags {
    /// Reads the addresses and the credential. Nothing is sent.
    fn read_repository(&self) -> Result<Repository, Failure> {
        let url = credential::read_url("--url", &self.url)?;
        let credential = match url.endpoint().scheme.as_str() {
            "ssh" => PushCredential::read_key(self.private_key_file.as_deref())?,
            _ => PushCredential::read_password(&self.username, self.password_file.as_deref(), "GIT_PASSWORD")?,
        };
        credential.check_transport(&url)?;
        let source_url = match (&self.source_url, &credential) {
            (Some(source), _) => Some(credential::check_source(source)?),
            (None, PushCredential::Key(_)) => Some(self.url.clone()),
            (None, _) => None,
        };
        Ok(Repository {
            push_url: self.url.clone(),
            credential,
            source_url,
            project: None,
        })
    }
}

impl HostFlags {
    /// Asks the host for the project and its addresses.
    async fn find_repository(self, kind: HostKind) -> Result<(Repository, Common), Failure> {
        let variable = match kind {
            HostKind::Gitlab => "GITLAB_TOKEN",
            HostKind::Github => "GITHUB_TOKEN",
            HostKind::Gitea | HostKind::Static => "GITEA_TOKEN",
        };
        let token = credential::read_secret(self.token_file.as_deref(), variable)?;
        let token = token.ok_or_else(|| {
            Failure::usage("a token is missing, which may push and manage deploy keys").hint(format!(
                "set {variable}, or name a file with --token-file (- for standard input)"
            ))
        })?;
        let address = bootstrap::find_host(kind, self.hostname.as_deref()).map_err(Failure::usage)?;
        let ca = credential::read_ca(self.common.ca_file.as_deref())?;
        let project = HostProject::find(kind, &address, &self.repository, &token, ca).await?;
        let push_url = project.push_url(&address)?;
        let credential = PushCredential::Password {
            username: bootstrap::choose_username(kind).to_owned(),
            password: token,
        };
        credential.check_transport(&credential::read_url(
            "the host's address of the repository",
            &push_url,
        )?)?;
        let source_url = match &self.source_url {
            Some(source) => credential::check_source(source)?,
            None => project.source_url()?,
        };
        let repository = Repository {
            push_url,
            credential,
            source_url: Some(source_url),
            project: Some(project),
        };
        Ok((repository, self.common))
    }
}

/// A bootstrap while it runs.
struct Work<'a> {
    common: Common,
    repository: Repository,
    cluster: Cluster,
    progress: &'a Progress,
}

/// The observed facts, and the plan that follows.
struct Observed {
    snapshot: Snapshot,
    plan: Plan,
    objects: Objects,
    key: Option<DeployKeySecret>,
}

impl Work<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let url = credential::read_url("--url", &self.repository.push_url)?;
        let hosts = match &self.repository.credential {
            PushCredential::Key(_) => Some(self.find_host_keys(&url, None).await?),
            _ => None,
        };
        let mut branch = Branch::open(
            (&self.repository.push_url, &self.common.branch),
            &self.repository.credential,
            hosts.as_deref(),
            self.common.ca_file.as_deref(),
            self.common.timeout,
        )
        .await?;
        self.progress
            .print_action(format!("reading {} of {}", self.common.branch, branch.name()));
        let mut facts = branch.fetch(&self.common.path).await?;
        let flux = bootstrap::find_flux(&facts, &self.common.path).map_err(refuse)?;
        if let Some(flux) = &flux {
            self.progress
                .print_action("the repository was made by flux bootstrap: its files stay as they are");
            self.cluster.act_as_flux(flux, &mut self.common.choices);
        }
        self.cluster.settle(&mut self.common.choices).await?;
        let (source_url, key) = self.find_source().await?;
        let files = self.write_files(&source_url).await?;
        let mut observed = self.observe(&facts, &files, key).await?;
        self.print_plan(&observed.plan);
        if self.common.dry_run {
            output::print_note("nothing was written");
            return Ok(());
        }
        let mut head = facts.head.clone();
        for step in observed.plan.steps.clone() {
            match step {
                Step::MakeKey => {
                    let hosts = observed.snapshot.known_hosts.clone().unwrap_or_default();
                    if let Some(key) = &mut observed.key {
                        key.make(&self.cluster, &observed.objects, &hosts).await?;
                        self.progress.succeed(format!("{}: made", key.subject()));
                    }
                }
                Step::PinHost => {
                    if let (Some(key), Some(hosts)) = (&mut observed.key, &observed.snapshot.known_hosts) {
                        key.pin(&self.cluster, hosts).await?;
                        self.progress
                            .succeed(format!("{}: the server's keys are pinned", key.subject()));
                    }
                }
                Step::ProveKey => {
                    if let Some(key) = &observed.key {
                        let project = self.repository.project.as_ref();
                        key.prove(&source_url, project, self.common.timeout, self.progress)
                            .await?;
                    }
                }
                Step::Push(commits) => head = Some(self.push(&mut branch, &mut facts, &files, commits).await?),
                Step::Install(..) => {
                    self.cluster
                        .apply(&observed.objects.installation, self.progress)
                        .await?
                }
                Step::Start(_) => {
                    self.wait_for_controllers().await?;
                    self.cluster.apply(&observed.objects.start, self.progress).await?;
                }
                Step::Wait => {
                    self.wait_for_controllers().await?;
                    let head = head.as_deref().unwrap_or_default();
                    wait::wait_until_applied(&self.cluster, &mut branch, head, self.common.timeout, self.progress)
                        .await?;
                }
            }
        }
        self.progress.succeed(match observed.plan.is_change() {
            true => "the platform reconciles itself from the repository",
            false => "nothing was to be done: the platform reconciles itself from the repository",
        });
        Ok(())
    }

    /// Returns the address from which the cluster reads, and the Secret with its deploy key.
    async fn find_source(&self) -> Result<(String, Option<DeployKeySecret>), Failure> {
        let Some(flux) = &self.cluster.flux else {
            let url = self.repository.source_url.clone().ok_or_else(|| {
                Failure::usage(
                    "the cluster reads the repository with a deploy key, over ssh, and --url is no ssh address",
                )
                .hint("name the repository's ssh address, too: --source-url ssh://git@git.example/platform.git")
            })?;
            return Ok((url, Some(DeployKeySecret::read_own(&self.cluster).await?)));
        };
        let is_ssh = flux.url.starts_with("ssh://");
        let key = match &flux.secret {
            None => None,
            Some(secret) => {
                let key = DeployKeySecret::read_of_flux(&self.cluster, secret).await?;
                if !is_ssh && key.is_missing() {
                    return Err(Failure::negative(format!("{} is missing, with which Flux's source reads the repository", key.subject()))
                        .hint(format!("kubectl -n flux-system create secret generic {secret} --from-literal username=git --from-file password=FILE, with a token that may only read")));
                }
                Some(key).filter(|_| is_ssh)
            }
        };
        Ok((flux.url.clone(), key))
    }

    /// Writes the wanted files from the installation's objects.
    async fn write_files(&mut self, source_url: &str) -> Result<WantedFiles, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        let mut objects = self.cluster.list_installation(&self.common.choices).await?;
        if self.cluster.flux.is_some() {
            let components = (!objects.is_empty()).then(|| bootstrap::write_components(&objects, version));
            return Ok(WantedFiles { components, sync: None });
        }
        objects.extend(bootstrap::list_platform_objects());
        let surface = bootstrap::make_surface(&PlatformSource {
            url: source_url.to_owned(),
            branch: self.common.branch.clone(),
            folder: self.common.path.clone(),
            interval: self.common.interval.0.clone(),
        });
        Ok(WantedFiles {
            components: Some(bootstrap::write_components(&objects, version)),
            sync: Some(bootstrap::write_sync(&surface)),
        })
    }

    /// Observes the cluster, and plans.
    async fn observe(
        &self,
        repository: &RepositoryFacts,
        files: &WantedFiles,
        key: Option<DeployKeySecret>,
    ) -> Result<Observed, Failure> {
        let choices = bootstrap::Choices {
            folder: self.common.path.clone(),
            accepts_content: self.common.accept_content,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let commits = bootstrap::plan_commits(&choices, repository, files).map_err(refuse)?;
        let built = bootstrap::build_installation(repository, &choices.folder, &commits).map_err(refuse)?;
        let objects = self.cluster.split_objects(built);
        let known_hosts = match &key {
            None => None,
            Some(key) => {
                let url = match (&self.cluster.flux, &self.repository.source_url) {
                    (Some(flux), _) => flux.url.clone(),
                    (None, url) => url.clone().unwrap_or_default(),
                };
                let url = credential::read_url("the source's address", &url)?;
                match (key.known_hosts(), &self.common.known_hosts) {
                    (Some(_), None) => None,
                    (pinned, _) => Some(self.find_host_keys(&url, pinned).await?),
                }
            }
        };
        let (missing, different) = self.cluster.count_different(&objects.start).await?;
        let snapshot = Snapshot {
            choices,
            repository: repository.clone(),
            files: files.clone(),
            cluster: ClusterFacts {
                key: key.as_ref().map(DeployKeySecret::state),
                installation: self.cluster.count_different(&objects.installation).await?,
                start: missing + different,
                other_controllers: self.cluster.find_other_controllers(&self.common.choices).await?,
            },
            known_hosts,
        };
        let plan = bootstrap::plan(&snapshot).map_err(refuse)?;
        Ok(Observed {
            snapshot,
            plan,
            objects,
            key,
        })
    }

    /// Finds the keys of an ssh server, in the order of the sources that the flags describe.
    async fn find_host_keys(&self, url: &RemoteUrl, pinned: Option<&str>) -> Result<String, Failure> {
        let pinned = match pinned {
            Some(pinned) => Some(pinned.to_owned()),
            None => deploy_key::find_pinned(&self.cluster).await?,
        };
        let flags = (self.common.known_hosts.as_deref(), self.common.trust_host_key);
        host_keys::find_host_keys(url, flags, pinned.as_deref()).await
    }

    fn print_plan(&self, plan: &Plan) {
        for step in plan.steps.iter().filter(|step| self.common.dry_run || step.is_change()) {
            self.progress.print_action(step.describe());
        }
    }

    /// Pushes the commits. If another writer has moved the branch, fetches again, and plans the commits again.
    async fn push(
        &self,
        branch: &mut Branch,
        facts: &mut RepositoryFacts,
        files: &WantedFiles,
        mut commits: Vec<Commit>,
    ) -> Result<String, Failure> {
        let choices = bootstrap::Choices {
            folder: self.common.path.clone(),
            accepts_content: self.common.accept_content,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let author = (self.common.author_name.as_str(), self.common.author_email.as_str());
        for _ in 0..ATTEMPTS {
            match branch.push(facts.head.as_deref(), &commits, author).await {
                Ok(head) => {
                    self.progress.succeed(format!("{}: pushed {head}", branch.name()));
                    return Ok(head);
                }
                Err(PushFailure::Moved) => {
                    self.progress
                        .print_action("the branch has moved meanwhile: reading it again");
                    *facts = branch.fetch(&self.common.path).await?;
                    commits = bootstrap::plan_commits(&choices, facts, files).map_err(refuse)?;
                    if let (true, Some(head)) = (commits.is_empty(), &facts.head) {
                        return Ok(head.clone());
                    }
                }
                Err(PushFailure::Refused(failure)) => return Err(failure),
            }
        }
        Err(Failure::negative(format!(
            "{}: other writers moved the branch {ATTEMPTS} times during the push",
            branch.name()
        ))
        .hint("run the same command again"))
    }

    /// Waits until the Pods of the controllers are available, if the installation has any.
    async fn wait_for_controllers(&self) -> Result<(), Failure> {
        self.cluster.wait_for_rollout(self.common.timeout, self.progress).await
    }
}

fn refuse(refusal: Refusal) -> Failure {
    Failure::negative(refusal.message).hint(refusal.hint)
}
