//! Requests to the port that are no reviews of an API server, and the fate of writes while no webhook answers.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tenure_admission::webhook::ClientVerifier;
use tenure_apiserver::authentication::ClientCertificates;
use tenure_testkit::{Admin, Cluster, Kubernetes, KubernetesBinaries, SOON, eventually};

use crate::door::{Door, certify, http_of};
use crate::stage::Stage;

async fn open_on_embedded(gate: Option<ClientVerifier>) -> (Stage, Door) {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    let stage = Stage::set_on(cluster).await;
    let door = Door::open(&stage.cluster, stage.settings(), gate).await;
    (stage, door)
}

fn edit_of(user: &str, groups: &[&str]) -> Value {
    let object = |data: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "git": data },
            "metadata": {
                "name": "strict", "namespace": "blue",
                "labels": { "kustomize.toolkit.fluxcd.io/namespace": "blue", "kustomize.toolkit.fluxcd.io/name": "strict" },
                "managedFields": [{
                    "manager": "kustomize-controller", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                    "fieldsV1": { "f:data": { "f:git": {} } }
                }]
            }
        })
    };
    json!({
        "operation": "UPDATE", "resource": { "group": "", "version": "v1", "resource": "configmaps" },
        "namespace": "blue", "name": "strict", "userInfo": { "username": user, "groups": groups },
        "object": object("2"), "oldObject": object("1")
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_review_reveals_nothing_to_its_user() {
    let (_stage, door) = open_on_embedded(None).await;
    let read_message = |answer: &Value| answer["status"]["message"].as_str().unwrap_or_default().to_owned();
    // An owner with the right to edit it learns where it comes from.
    let answer = door
        .review(edit_of("dora", &["blue-devs", "system:authenticated"]))
        .await;
    assert_eq!(answer["allowed"], false);
    assert_eq!(answer["status"]["code"], 403);
    assert_eq!(answer["status"]["reason"], "Forbidden");
    assert!(read_message(&answer).contains("OCIRepository blue-dev/o"), "{answer}");
    // A user without the right to edit it, or one that doesn't exist, would never have reached a
    // webhook.
    for user in ["nobody-knows-him", "system:serviceaccount:nowhere:x", ""] {
        let answer = door.review(edit_of(user, &["blue-devs"])).await;
        assert_eq!(answer["allowed"], false, "{answer}");
        assert!(read_message(&answer).contains("it is not answered"), "{answer}");
        for fact in ["OCIRepository", "Kustomization", "blue-dev"] {
            assert!(!answer.to_string().contains(fact), "{answer}");
        }
    }
    // The answer doesn't show which Tenant a home belongs to, either.
    let tenant = json!({
        "operation": "CREATE", "resource": { "group": "capsule.clastix.io", "version": "v1beta2", "resource": "tenants" }, "name": "x",
        "userInfo": { "username": "nobody-knows-him" },
        "object": { "metadata": { "name": "x", "annotations": { "tenure.dev/home-namespace": "red-home" } } }
    });
    let answer = door.review(tenant).await;
    assert!(
        read_message(&answer).contains("it is not answered") && !read_message(&answer).contains("Tenant red"),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_review_is_answered_with_its_problem() {
    let (_stage, door) = open_on_embedded(None).await;
    let post = |path: &str, body: &[u8]| http::Request::post(path).body(body.to_vec()).unwrap();
    let ask = |request: Value| {
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request }).to_string()
    };
    let deep = format!("{{\"request\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let cases: [(http::Request<Vec<u8>>, u16, &str); 8] = [
        (post("/", b"{}"), 404, "/mutate and /validate"),
        (http::Request::get("/mutate").body(Vec::new()).unwrap(), 405, "POST"),
        (post("/mutate", b""), 400, "no JSON"),
        (post("/validate", b"\xff\xfe"), 400, "no JSON"),
        (post("/validate", deep.as_bytes()), 400, "no JSON"),
        (
            post("/validate", b"{\"kind\":\"ConversionReview\"}"),
            400,
            "apiVersion is missing",
        ),
        (post("/validate", ask(json!(7)).as_bytes()), 400, "no proper request"),
        (
            post("/validate", ask(json!({ "uid": "x".repeat(129) })).as_bytes()),
            400,
            "request.uid",
        ),
    ];
    for (request, status, text_part) in cases {
        let (answered, text) = door.send(request, None).await;
        assert!(
            answered == status && text.contains(text_part),
            "{status} {text_part}: {answered} {text}"
        );
    }
    // A body with a too large announced length is refused at once.
    let answer = door.announce((8 << 20) + 1).await;
    assert!(
        answer.starts_with("HTTP/1.1 413") && answer.contains("more than 8388608 bytes"),
        "{answer}"
    );
    // A review without a usable request is denied, with the reason.
    let user = json!({ "username": "dora" });
    let resource = json!({ "group": "", "resource": "secrets" });
    for (request, field) in [
        (json!({}), "operation"),
        (
            json!({ "operation": "EAT", "resource": resource, "userInfo": user }),
            "operation",
        ),
        (json!({ "operation": "CREATE", "userInfo": user }), "resource"),
        (json!({ "operation": "CREATE", "resource": resource }), "userInfo"),
        (
            json!({ "operation": "CREATE", "resource": resource, "userInfo": user, "object": 7 }),
            "object",
        ),
    ] {
        let answer = door.review(request).await;
        assert_eq!(
            (&answer["allowed"], &answer["status"]["code"]),
            (&json!(false), &json!(400)),
            "{answer}"
        );
        let message = answer["status"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("no proper {field}")), "{message}");
    }
    // The webhook still answers, also for the largest possible objects.
    let mut large = edit_of("dora", &["blue-devs", "system:authenticated"]);
    for which in ["object", "oldObject"] {
        large[which]["data"]["own"] = json!("x".repeat(3 << 20));
    }
    assert_eq!(door.review(large).await["allowed"], false);
}

/// Clients without a certificate, or with another one, get the status 401.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_answers_only_certified_api_server() {
    let (api_server, other, stranger) = (
        certify(Some("kube-apiserver")),
        certify(Some("kubelet")),
        certify(Some("kube-apiserver")),
    );
    let read = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let gate = ClientVerifier {
        // The kubelet's authority is accepted, too: the authority alone isn't enough proof.
        authorities: ClientCertificates::new(&[read(&api_server.authority), read(&other.authority)]).unwrap(),
        names: vec!["kube-apiserver".to_owned()],
    };
    let (_stage, door) = open_on_embedded(Some(gate)).await;
    let mut request = edit_of("nobody-knows-him", &[]);
    request["uid"] = json!("u");
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
    for client in [None, Some(other), Some(stranger)] {
        let (status, text) = door.send(http_of("/validate", &review), client).await;
        assert!(
            status == 401 && text.contains("--admission-client-ca"),
            "{status} {text}"
        );
    }
    // The sender is proven to be the API server, so the webhook believes that the user has passed
    // its earlier checks.
    let (status, text) = door.send(http_of("/validate", &review), Some(api_server)).await;
    assert_eq!(status, 200);
    assert!(
        text.contains("managed by Git") && !text.contains("it is not answered"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_unknown_to_the_watch_is_read() {
    let (stage, door) = open_on_embedded(None).await;
    door.stop_following();
    let admin = &stage.cluster.admin;
    let tenant = admin
        .create(json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
            "metadata": { "name": "late", "annotations": { "tenure.dev/gitops-account": "exclusive" } },
            "spec": { "owners": [{ "kind": "User", "name": "dora" }] }
        }))
        .await
        .unwrap();
    let uid = tenant["metadata"]["uid"].as_str().unwrap();
    admin
        .create(json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": "late", "labels": { "capsule.clastix.io/tenant": "late" },
                "ownerReferences": [tenure_tenancy::make_owner_reference("late", uid)]
            }
        }))
        .await
        .unwrap();
    let pod = json!({
        "operation": "CREATE", "resource": { "group": "", "version": "v1", "resource": "pods" }, "namespace": "late", "name": "x",
        "userInfo": { "username": "dora", "groups": ["blue-devs", "system:authenticated"] },
        "object": { "metadata": { "name": "x" }, "spec": { "serviceAccountName": "late-gitops" } }
    });
    let answer = door.review(pod).await;
    let message = answer["status"]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("a Pod can't run as ServiceAccount late-gitops"),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_large_reviews_delay_no_other_review() {
    let (_stage, door) = open_on_embedded(None).await;
    let mut held = Vec::new();
    for length in [
        8 << 20,
        8 << 20,
        8 << 20,
        8 << 20,
        8 << 20,
        8 << 20,
        8 << 20,
        8 << 20,
        8 << 20,
        1 << 20,
        1000,
    ] {
        // All bytes except the last.
        let body = vec![b' '; length - 1];
        held.push(door.begin_review(length, body).await);
    }
    let asked = edit_of("dora", &["blue-devs", "system:authenticated"]);
    let answer = tokio::time::timeout(SOON, door.review(asked)).await;
    assert_eq!(answer.expect("it waits for those who send much")["allowed"], false);
    drop(held);
}

