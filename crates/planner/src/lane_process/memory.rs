//! The memory of a lane's process as the hub sees it. The kernel limits private memory; the hub counts shared memory and tables of pages too, for
//! kernels that can't refuse the calls that make them.

use super::ExitCause;

/// The bytes above its limit that a process may use: for its stack, and for pages that the kernel counts late.
const SLACK: u64 = 64 << 20;

/// The lines of `/proc/PID/status` that add up to the memory of a process; pages of files are not among them, since the kernel can drop those.
const COUNTED: [&str; 4] = ["RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:"];

/// Reads the bytes of memory from the text of `/proc/PID/status`. Returns nothing if the text has no such lines, as after the end of the process.
#[must_use]
pub fn read_memory(status: &str) -> Option<u64> {
    let mut found = None;
    for line in status.lines() {
        let Some(rest) = COUNTED.iter().find_map(|name| line.strip_prefix(name)) else {
            continue;
        };
        let kibibytes: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
        found = Some(found.unwrap_or(0_u64).saturating_add(kibibytes.saturating_mul(1024)));
    }
    found
}

/// Returns the cause to end a process if it uses more memory than `limit` allows.
#[must_use]
pub fn check_memory(used: u64, limit: u64) -> Option<ExitCause> {
    (used > limit.saturating_add(SLACK)).then_some(ExitCause::TooLarge { used, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\ttenant/blue\nVmPeak:\t  999999 kB\nVmRSS:\t  300 kB\nRssAnon:\t     100 kB\nRssFile:\t   77 kB\n\
        RssShmem:\t   20 kB\nVmPTE:\t       3 kB\nVmSwap:\t        1 kB\nThreads:\t4\n";

    #[test]
    fn shared_memory_counts() {
        assert_eq!(read_memory(STATUS), Some(124 * 1024));
        assert_eq!(read_memory("Name:\tgone\nState:\tZ (zombie)\n"), None);
        assert_eq!(read_memory("RssAnon:\tmuch kB\n"), None);
        assert_eq!(read_memory("RssAnon:\t18446744073709551615 kB\n"), Some(u64::MAX));
    }

    #[test]
    fn a_process_above_its_limit_is_ended() {
        let limit = 832 << 20;
        assert_eq!(check_memory(limit, limit), None);
        assert_eq!(check_memory(limit + SLACK, limit), None);
        let used = 2 << 30;
        let cause = check_memory(used, limit).expect("a cause");
        assert_eq!(
            cause.to_string(),
            "it was ended since it used 2048 MiB of memory, and may use 832 MiB"
        );
        assert_eq!(check_memory(u64::MAX, u64::MAX), None);
    }
}
