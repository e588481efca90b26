//! A cluster, a Git server and running controllers, with the steps that tests use.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_admission_rules::policy;
use tenure_cluster::{Connection, Token};
use tenure_controllers::{Budgets, Config, Metrics, PackageSettings, ReceiverEndpoint, run};
use tenure_git_server::{GitServer, HttpAuthentication, LargeFileOptions, Options, Repository};
use tenure_sources::Policy;
use tenure_tenancy::{ExternalGrant, ReferenceGrant};
use tenure_test_ports::reserve_port;
use tenure_testkit::{Admin, Canary, Cluster, Reductions, SOON, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::faults::{Faults, Faulty, Life};
use crate::policies::EARLIER;
use crate::program;

pub(crate) const KUSTOMIZATION: (&str, &str) = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
pub(crate) const GIT_REPOSITORY: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "GitRepository");
pub(crate) const ARTIFACT_GENERATOR: (&str, &str) = ("source.extensions.fluxcd.io/v1beta1", "ArtifactGenerator");
pub(crate) const EXTERNAL_ARTIFACT: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "ExternalArtifact");
pub(crate) const BUCKET: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "Bucket");
pub(crate) const OCI_REPOSITORY: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "OCIRepository");
pub(crate) const HELM_REPOSITORY: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "HelmRepository");
pub(crate) const HELM_CHART: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "HelmChart");
pub(crate) const RECEIVER: (&str, &str) = ("notification.toolkit.fluxcd.io/v1", "Receiver");
pub(crate) const ALERT: (&str, &str) = ("notification.toolkit.fluxcd.io/v1beta3", "Alert");
pub(crate) const PROVIDER: (&str, &str) = ("notification.toolkit.fluxcd.io/v1beta3", "Provider");
pub(crate) const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
pub(crate) const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");

pub(crate) struct Stage {
    pub(crate) admin: Admin,
    pub(crate) git: GitServer,
    /// Serves only user `git` with the password `sesame`.
    pub(crate) private: GitServer,
    /// The faults of the controllers' requests.
    pub(crate) faults: Faults,
    /// The planted secrets that must not leak, if the test plants some.
    pub(crate) canary: Option<Canary>,
    /// Whether repositories contain a planted secret as clear text.
    pub(crate) has_secrets_in_git: bool,
    cluster: Cluster,
    setup: ControllerContext,
    controllers: Controllers,
}

/// The configuration with which controllers are started.
#[derive(Default)]
struct ControllerContext {
    /// The entry for requests to Receivers in this process.
    hooks: ReceiverEndpoint,
    /// The program's address for requests to Receivers.
    hook_address: Option<SocketAddr>,
    /// The program's address for metrics.
    metrics_address: Option<SocketAddr>,
    policy: Policy,
    budgets: Budgets,
    /// References to other namespaces that an administrator allows.
    grants: Vec<ReferenceGrant>,
    /// Whether the controllers maintain policies, in place of the guard.
    policies: bool,
    /// Artifacts of other controllers that an administrator allows.
    externals: Vec<ExternalGrant>,
    /// The settings of Packages.
    packages: PackageSettings,
    way: Way,
    /// The metrics of controllers in this process.
    figures: Metrics,
    /// The kinds and forms that the API server does not serve to the controllers.
    reductions: Reductions,
}

/// The running controllers.
struct Controllers {
    end: CancellationToken,
    running: JoinHandle<()>,
    life: Life,
}

/// The connection of the controllers to an API server over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// As the program does.
    #[default]
    Direct,
    /// With faults before it.
    ThroughFaults,
}

impl Stage {
    /// Starts everything, with a namespace in which the ServiceAccount `default` may do what an editor may.
    pub(crate) async fn set(namespace: &str) -> Self {
        Self::set_allowing(namespace, &[]).await
    }

    /// As [`Stage::set`], with more addresses that an administrator allows sources to fetch from.
    pub(crate) async fn set_allowing(namespace: &str, more: &[String]) -> Self {
        Self::set_with(namespace, more, ControllerContext::default()).await
    }

    /// As [`Stage::set`], with faults before an API server over the network, too.
    pub(crate) async fn set_failing(namespace: &str) -> Self {
        let way = Way::ThroughFaults;
        let setup = ControllerContext {
            way,
            ..ControllerContext::default()
        };
        Self::set_with(namespace, &[], setup).await
    }

