//! The processes of lanes, as the operating system lists them. Entries that can't be read count as missing.

use std::path::Path;

use nix::unistd::Pid;

/// Lists the running children of a process, with their names.
pub(super) fn list_lanes(hub: u32) -> Vec<(String, Pid)> {
    let all = list_processes().into_iter();
    let started = all.filter(|(_, _, parent)| *parent == hub);
    started.map(|(name, process, _)| (name, process)).collect()
}

/// Finds the process of a lane that reaches its hub at an address through a relay process, as in a Pod.
pub(super) fn find_lane_of(hub: &str, name: &str) -> Option<Pid> {
    let argument = format!("--hub={hub}");
    let is_its = |relay: u32| {
        let line = std::fs::read_to_string(format!("/proc/{relay}/cmdline")).unwrap_or_default();
        line.split('\0').any(|word| word == argument)
    };
    let mut all = list_processes().into_iter();
    all.find_map(|(found, process, relay)| (found == name && is_its(relay)).then_some(process))
}

/// Lists name, process and parent of all running processes.
fn list_processes() -> Vec<(String, Pid, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else {
            continue;
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        if let Ok(parent) = field("PPid:").parse()
            && !field("State:").starts_with('Z')
        {
            found.push((field("Name:"), Pid::from_raw(number), parent));
        }
    }
    found
}

/// Returns the memory of a process in bytes; pages that it shares with others are divided among them.
pub(super) fn proportional_memory(process: u32) -> u64 {
    let path = Path::new("/proc").join(process.to_string()).join("smaps_rollup");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let kilobytes = text.lines().find_map(|line| {
        let (count, _) = line.strip_prefix("Pss:")?.trim().split_once(' ')?;
        count.parse::<u64>().ok()
    });
    kilobytes.unwrap_or_default() * 1024
}
