//! `tenure install`: its output and its writes, and the process that it describes, started as a kubelet starts it.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tenure_test_ports::reserve_port;

use crate::process::{fails, make_command, run};
use crate::world::{Cluster, Controllers, describe, lease, wait_for_probe};

const IMAGE: &str =
    "registry.example/tenure:0.1.0@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn export(arguments: &[&str]) -> String {
    let exported = run(&[&["install", "--export"], arguments].concat());
    assert!(exported.status.success(), "{}", describe(&exported));
    String::from_utf8(exported.stdout).unwrap()
}

#[test]
fn install_export_shows_objects_beforehand() {
    let rights = export(&["--without-deployment"]);
    for words in [
        "kind: CustomResourceDefinition",
        "name: tenure-leader",
        "name: tenure-system",
        "pod-security.kubernetes.io/enforce: restricted",
    ] {
        assert!(rights.contains(words), "no {words:?}");
    }
    assert!(!rights.contains("kind: Deployment") && !rights.contains("kind: NetworkPolicy"));
    let all = export(&[
        "--image",
        IMAGE,
        "--without-admission",
        "--without-policies",
        "--replicas=3",
        "--priority-class=system-cluster-critical",
        "--",
        "--flux-namespace=gitops",
    ]);
    assert!(all.starts_with(&rights), "what runs comes after what it needs");
    for words in [
        "kind: Deployment",
        "kind: PodDisruptionBudget",
        "kind: NetworkPolicy",
        IMAGE,
        "replicas: 3",
        "priorityClassName: system-cluster-critical",
        "- --flux-namespace=gitops",
    ] {
        assert!(all.contains(words), "no {words:?}");
    }
}

/// Webhooks and policies are installed with controllers that reconcile Tenants, unless a flag leaves them out.
#[test]
fn webhooks_and_policies_are_the_default() {
    let has = |arguments: &[&str]| {
        let all = export(&[&["--image", IMAGE], arguments].concat());
        (
            all.contains("name: tenure-webhook"),
            all.contains("name: tenure-policies") && all.contains("- --policies"),
        )
    };
    assert_eq!(has(&[]), (true, true));
    assert_eq!(has(&["--without-admission"]), (false, true));
    assert_eq!(has(&["--without-policies"]), (true, false));
    assert_eq!(has(&["--controllers=*,-tenant"]), (false, false));
    assert_eq!(has(&["--", "--controllers=*,-tenant"]), (false, false));
    let rights = export(&["--without-deployment"]);
    assert!(!rights.contains("name: tenure-admission") && !rights.contains("name: tenure-policies"));
    fails(
        &[
            "install",
            "--export",
            "--image",
            IMAGE,
            "--policies",
            "--without-policies",
        ],
        2,
        &["cannot be used with"],
    );
}

/// An installation may stop after any object. Even then, no account of Tenure's has rights without a policy that bounds them.
#[test]
fn policies_come_before_the_rights_that_they_bound() {
    let all = export(&["--image", IMAGE, "--admission", "--policies", "--lanes=deployment"]);
    let kinds: Vec<&str> = all.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
    let rights = kinds
        .iter()
        .position(|kind| ["RoleBinding", "ClusterRoleBinding"].contains(kind));
    let bounds = kinds
        .iter()
        .rposition(|kind| kind.starts_with("ValidatingAdmissionPolicy"));
    assert!(bounds.is_some() && bounds < rights, "{kinds:?}");
    assert!(
        kinds
            .iter()
            .filter(|kind| **kind == "ValidatingAdmissionPolicyBinding")
            .count()
            > 8,
        "{kinds:?}"
    );
}

