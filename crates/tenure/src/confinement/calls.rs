//! The system calls of a lane's process: an allow list, with the arguments that each call may have. The kernel refuses every other call.
//!
//! Sockets, the epoll instance and the runtime's own pipes exist before the list takes effect, so the list has no call that makes one. Landlock
//! bounds the paths of the calls that open and remove files. Calls that Landlock does not bound (modes, owners, times, attributes, links) are not on
//! the list. docs/reference/lane-calls.md is the list for readers; a test compares it with what the kernel lets through.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};

/// System calls that are allowed with any arguments.
const ANY: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    // The other filter decides about these two.
    libc::SYS_clone3,
    libc::SYS_sched_getaffinity,
    libc::SYS_close,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fdatasync,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getdents64,
    libc::SYS_getpeername,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Calls of this processor that are older than the ones in [`ANY`]; C libraries still make them.
#[cfg(target_arch = "x86_64")]
const ANY_HERE: &[libc::c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_lstat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_stat,
    libc::SYS_unlink,
];
/// `renameat`, which not every version of `libc` names for this processor.
#[cfg(target_arch = "aarch64")]
const ANY_HERE: &[libc::c_long] = &[38];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ANY_HERE: &[libc::c_long] = &[];

/// The flags of a new thread, as glibc and musl set them: the thread shares everything with its creator.
const THREAD: u64 = 0x003d_0f00;
/// A flag without effect, which musl sets.
const DETACHED: u64 = 0x0040_0000;
/// The bits of a mode that let a file run as its owner or group.
const SET_ID: u64 = 0o6000;
/// `PROT_READ | PROT_WRITE`.
const READ_WRITE: u64 = 3;
/// The type of a mapping, and what would take it from the limits of data: a stack that grows, locked and huge pages.
const MAPPING: u64 = 0x0f | 0x0100 | 0x2000 | 0x4_0000;
/// A mapping of this process alone.
const PRIVATE: u64 = 2;
/// `FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME`.
const FUTEX_FLAGS: u64 = 128 | 256;
/// `FUTEX_WAIT`, `_WAKE`, `_REQUEUE`, `_CMP_REQUEUE`, `_WAIT_BITSET` and `_WAKE_BITSET`.
const FUTEX_COMMANDS: [u64; 6] = [0, 1, 3, 4, 9, 10];
/// `MADV_DONTNEED`, `_FREE`, `_HUGEPAGE` and `_NOHUGEPAGE`.
const ADVICE: [u64; 4] = [4, 8, 14, 15];
/// `F_GETFD`, `F_SETFD`, `F_GETFL` and `F_DUPFD_CLOEXEC`.
const FCNTL: [u64; 4] = [1, 2, 3, 1030];
const F_SETFL: u64 = 4;
const O_ASYNC: u64 = 0x2000;
/// `FIONBIO` and `FIOCLEX`.
const IOCTL: [u64; 2] = [0x5421, 0x5451];
const PR_SET_NAME: u64 = 15;
/// `IPPROTO_TCP` and `TCP_NODELAY`.
const NO_DELAY: (u64, u64) = (6, 1);

/// A condition on one argument of a system call: its bits under `mask` must equal `value`.
#[derive(Clone, Copy)]
struct ArgumentCheck {
    /// The index of the argument.
    at: u8,
    /// Whether the kernel reads only 32 bits of the argument.
    is_int: bool,
    mask: u64,
    value: u64,
}

/// Returns a check of an argument of the type `int`.
const fn int(at: u8, value: u64) -> ArgumentCheck {
    int_bits(at, u32::MAX as u64, value)
}

/// Returns a check of some bits of an argument of the type `int`.
const fn int_bits(at: u8, mask: u64, value: u64) -> ArgumentCheck {
    ArgumentCheck {
        at,
        is_int: true,
        mask,
        value,
    }
}

/// Returns a check of some bits of an argument of the type `long`, or of an address.
const fn long_bits(at: u8, mask: u64, value: u64) -> ArgumentCheck {
    ArgumentCheck {
        at,
        is_int: false,
        mask,
        value,
    }
}

/// A system call that is allowed only with some arguments: all checks of at least one of these lists must hold.
type LimitedCall = (libc::c_long, Vec<Vec<ArgumentCheck>>);

