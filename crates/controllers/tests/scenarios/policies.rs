//! Policies that the controllers maintain: the facts that policies read are written first and follow their sources, and removed or weakened policies
//! are restored.

use http::{Method, Request};
use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::stage::{Stage, condition};
use crate::tenants::{SURFACE, TENANT, surface, surface_ready, tenant};

const POLICY: (&str, &str) = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy");
const BINDING: (&str, &str) = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding");
const NAMESPACE: (&str, &str) = ("v1", "Namespace");
const ENFORCEMENT: (&str, &str) = ("tenure.dev/v1alpha1", "Enforcement");
const ENFORCEMENTS: &str = "/apis/tenure.dev/v1alpha1/enforcements";
/// A policy that no current version creates. The stage's controllers have the rights of an earlier version that did.
pub(crate) const EARLIER: &str = "tenure-earlier";

fn is_ready(enforcement: Option<&Value>) -> bool {
    let ready = enforcement.and_then(|enforcement| condition(enforcement, "Ready"));
    ready.is_some_and(|ready| ready["status"] == "True")
}

/// Sends a dry-run as a user. Returns the message that refuses it, if it is refused.
async fn ask(stage: &Stage, (method, who): (Method, &str), target: &str, body: &Value) -> Result<(), String> {
    let request = Request::builder()
        .method(method)
        .uri(format!("{target}?dryRun=All"))
        .header("content-type", "application/json")
        .header("impersonate-user", who)
        .body(body.to_string().into_bytes())
        .unwrap();
    match stage.admin.client().request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

/// RBAC's message for an owner whose rights are not bound.
const NO_RIGHT: &str = "cannot create resource";

/// Asks until a policy refuses with these words (or RBAC, for [`NO_RIGHT`]), or, without words, until the request is allowed.
async fn until_answered(stage: &Stage, who: &str, target: &str, body: &Value, part: Option<&str>) {
    ask_until(stage, (Method::POST, who), target, body, part).await;
}

/// Asks until the update of an existing object, with its whole content, has this result.
async fn until_edited(stage: &Stage, who: &str, target: &str, body: &Value, part: Option<&str>) {
    ask_until(stage, (Method::PUT, who), target, body, part).await;
}

async fn ask_until(stage: &Stage, (method, who): (Method, &str), target: &str, body: &Value, part: Option<&str>) {
    let asked = eventually(SOON, || async {
        let answer = ask(stage, (method.clone(), who), target, body).await;
        let is_right = match (&answer, part) {
            (Ok(()), None) => true,
            (Err(message), Some(part)) => {
                let is_by_policy = message.contains("ValidatingAdmissionPolicy 'tenure-");
                message.contains(part) && (is_by_policy || part == NO_RIGHT)
            }
            _ => false,
        };
        if is_right { Ok(()) } else { Err(answer) }
    });
    if let Err(last) = asked.await {
        panic!("{who} at {target}: {last:?}, not {part:?}");
    }
}

fn fact<'a>(namespace: &'a Value, key: &str) -> Option<&'a str> {
    namespace
        .pointer("/metadata/annotations")?
        .get(format!("facts.tenure.dev/{key}"))?
        .as_str()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_follow_facts_that_controllers_write() {
    let stage = Stage::set_policed("policed").await;
    let labelled = |name: &str, tenant: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": { "capsule.clastix.io/tenant": tenant } } });
    // The label names a Tenant that does not exist.
    stage
        .admin
        .apply(labelled("policed-astray", "policed-nobody"))
        .await
        .unwrap();
    tenant(&stage, "policed-blue").await;
    let is_stated = |namespace: Option<&Value>| {
        namespace.is_some_and(|namespace| {
            fact(namespace, "account") == Some("policed-blue-gitops")
                && fact(namespace, "namespaces") == Some("policed-blue")
        })
    };
    stage.wait_for(NAMESPACE, ("", "policed-blue"), is_stated).await;
    let is_nobodys =
        |namespace: Option<&Value>| namespace.is_some_and(|namespace| fact(namespace, "tenant") == Some(""));
    stage.wait_for(NAMESPACE, ("", "policed-astray"), is_nobodys).await;

    // Owners create namespaces only for their own Tenant.
    let (owner, namespaces) = ("policed-blue-owner", "/api/v1/namespaces");
    let plain = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "policed-blue-x" } });
    until_answered(&stage, owner, namespaces, &plain, Some("names none")).await;
    until_answered(
        &stage,
        owner,
        namespaces,
        &labelled("policed-blue-x", "policed-blue"),
        None,
    )
    .await;
    let others = labelled("policed-blue-x", "policed-green");
    until_answered(
        &stage,
        owner,
        namespaces,
        &others,
        Some("no Tenant of this name has it as an owner"),
    )
    .await;
    // Up to the quota. No expression counts namespaces: the right to create them ends and comes back.
    let another = labelled("policed-blue-x", "policed-blue");
    for (quota, part) in [
        (
            json!(1),
            Some(
                "Tenant policed-blue has reached its quota of namespaces, or has got too many within half a minute: try again in half a minute",
            ),
        ),
        (json!(2), None),
        (
            json!(1),
            Some("Tenant policed-blue has reached its quota of namespaces, or has got"),
        ),
        (Value::Null, None),
    ] {
        let quota = json!({ "spec": { "namespaceOptions": { "quota": quota } } });
        stage.admin.patch(TENANT, ("", "policed-blue"), quota).await.unwrap();
        until_answered(&stage, owner, namespaces, &another, part).await;
    }

    // A surface works: no policy refuses the writes of its lane.
    let files = [(
        "map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: policed }\ndata: { git: 'yes' }\n",
    )];
    let _repository = surface(&stage, "policed-blue", "app", &files, json!({})).await;
    surface_ready(&stage, ("policed-blue", "app")).await;

    // This also holds in a shard, whose label the lane does not write.
    let shard = json!({ "metadata": { "labels": { "sharding.fluxcd.io/key": "two" } } });
    stage.admin.patch(TENANT, ("", "policed-blue"), shard).await.unwrap();
    let is_in_shard =
        |namespace: Option<&Value>| namespace.is_some_and(|namespace| fact(namespace, "shard") == Some("two"));
    stage.wait_for(NAMESPACE, ("", "policed-blue"), is_in_shard).await;
    let more = [(
        "map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: policed-too }\n",
    )];
    let _other = surface(&stage, "policed-blue", "late", &more, json!({})).await;
    surface_ready(&stage, ("policed-blue", "late")).await;

    // Edits of applied objects are refused while the Surface says so, and allowed again while the Surface is suspended.
    let edited =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "policed" }, "data": { "git": "no" } });
    let suspend_patch = |suspend: bool| json!({ "metadata": { "annotations": { "tenure.dev/hand-edits": "refuse" } }, "spec": { "suspend": suspend } });
    let target = "/api/v1/namespaces/policed-blue/configmaps/policed";
    until_edited(&stage, owner, target, &edited, None).await;
    stage
        .admin
        .patch(SURFACE, ("policed-blue", "app"), suspend_patch(false))
        .await
        .unwrap();
    until_edited(
        &stage,
        owner,
        target,
        &edited,
        Some("are managed by Git: change it in Git"),
    )
    .await;
    stage
        .admin
        .patch(SURFACE, ("policed-blue", "app"), suspend_patch(true))
        .await
        .unwrap();
    until_edited(&stage, owner, target, &edited, None).await;

    // Facts follow a change of the Tenant.
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" } });
    let maps = "/api/v1/namespaces/policed-blue/configmaps";
    until_answered(&stage, owner, maps, &map, None).await;
    let cordon = |cordoned: bool| json!({ "spec": { "cordoned": cordoned } });
    stage
        .admin
        .patch(TENANT, ("", "policed-blue"), cordon(true))
        .await
        .unwrap();
    until_answered(&stage, owner, maps, &map, Some("Tenant policed-blue is cordoned")).await;
    until_answered(
        &stage,
        owner,
        namespaces,
        &labelled("policed-blue-x", "policed-blue"),
        Some("no Tenant of this name has it as an owner"),
    )
    .await;
    let is_acted_on = |tenant: Option<&Value>| {
        let message = tenant
            .and_then(|tenant| condition(tenant, "Ready"))
            .map(|ready| ready["message"].to_string());
        tenant.is_some_and(|tenant| tenant["status"]["state"] == "Cordoned")
            && message.is_some_and(|message| !message.contains("without effect"))
    };
    stage.wait_for(TENANT, ("", "policed-blue"), is_acted_on).await;
    stage
        .admin
        .patch(TENANT, ("", "policed-blue"), cordon(false))
        .await
        .unwrap();
    until_answered(&stage, owner, maps, &map, None).await;

    // An owner can't create a namespace without space for the facts. If such a namespace exists anyway, it affects only its own tenant: the owner
    // gets no rights there, and everything else continues.
    let mut large = labelled("policed-blue-x", "policed-blue");
    large["metadata"]["annotations"] = json!({ "example.org/large": "x".repeat(40 << 10) });
    until_answered(&stage, owner, namespaces, &large, Some("characters of annotations")).await;
    let mut full = labelled("policed-full", "policed-full");
    full["metadata"]["annotations"] = json!({ "example.org/full": "x".repeat((256 << 10) - 24) });
    stage.admin.apply(full).await.unwrap();
    let owners = json!([{ "kind": "User", "name": "policed-full-owner" }]);
    let of_full = json!({
        "apiVersion": TENANT.0, "kind": TENANT.1, "metadata": { "name": "policed-full" }, "spec": { "owners": owners }
    });
    stage.admin.apply(of_full).await.unwrap();
    let maps_of_full = "/api/v1/namespaces/policed-full/configmaps";
    until_answered(&stage, "policed-full-owner", maps_of_full, &map, Some(NO_RIGHT)).await;
    put_back(&stage).await;
    stage.shut_down().await;
}

