//! System calls from a process that is confined like a lane (`injector.c`): every number, as the user of a lane and as root, and each attack with a control outside of
//! the confinement. The calls that the kernel lets through are compared with docs/reference/lane-calls.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use nix::libc;
use tenure_planner::lane_process::user::LANE_USERS;

use super::calls::{CallFilters, Errors};

/// Error numbers that no call returns, so an answer of the filters differs from one of the kernel.
const ERRORS: Errors = Errors {
    refused: 4001,
    missing: 4002,
};

/// A number that stands for this process in the arguments of a call.
const OWN: u32 = 77;

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The filters refused the call.
    Refused,
    /// The filters answered that the kernel has no such call.
    Missing,
    /// The kernel killed the process because of the call.
    Killed,
    /// The call succeeded.
    Done,
    /// The call failed with this error.
    Failed(i32),
    /// The call ended or stopped the process, or closed its channel for results.
    Ended,
}

impl Outcome {
    fn read(line: &str) -> Self {
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["signal", "31"] => Self::Killed,
            ["signal" | "ended", _] => Self::Ended,
            ["-1", error] => match error.parse().unwrap() {
                error if error == ERRORS.refused => Self::Refused,
                error if error == ERRORS.missing => Self::Missing,
                0 => Self::Done,
                error => Self::Failed(error),
            },
            _ => Self::Done,
        }
    }

    fn is_let_through(&self) -> bool {
        !matches!(self, Self::Refused | Self::Missing | Self::Killed)
    }
}

/// The injector, with the filters that it applies.
struct Injector {
    folder: tempfile::TempDir,
}

/// A call: whether the filters apply, the user, the number, and the arguments as the injector reads them.
type Call = (bool, Option<u32>, String, String);

