//! Starts the processes of lanes, all from one thread that lives as long as they may: the kernel ends a process that wants to die with its
//! parent when the *thread* ends that started it. The hub has one, or what is in a lane's Pod besides the lane. Refuses to hand anything over but one end of each of two lines, as standard
//! input and output.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StandardStream;
use std::process::Stdio;
use std::sync::mpsc;

use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::dial_line::DialLine;
use crate::lane_mode::LaneProgram;

/// A process, and the ends of its lines of who has started it.
pub(crate) type Started = std::io::Result<(Child, UnixStream, DialLine)>;

/// The thread that starts processes.
#[derive(Debug)]
pub(crate) struct Starter {
    wanted: mpsc::Sender<oneshot::Sender<Started>>,
}

impl Starter {
    /// Must be called inside a tokio runtime.
    pub(crate) fn new(program: &LaneProgram) -> Self {
        let (wanted, asked) = mpsc::channel::<oneshot::Sender<Started>>();
        let (program, runtime) = (program.clone(), Handle::current());
        let work = move || {
            let _inside = runtime.enter();
            while let Ok(answer) = asked.recv() {
                // Who asked may have gone: then the process is ended with what is dropped.
                let _gone = answer.send(start(&program));
            }
        };
        // Without the thread nobody answers, and that is told.
        let _answers_nobody = std::thread::Builder::new().name("lane-starter".to_owned()).spawn(work);
        Self { wanted }
    }

    /// Starts a process.
    pub(crate) async fn start(&self) -> Started {
        let (answer, answered) = oneshot::channel();
        let gone = || std::io::Error::other("no thread starts processes");
        self.wanted.send(answer).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

fn start(program: &LaneProgram) -> Started {
    let (own, theirs) = StandardStream::pair()?;
    own.set_nonblocking(true)?;
    let (dial_line, their_dial_line) = DialLine::pair()?;
    let child = Command::new(&program.program)
        .arg0(&program.name)
        .args(&program.arguments)
        .env_clear()
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(their_dial_line))
        // Ctrl-C on a terminal is for the hub, which tells its lanes.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    Ok((child, UnixStream::from_std(own)?, dial_line))
}
