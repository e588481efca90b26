//! What the controllers' own account may write as Deployments, where each lane has a Pod of its own: RBAC lets it write any in the platform's namespace,
//! whose names it can't know.
//!
//! Owns the policy that keeps that to lanes, made from [`lane_deployment`] itself. It refuses what would be a way to run something else, or as somebody else:
//! another image, command or argument, another account than the one that it is named by, another volume, more of the node than nothing, and labels by which a
//! NetworkPolicy or a Service would take a Pod for what it isn't. It is a list of what may be, so what a later Kubernetes adds is refused, too. What
//! somebody else has added to a lane's Deployment, as a toleration, stays, and meets it not.

use serde_json::Value;
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, LANE_PREFIX};
use tenure_api::workload::{LANE_LABEL, LanePods, lane_deployment};

use super::expression::write_literal;
use super::{About, Action, Policy, USER, Validation, Where, phrase, quote, variable};
use crate::admission::Rule;

/// Its name, without what all begin with.
pub(super) const NAME: &str = "lane-pods";
/// Stands where a lane's account does.
const ACCOUNT: &str = "tenure-lane-pool";
/// What an API server adds to a Pod and to a container if nobody says it, and what is the same twice.
const ADDED_TO_POD: [&str; 5] = [
    "dnsPolicy",
    "priorityClassName",
    "restartPolicy",
    "schedulerName",
    "serviceAccount",
];
const ADDED_TO_CONTAINER: [&str; 2] = ["terminationMessagePath", "terminationMessagePolicy"];
/// What a probe may say: it asks the container itself, at a port of its own.
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

/// The policy, and its binding. What is empty of the image and the hub isn't known where it is installed, and any is let through; and then any PriorityClass.
#[must_use]
pub fn list_lane_bounds(platform: &str, pods: &LanePods) -> Vec<Value> {
    bounds(platform, pods).write_for(platform).into()
}

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
        remedy: quote("let an administrator do it, if it is meant"),
    };
    // The class is said by itself.
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
        // What somebody else has added stays.
        let had = had.map(|had| format!(" || {had}[?key].hasValue() && {had}[key] == {what}[key]"));
        format!("{what}.all(key, key in {keys}{})", had.unwrap_or_default())
    };
    Policy {
        name: NAME.to_owned(),
        action: Action::Deny,
        place: Where::InNamespaces,
        about: vec![About {
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
                "a lane is one Pod of one container, with no more to it than there is to a lane's",
            ),
            refuse(
                format!(
                    "(variables.image == '' || variables.image == variables.container.?image.orValue('')) && variables.container.?command.orValue([]) == {} && {} && \
                     variables.container.?env.orValue([]).all(one, one.name in ['TENURE_LOG_FORMAT', 'TENURE_LOG'] && !has(one.valueFrom))",
                    of_container("command"),
                    write_arguments(read(&format!("{container}/args"))),
                ),
                "it runs the image that was installed, as a lane, and nothing else",
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
                "it is confined as a lane is, with the probes and the port of one",
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
                "it has bounds, and nothing of a node but processor time, memory and disk",
            ),
        ],
    }
}

/// What a container is told: all but where the hub is may be no other, and that no other than the one that is known.
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
        // Nothing stands behind it where the hub isn't known.
        holds.push(match *argument == HUB {
            true => format!("{given}[{index}].startsWith({text})"),
            false => format!("{given}[{index}] == {text}"),
        });
    }
    holds.join(" && ")
}

fn list_variables(pods: &LanePods) -> Vec<(String, String)> {
    vec![
        // Each by itself, so that whoever installs with a template has one place to fill in.
        variable("image", quote(&pods.image)),
        variable(
            "priorityClass",
            // Who doesn't know the image knows no class either.
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
        // What was there before.
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
