//! The folders of lanes beside the hub, and the users that own them. A folder belongs to the user of its lane alone; a folder that another user
//! owned is removed, and its lane fetches again. A lane that was taken over may leave links, and folders of any depth: the hub follows no link, and
//! needs few open files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tenure_planner::lane_process::user::{HubRights, check_rights, choose_user};

/// The mode of a folder that its owner alone may enter.
const PRIVATE: u32 = 0o700;

/// The folders of all lanes, and their users.
#[derive(Debug)]
pub(super) struct LaneFolders {
    above: PathBuf,
    /// Why lanes have no users of their own. Absent if they have.
    refusal: Option<String>,
    users: Mutex<BTreeMap<String, u32>>,
}

impl LaneFolders {
    /// Creates the table for folders below `above`, and checks whether this process may give each lane a user of its own.
    pub(super) fn new(above: PathBuf, program: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let refusal = check_rights(&HubRights {
            status: &read("status"),
            users: &read("uid_map"),
            groups: &read("gid_map"),
            setgroups: &read("setgroups"),
            program: std::fs::metadata(program).map_or(0, |found| found.mode()),
        });
        let refusal = refusal.err();
        match &refusal {
            Some(problem) => tracing::info!("the processes of lanes run as the user of the controllers: {problem}"),
            None => tracing::info!("the process of each lane runs as a user of its own"),
        }
        Self {
            above,
            refusal,
            users: Mutex::default(),
        }
    }

    /// Returns the path of a lane's folder.
    pub(super) fn find(&self, lane: &str) -> PathBuf {
        self.above.join(lane.replace('/', "-"))
    }

    /// Creates a lane's folder. Returns the user that owns the folder and that the lane's process becomes; `None` if lanes have no users of their own.
    /// Blocks.
    pub(super) fn prepare(&self, lane: &str) -> Result<Option<u32>, String> {
        let folder = self.find(lane);
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        make_private(&self.above).map_err(failed)?;
        let user = match &self.refusal {
            Some(_) => None,
            None => Some(self.assign(lane, &folder).ok_or("no user is free for it")?),
        };
        match user {
            Some(user) => give_folder(&folder, user).map_err(failed)?,
            None => make_private(&folder).map_err(failed)?,
        }
        Ok(user)
    }

    /// Returns the user of a lane, and chooses one if the lane has none: no other lane has this user, and the user owns no other lane's folder.
    fn assign(&self, lane: &str, folder: &Path) -> Option<u32> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(user) = users.get(lane) {
            return Some(*user);
        }
        let owner = |path: &Path| std::fs::symlink_metadata(path).ok().map(|found| found.uid());
        let mut taken: BTreeSet<u32> = users.values().copied().collect();
        for entry in std::fs::read_dir(&self.above).into_iter().flatten().flatten() {
            if entry.path() != folder {
                taken.extend(owner(&entry.path()));
            }
        }
        // Folders of two hubs have different numbers on a disk.
        let number = std::fs::metadata(&self.above).map_or(0, |found| found.ino());
        let user = choose_user(owner(folder), &taken, number)?;
        users.insert(lane.to_owned(), user);
        Some(user)
    }

    /// Removes the folder of a lane whose process has ended, and frees its user. Blocks.
    pub(super) fn remove(&self, lane: &str) {
        let folder = self.find(lane);
        match remove_folder(&folder) {
            Ok(()) => {
                let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
                users.remove(lane);
            }
            // Its user stays assigned while the folder exists.
            Err(error) => tracing::warn!(%error, folder = %folder.display(), "the folder of a lane can't be removed"),
        }
    }
}

/// Creates a folder that only this process's user may enter, or restricts an existing folder to that user.
fn make_private(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE)
        .create(folder)?;
    if std::fs::symlink_metadata(folder)?.mode() & 0o777 != PRIVATE {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(PRIVATE))?;
    }
    Ok(())
}

