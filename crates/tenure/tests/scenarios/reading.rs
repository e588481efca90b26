//! `tenure get`, `events` and `who` on any API server: tables, names, kinds, watches, formats, rights, and suggestions. kubectl's answers are the oracle, if it is on PATH.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::pages::has_program;
use crate::process::{Up, make_command, tenure};
use crate::world::{Cluster, describe};

const NAMESPACE: &str = "reading";
const DIGEST: &str = "8f3c1d0a5b7e9f2468ace013579bdf02468ace01";
const RBAC: &str = "rbac.authorization.k8s.io";

fn kustomization(name: &str, suspend: bool) -> Value {
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "app": name } },
        "spec": {
            "interval": "1h", "prune": true, "suspend": suspend, "path": "./apps",
            "sourceRef": { "kind": "GitRepository", "name": "web" }, "dependsOn": [{ "name": "first" }, { "name": "second" }]
        }
    })
}

/// Starts a cluster without controllers, with two Kustomizations and a source in a namespace.
async fn start() -> Cluster {
    let cluster = Cluster::start_installed().await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    let source = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "web", "namespace": NAMESPACE },
        "spec": { "interval": "1h", "url": "https://git.example.org/web" }
    });
    for object in [
        namespace,
        source,
        kustomization("web", false),
        kustomization("payments", true),
    ] {
        cluster.admin.apply(object).await;
    }
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": format!("Applied revision: main@sha1:{DIGEST}"),
        "lastTransitionTime": "2026-01-01T00:00:00Z"
    });
    let status = json!({ "status": { "lastAppliedRevision": format!("main@sha1:{DIGEST}"), "conditions": [ready] } });
    let api = cluster.admin.api(&kustomization("web", false));
    let patched = api
        .patch_status("web", &PatchParams::default(), &Patch::Merge(&status))
        .await;
    patched.expect("a status");
    cluster
}

