//! Lanes that are processes of their own: the resources of each one, and the effect on the others when one is killed, hangs, runs out of memory, or sends invalid
//! messages. Each test has a control: the other tenant's commit is applied meanwhile.
//!
//! The tests run on control planes of their own. They kill hubs, and the remaining objects would block the deletion of namespaces on a shared cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options, Repository};

use crate::process::{Up, tenure};
use crate::world::{Admin, Cluster, Controllers, PATIENCE, manifest, path, prepare_shop, wait_for_greeting};

/// Two tenants, each with a Surface, and controllers whose lanes are processes.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    controllers: Controllers,
    pub(crate) data: PathBuf,
    pub(crate) blue: Shop,
    pub(crate) red: Shop,
    pub(crate) git: GitServer,
    _git_folder: tempfile::TempDir,
}

/// A tenant's repository and its current number.
pub(crate) struct Shop {
    tenant: &'static str,
    pub(crate) repository: Repository,
    number: u32,
}

impl Shop {
    pub(crate) async fn prepare(admin: &Admin, git: &GitServer, tenant: &'static str) -> Self {
        let repository = git.create(tenant).await.unwrap();
        let shop = Self {
            tenant,
            repository,
            number: 1,
        };
        shop.commit().await;
        admin
            .apply(
                json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": {"name": tenant},
                "spec": {"owners": [{"kind": "User", "name": format!("{tenant}-owner")}]}}),
            )
            .await;
        admin
            .wait_for(
                json!({"apiVersion": "v1", "kind": "ServiceAccount",
                    "metadata": {"namespace": tenant, "name": format!("{tenant}-gitops")}}),
                |_| true,
            )
            .await;
        admin
            .apply(json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface",
                "metadata": {"namespace": tenant, "name": "apps"},
                "spec": {"sources": [{"name": "app", "url": git.http_url(tenant), "ref": {"branch": "main"},
                    "interval": "1s", "retryInterval": "1s", "targetNamespace": tenant}]}}))
            .await;
        shop
    }

    /// Commits the current number.
    async fn commit(&self) {
        let manifest = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: greeting\ndata:\n  number: \"{}\"\n",
            self.number
        );
        let message = format!("number {}", self.number);
        self.repository
            .commit([("app.yaml", manifest)], &message)
            .await
            .unwrap();
    }

    /// Commits a new number.
    pub(crate) async fn change(&mut self) {
        self.number += 1;
        self.commit().await;
    }

    pub(crate) async fn wait_until_applied(&self, admin: &Admin) {
        let greeting = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": self.tenant, "name": "greeting"}});
        let number = self.number.to_string();
        admin
            .wait_for(greeting, |found| found["data"]["number"] == number.as_str())
            .await;
    }

    /// Checks that the next commit is applied.
    pub(crate) async fn check_that_it_goes_on(&mut self, admin: &Admin) {
        self.change().await;
        self.wait_until_applied(admin).await;
    }

    /// Waits for an event at the Surface with these words. A failure shows the messages of all its events.
    pub(crate) async fn wait_for_event(&self, admin: &Admin, words: &str) {
        let mut found = BTreeSet::new();
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            found.extend(self.list_event_messages(admin).await);
            if found.iter().any(|message| message.contains(words)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no event of the Surface says {words:?}: {found:#?}");
    }

    /// Returns the messages of the Surface's events.
    async fn list_event_messages(&self, admin: &Admin) -> Vec<String> {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": self.tenant, "name": ""}});
        let events = admin.api(&event).list(&Default::default()).await.unwrap();
        let of_surface = events
            .items
            .iter()
            .filter(|event| event.data["involvedObject"]["kind"] == "Surface");
        let messages = of_surface.filter_map(|event| event.data["message"].as_str());
        messages.map(str::to_owned).collect()
    }

    /// Deletes the events, so that the same words must be reported again.
    pub(crate) async fn delete_events(&self, admin: &Admin) {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": self.tenant, "name": ""}});
        let (all, how) = (Default::default(), Default::default());
        let _forgotten = admin.api(&event).delete_collection(&how, &all).await.unwrap();
    }

    /// Waits until the Surface is ready and reports no problem of its lane.
    pub(crate) async fn wait_until_well(&self, admin: &Admin) {
        let surface = json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface",
            "metadata": {"namespace": self.tenant, "name": "apps"}});
        admin
            .wait_for(surface, |surface| {
                let conditions = surface["status"]["conditions"].as_array();
                conditions.is_some_and(|conditions| {
                    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
                    conditions.iter().any(is_ready)
                        && !conditions.iter().any(|condition| condition["type"] == "Reconciling")
                })
            })
            .await;
    }

    /// Limits this lane's process to its current memory, and adds work until the process ends.
    pub(crate) async fn starve(&mut self, lane: Pid) {
        // prlimit runs as the user of the lane, because some administrators may not set the limits of other users.
        let user = std::fs::metadata(format!("/proc/{lane}")).unwrap().uid();
        let mut command = Command::new("prlimit");
        command.args(["--data=0:0", "--pid", &lane.to_string()]);
        if rustix::process::geteuid().is_root() {
            command.gid(user).uid(user);
        }
        assert!(command.status().unwrap().success());
        // The process has some memory left, and its work takes more until none is left.
        wait_until("the lane ends", async || {
            let filler = "x".repeat(900_000);
            let manifest = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: filler\n  annotations:\n    at: \"{:?}\"\ndata:\n  x: {filler}\n",
                Instant::now()
            );
            // One commit needs more than was ever free in the process. A fast end is less sensitive to other load of the machine.
            let files = (0..32).map(|number| (format!("filler-{number}.txt"), filler.clone()));
            let files = files.chain([("filler.yaml".to_owned(), manifest)]);
            self.repository.commit(files, "more").await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            (!is_there(lane)).then_some(())
        })
        .await;
    }
}