/// Returns the calls with conditions on their arguments. `own` is the number of this process.
fn list_limited(own: u32) -> Vec<LimitedCall> {
    let one_of = |at, values: &[u64]| values.iter().map(|value| vec![int(at, *value)]).collect();
    let mut fcntl: Vec<Vec<ArgumentCheck>> = one_of(1, &FCNTL);
    // Without O_ASYNC, readable data sends no signal to another process.
    fcntl.push(vec![int(1, F_SETFL), long_bits(2, O_ASYNC, 0)]);
    let futex = FUTEX_COMMANDS.map(|command| vec![int_bits(1, u64::from(u32::MAX) & !FUTEX_FLAGS, command)]);
    let own_thread = vec![vec![int(0, 0), int(1, 0)]];
    vec![
        (libc::SYS_clone, vec![vec![long_bits(0, !DETACHED, THREAD)]]),
        (libc::SYS_fcntl, fcntl),
        (libc::SYS_futex, futex.into()),
        (libc::SYS_getpriority, own_thread.clone()),
        (libc::SYS_ioctl, one_of(1, &IOCTL)),
        (libc::SYS_madvise, one_of(2, &ADVICE)),
        (libc::SYS_mkdirat, vec![vec![int_bits(2, SET_ID, 0)]]),
        (
            libc::SYS_mmap,
            vec![vec![long_bits(2, !READ_WRITE, 0), long_bits(3, MAPPING, PRIVATE)]],
        ),
        (libc::SYS_mprotect, vec![vec![long_bits(2, !READ_WRITE, 0)]]),
        (libc::SYS_openat, vec![vec![int_bits(3, SET_ID, 0)]]),
        (libc::SYS_prctl, vec![vec![int(0, PR_SET_NAME)]]),
        // A lane may read its own limits, and may not change them.
        (libc::SYS_prlimit64, vec![vec![int(0, 0), long_bits(2, u64::MAX, 0)]]),
        (libc::SYS_renameat2, vec![vec![int(4, 0)]]),
        // Only to the peer of the socket, which the hub chose.
        (libc::SYS_sendto, vec![vec![long_bits(4, u64::MAX, 0)]]),
        // A thread with a long computation lowers its priority (`tenure_background`).
        (libc::SYS_setpriority, own_thread),
        (libc::SYS_setsockopt, vec![vec![int(1, NO_DELAY.0), int(2, NO_DELAY.1)]]),
        // A program aborts with a signal to itself.
        (libc::SYS_tgkill, vec![vec![int(0, own.into())]]),
    ]
}

#[cfg(target_arch = "x86_64")]
fn list_limited_here() -> Vec<LimitedCall> {
    vec![
        (libc::SYS_mkdir, vec![vec![int_bits(1, SET_ID, 0)]]),
        (libc::SYS_open, vec![vec![int_bits(2, SET_ID, 0)]]),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn list_limited_here() -> Vec<LimitedCall> {
    Vec::new()
}

/// The error numbers with which the filters answer calls that they refuse.
#[derive(Clone, Copy, Debug)]
pub(super) struct Errors {
    /// The error number for a call that is not on the list.
    pub(super) refused: i32,
    /// The error number for a call that the C library can replace with another one.
    pub(super) missing: i32,
}

/// The error numbers of a lane.
pub(super) const ERRORS: Errors = Errors {
    refused: libc::EPERM,
    missing: libc::ENOSYS,
};

/// The allow list of system calls, as BPF programs that the kernel runs at each call.
#[derive(Debug)]
pub(super) struct CallFilters {
    /// The programs, in the order in which they are applied.
    pub(super) programs: [BpfProgram; 2],
}

impl CallFilters {
    /// Compiles the filters of the process with this number.
    pub(super) fn compile(own: u32, errors: Errors) -> Result<Self, String> {
        let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
        let answer = |error: i32| SeccompAction::Errno(error.unsigned_abs());
        // The flags of clone3 are in memory, where a filter can't look, so C libraries get the answer to call clone. The affinity of another thread is not readable.
        let missing = BTreeMap::from([
            (libc::SYS_clone3, Vec::new()),
            (
                libc::SYS_sched_getaffinity,
                vec![make_rule(&[(int(0, 0), SeccompCmpOp::Ne)])?],
            ),
        ]);
        let missing = make_program(missing, (SeccompAction::Allow, answer(errors.missing)), arch)?;
        let mut allowed: BTreeMap<i64, Vec<SeccompRule>> =
            ANY.iter().chain(ANY_HERE).map(|call| (*call, Vec::new())).collect();
        for (call, alternatives) in list_limited(own).into_iter().chain(list_limited_here()) {
            let rules = alternatives.iter().map(|checks| {
                let checks: Vec<_> = checks
                    .iter()
                    .map(|check| (*check, SeccompCmpOp::MaskedEq(check.mask)))
                    .collect();
                make_rule(&checks)
            });
            allowed.insert(call, rules.collect::<Result<_, _>>()?);
        }
        let allowed = make_program(allowed, (answer(errors.refused), SeccompAction::Allow), arch)?;
        Ok(Self {
            programs: [missing, allowed],
        })
    }

    /// Applies the list to all threads of this process, and to the threads that they start.
    pub(super) fn apply(&self) -> Result<(), String> {
        for program in &self.programs {
            apply_filter_all_threads(program).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn make_rule(checks: &[(ArgumentCheck, SeccompCmpOp)]) -> Result<SeccompRule, String> {
    let conditions = checks.iter().map(|(check, compare)| {
        let length = match check.is_int {
            true => SeccompCmpArgLen::Dword,
            false => SeccompCmpArgLen::Qword,
        };
        SeccompCondition::new(check.at, length, compare.clone(), check.value)
    });
    let conditions: Result<Vec<_>, _> = conditions.collect();
    let rule = conditions.and_then(SeccompRule::new);
    rule.map_err(|error| error.to_string())
}

/// Makes a filter with two actions: one for a call without a matching rule, and one for a call with a matching rule.
fn make_program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    (otherwise, matched): (SeccompAction, SeccompAction),
    arch: TargetArch,
) -> Result<BpfProgram, String> {
    let filter = SeccompFilter::new(rules, otherwise, matched, arch).map_err(|error| error.to_string())?;
    filter
        .try_into()
        .map_err(|error: seccompiler::BackendError| error.to_string())
}