#[test]
fn a_choice_that_makes_no_sense_is_refused() {
    fails(&["up", "--policies"], 2, &["this API server checks every write itself"]);
    fails(&["install", "--export"], 2, &["--image"]);
    fails(
        &["install", "--export", "--image=tenure:1"],
        2,
        &["names no registry", "no digest", "--unpinned-image"],
    );
    fails(
        &["install", "--export", "--without-deployment", "--image", IMAGE],
        2,
        &["cannot be used with"],
    );
    fails(
        &["install", "--export", "--without-deployment", "--", "--log=info"],
        2,
        &["--without-deployment installs no Pods", "leave out the flags after --"],
    );
    fails(
        &["install", "--export", "--image", IMAGE, "--", "--data=/tmp"],
        2,
        &["after --", "--data"],
    );
    fails(
        &[
            "install",
            "--export",
            "--policies",
            "--controllers=*,-Tenant",
            "--image",
            IMAGE,
        ],
        2,
        &["--policies", "the controller tenant is off"],
    );
    fails(
        &["install", "--export", "--image", IMAGE, "--replicas=0"],
        2,
        &["--replicas"],
    );
    // Admission depends on Tenants, and a client that claims to be an API server has to be authenticated.
    fails(
        &[
            "install",
            "--export",
            "--image",
            IMAGE,
            "--admission",
            "--controllers=*,-tenant",
        ],
        2,
        &["--admission", "Tenants"],
    );
    fails(
        &[
            "install",
            "--export",
            "--image",
            IMAGE,
            "--without-admission",
            "--admission-client-secret=x",
        ],
        2,
        &["--admission lets"],
    );
    fails(
        &[
            "install",
            "--export",
            "--image",
            IMAGE,
            "--admission",
            "--admission-client-secret=A",
        ],
        2,
        &["no name of a Secret"],
    );
}

/// A server accepts all objects, and a second installation changes nothing.
#[tokio::test]
async fn second_installation_changes_nothing() {
    let cluster = Cluster::start().await;
    let install = ["install", "--image", IMAGE, "--without-admission", "--without-policies"];
    let words = [
        "applied Deployment tenure-controller",
        "rollout status",
        "attacks of tenure attest are refused by RBAC",
        "--admission and --policies close them",
    ];
    cluster.check(&install, 0, &words);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "tenure-system", "name": "tenure-controller"}});
    let first = cluster.admin.find(&deployment).await.unwrap();
    // A dry run shows what another installation would change, and changes nothing.
    let dry_run = |more: &[&'static str], words: &[&str]| {
        let arguments = [&install[..], &["--dry-run"], more].concat();
        cluster.check(&arguments, 0, words);
    };
    dry_run(&[], &["0 objects would be created and 0 changed"]);
    let changes = [
        "~ Deployment tenure-controller would be changed",
        "+  replicas: 3",
        "0 objects would be created and 1 changed",
    ];
    dry_run(&["--replicas", "3"], &changes);
    cluster.check(&install, 0, &["applied Deployment tenure-controller"]);
    let second = cluster.admin.find(&deployment).await.unwrap();
    assert_eq!(first["metadata"]["generation"], second["metadata"]["generation"]);
    assert_eq!(second["spec"]["template"]["spec"]["containers"][0]["image"], IMAGE);
}

/// The summary follows from what is installed.
#[tokio::test]
async fn an_installation_says_what_it_keeps() {
    let cluster = Cluster::start_own_bare().await;
    let check = |more: &[&'static str], words: &[&str]| {
        let arguments = [&["install", "--image", IMAGE][..], more].concat();
        cluster.check(&arguments, 0, words);
    };
    check(
        &[],
        &[
            "✔ all ",
            "as policies and by webhooks",
            "⚠ tenants are reconciled in the Pod of the controllers",
        ],
    );
    check(
        &["--without-admission"],
        &["attacks are left", "quota-by-burst", "--admission closes them"],
    );
    check(
        &["--without-policies", "--lanes=deployment"],
        &["by webhooks", "✔ each tenant is reconciled in a Pod"],
    );
}

#[test]
fn packages_are_served_where_they_are_asked_for() {
    let definition = "name: packagevalues.cozystack.io";
    assert!(!export(&["--without-deployment"]).contains(definition));
    assert!(export(&["--without-deployment", "--packages"]).contains(definition));
}

