//! The processes of lanes, by what the operating system says of them. Refuses to guess: what can't be read is not there.

use std::path::Path;

use nix::unistd::Pid;

/// The processes that another one has started and that have not ended, and the names that they go by.
pub(super) fn list_lanes(hub: u32) -> Vec<(String, Pid)> {
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
        if field("PPid:") == hub.to_string() && !field("State:").starts_with('Z') {
            found.push((field("Name:"), Pid::from_raw(number)));
        }
    }
    found
}

/// The memory of a process in bytes, pages that it shares with others divided among them.
pub(super) fn proportional_memory(process: u32) -> u64 {
    let path = Path::new("/proc").join(process.to_string()).join("smaps_rollup");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let kilobytes = text.lines().find_map(|line| {
        let (count, _) = line.strip_prefix("Pss:")?.trim().split_once(' ')?;
        count.parse::<u64>().ok()
    });
    kilobytes.unwrap_or_default() * 1024
}