    /// As [`Stage::set`], where the API server serves less to the controllers.
    pub(crate) async fn set_reduced(namespace: &str, more: &[String], reductions: &Reductions) -> Self {
        let setup = ControllerContext {
            way: Way::ThroughFaults,
            reductions: reductions.clone(),
            ..ControllerContext::default()
        };
        Self::set_with(namespace, more, setup).await
    }

    /// As [`Stage::set`], with controllers that may hold no more than this.
    pub(crate) async fn set_within(namespace: &str, budgets: Budgets) -> Self {
        let setup = ControllerContext {
            budgets,
            ..ControllerContext::default()
        };
        Self::set_with(namespace, &[], setup).await
    }

    /// As [`Stage::set`], with references to other namespaces that an administrator allows.
    pub(crate) async fn set_granting(namespace: &str, grants: &[&str]) -> Self {
        let setup = ControllerContext {
            grants: grants.iter().map(|grant| grant.parse().unwrap()).collect(),
            ..ControllerContext::default()
        };
        Self::set_with(namespace, &[], setup).await
    }

    /// As [`Stage::set_allowing`], with artifacts of other controllers that an administrator allows.
    pub(crate) async fn set_taking(namespace: &str, more: &[String], externals: &[String]) -> Self {
        let setup = ControllerContext {
            externals: externals.iter().map(|grant| grant.parse().unwrap()).collect(),
            ..ControllerContext::default()
        };
        Self::set_with(namespace, more, setup).await
    }

    /// As [`Stage::set_failing`], with an account for Packages.
    pub(crate) async fn set_packaging(namespace: &str, account: &str) -> Self {
        let setup = ControllerContext {
            packages: PackageSettings {
                service_account: Some(account.to_owned()),
                ..PackageSettings::default()
            },
            way: Way::ThroughFaults,
            ..ControllerContext::default()
        };
        Self::set_with(namespace, &[], setup).await
    }

    /// As [`Stage::set`], where writes are checked only by policies that the controllers maintain.
    pub(crate) async fn set_policed(namespace: &str) -> Self {
        Self::set_policed_allowing(namespace, &[]).await
    }

    /// As [`Stage::set_policed`], with more addresses that an administrator allows sources to fetch from.
    pub(crate) async fn set_policed_allowing(namespace: &str, more: &[String]) -> Self {
        let setup = ControllerContext {
            policies: true,
            ..ControllerContext::default()
        };
        Self::set_with(namespace, more, setup).await
    }

    /// As [`Stage::set_policed_allowing`], with faults before an API server over the network, too.
    pub(crate) async fn set_policed_failing(namespace: &str, more: &[String]) -> Self {
        let setup = ControllerContext {
            policies: true,
            way: Way::ThroughFaults,
            ..ControllerContext::default()
        };
        Self::set_with(namespace, more, setup).await
    }