/// Lets a user read Kustomizations of the namespace, and nothing else.
async fn allow_kustomizations(cluster: &Cluster, user: &str) {
    let rules = json!([{ "apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": ["get", "list", "watch"] }]);
    let metadata = json!({ "name": "reader", "namespace": NAMESPACE });
    let role = json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata, "rules": rules });
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": "reader" },
        "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": user }]
    });
    cluster.admin.apply(role).await;
    cluster.admin.apply(binding).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_shows_rows_names_and_formats() {
    let cluster = start().await;
    let get = |arguments: &[&str], code: i32, words: &[&str]| {
        cluster.check(&[&["get", "-n", NAMESPACE], arguments].concat(), code, words)
    };
    let rows = get(&["ks"], 0, &["NAME", "REVISION", "SUSPENDED", "READY", "AGE", "STATUS"]);
    assert!(
        rows.contains("Applied revision: main@sha1:8f3c1d0a\n") && !rows.contains(DIGEST),
        "{rows}"
    );
    assert!(!rows.contains('\u{1b}'), "no colours outside a terminal: {rows}");
    get(&["ks", "-o", "wide"], 0, &[DIGEST]);
    // One object is described, several are rows.
    get(&["ks/web"], 0, &["Ready True  ReconciliationSucceeded  for ", DIGEST]);
    let several = get(&["ks", "web", "payments"], 0, &["SUSPENDED"]);
    assert_eq!(several.lines().filter(|line| !line.is_empty()).count(), 3, "{several}");
    get(
        &["ks/web", "gitrepo/web"],
        0,
        &[
            "kustomizations.kustomize.toolkit.fluxcd.io\n",
            "gitrepositories.source.toolkit.fluxcd.io\n",
        ],
    );
    get(&["ks", "web", "none"], 1, &["SUSPENDED", "\"none\" not found"]);
    let bare = get(
        &["ks,gitrepo", "--no-headers"],
        0,
        &["kustomization/web", "gitrepository/web"],
    );
    assert!(!bare.contains("NAME") && !bare.contains("toolkit"), "{bare}");
    get(&["ks", "-l", "app=payments", "--no-headers"], 0, &["payments"]);
    get(
        &["all"],
        0,
        &[
            "kustomizations.kustomize.toolkit.fluxcd.io\n",
            "gitrepositories.source.toolkit.fluxcd.io\n",
        ],
    );
    get(
        &["ks", "-o", "custom-columns=NAME:.metadata.name,NONE:.none"],
        0,
        &["NAME       NONE\npayments   <none>\nweb        <none>"],
    );
    let text = get(
        &["ks", "web", "-o", "jsonpath={.spec.path} {.spec.dependsOn[*].name}"],
        0,
        &[],
    );
    assert_eq!(text.lines().next(), Some("./apps first second"), "{text}");
    get(
        &["ks", "web", "-o", "jsonpath={.spec.dependsOn[9]}"],
        2,
        &["array index out of bounds"],
    );
    get(&["ks", "-o", "jsonpth={.kind}"], 2, &["did you mean jsonpath?"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistyped_words_get_suggestions() {
    let cluster = start().await;
    let check = |arguments: &[&str], code: i32, words: &[&str]| {
        cluster.check(&[arguments, &["-n", NAMESPACE]].concat(), code, words)
    };
    check(&["get", "kustomizatoin"], 2, &["did you mean kustomization?"]);
    check(&["get", "ks/wbe"], 1, &["did you mean web?"]);
    check(&["tree", "ks/wbe"], 1, &["did you mean web?"]);
    check(&["who", "ks/wbe"], 1, &["did you mean web?"]);
    check(&["export", "ks/wbe"], 1, &["did you mean web?"]);
    check(&["who", "ks/web", ".spec.pth"], 1, &["did you mean .spec.path?"]);
    check(&["get", "--sellector", "a=b"], 2, &["--selector"]);
    check(&["gett"], 2, &["'get'"]);
    // A user who may not list objects learns no names.
    check(&["get", "ks/wbe", "--as", "stranger"], 3, &["forbidden"]);
    let status = check(
        &["who", "ks/web"],
        0,
        &[".spec.path", "of .status ", "left out", "--status"],
    );
    assert!(!status.contains(".status.lastAppliedRevision"), "{status}");
    check(&["who", "ks/web", "--status"], 0, &[".status.lastAppliedRevision"]);
    check(
        &["who", "ks/web", ".status.lastAppliedRevision"],
        0,
        &[".status.lastAppliedRevision"],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_act_as_the_named_user() {
    let cluster = start().await;
    allow_kustomizations(&cluster, "rea").await;
    let all = ["get", "all", "-n", NAMESPACE, "--as", "rea"];
    let output = cluster.check(
        &all,
        0,
        &[
            "payments",
            "you may not list surfaces, gitrepositories, ",
            "in namespace reading",
        ],
    );
    assert!(
        !output.contains("git.example.org") && !output.contains("error:"),
        "{output}"
    );
    assert_eq!(output.matches("you may not list").count(), 1, "{output}");
    cluster.check(
        &["get", "all", "-n", NAMESPACE, "--as", "stranger"],
        3,
        &["error:", "you may not list "],
    );
    cluster.check(
        &["get", "ks,gitrepo", "-n", NAMESPACE, "--as", "rea"],
        3,
        &["payments", "you may not list gitrepositories"],
    );
    // The flag replaces the user of a kubeconfig that impersonates another one.
    cluster.check_as("stranger", &["get", "ks", "-n", NAMESPACE], 3, &["you may not list"]);
    cluster.check_as(
        "stranger",
        &["get", "ks", "-n", NAMESPACE, "--as", "rea"],
        0,
        &["payments"],
    );
    cluster.check(
        &["get", "ks", "--as-group", "developers"],
        2,
        &["--as-group", "--as USER"],
    );
    let masters = ["--as", "stranger", "--as-group", "system:masters"];
    cluster.check(
        &[&["get", "ks", "-n", NAMESPACE], &masters[..]].concat(),
        0,
        &["payments"],
    );
    cluster.check(
        &["get", "ks", "--context", "nowhere"],
        2,
        &["the kubeconfig has no such context"],
    );
    cluster.check(&["get", "ks", "--request-timeout", "1x"], 2, &["such as 5s"]);
    cluster.check(
        &["get", "ks", "-n", NAMESPACE, "--request-timeout", "5m"],
        0,
        &["payments"],
    );
}

/// Returns the words that the shell offers for the last word of a command line.
fn complete(cluster: &Cluster, line: &[&str]) -> Vec<String> {
    let mut command = tenure(&[&["--"], line].concat());
    command
        .env("KUBECONFIG", &cluster.kubeconfig)
        .env("TENURE_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", (line.len() - 1).to_string())
        .env("_CLAP_IFS", "\n");
    let output = command.output().expect("run tenure");
    let offered = String::from_utf8_lossy(&output.stdout).into_owned();
    offered.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shell_completes_words_that_fit() {
    let cluster = start().await;
    let check = |line: &str, expected: &[&str]| {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(complete(&cluster, &words), expected, "{line}");
    };
    check("tenure get kust", &["kustomizations"]);
    check("tenure get ks,gitr", &["ks,gitrepositories"]);
    check("tenure get -n reading ks pay", &["payments"]);
    check("tenure get --namespace=reading ks/pay", &["ks/payments"]);
    check("tenure tree kust", &["kustomizations"]);
    check("tenure tree deploy", &[]);
    check("tenure get -n read", &["reading"]);
    check("tenure get -n reading --as stranger ks/pay", &[]);
    check("tenure get -o jsonpath-", &["jsonpath-as-json=", "jsonpath-file="]);

    // An owner may not list namespaces, and gets those of the own Tenant.
    let tenant = json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": "completed" },
        "spec": { "owners": [{ "kind": "User", "name": "ona" }] }
    });
    let rules = json!([{ "apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": ["get"], "resourceNames": ["completed"] }]);
    let metadata = json!({ "name": "reader-of-completed" });
    let role =
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": rules });
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "reader-of-completed" },
        "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": "ona" }]
    });
    for object in [&tenant, &role, &binding] {
        cluster.admin.apply(object.clone()).await;
    }
    let status = json!({ "status": { "namespaces": ["completed", "completed-dev"], "size": 2, "state": "Active" } });
    let patched = cluster.admin.api(&tenant);
    let patched = patched
        .patch_status("completed", &PatchParams::default(), &Patch::Merge(&status))
        .await;
    patched.expect("a status");
    let offered = tenure_testkit::eventually(tenure_testkit::SOON, || async {
        let offered = complete(&cluster, &["tenure", "get", "--as", "ona", "-n", "compl"]);
        match offered == ["completed", "completed-dev"] {
            true => Ok(()),
            false => Err(format!("{offered:?}")),
        }
    });
    offered.await.expect("namespaces of the Tenant");
    for object in [&binding, &role, &tenant] {
        cluster.admin.delete(object).await;
    }
}

