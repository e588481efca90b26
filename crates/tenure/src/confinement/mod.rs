//! The limits of a lane's process: its user, its files, its memory and its system calls. The process applies them before it reconciles.
//!
//! A limit that this kernel lacks is reported as a gap, and the others apply all the same. The token of a lane bounds its rights in the cluster.

mod calls;
#[cfg(test)]
mod injection;

use std::path::Path;

use calls::{CallFilters, ERRORS};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

/// The newest rules of Landlock that are used. An older kernel applies the rules that it knows.
const RULES: ABI = ABI::V6;

const NO_LANDLOCK: &str = "this kernel has no Landlock: every file of their user can be opened";

/// The largest number of open files and connections.
const OPEN_FILES: u64 = 4096;

/// Address space beyond the memory: the program, stacks, and unused reservations of the allocator.
const ADDRESSES: u64 = 8 << 30;

/// The largest number of threads, if the lane has a user of its own. Renderings and the runtime take some forty.
const THREADS: u64 = 512;

/// The readable files outside the lane's own folder: certificate authorities, the same for every user of the machine. The hub resolves names.
const READ: [&str; 8] = [
    "/dev/null",
    "/dev/urandom",
    "/etc/ca-certificates",
    "/etc/pki",
    "/etc/ssl",
    "/usr/local/share/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/share/pki",
];

/// The readable files of another program besides those of [`READ`]: the resolution of names, time zones, and the libraries of a program that is not linked statically.
const READ_BY_PROGRAM: [&str; 5] = [
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/ld.so.cache",
    "/usr/share/zoneinfo",
];

/// The folders of libraries, whose files a program may run.
const LIBRARIES: [&str; 4] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"];

/// Ends this process when its parent ends for any reason. On systems without this signal, the closed line ends the process.
pub(crate) fn die_with_parent() {
    let _the_line_tells_it = prctl::set_pdeathsig(Signal::SIGKILL);
}

/// Closes files that the hub inherited from its own parent. The call must come before the process opens files.
pub(crate) fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = open
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number > libc::STDERR_FILENO) {
        // The folder itself was in the list, and is closed already.
        let _closed_already = nix::unistd::close(number);
    }
}

/// Sets the name of the process in process lists to the lane's name, as far as it fits.
pub(crate) fn take_name(lane: &str) {
    if let Ok(name) = std::ffi::CString::new(lane) {
        let _only_a_name = prctl::set_name(&name);
    }
}

/// The memory limit of a lane's process, and whether the process has a user of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The memory in bytes.
    pub(crate) memory: u64,
    /// Whether no other process has this user.
    pub(crate) has_own_user: bool,
}

/// The limits of this process, after they were applied. The value stores the limits that the kernel lacks.
#[derive(Debug)]
pub(crate) struct Confinement {
    /// The missing or incomplete limits, each with its reason.
    gaps: Vec<String>,
}

impl Confinement {
    /// Applies every limit except that of system calls. Only the working directory stays open.
    pub(crate) fn enter(bounds: Bounds) -> Self {
        let mut gaps = apply_limits(bounds);
        gaps.extend(close_the_rest(Path::new("."), None));
        Self { gaps }
    }

    /// Applies the limits of another program, which this process becomes. The program opens connections itself, so no system call is refused.
    pub(crate) fn enter_for_program(memory: u64, program: &Path) -> Self {
        let mut gaps = apply_limits(Bounds {
            memory,
            has_own_user: false,
        });
        gaps.extend(close_the_rest(Path::new("."), Some(program)));
        Self { gaps }
    }

    /// Returns the missing limits in words.
    pub(crate) fn list_gaps(self) -> Vec<String> {
        self.gaps
    }

    /// Refuses every system call that a lane does not need, on all threads. The runtime's sockets and instances of epoll must exist already.
    pub(crate) fn refuse_calls(&mut self) {
        let filters = CallFilters::compile(std::process::id(), ERRORS);
        if let Err(problem) = filters.and_then(|filters| filters.apply()) {
            self.gaps
                .push(format!("calls of the kernel can't be refused: {problem}"));
        }
    }

    /// Returns the missing limits in words, and logs each at debug level only, since every lane has the same.
    pub(crate) fn report_gaps(self, lane: &str) -> Vec<String> {
        for gap in &self.gaps {
            tracing::debug!(lane, "a lane is less shut in than it should be: {gap}");
        }
        self.gaps
    }
}