/// Collects the states of Ready from this version of the Enforcement on, until it is True again. Restored policies were restored because of the
/// change alone, since satisfied controllers check nothing by themselves here within a day.
async fn read_until_ready(stage: &Stage, before: &Value) -> Vec<(String, String, String)> {
    let mut seen = Vec::new();
    let version = before["metadata"]["resourceVersion"].as_str().unwrap();
    let following = stage.admin.follow(ENFORCEMENTS, version, |enforcement| {
        let ready = condition(enforcement, "Ready").unwrap();
        let text = |key: &str| ready[key].as_str().unwrap().to_owned();
        seen.push((text("status"), text("reason"), text("message")));
        ready["status"] == "True"
    });
    tokio::time::timeout(SOON, following).await.unwrap().unwrap();
    seen
}

/// Deleted or weakened policies are restored and reported. Untouched ones were written once.
async fn put_back(stage: &Stage) {
    let is_whole = |binding: Option<&Value>| {
        binding.is_some_and(|binding| binding["spec"]["validationActions"] == json!(["Deny"]))
    };
    stage.wait_for(BINDING, ("", "tenure-cordoned"), is_whole).await;
    let enforcement = stage.wait_for(ENFORCEMENT, ("", "tenure"), is_ready).await.unwrap();
    stage.admin.delete(BINDING, ("", "tenure-cordoned")).await.unwrap();
    stage.wait_for(BINDING, ("", "tenure-cordoned"), is_whole).await;
    // Ready is False meanwhile and names the cause. It is True again after a request has met the policy.
    let seen = read_until_ready(stage, &enforcement).await;
    let (status, reason, message) = &seen[0];
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Weakened"), "{seen:?}");
    assert!(
        message.starts_with("ValidatingAdmissionPolicyBinding tenure-cordoned: they differ from what Tenure wrote"),
        "{seen:?}"
    );
    assert!(
        seen.iter()
            .any(|(status, reason, _)| status == "False" && reason == "NotMetYet"),
        "{seen:?}"
    );
    let content = stage.wait_for(ENFORCEMENT, ("", "tenure"), is_ready).await.unwrap();
    let weaker = json!({ "spec": { "validationActions": ["Audit"] } });
    stage
        .admin
        .patch(BINDING, ("", "tenure-namespaces"), weaker)
        .await
        .unwrap();
    stage.wait_for(BINDING, ("", "tenure-namespaces"), is_whole).await;
    read_until_ready(stage, &content).await;
    let content = stage.wait_for(ENFORCEMENT, ("", "tenure"), is_ready).await.unwrap();
    let excluded = json!({ "spec": { "matchConstraints": { "excludeResourceRules": [{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]
    }] } } });
    stage
        .admin
        .patch(POLICY, ("", "tenure-namespaces"), excluded)
        .await
        .unwrap();
    let has_none = |policy: Option<&Value>| {
        policy.is_some_and(|policy| policy.pointer("/spec/matchConstraints/excludeResourceRules").is_none())
    };
    stage.wait_for(POLICY, ("", "tenure-namespaces"), has_none).await;
    read_until_ready(stage, &content).await;
    let restored = eventually(SOON, || async {
        let events = stage.admin.list(("v1", "Event"), "default").await.unwrap();
        let messages: Vec<String> = events
            .iter()
            .filter(|event| event["reason"] == "PolicyPutBack")
            .map(|event| event["message"].as_str().unwrap_or_default().to_owned())
            .collect();
        let has = |part: &str| messages.iter().any(|message| message.contains(part));
        let all = has("Binding tenure-cordoned was missing")
            && has("Binding tenure-namespaces was changed (spec.validationActions)")
            && has("Policy tenure-namespaces was changed (spec.matchConstraints)");
        if all { Ok(()) } else { Err(messages) }
    });
    restored.await.unwrap();
    // Policies of another version are removed if this version has rights on them. Others with a similar name stay.
    let made = |name: &str, manager: &str| {
        json!({
            "apiVersion": POLICY.0, "kind": POLICY.1,
            "metadata": { "name": name, "labels": { "app.kubernetes.io/managed-by": manager } },
            "spec": {
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]
                }] },
                "validations": [{ "expression": "true" }]
            }
        })
    };
    stage.admin.apply(made("tenure-by-hand", "somebody")).await.unwrap();
    stage.admin.apply(made(EARLIER, "tenure")).await.unwrap();
    stage.wait_for(POLICY, ("", EARLIER), |policy| policy.is_none()).await;
    let by_hand = stage.admin.get(POLICY, ("", "tenure-by-hand")).await.unwrap();
    assert!(by_hand.is_some());
    stage.admin.delete(POLICY, ("", "tenure-by-hand")).await.unwrap();
    stage.wait_for(ENFORCEMENT, ("", "tenure"), is_ready).await;
    for policy in stage.admin.list(POLICY, "").await.unwrap() {
        let name = policy["metadata"]["name"].as_str().unwrap();
        let changes = ["tenure-namespaces", "tenure-probe"].contains(&name);
        if name.starts_with("tenure-") && !changes {
            assert_eq!(policy["metadata"]["generation"], 1, "{name} was written again");
        }
    }
}
