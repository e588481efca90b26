//! Changes to a credential without the controllers: to its Secret, at its host, and to sources that use it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tenure_forge_server::{Fault, Misbehaviour, Owner};
use tenure_registry_server::RegistryServer;
use tenure_testkit::{SOON, eventually};

use super::bed::{Bed, PLATFORM, PROJECT, PROVIDER_KIND, STAGING, decode, ledger};
use crate::deploy_keys::{ROLE, SECRET};
use crate::stage::{GIT_REPOSITORY, condition};

const NAME: &str = "gitlab-flux-token";

impl Bed {
    /// Changes the Secret of a namespace as an administrator with all rights.
    async fn change_secret(&self, namespace: &str, patch: Value) {
        self.admin().patch(SECRET, (namespace, NAME), patch).await.unwrap();
    }

    /// Returns the Secret, after it fulfils the condition.
    async fn secret_once(&self, namespace: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let is_so = |secret: Option<&Value>| secret.is_some_and(&holds);
        self.stage.wait_for(SECRET, (namespace, NAME), is_so).await.unwrap()
    }

    /// Asks a source to fetch.
    async fn fetch(&self, namespace: &str, name: &str) {
        let at = jiff::Timestamp::now().to_string();
        let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": at } } });
        self.admin()
            .patch(GIT_REPOSITORY, (namespace, name), patch)
            .await
            .unwrap();
    }
}

fn is_marked(secret: &Value) -> bool {
    let labels = &secret["metadata"]["labels"];
    labels["tenure.dev/access-request"].is_string() && labels["app.kubernetes.io/managed-by"] == "tenure"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_credential_secret_is_repaired_within_seconds() {
    let bed = Bed::new(&["acc-o1"], "namespaces: [acc-o1], service_accounts: [flux]").await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    bed.wait_for_delivery().await;
    let first = bed.secret("acc-o1").await.unwrap();
    let password = |secret: &Value| decode(secret, "password");
    let is_new = |secret: &Value, before: &Value| password(secret) != password(before) && is_marked(secret);

    // Its labels are removed: the account that writes it may restore them, and nothing else changes.
    bed.change_secret("acc-o1", json!({ "metadata": { "labels": null } }))
        .await;
    bed.look_again(&request).await;
    let marked = bed.secret_once("acc-o1", is_marked).await;
    assert_eq!(password(&marked), password(&first));
    assert_eq!(bed.live().len(), 1);

    // Labels and value are changed: another credential is delivered.
    let edited = json!({ "metadata": { "labels": null }, "data": { "password": STANDARD.encode("sesame") } });
    bed.change_secret("acc-o1", edited).await;
    bed.look_again(&request).await;
    let second = bed
        .secret_once("acc-o1", |secret| {
            is_new(secret, &first) && password(secret) != "sesame"
        })
        .await;
    let is_second =
        |request: &Value| ledger(request)["current"]["generation"] == 2 && ledger(request)["next"].is_null();
    bed.request("has the second in use", is_second).await;

    // The whole Secret is deleted, without a request to check. A new one is made immediately, if the last unplanned one is long ago.
    bed.age().await;
    bed.admin().delete(SECRET, ("acc-o1", NAME)).await.unwrap();
    bed.secret_once("acc-o1", |secret| is_new(secret, &second)).await;
    bed.wait_for_delivery().await;

    // A Secret of another author is not touched, whatever its name is.
    bed.revoke("acc-o1", NAME).await;
    let own = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": NAME, "namespace": "acc-o1" },
        "data": { "password": STANDARD.encode("own") },
    });
    bed.admin().apply_as("kubectl", own).await.unwrap();
    let writer = bed.stage.bearing(PLATFORM, "tenure-secret-writer").await;
    let marks = first["metadata"]["labels"].clone();
    let taken = json!({ "metadata": { "labels": marks }, "data": { "password": STANDARD.encode("theirs") } });
    let refused = writer
        .patch(SECRET, ("acc-o1", NAME), taken)
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("before and after the write"), "{refused}");
    bed.admin().delete(SECRET, ("acc-o1", NAME)).await.unwrap();
    bed.stage.shut_down().await;
}

/// The replacement begins once the host refuses a source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_revoked_at_host_is_replaced_after_refusal() {
    let mut bed = Bed::new(&["acc-o2"], "namespaces: [acc-o2]").await;
    bed.source("acc-o2").await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    bed.wait_for_delivery().await;
    // A list of the host from before its creation would report it as gone.
    bed.stage.restart().await;
    bed.age().await;
    let first = bed.live()[0].id;
    assert!(bed.forge.revoke_in_web_pages(Owner::Project(bed.project), first));
    bed.fetch("acc-o2", "app").await;
    let request = bed
        .request("has another credential", |request| {
            ledger(request)["current"]["id"].as_u64().is_some_and(|id| id != first)
        })
        .await;
    assert!(
        request["status"]["history"].to_string().contains("RevokedAtHost"),
        "{request:#?}"
    );
    bed.stage
        .ready(GIT_REPOSITORY, ("acc-o2", "app"), "True", "Succeeded")
        .await;
    let [second] = &bed.live()[..] else {
        panic!("{:?}", bed.live())
    };
    assert_ne!(second.id, first);
    bed.stage.shut_down().await;
}

