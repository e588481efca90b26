//! `tenure demo`: the whole story on one machine, with real Git repositories that it makes. `tenure demo tenancy` shows the rules for writes, `tenure demo access` a private
//! project, and `tenure demo packages` a platform's Package. The demo uses one folder and two listeners on loopback, and reports only observed results.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};

use crate::control_plane::ControlPlane;
use crate::failure::Failure;
use crate::{interruption, output};

mod access;
mod chapters;
mod escapes;
mod files;
mod packages;
mod tenancy;
mod transcript;
mod watch;
mod world;

use transcript::{Transcript, format_seconds};
use world::World;

/// Stories of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Story {
    /// Two tenants, their repositories, and the result of attempts to step outside a tenant.
    Gitops,
    /// Write access: an owner's namespaces, a quota, and an edit by hand of an object that Git manages, each with the reason that a user reads.
    Tenancy,
    /// Access to a private project: requested, approved by its owner, delivered, replaced after a leak, and revoked. The host is in memory and speaks as
    /// GitLab does.
    Access,
    /// A Package of a platform's chart: values from a repository, a stolen field, its recovery, and the removal.
    Packages,
}

/// Show a story on one machine, with real Git repositories: GitOps, write access, access to a private project, or a platform's Package.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Story to show.
    #[arg(value_enum, default_value = "gitops")]
    story: Story,
    /// End after the story instead of running on. Exit code 0 only if every step held.
    #[arg(long)]
    once: bool,
    /// Folder for everything that the demo writes. It has to be empty or missing, and is kept [default: a temporary folder, removed at the end].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Port of the control plane; 0 takes a free port.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Program of Flux's helm-controller, which the story `packages` starts and ends. Without it the story goes up to the HelmRelease.
    #[arg(long, value_name = "FILE")]
    helm_controller: Option<PathBuf>,
}

