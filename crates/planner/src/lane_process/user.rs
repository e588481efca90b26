//! The users that processes of lanes run as. Each lane has a user of its own where the hub may change users. The kernel then keeps a lane from
//! the files and the processes of the hub and of other lanes. Without that right every lane runs as the hub's user.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// The uids and gids of lanes. systemd and container tools don't allocate from this range.
pub const LANE_USERS: RangeInclusive<u32> = 1_900_000_000..=1_900_065_535;

/// The capabilities of a hub whose lanes have users of their own, by their numbers. The hub changes the owner of folders, reads and removes them, ends processes, and
/// changes users.
const NEEDED: [(u32, &str); 5] = [
    (0, "CAP_CHOWN"),
    (1, "CAP_DAC_OVERRIDE"),
    (5, "CAP_KILL"),
    (6, "CAP_SETGID"),
    (7, "CAP_SETUID"),
];

/// The files of the hub's `/proc/self` from which its rights to change users follow, and the mode of the lane's program.
#[derive(Clone, Copy, Debug)]
pub struct HubRights<'a> {
    /// `status`
    pub status: &'a str,
    /// `uid_map`
    pub users: &'a str,
    /// `gid_map`
    pub groups: &'a str,
    /// `setgroups`
    pub setgroups: &'a str,
    /// The mode of the program that a lane runs.
    pub program: u32,
}

/// The rights to read a program and to run it, for users that don't own it.
const RUN: u32 = 0o005;

/// Checks that the hub may give each lane a user of its own.
///
/// # Errors
/// The missing condition, in words.
pub fn check_rights(rights: &HubRights<'_>) -> Result<(), String> {
    // The kernel drops all capabilities only at a change from user 0 to another user. So the controllers must run as root.
    let user = rights.status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let is_root = user.is_some_and(|user| user.split_whitespace().take(2).eq(["0", "0"]));
    if !is_root {
        return Err("the controllers don't run as root".to_owned());
    }
    let held = rights.status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|held| u64::from_str_radix(held.trim(), 16).ok());
    let held = held.ok_or("/proc/self/status does not list the capabilities of the controllers")?;
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(bit, _)| held & (1 << bit) == 0)
        .map(|(_, name)| *name)
        .collect();
    if !missing.is_empty() {
        return Err(format!("the controllers run without {}", missing.join(", ")));
    }
    for (map, what) in [(rights.users, "users"), (rights.groups, "groups")] {
        if !has_all(map) {
            let (first, last) = (LANE_USERS.start(), LANE_USERS.end());
            return Err(format!("their user namespace lacks the {what} {first} to {last}"));
        }
    }
    if rights.setgroups.trim() == "deny" {
        return Err("their user namespace denies setgroups".to_owned());
    }
    if rights.program & RUN != RUN {
        return Err("other users may not run the program of the controllers".to_owned());
    }
    Ok(())
}

/// Checks whether one line of a user namespace's map contains all of [`LANE_USERS`].
fn has_all(map: &str) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers.as_slice() {
            [first, _, count] => {
                *first <= u64::from(*LANE_USERS.start()) && first.saturating_add(*count) > u64::from(*LANE_USERS.end())
            }
            _ => false,
        }
    })
}

/// Chooses the user of a lane: the owner of its folder if no other lane has that user, else a free user. `taken` holds the users of other lanes and the owners of their
/// folders. `first` is any number. It makes hubs on one machine begin with different users.
#[must_use]
pub fn choose_user(owner: Option<u32>, taken: &BTreeSet<u32>, first: u64) -> Option<u32> {
    let is_free = |user: &u32| LANE_USERS.contains(user) && !taken.contains(user);
    let count = u64::from(LANE_USERS.end() - LANE_USERS.start()) + 1;
    let begin = u32::try_from(first % count).unwrap_or_default();
    let mut users = LANE_USERS
        .skip(usize::try_from(begin).unwrap_or_default())
        .chain(LANE_USERS);
    owner.filter(is_free).or_else(|| users.find(is_free))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "         0          0 4294967295\n";

    fn rights(capabilities: &str) -> String {
        format!("Name:\ttenure\nUid:\t0\t0\t0\t0\nCapPrm:\t000001ffffffffff\nCapEff:\t{capabilities}\nCapBnd:\t0\n")
    }

    #[test]
    fn a_user_for_each_lane_needs_rights() {
        let check = |status: &str, map, setgroups| {
            check_rights(&HubRights {
                status,
                users: map,
                groups: map,
                setgroups,
                program: 0o100_755,
            })
        };
        assert_eq!(check(&rights("000001ffffffffff"), ALL, "allow\n"), Ok(()));
        // The default capabilities of a container are enough.
        assert_eq!(check(&rights("00000000a80425fb"), ALL, "allow\n"), Ok(()));
        let refused = check(&rights("0000000000000000"), ALL, "allow\n").unwrap_err();
        assert_eq!(
            refused,
            "the controllers run without CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL, CAP_SETGID, CAP_SETUID"
        );
        let refused = check(&rights("00000000a80425db"), ALL, "allow\n").unwrap_err();
        assert_eq!(refused, "the controllers run without CAP_KILL");
        for map in ["0 1000 1\n1 100000 65536\n", "", "words", "1900000001 1900000001 65535"] {
            let refused = check(&rights("000001ffffffffff"), map, "allow\n").unwrap_err();
            assert!(refused.contains("lacks the users 1900000000"), "{refused}");
        }
        let refused = check(&rights("000001ffffffffff"), ALL, "deny\n").unwrap_err();
        assert!(refused.contains("setgroups"), "{refused}");
        let person = rights("000001ffffffffff").replace("Uid:\t0\t0", "Uid:\t0\t1000");
        assert_eq!(
            check(&person, ALL, "allow").unwrap_err(),
            "the controllers don't run as root"
        );
        assert!(check("", ALL, "allow").is_err());
        let status = rights("000001ffffffffff");
        let private = HubRights {
            status: &status,
            users: ALL,
            groups: ALL,
            setgroups: "allow",
            program: 0o100_700,
        };
        assert!(check_rights(&private).unwrap_err().contains("may not run the program"));
    }

    #[test]
    fn no_two_lanes_have_one_user() {
        let first = *LANE_USERS.start();
        let taken = |users: &[u32]| users.iter().copied().collect::<BTreeSet<_>>();
        let choose_user = |owner, taken: &BTreeSet<u32>| choose_user(owner, taken, 0);
        assert_eq!(choose_user(None, &taken(&[])), Some(first));
        assert_eq!(choose_user(None, &taken(&[first, first + 2])), Some(first + 1));
        // A lane that had a user keeps it.
        assert_eq!(choose_user(Some(first + 7), &taken(&[first])), Some(first + 7));
        assert_eq!(choose_user(Some(first + 7), &taken(&[first + 7])), Some(first));
        // The owner of the folder does not make an administrator or a person the user of a lane.
        for other in [0, 1000, first - 1, LANE_USERS.end() + 1, u32::MAX] {
            assert_eq!(choose_user(Some(other), &taken(&[])), Some(first));
        }
        assert_eq!(choose_user(None, &LANE_USERS.collect()), None);
        // Another hub begins elsewhere, and comes round.
        let last = *LANE_USERS.end();
        assert_eq!(super::choose_user(None, &taken(&[]), 65_536 + 7), Some(first + 7));
        assert_eq!(super::choose_user(None, &taken(&[last]), 65_535), Some(first));
    }
}