/// A mistake of a tenant in a source does not keep a leaked credential alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaked_credential_is_revoked_although_branch_is_missing() {
    let mut bed = Bed::new(&["acc-o3"], "namespaces: [acc-o3]").await;
    bed.source("acc-o3").await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    bed.wait_for_delivery().await;
    let mistyped = json!({ "spec": { "ref": { "branch": "mian" } } });
    bed.admin()
        .patch(GIT_REPOSITORY, ("acc-o3", "app"), mistyped)
        .await
        .unwrap();
    bed.stage
        .ready(GIT_REPOSITORY, ("acc-o3", "app"), "False", "GitOperationFailed")
        .await;
    let leaked = bed.live()[0].id;
    bed.replace(true).await;
    let gone = eventually(3 * SOON, || async {
        match bed.live().iter().all(|live| live.id != leaked) {
            true => Ok(()),
            false => Err(format!("{:?}", bed.live())),
        }
    });
    gone.await.unwrap();
    bed.stage.shut_down().await;
}

/// A host with certificates of its own authority is reached with the delivered Secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivered_secret_contains_certificate_authority_of_host() {
    let mut bed = Bed::new(&["acc-o4"], "namespaces: [acc-o4]").await;
    let authority = async |bed: &mut Bed| {
        let server = RegistryServer::start_with_tls(&["git.example.org"]).await.unwrap();
        let pem = server.certificate().unwrap().to_owned();
        let patch = json!({ "data": { "ca.crt": STANDARD.encode(&pem) } });
        let place = (PLATFORM, "gitlab-authoriser");
        bed.admin().patch(SECRET, place, patch).await.unwrap();
        // A connection is used for a minute, so the controllers are restarted.
        bed.stage.restart().await;
        pem
    };
    let first = authority(&mut bed).await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    bed.wait_for_delivery().await;
    let secret = bed.secret("acc-o4").await.unwrap();
    assert_eq!(decode(&secret, "ca.crt"), first);
    // The host has other certificates now. The same credential continues with these.
    let second = authority(&mut bed).await;
    let has_it = |secret: &Value| secret["data"]["ca.crt"].is_string() && decode(secret, "ca.crt") == second;
    let changed = bed.secret_once("acc-o4", has_it).await;
    assert_eq!(decode(&changed, "password"), decode(&secret, "password"));
    bed.stage.shut_down().await;
}

/// If a host denies its lists to the authoriser, the living credentials are unknown, and the provider reports that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_says_which_lists_its_host_refuses() {
    let mut bed = Bed::new(&["acc-o5"], "namespaces: [acc-o5]").await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    bed.wait_for_delivery().await;
    let fault = Fault::always("/deploy_tokens", Misbehaviour::server_error());
    bed.forge.misbehave(fault);
    // The host is listed when the controllers begin, and once an hour.
    bed.stage.restart().await;
    let is_so = |provider: Option<&Value>, status: &str, text: &str| {
        let swept = provider.and_then(|provider| condition(provider, "Swept"));
        swept.is_some_and(|swept| swept["status"] == status && swept["message"].as_str().unwrap().contains(text))
    };
    let place = (PLATFORM, "work");
    bed.stage
        .wait_for(PROVIDER_KIND, place, |provider| is_so(provider, "False", PROJECT))
        .await;
    bed.forge.behave();
    bed.stage.restart().await;
    bed.stage
        .wait_for(PROVIDER_KIND, place, |provider| is_so(provider, "True", ""))
        .await;
    bed.stage.shut_down().await;
}

/// A Secret holds about 2,000 values that no source was seen to use. The next ones go into another Secret, once an administrator has named it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_without_room_are_staged_in_another_secret() {
    let bed = Bed::new(&["acc-o6"], "namespaces: [acc-o6]").await;
    let others = json!({ "data": { "of-others": STANDARD.encode(vec![b'x'; 900 << 10]) } });
    let place = (PLATFORM, STAGING);
    bed.admin().patch(SECRET, place, others).await.unwrap();
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    let second = format!("{STAGING}-1");
    bed.request("has no room", |request| {
        let ready = condition(request, "Ready");
        ready.is_some_and(|ready| ready["message"].as_str().unwrap().contains(&second))
    })
    .await;
    assert!(bed.live().is_empty(), "nothing is made that can't be kept");

    let role = bed.stage.get(ROLE, (PLATFORM, "gitlab-authoriser")).await.unwrap();
    let mut rules = role["rules"].clone();
    rules[1]["resourceNames"] = json!([STAGING, second]);
    let rules = json!({ "rules": rules });
    bed.admin()
        .patch(ROLE, (PLATFORM, "gitlab-authoriser"), rules)
        .await
        .unwrap();
    let empty = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": second, "namespace": PLATFORM } });
    bed.admin().apply(empty).await.unwrap();
    bed.age().await;
    bed.wait_for_delivery().await;
    // The value is removed there once it is in use. Values of others in the first Secret stay.
    let emptied = bed.stage.get(SECRET, (PLATFORM, &second)).await.unwrap();
    assert!(
        emptied["data"].as_object().is_none_or(serde_json::Map::is_empty),
        "{emptied:#?}"
    );
    let full = bed.stage.get(SECRET, (PLATFORM, STAGING)).await.unwrap();
    assert!(full["data"]["of-others"].is_string());
    // The first Secret records the second. On a shared cluster, the next test has no right to read that one.
    for name in [STAGING, &second] {
        bed.admin().delete(SECRET, (PLATFORM, name)).await.unwrap();
    }
    bed.stage.shut_down().await;
}

