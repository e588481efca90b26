//! Reads and writes the Secrets of credentials, as the accounts that are named for each: the authoriser's Secret, and the Secret in a namespace.
//!
//! This module has the values between a host's answer and a Secret, and wipes them. Of a Secret it reports only public facts: the uid, the version,
//! the request for which it was written, and the fingerprint of the content. No message quotes a value.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use git_hosts::{fingerprint_bytes, fingerprint_key, fingerprint_value};
use serde_json::{Value, json};
use tenure_api::metadata::TENURE_CONTROLLER;
use tenure_api::{ObjectId, ObjectView};
use tenure_cluster::{ApplyOptions, Client, ClusterError, DeleteOptions, Preconditions};
use tenure_git_access::delivery::{
    BASIC_KEYS, CA_KEY, DOCKER_CONFIG_KEY, Form, SSH_KEYS, TOKEN_USER, belongs_to, find_request, grants_as_wanted,
    write_access, write_mark, write_metadata,
};
use tenure_git_access::permission;
use tenure_git_access::rotation::{SecretFacts, SecretState, WriteFailure};
use tenure_planner::Failure;
use tenure_planner::confidential::{Request as Sent, rebuild_failure};
use tenure_sources::{SecretBytes, SecretData};
use zeroize::{Zeroize as _, Zeroizing};

use super::secret_parts::SecretParts;
use super::staging::StagedValue;

pub(super) const SECRET: &str = "Secret";
const RBAC: &str = "rbac.authorization.k8s.io";

/// A Secret that is delivered: its namespace and name, and the request for which it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecretPlace<'a> {
    pub(super) request: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

pub(super) fn make_id(kind: &str, namespace: &str, name: &str) -> ObjectId {
    ObjectId {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        group: if kind == SECRET { String::new() } else { RBAC.to_owned() },
        kind: kind.to_owned(),
    }
}

/// Returns the error message of a failed request about a Secret. It quotes no content of the Secret, and names a missing right.
pub(super) fn explain_failure(client: &Client, id: &ObjectId, error: &ClusterError) -> String {
    let who = client.identity();
    let (kind, namespace, name) = (&id.kind, &id.namespace, &id.name);
    match error {
        ClusterError::Forbidden { .. } => format!(
            "{who} may not do that with {kind} {namespace}/{name}, or a policy forbids it: bind it a role with get, create, patch and delete on secrets, roles and \
             rolebindings there, as in kubectl create rolebinding tenure-secret-writer -n {namespace} --clusterrole tenure-secret-writer --serviceaccount \
             tenure-system:tenure-secret-writer"
        ),
        ClusterError::IdentityMissing { .. } => error.to_string(),
        error => {
            let request = Sent {
                id,
                identity: who,
                object: None,
            };
            let failure = rebuild_failure(Failure::from(error), request);
            format!("{kind} {namespace}/{name}: {}", failure.message)
        }
    }
}

fn make_failure(client: &Client, id: &ObjectId, error: &ClusterError) -> WriteFailure {
    fail_as(error, explain_failure(client, id, error))
}

/// Returns the failure of a write, with its explanation.
pub(super) fn fail_as(error: &ClusterError, explained: String) -> WriteFailure {
    match error {
        ClusterError::Conflict { .. } | ClusterError::AlreadyExists { .. } | ClusterError::NotFound { .. } => {
            WriteFailure::Changed
        }
        error if error.transient() || error.code() == 0 => WriteFailure::Unknown(explained),
        _ => WriteFailure::Refused(explained),
    }
}

/// Wipes the values of a Secret from memory.
pub(super) fn wipe_values(secret: &mut Value) {
    for field in ["data", "stringData"] {
        let entries = secret.get_mut(field).and_then(Value::as_object_mut);
        for entry in entries.into_iter().flat_map(|entries| entries.values_mut()) {
            if let Value::String(text) = entry {
                text.zeroize();
            }
        }
    }
}

pub(super) fn read_entry(secret: &Value, key: &str) -> Option<Zeroizing<Vec<u8>>> {
    let text = ObjectView::new(secret).find_map("/data")?.get(key)?.as_str()?;
    STANDARD.decode(text).ok().map(Zeroizing::new)
}

pub(super) async fn find_secret(client: &Client, namespace: &str, name: &str) -> Result<Option<Value>, ClusterError> {
    let resource = client.resource("v1", SECRET).await?;
    client.find(&resource, namespace, name).await
}

