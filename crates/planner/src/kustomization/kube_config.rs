//! The target of `spec.kubeConfig` and the credentials for it. The module decides which object names the target, a Secret with a kubeconfig or a ConfigMap with an
//! address, and how the object is read.
//!
//! Both are read as the ServiceAccount that the Kustomization acts as. A ConfigMap holds no credential: the other cluster trusts a token of this one, and `tenancy`
//! decides which tokens may be sent there. A plan orders that token and never sees it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tenure_api::names::is_dns_subdomain;
use tenure_api::reference::SecretKeyReference;
use tenure_api::{KustomizationSpec, ObjectId, reason};
use tenure_tenancy::{ServiceAccount, TokenOrder, foreign_token};
use zeroize::Zeroizing;

use super::inputs::{CONFIG_MAP, SECRET, find_target};
use super::step::Step;
use super::types::Snapshot;
use crate::answer::{Live, Reason};
use crate::cluster_config::read_cluster_config;
use crate::kubeconfig::read_kubeconfig;
use crate::object::Object;
use crate::plan::Watched;
use crate::target::{Target, TargetCredentials};

/// The keys that may hold a kubeconfig if the spec names none, as in Flux.
const KEYS: [&str; 2] = ["value", "value.yaml"];

/// The answer to [`Step::OrderToken`]. The shell keeps the token itself, so no plan contains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TokenAnswer {
    /// A token exists as ordered.
    Usable,
    /// The ServiceAccount does not exist.
    NotFound,
    /// No token exists, or it may not be sent away. The reason is permanent.
    Refused(String),
    /// The answer is missing; the text is the reason.
    Unanswered(String),
}

/// The reason why the target cluster of `spec.kubeConfig` is unknown.
pub(super) enum UnknownTarget {
    /// The plan must execute this step first.
    Ask(Box<Step>),
    /// The object that names the target is missing or can't be used.
    Failed {
        /// The message.
        message: String,
        /// True if an answer is missing, so that the same plan may succeed later.
        transient: bool,
    },
}

/// Finds the object that `spec.kubeConfig` names: its kind, its name, the field that names it.
fn find_named(spec: &KustomizationSpec) -> Option<(&'static str, &str, &'static str)> {
    let reference = spec.kube_config.as_ref()?;
    match (&reference.secret_ref, &reference.config_map_ref) {
        (Some(secret), _) => Some((SECRET, &secret.name, "spec.kubeConfig.secretRef")),
        (None, Some(config_map)) => Some((CONFIG_MAP, &config_map.name, "spec.kubeConfig.configMapRef")),
        (None, None) => None,
    }
}

/// Returns the Secret or ConfigMap that `spec.kubeConfig` names.
pub(super) fn find_object(snapshot: &Snapshot) -> Option<Watched> {
    let namespace = snapshot.kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let (kind, name, _) = find_named(&snapshot.kustomization.spec)?;
    Some(find_target(namespace, kind, name))
}

/// Checks whether an object of this cluster is the Secret or ConfigMap that `spec.kubeConfig` names.
pub(super) fn is_kube_config(snapshot: &Snapshot, id: &ObjectId) -> bool {
    find_object(snapshot).is_some_and(|object| object.id == *id)
}

/// Checks whether `data` of the Secret or ConfigMap has changed.
pub(super) fn is_another_kube_config(before: &Live, now: &Live) -> bool {
    match (before, now) {
        (Live::Present(before), Live::Present(now)) => before.view().find("/data") != now.view().find("/data"),
        (before, now) => before != now,
    }
}

/// Refuses an invalid `spec.kubeConfig`, independent of the state of the cluster. Returns the reason and the message.
pub(super) fn check_spec(spec: &KustomizationSpec) -> Result<(), (&'static str, String)> {
    let Some(reference) = &spec.kube_config else {
        return Ok(());
    };
    if reference.secret_ref.is_some() && reference.config_map_ref.is_some() {
        let message = "spec.kubeConfig has both a secretRef and a configMapRef: it must be one of them";
        return Err((reason::INVALID_SPEC, message.to_owned()));
    }
    let Some((kind, name, field)) = find_named(spec) else {
        let message = "spec.kubeConfig.secretRef is missing: name the Secret with the kubeconfig";
        return Err((reason::INVALID_SPEC, message.to_owned()));
    };
    if !is_dns_subdomain(name) {
        let message = format!("{field}.name: {name:?} is not the name of a {kind}");
        return Err((reason::INVALID_SPEC, message));
    }
    Ok(())
}