/// Checks whether a condition says that the host takes no requests.
fn waits_for_host(object: &Value, type_: &str) -> bool {
    let found = condition(object, type_);
    let message = found.and_then(|found| found["message"].as_str());
    message.is_some_and(|message| message.contains("the host takes no"))
}

/// A host limits the address of the cluster. So its other providers wait, too. The limit may come with an answer of its API, or of its Git server to a probe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_host_gets_no_request_of_another_provider() {
    for (namespace, path, made) in [("acc-o7", "/", 0), ("acc-o8", "/info/refs", 1)] {
        let bed = Bed::new(&[namespace], &format!("namespaces: [{namespace}]")).await;
        let request = bed.pending().await;
        bed.forge.set_clone_address(bed.forge.url());
        bed.forge.misbehave(Fault::always(path, Misbehaviour::rate_limit(600)));
        bed.answer(&request, "Approved").await;
        bed.request("waits for the host", |request| waits_for_host(request, "Ready"))
            .await;
        assert_eq!(bed.live().len(), made);
        check_other_provider_waits(&bed).await;
        bed.stage.shut_down().await;
    }
}

/// Creates another provider of the same host, which sends the host nothing.
async fn check_other_provider_waits(bed: &Bed) {
    let asked = bed.forge.requests().len();
    let work = bed.stage.get(PROVIDER_KIND, (PLATFORM, "work")).await.unwrap();
    let mut again = json!({
        "apiVersion": PROVIDER_KIND.0, "kind": PROVIDER_KIND.1, "metadata": { "name": "again", "namespace": PLATFORM },
        "spec": work["spec"],
    });
    again["spec"].as_object_mut().unwrap().remove("agent");
    bed.admin().apply(again).await.unwrap();
    let is_asked =
        |provider: Option<&Value>| provider.is_some_and(|provider| waits_for_host(provider, "AuthoriserWorks"));
    bed.stage.wait_for(PROVIDER_KIND, (PLATFORM, "again"), is_asked).await;
    assert_eq!(bed.forge.requests().len(), asked);
    bed.admin().delete(PROVIDER_KIND, (PLATFORM, "again")).await.unwrap();
}

/// A project that refuses its tokens gets no token for each namespace. The other namespaces wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusing_project_gets_few_tokens_at_once() {
    let names: Vec<String> = (1..=6).map(|number| format!("acc-o9-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bed = Bed::new(&names, &format!("namespaces: [{}]", names.join(", "))).await;
    let request = bed.pending().await;
    bed.forge.set_clone_address(bed.forge.url());
    bed.forge
        .misbehave(Fault::always("/info/refs", Misbehaviour::unauthorized()));
    bed.answer(&request, "Approved").await;
    // The conditions are written once no namespace has a step to do.
    bed.request("was refused", |request| {
        let ready = condition(request, "Ready");
        ready.is_some_and(|ready| ready["message"].as_str().unwrap().contains("is refused"))
    })
    .await;
    assert!((1..=4).contains(&bed.live().len()), "{:#?}", bed.live());
    bed.stage.shut_down().await;
}

/// Another user writes another request's name into the label, and edits the value. The recorded uid says whose Secret it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_mark_of_secret_is_replaced() {
    let bed = Bed::new(&["acc-o10"], "namespaces: [acc-o10]").await;
    let request = bed.pending().await;
    bed.answer(&request, "Approved").await;
    bed.wait_for_delivery().await;
    let name = request["metadata"]["name"].as_str().unwrap();
    let first = bed.secret("acc-o10").await.unwrap();
    let forged = json!({
        "metadata": { "labels": { "tenure.dev/access-request": "somebodys" } }, "data": { "password": STANDARD.encode("sesame") },
    });
    bed.change_secret("acc-o10", forged).await;
    bed.look_again(&request).await;
    let is_repaired = |secret: &Value| {
        let password = decode(secret, "password");
        secret["metadata"]["labels"]["tenure.dev/access-request"] == name
            && password != "sesame"
            && password != decode(&first, "password")
    };
    bed.secret_once("acc-o10", is_repaired).await;
    bed.stage.shut_down().await;
}
