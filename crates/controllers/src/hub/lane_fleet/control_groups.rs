//! Control groups of lanes beside the hub, where its own group may be divided (cgroup v2, delegated to a service that has it alone). The hub moves
//! to a group below its own, since the kernel allows processes only in groups that are not divided.

use std::io;
use std::path::{Path, PathBuf};

use tenure_planner::lane_process::group::{CONTROLLERS, GroupFacts, check_group, list_limits, read_group, read_mount};

/// The group of the hub itself.
const HUB: &str = "hub";
/// The beginning of the names of lanes' groups.
const LANE: &str = "lane-";

/// The control groups of lanes' processes.
#[derive(Debug)]
pub(super) struct ControlGroups {
    /// The divided group. Absent if the hub's group can't be divided.
    above: Option<PathBuf>,
}

impl ControlGroups {
    /// Divides the hub's own group, where that may be.
    pub(super) fn new() -> Self {
        let above = find_own().and_then(|above| {
            divide_group(&above, std::process::id())?;
            Ok(above)
        });
        let above = match above {
            Ok(above) => {
                tracing::info!(group = %above.display(), "each lane has a control group of its own");
                Some(above)
            }
            Err(problem) => {
                tracing::info!("lanes have no control groups, and the limits of a process bound them: {problem}");
                None
            }
        };
        Self { above }
    }

    /// Puts a process that has just started into the group of its lane, with limits.
    pub(super) fn admit(&self, lane: &str, process: u32, memory: u64) -> Result<(), String> {
        let Some(above) = &self.above else { return Ok(()) };
        let group = find_group(above, lane);
        let admitting = || {
            match std::fs::create_dir(&group) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            for (file, limit) in list_limits(memory) {
                std::fs::write(group.join(file), limit)?;
            }
            std::fs::write(group.join("cgroup.procs"), process.to_string())
        };
        admitting().map_err(|error| format!("{}: {error}", group.display()))
    }

    /// Removes the group of a lane whose process has ended.
    pub(super) fn remove(&self, lane: &str) {
        if let Some(above) = &self.above {
            // The group exists if a process was started. If it can't be removed, it is used again.
            let _not_there = std::fs::remove_dir(find_group(above, lane));
        }
    }
}

fn find_group(above: &Path, lane: &str) -> PathBuf {
    above.join(format!("{LANE}{}", lane.replace('/', "-")))
}

/// Returns the folder of this process's control group.
fn find_own() -> Result<PathBuf, String> {
    let read = |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let mounts = read("/proc/self/mounts")?;
    let mount = read_mount(&mounts).ok_or("no hierarchy of cgroup v2 is mounted")?;
    let membership = read("/proc/self/cgroup")?;
    let path = read_group(&membership).ok_or("the controllers are in no group of cgroup v2")?;
    Ok(Path::new(mount).join(path))
}

/// Moves this process to a group below, and gives the groups below their controllers.
fn divide_group(above: &Path, own: u32) -> Result<(), String> {
    let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let read = |name: &str| {
        let path = above.join(name);
        std::fs::read_to_string(&path).map_err(|error| failed(&path, error))
    };
    check_group(&GroupFacts {
        controllers: &read("cgroup.controllers")?,
        processes: &read("cgroup.procs")?,
        own,
    })?;
    let hub = above.join(HUB);
    match std::fs::create_dir(&hub) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&hub, error)),
        _ => {}
    }
    let enter = |group: &Path| {
        let path = group.join("cgroup.procs");
        std::fs::write(&path, own.to_string()).map_err(|error| failed(&path, error))
    };
    enter(&hub)?;
    let control = above.join("cgroup.subtree_control");
    std::fs::write(&control, CONTROLLERS).map_err(|error| {
        // Undo both steps: the group stays undivided, and this process stays in it.
        let _whether_it_may = enter(above);
        let _empty = std::fs::remove_dir(&hub);
        failed(&control, error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files in place of a kernel: checks which values are written where. A test of the kernel's limits would need a delegated group.
    #[test]
    fn a_lane_is_put_into_a_group_with_limits() {
        let folder = tempfile::tempdir().unwrap();
        let above = folder.path();
        let write = |name: &str, text: &str| std::fs::write(above.join(name), text).unwrap();
        let read = |name: &str| std::fs::read_to_string(above.join(name)).unwrap();
        write("cgroup.controllers", "memory pids\n");
        write("cgroup.procs", "7\n8\n");
        write("cgroup.subtree_control", "");
        let refused = divide_group(above, 7).unwrap_err();
        assert!(refused.contains("other processes"), "{refused}");
        assert!(!above.join(HUB).exists());
        write("cgroup.procs", "7\n");
        divide_group(above, 7).unwrap();
        assert_eq!(read("hub/cgroup.procs"), "7");
        assert_eq!(read("cgroup.subtree_control"), CONTROLLERS);
        let groups = ControlGroups {
            above: Some(above.to_owned()),
        };
        groups.admit("tenant/blue", 9, 1 << 30).unwrap();
        assert_eq!(read("lane-tenant-blue/cgroup.procs"), "9");
        assert_eq!(
            read("lane-tenant-blue/memory.max"),
            (1_u64 << 30).saturating_add(256 << 20).to_string()
        );
        // The lane is started again.
        groups.admit("tenant/blue", 10, 1 << 30).unwrap();
        assert_eq!(read("lane-tenant-blue/cgroup.procs"), "10");
        // Without a group nothing happens.
        assert_eq!(ControlGroups { above: None }.admit("pool", 1, 1), Ok(()));
        assert!(!above.join("lane-pool").exists());
    }
}
