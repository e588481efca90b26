//! Every command with the rights of an owner, of a viewer and of a user without rights: a table of exit codes. No command needs more rights than its question needs,
//! and a command that can't answer names the missing right.

use std::path::PathBuf;

use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options};
use tenure_testkit::{SOON, eventually};

use crate::pages::{has_program, read_page, run_script, shell_blocks};
use crate::process::tenure;
use crate::world::{Admin, Cluster, Controllers, describe, manifest, name_object, path};

const TENANT: &str = "table-blue";
const GROUP: &str = "rbac.authorization.k8s.io";

/// A command, its exit codes for the owner, the viewer and the user without rights, and words of the owner's output.
type Row<'a> = (&'a [&'a str], [i32; 3], &'a [&'a str]);

fn surface(url: &str) -> Value {
    json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": { "name": "app", "namespace": TENANT },
        "spec": { "sources": [{ "name": "app", "url": url, "interval": "1h", "targetNamespace": TENANT }] }
    })
}

fn is_ready(found: &Value) -> bool {
    let conditions = found["status"]["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        let mut ready = conditions.iter().filter(|condition| condition["type"] == "Ready");
        ready.any(|ready| ready["status"] == "True")
    })
}

/// Writes a kubeconfig of another user, whose context is in the tenant's namespace.
fn write_kubeconfig(cluster: &Cluster, user: &str) -> PathBuf {
    let file = cluster.write_kubeconfig_as(user, &[]);
    let mut kubeconfig = kube::config::Kubeconfig::read_from(&file).expect("kubeconfig");
    for named in &mut kubeconfig.contexts {
        named.context.as_mut().expect("a context").namespace = Some(TENANT.to_owned());
    }
    std::fs::write(&file, serde_json::to_vec(&kubeconfig).expect("JSON")).expect("a kubeconfig");
    file
}

/// Applies an object as a user, as soon as the user has the right.
async fn apply_as(user: &Admin, object: &Value) {
    let parameters = kube::api::PatchParams::apply("kubectl").force();
    let name = object["metadata"]["name"].as_str().expect("a name");
    eventually(SOON, || async {
        let patch = kube::api::Patch::Apply(object);
        user.api(object).patch(name, &parameters, &patch).await.map(drop)
    })
    .await
    .expect("applied");
}

/// A cluster with policies, running controllers, a Git server, and a tenant of an owner and a viewer.
struct Scene {
    cluster: Cluster,
    git: GitServer,
    _controllers: Controllers,
    _git_folder: tempfile::TempDir,
}

fn user(name: &str) -> Value {
    json!({ "apiGroup": GROUP, "kind": "User", "name": name })
}

impl Scene {
    async fn set() -> Self {
        let cluster = Cluster::start_own_with("--policies", "applied ClusterRole tenure-policies").await;
        let git_folder = tempfile::tempdir().unwrap();
        let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
        let allowed = format!("http://{}", git.http_address());
        let flags = ["--policies", "--allow-source", &allowed];
        let controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &flags);
        cluster.wait_until_in_force().await;
        let tenant = json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": TENANT },
            "spec": {
                "owners": [{ "kind": "User", "name": "alice" }],
                "additionalRoleBindings": [{ "clusterRoleName": "tenure-viewer", "subjects": [user("vera")] }]
            }
        });
        cluster.admin.apply(tenant.clone()).await;
        cluster.admin.wait_for(tenant, is_ready).await;
        Self {
            cluster,
            git,
            _controllers: controllers,
            _git_folder: git_folder,
        }
    }
}

