//! `tenure check --pre`: reads what an installation depends on, with the user's rights, and prints the findings. `tenure_inspection::installation_check` interprets them.

use std::collections::BTreeSet;
use std::process::ExitCode;

use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::Value;
use tenure_admission_rules::Question;
use tenure_api::ObjectView;
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, PLATFORM_NAMESPACE};
use tenure_api::text::count_of;
use tenure_controllers::EnabledKinds;
use tenure_inspection::installation_check::{
    Gravity, InstallationFinding, OTHERS, Observation, OtherLease, Right, is_hopeless, list_findings,
};

use super::Form;
use crate::connect::Connect;
use crate::failure::Failure;
use crate::object_path::write_object_path;
use crate::{caller, installation, output, resources};

/// The verbs that an installation needs on each of its objects: a server-side apply is a read, a creation or a patch.
const VERBS: [&str; 3] = ["get", "create", "patch"];
/// The number of concurrent questions.
const AT_ONCE: usize = 8;
/// The label with the name of an EndpointSlice's Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Checks the cluster, and prints the findings.
pub(super) async fn check(connect: &Connect, form: Form) -> Result<ExitCode, Failure> {
    if form == Form::Sarif {
        return Err(
            Failure::usage("--pre has no SARIF form, because its findings are in no file").hint("-o text, or -o json"),
        );
    }
    let client = connect.client().await?;
    let findings = list_findings(&observe_cluster(&client).await?);
    match form {
        Form::Json => output::print_json(&findings)?,
        Form::Text | Form::Sarif => findings.iter().for_each(print_finding),
    }
    let count = |gravity: Gravity| findings.iter().filter(|finding| finding.gravity == gravity).count();
    output::print_note(format!(
        "{} good, {}, {} missing: {}",
        count(Gravity::Good),
        count_of(count(Gravity::Warning), "warning"),
        count(Gravity::Bad),
        match is_hopeless(&findings) {
            false => "an installation works here",
            true => "an installation does not work here",
        }
    ));
    Ok(ExitCode::from(u8::from(is_hopeless(&findings))))
}

fn print_finding(finding: &InstallationFinding) {
    let text = tenure_api::text::visible_line(&finding.to_string()).into_owned();
    output::print_line(match finding.gravity {
        Gravity::Good => output::good(&text),
        Gravity::Warning => output::bold(&text),
        Gravity::Bad => output::bad(&text),
    });
}

/// Returns the holder of the Lease of each other controller, or the reason of an unknown one.
pub(crate) async fn list_other_controllers(client: &kube::Client) -> Vec<(OtherLease, Result<Option<String>, String>)> {
    let mut others = Vec::new();
    for other in OTHERS {
        let path = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}",
            other.namespace, other.lease
        );
        let holder = get_object(client, &path)
            .await
            .map(|lease| lease.as_ref().and_then(find_holder));
        others.push((other, holder.map_err(|failure| failure.message)));
    }
    others
}

async fn observe_cluster(client: &kube::Client) -> Result<Observation, Failure> {
    let version = get_object(client, "/version").await?.unwrap_or_default();
    let served = resources::list_served(client).await?;
    Ok(Observation {
        version: ObjectView::new(&version).read_text("/gitVersion").to_owned(),
        served: served
            .into_iter()
            .map(|resource| (resource.group, resource.version, resource.plural))
            .collect(),
        rights: ask_rights(client).await?,
        others: list_other_controllers(client).await,
        api_servers: find_api_servers(client).await.map_err(|failure| failure.message),
        installed: find_installed(client).await.map_err(|failure| failure.message),
    })
}

/// Returns the holder of a Lease that was renewed within its duration, by this machine's clock.
fn find_holder(lease: &Value) -> Option<String> {
    let lease = ObjectView::new(lease);
    let holder = lease
        .find_text("/spec/holderIdentity")
        .filter(|holder| !holder.is_empty())?;
    let renewed: Timestamp = lease.find_text("/spec/renewTime")?.parse().ok()?;
    let seconds = lease.find_number("/spec/leaseDurationSeconds").unwrap_or_default();
    let end = renewed.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()?;
    (end >= Timestamp::now()).then(|| holder.to_owned())
}

/// Asks for each right that an installation of all controllers takes. An administrator of everything is asked once.
async fn ask_rights(client: &kube::Client) -> Result<Vec<(Right, Result<bool, String>)>, Failure> {
    let rights = list_rights()?;
    let everything = Question {
        verb: "*",
        group: "*",
        resource: "*",
        namespace: "",
        name: "",
    };
    if caller::has_right(client, &everything).await? {
        return Ok(rights.into_iter().map(|right| (right, Ok(true))).collect());
    }
    let asked = futures::stream::iter(rights).map(|right| async move {
        let question = Question {
            verb: &right.verb,
            group: &right.group,
            resource: &right.resource,
            namespace: &right.namespace,
            name: "",
        };
        let answer = caller::has_right(client, &question)
            .await
            .map_err(|failure| failure.message);
        (right, answer)
    });
    Ok(asked.buffered(AT_ONCE).collect().await)
}