/// Definitions that another product installed stay unchanged, both at the installation and at the removal of kinds.
#[tokio::test]
async fn definition_of_another_product_stays_unchanged() {
    let cluster = Cluster::start_own_installed().await;
    let definition = |plural: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.cozystack.io")}})
    };
    let mut others = definition("packagesources");
    others["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
    others["spec"] = json!({
        "group": "cozystack.io", "scope": "Cluster", "names": {"kind": "PackageSource", "plural": "packagesources"},
        "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]
    });
    cluster.admin.apply(others.clone()).await;
    let install = ["install", "--without-deployment", "--packages"];
    for _ in 0..2 {
        cluster.check(
            &install,
            0,
            &[
                "applied CustomResourceDefinition packages.cozystack.io",
                "CustomResourceDefinition packagesources.cozystack.io exists and isn't Tenure's: it stays as it is",
            ],
        );
    }
    let found = cluster.admin.find(&others).await.unwrap();
    assert_eq!(found["metadata"]["labels"], others["metadata"]["labels"]);
    assert_eq!(
        found["spec"]["versions"][0]["schema"],
        others["spec"]["versions"][0]["schema"]
    );
    for plural in ["packages", "packagevalues"] {
        let established = |found: &Value| found["status"]["conditions"].to_string().contains("Established");
        cluster.admin.wait_for(definition(plural), established).await;
    }
    // The dry run lists all removed objects: Tenure's definition, and not the other one.
    let listed = cluster.check(
        &["uninstall", "--delete-kinds", "--dry-run"],
        0,
        &["goes: CustomResourceDefinition packages.cozystack.io\n"],
    );
    assert!(!listed.contains("packagesources"), "{listed}");
    cluster.check(
        &["uninstall", "--delete-kinds", "--yes"],
        0,
        &["CustomResourceDefinition packages.cozystack.io: deleted"],
    );
    cluster.admin.wait_until_gone(&definition("packages")).await;
    assert!(cluster.admin.find(&others).await.is_some());
}

/// Writes an object as text in which 0 and 0.0 are the same number, as they are to an API server.
fn write_plainly(object: &Value) -> String {
    object.to_string().replace(":0.0,", ":0,").replace(":0.0}", ":0}")
}

/// The files below `deploy` contain the same objects, for installations with kustomize.
#[test]
fn the_kustomization_builds_what_is_installed() {
    let read = |text: &str| {
        let objects = kustomize::read_manifests("objects", text, &kustomize::Limits::default()).unwrap();
        let mut objects: Vec<String> = objects.into_iter().map(|built| write_plainly(&built.object)).collect();
        objects.sort();
        objects
    };
    let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
    let built = run(&["build", deploy]);
    assert!(built.status.success(), "{}", describe(&built));
    let image = concat!("--image=tenure:", env!("CARGO_PKG_VERSION"));
    let exported = export(&[image, "--unpinned-image"]);
    let built = read(&String::from_utf8(built.stdout).unwrap());
    assert!(
        built == read(&exported),
        "deploy/ holds other objects than are installed"
    );
    assert!(built.len() > 10);
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let written = run(&["man", folder.path().to_str().unwrap()]);
    assert!(written.status.success(), "{}", describe(&written));
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("tenure.1").contains("\\fBuninstall\\fR"));
    assert!(page("tenure-run.1").contains("\\fB\\-\\-health\\-address\\fR"));
    assert!(!folder.path().join("tenure-man.1").exists() && !folder.path().join("tenure-help.1").exists());
}

/// The rules of the Pod security standard `restricted`, one by one, and further limits.
#[test]
fn installed_pods_are_confined() {
    let text = export(&["--image", IMAGE]);
    let objects = kustomize::read_manifests("exported", &text, &kustomize::Limits::default()).unwrap();
    let found = objects.iter().find(|built| built.object["kind"] == "Deployment");
    let deployment = &found.unwrap().object;
    let pod = &deployment["spec"]["template"]["spec"];
    for field in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
        assert_eq!(pod[field], Value::Null, "{field}");
    }
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    for container in pod["containers"].as_array().unwrap() {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["runAsNonRoot"], true);
        assert!(context["runAsUser"].as_u64().unwrap() > 0);
        assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
        for port in container["ports"].as_array().unwrap() {
            assert_eq!(port["hostPort"], Value::Null);
        }
        assert!(container["resources"]["limits"]["memory"].is_string());
    }
    for volume in pod["volumes"].as_array().unwrap() {
        assert!(volume["emptyDir"]["sizeLimit"].is_string(), "{volume}");
    }
}