/// Limits the process: memory, address space, open files, threads, and no core dump after a crash.
fn apply_limits(bounds: Bounds) -> Vec<String> {
    let memory = bounds.memory;
    let mut limits = vec![
        (Resource::RLIMIT_DATA, memory, "its memory"),
        // Page tables that are only read don't count as data.
        (Resource::RLIMIT_AS, memory.saturating_add(ADDRESSES), "its addresses"),
        (Resource::RLIMIT_NOFILE, OPEN_FILES, "its open files"),
        (Resource::RLIMIT_MEMLOCK, 0, "its locked memory"),
        (Resource::RLIMIT_MSGQUEUE, 0, "its queues"),
        (Resource::RLIMIT_CORE, 0, "images of its memory"),
    ];
    if bounds.has_own_user {
        // The kernel counts threads by user: without a user of its own, the hub's threads would count.
        limits.push((Resource::RLIMIT_NPROC, THREADS, "its threads"));
    }
    let set = limits.into_iter().map(|(resource, most, what)| {
        let limited = setrlimit(resource, most, most);
        limited.err().map(|error| format!("{what} can't be limited: {error}"))
    });
    set.flatten().collect()
}

/// Denies this thread and its children all files outside `folder`, and the memory of other processes. Only `program` can be run, with its libraries.
fn close_the_rest(folder: &Path, program: Option<&Path>) -> Vec<String> {
    let mut gaps = Vec::new();
    if let Err(error) = prctl::set_no_new_privs() {
        gaps.push(format!("a program that it starts could gain privileges: {error}"));
    }
    let is_whole = match close_files(folder, program) {
        Ok(RulesetStatus::FullyEnforced) => true,
        Ok(RulesetStatus::PartiallyEnforced) => {
            // The rules about files are as old as Landlock.
            gaps.push("this kernel's Landlock is older than what is asked of it".to_owned());
            true
        }
        Ok(RulesetStatus::NotEnforced) => {
            gaps.push(NO_LANDLOCK.to_owned());
            false
        }
        Err(error) => {
            gaps.push(format!("Landlock can't be used: {error}"));
            false
        }
    };
    // Otherwise other processes of the same user could read its memory through files.
    if !is_whole && let Err(error) = prctl::set_dumpable(false) {
        gaps.push(format!("its memory can be looked into: {error}"));
    }
    gaps
}

