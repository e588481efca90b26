//! The grammar of requests that `evil` sends, and the names that it draws from.

use http::Method;
use serde_json::{Value, json};
use tenure_testkit::Chance;

use crate::api::{collection, plural};
use crate::metadata::{Scene, draw_patch, lay_metadata};
use crate::requests::{draw_cluster_object, draw_object};

/// Namespaces that nobody has yet and that something outside `evil` already names: a binding, an owner, a protected name.
pub(crate) const MENTIONED: [&str; 7] = [
    "alpha-ci",
    "alpha-bots",
    "argocd",
    "monitoring",
    "flux-system",
    "cert-manager",
    "velero",
];

/// Namespaces of others that exist.
const FOREIGN: [&str; 5] = ["alpha", "alpha-dev", "kube-system", "tenure-system", "default"];

/// Kinds whose objects in its own namespaces `evil` looks up to patch or delete them.
const FOUND: [(&str, &str); 9] = [
    (RBAC, "RoleBinding"),
    (RBAC, "Role"),
    ("v1", "ServiceAccount"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("v1", "ResourceQuota"),
    ("v1", "ConfigMap"),
    ("v1", "PersistentVolumeClaim"),
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
    ("tenure.dev/v1alpha1", "Surface"),
];
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The account that sends a request.
#[derive(Clone, Debug)]
pub(crate) enum Sender {
    /// The owner of Tenant evil.
    Owner,
    /// A ServiceAccount, by a token that the owner asks for.
    Account(String, String),
}

/// A request, or what leads to one.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A request as it is sent.
    Request(Sender, Method, String, Value),
    /// A request about an object that is looked up first: the collection, an index, a method, a body.
    Found(Sender, String, usize, Method, Value),
    /// A commit of these objects to the tenant's repository.
    Commit(Vec<Value>),
}

/// Draws a step.
pub(crate) fn draw_step(chance: &mut Chance, scene: &Scene) -> Step {
    match chance.below(20) {
        0..=2 => draw_new_namespace(chance, scene),
        3 | 4 => draw_namespace_change(chance, scene),
        5..=9 => {
            let namespace = draw_namespace(chance);
            let object = draw_object(chance, scene, &namespace);
            let path = collection(
                object["apiVersion"].as_str().unwrap(),
                &plural(object["kind"].as_str().unwrap()),
                Some(&namespace),
            );
            if chance.once_in(3) {
                let path = format!(
                    "{path}/{}?fieldManager={}&force=true",
                    object["metadata"]["name"].as_str().unwrap(),
                    draw_manager(chance)
                );
                return Step::Request(draw_sender(chance), Method::PATCH, path, object);
            }
            Step::Request(draw_sender(chance), Method::POST, path, object)
        }
        10..=13 => draw_found(chance, scene),
        14 => {
            let object = draw_cluster_object(chance, scene);
            let path = collection(
                object["apiVersion"].as_str().unwrap(),
                &plural(object["kind"].as_str().unwrap()),
                None,
            );
            Step::Request(draw_sender(chance), Method::POST, path, object)
        }
        15 => {
            let accounts = [
                "default",
                "evil-gitops",
                "alpha-gitops",
                "argocd-application-controller",
                "robot",
                "deployer",
            ];
            let account = chance.pick(&accounts).copied().unwrap();
            let path = format!(
                "/api/v1/namespaces/{}/serviceaccounts/{account}/token",
                draw_namespace(chance)
            );
            Step::Request(
                draw_sender(chance),
                Method::POST,
                path,
                json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} }),
            )
        }
        _ => {
            let count = 1 + chance.below(3);
            let objects = (0..count).map(|_| {
                let namespace = draw_namespace(chance);
                draw_object(chance, scene, &namespace)
            });
            Step::Commit(objects.collect())
        }
    }
}

fn draw_sender(chance: &mut Chance) -> Sender {
    match chance.below(6) {
        0 => {
            let namespace = ["evil", "evil-1"];
            let name = ["default", "evil-gitops", "robot"];
            let (namespace, name) = (chance.pick(&namespace).unwrap(), chance.pick(&name).unwrap());
            Sender::Account((*namespace).to_owned(), (*name).to_owned())
        }
        _ => Sender::Owner,
    }
}

fn draw_manager(chance: &mut Chance) -> &'static str {
    chance
        .pick(&["kubectl", "tenure", "tenure-controller"])
        .copied()
        .unwrap()
}

/// A namespace: one of `evil`'s most of the time.
fn draw_namespace(chance: &mut Chance) -> String {
    let own = ["evil", "evil-1", "evil-1", "evil-2"];
    let chosen = match chance.below(16) {
        0 => chance.pick(&MENTIONED),
        1 | 2 => chance.pick(&FOREIGN),
        _ => chance.pick(&own),
    };
    (*chosen.unwrap()).to_owned()
}

fn draw_new_namespace(chance: &mut Chance, scene: &Scene) -> Step {
    let names = ["evil-1", "evil-2", "evil-3"];
    let name = if chance.once_in(2) {
        chance.pick(&names)
    } else {
        chance.pick(&MENTIONED)
    };
    let mut object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name.unwrap() } });
    if !chance.once_in(3) {
        object["metadata"]["labels"] = json!({ "capsule.clastix.io/tenant": "evil" });
    }
    lay_metadata(chance, scene, &mut object);
    Step::Request(Sender::Owner, Method::POST, "/api/v1/namespaces".to_owned(), object)
}

fn draw_namespace_change(chance: &mut Chance, scene: &Scene) -> Step {
    let path = format!("/api/v1/namespaces/{}", draw_namespace(chance));
    match chance.below(5) {
        0 => Step::Request(draw_sender(chance), Method::DELETE, path, Value::Null),
        1 => Step::Request(
            draw_sender(chance),
            Method::PATCH,
            format!("{path}/status"),
            draw_patch(chance, scene),
        ),
        _ => Step::Request(draw_sender(chance), Method::PATCH, path, draw_patch(chance, scene)),
    }
}

fn draw_found(chance: &mut Chance, scene: &Scene) -> Step {
    let (version, kind) = chance.pick(&FOUND).copied().unwrap();
    let path = collection(version, &plural(kind), Some(&draw_namespace(chance)));
    let index = usize::try_from(chance.below(7)).unwrap_or_default();
    let (method, body) = match chance.below(4) {
        0 => (Method::DELETE, Value::Null),
        1 if kind == "RoleBinding" => (
            Method::PATCH,
            json!({ "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "evil-owner"
        }] }),
        ),
        _ => (Method::PATCH, draw_patch(chance, scene)),
    };
    Step::Found(draw_sender(chance), path, index, method, body)
}
