//! `tenure lane`: the process of one lane, which only the controllers start. Its orders come over standard input, and connections over standard output. The process
//! confines itself before it uses either. With a hub, the command is the relay in a lane's Pod (`super::lane_pod`), and starts such a process itself.

use std::io::{IsTerminal as _, stdin, stdout};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use clap::Args;
use tenure_controllers::{LaneError, LaneProcess};

use super::lane_pod;
use crate::allocator;
use crate::confinement::{self, Bounds, Confinement};
use crate::failure::{Failure, write_chain};

/// Threads that reconcile; large work has threads of its own.
const THREADS: usize = 2;
/// The largest number of threads for files and name resolution.
const BLOCKING_THREADS: usize = 16;

/// Run one lane. Only the controllers start this command.
#[derive(Debug, Args)]
pub(crate) struct Lane {
    #[command(flatten)]
    pod: lane_pod::Flags,
}

/// A confined lane with its orders.
pub(crate) struct ConfinedLane {
    process: LaneProcess,
    confinement: Confinement,
}

impl Lane {
    /// Whether this is the first process of a Pod.
    pub(crate) fn is_in_pod(&self) -> bool {
        self.pod.is_in_pod()
    }

    /// Relays between the controllers and the lane until a signal ends it.
    pub(crate) async fn run_in_pod(self) -> Result<ExitCode, Failure> {
        match self.pod.read_settings() {
            Some(pod) => pod.run().await,
            None => Err(Failure::internal("a lane is begun before anything else")),
        }
    }

    /// Waits for the orders, and applies every limit of the lane's process except the filter of system calls: the start of the runtime needs more calls. Must be
    /// called while only one thread exists.
    pub(crate) fn confine(self) -> Result<ConfinedLane, Failure> {
        confinement::die_with_parent();
        confinement::close_inherited();
        if stdin().is_terminal() {
            return Err(Failure::usage(
                "only the controllers start this command, and send it orders on its standard input",
            )
            .hint("tenure up --lanes process"));
        }
        let line = stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Failure::environment(format!("standard input: {error}")))?;
        let dial_line = stdout()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Failure::environment(format!("standard output: {error}")))?;
        let process = LaneProcess::receive(UnixStream::from(line), dial_line).map_err(|error| make_failure(&error))?;
        process.enter_folder().map_err(|error| make_failure(&error))?;
        confinement::take_name(process.name());
        let confinement = Confinement::enter(Bounds {
            memory: process.memory(),
            has_own_user: process.has_own_user(),
        });
        Ok(ConfinedLane { process, confinement })
    }
}

impl ConfinedLane {
    /// Reconciles until an order to stop, or until the controllers are gone.
    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        if let Some(outbox) = self.process.spans() {
            crate::traces::send_spans_to_hub(outbox);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(BLOCKING_THREADS)
            .enable_all()
            .build()
            .map_err(|error| Failure::internal(format!("can't start the run time: {error}")))?;
        // The runtime has its sockets by now, and no data of the tenant has been read.
        self.confinement.refuse_calls();
        let gaps = self.confinement.report_gaps(self.process.name());
        let ended = runtime.block_on(async {
            tokio::select! {
                ended = self.process.run(gaps) => ended,
                () = allocator::give_back_freed_memory() => Ok(()),
            }
        });
        // Running computations are not waited for, since their results are useless.
        runtime.shutdown_background();
        ended.map_err(|error| make_failure(&error))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn make_failure(error: &LaneError) -> Failure {
    Failure::environment(format!("a lane ends: {}", write_chain(error)))
}