/// Denies all files with Landlock, except writes in one folder, reads of certificate authorities, and what a program needs to run.
fn close_files(folder: &Path, program: Option<&Path>) -> Result<RulesetStatus, RulesetError> {
    let mut read: Vec<std::path::PathBuf> = READ.iter().map(std::path::PathBuf::from).collect();
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"]
        .into_iter()
        .filter_map(std::env::var_os);
    read.extend(named.map(std::path::PathBuf::from));
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RULES))?
        .scope(Scope::from_all(RULES))?
        .create()?;
    let ruleset = match PathFd::new(folder) {
        Ok(own) => ruleset.add_rule(PathBeneath::new(own, AccessFs::from_all(RULES) & !AccessFs::Execute))?,
        // The folder can't be opened, so later writes fail with an error.
        Err(_) => ruleset,
    };
    let files = AccessFs::from_read(RULES) & !AccessFs::Execute;
    let mut ruleset = ruleset.add_rules(path_beneath_rules(read, files))?;
    if let Some(program) = program {
        ruleset = ruleset.add_rules(path_beneath_rules(READ_BY_PROGRAM, files))?;
        let run = LIBRARIES.iter().map(Path::new).chain([program]);
        ruleset = ruleset.add_rules(path_beneath_rules(run, AccessFs::from_read(RULES)))?;
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::{UnixDatagram, UnixStream};
    use std::process::Command;

    use nix::sys::signal::kill;
    use nix::unistd::{Pid, getppid};

    use super::*;

    /// The test runs in a thread of its own, since the other threads must stay unconfined. Limits that this kernel lacks are reported and not tried.
    #[test]
    fn confined_thread_reaches_only_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (folder.path().join("own"), folder.path().join("other"));
        for folder in [&own, &other] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("file"), "words").unwrap();
        }
        let (listener, other_listener) = (
            TcpListener::bind("127.0.0.1:0").unwrap(),
            TcpListener::bind("127.0.0.1:0").unwrap(),
        );
        let elsewhere = other_listener.local_addr().unwrap();
        // A connection as the hub hands it over.
        let mut given = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams.connect(datagrams.local_addr().unwrap()).unwrap();
        let confined = std::thread::spawn(move || {
            let (line, _peer) = UnixStream::pair().unwrap();
            let mut gaps = close_the_rest(&own, None);
            let filters = CallFilters::compile(std::process::id(), ERRORS);
            let refusing = filters.and_then(|filters| {
                // Only for this thread.
                let applied = filters
                    .programs
                    .iter()
                    .try_for_each(|program| seccompiler::apply_filter(program));
                applied.map_err(|error| error.to_string())
            });
            gaps.extend(refusing.err().map(|problem| format!("calls of the kernel: {problem}")));
            let has = |what: &str| !gaps.iter().any(|gap| gap.contains(what));
            // The allowed uses.
            assert_eq!(std::fs::read_to_string(own.join("file")).unwrap(), "words");
            std::fs::write(own.join("new"), "words").unwrap();
            std::fs::rename(own.join("new"), own.join("newer")).unwrap();
            std::fs::create_dir(own.join("folder")).unwrap();
            std::fs::remove_dir_all(own.join("folder")).unwrap();
            std::thread::spawn(|| 7).join().unwrap();
            given.write_all(b"words").unwrap();
            let mut received = [0; 5];
            peer.read_exact(&mut received).unwrap();
            // The denied uses.
            if has("Landlock") {
                for file in [other.join("file"), "/etc/passwd".into(), "/proc/self/environ".into()] {
                    let error = std::fs::read(&file).expect_err("it is not its");
                    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", file.display());
                }
                assert!(std::fs::write(other.join("new"), "words").is_err());
                assert!(std::fs::read_dir("/").is_err());
            }
            if has("calls of the kernel") {
                let error = Command::new("/bin/true").spawn().expect_err("no process is started");
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
                assert_eq!(kill(getppid(), None), Err(nix::errno::Errno::EPERM));
                assert_eq!(kill(Pid::this(), None), Err(nix::errno::Errno::EPERM));
                refuse_sockets(elsewhere, &given, &datagrams, &line);
                assert!(prctl::set_pdeathsig(None).is_err(), "it could outlive the hub");
                assert!(nix::sys::resource::getrlimit(Resource::RLIMIT_CORE).is_ok());
            }
            gaps
        });
        let gaps = confined.join().expect("a thread that ends well");
        println!("this kernel lacks: {gaps:?}");
        // The control: an unconfined thread may do this.
        assert!(std::fs::read("/etc/passwd").is_ok());
        assert!(Command::new("/bin/true").status().unwrap().success());
        let free = TcpStream::connect(elsewhere).unwrap();
        assert!(UnixDatagram::unbound().is_ok());
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(datagrams.send_to(b"x", elsewhere).unwrap(), 1);
        let (own, _other) = UnixStream::pair().unwrap();
        assert!(hand_over(&own, &free).is_ok());
    }

    /// Checks that no socket of any kind can be opened, and that an open socket can't connect or send elsewhere.
    fn refuse_sockets(elsewhere: SocketAddr, given: &TcpStream, datagrams: &UdpSocket, line: &UnixStream) {
        let is_refused = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        is_refused(TcpStream::connect(elsewhere).unwrap_err());
        is_refused(TcpListener::bind("127.0.0.1:0").unwrap_err());
        is_refused(UdpSocket::bind("127.0.0.1:0").unwrap_err());
        is_refused(UnixDatagram::unbound().unwrap_err());
        is_refused(rustix::net::connect(given, &elsewhere).unwrap_err().into());
        is_refused(rustix::net::connect_unspec(given).unwrap_err().into());
        assert_eq!(datagrams.send(b"x").unwrap(), 1, "to whom it is connected");
        is_refused(datagrams.send_to(b"x", elsewhere).unwrap_err());
        is_refused(UnixStream::pair().unwrap_err());
        is_refused(hand_over(line, given).unwrap_err());
    }

    fn hand_over(line: &UnixStream, socket: &TcpStream) -> std::io::Result<usize> {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let sockets = [socket.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&sockets)));
        let bytes = [rustix::io::IoSlice::new(b"x")];
        Ok(sendmsg(line, &bytes, &mut ancillary, SendFlags::empty())?)
    }
}
