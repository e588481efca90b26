//! Control groups (cgroup v2) for lanes: whether the hub's own group may be divided, and the limits of a lane's group. A group counts everything: shared memory, files
//! in memory, and the kernel's memory for the process.

/// Bytes of a group above the limit of its process: pages of files, and buffers of sockets.
const BESIDES: u64 = 256 << 20;

/// Threads of a lane.
const THREADS: u32 = 512;

/// The controllers that a lane's group needs, as `cgroup.subtree_control` takes them.
pub const CONTROLLERS: &str = "+memory +pids";

/// The state of the hub's own control group, which decides whether the hub may divide it into groups for lanes.
#[derive(Clone, Copy, Debug)]
pub struct GroupFacts<'a> {
    /// `cgroup.controllers` of the hub's group.
    pub controllers: &'a str,
    /// `cgroup.procs` of the hub's group.
    pub processes: &'a str,
    /// The number of the hub's process.
    pub own: u32,
}

/// Checks that the hub may divide its own group: it has the controllers, and holds no process except the hub's.
///
/// # Errors
/// The missing condition, in words.
pub fn check_group(facts: &GroupFacts<'_>) -> Result<(), String> {
    let has = |name: &str| facts.controllers.split_whitespace().any(|found| found == name);
    for name in ["memory", "pids"] {
        if !has(name) {
            return Err(format!("the control group of the controllers has no controller {name}"));
        }
    }
    let own = facts.own.to_string();
    if !facts.processes.split_whitespace().eq([own.as_str()]) {
        return Err("other processes are in the control group of the controllers".to_owned());
    }
    Ok(())
}

/// Reads the path of the hub's group in the cgroup v2 hierarchy from `/proc/self/cgroup`.
#[must_use]
pub fn read_group(membership: &str) -> Option<&str> {
    let path = membership.lines().find_map(|line| line.strip_prefix("0::/"))?;
    (!path.split('/').any(|part| part == "..")).then_some(path)
}

/// Reads the mount point of the cgroup v2 hierarchy from `/proc/self/mounts`.
#[must_use]
pub fn read_mount(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let place = words.next()?;
        (words.next()? == "cgroup2").then_some(place)
    })
}

/// Lists the files of a lane's group and their content.
#[must_use]
pub fn list_limits(memory: u64) -> [(&'static str, String); 2] {
    [
        ("memory.max", memory.saturating_add(BESIDES).to_string()),
        ("pids.max", THREADS.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_divided_only_if_hub_is_alone() {
        let check = |controllers, processes| {
            check_group(&GroupFacts {
                controllers,
                processes,
                own: 7,
            })
        };
        assert_eq!(check("cpuset cpu io memory pids\n", "7\n"), Ok(()));
        assert!(check("hugetlb\n", "7\n").unwrap_err().contains("memory"));
        assert!(check("memory\n", "7\n").unwrap_err().contains("pids"));
        for others in ["7\n8\n", "8\n", "77\n", ""] {
            let refused = check("memory pids", others).unwrap_err();
            assert!(refused.contains("other processes"), "{others:?}: {refused}");
        }
    }

    #[test]
    fn the_group_is_found_by_what_the_kernel_lists() {
        let mixed = "4:memory:/user.slice\n1:name=systemd:/x\n0::/system.slice/tenure.service\n";
        assert_eq!(read_group(mixed), Some("system.slice/tenure.service"));
        assert_eq!(read_group("0::/\n"), Some(""));
        assert_eq!(read_group("0::/../other\n"), None);
        assert_eq!(read_group("4:memory:/user.slice\n"), None);
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(read_mount(mounts), Some("/sys/fs/cgroup/unified"));
        assert_eq!(read_mount("tmpfs /tmp tmpfs rw 0 0\n"), None);
    }

    #[test]
    fn group_limit_exceeds_process_limit() {
        let limits = list_limits(832 << 20);
        assert_eq!(limits[0], ("memory.max", (1088_u64 << 20).to_string()));
        assert_eq!(list_limits(u64::MAX)[0].1, u64::MAX.to_string());
    }
}