    async fn set_with(namespace: &str, more: &[String], mut setup: ControllerContext) -> Self {
        let cluster = Cluster::start().await.unwrap();
        let git = GitServer::start(cluster.folder().join("git"), Options::default())
            .await
            .unwrap();
        let private = GitServer::start(cluster.folder().join("private"), make_locked_options())
            .await
            .unwrap();
        for server in [&git, &private] {
            server.serve_large_files(LargeFileOptions::default());
        }
        let allow = [&git, &private].map(|server| format!("http://{}", server.http_address()).parse().unwrap());
        let more = more.iter().map(|endpoint| endpoint.parse().unwrap());
        setup.policy = Policy {
            allow: allow.into_iter().chain(more).collect(),
            cluster: Vec::new(),
        };
        setup.hooks.note_listener();
        if program::find().is_some() {
            let [hooks, metrics] = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], reserve_port())));
            setup.hook_address = Some(hooks);
            setup.metrics_address = Some(metrics);
        }
        if setup.policies {
            cluster.send_guard_away();
            let mut policies = policy::list_enforced_objects(&tenure_tenancy::Settings::default());
            // As an earlier version had it, which created one more policy.
            policies.push(json!({ "kind": "ValidatingAdmissionPolicy", "metadata": { "name": EARLIER } }));
            for object in tenure_api::installation::policing(&policies) {
                cluster.admin.apply(object).await.unwrap();
            }
        }
        let faults = Faults::default();
        let controllers = start(&cluster, &setup, &faults);
        let stage = Self {
            admin: cluster.admin.clone(),
            git,
            private,
            faults,
            canary: None,
            has_secrets_in_git: false,
            cluster,
            setup,
            controllers,
        };
        stage.namespace(namespace).await;
        stage
    }

    /// Allows the controllers to write Deployments of lanes, wherever lanes run here.
    pub(crate) async fn install_lane_pods(&self) {
        self.cluster.install_lane_pods().await.unwrap();
    }

    /// Removes the check of writes from now on.
    pub(crate) fn send_guard_away(&self) {
        self.cluster.send_guard_away();
    }

    /// Creates a namespace whose `default` ServiceAccount may edit it.
    pub(crate) async fn namespace(&self, namespace: &str) {
        for object in [
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": namespace } }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": { "name": "applier", "namespace": namespace },
                "rules": [{ "apiGroups": ["", "apps", "batch", "example.com"], "resources": ["*"], "verbs": ["*"] }]
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": { "name": "applier", "namespace": namespace },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "applier" },
                "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": namespace }]
            }),
        ] {
            self.admin.apply(object).await.unwrap();
        }
    }

    /// Creates a repository with these files, and a GitRepository `source` for it.
    pub(crate) async fn repository(&self, namespace: &str, name: &str, files: &[(&str, &str)]) -> Repository {
        let repository = self.git.create(&format!("{namespace}-{name}")).await.unwrap();
        commit(&repository, files).await;
        self.admin
            .apply(json!({
                "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1,
                "metadata": { "name": name, "namespace": namespace },
                "spec": {
                    "url": self.git.http_url(&format!("{namespace}-{name}")),
                    "ref": { "branch": "main" }, "interval": "1s"
                }
            }))
            .await
            .unwrap();
        repository
    }

    /// Creates a Kustomization of the source of the same name; `spec` is merged over the defaults.
    pub(crate) async fn kustomization(&self, namespace: &str, name: &str, source: &str, spec: Value) {
        let mut usual = json!({
            "interval": "10m", "retryInterval": "1s", "timeout": "30s", "prune": true, "path": "./",
            "targetNamespace": namespace,
            "sourceRef": { "kind": "GitRepository", "name": source }
        });
        for (key, value) in spec.as_object().unwrap() {
            usual[key] = value.clone();
        }
        usual.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.admin
            .apply(json!({
                "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1,
                "metadata": { "name": name, "namespace": namespace }, "spec": usual
            }))
            .await
            .unwrap();
    }

    /// Waits until an object fulfils the condition, and returns it.
    pub(crate) async fn wait_for(
        &self,
        kind: (&str, &str),
        target: (&str, &str),
        holds: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Value> {
        let looked = eventually(SOON, || async {
            let object = self.admin.get(kind, target).await.map_err(|error| error.to_string())?;
            if holds(object.as_ref()) {
                Ok(object)
            } else {
                Err(format!("{object:#?}"))
            }
        });
        within(looked).await
    }

    /// Waits for an event in a namespace, since a controller sends it after the status. Returns all events there.
    pub(crate) async fn wait_for_event(&self, namespace: &str, matches: impl Fn(&Value) -> bool) -> Vec<Value> {
        let found = eventually(SOON, || async {
            let events = self.admin.list(("v1", "Event"), namespace).await;
            match events.map_err(|error| error.to_string())? {
                events if events.iter().any(&matches) => Ok(events),
                events => Err(format!("{events:#?}")),
            }
        });
        within(found).await
    }

    /// Waits until the Ready condition has this status and reason, and returns its message.
    pub(crate) async fn ready(&self, kind: (&str, &str), target: (&str, &str), status: &str, reason: &str) -> String {
        let object = self
            .wait_for(kind, target, |object| {
                let ready = object.and_then(|object| condition(object, "Ready"));
                ready.is_some_and(|ready| ready["status"] == status && ready["reason"] == reason)
            })
            .await
            .unwrap();
        condition(&object, "Ready").unwrap()["message"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Waits until a Kustomization has applied this commit and is ready.
    pub(crate) async fn wait_for_commit(&self, target: (&str, &str), commit: &str) -> Value {
        self.wait_for(KUSTOMIZATION, target, |object| {
            object.is_some_and(|object| {
                object["status"]["lastAppliedRevision"]
                    .as_str()
                    .is_some_and(|revision| revision.ends_with(commit))
                    && condition(object, "Ready").is_some_and(|ready| ready["status"] == "True")
            })
        })
        .await
        .unwrap()
    }

    /// Returns a client with a token of a ServiceAccount that exists, or will exist soon.
    pub(crate) async fn bearing(&self, namespace: &str, name: &str) -> Admin {
        let asked = eventually(SOON, || request_token(&self.admin, namespace, name));
        self.cluster.bearing(&within(asked).await).unwrap()
    }

    /// Sends a request to a Receiver, and returns the status of the answer.
    pub(crate) async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> u16 {
        if let Some(address) = self.setup.hook_address {
            return program::ask(address, ("POST", path), headers, body).await.unwrap().0;
        }
        let mut admission = match self.setup.hooks.admit(path) {
            Ok(admission) => admission,
            Err(verdict) => return verdict.describe().0,
        };
        if let Err(verdict) = admission.hold(body.len()) {
            return verdict.describe().0;
        }
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let verdict = admission.deliver(headers.collect(), body.as_bytes().to_vec()).await;
        verdict.describe().0
    }

    pub(crate) async fn get(&self, kind: (&str, &str), target: (&str, &str)) -> Option<Value> {
        self.admin.get(kind, target).await.unwrap()
    }

    /// Checks whether the cluster is the embedded one, which reports workloads as rolled out.
    pub(crate) fn is_embedded(&self) -> bool {
        self.cluster.service().is_some()
    }

    /// Returns the folder with the artifacts of namespaces without a tenant.
    pub(crate) fn artifacts(&self) -> std::path::PathBuf {
        if program::has_lane_pods() {
            return self.cluster.folder().join(program::POOL_ARTIFACTS);
        }
        let artifacts = self.cluster.folder().join("artifacts");
        match program::has_lane_processes() {
            true => artifacts.join("lanes/pool"),
            false => artifacts,
        }
    }

    /// Returns the folder with the artifacts of all lanes.
    pub(crate) fn all_artifacts(&self) -> std::path::PathBuf {
        self.cluster.folder().join("artifacts")
    }

    /// Returns the folder of the cluster and its controllers.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.cluster.folder()
    }

    /// Returns the program's address for metrics, if the controllers run as the program.
    pub(crate) fn metrics_address(&self) -> Option<SocketAddr> {
        self.setup.metrics_address.filter(|_| is_program(&self.setup))
    }

    /// Returns the metrics of the controllers in this process, as text.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        self.setup.figures.write(&mut text);
        text
    }

    /// Ends the controllers, and starts new ones on the same folder.
    pub(crate) async fn restart(&mut self) {
        self.pause().await;
        self.resume();
    }

    /// Ends the controllers; nothing is reconciled until [`Stage::resume`].
    pub(crate) async fn pause(&mut self) {
        self.controllers.end.cancel();
        (&mut self.controllers.running).await.unwrap();
    }

    /// Starts controllers that were ended.
    pub(crate) fn resume(&mut self) {
        self.controllers = start(&self.cluster, &self.setup, &self.faults);
    }

    /// Returns the life of the running controllers.
    pub(crate) fn life(&self) -> &Life {
        &self.controllers.life
    }

    /// Waits until no attempt is running. A status reports the result before its attempt has ended. A process that is killed in the rest of an
    /// attempt counts as killed in it again. The pause before the next attempt is then four times as long each time.
    pub(crate) async fn come_to_rest(&self, patience: Duration, when: &str) {
        let folder = self.artifacts().join("under-way");
        let came = eventually(patience, || async {
            let marks = std::fs::read_dir(&folder).map_or(0, Iterator::count);
            if marks == 0 {
                Ok(())
            } else {
                Err(format!("{marks} are under way"))
            }
        });
        if let Err(last) = came.await {
            panic!("{when}: {last}");
        }
    }

    /// Drops killed controllers wherever they are, and starts new ones on the same folder.
    pub(crate) fn restart_after_death(&mut self) {
        self.controllers.running.abort();
        self.controllers = start(&self.cluster, &self.setup, &self.faults);
    }

    /// Ends the controllers, waits for them, and searches for leaked secrets.
    pub(crate) async fn shut_down(mut self) {
        let figures = match &self.canary {
            Some(_) => self.figures().await,
            None => String::new(),
        };
        self.pause().await;
        if let Err(place) = self.listen(&figures).await {
            panic!("{place}");
        }
    }
}

