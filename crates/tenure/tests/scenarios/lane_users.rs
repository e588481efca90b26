//! The users of lanes that are processes: each lane has its own user, which owns only the lane's folder in the data folder.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tenure_git_server::{GitServer, Options};
use tenure_planner::lane_process::user::LANE_USERS;

use crate::lanes::{Scene, Shop, read};
use crate::process::Up;
use crate::world::Admin;

#[tokio::test]
async fn each_lane_has_a_user_of_its_own() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: the hub gives lanes users of their own only as root");
        return;
    }
    let mut scene = Scene::set(&[]).await;
    let mut users = BTreeSet::new();
    for (name, process) in scene.list_lanes() {
        let status = read(process, "status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
            words.join(" ")
        };
        let folder = scene.data.join("artifacts/lanes").join(name.replace('/', "-"));
        let owner = std::fs::metadata(&folder).unwrap().uid();
        assert!(LANE_USERS.contains(&owner), "{name}: {owner}");
        assert!(users.insert(owner), "{name} has the user of another lane");
        let all = format!("{owner} {owner} {owner} {owner}");
        assert_eq!(
            [field("Uid:"), field("Gid:"), field("Groups:")],
            [all.clone(), all, String::new()]
        );
        assert_eq!([field("CapPrm:"), field("CapEff:")], ["0000000000000000"; 2]);
    }
    assert_eq!(users.len(), 2);
    // The lane works as usual.
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
}

#[tokio::test]
async fn the_data_folder_belongs_to_the_hub_alone() {
    let folder = tempfile::tempdir().unwrap();
    let git_folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
    let allowed = format!("http://{}", git.http_address());
    let _up = Up::start(folder.path(), &["--allow-source", &allowed]);
    let admin = Admin(crate::process::client(folder.path()).await);
    let blue = Shop::prepare(&admin, &git, "blue").await;
    blue.wait_until_applied(&admin).await;
    let lanes = folder.path().join("artifacts/lanes");
    assert!(lanes.join("tenant-blue").is_dir());
    let hub = rustix::process::geteuid().as_raw();
    let mut keys = 0;
    for path in list_all_but(folder.path(), &lanes) {
        let Ok(found) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        assert_eq!(found.uid(), hub, "{}", path.display());
        if path.extension().is_some_and(|extension| extension == "key") {
            assert_eq!(found.mode() & 0o777, 0o600, "{}", path.display());
            keys += 1;
        }
    }
    assert!(keys > 0, "there are keys");
    for private in [folder.path(), &lanes] {
        assert_eq!(
            std::fs::metadata(private).unwrap().mode() & 0o777,
            0o700,
            "{}",
            private.display()
        );
    }
}

/// Lists a folder and everything below it, without the content of one of its folders.
fn list_all_but(folder: &Path, closed: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if path != closed {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            found.extend(entries.map(|entry| entry.path()));
        }
    }
    found
}
