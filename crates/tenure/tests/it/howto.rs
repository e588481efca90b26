//! How-tos that are tested as written: their shell blocks run one after the other, each page in a folder of its own.

use std::path::Path;
use std::process::Command;

use tenure_forge_server::{ForgeServer, Kind, Owner};
use tenure_git_server::{GitServer, Options, SshOptions};
use tenure_test_ports::reserve_port;
use tenure_testkit::{SOON, eventually};

use crate::pages::{has_program, read_page, run_script, shell_blocks};

/// Writes a kubeconfig for another user, made from an administrator's.
fn write_kubeconfig(admins: &Path, theirs: &Path, user: &str) {
    let mut config = kube::config::Kubeconfig::read_from(admins).unwrap();
    for named in &mut config.auth_infos {
        named.auth_info.as_mut().unwrap().impersonate = Some(user.to_owned());
    }
    std::fs::write(theirs, serde_json::to_string(&config).unwrap()).unwrap();
}

#[test]
fn the_first_tenant_from_nothing() {
    if !has_program("kubectl") {
        println!("skipped: there is no kubectl on PATH");
        return;
    }
    // The script gets free ports; everything else runs as written.
    let port = reserve_port();
    let script = shell_blocks(&read_page("first-tenant.md"))
        .replace("tenure up ", &format!("tenure up --port 0 --repository-port {port} "))
        .replace("127.0.0.1:6480", &format!("127.0.0.1:{port}"));
    assert!(script.contains("kubectl delete tenant/team-a"), "{script}");
    let folder = tempfile::tempdir().unwrap();
    let output = run_script(folder.path(), &script, |_| ());
    for words in [
        "app-app",
        "surface.tenure.dev/app",
        "✔ Kustomization/team-a/app-app: applied revision main@sha1:",
        ".spec.replicas",
        "\n2\n",
    ] {
        assert!(output.contains(words), "no {words:?} in:\n{output}");
    }
}

/// An administrator makes a kubeconfig with a token. The owner deploys with it, and sees file and line without a folder of artifacts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_gets_a_kubeconfig() {
    if !has_program("kubectl") {
        println!("skipped: there is no kubectl on PATH");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(folder.path().join("git"), Options::default())
        .await
        .unwrap();
    git.create("app").await.unwrap();
    let data = folder.path().join("cluster");
    let artifacts = format!("127.0.0.1:{}", reserve_port());
    let allowed = format!("http://{}", git.http_address());
    let flags = ["--artifact-address", &artifacts, "--allow-source", &allowed];
    let _up = crate::process::Up::start(&data, &flags);
    // The owner's page follows, up to the result of her first Surface.
    let owners = read_page("you-are-a-tenant.md");
    let owners = split_shell_blocks(&owners)[..4].concat();
    assert!(owners.ends_with("kubectl get deployments,pods\n"), "{owners}");
    let script = shell_blocks(&read_page("give-a-tenant-a-kubeconfig.md")) + &owners;
    let output = run_script(folder.path(), &script, |command| {
        command
            .env("KUBECONFIG", data.join("kubeconfig"))
            .env("REPOSITORY", git.http_url("app"));
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "Alice");
            command.env(format!("GIT_{role}_EMAIL"), "alice@example.org");
        }
    });
    for words in [
        "system:serviceaccount:people:alice",
        "tenants.capsule.clastix.io",
        "yes\n",
        "no\n",
        "surface.tenure.dev/app condition met",
        "deploy/web.yaml:5",
    ] {
        assert!(output.contains(words), "no {words:?} in:\n{output}");
    }
    // The owner's kubeconfig names the server that the administrator's names.
    let kubeconfig = kube::config::Kubeconfig::read_from(folder.path().join("alice.kubeconfig")).unwrap();
    let extensions = kubeconfig.clusters[0].cluster.clone().unwrap().extensions.unwrap();
    assert_eq!(extensions[0].name, "tenure.dev/artifacts");
    assert_eq!(extensions[0].extension["server"], format!("http://{artifacts}"));
}