/// Lists the rights that an installation of all controllers takes, from its objects.
fn list_rights() -> Result<Vec<Right>, Failure> {
    let mut objects = installation::list_objects(&EnabledKinds::default(), &[], &[])?;
    objects.extend(tenure_api::installation::admission());
    installation::add_policing(&mut objects);
    let mut rights = BTreeSet::new();
    let mut add = |verb: &str, group: &str, resource: &str, namespace: &str| {
        rights.insert(Right {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
        });
    };
    for object in &objects {
        let (group, namespace, resource) = read_path(&write_object_path(object)?)?;
        for verb in VERBS {
            add(verb, &group, &resource, &namespace);
        }
    }
    for (group, resource) in [
        ("apps", "deployments"),
        ("networking.k8s.io", "networkpolicies"),
        ("policy", "poddisruptionbudgets"),
    ] {
        for verb in VERBS {
            add(verb, group, resource, PLATFORM_NAMESPACE);
        }
    }
    for verb in ["bind", "escalate"] {
        add(verb, "rbac.authorization.k8s.io", "clusterroles", "");
    }
    Ok(rights.into_iter().collect())
}

/// Returns group, namespace and plural of an object's path.
fn read_path(path: &str) -> Result<(String, String, String), Failure> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let found = match parts.as_slice() {
        ["api", _, "namespaces", namespace, plural, _] => Some(("", *namespace, *plural)),
        ["api", _, plural, _] => Some(("", "", *plural)),
        ["apis", group, _, "namespaces", namespace, plural, _] => Some((*group, *namespace, *plural)),
        ["apis", group, _, plural, _] => Some((*group, "", *plural)),
        _ => None,
    };
    found
        .map(|(group, namespace, plural)| (group.to_owned(), namespace.to_owned(), plural.to_owned()))
        .ok_or_else(|| Failure::internal(format!("{path} is no path of an object")))
}

/// Returns the addresses at which the API server itself listens, as the cluster names them.
async fn find_api_servers(client: &kube::Client) -> Result<Vec<(String, u16)>, Failure> {
    let selected = resources::encode_segment(&format!("{SERVICE_NAME}=kubernetes"));
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector={selected}");
    let slices = get_object(client, &path).await?.unwrap_or_default();
    let mut found = BTreeSet::new();
    for slice in ObjectView::new(&slices).list_views("/items") {
        for port in slice.list_views("/ports") {
            let number = port.find_number("/port").and_then(|port| u16::try_from(port).ok());
            let endpoints = slice.list_views("/endpoints");
            let addresses = endpoints.flat_map(|endpoint| endpoint.list_texts("/addresses"));
            found.extend(addresses.filter_map(|address| Some((address.to_owned(), number?))));
        }
    }
    Ok(found.into_iter().collect())
}

/// Returns the image of installed controllers.
async fn find_installed(client: &kube::Client) -> Result<Option<String>, Failure> {
    let path = format!("/apis/apps/v1/namespaces/{PLATFORM_NAMESPACE}/deployments/{CONTROLLER_SERVICE_ACCOUNT}");
    let deployment = get_object(client, &path).await?;
    Ok(deployment.map(|deployment| {
        let image = ObjectView::new(&deployment).find_text("/spec/template/spec/containers/0/image");
        image.unwrap_or("(none)").to_owned()
    }))
}

/// Reads an object or a list; `None` if it is missing. The error about a missing right is short.
async fn get_object(client: &kube::Client, path: &str) -> Result<Option<Value>, Failure> {
    match resources::find_at(client, path, "application/json").await {
        Ok(found) => Ok(found),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Err(Failure::environment("you may not read it; an administrator may"))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_follow_from_the_objects_of_an_installation() {
        let rights = list_rights().expect("rights");
        let has = |verb: &str, group: &str, resource: &str, namespace: &str| {
            let right = Right {
                verb: verb.to_owned(),
                group: group.to_owned(),
                resource: resource.to_owned(),
                namespace: namespace.to_owned(),
            };
            rights.contains(&right)
        };
        assert!(has("create", "apiextensions.k8s.io", "customresourcedefinitions", ""));
        assert!(has("patch", "", "serviceaccounts", PLATFORM_NAMESPACE));
        assert!(has("get", "apps", "deployments", PLATFORM_NAMESPACE));
        assert!(has("escalate", "rbac.authorization.k8s.io", "clusterroles", ""));
        assert!(rights.iter().all(|right| !right.resource.is_empty()));
    }

    #[test]
    fn a_lease_counts_until_its_end() {
        let lease = |holder: &str, renewed: Timestamp| serde_json::json!({"spec": {"holderIdentity": holder, "renewTime": renewed.to_string(), "leaseDurationSeconds": 15}});
        let now = Timestamp::now();
        let long_ago = now.checked_sub(jiff::SignedDuration::from_hours(1)).expect("a time");
        assert_eq!(find_holder(&lease("a", now)), Some("a".to_owned()));
        assert_eq!(find_holder(&lease("a", long_ago)), None);
        assert_eq!(find_holder(&lease("", now)), None);
        assert_eq!(find_holder(&serde_json::json!({})), None);
    }
}
