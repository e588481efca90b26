//! What the process of a lane gives up before it begins: files, other processes, most of the kernel, and memory without bounds. What the
//! kernel here can't take away is said, and the rest is given up all the same.
//!
//! It refuses to be the only wall: what a lane may do in a cluster is bounded by its token, and by those of the ServiceAccounts it asks for.

use std::collections::BTreeMap;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// The newest rules of Landlock that are made use of; an older kernel takes what it knows of them.
const RULES: ABI = ABI::V6;

/// The request that puts words into a terminal, as if they were typed there; C libraries don't agree on its type.
const INJECT: u64 = 0x5412;

const NO_LANDLOCK: &str = "this kernel has no Landlock: every file of their user can be opened";

/// Files and connections at the same time.
const OPEN_FILES: u64 = 4096;

/// What is read besides the lane's own folder: who signs certificates. It is the same for every user of the machine. Names are resolved by the
/// hub.
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

/// Calls that are refused whatever is asked with them: opening sockets and connecting them (an open one could be connected to somewhere else),
/// handing open files over, looking into and acting on other processes, starting some, the file systems and modules of the machine, its clock,
/// its keys, and ways to the kernel that have been ways into it.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bind,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_connect,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_kill,
    libc::SYS_listen,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_socket,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_tkill,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Those that there are on this processor alone. The last are those of the x32 calls that have numbers of their own (`sendmsg` and
/// `sendmmsg` are among them).
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kexec_file_load,
    libc::SYS_modify_ldt,
    X32 + 518,
    X32 + 520,
    X32 + 521,
    X32 + 524,
    X32 + 528,
    X32 + 536,
    X32 + 538,
    X32 + 539,
    X32 + 540,
    X32 + 545,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// The same calls by their numbers of the x32 way, which a filter doesn't take for the same.
#[cfg(target_arch = "x86_64")]
const X32: libc::c_long = 0x4000_0000;

/// Ends this process when the one that started it ends, however that comes. Where that can't be had, the line between them tells it.
pub(crate) fn die_with_parent() {
    let _the_line_tells_it = prctl::set_pdeathsig(Signal::SIGKILL);
}

/// Closes what whoever started the hub left open for it, and for all that it starts. Must be called before anything is opened.
pub(crate) fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = open
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number > libc::STDERR_FILENO) {
        // The folder itself was among them, and is closed by now.
        let _closed_already = nix::unistd::close(number);
    }
}

/// Goes by the name of its lane in lists of processes, as far as there is room for it.
pub(crate) fn take_name(lane: &str) {
    if let Ok(name) = std::ffi::CString::new(lane) {
        let _only_a_name = prctl::set_name(&name);
    }
}

/// What was given up, and what the kernel could not take.
#[derive(Debug)]
pub(crate) struct Confinement {
    /// What could not be given up, or not all of it, and why.
    gaps: Vec<String>,
}

impl Confinement {
    /// Gives everything up but one folder and so many bytes of memory. It holds for this thread, and for those that it starts.
    pub(crate) fn enter(folder: &Path, memory: u64) -> Self {
        let mut gaps = Vec::new();
        gaps.extend(limit(memory));
        gaps.extend(give_up_the_rest(folder));
        Self { gaps }
    }

    /// What could not be given up, in words; logged here for who looks closely, since it is the same for every lane.
    pub(crate) fn tell_gaps(self, lane: &str) -> Vec<String> {
        for gap in &self.gaps {
            tracing::debug!(lane, "a lane is less shut in than it should be: {gap}");
        }
        self.gaps
    }
}

/// The limits of the process: memory, open files, and no image of its memory when it crashes.
fn limit(memory: u64) -> Vec<String> {
    let limits = [
        (Resource::RLIMIT_DATA, memory, "its memory"),
        (Resource::RLIMIT_NOFILE, OPEN_FILES, "its open files"),
        (Resource::RLIMIT_CORE, 0, "images of its memory"),
    ];
    let set = limits.into_iter().map(|(resource, most, what)| {
        let limited = setrlimit(resource, most, most);
        limited.err().map(|error| format!("{what} can't be limited: {error}"))
    });
    set.flatten().collect()
}