/// Runs both pages one after the other, as a reader would try them: installation, use and removal. The cluster exists already, and its image can't be pulled, since no
/// node runs.
#[test]
fn a_cluster_that_is_there_already() {
    if !has_program("kubectl") || !has_program("curl") {
        println!("skipped: there is no kubectl or no curl on PATH");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("cluster");
    let _up = crate::process::Up::start(&data, &["--bare"]);
    let script = shell_blocks(&read_page("another-cluster.md")) + &shell_blocks(&read_page("uninstall.md"));
    let script = script.replace("127.0.0.1:9440", &format!("127.0.0.1:{}", reserve_port()));
    for words in ["tenure install --image", "tenure run", "tenure uninstall --yes"] {
        assert!(script.contains(words), "{words}: {script}");
    }
    let digest = "a".repeat(64);
    let output = run_script(folder.path(), &script, |command| {
        command
            .env("IMAGE", format!("registry.example/tenure:0.1.0@sha256:{digest}"))
            .env("KUBECONFIG", data.join("kubeconfig"));
    });
    for words in [
        "applied Deployment tenure-controller",
        "controllers ",
        "ClusterRole tenure-controller: deleted",
        "Namespace tenure-system: deleted",
    ] {
        assert!(output.contains(words), "no {words:?} in:\n{output}");
    }
    let exported = std::fs::read_to_string(folder.path().join("tenure.yaml")).unwrap();
    assert!(exported.contains("--allow-source"), "{exported}");
}

#[test]
fn namespaces_that_are_there_already_become_a_tenants() {
    if !has_program("kubectl") {
        println!("skipped: there is no kubectl on PATH");
        return;
    }
    let script = shell_blocks(&read_page("adopt-namespaces.md")).replace("tenure up ", "tenure up --port 0 ");
    assert!(script.contains("kubectl delete tenant/orchard"), "{script}");
    let folder = tempfile::tempdir().unwrap();
    let output = run_script(folder.path(), &script, |_| ());
    for words in [
        "namespace/apples: labelled for it, recorded (dry run)",
        "namespace kube-system can't become tenant orchard's",
        "namespace default can't become tenant orchard's",
        "namespace/apples: labelled for it, recorded\n",
        r#"["apples","orchard"]"#,
        "the namespaces in status.spaces are the Tenant's",
        "namespaces \"apples\" not found",
    ] {
        assert!(output.contains(words), "no {words:?} in:\n{output}");
    }
}

#[tokio::test]
async fn the_owner_of_a_project_answers_who_asks() {
    if !has_program("kubectl") {
        println!("skipped: there is no kubectl on PATH");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("cluster");
    let _up = crate::process::Up::start(&data, &["--bare"]);
    let kubeconfig = data.join("kubeconfig");
    let installed = crate::process::tenure(&["install", "--without-deployment"])
        .env("KUBECONFIG", &kubeconfig)
        .output()
        .unwrap();
    assert!(installed.status.success(), "{installed:?}");
    for object in tenure_admission_rules::policy::list_policies(&tenure_tenancy::Settings::default()) {
        let plural = match object["kind"].as_str().unwrap() {
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
            _ => "validatingadmissionpolicybindings",
        };
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}");
        crate::commands::apply(&data, object.clone(), &path).await;
    }
    let mut spec: tenure_api::access::FluxAccessRequestSpec = serde_json::from_value(serde_json::json!({
        "provider": "work", "target": {"scope": "project", "id": 42, "path": "group-1/a"}, "role": "read_repository", "rotate": "30d",
        "secretName": "gitlab-flux-token", "namespaces": ["team-a", "new-*"], "serviceAccounts": ["flux"],
        "askedIn": {"kind": "FluxAccess", "namespace": "team-a", "name": "apps"}, "requestedBy": "alice", "clusterUid": "c0ffee00-1", "specHash": ""
    }))
    .unwrap();
    spec.spec_hash = tenure_git_access::request::hash_spec(&spec);
    let name = tenure_git_access::request::name_request(&spec);
    let request = serde_json::json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccessRequest",
        "metadata": {"name": name, "namespace": "tenure-system"}, "spec": spec});
    let path = format!("/apis/tenure.dev/v1alpha1/namespaces/tenure-system/fluxaccessrequests/{name}");
    crate::commands::apply(&data, request, &path).await;
    // The owner's kubeconfig.
    write_kubeconfig(&kubeconfig, &folder.path().join("olga.kubeconfig"), "olga");
    let output = run_script(
        folder.path(),
        &shell_blocks(&read_page("answer-access-requests.md")),
        |command| {
            command.env("KUBECONFIG", &kubeconfig);
        },
    );
    for words in [
        "yes\n",
        "Pending",
        "asked by     alice, in FluxAccess team-a/apps",
        ": approved",
        "Approved",
        "ordered      all namespaces by olga",
        "as it has leaked: a laptop was stolen",
        ": deleted",
        "not delivered",
        ": denied",
        "denied\n",
    ] {
        assert!(output.contains(words), "no {words:?} in:\n{output}");
    }
}