/// Starts a command that watches, and returns its lines.
fn follow(cluster: &Cluster, arguments: &[&str]) -> (Up, std::sync::mpsc::Receiver<String>) {
    let mut command = tenure(arguments);
    command.env("KUBECONFIG", &cluster.kubeconfig).stdout(Stdio::piped());
    let mut child = command.spawn().expect("run tenure");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    (Up::wrap(child), receiver)
}

fn wait_for_line(lines: &std::sync::mpsc::Receiver<String>, words: &[&str]) {
    let mut seen = Vec::new();
    while let Ok(line) = lines.recv_timeout(tenure_testkit::SOON) {
        if words.iter().all(|word| line.contains(word)) {
            return;
        }
        seen.push(line);
    }
    panic!("no line with {words:?}: {seen:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_follow_several_kinds_and_events() {
    let cluster = start().await;
    let (_get, rows) = follow(&cluster, &["get", "ks,gitrepo", "-n", NAMESPACE, "-w"]);
    wait_for_line(&rows, &["kustomization/web", "main@sha1:8f3c1d0a"]);
    wait_for_line(&rows, &["gitrepository/web"]);
    let (_names, names) = follow(&cluster, &["get", "ks", "-n", NAMESPACE, "-w", "-o", "name"]);
    wait_for_line(&names, &["kustomization.kustomize.toolkit.fluxcd.io/web"]);
    let columns = "custom-columns=NAME:.metadata.name,SUSPENDED:.spec.suspend";
    let (_columns, columns) = follow(&cluster, &["get", "ks", "-n", NAMESPACE, "-w", "-o", columns]);
    wait_for_line(&columns, &["NAME", "SUSPENDED"]);
    wait_for_line(&columns, &["web", "false"]);
    cluster.admin.apply(kustomization("payments", false)).await;
    wait_for_line(&names, &["kustomization.kustomize.toolkit.fluxcd.io/payments"]);
    wait_for_line(&columns, &["payments", "false"]);
    wait_for_line(&rows, &["kustomization/payments", "False"]);
    cluster.admin.delete(&kustomization("payments", false)).await;
    wait_for_line(&rows, &["kustomization/payments", "(deleted)"]);

    let event = |name: &str, message: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": name, "namespace": NAMESPACE },
            "involvedObject": { "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "web", "namespace": NAMESPACE },
            "type": "Normal", "reason": "Tested", "message": message, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"
        })
    };
    cluster.admin.apply(event("first", "the first one")).await;
    let (_events, lines) = follow(&cluster, &["events", "--for", "ks/web", "-n", NAMESPACE, "-w"]);
    wait_for_line(&lines, &["kustomization/web", "the first one"]);
    cluster.admin.apply(event("second", "the second one")).await;
    wait_for_line(&lines, &["kustomization/web", "the second one"]);
}