/// Creates a folder that only `user` may enter. An existing folder of another user or with another mode is removed first.
fn give_folder(folder: &Path, user: u32) -> io::Result<()> {
    match std::fs::symlink_metadata(folder) {
        Ok(found) if found.is_dir() && found.uid() == user && found.mode() & 0o777 == PRIVATE => return Ok(()),
        Ok(_) => remove_folder(folder)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::fs::DirBuilder::new().mode(PRIVATE).create(folder)?;
    chown(folder, Some(user), Some(user))
}

/// Removes a folder with its content, or a file in its place. Nested folders are moved up before they are removed, so their depth takes neither open
/// files nor stack.
pub(crate) fn remove_folder(folder: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(folder) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return std::fs::remove_file(folder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    let mut moved = 0_u64;
    loop {
        let mut is_empty = true;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            is_empty = false;
            if !entry.file_type()?.is_dir() {
                std::fs::remove_file(entry.path())?;
                continue;
            }
            for inner in std::fs::read_dir(entry.path())? {
                let inner = inner?;
                if !inner.file_type()?.is_dir() {
                    std::fs::remove_file(inner.path())?;
                    continue;
                }
                loop {
                    moved = moved.wrapping_add(1);
                    let free = folder.join(format!(".removed-{moved}"));
                    if std::fs::symlink_metadata(&free).is_err() {
                        std::fs::rename(inner.path(), free)?;
                        break;
                    }
                }
            }
            std::fs::remove_dir(entry.path())?;
        }
        if is_empty {
            return std::fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folders(above: &Path, refusal: Option<&str>) -> LaneFolders {
        LaneFolders {
            above: above.to_owned(),
            refusal: refusal.map(str::to_owned),
            users: Mutex::default(),
        }
    }

    fn is_administrator(above: &Path) -> bool {
        let may = chown(above, Some(0), Some(0)).is_ok();
        if !may {
            println!("skipped: only an administrator may give a folder to another user");
        }
        may
    }

    #[test]
    fn each_lane_keeps_its_own_folder_and_user() {
        let above = tempfile::tempdir().unwrap();
        if !is_administrator(above.path()) {
            return;
        }
        let above = above.path().join("lanes");
        let lanes = folders(&above, None);
        let blue = lanes.prepare("tenant/blue").unwrap().expect("a user");
        let red = lanes.prepare("tenant/red").unwrap().expect("a user");
        assert_ne!(blue, red);
        for (lane, user) in [("tenant-blue", blue), ("tenant-red", red)] {
            let found = std::fs::metadata(above.join(lane)).unwrap();
            assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (user, user, PRIVATE));
        }
        assert_eq!(std::fs::metadata(&above).unwrap().mode() & 0o777, PRIVATE);
        std::fs::write(above.join("tenant-red/kept"), "words").unwrap();
        // Another hub process finds the users by the folders, in any order.
        let lanes = folders(&above, None);
        assert_eq!(lanes.prepare("tenant/red").unwrap(), Some(red));
        assert!(above.join("tenant-red/kept").exists());
        assert!(![blue, red].contains(&lanes.prepare("tenant/green").unwrap().expect("a user")));
        assert_eq!(lanes.prepare("tenant/blue").unwrap(), Some(blue));
        // A user is free once its folder is gone.
        lanes.remove("tenant/blue");
        assert!(!above.join("tenant-blue").exists());
        assert_eq!(lanes.prepare("tenant/yellow").unwrap(), Some(blue));
    }

    #[test]
    fn another_users_folder_is_emptied_first() {
        let above = tempfile::tempdir().unwrap();
        if !is_administrator(above.path()) {
            return;
        }
        let (above, outside) = (above.path().join("lanes"), above.path().join("outside"));
        std::fs::create_dir_all(above.join("tenant-blue/store")).unwrap();
        std::fs::write(&outside, "words").unwrap();
        std::fs::hard_link(&outside, above.join("tenant-blue/store/link")).unwrap();
        symlink(&outside, above.join("tenant-blue/away")).unwrap();
        let user = folders(&above, None).prepare("tenant/blue").unwrap();
        assert_eq!(
            std::fs::metadata(above.join("tenant-blue")).unwrap().uid(),
            user.unwrap()
        );
        assert_eq!(std::fs::read_dir(above.join("tenant-blue")).unwrap().count(), 0);
        assert_eq!(std::fs::metadata(&outside).unwrap().uid(), 0);
        // A link in the place of a folder is not followed.
        std::fs::create_dir(above.join("elsewhere")).unwrap();
        symlink(above.join("elsewhere"), above.join("tenant-red")).unwrap();
        let _user = folders(&above, None).prepare("tenant/red").unwrap();
        assert!(std::fs::symlink_metadata(above.join("tenant-red")).unwrap().is_dir());
        assert_eq!(std::fs::metadata(above.join("elsewhere")).unwrap().uid(), 0);
    }

    #[test]
    fn without_rights_folders_stay_the_hubs() {
        let above = tempfile::tempdir().unwrap();
        let own = std::fs::metadata(above.path()).unwrap().uid();
        let above = above.path().join("lanes");
        assert_eq!(folders(&above, Some("no right")).prepare("pool").unwrap(), None);
        let found = std::fs::metadata(above.join("pool")).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (own, PRIVATE));
    }

    #[test]
    fn a_deep_folder_is_removed_with_few_open_files() {
        use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("deep");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(".removed-1"), "in the way").unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = open(&folder, flags, Mode::empty()).unwrap();
        for _ in 0..5000 {
            mkdirat(&at, "a-folder", Mode::RWXU).unwrap();
            at = openat(&at, "a-folder", flags, Mode::empty()).unwrap();
        }
        drop(at);
        remove_folder(&folder).unwrap();
        assert!(!folder.exists());
        remove_folder(&folder).unwrap();
    }
}