impl Scene {
    pub(crate) async fn set(more: &[&str]) -> Self {
        let cluster = Cluster::start_own_installed().await;
        let git_folder = tempfile::tempdir().unwrap();
        let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
        let allowed = format!("http://{}", git.http_address());
        let mut arguments = vec!["--lanes", "process", "--allow-source", &allowed];
        arguments.extend(more);
        let data = cluster.data("run");
        // The hub inherits an open file without any use, as a shell or a service manager may leave one.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" 9<Cargo.toml"])
            .arg(env!("CARGO_BIN_EXE_tenure"))
            .args(["run", "--data", path(&data), "--kubeconfig", path(&cluster.kubeconfig)])
            .args(arguments)
            .env_remove("TENURE_LOG");
        let controllers = Controllers::spawn(command);
        cluster.admin.wait_for_leader(&controllers.candidate).await;
        let scene = Self {
            blue: Shop::prepare(&cluster.admin, &git, "blue").await,
            red: Shop::prepare(&cluster.admin, &git, "red").await,
            cluster,
            controllers,
            data,
            git,
            _git_folder: git_folder,
        };
        for shop in [&scene.blue, &scene.red] {
            shop.wait_until_applied(&scene.cluster.admin).await;
            shop.wait_until_well(&scene.cluster.admin).await;
        }
        scene
    }

    pub(crate) fn admin(&self) -> &Admin {
        &self.cluster.admin
    }

    /// Returns the processes of lanes, by their names.
    pub(crate) fn list_lanes(&self) -> BTreeMap<String, Pid> {
        list_children(self.controllers.child.id())
    }

    /// Waits for the process of a tenant's lane, other than the previous one.
    async fn wait_for_lane(&self, tenant: &str, before: Option<Pid>) -> Pid {
        let name = format!("tenant/{tenant}");
        wait_until(&format!("there is another process of {name}"), async || {
            self.list_lanes()
                .get(&name)
                .copied()
                .filter(|found| Some(*found) != before)
        })
        .await
    }
}

/// Waits until `find` returns a value.
pub(crate) async fn wait_until<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Some(found) = find().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("in vain: {what}");
}

