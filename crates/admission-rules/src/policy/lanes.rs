//! Policy for the Deployments of the controllers' own account, if each lane has a Pod of its own. RBAC lets the account write any Deployment in the
//! platform's namespace, since it can't know their names.
//!
//! The policy allows only lanes, by the form of [`lane_deployment`] itself. It denies every way to run another program, or as another account:
//!
//! - another image, command or argument,
//! - another account than that of the name,
//! - another volume, or access to the node,
//! - labels by which a NetworkPolicy or a Service would take a Pod for another one.
//!
//! The policy is an allow list, so fields of a later Kubernetes are denied, too. Values that another writer has added to a lane's Deployment, such as a
//! toleration, stay and are not checked.

use serde_json::Value;
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, LANE_PREFIX};
use tenure_api::workload::{LANE_LABEL, LanePods, lane_deployment};

use super::expression::write_literal;
use super::{Action, Policy, PolicyScope, ResourceRule, USER, Validation, phrase, quote, variable};
use crate::Rule;

/// Its name, without the common prefix.
pub(super) const NAME: &str = "lane-pods";
/// A placeholder for the name of a lane's account in the sample Deployment.
const ACCOUNT: &str = "tenure-lane-pool";
/// The fields that an API server adds to a Pod and to a container by default, and duplicates of other
/// fields.
const ADDED_TO_POD: [&str; 5] = [
    "dnsPolicy",
    "priorityClassName",
    "restartPolicy",
    "schedulerName",
    "serviceAccount",
];
const ADDED_TO_CONTAINER: [&str; 2] = ["terminationMessagePath", "terminationMessagePolicy"];
/// The allowed fields of a probe: it asks the container itself, at a port of its own.
const OF_PROBE: [&str; 6] = [
    "failureThreshold",
    "httpGet",
    "initialDelaySeconds",
    "periodSeconds",
    "successThreshold",
    "timeoutSeconds",
];
const OF_REQUEST: [&str; 3] = ["path", "port", "scheme"];
const OF_RESOURCES: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

/// Returns the policy for the Deployments of lanes, and its binding. An empty image or hub is unknown at the installation, so any value is
/// allowed, and any PriorityClass.
#[must_use]
pub fn list_lane_bounds(platform: &str, pods: &LanePods) -> Vec<Value> {
    bounds(platform, pods).write_for(platform).into()
}

