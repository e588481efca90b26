//! A person of the host without an account in the cluster answers a request through a browser. An account with the right to vouch writes the grant. The host is a
//! stand-in for GitLab, with its device flow.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, Stdio};

use serde_json::json;
use tenure_forge_server::{ForgeServer, Kind, Owner};

use super::{RBAC, bind, clear, name_of, object, request, set, state_of, store};
use crate::process::tenure;
use crate::world::Cluster;

/// A command that has shown a code.
struct Showing {
    child: Child,
    /// The command's standard error.
    errors: BufReader<ChildStderr>,
    /// The output before the code.
    before: String,
    code: String,
}

impl Showing {
    fn start(cluster: &Cluster, name: &str) -> Self {
        let kubeconfig = cluster.write_kubeconfig_as("vera", &[]);
        let mut command = tenure(&["access", "vouch", name, "--yes"]);
        command.env("KUBECONFIG", kubeconfig);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let mut showing = Self {
            child,
            errors,
            before: String::new(),
            code: String::new(),
        };
        loop {
            let mut line = String::new();
            let read = showing.errors.read_line(&mut line).unwrap();
            assert!(read > 0, "it showed no code: {}", showing.before);
            if let Some((_, rest)) = line.split_once(" and enter ") {
                showing.code = rest.split(' ').next().unwrap().to_owned();
                return showing;
            }
            showing.before.push_str(&line);
        }
    }

    /// Returns the exit code, and all output after the code.
    fn wait_for_end(mut self) -> (Option<i32>, String) {
        let mut output = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        self.errors.read_to_string(&mut output).unwrap();
        (self.child.wait().unwrap().code(), output)
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A person who shows at the host to be the project's Maintainer answers a request. The account that writes the answer may vouch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_login_approves_through_account_that_may_vouch() {
    let cluster = set().await;
    let folder = tempfile::tempdir().unwrap();
    let forge = ForgeServer::start(folder.path(), Kind::Gitlab).await.unwrap();
    let project = forge.add_project("group-1/a").await.unwrap();
    let (maintainer, developer) = (forge.add_person("maintainer"), forge.add_person("developer"));
    forge.set_level(maintainer, Owner::Project(project), 40);
    forge.set_level(developer, Owner::Project(project), 30);
    let provider = json!({"kind": "gitlab", "address": forge.url(), "topLevelGroup": "group-1", "namespaces": ["access-*"],
        "authoriser": {"serviceAccountName": "access-authoriser", "secretRef": {"name": "access-authoriser"}}});
    let provider = object("AccessProvider", "work", provider);
    cluster.admin.apply(provider.clone()).await;
    let role = |rules| json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": "access-vouches"}, "rules": rules});
    cluster
        .admin
        .apply(role(json!([
            {"apiGroups": ["tenure.dev"], "resources": ["fluxaccesstargets"], "resourceNames": [format!("work-{project}")], "verbs": ["vouch"]},
            {"apiGroups": ["tenure.dev"], "resources": ["fluxaccessrequests", "fluxaccessgrants", "fluxaccessstandinggrants", "accessproviders"], "verbs": ["get", "list", "create"]},
        ])))
        .await;
    bind(&cluster, "vera", "access-vouches").await;
    let asked = store(&cluster, request(project, "alice")).await;
    let name = name_of(&asked).to_owned();
    let vouch = ["access", "vouch", name.as_str(), "--yes"];

    // Vouching is off until an administrator names an application. A user without the right to vouch causes no code.
    tenure_testkit::eventually(crate::world::PATIENCE, || async {
        let path = cluster.write_kubeconfig_as("vera", &[]);
        let output = tenure(&vouch).env("KUBECONFIG", &path).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if stderr.contains("spec.deviceFlow") && output.status.code() == Some(3) {
            Ok(())
        } else {
            Err(stderr)
        }
    })
    .await
    .unwrap();
    let mut on = provider.clone();
    on["spec"]["deviceFlow"] = json!({"clientId": "an-application"});
    cluster.admin.apply(on).await;
    cluster.check_as(
        "olga",
        &vouch,
        3,
        &["olga may not vouch for work-", "an administrator gives it"],
    );
    assert!(forge.requests().is_empty(), "nobody asked the host");

    // A Developer can't answer, and neither can a person who declines. Two codes run at a time, since a host is polled once in five seconds.
    let (one, other) = (Showing::start(&cluster, &name), Showing::start(&cluster, &name));
    for shown in ["alice", "group-1/a", "access-a"] {
        assert!(one.before.contains(shown), "{shown}: {}", one.before);
    }
    assert!(forge.enter_code(&one.code, developer, true) && forge.enter_code(&other.code, maintainer, false));
    let ((first, of_developer), (second, of_denial)) = (one.wait_for_end(), other.wait_for_end());
    assert_eq!((first, second), (Some(1), Some(1)), "{of_developer}{of_denial}");
    assert!(
        of_developer.contains(&format!(
            "gitlab:{developer} is a member of the project, but not its Maintainer"
        )),
        "{of_developer}"
    );
    assert!(of_denial.contains("the user with the code declined"), "{of_denial}");
    assert_eq!(state_of(&cluster, &asked).0, "Pending");

    // If the request is replaced between the code and the answer, the new request is not answered. The project's Maintainer answers the shown one.
    let (replaced, kept) = (
        store(&cluster, request(project, "olga")).await,
        Showing::start(&cluster, &name),
    );
    let stale = Showing::start(&cluster, name_of(&replaced));
    cluster.admin.delete(&replaced).await;
    store(&cluster, request(project, "olga")).await;
    assert!(forge.enter_code(&kept.code, maintainer, true) && forge.enter_code(&stale.code, maintainer, true));
    let ((first, answered), (second, refused)) = (kept.wait_for_end(), stale.wait_for_end());
    assert_eq!((first, second), (Some(0), Some(1)), "{answered}{refused}");
    assert!(
        answered.contains(&format!("approved by gitlab:{maintainer}")),
        "{answered}"
    );
    assert!(refused.contains("is another one than was shown"), "{refused}");
    let (state, notes) = state_of(&cluster, &asked);
    assert_eq!(state, "Approved", "{notes}");
    assert_eq!(state_of(&cluster, &replaced).0, "Pending");
    let grants = cluster.run(&["access", "show", &name, "-o", "json"]);
    assert!(String::from_utf8_lossy(&grants.stdout).contains(&format!("gitlab:{maintainer}")));
    // All tokens of the flows were revoked.
    assert_eq!(forge.count(&http::Method::POST, "/oauth/revoke"), 3);

    // A user without the right to vouch can't write a vouched grant, even with the right to approve.
    let forged = super::grant(&asked, "olga", &[("approvedBy", json!(format!("gitlab:{maintainer}")))]);
    let grants = super::path("fluxaccessgrants", "");
    super::wait_for_ruling(
        &cluster,
        "olga",
        (http::Method::POST, &grants),
        &forged,
        Some("may not vouch"),
    )
    .await;

    for right in [
        role(json!([])),
        json!({"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": "access-vouches-vera"}}),
        provider,
    ] {
        cluster.admin.delete(&right).await;
    }
    clear(cluster).await;
}