/// The page runs from the host's name to the end of the credential, with a stand-in for GitLab and a person who answers with her own kubeconfig.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_to_a_private_project_at_a_host() {
    if !has_program("kubectl") {
        println!("skipped: there is no kubectl on PATH");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let forge = ForgeServer::start(folder.path().join("host"), Kind::Gitlab)
        .await
        .unwrap();
    forge.add_group("group-1");
    let project = forge.add_project("group-1/app").await.unwrap();
    forge
        .git()
        .repository("group-1/app")
        .unwrap()
        .commit([("a.yaml", "")], "first")
        .await
        .unwrap();
    let bot = forge.add_person("bot");
    forge.set_level(bot, Owner::Project(project), 40);
    let token = forge.authorise(bot, &["api"], None);
    let page = read_page("access-to-a-git-host.md")
        .replace("https://gitlab.example.org", forge.url())
        .replace("work-42", &format!("work-{project}"));
    // The agent's configuration from the page.
    let configuration = page
        .split("```yaml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    let git = GitServer::start(folder.path().join("git"), Options::default())
        .await
        .unwrap();
    let agents = git.create("agents").await.unwrap();
    agents
        .commit([(".gitlab/agents/prod/config.yaml", configuration)], "prod asks")
        .await
        .unwrap();
    let data = folder.path().join("cluster");
    let sources = [
        forge.url().to_owned(),
        format!("http://{}", forge.git().http_address()),
        format!("http://{}", git.http_address()),
    ];
    let flags: Vec<&str> = sources.iter().flat_map(|source| ["--allow-source", source]).collect();
    let _up = crate::process::Up::start(&data, &flags);
    let kubeconfig = data.join("kubeconfig");
    write_kubeconfig(&kubeconfig, &folder.path().join("alice.kubeconfig"), "alice");
    let before = format!(
        "kubectl create namespace team-a\nkubectl apply -f - <<'YAML'\napiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\n\
         metadata: {{name: agents, namespace: tenure-system}}\nspec: {{url: {}, interval: 1m, ref: {{branch: main}}}}\nYAML\n",
        git.http_url("agents")
    );
    let output = run_script(folder.path(), &(before + &shell_blocks(&page)), |command| {
        command.env("KUBECONFIG", &kubeconfig).env("GITLAB_TOKEN", &token);
    });
    for words in [
        "accessprovider.tenure.dev/work condition met",
        "group-1/app",
        "Pending",
        ": approved",
        "condition met",
        ": deleted",
    ] {
        assert!(output.contains(words), "no {words:?} in:\n{output}");
    }
    assert!(!output.contains(&token), "{output}");
    let none_lives = eventually(SOON, || async {
        match forge.live() {
            live if live.is_empty() => Ok(()),
            live => Err(format!("{live:?}")),
        }
    });
    none_lives.await.unwrap();
}

/// The page runs with the repository from the docs: the customizer in both profiles, off, on and removed.
#[test]
fn the_platform_is_tuned_from_a_repository() {
    if !has_program("kubectl") {
        println!("skipped: there is no kubectl on PATH");
        return;
    }
    let port = reserve_port();
    let script = shell_blocks(&read_page("customize-the-platform.md"))
        .replace("tenure up ", &format!("tenure up --port 0 --repository-port {port} "))
        .replace("127.0.0.1:6480", &format!("127.0.0.1:{port}"));
    assert!(script.contains("tenure customizer uninstall"), "{script}");
    let folder = tempfile::tempdir().unwrap();
    let repository = format!("{}/../../docs/reference-repository", env!("CARGO_MANIFEST_DIR"));
    let copied = Command::new("cp")
        .args(["-r", &repository])
        .arg(folder.path().join("platform"))
        .status();
    assert!(copied.unwrap().success());
    let output = run_script(folder.path(), &script, |_| ());
    for words in [
        "applied Surface customizer",
        "\n30\n30d\n",
        "can't be a namespace of the customizer",
        "RoleBinding customizer in somebodys exists already, and was not created for the customizer",
        "deleted RoleBinding customizer in extra",
        "rolebinding.rbac.authorization.k8s.io/customizer",
        "--url <URL>",
        "suspended: true",
        "deleted ClusterRole tenure-customizer",
        "packagevalues.cozystack.io/cozystack.linstor",
        "namespace cozy-customizer stays",
    ] {
        assert!(output.contains(words), "no {words:?} in:\n{output}");
    }
}

/// Runs a page on a control plane of its own, with this test's clients and ports. Returns the output; `None` if a program is missing.
fn run_on_a_cluster(page: &str) -> Option<String> {
    if !has_program("kubectl") || !has_program("curl") {
        println!("skipped: there is no kubectl or no curl on PATH");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("cluster");
    let _up = crate::process::Up::start(&data, &["--bare"]);
    let script = shell_blocks(&read_page(page))
        .replace("127.0.0.1:9440", &format!("127.0.0.1:{}", reserve_port()))
        .replace("127.0.0.1:9443", &format!("127.0.0.1:{}", reserve_port()));
    Some(run_script(folder.path(), &script, |command| {
        command.env("KUBECONFIG", data.join("kubeconfig"));
    }))
}

/// The page runs as written: the webhooks are installed, fail, recover and are removed.
#[test]
fn admission_webhooks_on_a_cluster_that_has_tenants() {
    let Some(output) = run_on_a_cluster("admission-webhooks.md") else {
        return;
    };
    for words in [
        "namespace/orchard-dev created",
        "capsule.clastix.io/tenant=orchard",
        "RBAC comes first",
        "waits for the webhook",
        "failed calling webhook",
        "namespace/quarry created",
        "configmap/goes-on created",
        "namespace/orchard-late created",
        "Namespace tenure-system: deleted",
    ] {
        assert!(output.contains(words), "no {words:?} in:\n{output}");
    }
}

/// The page runs as written: policies come into force, hold without running controllers, recover and are removed.
#[test]
fn policies_that_hold_while_nobody_of_tenures_runs() {
    let Some(output) = run_on_a_cluster("admission-policies.md") else {
        return;
    };
    for words in [
        "enforcement.tenure.dev/tenure condition met",
        "can't belong to a tenant",
        "no administrator gives that away, either",
        "configmap/goes-on created",
        "Tenant orchard is cordoned",
        "refused while nobody runs",
        "tenure-cordoned was missing",
        "Ignore\n",
        "Namespace tenure-system: deleted",
    ] {
        assert!(output.contains(words), "no {words:?} in:\n{output}");
    }
}

/// Returns the shell blocks of a page one by one, for a page on which the reader acts elsewhere between them.
fn split_shell_blocks(page: &str) -> Vec<&str> {
    let blocks = page.split("```sh\n").skip(1);
    blocks.filter_map(|rest| rest.split("```").next()).collect()
}

/// Between the steps of the page, the reader adds the printed public half to the repository.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deploy_key_for_a_private_repository() {
    if !has_program("kubectl") {
        println!("skipped: there is no kubectl on PATH");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        ssh: Some(SshOptions::loopback(Vec::new())),
        ..Options::default()
    };
    let git = GitServer::start(folder.path().join("git"), options).await.unwrap();
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fetched, namespace: team-a}\n";
    let repository = git.create("app").await.unwrap();
    repository.commit([("a.yaml", manifest)], "first").await.unwrap();
    let data = folder.path().join("cluster");
    let endpoint = format!("ssh://{}", git.ssh_address().unwrap());
    let _up = crate::process::Up::start(&data, &["--allow-source", &endpoint]);
    let page =
        read_page("deploy-keys.md").replace("ssh://git@git.example/team-a/app.git", &git.ssh_url("app").unwrap());
    let blocks = split_shell_blocks(&page);
    let [bind, ask, show, fetch, renew] = blocks.as_slice() else {
        panic!("{blocks:#?}");
    };
    let hosts = ask
        .lines()
        .find(|line| line.contains("git.example ssh-ed25519"))
        .unwrap();
    let ask = ask.replace(hosts.trim(), git.known_hosts().unwrap().trim());
    let run = |script: &str| {
        run_script(folder.path(), script, |command| {
            command.env("KUBECONFIG", data.join("kubeconfig"));
        })
    };
    let tenant = "kubectl apply -f - <<'YAML'\napiVersion: capsule.clastix.io/v1beta2\nkind: Tenant\nmetadata: {name: team-a}\n\
                  spec: {owners: [{kind: User, name: alice}]}\nYAML\nkubectl wait tenant/team-a --for=condition=Ready --timeout=60s\n";
    let public = |output: &str| {
        output
            .lines()
            .find(|line| line.starts_with("ssh-ed25519 "))
            .unwrap()
            .to_owned()
    };
    let first = public(&run(&[tenant, bind, &ask, show].join("\n")));
    git.authorize(&first).unwrap();
    let output = run(&format!("{fetch}\nkubectl get configmap fetched -n team-a"));
    assert!(output.contains("surface.tenure.dev/app condition met"), "{output}");

    git.revoke_all();
    let gone = "until kubectl get events -n team-a | grep -q DeployKeyGone; do sleep 0.2; done\n\
                until [ \"$(kubectl get events -n team-a | grep -c DeployKeyMade)\" -ge 2 ]; do sleep 0.2; done\n";
    let second = public(&run(&[renew, gone, show].join("\n")));
    assert_ne!(first, second);
    git.authorize(&second).unwrap();
    run(fetch);
}

