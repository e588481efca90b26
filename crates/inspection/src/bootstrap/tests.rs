//! Bootstraps as data: the steps, stopped after each of them, and the refusals.

use std::collections::BTreeMap;

use tenure_remote_requests::git_host::HostKind;

use super::*;

const HOSTS: &str = "git.example ssh-ed25519 AAAA\n";

fn choices(path: &str) -> Choices {
    Choices {
        folder: Folder::parse(path).unwrap(),
        accepts_content: false,
        version: "0.1.0".to_owned(),
    }
}

fn source(path: &str) -> PlatformSource {
    PlatformSource {
        url: "ssh://git@git.example/platform.git".to_owned(),
        branch: "main".to_owned(),
        folder: Folder::parse(path).unwrap(),
        interval: "1m".to_owned(),
    }
}

fn files(path: &str, version: &str) -> WantedFiles {
    WantedFiles {
        components: Some(write_components(&list_platform_objects(), version)),
        sync: Some(write_sync(&make_surface(&source(path)))),
    }
}

/// Entries as `path`, `path -> target` for a link, and `path @` for a submodule. Each file has its path as its text.
fn repository(entries: &[&str]) -> RepositoryFacts {
    let mut facts = RepositoryFacts {
        head: (!entries.is_empty()).then(|| "a".repeat(40)),
        ..RepositoryFacts::default()
    };
    for entry in entries {
        let (path, kind, text) = match (entry.split_once(" -> "), entry.strip_suffix(" @")) {
            (Some((path, target)), _) => (path, EntryKind::Link, target),
            (None, Some(path)) => (path, EntryKind::Submodule, ""),
            (None, None) => (*entry, EntryKind::File, *entry),
        };
        facts.entries.insert(path.to_owned(), kind);
        facts.texts.insert(path.to_owned(), text.to_owned());
    }
    facts
}

fn snapshot(path: &str, repository: RepositoryFacts) -> Snapshot {
    Snapshot {
        choices: choices(path),
        repository,
        files: files(path, "0.1.0"),
        cluster: ClusterFacts {
            key: Some(KeyState::Missing),
            installation: (7, 0),
            start: 1,
            other_controllers: Vec::new(),
        },
        known_hosts: Some(HOSTS.to_owned()),
    }
}

/// Does what a step says to the model of the repository and the cluster.
fn carry_out(step: &Step, world: &mut Snapshot) {
    match step {
        Step::MakeKey | Step::PinHost => {
            world.cluster.key = Some(KeyState::Present {
                known_hosts: world.known_hosts.clone().unwrap(),
            });
        }
        Step::Push(commits) => {
            for (path, text) in commits.iter().flat_map(|commit| &commit.files) {
                world.repository.entries.insert(path.clone(), EntryKind::File);
                world.repository.texts.insert(path.clone(), text.clone());
            }
        }
        Step::Install(..) => world.cluster.installation = (0, 0),
        Step::Start(_) => world.cluster.start = 0,
        Step::ProveKey | Step::Wait => {}
    }
}

#[test]
fn first_bootstrap_has_two_commits_and_next_none() {
    let mut world = snapshot("clusters/a", repository(&[]));
    let first = plan(&world).unwrap();
    let messages: Vec<&str> = first.commits().iter().map(|commit| commit.message.as_str()).collect();
    assert_eq!(
        messages,
        ["Add the installation of Tenure 0.1.0", "Add the platform's Surface"]
    );
    let paths: Vec<&str> = first
        .commits()
        .iter()
        .flat_map(|commit| &commit.files)
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "clusters/a/tenure-system/tenure-components.yaml",
            "clusters/a/tenure-system/tenure-sync.yaml",
            "clusters/a/tenure-system/kustomization.yaml"
        ]
    );
    // The key is proved before anything is pushed or installed.
    let sequence: Vec<bool> = first
        .steps
        .iter()
        .map(|step| matches!(step, Step::Push(_) | Step::Install(..)))
        .collect();
    assert_eq!(sequence, [false, false, true, true, false, false]);
    for step in &first.steps {
        carry_out(step, &mut world);
    }
    let next = plan(&world).unwrap();
    assert!(!next.is_change(), "{next:?}");
    assert_eq!(next.steps, [Step::ProveKey, Step::Wait]);
}