/// A Pod has no kubeconfig: it has an address in its environment, and a token and an authority in files that the kubelet renews. The test puts the files at the
/// kubelet's paths, in a mount namespace of the process.
#[tokio::test]
async fn controllers_run_with_credentials_of_pod() {
    if !can_mount() {
        println!("skipped: this machine lets no process have mounts of its own");
        return;
    }
    let cluster = Cluster::start_installed().await;
    let kubeconfig = kube::config::Kubeconfig::read_from(&cluster.kubeconfig).unwrap();
    let server = kubeconfig.clusters[0].cluster.as_ref().unwrap();
    let address = server.server.clone().unwrap();
    let (host, port) = address
        .trim_start_matches("https://")
        .trim_end_matches('/')
        .rsplit_once(':')
        .unwrap();
    let mounted = cluster.data("mounted");
    std::fs::create_dir(&mounted).unwrap();
    std::fs::write(
        mounted.join("ca.crt"),
        decode(server.certificate_authority_data.as_ref().unwrap()),
    )
    .unwrap();
    let token = cluster.make_token("tenure-system", "tenure-controller").await;
    std::fs::write(mounted.join("token"), &token).unwrap();

    let probes = reserve_port();
    let program = env!("CARGO_BIN_EXE_tenure");
    let script = format!(
        "set -e; mount -t tmpfs tmpfs /var/run; folder=/var/run/secrets/kubernetes.io/serviceaccount; mkdir -p $folder; \
         mount --bind {} $folder; exec {program} run --data {} --health-address {probes}",
        mounted.display(),
        cluster.data("run").display(),
    );
    let mut command = in_own_mounts(&script);
    command
        .env("KUBERNETES_SERVICE_HOST", host.trim_matches(['[', ']']))
        .env("KUBERNETES_SERVICE_PORT", port);
    let controllers = Controllers::spawn(command);
    cluster.admin.wait_for_leader(&controllers.candidate).await;
    wait_for_probe(probes, "/readyz", 200).await;

    // The account is re-created with the same name, so its old token is invalid. The kubelet writes a new one.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": "tenure-system", "name": "tenure-controller"}});
    cluster.admin.delete(&account).await;
    cluster.check(
        &["install", "--without-deployment"],
        0,
        &["applied ServiceAccount tenure-controller"],
    );
    let token = cluster.make_token("tenure-system", "tenure-controller").await;
    std::fs::write(mounted.join("token.new"), &token).unwrap();
    std::fs::rename(mounted.join("token.new"), mounted.join("token")).unwrap();
    let renewed = cluster.admin.find(&lease()).await.unwrap()["spec"]["renewTime"].clone();
    cluster
        .admin
        .wait_for(lease(), |lease| {
            lease["spec"]["holderIdentity"] == controllers.candidate.as_str() && lease["spec"]["renewTime"] != renewed
        })
        .await;
    wait_for_probe(probes, "/readyz", 200).await;
}

#[test]
fn a_pod_without_a_token_says_so() {
    let output = crate::process::tenure(&["run", "--data", "/nonexistent"])
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", "6443")
        .output()
        .unwrap();
    if !Path::new("/var/run/secrets/kubernetes.io/serviceaccount/token").exists() {
        assert_eq!(output.status.code(), Some(3));
        assert!(
            describe(&output).contains("automountServiceAccountToken"),
            "{}",
            describe(&output)
        );
    }
}

/// Returns a shell in its own mount namespace, and without root also in its own user namespace.
fn in_own_mounts(script: &str) -> Command {
    let mut command = make_command(Path::new("unshare"));
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    command
}

fn can_mount() -> bool {
    let tried = in_own_mounts("mount -t tmpfs tmpfs /var/run")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

fn decode(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}