pub(crate) async fn commit(repository: &Repository, files: &[(&str, &str)]) -> String {
    repository.commit(files.iter().copied(), "a change").await.unwrap()
}

pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == type_)
}

async fn within<T>(looked: impl Future<Output = Result<T, String>>) -> T {
    match looked.await {
        Ok(found) => found,
        Err(last) => panic!("it did not come to that; last seen: {last}"),
    }
}

/// Requests a token of a ServiceAccount.
pub(crate) async fn request_token(who: &Admin, namespace: &str, name: &str) -> Result<String, String> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": 3600 } });
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(review.to_string().into_bytes()).unwrap();
    let answer: Value = who.client().request(request).await.map_err(|error| error.to_string())?;
    Ok(answer["status"]["token"].as_str().unwrap().to_owned())
}

/// Checks whether the controllers can run as the program, if one is named.
fn is_program(setup: &ControllerContext) -> bool {
    program::find().is_some() && setup.way == Way::Direct && setup.budgets == Budgets::default() && !setup.policies
}

/// Starts the controllers as their own ServiceAccount.
fn start(cluster: &Cluster, setup: &ControllerContext, faults: &Faults) -> Controllers {
    let life = Life::default();
    if let (Some(program), true) = (program::find(), is_program(setup)) {
        let end = CancellationToken::new();
        let arguments = program::ProgramArguments {
            policy: &setup.policy,
            grants: &setup.grants,
            externals: &setup.externals,
            packages: &setup.packages,
            hook_address: setup.hook_address,
            metrics_address: setup.metrics_address,
        };
        let running = tokio::spawn(program::run(program, cluster, arguments, end.clone()));
        return Controllers { end, running, life };
    }
    let token = Token::new(&cluster.controller_token, None);
    let faulty = |server| Faulty {
        server,
        faults: faults.clone(),
        life: life.clone(),
        reductions: setup.reductions.clone(),
    };
    let connection = match (cluster.service(), cluster.configuration(), setup.way) {
        (Some(service), _, _) => Connection::in_process(faulty(kube::Client::new(service, "default")), token),
        (None, Some(config), Way::ThroughFaults) => {
            Connection::in_process(faulty(kube::Client::try_from(config).unwrap()), token)
        }
        (None, Some(mut config), Way::Direct) => {
            config.auth_info.token = Some(cluster.controller_token.clone().into());
            Connection::over_network(config).unwrap()
        }
        (None, None, _) => unreachable!(),
    };
    let mut config = Config::new(connection, cluster.folder().join("artifacts"));
    config.platform_sources = setup.policy.clone();
    config.tenant_sources = setup.policy.clone();
    config.budgets = setup.budgets;
    config.receiver_endpoint = setup.hooks.clone();
    config.metrics = setup.figures.clone();
    config.settings.reference_grants = setup.grants.clone();
    config.settings.external_grants = setup.externals.clone();
    config.packages = setup.packages.clone();
    config.settings.has_policies = setup.policies;
    // So a restored policy was restored because of a watch event, and not by the interval.
    config.policy_interval = Duration::from_secs(24 * 60 * 60);
    config.reports_lanes = true;
    let end = CancellationToken::new();
    let running = tokio::spawn({
        let end = end.clone();
        async move { run(config, end).await.unwrap() }
    });
    Controllers { end, running, life }
}

fn make_locked_options() -> Options {
    Options {
        authentication: Some(HttpAuthentication::Basic {
            username: "git".to_owned(),
            password: "sesame".to_owned(),
        }),
        ..Options::default()
    }
}

/// Returns a ConfigMap as a file.
pub(crate) fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: \"{value}\"\n")
}