/// A bootstrap that stops after any step goes on with the remaining ones, and does none twice.
#[test]
fn stopped_bootstrap_goes_on() {
    let whole = plan(&snapshot("", repository(&[]))).unwrap();
    for stop in 0..=whole.steps.len() {
        let mut world = snapshot("", repository(&[]));
        for step in &whole.steps[..stop] {
            carry_out(step, &mut world);
        }
        let rest = plan(&world).unwrap();
        let expected = whole.steps[stop..].iter().filter(|step| step.is_change());
        let found = rest.steps.iter().filter(|step| step.is_change());
        assert!(expected.eq(found), "stopped after {stop}: {:?}", rest.steps);
    }
    // A push of the first commit alone, as by another program.
    let mut world = snapshot("", repository(&["unrelated.txt"]));
    let commits = plan(&world).unwrap().commits().to_vec();
    carry_out(&Step::Push(commits[..1].to_vec()), &mut world);
    assert_eq!(plan(&world).unwrap().commits(), &commits[1..]);
}

#[test]
fn upgrade_is_one_commit() {
    let mut world = snapshot("clusters/a", repository(&[]));
    for step in plan(&world).unwrap().steps {
        carry_out(&step, &mut world);
    }
    world.choices.version = "0.2.0".to_owned();
    world.files = files("clusters/a", "0.2.0");
    world.cluster.installation = (1, 2);
    let upgrade = plan(&world).unwrap();
    let [commit] = upgrade.commits() else {
        panic!("{upgrade:?}")
    };
    assert_eq!(commit.message, "Update the installation of Tenure to 0.2.0");
    assert_eq!(commit.files.len(), 1);
    // Other flags change both files, in one commit as well.
    world.files.sync = world.files.sync.map(|text| text.replace("1m", "5m"));
    assert_eq!(plan(&world).unwrap().commits()[0].files.len(), 2);
    // A patched kustomization stays.
    let path = "clusters/a/tenure-system/kustomization.yaml";
    let patched = format!("{}patches: []\n", write_kustomization(&world.files));
    world.repository.texts.insert(path.to_owned(), patched);
    assert_eq!(plan(&world).unwrap().commits()[0].files.len(), 2);
}

#[test]
fn converted_ends_of_lines_are_no_change() {
    let mut world = snapshot("a", repository(&[]));
    for step in plan(&world).unwrap().steps {
        carry_out(&step, &mut world);
    }
    for text in world.repository.texts.values_mut() {
        *text = text.replace('\n', "\r\n");
    }
    assert!(!plan(&world).unwrap().is_change());
}