impl Injector {
    /// Builds the injector; `None` without a C compiler.
    fn build() -> Option<&'static Self> {
        static BUILT: OnceLock<Option<Injector>> = OnceLock::new();
        BUILT
            .get_or_init(|| {
                let folder = tempfile::tempdir().unwrap();
                // Other users run the injector.
                std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
                let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/confinement/injector.c");
                let built = Command::new("cc")
                    .arg("-O1")
                    .arg("-o")
                    .arg(folder.path().join("injector"))
                    .arg(source)
                    .status();
                match built {
                    Ok(status) => assert!(status.success(), "the injector can't be built"),
                    Err(error) => {
                        println!("skipped: there is no C compiler: {error}");
                        return None;
                    }
                }
                let filters = CallFilters::compile(OWN, ERRORS).unwrap();
                for (at, program) in filters.programs.iter().enumerate() {
                    let mut bytes = Vec::new();
                    for filter in program {
                        bytes.extend(filter.code.to_ne_bytes());
                        bytes.extend([filter.jt, filter.jf]);
                        bytes.extend(filter.k.to_ne_bytes());
                    }
                    std::fs::write(folder.path().join(format!("filter-{at}")), bytes).unwrap();
                }
                Some(Self { folder })
            })
            .as_ref()
    }

    fn run(&self, calls: &[Call]) -> Vec<Outcome> {
        let mut lines = String::new();
        for (is_confined, user, number, arguments) in calls {
            let confined = if *is_confined { "f" } else { "n" };
            let user = user.map_or("-".to_owned(), |user| user.to_string());
            writeln!(lines, "{confined} {user} {number} {arguments}").unwrap();
        }
        let path = |name: &str| self.folder.path().join(name);
        let mut child = Command::new(path("injector"))
            .args([path("filter-0"), path("filter-1")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writing.join().unwrap().unwrap();
        assert!(output.status.success(), "{output:?}");
        let outcomes: Vec<Outcome> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(Outcome::read)
            .collect();
        assert_eq!(outcomes.len(), calls.len());
        outcomes
    }

    /// Makes one call outside of the confinement and one inside.
    fn try_both(&self, number: libc::c_long, arguments: &str) -> [Outcome; 2] {
        let call = |is_confined| (is_confined, None, number.to_string(), arguments.to_owned());
        let mut outcomes = self.run(&[call(false), call(true)]).into_iter();
        [outcomes.next().unwrap(), outcomes.next().unwrap()]
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the users for calls: this one, which may be root, and that of a lane.
fn list_users() -> Vec<Option<u32>> {
    let mut users = vec![None];
    match is_root() {
        true => users.push(Some(*LANE_USERS.start())),
        false => println!("skipped: only root can make calls as the user of a lane"),
    }
    users
}

/// Returns this processor's calls by their numbers, from the kernel's headers.
fn name_calls() -> BTreeMap<u64, String> {
    let mut child = Command::new("cc")
        .args(["-E", "-dM", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"#include <asm/unistd.h>\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((number.parse().ok()?, name.to_owned()))
    });
    names.collect()
}

/// Returns the names in the first column of the page's tables, for all processors and for this one.
fn read_page() -> BTreeSet<String> {
    let page = include_str!("../../../../docs/reference/lane-calls.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut names = BTreeSet::new();
    for row in rows {
        let (calls, rest) = row.split_once(" |").unwrap();
        let is_of_this = rest.contains("every processor") || cfg!(target_arch = "x86_64");
        let calls = calls.split(", ").map(|call| call.trim_matches('`').to_owned());
        names.extend(calls.filter(|_| is_of_this));
    }
    names
}

/// Whether the kernel itself lets a call pass every filter. `uretprobe` and `uprobe` only kill a process that makes them outside of the kernel's own trampolines.
fn is_exempt(number: &str) -> bool {
    cfg!(target_arch = "x86_64") && ["335", "336"].contains(&number)
}

/// Returns arguments with which bounded calls are let through.
fn list_good_arguments() -> BTreeMap<libc::c_long, &'static str> {
    BTreeMap::from([
        (libc::SYS_clone, "0x3d0f00"),
        (libc::SYS_fcntl, "0 1"),
        (libc::SYS_ioctl, "0 0x5421"),
        (libc::SYS_madvise, "0 0 4"),
        (libc::SYS_mmap, "0 4096 3 0x22 -1 0"),
        (libc::SYS_prctl, "15 s:name"),
        (libc::SYS_prlimit64, "0 4 0 b:"),
        (libc::SYS_setsockopt, "0 6 1"),
        (libc::SYS_tgkill, "77 1 0"),
    ])
}

#[test]
fn lanes_make_only_documented_system_calls() {
    let Some(injector) = Injector::build() else { return };
    let names = name_calls();
    let last = names.keys().last().copied().unwrap();
    assert!(last > 400, "{last}");
    let good = list_good_arguments();
    // Numbers that no kernel has yet, those of the x32 ABI, and some at the ends.
    let mut numbers: Vec<u64> = (0..=last + 200).collect();
    numbers.extend((0..=last + 200).map(|number| number | 0x4000_0000));
    numbers.extend([u64::MAX, 1 << 31, u64::from(u32::MAX)]);
    let expected = read_page();
    for user in list_users() {
        let mut calls: Vec<Call> = Vec::new();
        for number in &numbers {
            let signed = libc::c_long::try_from(*number).unwrap_or(-1);
            for arguments in ["", good.get(&signed).copied().unwrap_or("0 0 0 0 0 0")] {
                calls.push((true, user, number.to_string(), arguments.to_owned()));
            }
        }
        let outcomes = injector.run(&calls);
        let mut through = BTreeSet::new();
        for ((_, _, number, _), outcome) in calls.iter().zip(&outcomes) {
            if outcome.is_let_through() && !is_exempt(number) {
                let name = names.get(&number.parse().unwrap());
                through.insert(name.cloned().unwrap_or_else(|| format!("number {number}")));
            }
        }
        println!(
            "as {user:?}, of {} calls these are let through: {through:?}",
            calls.len()
        );
        let more: Vec<_> = through.difference(&expected).collect();
        let fewer: Vec<_> = expected.difference(&through).collect();
        assert!(
            more.is_empty() && fewer.is_empty(),
            "as {user:?}: beyond the page {more:?}, only there {fewer:?}"
        );
        // A call through the 32-bit ABI always kills the process.
        #[cfg(target_arch = "x86_64")]
        {
            let gate: Vec<Call> = (0..=last)
                .map(|number| (true, user, format!("i386:{number}"), String::new()))
                .collect();
            assert!(injector.run(&gate).iter().all(|outcome| *outcome == Outcome::Killed));
            let free = injector.run(&[(false, user, "i386:20".to_owned(), String::new())]);
            assert_ne!(free, [Outcome::Killed], "the control: getpid by that gate");
        }
    }
}

#[test]
fn arguments_of_calls_are_bounded() {
    let Some(injector) = Injector::build() else { return };
    let sweep = |call: libc::c_long, make: &dyn Fn(u64) -> String, values: Vec<u64>| -> Vec<u64> {
        let calls: Vec<Call> = values
            .iter()
            .map(|value| (true, None, call.to_string(), make(*value)))
            .collect();
        let outcomes = injector.run(&calls);
        let through = values
            .iter()
            .zip(&outcomes)
            .filter(|(_, outcome)| outcome.is_let_through());
        through.map(|(value, _)| *value).collect()
    };
    let bits = |base: u64| {
        (0..64)
            .map(|bit| base ^ (1 << bit))
            .chain([base, 0, u64::MAX])
            .collect::<Vec<_>>()
    };
    let second = |value: u64| format!("0 {value}");
    // The filter allows a thread. It allows no process, no namespace, and no signal at its end.
    let threads = sweep(libc::SYS_clone, &|flags| format!("{flags}"), bits(0x3d_0f00));
    assert_eq!(threads, [0x3d_0f00 ^ 0x40_0000, 0x3d_0f00]);
    let options = sweep(
        libc::SYS_prctl,
        &|option| format!("{option} s:name"),
        (0..120).collect(),
    );
    assert_eq!(options, [15]);
    let commands = sweep(libc::SYS_fcntl, &second, (0..50).chain(1024..1050).collect());
    assert_eq!(commands, [1, 2, 3, 4, 1030]);
    assert!(sweep(libc::SYS_fcntl, &|flags| format!("0 4 {flags}"), vec![0x2000, 0x2800]).is_empty());
    let requests = sweep(
        libc::SYS_ioctl,
        &second,
        (0x5400..0x5480).chain(0x8900..0x8a00).collect(),
    );
    assert_eq!(requests, [0x5421, 0x5451]);
    let waits = sweep(
        libc::SYS_futex,
        &|command| format!("b: {command} 1"),
        (0..600).collect(),
    );
    let commands: BTreeSet<u64> = waits.iter().map(|wait| wait & 0x7f).collect();
    assert_eq!(commands, BTreeSet::from([0, 1, 3, 4, 9, 10]));
    let advice = sweep(libc::SYS_madvise, &|advice| format!("0 0 {advice}"), (0..120).collect());
    assert_eq!(advice, [4, 8, 14, 15]);
    // The filter allows private memory. It allows no executable, growing or locked memory.
    let mappings = sweep(libc::SYS_mmap, &|flags| format!("0 4096 3 {flags} -1 0"), bits(0x22));
    let kept = [
        0x22 ^ 0x10,
        0x22 ^ 0x800,
        0x22 ^ 0x1000,
        0x22 ^ 0x4000,
        0x22 ^ 0x8000,
        0x22 ^ 0x1_0000,
        0x22 ^ 0x2_0000,
        0x22,
    ];
    assert!(kept.iter().all(|flags| mappings.contains(flags)), "{mappings:?}");
    assert!(mappings.iter().all(|flags| flags & 0x4_210f == 2), "{mappings:?}");
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let rights = sweep(call, &|rights| format!("0 4096 {rights} 0x22 -1 0"), bits(3));
        assert_eq!(rights, [2, 1, 3, 0]);
    }
    for (call, at) in [(libc::SYS_openat, 3), (libc::SYS_mkdirat, 2)] {
        let make = |mode: u64| format!("-1 s:file {} {mode}", if at == 3 { "0" } else { "" });
        assert_eq!(sweep(call, &make, vec![0o600, 0o4600, 0o2600, 0o6600]), [0o600]);
    }
    assert!(sweep(libc::SYS_prlimit64, &|process| format!("{process} 4 0 b:"), vec![1, 77]).is_empty());
    assert!(
        sweep(
            libc::SYS_prlimit64,
            &|limit| format!("0 {limit} b: b:"),
            (0..16).collect()
        )
        .is_empty()
    );
    for call in [libc::SYS_setpriority, libc::SYS_getpriority] {
        let whose = sweep(
            call,
            &|which| format!("{} {} 5", which % 4, which / 4),
            (0..400).collect(),
        );
        assert_eq!(whose, [0]);
    }
    let options = sweep(
        libc::SYS_setsockopt,
        &|option| format!("0 {} {}", option >> 8, option & 0xff),
        (0..0x800).collect(),
    );
    assert_eq!(options, [0x601]);
    assert_eq!(
        sweep(
            libc::SYS_tgkill,
            &|process| format!("{process} 1 0"),
            (0..200).collect()
        ),
        [77]
    );
    assert!(sweep(libc::SYS_sendto, &|to| format!("0 b: 1 0 {to} 16"), vec![1, 1 << 32]).is_empty());
    assert!(
        sweep(
            libc::SYS_renameat2,
            &|flags| format!("-1 s:a -1 s:b {flags}"),
            vec![1, 2, 4]
        )
        .is_empty()
    );
    assert!(
        sweep(
            libc::SYS_sched_getaffinity,
            &|process| format!("{process} 8 b:"),
            vec![1, 77]
        )
        .is_empty()
    );
}

/// A process that stands for the hub or another lane, and ends with the test.
struct StandIn(Child);

impl StandIn {
    fn start(user: Option<u32>) -> Self {
        let mut command = Command::new("sleep");
        command.arg("60");
        if let Some(user) = user {
            command.gid(user).uid(user);
        }
        Self(command.spawn().unwrap())
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// The filters refuse these calls, also for a lane with the hub's user. For a lane with a user of its own, the kernel's own rules refuse them, too.
#[test]
fn lane_changes_no_foreign_file_or_process() {
    let Some(injector) = Injector::build() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (key, other) = (folder.path().join("admin.key"), folder.path().join("other-lane"));
    let lane = is_root().then_some(*LANE_USERS.start());
    std::fs::write(&key, "key").unwrap();
    std::fs::create_dir(&other).unwrap();
    if is_root() {
        let user = Some(LANE_USERS.start() + 1);
        chown(&other, user, user).unwrap();
        // Paths may pass through the folder; the modes of the files protect them.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    }
    let reset = || {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o700)).unwrap();
    };
    let text = |path: &Path| format!("s:{}", path.display());
    let mode = |path: &PathBuf| std::fs::metadata(path).unwrap().mode() & 0o777;
    for (path, wanted) in [(&key, 0o644), (&other, 0)] {
        let arguments = format!("-100 {} {wanted}", text(path));
        for user in list_users() {
            reset();
            let before = mode(path);
            let inside = injector.run(&[(true, user, libc::SYS_fchmodat.to_string(), arguments.clone())]);
            assert_eq!(
                (inside, mode(path)),
                (vec![Outcome::Refused], before),
                "{}",
                path.display()
            );
        }
        if let Some(lane) = lane {
            let without_filters =
                injector.run(&[(false, Some(lane), libc::SYS_fchmodat.to_string(), arguments.clone())]);
            assert_eq!(without_filters, [Outcome::Failed(libc::EPERM)]);
        }
        let control = injector.run(&[(false, None, libc::SYS_fchmodat.to_string(), arguments)]);
        assert_eq!((control, mode(path)), (vec![Outcome::Done], wanted));
    }
    reset();
    // Other changes by path that Landlock doesn't bound.
    for (call, rest) in [
        (libc::SYS_fchownat, format!("-100 {} -1 -1 0", text(&key))),
        (libc::SYS_utimensat, format!("-100 {} 0 0", text(&key))),
        (libc::SYS_setxattr, format!("{} s:user.a s:b 1 0", text(&key))),
        (libc::SYS_linkat, format!("-100 {} -100 {}-a 0", text(&key), text(&key))),
        (libc::SYS_symlinkat, format!("s:/etc/passwd -100 {}-b", text(&key))),
        (libc::SYS_mknodat, format!("-100 {}-c 0010600 0", text(&key))),
        (libc::SYS_truncate, format!("{} 0", text(&key))),
    ] {
        for user in list_users() {
            let inside = injector.run(&[(true, user, call.to_string(), rest.clone())]);
            assert_eq!(inside, [Outcome::Refused], "{call}");
        }
        let control = injector.run(&[(false, None, call.to_string(), rest)]);
        // A file system may lack attributes.
        let is_control = matches!(control.as_slice(), [Outcome::Done | Outcome::Failed(libc::EOPNOTSUPP)]);
        assert!(is_control, "{call}: {control:?}");
    }
    let hub = StandIn::start(None);
    let neighbour = StandIn::start(lane.map(|lane| lane + 1));
    for (victim, victims_user) in [(&hub, None), (&neighbour, lane.map(|lane| lane + 1))] {
        let process = victim.0.id();
        for (call, rest) in [
            // SCHED_IDLE, one processor, the lowest priority for processor and disk.
            (libc::SYS_sched_setscheduler, format!("{process} 5 b:")),
            (libc::SYS_sched_setaffinity, format!("{process} 8 s:\u{1}")),
            (libc::SYS_setpriority, format!("0 {process} 5")),
            (libc::SYS_ioprio_set, format!("1 {process} {}", 3 << 13)),
            (libc::SYS_prlimit64, format!("{process} 4 0 b:")),
            (libc::SYS_kill, format!("{process} 0")),
            (libc::SYS_tgkill, format!("{process} {process} 0")),
            (libc::SYS_tkill, format!("{process} 0")),
            (libc::SYS_process_vm_readv, format!("{process} 0 0 0 0 0")),
            (libc::SYS_pidfd_open, format!("{process} 0")),
            // PTRACE_SEIZE
            (libc::SYS_ptrace, format!("0x4206 {process} 0 0")),
        ] {
            let make = |is_confined, user| (is_confined, user, call.to_string(), rest.clone());
            // The call as the victim's user, which a lane without a user of its own has.
            let control = injector.run(&[make(false, victims_user)]);
            assert_eq!(control, [Outcome::Done], "the control of {call}");
            for user in list_users().into_iter().chain([victims_user]) {
                let inside = injector.run(&[make(true, user)]);
                assert_eq!(inside, [Outcome::Refused], "{call} as {user:?}");
            }
            // Some of these calls reveal and change nothing, so every user may make them.
            let harmless = [libc::SYS_pidfd_open, libc::SYS_process_vm_readv];
            if let Some(lane) = lane.filter(|_| !harmless.contains(&call)) {
                let without_filters = injector.run(&[make(false, Some(lane))]);
                let is_refused = matches!(
                    without_filters.as_slice(),
                    [Outcome::Failed(libc::EPERM | libc::EACCES)]
                );
                assert!(is_refused, "{call} as another user: {without_filters:?}");
            }
        }
    }
}

/// Memory that would not count as the data of a process: shared memory, an unnamed file, System V memory, and a stack.
#[test]
fn a_lane_has_no_memory_beyond_its_limit() {
    let Some(injector) = Injector::build() else { return };
    for (call, arguments) in [
        (libc::SYS_mmap, "0 0x80000000 3 0x21 -1 0"),
        (libc::SYS_mmap, "0 4096 3 0x122 -1 0"),
        (libc::SYS_memfd_create, "s:name 0"),
        (libc::SYS_shmget, "0 4096 0600"),
        (libc::SYS_remap_file_pages, "0 0 0 0 0"),
        (libc::SYS_socketpair, "1 1 0 b:"),
        (libc::SYS_pipe2, "b: 0"),
        (libc::SYS_epoll_create1, "0"),
        (libc::SYS_timer_create, "0 0 b:"),
        (libc::SYS_inotify_init1, "0"),
    ] {
        let [control, inside] = injector.try_both(call, arguments);
        let is_control = control == Outcome::Done || call == libc::SYS_remap_file_pages;
        assert!(is_control, "the control of {call}: {control:?}");
        assert_eq!(inside, Outcome::Refused, "{call}");
    }
}
