//! The fourth story: a platform's Package, its values, a stolen field, its recovery, and its removal. The charts come from a real Git repository. The Helm release of the
//! platform's own chart is a stand-in, as the demo has no such chart.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tenure_api::customizer::{Customizer, Profile, list_objects};
use tenure_git_server::{GitServer, Options, Repository};

use super::transcript::Transcript;
use super::world::{apply_manifest, git_failure};
use crate::artifact_server::ArtifactSettings;
use crate::commands::controllers::ControllerSettings;
use crate::control_plane::{self, ControlPlane};
use crate::failure::Failure;

mod stand_in;
mod story;

use stand_in::StandIn;

/// The namespace of the platform's charts, and of the Helm release of the platform's chart.
const SUPPLY: &str = "cozy-system";
/// The Package of the story.
const PACKAGE: &str = "example.web";
/// The namespace and the name of its HelmRelease.
const RELEASE: (&str, &str) = ("cozy-web", "web");
/// The Helm release of the platform's chart.
const PLATFORM_RELEASE: &str = "platform";
/// The account that writes HelmReleases.
const ACCOUNT: &str = "packages";
/// The administrator with the documented rights to recover the Package.
const RUTH: &str = "ruth";

const CHART: &str = "apiVersion: v2\nname: web\nversion: 1.0.0\n";
const CHART_VALUES: &str = "replicas: 1\nimages: []\n";
const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n\
    data:\n  replicas: {{ .Values.replicas | quote }}\n  images: {{ range .Values.images }}{{ .name }}:{{ .tag }} {{ end }}\n";

/// The running parts of the story.
pub(super) struct World {
    /// The control plane.
    pub(super) plane: ControlPlane,
    admin: kube::Client,
    /// The repository of the customizer.
    tuning: Repository,
    /// The reconciler of HelmReleases, unless the user named helm-controller.
    stand_in: Option<StandIn>,
    git: GitServer,
}

impl World {
    /// Starts everything below `folder`.
    pub(super) async fn start(folder: &Path, port: u16, program: Option<&PathBuf>) -> Result<Self, Failure> {
        let git = GitServer::start(folder.join("git"), Options::default())
            .await
            .map_err(|error| git_failure(&error))?;
        let repository = async |name: &str, files: &[(&'static str, &'static str)]| {
            let repository = git.create(name).await.map_err(|error| git_failure(&error))?;
            let files = files.iter().map(|(path, text)| (*path, *text));
            let committed = repository.commit(files, "the beginning").await;
            committed.map_err(|error| git_failure(&error))?;
            Ok::<_, Failure>(repository)
        };
        let charts = [
            ("packages/web/Chart.yaml", CHART),
            ("packages/web/values.yaml", CHART_VALUES),
            ("packages/web/templates/map.yaml", TEMPLATE),
        ];
        repository("charts", &charts).await?;
        let tuning = repository("tuning", &[("production/values.yaml", story::PACKAGE_VALUES)]).await?;
        let mut controllers = ControllerSettings::allow_sources(&[format!("http://{}", git.http_address())])?;
        controllers.packages.service_account = Some(ACCOUNT.to_owned());
        let mut artifacts = ArtifactSettings::default();
        if program.is_some() {
            artifacts.open_on_loopback(0);
        }
        let plane = ControlPlane::start(control_plane::Options {
            data: folder.join("data"),
            address: ([127, 0, 0, 1], port).into(),
            workload_status: true,
            repositories: Vec::new(),
            repository_port: 0,
            hook_address: None,
            artifacts,
            helm_controller: program.cloned(),
            controllers,
            bare: false,
            settings: Default::default(),
        })
        .await?;
        let admin = plane.client().await?;
        let stand_in = program.is_none().then(|| StandIn::start(&admin));
        Ok(Self {
            plane,
            admin,
            tuning,
            stand_in,
            git,
        })
    }

    /// Ends helm-controller, and then the control plane.
    pub(super) async fn stop(self) {
        let Self { plane, stand_in, .. } = self;
        drop(stand_in);
        plane.stop().await;
    }

    /// Whether a real helm-controller runs.
    pub(super) fn has_helm_controller(&self) -> bool {
        self.stand_in.is_none()
    }

    /// Adds where helm-controller's log is to a failure.
    pub(super) fn explain(&self, seen: String) -> String {
        match self.has_helm_controller() {
            true => format!("{seen}\nhelm-controller's log: tenure --log warn,helm_controller=info demo packages …"),
            false => seen,
        }
    }

    /// Returns who reconciles HelmReleases, for the first lines of the demo.
    pub(super) fn describe_helm(&self) -> &'static str {
        match self.has_helm_controller() {
            true => "as --helm-controller names it; it installs the charts",
            false => {
                "none (--helm-controller FILE names one): the demo goes up to the HelmRelease, and writes its status itself"
            }
        }
    }

    async fn apply_all(&self, manifests: &[Value]) -> Result<(), Failure> {
        for manifest in manifests {
            apply_manifest(&self.admin, manifest).await?;
        }
        Ok(())
    }
}