#[test]
fn folder_with_other_things_is_refused() {
    let check = |path: &str, entries: &[&str], expected: &str| {
        let refused = plan(&snapshot(path, repository(entries))).map_err(|refusal| refusal.message);
        match expected {
            "" => assert!(refused.is_ok(), "{path} {entries:?}: {refused:?}"),
            _ => assert!(
                refused.as_ref().is_err_and(|message| message.contains(expected)),
                "{path} {entries:?}: {refused:?}"
            ),
        }
    };
    check(
        "a",
        &["README.md", "b/app.yaml", "a/notes.txt", "a/.github/ci.yaml"],
        "",
    );
    check(
        "a",
        &["a/app.yaml", "a/b/c.yml"],
        "a holds other things, which the cluster would apply with all rights: a/app.yaml, a/b/c.yml",
    );
    check("", &["app.yaml"], "the root of the repository holds other things");
    check("", &["README.md", "LICENSE"], "");
    check(
        "a",
        &["a/tenure-system/app.txt"],
        "a/tenure-system holds other things: a/tenure-system/app.txt",
    );
    check(
        "a",
        &["a/tenure-system/tenure-sync.yaml"],
        "holds other things: a/tenure-system/tenure-sync.yaml",
    );
    check("a", &["a/tenure-system/deep/tenure-sync.yaml"], "holds other things");
    let many: Vec<String> = (0..9).map(|number| format!("a/{number}.yaml")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    check("a", &many, "a/4.yaml and 4 more");
    let mut accepting = snapshot("a", repository(&["a/app.yaml"]));
    accepting.choices.accepts_content = true;
    assert!(plan(&accepting).is_ok());
}

#[test]
fn link_out_of_folder_is_refused() {
    let check = |path: &str, entries: &[&str], expected: &str| {
        let refused = plan(&snapshot(path, repository(entries))).map_err(|refusal| refusal.message);
        match expected {
            "" => assert!(refused.is_ok(), "{path} {entries:?}: {refused:?}"),
            _ => assert!(
                refused.as_ref().is_err_and(|message| message.contains(expected)),
                "{path} {entries:?}: {refused:?}"
            ),
        }
    };
    check("a/b", &["a -> elsewhere"], "a is a symbolic link to \"elsewhere\"");
    check("a/b", &["a/b -> ../c"], "a/b is a symbolic link");
    check(
        "a",
        &["a/tenure-system -> ../other"],
        "a/tenure-system is a symbolic link",
    );
    check("a", &["a/tenure-system @"], "a/tenure-system is a submodule");
    check("a/b", &["a"], "a is a file");
    check(
        "a",
        &["a/x -> ../b/y"],
        "a/x is a symbolic link out of a, to \"../b/y\"",
    );
    check("a", &["a/x -> /etc/passwd"], "out of a");
    check("a", &["a/x -> ../a/y", "a/y"], "out of a");
    check("a", &["a/deep/x -> ../y", "a/y"], "");
    check("a", &["b/x -> ../../y"], "");
    check("a", &["a/x -> y", "a/y -> x"], "out of a");
    // The target looks as if it stayed inside, but another link on its way goes up.
    check(
        "a",
        &["a/b/c/up -> ../..", "a/x -> b/c/up/../secret"],
        "a/x is a symbolic link out of a",
    );
    check(
        "a",
        &["a/tenure-system/kustomization.yaml -> ../k.yaml", "a/k.yaml"],
        "holds other things",
    );
    check("", &["x -> ../y"], "out of the root of the repository");
}

#[test]
fn kustomization_above_has_to_list_installation() {
    let check = |text: &str, is_accepted: bool| {
        let mut facts = repository(&["a/kustomization.yaml"]);
        facts.texts.insert("a/kustomization.yaml".to_owned(), text.to_owned());
        let mut world = snapshot("a", facts);
        world.choices.accepts_content = true;
        assert_eq!(plan(&world).is_ok(), is_accepted, "{text}");
    };
    check("resources:\n- tenure-system\n", true);
    check("resources: [apps, ./tenure-system/]\n", true);
    check("resources:\r\n  - \"tenure-system\" # ours\r\n", true);
    check("resources:\n- apps\n", false);
    check("resources:\n- apps # not tenure-system\n# - tenure-system\n", false);
    check("resources:\n- tenure-systems\n", false);
}

#[test]
fn key_and_controllers_decide_steps() {
    let check = |change: &dyn Fn(&mut Snapshot), expected: &str| {
        let mut world = snapshot("a", repository(&[]));
        change(&mut world);
        let shown = match plan(&world) {
            Ok(plan) => plan.steps.iter().map(Step::describe).collect::<Vec<_>>().join("\n"),
            Err(refusal) => format!("{}: {}", refusal.message, refusal.hint),
        };
        assert!(shown.contains(expected), "{shown}");
    };
    let present = |hosts: &str| {
        Some(KeyState::Present {
            known_hosts: hosts.to_owned(),
        })
    };
    check(&|_| (), "make a deploy key in the cluster");
    check(&|world| world.cluster.key = present("other"), "pin the server's keys");
    check(
        &|world| world.cluster.key = Some(KeyState::Unusable("it has no identity".to_owned())),
        "it has no identity",
    );
    check(
        &|world| world.cluster.other_controllers = vec!["kustomize-controller".to_owned()],
        "scale deployment kustomize-controller --replicas 0",
    );
    let mut pinned = snapshot("a", repository(&[]));
    pinned.cluster.key = present("other");
    pinned.known_hosts = None;
    assert!(!plan(&pinned).unwrap().steps.contains(&Step::PinHost));
    pinned.cluster.key = None;
    assert!(!plan(&pinned).unwrap().steps.contains(&Step::ProveKey));
}

const GOTK_SYNC: &str = "# This manifest was generated by flux. DO NOT EDIT.
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 1m0s, ref: {branch: main}, secretRef: {name: flux-system}, url: 'ssh://git@git.example/fleet'}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 10m0s, path: ./clusters/a, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
";
const GOTK_COMPONENTS: &str = "apiVersion: v1
kind: Namespace
metadata: {name: flux-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: kustomize-controller, namespace: flux-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: kustomize-controller, namespace: flux-system}
";

fn flux_repository() -> RepositoryFacts {
    let mut facts = repository(&[
        "clusters/a/apps.yaml",
        "clusters/a/flux-system/gotk-sync.yaml",
        "clusters/a/flux-system/gotk-components.yaml",
        "clusters/a/flux-system/kustomization.yaml",
    ]);
    for (name, text) in [("gotk-sync.yaml", GOTK_SYNC), ("gotk-components.yaml", GOTK_COMPONENTS)] {
        facts
            .texts
            .insert(format!("clusters/a/flux-system/{name}"), text.to_owned());
    }
    facts
}