/// Reads the Secret of an authoriser.
pub(super) async fn read_data(client: &Client, namespace: &str, name: &str) -> Result<SecretData, String> {
    match find_secret(client, namespace, name).await {
        Ok(Some(mut found)) => {
            let entries = ObjectView::new(&found).find_map("/data");
            let data = entries.into_iter().flatten().filter_map(|(key, value)| {
                let value = STANDARD.decode(value.as_str()?).ok()?;
                Some((key.clone(), value))
            });
            let data: SecretData = data.collect();
            wipe_values(&mut found);
            Ok(data)
        }
        Ok(None) => Err(format!(
            "there is no Secret {namespace}/{name}: write it, with the credential under token"
        )),
        Err(error) => Err(match error {
            ClusterError::Forbidden { .. } => format!(
                "{} may not read Secret {namespace}/{name}: bind it a Role in {namespace} with get on this Secret, by its name",
                client.identity()
            ),
            error => explain_failure(client, &make_id(SECRET, namespace, name), &error),
        }),
    }
}

/// Reads the facts of the Secret in a namespace.
pub(super) async fn read_secret_state(client: &Client, place: SecretPlace<'_>, form: Form) -> SecretState {
    match find_secret(client, place.namespace, place.name).await {
        Ok(None) => SecretState::Absent,
        Ok(Some(mut found)) => {
            let facts = describe_secret(&found, form);
            wipe_values(&mut found);
            SecretState::Present(facts)
        }
        Err(error) => SecretState::Unknown(explain_failure(
            client,
            &make_id(SECRET, place.namespace, place.name),
            &error,
        )),
    }
}

/// Returns the public facts of a Secret.
fn describe_secret(secret: &Value, form: Form) -> SecretFacts {
    let view = ObjectView::new(secret);
    SecretFacts {
        uid: view.read_text("/metadata/uid").to_owned(),
        resource_version: view.read_text("/metadata/resourceVersion").to_owned(),
        marked_for: find_request(secret).map(str::to_owned),
        fingerprint: find_fingerprint(secret, form),
        authority: read_entry(secret, CA_KEY).map(|pem| fingerprint_bytes(&pem)),
    }
}

fn find_fingerprint(secret: &Value, form: Form) -> Option<String> {
    let bytes = read_entry(secret, form.value_key())?;
    let text = std::str::from_utf8(&bytes).ok()?;
    Some(match form {
        Form::Basic => fingerprint_value(&SecretBytes::new(text)),
        Form::Ssh => fingerprint_key(text),
        Form::Docker => {
            let config: Value = serde_json::from_str(text).ok()?;
            let mut auths = config.get("auths")?.as_object()?.values();
            let password = auths.next()?.get("password")?.as_str()?;
            fingerprint_value(&SecretBytes::new(password))
        }
    })
}

/// Returns the data of a Secret.
fn write_data(staged: &StagedValue, surroundings: SecretParts<'_>) -> Result<Value, String> {
    let username = staged.username.as_deref().unwrap_or(TOKEN_USER);
    let value = staged.value.reveal();
    let encode = |text: &str| json!(STANDARD.encode(text));
    let mut data = match surroundings.form {
        Form::Basic => json!({ BASIC_KEYS[0]: encode(username), BASIC_KEYS[1]: encode(value) }),
        Form::Ssh => {
            let known_hosts = surroundings.known_hosts.ok_or(
                "spec.knownHosts of the AccessProvider is empty: without host keys the server's identity can't be checked",
            )?;
            let public = staged.public.as_deref().unwrap_or_default();
            json!({ SSH_KEYS[0]: encode(value), SSH_KEYS[1]: encode(public), SSH_KEYS[2]: encode(known_hosts) })
        }
        Form::Docker => {
            let registry = surroundings
                .registry
                .ok_or("the address of the registry is unknown: set spec.registry of the AccessProvider")?;
            let pair = Zeroizing::new(format!("{username}:{value}"));
            let auth = json!({ "username": username, "password": value, "auth": STANDARD.encode(pair.as_bytes()) });
            let mut auths = json!({ registry: auth });
            // If the token server is on another site, a client sends the password there only if the Secret also names that site.
            if let Some(host) = surroundings.host.filter(|host| *host != registry) {
                set_field(&mut auths, host, auth);
            }
            let config = Zeroizing::new(json!({ "auths": auths }).to_string());
            json!({ DOCKER_CONFIG_KEY: encode(&config) })
        }
    };
    if let Some(authority) = surroundings.authority.filter(|_| surroundings.form != Form::Ssh) {
        set_field(&mut data, CA_KEY, json!(STANDARD.encode(authority)));
    }
    Ok(data)
}