/// What is given up for this thread and those that it starts.
fn give_up_the_rest(folder: &Path) -> Vec<String> {
    let mut gaps = Vec::new();
    if let Err(error) = prctl::set_no_new_privs() {
        gaps.push(format!("a program that it starts could gain privileges: {error}"));
    }
    let is_whole = match close_files(folder) {
        Ok(RulesetStatus::FullyEnforced) => true,
        Ok(RulesetStatus::PartiallyEnforced) => {
            // All that is about files is as old as Landlock.
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
    // Otherwise others of the same user could look into its memory by files.
    if !is_whole && let Err(error) = prctl::set_dumpable(false) {
        gaps.push(format!("its memory can be looked into: {error}"));
    }
    if let Err(problem) = refuse_calls() {
        gaps.push(format!("calls of the kernel can't be refused: {problem}"));
    }
    gaps
}

/// Leaves one folder to write, and the certificates of authorities to read.
fn close_files(folder: &Path) -> Result<RulesetStatus, RulesetError> {
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
        // Then it can't write, and says so when it does.
        Err(_) => ruleset,
    };
    let files = AccessFs::from_read(RULES) & !AccessFs::Execute;
    let ruleset = ruleset.add_rules(path_beneath_rules(read, files))?;
    Ok(ruleset.restrict_self()?.ruleset)
}

fn refuse_calls() -> Result<(), String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let own = u64::from(std::process::id());
    // Threads are made with it, and what has no such flag is a process.
    let thread = u64::try_from(libc::CLONE_THREAD).unwrap_or_default();
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED
        .iter()
        .chain(REFUSED_HERE)
        .map(|call| (*call, Vec::new()))
        .collect();
    refused.insert(
        libc::SYS_clone,
        vec![when(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(thread), 0)?],
    );
    // A signal to itself is how a program gives up.
    refused.insert(
        libc::SYS_tgkill,
        vec![when(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, own)?],
    );
    refused.insert(
        libc::SYS_prlimit64,
        vec![when(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?],
    );
    // To an address, where it isn't to whom the socket is connected.
    refused.insert(
        libc::SYS_sendto,
        vec![when(4, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?],
    );
    let outlive = u64::try_from(libc::PR_SET_PDEATHSIG).unwrap_or_default();
    refused.insert(
        libc::SYS_prctl,
        vec![when(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, outlive)?],
    );
    refused.insert(
        libc::SYS_ioctl,
        vec![when(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, INJECT)?],
    );
    #[cfg(target_arch = "x86_64")]
    {
        let same: Vec<(i64, Vec<SeccompRule>)> = refused
            .iter()
            .filter(|(call, _)| **call < X32)
            .map(|(call, rules)| (call + X32, rules.clone()))
            .collect();
        refused.extend(same);
    }
    install(refused, libc::EPERM, arch)?;
    // Its flags are in memory, where a filter can't look; the C library then takes the older call.
    install(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS, arch)
}

/// A rule about one argument of a call.
fn when(at: u8, length: SeccompCmpArgLen, compare: SeccompCmpOp, with: u64) -> Result<SeccompRule, String> {
    let condition = SeccompCondition::new(at, length, compare, with).map_err(|error| error.to_string())?;
    SeccompRule::new(vec![condition]).map_err(|error| error.to_string())
}

fn install(refused: BTreeMap<i64, Vec<SeccompRule>>, error: i32, arch: TargetArch) -> Result<(), String> {
    let answer = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(refused, SeccompAction::Allow, answer, arch).map_err(|error| error.to_string())?;
    let program: BpfProgram = filter
        .try_into()
        .map_err(|error: seccompiler::BackendError| error.to_string())?;
    apply_filter(&program).map_err(|error| error.to_string())
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

    /// In a thread of its own, since the others are not to be shut in. What this kernel lacks is told, and not tried.
    #[test]
    fn who_is_shut_in_reaches_its_folder_and_no_more() {
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
        // As the hub hands one over.
        let mut given = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams.connect(datagrams.local_addr().unwrap()).unwrap();
        let shut_in = std::thread::spawn(move || {
            let gaps = give_up_the_rest(&own);
            let has = |what: &str| !gaps.iter().any(|gap| gap.contains(what));
            // What it is for.
            assert_eq!(std::fs::read_to_string(own.join("file")).unwrap(), "words");
            std::fs::write(own.join("new"), "words").unwrap();
            std::fs::rename(own.join("new"), own.join("newer")).unwrap();
            std::fs::create_dir(own.join("folder")).unwrap();
            std::fs::remove_dir_all(own.join("folder")).unwrap();
            std::thread::spawn(|| 7).join().unwrap();
            given.write_all(b"words").unwrap();
            let mut heard = [0; 5];
            peer.read_exact(&mut heard).unwrap();
            // What is not its.
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
                refuse_sockets(elsewhere, &given, &datagrams);
                assert!(prctl::set_pdeathsig(None).is_err(), "it could outlive the hub");
                assert!(nix::sys::resource::getrlimit(Resource::RLIMIT_CORE).is_ok());
            }
            gaps
        });
        let gaps = shut_in.join().expect("a thread that ends well");
        println!("this kernel lacks: {gaps:?}");
        // The control: who is not shut in may.
        assert!(std::fs::read("/etc/passwd").is_ok());
        assert!(Command::new("/bin/true").status().unwrap().success());
        let free = TcpStream::connect(elsewhere).unwrap();
        assert!(UnixDatagram::unbound().is_ok());
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(datagrams.send_to(b"x", elsewhere).unwrap(), 1);
        let (own, _other) = UnixStream::pair().unwrap();
        assert!(hand_over(&own, &free).is_ok());
    }

    /// No socket of any kind is opened, and one that is open leads nowhere else and to nobody else.
    fn refuse_sockets(elsewhere: SocketAddr, given: &TcpStream, datagrams: &UdpSocket) {
        let is_refused = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        is_refused(TcpStream::connect(elsewhere).unwrap_err());
        is_refused(TcpListener::bind("127.0.0.1:0").unwrap_err());
        is_refused(UdpSocket::bind("127.0.0.1:0").unwrap_err());
        is_refused(UnixDatagram::unbound().unwrap_err());
        is_refused(rustix::net::connect(given, &elsewhere).unwrap_err().into());
        is_refused(rustix::net::connect_unspec(given).unwrap_err().into());
        assert_eq!(datagrams.send(b"x").unwrap(), 1, "to whom it is connected");
        is_refused(datagrams.send_to(b"x", elsewhere).unwrap_err());
        let (own, _other) = UnixStream::pair().unwrap();
        is_refused(hand_over(&own, given).unwrap_err());
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
