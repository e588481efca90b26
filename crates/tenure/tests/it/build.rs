//! `tenure build` beside `kustomize build`: the same flags and files, and the same bytes if kustomize is on PATH.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use crate::process::{fails, run, tenure};

/// Several namespaces, a cluster-scoped object, names that need care in files.
const FILES: &[(&str, &str)] = &[
    (
        "app/kustomization.yaml",
        "resources: [../base, more.yaml]\nnamePrefix: x-\nconfigMapGenerator:\n- name: Settings\n  literals: [a=b]\n",
    ),
    (
        "app/more.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: 'system:Reader'}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: Team-B}\n",
    ),
    ("base/kustomization.yaml", "resources: [web.yaml]\nnamespace: team-a\n"),
    (
        "base/web.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n",
    ),
    ("one/kustomization.yaml", "resources: [../base]\nnamespace: team-a\n"),
    ("outside/kustomization.yaml", "resources: [../base/web.yaml]\n"),
    ("linked/kustomization.yaml", "resources: [web.yaml]\n"),
    (
        "ordered/kustomization.yaml",
        "resources: [../base]\nsortOptions: {order: fifo}\n",
    ),
    ("overlay/kustomization.yaml", "resources:\n- o1\n"),
    ("overlay/o1/kustomization.yaml", "resources:\n- ../../base\n"),
];

fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in FILES {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    std::os::unix::fs::symlink("../base/web.yaml", folder.path().join("linked/web.yaml")).unwrap();
    folder
}

fn read_text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn real(arguments: &[&str]) -> Option<Output> {
    match Command::new("kustomize").args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("skipped: no kustomize on PATH to compare with ({error})");
            None
        }
    }
}

fn read_files(folder: &Path) -> BTreeMap<String, String> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

#[test]
fn the_same_flags_give_the_same() {
    let folder = tree();
    let read_file = |name: &str| read_text(&folder.path().join(name));
    let (app, overlay, one, outside, linked, ordered, file) = (
        read_file("app"),
        read_file("overlay"),
        read_file("one"),
        read_file("outside"),
        read_file("linked"),
        read_file("ordered"),
        read_file("base/kustomization.yaml"),
    );
    let cases: &[&[&str]] = &[
        &[&app],
        &["--load-restrictor", "LoadRestrictionsRootOnly", &app],
        &["--load-restrictor=", &app],
        &["--load-restrictor", "LoadRestrictionsNone", &outside],
        &["--load-restrictor=LoadRestrictionsNone", &linked],
        &[&outside],
        &[&linked],
        &["--load-restrictor", "none", &app],
        &["--load-restrictor", "loadrestrictionsnone", &app],
        &["--reorder", "legacy", &one],
        &["--reorder=none", &one],
        &[&overlay],
        &["--reorder", "legacy", &ordered],
        &["--reorder", "some", &one],
        &["--as-current-user", &one],
        &["--as-current-user=false", &one],
        &["--enable-helm=false", "--network=false", &one],
        &["--enable-managedby-label=false", &one],
        &[&one, &app],
        &[&file],
        &[&read_file("missing")],
        &[""],
        &["--no-such-flag"],
    ];
    for case in cases {
        let mut arguments = vec!["build"];
        arguments.extend_from_slice(case);
        let Some(real) = real(&arguments) else { return };
        let ours = run(&arguments);
        let stderr = String::from_utf8_lossy(&ours.stderr);
        assert_eq!(ours.status.success(), real.status.success(), "{case:?}: {stderr}");
        assert_eq!(
            String::from_utf8_lossy(&ours.stdout),
            String::from_utf8_lossy(&real.stdout),
            "{case:?}: {stderr}"
        );
        for line in String::from_utf8_lossy(&real.stderr)
            .lines()
            .filter(|line| line.contains("illegal flag value") || line.starts_with("Flag --reorder"))
        {
            let line = line.trim_start_matches("Error: ");
            assert!(stderr.contains(line), "{case:?}: does not say {line}: {stderr}");
        }
    }
}

/// The built folder refers to nothing above it, and a folder inside it does.
#[test]
fn a_folder_inside_reaches_above() {
    let folder = tree();
    let output = run(&["build", &read_text(&folder.path().join("overlay"))]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("name: web"),
        "{stderr}"
    );
}

#[test]
fn a_build_ends_at_its_budget() {
    let folder = tree();
    let base = read_text(&folder.path().join("base"));
    fails(
        &["build", "--rendering-bytes", "1KiB", &base],
        1,
        &["the build makes more than 1 KiB", "web.yaml", "--rendering-bytes"],
    );
    fails(
        &["build", "--rendering-steps", "3", &base],
        1,
        &["takes more than 3 steps"],
    );
    fails(&["build", "--rendering-bytes", "many", &base], 2, &["write it like"]);
    let output = run(&["build", "--rendering-bytes=0", "--rendering-steps=0", &base]);
    assert!(output.status.success());
}