/// The reason why the webhook is not used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dead {
    /// No process listens.
    Gone,
    /// The listening process has an expired certificate.
    Expired,
}

/// Checks the fate of writes after the webhook stops answering, or its certificate is not trusted.
async fn see_the_dead(cluster: Cluster, dead: Dead) {
    let stage = Stage::set_on(cluster).await;
    let mut door = match dead {
        Dead::Gone => Door::open(&stage.cluster, stage.settings(), None).await,
        Dead::Expired => Door::open_ended(&stage.cluster, stage.settings()).await,
    };
    door.hang(&stage.cluster).await;
    let why = match dead {
        Dead::Gone => {
            door.close();
            "failed calling webhook"
        }
        Dead::Expired => "expired",
    };
    let admin = &stage.cluster.admin;
    let dora = admin.impersonating("dora").unwrap();
    let lane = admin
        .impersonating("system:serviceaccount:tenure-system:tenure-lane-pool")
        .unwrap();
    let manager = admin.impersonating("system:kube-controller-manager").unwrap();
    let alice = admin.impersonating("alice").unwrap();
    // Policies recognise an owner by a verb, which the installation grants.
    admin
        .apply(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "dead-provisions" },
            "rules": [{ "apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": ["provision"] }]
        }))
        .await
        .unwrap();
    admin
        .apply(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "dead-provisions" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dead-provisions" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice" }]
        }))
        .await
        .unwrap();
    for (number, user) in [
        "system:serviceaccount:tenure-system:tenure-lane-pool",
        "system:kube-controller-manager",
    ]
    .iter()
    .enumerate()
    {
        admin
            .apply(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": format!("dead-{number}") },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writes" },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]
            }))
            .await
            .unwrap();
        // An API server learns of bindings with a delay.
        let who = admin.impersonating(user).unwrap();
        let may = eventually(SOON, || async {
            let wanted = json!({ "verb": "create", "resource": "services", "namespace": "tight" });
            let asked = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": { "resourceAttributes": wanted }
            });
            match who.create(asked).await {
                Ok(answer) if answer["status"]["allowed"] == true => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        may.await.unwrap();
    }
    let config_map = |namespace: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "dead", "namespace": namespace } });
    let source = |name: &str| {
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": name, "namespace": "blue" },
            "spec": { "interval": "1h", "url": "https://example.org/a" }
        })
    };
    let namespace = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let goes = async |who: &Admin, object: Value| {
        let text = object.to_string();
        let made = who.create(object).await;
        assert!(made.is_ok(), "{text}: {made:?}");
    };
    let stops = async |who: &Admin, object: Value| {
        let text = object.to_string();
        let refused = who.create(object).await.expect_err(&text).to_string();
        assert!(
            refused.contains("failed calling webhook") && refused.contains(why),
            "{text}: {refused}"
        );
    };
    // Writes that only Tenure checks are refused, except for users that can repair.
    stops(&dora, source("a")).await;
    stops(&alice, namespace("blue-new")).await;
    let mut claiming = namespace("blue-newer");
    claiming["metadata"]["labels"] = json!({ "capsule.clastix.io/tenant": "blue" });
    stops(&dora, claiming).await;
    // A user that owns no Tenant makes namespaces without a tenant.
    goes(&dora, namespace("of-nobody")).await;
    stops(
        &dora,
        json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": "x" }, "spec": {} }),
    )
    .await;
    let service = |namespace: &str, name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": namespace },
            "spec": { "ports": [{ "port": 80 }] }
        })
    };
    let tess = admin.impersonating("tess").unwrap();
    stops(&tess, service("tight", "a")).await;
    // Objects that a controller creates from another user's template are refused, too. Updates of
    // existing ones are allowed.
    stops(&manager, service("tight", "b")).await;
    goes(admin, service("tight", "c")).await;
    let note = json!({ "metadata": { "annotations": { "example.org/note": "x" } } });
    manager
        .patch(("v1", "Service"), ("tight", "c"), note)
        .await
        .expect("an update by a controller goes on");
    // A Tenant without bounds waits for an answer only where an object reaches another tenant.
    goes(&dora, service("blue", "a")).await;
    let claim = |name: &str, volume: Option<&str>| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "namespace": "blue" },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } }, "volumeName": volume
            }
        })
    };
    goes(&dora, claim("plain", None)).await;
    stops(&dora, claim("reaching", Some("table-red"))).await;
    stops(&manager, claim("reaching", Some("table-red"))).await;
    // All other writes are allowed for every user: a tenant's objects that are not Flux's, and objects of the platform
    // or without a tenant.
    for namespace in ["blue", "nobody", "default", "tenure-system", "kube-system"] {
        goes(&dora, config_map(namespace)).await;
    }
    // Users that can repair, and Tenure itself, may write everything.
    goes(admin, source("b")).await;
    goes(admin, namespace("new")).await;
    let mut generated = source("c");
    generated["metadata"]["labels"] = json!({ "tenure.dev/surface": "apps" });
    generated["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "name": "apps", "uid": "00000000-0000-0000-0000-000000000000"
    }]);
    goes(&lane, generated).await;
    stops(&manager, source("d")).await;
    goes(
        admin,
        json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": "y" }, "spec": {} }),
    )
    .await;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        admin
            .delete(("admissionregistration.k8s.io/v1", kind), ("", "tenure"))
            .await
            .unwrap();
    }
}