#[test]
fn repository_of_flux_stays_as_it_is() {
    let facts = flux_repository();
    let folder = Folder::parse("./clusters/a").unwrap();
    let sync = find_flux(&facts, &folder).unwrap().unwrap();
    assert_eq!(
        (sync.url.as_str(), sync.branch.as_str()),
        ("ssh://git@git.example/fleet", "main")
    );
    assert_eq!(sync.secret.as_deref(), Some("flux-system"));
    let kinds = |objects: &[serde_json::Value]| {
        objects
            .iter()
            .map(|object| object["kind"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    // No controller of Flux is started.
    assert_eq!(
        kinds(&sync.before),
        ["Namespace", "ServiceAccount", "Role", "RoleBinding"]
    );
    assert_eq!(kinds(&sync.start), ["GitRepository", "Kustomization"]);
    // The repository gets no commit if the control plane has the controllers.
    let mut world = snapshot("clusters/a", facts);
    world.files = WantedFiles::default();
    assert!(plan(&world).unwrap().commits().is_empty());
    // Elsewhere, one commit adds the installation beside Flux's files.
    world.files.components = files("", "0.1.0").components;
    let plan = plan(&world).unwrap();
    let [commit] = plan.commits() else { panic!("{plan:?}") };
    assert!(
        commit
            .files
            .iter()
            .all(|(path, _)| path.starts_with("clusters/a/tenure-system/"))
    );
    assert_eq!(commit.files[1].1.lines().last(), Some("- tenure-components.yaml"));
}

#[test]
fn unusable_repository_of_flux_is_refused() {
    let check = |path: &str, from: &str, to: &str, expected: &str| {
        let mut facts = flux_repository();
        for text in facts.texts.values_mut() {
            *text = text.replace(from, to);
        }
        let found = find_flux(&facts, &Folder::parse(path).unwrap());
        assert!(
            found.as_ref().is_err_and(|refusal| refusal.message.contains(expected)),
            "{found:?}"
        );
    };
    check(
        "clusters/a",
        "./clusters/a",
        "./clusters/b",
        "applies \"./clusters/b\", not clusters/a",
    );
    check("clusters/a", "kind: GitRepository", "kind: Bucket", "no GitRepository");
    check("clusters/a", "branch: main", "tag: v1", "no branch");
    check("clusters/a", "spec: {", "spec: {{{", "gotk-sync.yaml");
    assert_eq!(
        find_flux(&repository(&["a/app.yaml"]), &Folder::parse("a").unwrap()),
        Ok(None)
    );
}

#[test]
fn paths_are_read_as_users_write_them() {
    let read = |text: &str| Folder::parse(text).map(|folder| folder.relative());
    assert_eq!(read("./clusters//production/"), Ok("./clusters/production".to_owned()));
    for root in ["", ".", "./"] {
        assert_eq!(read(root), Ok("./".to_owned()));
    }
    for refused in ["/a", "a/../b", "..", "a/.GIT/b", "a\\b", "a\nb", "a/tenure-system"] {
        assert!(read(refused).is_err(), "{refused:?}");
    }
}

#[test]
fn only_needed_files_are_read() {
    let facts = repository(&[
        "a/app.yaml",
        "a/kustomization.yaml",
        "a/tenure-system/x",
        "a/tenure-system/b/x",
        "a/flux-system/gotk-sync.yaml",
        "b/l -> x",
        "s @",
    ]);
    let needed = list_needed_files(&facts.entries, &Folder::parse("a").unwrap());
    assert_eq!(
        needed,
        [
            "a/flux-system/gotk-sync.yaml",
            "a/kustomization.yaml",
            "a/tenure-system/x",
            "b/l"
        ]
    );
}

#[test]
fn written_files_are_manifests() {
    let WantedFiles { components, sync } = files("a", "0.1.0");
    let read = |text: &str| kustomize::read_manifests("file.yaml", text, &kustomize::Limits::default()).unwrap();
    let objects: Vec<_> = read(&components.unwrap())
        .into_iter()
        .map(|built| built.object)
        .collect();
    assert_eq!(objects, list_platform_objects());
    let surface = read(&sync.unwrap()).remove(0).object;
    assert_eq!(surface, make_surface(&source("a")));
    // The whole spec is known to the kind.
    let typed: tenure_api::Surface = serde_json::from_value(surface.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed.spec).unwrap(), surface["spec"]);
}

#[test]
fn installed_objects_are_those_of_patched_folder() {
    let facts = repository(&[]);
    let folder = Folder::parse("a").unwrap();
    let files = files("a", "0.1.0");
    let commits = plan_commits(&choices("a"), &facts, &files).unwrap();
    let built = build_installation(&facts, &folder, &commits).unwrap();
    let mut expected = list_platform_objects();
    expected.push(make_surface(&source("a")));
    assert_eq!(built, expected);
    let mut patched = repository(&["a/tenure-system/kustomization.yaml"]);
    let text = format!("{}commonAnnotations: {{a: b}}\n", write_kustomization(&files));
    patched
        .texts
        .insert("a/tenure-system/kustomization.yaml".to_owned(), text);
    let accepting = Choices {
        accepts_content: true,
        ..choices("a")
    };
    let commits = plan_commits(&accepting, &patched, &files).unwrap();
    let built = build_installation(&patched, &folder, &commits).unwrap();
    assert!(
        built.iter().all(|object| object["metadata"]["annotations"]["a"] == "b"),
        "{built:?}"
    );
    patched.texts.insert(
        "a/tenure-system/kustomization.yaml".to_owned(),
        "nonsense: [tenure-components.yaml, tenure-sync.yaml]".to_owned(),
    );
    assert!(
        build_installation(&patched, &folder, &commits)
            .unwrap_err()
            .message
            .contains("can't be built")
    );
    assert_eq!(build_installation(&facts, &folder, &[]), Ok(Vec::new()));
}

#[test]
fn answers_to_pushes() {
    let rejected = |reason: &str| format!("To https://git.example/a.git\n!\tabc:refs/heads/main\t{reason}\nDone\n");
    let check =
        |reason: &str, stderr: &str, expected: PushOutcome| assert_eq!(read_push(&rejected(reason), stderr), expected);
    check("[rejected] (fetch first)", "", PushOutcome::Moved);
    check("[rejected] (non-fast-forward)", "", PushOutcome::Moved);
    check(
        "[remote rejected] (cannot lock ref 'refs/heads/main')",
        "",
        PushOutcome::Moved,
    );
    check(
        "[remote rejected] (pre-receive hook declined)",
        "remote: \nremote: GitLab: You are not allowed to push code to protected branches on this project.\nerror: failed",
        PushOutcome::Protected("[remote rejected] (pre-receive hook declined); GitLab: You are not allowed to push code to protected branches on this project.".to_owned()),
    );
    assert_eq!(
        read_push(
            "",
            "remote: forbidden\nfatal: Authentication failed for 'https://git.example/a.git/'\n"
        ),
        PushOutcome::Failed(
            "remote: forbidden; fatal: Authentication failed for 'https://git.example/a.git/'".to_owned()
        )
    );
}

#[test]
fn hosts_and_clone_addresses() {
    let api = |kind, hostname: Option<&str>| find_host(kind, hostname).map(|found| found.api);
    let ok = |text: &str| Ok(text.to_owned());
    assert_eq!(api(HostKind::Gitlab, None), ok("https://gitlab.com"));
    assert_eq!(api(HostKind::Github, None), ok("https://api.github.com"));
    assert_eq!(
        api(HostKind::Github, Some("git.example")),
        ok("https://git.example/api/v3")
    );
    assert_eq!(
        api(HostKind::Gitea, Some("git.example:3000")),
        ok("https://git.example:3000")
    );
    assert_eq!(
        api(HostKind::Gitea, Some("http://127.0.0.1:3000")),
        ok("http://127.0.0.1:3000")
    );
    assert!(api(HostKind::Gitea, None).is_err());
    for wrong in ["", "ssh://git.example", "a b", "-x", "https://"] {
        assert!(api(HostKind::Gitlab, Some(wrong)).is_err(), "{wrong:?}");
    }
    let host = |hostname| find_host(HostKind::Gitea, Some(hostname)).unwrap();
    for (hostname, url, expected) in [
        ("git.example", "https://git.example/a.git", true),
        ("git.example", "https://GIT.example:8443/a.git", true),
        ("git.example", "http://git.example/a.git", false),
        ("git.example", "https://git.example.evil/a.git", false),
        ("git.example", "https://git.example@evil.example/a.git", false),
        ("http://127.0.0.1:3000", "http://127.0.0.1:4000/a.git", true),
        ("http://[::1]:3000", "http://[::1]:4000/a.git", true),
        ("http://127.0.0.1:3000", "file:///a", false),
    ] {
        assert_eq!(is_same_host(&host(hostname), url), expected, "{hostname} {url}");
    }
    let names: BTreeMap<&str, HostKind> = [("oauth2", HostKind::Gitlab), ("x-access-token", HostKind::Github)].into();
    assert!(names.into_iter().all(|(name, kind)| choose_username(kind) == name));
}
