//! Secrets must not leak. A stage's end searches for planted Secrets of another tenant or the platform, wherever its controllers run. It searches
//! their log, all objects with statuses and events, their metrics, and their stored files. The control is here, with controllers that reveal
//! something, and in `testkit` place by place.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};
use tenure_testkit::{Canary, SOON, eventually};

use crate::program::ask;
use crate::program::{LOG, PODS};
use crate::stage::{GIT_REPOSITORY, KUSTOMIZATION, Stage, config_map, request_token};

const PLATFORM: &str = "tenure-system";
/// The account that reads the program's metrics, and the rights that this needs.
const READER: &str = "tenure-test-reader";
const RBAC: &str = "rbac.authorization.k8s.io";

impl Stage {
    /// Plants a Secret in the platform's namespace and in each of these; [`Stage::shut_down`] listens for them.
    pub(crate) async fn planting(mut self, namespaces: &[&str]) -> Self {
        let places = [namespaces, &[PLATFORM]].concat();
        self.canary = Some(Canary::plant(&self.admin, &places).await.unwrap());
        self
    }

    /// Searches also for another value, which is in Secrets of a namespace.
    pub(crate) fn listen_for(&mut self, namespace: &str, value: &str) {
        let canary = self.canary.as_mut().expect("something is planted");
        canary.listen_for(namespace, value);
    }

    /// Searches also for a value that other tests may have left in Secrets.
    pub(crate) fn listen_beside_secrets(&mut self, value: &str) {
        let canary = self.canary.as_mut().expect("something is planted");
        canary.listen_beside_secrets(value);
    }

    /// Searches also for a value that is in a repository as clear text: fetched files contain it, and nothing else may.
    pub(crate) fn listen_beside_git(&mut self, value: &str) {
        self.has_secrets_in_git = true;
        self.listen_beside_secrets(value);
    }

    /// Returns the controllers' metrics, wherever they run.
    pub(crate) async fn figures(&self) -> String {
        match self.metrics_address() {
            Some(address) => self.scrape(address).await,
            None => self.metrics(),
        }
    }

    /// Searches for planted Secrets, if there are some, and returns the places where one was found.
    pub(crate) async fn listen(&self, figures: &str) -> Result<(), String> {
        let Some(canary) = &self.canary else { return Ok(()) };
        let mut log = String::new();
        if self.metrics_address().is_some() {
            let bytes = std::fs::read(self.folder().join(LOG)).map_err(|error| error.to_string())?;
            log = String::from_utf8_lossy(&bytes).into_owned();
        }
        let texts = [("the figures", figures), ("the log of the program", log.as_str())];
        let fetched = (!self.has_secrets_in_git).then(|| self.all_artifacts());
        let folders: Vec<PathBuf> = fetched.into_iter().chain([self.folder().join(PODS)]).collect();
        let folders = folders.iter().filter(|folder| folder.is_dir());
        let folders: Vec<&std::path::Path> = folders.map(|folder| folder.as_path()).collect();
        canary.check(&self.admin, &texts, &folders).await
    }

    /// Returns the program's metrics, with a token that may read them.
    async fn scrape(&self, address: SocketAddr) -> String {
        let readers = list_readers();
        for object in &readers {
            self.admin.apply(object.clone()).await.unwrap();
        }
        let token = request_token(&self.admin, PLATFORM, READER).await.unwrap();
        let authorization = format!("Bearer {token}");
        let scraped = eventually(SOON, || async {
            // The program may have just started, and the API server may apply the bindings with a delay.
            match ask(address, ("GET", "/metrics"), &[("authorization", &authorization)], "").await {
                Ok((200, text)) => Ok(text),
                other => Err(format!("{other:?}")),
            }
        });
        let scraped = scraped.await.unwrap();
        for object in &readers {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let target = (text("/metadata/namespace"), text("/metadata/name"));
            let kind = (text("/apiVersion"), text("/kind"));
            self.admin.delete(kind, target).await.unwrap();
        }
        scraped
    }
}

fn list_readers() -> [Value; 4] {
    let bind = |name: &str, role: &str, account: &str| {
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": PLATFORM }]
        })
    };
    [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": READER, "namespace": PLATFORM } }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": { "name": READER },
            "rules": [{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }]
        }),
        bind(READER, READER, READER),
        bind("tenure-test-reviews", "system:auth-delegator", "tenure-controller"),
    ]
}

/// The control of every search: controllers whose object has the planted word as its name reveal it everywhere, and it is found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_of_controllers_is_searched_wherever_they_run() {
    let namespace = "silence";
    let mut stage = Stage::set(namespace).await.planting(&[]).await;
    stage.listen(&stage.figures().await).await.unwrap();

    let word = stage.canary.as_ref().and_then(|canary| canary.find_value(PLATFORM));
    let word = word.unwrap().to_owned();
    let says = [("a.yaml", &*config_map("a", &word))];
    stage.repository(namespace, &word, &says).await;
    let spec = json!({ "path": "./none" });
    stage.kustomization(namespace, &word, &word, spec).await;
    let target = (namespace, word.as_str());
    stage.ready(KUSTOMIZATION, target, "False", "BuildFailed").await;
    let places = [
        "the figures",
        "the log",
        "/kustomizations silence/",
        "/gitrepositories silence/",
        "/events silence/",
        ".tar.gz",
    ];
    let searched = eventually(SOON, || async {
        let finding = stage.listen(&stage.figures().await).await.err().unwrap_or_default();
        match places.iter().find(|place| !finding.contains(**place)) {
            None => Ok(()),
            Some(place) => Err(format!("it is not found in {place}: {finding}")),
        }
    });
    searched.await.unwrap();

    // Found words stay: this stage ends without the search.
    stage.canary = None;
    for kind in [KUSTOMIZATION, GIT_REPOSITORY] {
        stage.admin.delete(kind, target).await.unwrap();
        stage.wait_for(kind, target, |object| object.is_none()).await;
    }
    stage.shut_down().await;
}