/// Returns the YAML blocks of a page as data.
fn yaml_blocks(page: &str) -> Vec<serde_json::Value> {
    let blocks = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let read = blocks.map(|block| {
        let nested: String = block.lines().map(|line| format!("  {line}\n")).collect();
        let text = format!("apiVersion: v1\nkind: Pipeline\nmetadata: {{name: it}}\npipeline:\n{nested}");
        let read = kustomize::read_manifests("page", &text, &kustomize::Limits::default()).expect(block);
        read[0].object["pipeline"].clone()
    });
    read.collect()
}

/// The pipelines' commands of this program run on a refused repository and on a valid one. All other steps belong to the host.
#[test]
fn each_pull_request_is_checked() {
    let pipelines = yaml_blocks(&read_page("check-in-pipelines.md"));
    let [github, gitlab] = pipelines.as_slice() else {
        panic!("two pipelines: {pipelines:#?}");
    };
    let steps = github["jobs"]["check"]["steps"].as_array().unwrap();
    let commands = [
        steps.iter().find(|step| step["name"] == "check").unwrap()["run"]
            .as_str()
            .unwrap(),
        gitlab["check"]["script"][0].as_str().unwrap(),
        gitlab["check"]["after_script"][0].as_str().unwrap(),
    ];
    let uploaded = steps.last().unwrap()["with"]["sarif_file"].as_str().unwrap();
    let kept = gitlab["check"]["artifacts"]["paths"][0].as_str().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(".git/HEAD", "");
    write(
        ".platform/tenants/team-a.yaml",
        "apiVersion: capsule.clastix.io/v1beta2\nkind: Tenant\nmetadata: {name: team-a}\nspec:\n  owners: [{kind: User, name: alice}]\n",
    );
    let map =
        |namespace: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: map, namespace: {namespace}}}\n");
    let run = |command: &str| {
        let output = run_script(
            folder.path(),
            &format!("{{ {command}; }} && echo passed || echo failed"),
            |_| (),
        );
        output.contains("passed")
    };
    for (namespace, is_accepted) in [("team-b", false), ("team-a", true)] {
        write("deploy/map.yaml", &map(namespace));
        for command in commands {
            assert!(command.starts_with("tenure check "), "{command}");
            assert_eq!(run(command), is_accepted, "{command}");
        }
        for file in [uploaded, kept] {
            let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
            serde_json::from_str::<serde_json::Value>(&text).expect(file);
            assert_eq!(text.contains("deploy/map.yaml"), !is_accepted, "{file}: {text}");
        }
    }
}