/// Returns the running children of a process, by their names.
fn list_children(parent: u32) -> BTreeMap<String, Pid> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else {
            continue;
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        if field("PPid:") == parent.to_string() && !field("State:").starts_with('Z') {
            found.insert(field("Name:"), Pid::from_raw(id));
        }
    }
    found
}

pub(crate) fn is_there(process: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The fields after the name, which may contain any character.
    status
        .rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

async fn wait_until_gone(process: Pid) {
    wait_until("a process is gone", async || (!is_there(process)).then_some(())).await;
}

/// Returns the open files of a process.
fn list_open(process: u32) -> BTreeSet<PathBuf> {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
}

pub(crate) fn read(process: Pid, what: &str) -> String {
    let bytes = std::fs::read(format!("/proc/{process}/{what}")).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_lane_has_its_own_things_and_no_others() {
    let mut scene = Scene::set(&[]).await;
    let lanes = scene.list_lanes();
    assert_eq!(lanes.keys().collect::<Vec<_>>(), ["tenant/blue", "tenant/red"]);
    let hub = list_open(scene.controllers.child.id());
    assert!(hub.iter().any(|open| open.ends_with("Cargo.toml")), "{hub:?}");
    for (name, process) in &lanes {
        // The arguments and the environment, which other users may read, hold no secret.
        assert_eq!(read(*process, "cmdline"), "tenure\0lane\0");
        let environment = read(*process, "environ");
        let names: BTreeSet<&str> = environment
            .split_terminator('\0')
            .filter_map(|variable| Some(variable.split_once('=')?.0))
            .collect();
        let known = [
            "MIMALLOC_ARENA_EAGER_COMMIT",
            "SSL_CERT_DIR",
            "SSL_CERT_FILE",
            "TENURE_LOG",
            "TENURE_LOG_FORMAT",
        ];
        assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
        // A lane shares only the log and system files with the hub's open files.
        let own = list_open(process.as_raw().cast_unsigned());
        let shared: Vec<&PathBuf> = own
            .intersection(&hub)
            .filter(|open| !open.starts_with("/dev/null") && !open.to_string_lossy().starts_with("anon_inode:"))
            .collect();
        let log = std::fs::read_link(format!("/proc/{process}/fd/2")).unwrap();
        assert!(shared.iter().all(|open| **open == log), "{name}: {shared:?}");
        let folder = scene.data.join("artifacts/lanes").join(name.replace('/', "-"));
        let files: Vec<&PathBuf> = own
            .iter()
            .filter(|open| open.starts_with(&scene.data) && !open.starts_with(&folder))
            .collect();
        assert!(files.is_empty(), "{name}: {files:?}");
        assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        // The limits that the kernel enforces.
        let status = read(*process, "status");
        assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
        if Path::new("/proc/sys/kernel/seccomp").exists() {
            assert!(status.contains("Seccomp:\t2\n"), "{status}");
        }
        let limits = read(*process, "limits");
        let limit = |name: &str| {
            let line = limits.lines().find(|line| line.starts_with(name)).expect("a limit");
            line[name.len()..].split_whitespace().next().unwrap().to_owned()
        };
        let memory: u64 = limit("Max data size").parse().expect("a number");
        assert!((512 << 20..2 << 30).contains(&memory), "{memory}");
        assert_eq!(
            (limit("Max core file size").as_str(), limit("Max open files").as_str()),
            ("0", "4096")
        );
    }
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
    // The artifacts of a lane are only in its own folder. After SIGTERM, all lanes end in good order.
    assert!(std::fs::read_dir(scene.data.join("artifacts/lanes/tenant-blue/store")).is_ok());
    assert_eq!(scene.controllers.signal(Signal::SIGTERM), Some(0));
    assert!(
        lanes.values().all(|process| !is_there(*process)),
        "a lane outlived the hub"
    );
}

#[tokio::test]
async fn killed_lane_restarts_later_each_time() {
    let mut scene = Scene::set(&[]).await;
    let red = scene.wait_for_lane("red", None).await;
    let mut before = None;
    for words in [
        "it was killed (signal 9); it is started again at ",
        "it was killed (signal 9), twice in a row; ",
        "it was killed (signal 9), 3 times in a row; ",
    ] {
        let blue = scene.wait_for_lane("blue", before).await;
        kill(blue, Signal::SIGKILL).unwrap();
        scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
        scene.blue.wait_for_event(scene.admin(), words).await;
        before = Some(blue);
    }
    // Commits of the meantime are applied, and the Surface is ready again.
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    scene.blue.wait_until_well(scene.admin()).await;
    assert!(is_there(red), "the other lane was ended, too");
}

#[tokio::test]
async fn stalled_lane_is_ended_and_restarted() {
    let mut scene = Scene::set(&["--lane-patience", "3"]).await;
    let blue = scene.wait_for_lane("blue", None).await;
    kill(blue, Signal::SIGSTOP).unwrap();
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
    scene
        .blue
        .wait_for_event(scene.admin(), "it gave no answer for 3 s")
        .await;
    assert!(!is_there(blue));
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    scene.blue.wait_until_well(scene.admin()).await;
}

#[tokio::test]
async fn a_lane_without_memory_ends_alone() {
    let mut scene = Scene::set(&[]).await;
    let (blue, red) = (
        scene.wait_for_lane("blue", None).await,
        scene.wait_for_lane("red", None).await,
    );
    scene.blue.starve(blue).await;
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
    scene
        .blue
        .wait_for_event(scene.admin(), "(signal 6), as it does without memory")
        .await;
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    assert!(is_there(red), "the other lane was ended, too");
}

#[tokio::test]
async fn lane_with_invalid_message_ends_alone() {
    let mut scene = Scene::set(&[]).await;
    let mut before = None;
    for (garbage, words) in [
        (&b"\xff\xff\xff\xff"[..], "a frame of 4294967295 bytes"),
        (&b"\0\0\0\x0e{\"Obey\":\"pass\"}"[..], "a frame that can't be read"),
    ] {
        let blue = scene.wait_for_lane("blue", before).await;
        // The test writes into the lane's own end of the line, as if the lane sent it.
        use std::io::Write as _;
        let handle = rustix::process::Pid::from_raw(blue.as_raw()).unwrap();
        let handle = rustix::process::pidfd_open(handle, rustix::process::PidfdFlags::empty()).unwrap();
        let line = rustix::process::pidfd_getfd(&handle, 0, rustix::process::PidfdGetfdFlags::empty()).unwrap();
        UnixStream::from(line).write_all(garbage).unwrap();
        wait_until_gone(blue).await;
        scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
        scene.blue.wait_for_event(scene.admin(), words).await;
        before = Some(blue);
    }
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    scene.blue.wait_until_well(scene.admin()).await;
}

/// The budget of all tenants binds lanes that are processes, too. A lane that holds shared memory delays others until it is ended, and not longer. An idle lane returns
/// its share at once.
#[tokio::test]
async fn shared_budget_binds_process_lanes_too() {
    let budgets = [
        "--tree-memory",
        "1600KiB",
        "--tree-memory-per-tenant",
        "1200KiB",
        "--lane-patience",
        "6",
    ];
    let mut scene = Scene::set(&budgets).await;
    let large = || {
        let filler = "x".repeat(200 << 10);
        (0..5).map(move |number| (format!("filler-{number}.txt"), filler.clone()))
    };
    for shop in [&scene.blue, &scene.red] {
        shop.repository.commit(large(), "a thousand kibibytes").await.unwrap();
    }
    // The control: together the lanes need more than the budget, and both make progress one after the other.
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    let blue = scene.wait_for_lane("blue", None).await;
    kill(blue, Signal::SIGSTOP).unwrap();
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
    assert!(!is_there(blue), "there was room for both");
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
}

/// Namespaces without a tenant share one process until a tenant has them. The first lane releases a namespace, and the tenant's lane continues with it.
#[tokio::test]
async fn a_namespace_moves_from_lane_to_lane() {
    let cluster = Cluster::start_own_installed().await;
    let admin = &cluster.admin;
    let git_folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
    let repository = prepare_shop(admin, &git).await;
    let allowed = format!("http://{}", git.http_address());
    let data = cluster.data("run");
    let more = ["--lanes", "process", "--allow-source", &allowed];
    let controllers = Controllers::start(&cluster.kubeconfig, &data, &more);
    wait_for_greeting(admin, 1).await;
    let list = || list_children(controllers.child.id()).into_keys().collect::<Vec<_>>();
    assert_eq!(list(), ["pool"]);
    admin
        .apply(
            json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": {"name": "blue"},
            "spec": {"owners": [{"kind": "User", "name": "blue-owner"}]}}),
        )
        .await;
    cluster.check(
        &["adopt", "blue", "shop"],
        0,
        &["namespace/shop: labelled for it, recorded"],
    );
    wait_until("the tenant's lane has it, and the pool's has ended", async || {
        (list() == ["tenant/blue"]).then_some(())
    })
    .await;
    repository
        .commit([("app.yaml", manifest(2))], "a change")
        .await
        .unwrap();
    wait_for_greeting(admin, 2).await;
    // The pool's artifacts were removed with its lane.
    wait_until("its folder is gone", async || {
        (!data.join("artifacts/lanes/pool").exists()).then_some(())
    })
    .await;
    // Without anything to reconcile, the lane is gone.
    for (api_version, kind) in [
        ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        ("source.toolkit.fluxcd.io/v1", "GitRepository"),
    ] {
        let object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "shop", "name": "shop"}});
        admin.delete(&object).await;
        admin.wait_until_gone(&object).await;
    }
    wait_until("no lane is left", async || list().is_empty().then_some(())).await;
}