/// A write is guarded if only the webhook checks it. Users that may repair are never stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dead_webhook_stops_only_guarded_writes() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    see_the_dead(cluster, Dead::Gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dead_webhook_stops_only_guarded_writes_on_real_server() {
    let Some(binaries) = KubernetesBinaries::find().unwrap() else {
        eprintln!("skipped: TENURE_KUBERNETES_BIN names no real control plane");
        return;
    };
    see_the_dead_on_a_real_api_server(&binaries, Dead::Gone).await;
}

async fn see_the_dead_on_a_real_api_server(binaries: &KubernetesBinaries, dead: Dead) {
    let kubernetes = Kubernetes::start(binaries, true).await.unwrap();
    see_the_dead(Cluster::connect_to(&kubernetes).await.unwrap(), dead).await;
}

/// The message names the expired certificate, and repairs are still allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn expired_certificate_stops_only_guarded_writes() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    see_the_dead(cluster, Dead::Expired).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn expired_certificate_stops_only_guarded_writes_on_real_server() {
    let Some(binaries) = KubernetesBinaries::find().unwrap() else {
        eprintln!("skipped: TENURE_KUBERNETES_BIN names no real control plane");
        return;
    };
    see_the_dead_on_a_real_api_server(&binaries, Dead::Expired).await;
}