/// The page runs as written, with the owner's kubeconfig alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_works_from_a_kubeconfig_alone() {
    if !has_program("kubectl") {
        println!("skipped: there is no kubectl on PATH");
        return;
    }
    let scene = Scene::set().await;
    scene.git.create("app").await.unwrap();
    let page = read_page("you-are-a-tenant.md");
    assert!(page.contains("`team-a-gitops`"));
    let script = shell_blocks(&page).replace("team-a", TENANT);
    let kubeconfig = write_kubeconfig(&scene.cluster, "alice");
    let (folder, url) = (scene.cluster.data("page"), scene.git.http_url("app"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let ran = tokio::task::spawn_blocking(move || {
        run_script(&folder, &script, |command| {
            command.env("KUBECONFIG", &kubeconfig).env("REPOSITORY", &url);
            for role in ["AUTHOR", "COMMITTER"] {
                command.env(format!("GIT_{role}_NAME"), "Alice");
                command.env(format!("GIT_{role}_EMAIL"), "alice@example.org");
            }
        })
    });
    let output = ran.await.expect("the page runs");
    for words in [
        "tenants.capsule.clastix.io",
        "surface.tenure.dev/app condition met",
        "Deployment/team-a/web",
        "deploy/web.yaml:1",
        "\n2\n",
        "ReconciliationFailed",
        "suspended",
        "resumed",
    ] {
        let words = words.replace("team-a", TENANT);
        assert!(output.contains(&words), "no {words:?} in:\n{output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_command_needs_only_rights_of_its_question() {
    let Scene {
        cluster,
        git,
        _controllers,
        _git_folder,
    } = Scene::set().await;
    let repository = git.create("app").await.unwrap();
    repository.commit([("app.yaml", manifest(1))], "first").await.unwrap();
    // The owner makes her Surface herself.
    let alice = cluster.become_user("alice", &[]).await;
    let surface = surface(&git.http_url("app"));
    apply_as(&alice, &surface).await;
    cluster.admin.wait_for(surface, is_ready).await;
    let second = git.create("second").await.unwrap();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: second, namespace: table-blue}\n";
    second.commit([("map.yaml", map.to_owned())], "first").await.unwrap();
    let second = git.http_url("second");
    // The embedded control plane has no Pods whose logs could be read, and says so to everyone.
    let version = http::Request::get("/version").body(Vec::new()).unwrap();
    let version: Value = cluster.admin.0.request(version).await.unwrap();
    let is_embedded = version["gitVersion"].as_str().unwrap().contains("+tenure");
    let (logs, log_words): ([i32; 3], &[&str]) = match is_embedded {
        true => ([1, 1, 1], &["embedded control plane"]),
        false => (
            [3, 3, 3],
            &["you may not read the controllers' Pods", "tenure events --for"],
        ),
    };
    let folder = cluster.data("files");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("app.yaml"), manifest(2)).expect("a file");
    std::fs::write(folder.join("kustomization.yaml"), "resources: [app.yaml]\n").expect("a file");
    let files = path(&folder);

    let kubeconfigs = ["alice", "vera", "mallory"].map(|user| write_kubeconfig(&cluster, user));
    let may_impersonate = "verb impersonate on serviceaccounts, resourceNames [table-blue-gitops]";
    let table: &[Row<'_>] = &[
        (&["get"], [0, 0, 3], &["tenants.capsule.clastix.io", "app-app"]),
        (&["get", "all"], [0, 0, 3], &["app-app", "surfaces.tenure.dev"]),
        (
            &["get", "ks", "-o", "jsonpath={.items[*].metadata.name}"],
            [0, 0, 3],
            &["app-app"],
        ),
        (&["get", "ks/app-apq"], [1, 1, 3], &["did you mean app-app?"]),
        (&["get", "ks,surfaces,gitrepo"], [0, 0, 3], &["app-app"]),
        (&["get", "surface/app"], [0, 0, 3], &["Ready True"]),
        (&["get", "tenants"], [0, 3, 3], &[TENANT]),
        (&["get", "-A"], [0, 3, 3], &[TENANT]),
        (&["events"], [0, 0, 3], &["ReconciliationSucceeded"]),
        (&["events", "--for", "ks/app-app"], [0, 0, 3], &["app-app"]),
        (
            &["tree", "surface/app"],
            [0, 0, 3],
            &["ConfigMap/table-blue/greeting  Ready"],
        ),
        (
            &["trace", "configmap/greeting"],
            [0, 0, 3],
            &["belongs to Tenant table-blue"],
        ),
        (
            &["who", "configmap/greeting", ".data.number"],
            [0, 0, 3],
            &["system:serviceaccount:table-blue:table-blue-gitops"],
        ),
        (&["audit"], [3, 3, 3], &["you may not list ", "secrets"]),
        (&["export", "surface/app"], [0, 0, 3], &["kind: Surface"]),
        (&["export", "--all"], [0, 3, 3], &["kind: Surface", "kind: Tenant"]),
        (
            &["export", "surface/app", "--with-credentials"],
            [0, 0, 3],
            &["kind: Surface"],
        ),
        (
            &["reconcile", "surface/app"],
            [0, 3, 3],
            &["► annotating Surface/table-blue/app", "✔ Surface/table-blue/app"],
        ),
        (
            &["reconcile", "ks/app-app", "--with-source"],
            [0, 3, 3],
            &[
                "◎ waiting for GitRepository/table-blue/app-app to be fetched",
                "✔ Kustomization/table-blue/app-app: applied revision",
            ],
        ),
        (
            &["reconcile", "ks", "--all"],
            [0, 3, 3],
            &["✔ Kustomization/table-blue/app-app: applied revision"],
        ),
        (
            &["reconcile", "surface/app", "gitrepo/app-app"],
            [0, 3, 3],
            &[
                "✔ Surface/table-blue/app",
                "✔ GitRepository/table-blue/app-app: fetched",
            ],
        ),
        (
            &["create", "surface", "second", "--url", &second, "--timeout", "120"],
            [0, 3, 3],
            &["Surface/table-blue/second created", "✔ Surface/table-blue/second: "],
        ),
        (
            &["create", "surface", "second", "--url", &second, "--export"],
            [0, 0, 0],
            &["kind: Surface"],
        ),
        (
            &[
                "create",
                "ks",
                "other",
                "--source",
                "app-app",
                "--service-account",
                "none",
            ],
            [3, 3, 3],
            &["flux-account"],
        ),
        (
            &["create", "tenant", "other", "--user", "alice"],
            [3, 3, 3],
            &["tenants.capsule.clastix.io"],
        ),
        (
            &["delete", "surface/second"],
            [2, 2, 3],
            &[
                "Kustomization second-second goes, too: 1 object stays in the cluster",
                "--silent",
            ],
        ),
        (&["delete", "surface/none", "--silent"], [1, 1, 3], &["not found"]),
        (&["logs", "ks/app-app"], logs, log_words),
        (
            &["check", "--pre"],
            [1, 1, 1],
            &["✗ you may not", "an administrator of the cluster runs tenure install"],
        ),
        (&["suspend", "surface/app"], [0, 3, 3], &["suspended"]),
        (&["resume", "surface/app"], [0, 3, 3], &["resumed"]),
        (&["build", files], [0, 0, 0], &["greeting"]),
        (&["diff", "surface/app", "--path", files], [3, 3, 3], &[may_impersonate]),
        (&["check", files, "--surface", "app"], [3, 3, 3], &[may_impersonate]),
        (&["check", files, "--tenant", TENANT], [3, 3, 3], &[may_impersonate]),
        (&["reach", "tenant", TENANT], [3, 3, 3], &["tenants.capsule.clastix.io"]),
        (&["access", "list"], [3, 3, 3], &["tenure get fluxaccesses"]),
        (&["access", "show", "none"], [3, 3, 3], &["fluxaccessrequests"]),
        (
            &["access", "why", "table-blue/none"],
            [3, 3, 3],
            &["approvals are unknown"],
        ),
        (&["access", "audit"], [0, 0, 3], &[]),
        (&["adopt", TENANT, "default"], [3, 3, 3], &[]),
        (&["customizer", "disable"], [3, 3, 3], &[]),
        (
            &["install", "--without-deployment", "--dry-run"],
            [3, 3, 3],
            &["forbidden"],
        ),
        (&["uninstall", "--dry-run"], [3, 3, 3], &[]),
        (&["version"], [0, 0, 0], &[]),
    ];
    let mut wrong = Vec::new();
    for (arguments, codes, words) in table {
        for (index, (kubeconfig, code)) in kubeconfigs.iter().zip(codes).enumerate() {
            let output = tenure(arguments).env("KUBECONFIG", kubeconfig).output().expect("run");
            let text = describe(&output);
            let lacks = words.iter().find(|word| index == 0 && !text.contains(**word));
            let is_noisy = text.lines().filter(|line| line.starts_with("error:")).count() > 12;
            if output.status.code() != Some(*code) || lacks.is_some() || is_noisy || text.contains("panicked") {
                let who = ["alice", "vera", "mallory"][index];
                wrong.push(format!(
                    "{who}: tenure {}: {:?} and not {code}, without {lacks:?}:\n{text}",
                    arguments.join(" "),
                    output.status.code()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // Only users that may delete an object delete it.
    let [owner, viewer, _] = &kubeconfigs;
    let delete = |kubeconfig: &PathBuf| {
        let mut command = tenure(&["delete", "surface/second", "--silent"]);
        describe(&command.env("KUBECONFIG", kubeconfig).output().expect("run"))
    };
    let refused = delete(viewer);
    assert!(refused.contains("Forbidden"), "{refused}");
    let deleted = delete(owner);
    assert!(deleted.contains("✔ Surface/table-blue/second"), "{deleted}");
    let mut gone = self::surface("https://git.example.org/second");
    gone["metadata"]["name"] = json!("second");
    cluster.admin.wait_until_gone(&gone).await;
    // Another writer's fields stay, and the message names the writer.
    let other = ["create", "surface", "app", "--url", "https://git.example.org/other"];
    let taken = tenure(&other).env("KUBECONFIG", owner).output().expect("run");
    let output = describe(&taken);
    assert!(taken.status.code() == Some(1) && output.contains("kubectl"), "{output}");

    // With the right that the messages name, and no right to list Tenants, an owner sees what her commit would do.
    let rules = json!([{ "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"], "resourceNames": ["table-blue-gitops"] }]);
    let role = json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": { "name": "checks", "namespace": TENANT }, "rules": rules });
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding", "metadata": { "name": "checks", "namespace": TENANT },
        "roleRef": { "apiGroup": GROUP, "kind": "Role", "name": "checks" }, "subjects": [user("alice")]
    });
    cluster.admin.apply(role).await;
    cluster.admin.apply(binding).await;
    for (arguments, code, words) in [
        (&["diff", "surface/app", "--path", files][..], 1, "+  number: \"2\""),
        (
            &["check", files, "--surface", "app"][..],
            0,
            "1 object checked as system:serviceaccount:table-blue",
        ),
        (&["check", files, "--tenant", TENANT][..], 0, "0 errors"),
    ] {
        let answered = eventually(SOON, || async {
            let output = tenure(arguments).env("KUBECONFIG", owner).output().expect("run");
            let text = describe(&output);
            match output.status.code() == Some(code) && text.contains(words) {
                true => Ok(()),
                false => Err(format!("{arguments:?}: {text}")),
            }
        });
        answered.await.expect("an answer");
    }
    // An administrator makes all users with Kubernetes' role `edit` authors. Another installation leaves that.
    let author = name_object(&format!("{GROUP}/v1"), "ClusterRole", "", "tenure-author");
    let aggregates = json!({ "metadata": { "labels": { "rbac.authorization.k8s.io/aggregate-to-edit": "true" } } });
    let patch = kube::api::Patch::Merge(&aggregates);
    cluster
        .admin
        .api(&author)
        .patch("tenure-author", &Default::default(), &patch)
        .await
        .expect("labelled");
    cluster.check(
        &["install", "--without-deployment", "--policies", "--dry-run"],
        0,
        &["0 objects would be created and 0 changed"],
    );
    cluster.check(&["install", "--without-deployment", "--policies"], 0, &[]);
    let is_labelled =
        |found: &Value| found["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true";
    cluster.admin.wait_for(author, is_labelled).await;
}
