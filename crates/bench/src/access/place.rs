//! The process of the controllers: the control plane's, or a `tenure run` beside it, whose memory and processor time are then reported.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::process::{ControlPlane, cpu_of, install, memory_of, own_memory_of, terminate_child, wait_for_ready};
use tenure_test_ports::reserve_port;

/// The control plane, and the process whose memory and processor time are measured.
pub(super) struct Place {
    pub(super) plane: ControlPlane,
    apart: Option<SeparateControllers>,
}

/// A `tenure run` beside the control plane, which is measured in its place.
struct SeparateControllers {
    program: PathBuf,
    arguments: Vec<String>,
    /// The address of its readiness probe.
    probe: String,
    child: Child,
}

impl Place {
    /// Starts both; `arguments` are for the controllers.
    pub(super) async fn start(program: &Path, arguments: Vec<String>, is_apart: bool) -> anyhow::Result<Self> {
        if !is_apart {
            let plane = ControlPlane::start(program, &arguments).await?;
            return Ok(Self { plane, apart: None });
        }
        let plane = ControlPlane::start_bare(program).await?;
        install(program, &plane.kubeconfig(), &["--admission"])?;
        // The webhook knows the user of a grant, because it sees each write.
        let webhook = format!("127.0.0.1:{}", reserve_port());
        let probe = format!("127.0.0.1:{}", reserve_port());
        let mut all = vec!["run".to_owned(), "--kubeconfig".to_owned()];
        all.push(plane.kubeconfig().display().to_string());
        all.extend(["--data".to_owned(), plane.data().join("run").display().to_string()]);
        all.extend(["--health-address".to_owned(), probe.clone()]);
        all.extend(["--admission-url".to_owned(), format!("https://{webhook}")]);
        all.extend(["--admission-address".to_owned(), webhook]);
        all.extend(arguments);
        let apart = SeparateControllers {
            child: launch_process(program, &all, &probe).await?,
            program: program.to_owned(),
            arguments: all,
            probe,
        };
        Ok(Self {
            plane,
            apart: Some(apart),
        })
    }

    fn id(&self) -> u32 {
        self.apart
            .as_ref()
            .map_or_else(|| self.plane.process_id(), |apart| apart.child.id())
    }

    /// Returns the name of the measured process.
    pub(super) fn name(&self) -> &'static str {
        if self.apart.is_some() {
            "the controllers"
        } else {
            "the whole control plane"
        }
    }

    /// Returns the resident memory, and the part of it that isn't pages of files.
    pub(super) fn memory(&self) -> anyhow::Result<(u64, u64)> {
        Ok((memory_of(self.id())?.0, own_memory_of(self.id())?))
    }

    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of(self.id())
    }

    /// Stops the measured process as an administrator would, and starts it again.
    pub(super) async fn restart(&mut self) -> anyhow::Result<()> {
        match self.apart.take() {
            Some(apart) => {
                terminate_child(apart.child);
                let child = launch_process(&apart.program, &apart.arguments, &apart.probe).await?;
                self.apart = Some(SeparateControllers { child, ..apart });
            }
            None => {
                self.plane.restart().await?;
            }
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(apart) = self.apart.take() {
            terminate_child(apart.child);
        }
    }
}

/// Starts the controllers, and waits until they are ready.
async fn launch_process(program: &Path, arguments: &[String], probe: &str) -> anyhow::Result<Child> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.spawn().with_context(|| format!("{command:?}"))?;
    wait_for_ready(probe).await?;
    Ok(child)
}