/// Returns the policy for the Deployments of lanes.
fn bounds(platform: &str, pods: &LanePods) -> Policy {
    let account = quote(&format!(
        "system:serviceaccount:{platform}:{CONTROLLER_SERVICE_ACCOUNT}"
    ));
    let refuse = |holds: String, what: &str| Validation {
        holds: format!("request.operation == 'DELETE' || {holds}"),
        rule: Rule::ControllerRights,
        why: phrase(
            &format!("{{}} may not write Deployment {{}}: {what}"),
            &[USER, "variables.name"],
        ),
        remedy: quote("ask an administrator to do it, if it is intended"),
    };
    // The PriorityClass is left out of the sample, since a separate validation checks it.
    let sample = lane_deployment(
        &LanePods {
            priority_class: None,
            ..pods.clone()
        },
        "pool",
        ACCOUNT,
    );
    let read = |path: &str| sample.pointer(path).unwrap_or(&Value::Null);
    let literal = |path: &str| write_literal(read(path));
    let container = "/spec/template/spec/containers/0";
    let of_container = |field: &str| literal(&format!("{container}/{field}"));
    let is_platforms = format!(
        "variables.labels[?{label}].orValue('') in ['platform', 'pool', 'protected', 'tenant'] && \
         (variables.labels[?{label}].orValue('') == 'platform') == (variables.name == {name})",
        label = quote(LANE_LABEL),
        name = quote(&format!("{LANE_PREFIX}platform")),
    );
    let keys = |what: &str, keys: Vec<&str>, had: Option<&str>| {
        let keys = write_literal(&keys.into_iter().map(Value::from).collect());
        // Values that another writer has added stay.
        let had = had.map(|had| format!(" || {had}[?key].hasValue() && {had}[key] == {what}[key]"));
        format!("{what}.all(key, key in {keys}{})", had.unwrap_or_default())
    };
    Policy {
        name: NAME.to_owned(),
        action: Action::Deny,
        place: PolicyScope::InNamespaces,
        about: vec![ResourceRule {
            groups: vec!["apps"],
            resources: vec!["deployments"],
            operations: vec!["CREATE", "UPDATE", "DELETE"],
        }],
        conditions: vec![("by-controller", format!("{USER} == {account}"))],
        variables: list_variables(pods),
        validations: vec![
            Validation {
                holds: format!(
                    "request.namespace == {} && variables.name.startsWith({})",
                    quote(platform),
                    quote(LANE_PREFIX)
                ),
                ..refuse(
                    String::new(),
                    &format!("the only ones that it writes are those of lanes, in {platform}"),
                )
            },
            refuse(
                format!(
                    "{} && variables.labels[?'app.kubernetes.io/component'].orValue('') == {} && {is_platforms} && {}",
                    keys(
                        "variables.labels",
                        [list_keys(read("/metadata/labels")), vec!["tenure.dev/lane-of"]].concat(),
                        Some("variables.had.?metadata.?labels.orValue({})"),
                    ),
                    literal("/metadata/labels/app.kubernetes.io~1component"),
                    keys(
                        "variables.template.?metadata.?annotations.orValue({})",
                        Vec::new(),
                        Some("variables.had.?metadata.?annotations.orValue({})"),
                    ),
                ),
                "its Pods have the labels of that lane, and no annotation",
            ),
            refuse(
                "variables.pod.?serviceAccountName.orValue('') == variables.name && \
                 variables.pod.?serviceAccount.orValue(variables.name) == variables.name && \
                 variables.pod.?automountServiceAccountToken.orValue(true) == false"
                    .to_owned(),
                "it runs as the ServiceAccount of the same name, and mounts no token but the two of a lane",
            ),
            refuse(
                format!(
                    "object.?spec.?replicas.orValue(1) <= 1 && size(variables.pod.?containers.orValue([])) == 1 && {} && {} && {} && \
                     [dyn(''), dyn(variables.priorityClass)].exists(one, one == variables.pod.?priorityClassName.orValue(''))",
                    keys(
                        "variables.pod",
                        [list_keys(read("/spec/template/spec")), ADDED_TO_POD.to_vec()].concat(),
                        Some("variables.had.?spec.orValue({})"),
                    ),
                    keys(
                        "variables.pod.?nodeSelector.orValue({})",
                        list_keys(read("/spec/template/spec/nodeSelector")),
                        Some("variables.had.?spec.?nodeSelector.orValue({})"),
                    ),
                    keys(
                        "variables.container",
                        [list_keys(read(container)), ADDED_TO_CONTAINER.to_vec()].concat(),
                        None,
                    ),
                ),
                "a lane has one Pod with one container, and only the fields of a lane's Pod",
            ),
            refuse(
                format!(
                    "(variables.image == '' || variables.image == variables.container.?image.orValue('')) && variables.container.?command.orValue([]) == {} && {} && \
                     variables.container.?env.orValue([]).all(one, one.name in ['TENURE_LOG_FORMAT', 'TENURE_LOG'] && !has(one.valueFrom))",
                    of_container("command"),
                    write_arguments(read(&format!("{container}/args"))),
                ),
                "it runs only the installed image, as a lane",
            ),
            refuse(
                format!(
                    "variables.pod.?securityContext.orValue({{}}) == {} && variables.container.?securityContext.orValue({{}}) == {} && \
                     variables.container.?ports.orValue([]) == {} && ['livenessProbe', 'readinessProbe'].all(name, {} && {})",
                    literal("/spec/template/spec/securityContext"),
                    of_container("securityContext"),
                    of_container("ports"),
                    keys("variables.container[?name].orValue({})", OF_PROBE.to_vec(), None),
                    keys(
                        "variables.container[?name].?httpGet.orValue({})",
                        OF_REQUEST.to_vec(),
                        None
                    ),
                ),
                "it has the confinement, the probes and the port of a lane",
            ),
            refuse(
                format!(
                    "size(variables.volumes) == 3 && {} && size(variables.volumes[0].emptyDir) <= 1 && \
                     variables.volumes[0].emptyDir.all(key, key == 'sizeLimit') && variables.volumes[0].name == 'data' && \
                     variables.volumes[1] == {} && variables.volumes[2] == {} && variables.container.?volumeMounts.orValue([]) == {}",
                    keys("variables.volumes[0]", vec!["name", "emptyDir"], None),
                    literal("/spec/template/spec/volumes/1"),
                    literal("/spec/template/spec/volumes/2"),
                    of_container("volumeMounts"),
                ),
                "it mounts a folder of its own, the hub's authority and the two tokens of a lane",
            ),
            refuse(
                ["limits", "requests"]
                    .map(|which| {
                        let amounts = format!("variables.container.?resources.?{which}.orValue({{}})");
                        let has_memory = format!("'memory' in {amounts}");
                        format!("{has_memory} && {}", keys(&amounts, OF_RESOURCES.to_vec(), None))
                    })
                    .join(" && ")
                    + " && !has(variables.container.resources.claims)",
                "its container has limits, and uses only processor time, memory and disk of a node",
            ),
        ],
    }
}

/// Returns the check of a container's arguments. All must be equal, except the hub's address, which must be the
/// known one.
fn write_arguments(arguments: &Value) -> String {
    const HUB: &str = "--hub=";
    let arguments: Vec<&str> = arguments
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let given = "variables.container.?args.orValue([])";
    let mut holds = vec![format!("size({given}) == {}", arguments.len())];
    for (index, argument) in arguments.iter().enumerate() {
        let text = quote(argument);
        // The text is empty behind `--hub=` if the hub is unknown.
        holds.push(match *argument == HUB {
            true => format!("{given}[{index}].startsWith({text})"),
            false => format!("{given}[{index}] == {text}"),
        });
    }
    holds.join(" && ")
}

fn list_variables(pods: &LanePods) -> Vec<(String, String)> {
    vec![
        // A variable of its own, so that an installation with a template has one place to fill in.
        variable("image", quote(&pods.image)),
        variable(
            "priorityClass",
            // Without the image, the class is unknown as well.
            match (&pods.priority_class, pods.image.is_empty()) {
                (None, true) => {
                    "object == null ? '' : object.spec.template.spec.?priorityClassName.orValue('')".to_owned()
                }
                (class, _) => quote(class.as_deref().unwrap_or_default()),
            },
        ),
        variable("object", "object == null ? oldObject : object"),
        variable("name", "variables.object.?metadata.?name.orValue('')"),
        variable("template", "variables.object.spec.template"),
        variable("labels", "variables.template.?metadata.?labels.orValue({})"),
        variable("pod", "variables.template.spec"),
        variable("container", "variables.pod.containers[0]"),
        variable("volumes", "variables.pod.?volumes.orValue([])"),
        // The Pod template of the stored Deployment.
        variable("had", "oldObject == null ? {} : dyn(oldObject.spec.template)"),
    ]
}

fn list_keys(map: &Value) -> Vec<&str> {
    map.as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .collect()
}