#[test]
fn a_file_for_each_object() {
    let folder = tree();
    for name in ["app", "one"] {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let source = read_text(&folder.path().join(name));
        let output = run(&["build", &source, "-o", &read_text(ours.path())]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.is_empty());
        let ours = read_files(ours.path());
        let wanted = if name == "app" {
            "rbac.authorization.k8s.io_v1_clusterrole_x-system:reader.yaml"
        } else {
            "apps_v1_deployment_web.yaml"
        };
        assert!(ours.contains_key(wanted), "{:?}", ours.keys());
        if let Some(output) = real(&["build", &source, "-o", &read_text(theirs.path())]) {
            assert!(output.status.success());
            assert_eq!(ours, read_files(theirs.path()));
        }
    }
}

#[test]
fn one_file_or_standard_output() {
    let folder = tree();
    let source = read_text(&folder.path().join("one"));
    let printed = run(&["build", &source]).stdout;
    assert!(!printed.is_empty());
    assert_eq!(run(&["build", &source, "-o", "-"]).stdout, printed);
    let file = folder.path().join("out.yaml");
    assert!(
        run(&["build", &source, "--output", &read_text(&file)])
            .stdout
            .is_empty()
    );
    assert_eq!(std::fs::read(&file).unwrap(), printed);
    let current = tenure(&["build"])
        .current_dir(folder.path().join("one"))
        .output()
        .unwrap();
    assert_eq!(current.stdout, printed);
    fails(
        &[
            "build",
            &source,
            "-o",
            &read_text(&folder.path().join("no/such/out.yaml")),
        ],
        3,
        &["no/such"],
    );
}

#[test]
fn the_label_of_who_manages() {
    let folder = tree();
    let source = read_text(&folder.path().join("one"));
    let labelled = "app.kubernetes.io/managed-by: kustomize-";
    let by_flag = run(&["build", &source, "--enable-managedby-label"]);
    let by_environment = tenure(&["build", &source])
        .env("KUSTOMIZE_ENABLE_MANAGEDBY_LABEL", "on")
        .output()
        .unwrap();
    for output in [by_flag, by_environment] {
        assert!(String::from_utf8_lossy(&output.stdout).contains(labelled));
    }
    assert!(!String::from_utf8_lossy(&run(&["build", &source]).stdout).contains(labelled));
}

#[test]
fn flags_that_run_programs_are_refused() {
    let folder = tree();
    let source = read_text(&folder.path().join("one"));
    let cases: &[(&[&str], &str)] = &[
        (&["--enable-alpha-plugins"], "need no flag"),
        (&["--enable-exec"], "run the function beforehand"),
        (&["--network"], "run the function beforehand"),
        (&["--network-name", "host"], "run the function beforehand"),
        (&["--mount", "type=bind"], "run the function beforehand"),
        (&["-e", "A=b"], "run the function beforehand"),
        (&["--env", "A=b"], "run the function beforehand"),
        (&["--enable-helm"], "helm template"),
        (&["--helm-command", "helm3"], "helm template"),
        (&["--helm-api-versions", "v1"], "helm template"),
        (&["--helm-kube-version", "1.36"], "helm template"),
        (&["--helm-debug"], "helm template"),
    ];
    for (flags, hint) in cases {
        let mut arguments = vec!["build", &source];
        arguments.extend_from_slice(flags);
        fails(&arguments, 2, &["is refused: nothing is run", "hint:", hint]);
    }
    fails(
        &["build", "https://github.com/example/example//app?ref=v1"],
        2,
        &["must build at directory", "nothing is fetched"],
    );
}

#[test]
fn nothing_outside_the_repository() {
    let folder = tree();
    let inside = folder.path().join("repository/app");
    std::fs::create_dir_all(&inside).unwrap();
    std::fs::create_dir(folder.path().join("repository/.git")).unwrap();
    std::os::unix::fs::symlink("../../base", inside.join("linked")).unwrap();
    for base in ["../../base", "linked"] {
        std::fs::write(inside.join("kustomization.yaml"), format!("resources: [{base}]\n")).unwrap();
        fails(&["build", &read_text(&inside)], 1, &[base]);
        let free = run(&[
            "build",
            "--load-restrictor",
            "LoadRestrictionsNone",
            &read_text(&inside),
        ]);
        assert!(free.status.success(), "{}", String::from_utf8_lossy(&free.stderr));
    }
    // An absolute link is allowed if its target is inside.
    let kept = inside.join("kept");
    std::fs::create_dir(&kept).unwrap();
    std::fs::write(
        kept.join("a.yaml"),
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n",
    )
    .unwrap();
    std::os::unix::fs::symlink(kept.canonicalize().unwrap().join("a.yaml"), inside.join("a.yaml")).unwrap();
    std::fs::write(inside.join("kustomization.yaml"), "resources: [a.yaml]\n").unwrap();
    let output = run(&["build", &read_text(&inside)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let folder = tree();
    let source = folder.path().join("base");
    std::fs::remove_file(source.join("web.yaml")).unwrap();
    fails(&["build", &read_text(&source)], 1, &["web.yaml"]);
    std::os::unix::net::UnixListener::bind(source.join("web.yaml")).unwrap();
    fails(
        &["build", &read_text(&source)],
        3,
        &["web.yaml", "neither a file nor a folder"],
    );
}
