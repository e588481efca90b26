//! Starts the processes of lanes, all from one thread that lives as long as they may. A process that asks to die with its parent is ended by the
//! kernel when the *thread* that started it ends. The hub has one such thread, and so has the relay in a lane's Pod. A process gets only one end of
//! each of two lines, as standard input and output.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StandardStream;
use std::process::Stdio;
use std::sync::mpsc;

use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::context::lane_settings::LaneProgram;
use crate::lane_protocol::dial_channel::DialChannel;

/// The result of a start: the process, and the starter's ends of both lines to it.
pub(crate) type Started = std::io::Result<(Child, UnixStream, DialChannel)>;

/// The handle of the thread that starts the processes of lanes.
#[derive(Debug)]
pub(crate) struct ProcessStarter {
    wanted: mpsc::Sender<StartRequest>,
}

/// An order to the thread: the user of the process, if it gets one of its own, and the channel for the result.
type StartRequest = (Option<u32>, oneshot::Sender<Started>);

impl ProcessStarter {
    /// Creates the starter. Must be called inside a tokio runtime.
    pub(crate) fn new(program: &LaneProgram) -> Self {
        let (wanted, asked) = mpsc::channel::<StartRequest>();
        let (program, runtime) = (program.clone(), Handle::current());
        let work = move || {
            let _inside = runtime.enter();
            while let Ok((user, answer)) = asked.recv() {
                // The caller may have given up: dropping the process ends it.
                let _gone = answer.send(start(&program, user));
            }
        };
        // Without the thread, no answer arrives, and `start` reports that.
        let _answers_nobody = std::thread::Builder::new().name("lane-starter".to_owned()).spawn(work);
        Self { wanted }
    }

    /// Starts a process with this number as its user and its only group, or else as the user of this process.
    pub(crate) async fn start(&self, user: Option<u32>) -> Started {
        let (answer, answered) = oneshot::channel();
        let gone = || std::io::Error::other("no thread starts processes");
        self.wanted.send((user, answer)).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

fn start(program: &LaneProgram, user: Option<u32>) -> Started {
    let (own, theirs) = StandardStream::pair()?;
    own.set_nonblocking(true)?;
    let (dial_line, their_dial_line) = DialChannel::pair()?;
    let mut command = Command::new(&program.program);
    command
        .arg0(&program.name)
        .args(&program.arguments)
        .env_clear()
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(their_dial_line))
        // Ctrl-C on a terminal is for the hub, which ends its lanes itself.
        .process_group(0)
        .kill_on_drop(true);
    if let Some(user) = user {
        // With a user, the standard library also removes all supplementary groups before it runs the program.
        command.gid(user).uid(user);
    }
    let child = command.spawn()?;
    Ok((child, UnixStream::from_std(own)?, dial_line))
}