impl Demo {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        if self.helm_controller.is_some() && self.story != Story::Packages {
            return Err(Failure::usage("--helm-controller: only the story packages has charts")
                .hint("tenure demo packages --helm-controller FILE"));
        }
        let Some(folder) = &self.data else {
            let temporary = tempfile::Builder::new()
                .prefix("tenure-demo-")
                .tempdir()
                .map_err(|error| {
                    Failure::environment(format!("can't make a temporary folder: {error}"))
                        .hint("name a folder with --data DIR")
                })?;
            let code = self.run_in(temporary.path()).await;
            let path = temporary.path().to_owned();
            if let Err(error) = temporary.close() {
                output::print_note(format!("{} could not be removed: {error}", path.display()));
            }
            return code;
        };
        check_empty(folder)?;
        let code = self.run_in(folder).await;
        output::print_note(format!("the files of the demo are kept in {}", folder.display()));
        code
    }

    /// Runs the story until its end or an interruption; both end in order.
    async fn run_in(&self, folder: &Path) -> Result<ExitCode, Failure> {
        output::print_line(output::bold(match self.story {
            Story::Gitops => {
                "Tenure reconciles Git into Kubernetes as somebody. This is the whole story, on real Git repositories."
            }
            Story::Tenancy => {
                "Identity decides about every write, before the object is stored. These are two tenants and their rules."
            }
            Story::Access => {
                "A credential for a private project is asked for, approved once by the project's owner, and lives only where it is used."
            }
            Story::Packages => {
                "A platform's chart and an administrator write one Package, and each field has one owner. A stolen field comes back."
            }
        }));
        let mut ended = pin!(interruption::wait_for_signal());
        if self.story == Story::Access {
            let world = tokio::select! {
                world = access::World::start(folder, self.port) => world?,
                ended = &mut ended => return ended.map(|()| make_interrupted_code()),
            };
            let code = tokio::select! {
                code = self.tell_of_access(&world, folder) => code,
                ended = &mut ended => ended.map(|()| make_interrupted_code()),
            };
            world.plane.stop().await;
            return code;
        }
        if self.story == Story::Packages {
            let program = self.helm_controller.as_ref();
            let world = tokio::select! {
                world = packages::World::start(folder, self.port, program) => world?,
                ended = &mut ended => return ended.map(|()| make_interrupted_code()),
            };
            let code = tokio::select! {
                code = self.tell_of_packages(&world, folder) => code,
                ended = &mut ended => ended.map(|()| make_interrupted_code()),
            };
            world.stop().await;
            return code;
        }
        let world = tokio::select! {
            world = World::start(folder, self.port) => world?,
            ended = &mut ended => return ended.map(|()| make_interrupted_code()),
        };
        let code = tokio::select! {
            code = self.run_chapters(&world, folder) => code,
            ended = &mut ended => ended.map(|()| make_interrupted_code()),
        };
        world.plane.stop().await;
        code
    }

    async fn run_chapters(&self, world: &World, folder: &Path) -> Result<ExitCode, Failure> {
        let started = Instant::now();
        let mut account = Transcript::default();
        account.print_text(&format!(
            "control plane  {}  ready in {}\nGit server     {}  (loopback is denied to sources; the administrator allowed this address)\nfolder         {}",
            world.plane.url(),
            format_seconds(world.plane.ready()),
            world.git_address,
            folder.display(),
        ));
        chapters::platform(world, &mut account).await;
        chapters::applications(world, &mut account).await;
        if self.story == Story::Tenancy {
            let alice = world.plane.client_as("alice").await?;
            tenancy::owners(world, &alice, &mut account).await;
            tenancy::bounds(world, &alice, &mut account).await;
            tenancy::hand_edits(world, &alice, &mut account).await;
            let dora = world.plane.client_as("dora").await?;
            tenancy::packages(world, &dora, &mut account).await;
            tenancy::departure(world, &mut account).await;
        } else {
            chapters::image_change(world, &mut account).await;
            chapters::drift(world, &mut account).await;
            chapters::escapes(world, &mut account).await;
            chapters::removal(world, &mut account).await;
        }
        let code = conclude_demo(&account, started);
        if self.once {
            return Ok(code);
        }
        // Both stories end with Ctrl-C, for which the caller waits.
        if self.story == Story::Tenancy {
            invite_owner(&world.plane, &account)?;
            std::future::pending::<()>().await;
        } else {
            invite_user(world, &account)?;
            chapters::report_pushes(world, &account).await;
        }
        Ok(code)
    }

    /// Runs the story about access, and prints its summary.
    async fn tell_of_access(&self, world: &access::World, folder: &Path) -> Result<ExitCode, Failure> {
        let started = Instant::now();
        let mut account = Transcript::default();
        account.print_text(&format!(
            "control plane  {}  ready in {}\nhost           {}  (in memory; it speaks as GitLab does, and a real git serves its projects)\nfolder         {}",
            world.plane.url(),
            format_seconds(world.plane.ready()),
            world.host(),
            folder.display(),
        ));
        access::run_story(world, &mut account).await;
        let code = conclude_demo(&account, started);
        if !self.once {
            invite_asker(&world.plane, &account)?;
            std::future::pending::<()>().await;
        }
        Ok(code)
    }

    /// Runs the story about Packages, and prints its summary.
    async fn tell_of_packages(&self, world: &packages::World, folder: &Path) -> Result<ExitCode, Failure> {
        let started = Instant::now();
        let mut account = Transcript::default();
        account.print_text(&format!(
            "control plane    {}  ready in {}\nhelm-controller  {}\nfolder           {}",
            world.plane.url(),
            format_seconds(world.plane.ready()),
            world.describe_helm(),
            folder.display(),
        ));
        packages::run_story(world, &mut account).await;
        let code = conclude_demo(&account, started);
        if !self.once {
            invite_tuner(&world.plane, &account)?;
            std::future::pending::<()>().await;
        }
        Ok(code)
    }
}