/// Empties the keys of another request in a Secret that is taken over, if this request has no value for them.
fn empty_others(data: &mut Value, form: Form) {
    let Some(entries) = data.as_object_mut().filter(|_| form != Form::Docker) else {
        return;
    };
    for key in BASIC_KEYS.iter().chain(&SSH_KEYS) {
        entries.entry(*key).or_insert(Value::Null);
    }
}

/// Returns the data of a Secret as a client reads them, for a probe.
pub(super) fn make_client_data(staged: &StagedValue, surroundings: SecretParts<'_>) -> Result<SecretData, String> {
    let mut written = json!({ "data": write_data(staged, surroundings)? });
    let entries = written
        .pointer("/data")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let data = entries.filter_map(|(key, value)| Some((key.clone(), STANDARD.decode(value.as_str()?).ok()?)));
    let data = data.collect();
    wipe_values(&mut written);
    Ok(data)
}

/// Applies an object in a dry-run.
pub(super) async fn try_apply(client: &Client, object: &Value) -> Result<(), ClusterError> {
    let options = ApplyOptions {
        manager: TENURE_CONTROLLER,
        force: true,
        dry_run: true,
        subresource: None,
    };
    client
        .apply(object, &options)
        .await
        .map(|mut applied| wipe_values(&mut applied.object))
}