/// Runs the story.
pub(super) async fn run_story(world: &World, account: &mut Transcript) {
    story::install(world, account).await;
    story::tune(world, account).await;
    story::steal(world, account).await;
    story::recover(world, account).await;
    story::remove(world, account).await;
}

/// Returns the source of the charts, and the PackageSource.
fn describe_sources(git: &GitServer) -> [Value; 2] {
    [
        json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "charts", "namespace": SUPPLY },
            "spec": { "url": git.http_url("charts"), "ref": { "branch": "main" }, "interval": "1m" } }),
        json!({ "apiVersion": "cozystack.io/v1alpha1", "kind": "PackageSource",
            "metadata": { "name": PACKAGE, "annotations": { "operator.cozystack.io/skip-cozystack-values": "true" } },
            "spec": {
                "sourceRef": { "kind": "GitRepository", "name": "charts", "namespace": SUPPLY },
                "variants": [{ "name": "default", "components": [{ "name": RELEASE.1, "path": "web", "install": { "namespace": RELEASE.0 } }] }]
            } }),
    ]
}

/// Returns the Package as the platform's chart renders it.
fn describe_package() -> Value {
    let values = json!({ "replicas": 2, "images": [{ "name": "web", "tag": "1" }, { "name": "cache", "tag": "1" }] });
    json!({ "apiVersion": "cozystack.io/v1alpha1", "kind": "Package",
        "metadata": {
            "name": PACKAGE, "annotations": { "helm.sh/resource-policy": "keep" },
            "labels": { "helm.toolkit.fluxcd.io/name": PLATFORM_RELEASE, "helm.toolkit.fluxcd.io/namespace": SUPPLY }
        },
        "spec": { "variant": "default", "components": { (RELEASE.1): { "values": values } } } })
}

/// Returns the Package as Helm applies it: with the metadata of its release.
fn describe_applied() -> Value {
    let mut package = describe_package();
    let metadata = [
        ("/metadata/labels", "app.kubernetes.io/managed-by", "Helm"),
        ("/metadata/annotations", "meta.helm.sh/release-name", PLATFORM_RELEASE),
        ("/metadata/annotations", "meta.helm.sh/release-namespace", SUPPLY),
    ];
    for (part, key, value) in metadata {
        if let Some(part) = package.pointer_mut(part).and_then(Value::as_object_mut) {
            part.insert(key.to_owned(), value.into());
        }
    }
    package
}

/// Returns the Secret in which Helm would store the release of the platform's chart.
fn describe_stored_release() -> Value {
    let content = json!({
        "name": PLATFORM_RELEASE, "namespace": SUPPLY, "version": 1, "info": { "status": "deployed" }, "manifest": describe_package().to_string()
    });
    json!({ "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {
            "name": format!("sh.helm.release.v1.{PLATFORM_RELEASE}.v1"), "namespace": SUPPLY,
            "labels": { "owner": "helm", "name": PLATFORM_RELEASE, "status": "deployed", "version": "1" }
        },
        "stringData": { "release": STANDARD.encode(content.to_string()) } })
}

/// Returns the objects of the customizer, with an administrator's profile.
fn describe_customizer(git: &GitServer) -> Result<Vec<Value>, Failure> {
    let customizer = Customizer {
        profile: Profile::Admin,
        url: git.http_url("tuning"),
        branch: "main".to_owned(),
        path: "./production".to_owned(),
        interval: "1s".to_owned(),
        secret: None,
        owned_namespaces: Vec::new(),
    };
    list_objects(&customizer).map_err(|error| Failure::internal(error.to_string()))
}

/// Returns ruth's roles: the documented rights to recover one Package, and to suspend the customizer.
fn describe_ruth() -> Vec<Value> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let rule = |group: &str, resource: &str, name: &str, verbs: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": verbs });
    let bind = |kind: &str, namespace: Option<&str>, rules: Value| {
        let metadata = json!({ "name": "demo-ruth", "namespace": namespace });
        [
            json!({ "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata, "rules": rules }),
            json!({ "apiVersion": format!("{RBAC}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": { "apiGroup": RBAC, "kind": kind, "name": "demo-ruth" },
                "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": RUTH }] }),
        ]
    };
    let package = rule(
        "cozystack.io",
        "packages",
        PACKAGE,
        &["get", "list", "watch", "patch", "override"],
    );
    let namespace = rule("", "namespaces", SUPPLY, &["get"]);
    let secrets = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"] });
    let kustomization = rule(
        "kustomize.toolkit.fluxcd.io",
        "kustomizations",
        "customizer-config",
        &["get", "list", "watch", "patch"],
    );
    [
        bind("ClusterRole", None, json!([package, namespace])),
        bind("Role", Some(SUPPLY), json!([secrets])),
        bind("Role", Some("tenure-system"), json!([kustomization])),
    ]
    .concat()
}