/// Reads the cluster that `spec.kubeConfig` leads to, if it is set.
pub(super) fn read_target(snapshot: &Snapshot, identity: &ServiceAccount) -> Result<Option<Target>, UnknownTarget> {
    let spec = &snapshot.kustomization.spec;
    let namespace = snapshot.kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let (Some((kind, name, field)), Some(named)) = (find_named(spec), find_object(snapshot)) else {
        return Ok(None);
    };
    let what = format!("{field}: {kind} '{namespace}/{name}'");
    let failed = |message: String, transient| UnknownTarget::Failed {
        message: format!("{what}: {message}"),
        transient,
    };
    let object = match snapshot.here.get(&named.id) {
        None => return Err(UnknownTarget::Ask(Box::new(Step::ReadHere(named)))),
        Some(Live::Present(object)) => object,
        Some(Live::Absent) => {
            let create = match kind {
                SECRET => "create it, with a kubeconfig under the key value",
                _ => "create it, with provider: generic and an address",
            };
            return Err(failed(format!("not found: {create}"), false));
        }
        Some(Live::Unserved) => return Err(failed(format!("the API server does not serve {kind}s"), false)),
        Some(Live::Failed(failure)) if failure.reason == Reason::Forbidden => {
            let message = format!(
                "{identity} may not get this {kind}: give it the verb get on the {kind}, by a Role and a RoleBinding in namespace {namespace}"
            );
            return Err(failed(message, false));
        }
        Some(Live::Failed(failure)) => {
            let message = format!("it can't be read: {}", failure.message);
            return Err(failed(message, failure.is_transient()));
        }
    };
    // As in Flux, the spec names the account that acts in the target cluster, if the user there may impersonate it.
    let impersonated = spec.service_account_name.as_ref();
    let impersonated = impersonated.map(|name| format!("system:serviceaccount:{namespace}:{name}"));
    let secret = spec
        .kube_config
        .as_ref()
        .and_then(|reference| reference.secret_ref.as_ref());
    match secret {
        Some(reference) => {
            let text = take_value(object, reference).map_err(|message| failed(message, false))?;
            let target = read_kubeconfig(&text, impersonated);
            target
                .map(Some)
                .map_err(|message| failed(format!("its kubeconfig: {message}"), false))
        }
        None => {
            let target = make_target(snapshot, identity, object, impersonated);
            target.map(Some).map_err(|unknown| match unknown {
                UnknownTarget::Failed { message, transient } => failed(message, transient),
                asks @ UnknownTarget::Ask(_) => asks,
            })
        }
    }
}

/// Makes the target from a ConfigMap, once a token for it exists.
fn make_target(
    snapshot: &Snapshot,
    identity: &ServiceAccount,
    config_map: &Object,
    impersonated: Option<String>,
) -> Result<Target, UnknownTarget> {
    let namespace = snapshot.kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let failed = |message: String, transient| UnknownTarget::Failed { message, transient };
    let config = read_cluster_config(config_map).map_err(|message| failed(message, false))?;
    let order = foreign_token::order_token(
        &snapshot.placement,
        namespace,
        identity,
        config.service_account_name.as_deref(),
        config.audiences,
    );
    let order = order.map_err(|denial| failed(denial.message, false))?;
    check_answer(snapshot.attempt.token.as_ref(), &order)?;
    Ok(Target {
        address: config.address,
        server_name: None,
        authority: config.authority,
        credentials: TargetCredentials {
            ordered: Some(order),
            ..TargetCredentials::default()
        },
        impersonated,
    })
}

/// Checks the answer to the token order: no answer leads to the step that orders the token.
fn check_answer(answer: Option<&(TokenOrder, TokenAnswer)>, order: &TokenOrder) -> Result<(), UnknownTarget> {
    let account = order.account();
    let (message, transient) = match answer.filter(|(asked, _)| asked == order) {
        None => return Err(UnknownTarget::Ask(Box::new(Step::OrderToken(order.clone())))),
        Some((_, TokenAnswer::Usable)) => return Ok(()),
        Some((_, TokenAnswer::NotFound)) => {
            let message = format!(
                "no token for {account}: it does not exist; create the ServiceAccount, or name another in serviceAccountName"
            );
            (message, false)
        }
        Some((_, TokenAnswer::Refused(message))) => (message.clone(), false),
        Some((_, TokenAnswer::Unanswered(message))) => (format!("no token for {account}: {message}"), true),
    };
    Err(UnknownTarget::Failed { message, transient })
}

fn take_value(secret: &Object, reference: &SecretKeyReference) -> Result<Zeroizing<Vec<u8>>, String> {
    let data = secret.view().find_map("/data");
    let find = |key: &str| data.and_then(|data| data.get(key));
    let found = match reference.key.as_deref().filter(|key| !key.is_empty()) {
        Some(key) => find(key).ok_or("it has no entry of the name that spec.kubeConfig.secretRef.key says")?,
        None => KEYS
            .iter()
            .find_map(|key| find(key))
            .ok_or("it has neither an entry value nor value.yaml: name its key in spec.kubeConfig.secretRef.key")?,
    };
    let decoded = found.as_str().and_then(|text| STANDARD.decode(text).ok());
    decoded
        .map(Zeroizing::new)
        .ok_or_else(|| "the entry can't be read".to_owned())
}