/// Prints commands to try after the story about Packages.
fn invite_tuner(plane: &ControlPlane, account: &Transcript) -> Result<(), Failure> {
    let kubeconfig = plane.admin_kubeconfig()?.display().to_string();
    output::print_line("");
    output::print_line(output::bold("Your turn"));
    account.print_text(&format!(
        "export KUBECONFIG={kubeconfig}\n\
         tenure get packagesources,packages                                  the Packages, and their states\n\
         kubectl get packagevalues -o yaml                                   the values of the repository\n\
         tenure customizer disable                                           end the work with the repository\n\
         \n\
         (the control plane stays up until Ctrl-C)",
    ));
    Ok(())
}

/// Prints the summary, and returns whether all steps held.
fn conclude_demo(account: &Transcript, started: Instant) -> ExitCode {
    let (held, of) = account.count();
    output::print_line("");
    output::print_line(output::bold("What was seen"));
    output::print_line(account.summary());
    output::print_line("");
    output::print_line(format!(
        "{held} of {of} steps held, in {}.",
        format_seconds(started.elapsed())
    ));
    if account.all_held() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    }
}

/// Returns the exit code after an interruption: 128 and the number of SIGINT, as in shells.
fn make_interrupted_code() -> ExitCode {
    ExitCode::from(130)
}

/// Prints commands to try next.
fn invite_user(world: &World, account: &Transcript) -> Result<(), Failure> {
    let kubeconfig = world.plane.admin_kubeconfig()?.display().to_string();
    let url = world.url("beta");
    output::print_line("");
    output::print_line(output::bold("Your turn"));
    account.print_text(&format!(
        "export KUBECONFIG={kubeconfig}\n\
         tenure get -A                                     what is there, and how it is\n\
         tenure events -n evil --warnings                  what evil was told\n\
         tenure who -n beta deployment/prod-site           who owns each field, and from which commit, file and line\n\
         kubectl get deployments -A                        kubectl works, too\n\
         \n\
         git clone {url} && cd beta                        push a change of your own to main: it is applied within 2 s\n\
         \n\
         (`tenure` is {}; the control plane stays up until Ctrl-C)",
        std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_else(|_| "this program".to_owned()),
    ));
    Ok(())
}

/// Prints commands to try as the owner of a tenant.
fn invite_owner(plane: &ControlPlane, account: &Transcript) -> Result<(), Failure> {
    let kubeconfig = plane.admin_kubeconfig()?.display().to_string();
    output::print_line("");
    output::print_line(output::bold("Your turn"));
    account.print_text(&format!(
        "export KUBECONFIG={kubeconfig}\n\
         kubectl --as alice create namespace alpha-more                      one more than alpha may have\n\
         kubectl --as alice -n alpha set env deployment/shop MODE=fast       Git manages it\n\
         kubectl get tenants.capsule.clastix.io alpha -o yaml                what it says, and which namespaces are its\n\
         \n\
         (the control plane stays up until Ctrl-C)",
    ));
    Ok(())
}

/// Prints commands to try as the requester of access.
fn invite_asker(plane: &ControlPlane, account: &Transcript) -> Result<(), Failure> {
    let kubeconfig = plane.admin_kubeconfig()?.display().to_string();
    output::print_line("");
    output::print_line(output::bold("Your turn"));
    account.print_text(&format!(
        "export KUBECONFIG={kubeconfig}\n\
         tenure access list                                                  what is asked, and how it was answered\n\
         tenure access why NAME                                              why a Secret is where it is, or isn't\n\
         tenure access approve NAME                                          once more\n\
         tenure access audit -A                                              which credentials sources use, and who reads them\n\
         \n\
         (the control plane stays up until Ctrl-C)",
    ));
    Ok(())
}

/// Makes sure that the demo's folder is empty, so it never mixes with a user's files.
fn check_empty(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::environment(format!("{}: {error}", folder.display())))?;
    let mut entries =
        std::fs::read_dir(folder).map_err(|error| Failure::environment(format!("{}: {error}", folder.display())))?;
    if entries.next().is_some() {
        return Err(Failure::usage(format!("{} is not empty", folder.display()))
            .hint("name a new folder: the demo changes no existing files"));
    }
    Ok(())
}