/// Text and columns that a user describes are those of kubectl, byte by byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn formats_are_those_of_kubectl() {
    if !has_program("kubectl") {
        println!("skipped: there is no kubectl on PATH");
        return;
    }
    let cluster = start().await;
    let mut wrong = Vec::new();
    for (objects, format) in [
        (&["kustomizations"][..], "jsonpath={.items[*].metadata.name}"),
        (
            &["kustomizations"],
            r#"jsonpath={range .items[*]}{.metadata.name}{"\t"}{.spec.suspend}{"\n"}{end}"#,
        ),
        (
            &["kustomizations"],
            "jsonpath={.items[?(@.spec.suspend==true)].metadata.name}",
        ),
        (
            &["kustomizations"],
            r#"jsonpath={.items[*].status.conditions[?(@.type=="Ready")].message}"#,
        ),
        (&["kustomizations"], "jsonpath={.kind} {.apiVersion} {.metadata}"),
        (
            &["kustomizations"],
            "jsonpath={.items[*]['metadata.name', 'spec.path']}",
        ),
        (&["kustomizations"], "jsonpath-as-json={.items[*].spec}"),
        (
            &["kustomizations"],
            "custom-columns=NAME:.metadata.name,LABELS:.metadata.labels,DEPENDS:.spec.dependsOn[*].name",
        ),
        (
            &["kustomizations"],
            "custom-columns=SPEC:.spec,READY:.status.conditions[0].status",
        ),
        (
            &["kustomizations", "web"],
            "jsonpath={.metadata.labels} {.spec.dependsOn[-1:].name}",
        ),
        (&["kustomizations", "web"], "jsonpath={.spec}"),
        (
            &["kustomizations", "web", "payments"],
            "jsonpath={.items[*].metadata.name}",
        ),
        (
            &["kustomizations/web", "gitrepositories/web"],
            "jsonpath={.items[*].kind}",
        ),
        (
            &["kustomizations", "-l", "app=web"],
            "jsonpath={.items[*].metadata.name}",
        ),
        (
            &["kustomizations", "-l", "app=web", "--no-headers"],
            "custom-columns=NAME:.metadata.name",
        ),
    ] {
        let arguments = [&["get", "-n", NAMESPACE, "-o", format], objects].concat();
        let run = |mut command: Command| {
            let output = command.args(&arguments).env("KUBECONFIG", &cluster.kubeconfig).output();
            output.expect("a program")
        };
        let mut kubectl = make_command(std::path::Path::new("kubectl"));
        kubectl.env("HOME", cluster.data("home"));
        let (expected, got) = (run(kubectl), run(tenure(&[])));
        if expected.stdout != got.stdout || expected.status.code() != got.status.code() {
            wrong.push(format!(
                "{arguments:?}\nkubectl: {}\ntenure: {}",
                describe(&expected),
                describe(&got)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