/// By default, the embedded control plane runs lanes as processes, which connect to it by its own address.
#[tokio::test]
async fn the_embedded_control_plane_has_lanes_as_processes_too() {
    let folder = tempfile::tempdir().unwrap();
    let git_folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
    let allowed = format!("http://{}", git.http_address());
    let _up = Up::start(folder.path(), &["--allow-source", &allowed]);
    let admin = Admin(crate::process::client(folder.path()).await);
    let mut blue = Shop::prepare(&admin, &git, "blue").await;
    blue.wait_until_applied(&admin).await;
    blue.check_that_it_goes_on(&admin).await;
    blue.wait_until_well(&admin).await;
    assert!(folder.path().join("artifacts/lanes/tenant-blue").is_dir());
}

#[tokio::test]
async fn no_lane_outlives_the_hub() {
    let mut scene = Scene::set(&[]).await;
    let lanes = scene.list_lanes();
    assert_eq!(lanes.len(), 2);
    // A stopped process can't see that its line ended.
    kill(lanes["tenant/red"], Signal::SIGSTOP).unwrap();
    scene.controllers.signal(Signal::SIGKILL);
    for process in lanes.into_values() {
        wait_until_gone(process).await;
    }
}

/// A lane reads no invalid message of the hub, and does not run without a hub.
#[test]
fn a_lane_takes_orders_from_a_hub_only() {
    use std::io::Write as _;
    use std::process::Stdio;
    for (sent, words) in [
        (&b"\xff\xff\xff\xff"[..], "a frame of 4294967295 bytes"),
        (&b"\0\0\0\x06\"Stop\""[..], "another message arrived before the orders"),
        (&b"\0\0\0\x06sesame"[..], "a frame that can't be read"),
        (&b""[..], "failed to fill whole buffer"),
    ] {
        let (mut own, theirs) = UnixStream::pair().unwrap();
        let lane = tenure(&["lane"])
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        own.write_all(sent).unwrap();
        drop(own);
        let output = lane.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains(words) && !stderr.contains("sesame"), "{stderr}");
    }
}