/// Tries, with dry-runs, to write everything that a credential needs in a namespace.
pub(super) async fn try_delivery(
    client: &Client,
    place: SecretPlace<'_>,
    form: Form,
    accounts: &BTreeSet<String>,
) -> Result<(), String> {
    let mut secret = json!({
        "apiVersion": "v1", "kind": SECRET, "type": form.secret_type(),
        "metadata": write_metadata(place.request, place.namespace, place.name),
    });
    if form == Form::Docker {
        // Kubernetes refuses a Secret of this type without this key.
        set_field(
            &mut secret,
            "data",
            json!({ DOCKER_CONFIG_KEY: STANDARD.encode(r#"{"auths":{}}"#) }),
        );
    }
    let tried = try_apply(client, &secret).await;
    tried.map_err(|error| explain_failure(client, &make_id(SECRET, place.namespace, place.name), &error))?;
    check_permission(client, place.namespace).await?;
    if accounts.is_empty() {
        return Ok(());
    }
    for object in write_access(place.request, place.namespace, place.name, accounts) {
        check_access(client, place, &object).await?;
        let kind = ObjectView::new(&object).read_text("/kind").to_owned();
        match try_apply(client, &object).await {
            // A dry-run creates no Role, so the Role of the RoleBinding is missing here.
            Ok(()) | Err(ClusterError::NotFound { .. }) => {}
            Err(error) => {
                return Err(explain_failure(
                    client,
                    &make_id(&kind, place.namespace, place.name),
                    &error,
                ));
            }
        }
    }
    Ok(())
}

/// Checks whether an administrator permits the account to write credentials in a namespace. The account asks for itself.
async fn check_permission(client: &Client, namespace: &str) -> Result<(), String> {
    let account = client.identity();
    let answer = client
        .create(&permission::write_review(namespace), TENURE_CONTROLLER)
        .await
        .map_err(|error| {
            format!("namespace {namespace}: whether {account} may write credentials there isn't known: {error}")
        })?;
    permission::check_review(&account.to_string(), namespace, &answer.object)
}

/// Checks that the Role or RoleBinding with the Secret's name is missing or Tenure's. Returns whether it grants exactly the wanted access for this
/// request.
async fn check_access(client: &Client, place: SecretPlace<'_>, wanted: &Value) -> Result<bool, String> {
    let kind = ObjectView::new(wanted).read_text("/kind").to_owned();
    let found = async {
        let resource = client.resource(&format!("{RBAC}/v1"), &kind).await?;
        client.find(&resource, place.namespace, place.name).await
    };
    match found.await {
        Ok(None) => Ok(false),
        Ok(Some(live)) if find_request(&live).is_some() || ObjectView::new(&live).is_written_by_tenure() => {
            Ok(grants_as_wanted(&live, wanted) && find_request(&live) == Some(place.request))
        }
        Ok(Some(_)) => Err(format!(
            "there is a {kind} {}/{} that is not Tenure's, and it is not touched: delete it, or choose another secret_name",
            place.namespace, place.name
        )),
        Err(error) => Err(explain_failure(
            client,
            &make_id(&kind, place.namespace, place.name),
            &error,
        )),
    }
}

/// Grants only these accounts read access to the Secret.
async fn grant_read_access(
    client: &Client,
    place: SecretPlace<'_>,
    accounts: &BTreeSet<String>,
) -> Result<(), WriteFailure> {
    if accounts.is_empty() {
        return Ok(());
    }
    let options = ApplyOptions {
        manager: TENURE_CONTROLLER,
        force: true,
        dry_run: false,
        subresource: None,
    };
    for object in write_access(place.request, place.namespace, place.name, accounts) {
        if check_access(client, place, &object)
            .await
            .map_err(WriteFailure::Refused)?
        {
            continue;
        }
        let kind = ObjectView::new(&object).read_text("/kind").to_owned();
        let applied = client.apply(&object, &options).await;
        applied.map_err(|error| make_failure(client, &make_id(&kind, place.namespace, place.name), &error))?;
    }
    Ok(())
}

/// Writes a staged value into the Secret of a namespace, only if the Secret is still as it was seen. Returns its uid.
pub(super) async fn write_value(
    client: &Client,
    place: SecretPlace<'_>,
    (staged, surroundings): (&StagedValue, SecretParts<'_>),
    seen: Option<&SecretFacts>,
    accounts: &BTreeSet<String>,
) -> Result<String, WriteFailure> {
    check_permission(client, place.namespace)
        .await
        .map_err(WriteFailure::Refused)?;
    let earlier = seen.and_then(|seen| seen.marked_for.as_deref());
    let earlier = earlier.filter(|earlier| *earlier != place.request);
    if let (Some(earlier), true) = (earlier, accounts.is_empty()) {
        // Readers of the previous request's Secret must not read the new value.
        end_access(client, place, earlier).await?;
    }
    grant_read_access(client, place, accounts).await?;
    let target = make_id(SECRET, place.namespace, place.name);
    let mut data = write_data(staged, surroundings).map_err(WriteFailure::Refused)?;
    if earlier.is_some() {
        empty_others(&mut data, surroundings.form);
    }
    let (mut sent, written) = match seen {
        None => {
            let object = json!({
                "apiVersion": "v1", "kind": SECRET, "type": surroundings.form.secret_type(),
                "metadata": write_metadata(place.request, place.namespace, place.name),
                "data": data,
            });
            let created = client.create(&object, TENURE_CONTROLLER).await;
            (object, created)
        }
        Some(seen) => {
            let mut patch = write_mark(place.request, &seen.uid, &seen.resource_version);
            set_field(&mut patch, "data", data);
            let patched = patch_secret(client, place, &patch).await;
            (patch, patched)
        }
    };
    wipe_values(&mut sent);
    finish_write(client, &target, written)
}

/// Writes Tenure's mark, and the certificates of the host's authority if there are some, into an existing Secret again. The credential stays.
pub(super) async fn renew_mark(
    client: &Client,
    place: SecretPlace<'_>,
    authority: Option<&[u8]>,
    seen: &SecretFacts,
) -> Result<String, WriteFailure> {
    let mut patch = write_mark(place.request, &seen.uid, &seen.resource_version);
    if let Some(authority) = authority {
        set_field(&mut patch, "data", json!({ CA_KEY: STANDARD.encode(authority) }));
    }
    let patched = patch_secret(client, place, &patch).await;
    finish_write(client, &make_id(SECRET, place.namespace, place.name), patched)
}

async fn patch_secret(
    client: &Client,
    place: SecretPlace<'_>,
    patch: &Value,
) -> Result<tenure_cluster::Applied, ClusterError> {
    let resource = client.resource("v1", SECRET).await?;
    client
        .merge_patch(&resource, (place.namespace, place.name), None, TENURE_CONTROLLER, patch)
        .await
}

/// Returns the uid of a written Secret, and wipes the values in the API server's answer.
fn finish_write(
    client: &Client,
    target: &ObjectId,
    written: Result<tenure_cluster::Applied, ClusterError>,
) -> Result<String, WriteFailure> {
    match written {
        Ok(mut applied) => {
            let uid = ObjectView::new(&applied.object).read_text("/metadata/uid").to_owned();
            wipe_values(&mut applied.object);
            Ok(uid)
        }
        Err(error) => Err(make_failure(client, target, &error)),
    }
}

/// Deletes the Secret of a namespace, only if it is still as it was seen, and the read access of accounts to it.
pub(super) async fn delete_secret(
    client: &Client,
    place: SecretPlace<'_>,
    seen: &SecretFacts,
) -> Result<(), WriteFailure> {
    let target = make_id(SECRET, place.namespace, place.name);
    let options = DeleteOptions {
        preconditions: Preconditions {
            uid: Some(seen.uid.clone()),
            resource_version: Some(seen.resource_version.clone()),
        },
        propagation: None,
        dry_run: false,
    };
    let deleted = async {
        let resource = client.resource("v1", SECRET).await?;
        client.delete(&resource, place.namespace, place.name, &options).await
    };
    deleted.await.map_err(|error| make_failure(client, &target, &error))?;
    end_access(client, place, place.request).await
}

/// Removes the read access of accounts to the Secret, if it was written for a request.
async fn end_access(client: &Client, place: SecretPlace<'_>, request: &str) -> Result<(), WriteFailure> {
    for kind in ["RoleBinding", "Role"] {
        let ended = async {
            let resource = client.resource(&format!("{RBAC}/v1"), kind).await?;
            let Some(live) = client.find(&resource, place.namespace, place.name).await? else {
                return Ok(());
            };
            if !belongs_to(&live, request) {
                return Ok(());
            }
            let options = DeleteOptions {
                preconditions: Preconditions {
                    uid: Some(ObjectView::new(&live).read_text("/metadata/uid").to_owned()),
                    resource_version: None,
                },
                propagation: None,
                dry_run: false,
            };
            client.delete(&resource, place.namespace, place.name, &options).await
        };
        ended
            .await
            .map_err(|error| make_failure(client, &make_id(kind, place.namespace, place.name), &error))?;
    }
    Ok(())
}

fn set_field(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        clippy::allow_attributes,
        reason = "tests may panic"
    )]

    use tenure_git_access::rotation::StagedFacts;

    use super::*;

    fn make_staged() -> StagedValue {
        StagedValue {
            facts: StagedFacts {
                nonce: "n".to_owned(),
                is_minted: true,
                id: Some(7),
                fingerprint: fingerprint_value(&SecretBytes::new("sesame")),
                expires_at: None,
            },
            username: Some("gitlab+deploy-token-7".to_owned()),
            value: SecretBytes::new("sesame"),
            public: None,
        }
    }

    /// The debug output of a value does not contain it.
    #[test]
    fn fingerprint_identifies_value_in_each_secret_form() {
        for form in [Form::Basic, Form::Docker] {
            let surroundings = SecretParts {
                form,
                registry: Some("registry.example.org"),
                known_hosts: None,
                authority: None,
                host: Some("git.example.net"),
            };
            let secret = json!({ "data": write_data(&make_staged(), surroundings).unwrap() });
            assert_eq!(
                find_fingerprint(&secret, form),
                Some(make_staged().facts.fingerprint),
                "{form:?}"
            );
            // The control: another value has another fingerprint.
            let mut other = make_staged();
            other.value = SecretBytes::new("open");
            let secret = json!({ "data": write_data(&other, surroundings).unwrap() });
            assert_ne!(find_fingerprint(&secret, form), Some(make_staged().facts.fingerprint));
        }
        assert!(!format!("{:?}", make_staged()).contains("sesame"));
        let surroundings = SecretParts {
            form: Form::Docker,
            registry: None,
            known_hosts: None,
            authority: None,
            host: None,
        };
        assert!(
            write_data(&make_staged(), surroundings)
                .unwrap_err()
                .contains("spec.registry")
        );
        for data in [
            json!({}),
            json!({ "data": { "password": 5 } }),
            json!({ "data": { "password": "%%%" } }),
        ] {
            assert_eq!(find_fingerprint(&data, Form::Basic), None);
        }
    }
}
