//! The Helm chart: the objects of the installation, with the user's choices in place of the values in `deploy/`. The chart has no object of its own. Helm never deletes
//! objects from `crds`, so the kinds are there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tenure_admission_rules::policy::list_enforced_objects;
use tenure_api::admission_webhooks::SERVICE;
use tenure_api::installation;
use tenure_api::workload::{self, Workload};
use tenure_tenancy::Settings;

use super::{HEADER, POLICY, POLICY_BINDING, file_name, list_installed, list_lanes, write_document};

/// The places of choices: the text in the objects, the text in the chart, and how the choice is written.
const CHOICES: [(&str, &str); 11] = [
    (
        "image: CHOSEN-IMAGE",
        "image: {{ required \"set image=REGISTRY/tenure:TAG@sha256:DIGEST (no image is published: build one, as docs/howto/another-cluster.md says)\" .Values.image | quote }}",
    ),
    // Only the leader can answer requests to Receivers.
    (
        "replicas: 16",
        "replicas: {{ if .Values.hooks }}1{{ else }}{{ .Values.replicas }}{{ end }}",
    ),
    (
        "      priorityClassName: CHOSEN-CLASS\n",
        "      {{- with .Values.priorityClass }}\n      priorityClassName: {{ . | quote }}\n      {{- end }}\n",
    ),
    (
        "        - CHOSEN-ARGUMENT\n",
        "        {{- range .Values.arguments }}\n        - {{ . | quote }}\n        {{- end }}\n",
    ),
    (
        "        - \"--hook-address=9292\"\n",
        "        {{- if .Values.hooks }}\n        - \"--hook-address=9292\"\n        {{- end }}\n",
    ),
    (
        "        - containerPort: 9292\n          name: hooks\n          protocol: TCP\n",
        "        {{- if .Values.hooks }}\n        - containerPort: 9292\n          name: hooks\n          protocol: TCP\n        {{- end }}\n",
    ),
    (
        "        - \"--admission-address=9443\"\n",
        "        {{- if .Values.admission }}\n        - \"--admission-address=9443\"\n        {{- end }}\n",
    ),
    (
        "        - containerPort: 9443\n          name: admission\n          protocol: TCP\n",
        "        {{- if .Values.admission }}\n        - containerPort: 9443\n          name: admission\n          protocol: TCP\n        {{- end }}\n",
    ),
    (
        "        - \"--policies\"\n",
        "        {{- if and .Values.policies (semverCompare \">=1.31-0\" .Capabilities.KubeVersion.Version) }}\n        \
         - \"--policies\"\n        {{- end }}\n",
    ),
    // Any other value is an error of the rendering. `tenure run` makes tasks of lanes by default.
    (
        "        - \"--lanes=deployment\"\n        - \"--lane-address=9643\"\n        - \"--lane-image=CHOSEN-IMAGE\"\n        - \"--lane-priority-class=CHOSEN-CLASS\"\n",
        "        {{- if eq .Values.lanes \"deployment\" }}\n        - \"--lanes=deployment\"\n        - \"--lane-address=9643\"\n        \
         - {{ printf \"--lane-image=%s\" .Values.image | quote }}\n        {{- with .Values.priorityClass }}\n        \
         - {{ printf \"--lane-priority-class=%s\" . | quote }}\n        {{- end }}\n        {{- else if eq .Values.lanes \"process\" }}\n        \
         - \"--lanes=process\"\n        {{- else if ne .Values.lanes \"task\" }}\n        \
         {{- fail \"lanes: task, process or deployment\" }}\n        {{- end }}\n",
    ),
    (
        "        - containerPort: 9643\n          name: lanes\n          protocol: TCP\n",
        "        {{- if eq .Values.lanes \"deployment\" }}\n        - containerPort: 9643\n          name: lanes\n          protocol: TCP\n        {{- end }}\n",
    ),
];
/// The ingress of the controllers' policy: requests to Receivers, reviews and lanes, if they are enabled.
const INGRESS: (&str, &str) = (
    "  ingress:\n  - ports:\n    - port: 9292\n      protocol: TCP\n  - ports:\n    - port: 9443\n      protocol: TCP\n  - from:\n    \
     - podSelector:\n        matchLabels:\n          app.kubernetes.io/component: lane\n          app.kubernetes.io/name: tenure\n    \
     ports:\n    - port: 9643\n      protocol: TCP\n",
    "  {{- if or .Values.hooks .Values.admission (eq .Values.lanes \"deployment\") }}\n  ingress:\n  {{- if .Values.hooks }}\n  - ports:\n    - port: 9292\n      \
     protocol: TCP\n  {{- end }}\n  {{- if .Values.admission }}\n  - ports:\n    - port: 9443\n      protocol: TCP\n  {{- end }}\n  \
     {{- if eq .Values.lanes \"deployment\" }}\n  - from:\n    - podSelector:\n        matchLabels:\n          app.kubernetes.io/component: lane\n          \
     app.kubernetes.io/name: tenure\n    ports:\n    - port: 9643\n      protocol: TCP\n  {{- end }}\n  {{- end }}\n",
);
/// Around the part of the controllers' policy for sources. With a Pod per lane, the lanes connect to sources instead.
const WITHOUT_LANE_PODS: (&str, &str) = ("  {{- if ne .Values.lanes \"deployment\" }}\n", "  {{- end }}\n");
/// Before an object that exists only with a Pod per lane.
const WITH_LANE_PODS: &str = "{{- if eq .Values.lanes \"deployment\" }}\n";
/// Before an object that exists only with a Pod per lane and in a cluster with policies.
const WITH_LANE_POLICIES: &str =
    "{{- if and (eq .Values.lanes \"deployment\") (semverCompare \">=1.30-0\" .Capabilities.KubeVersion.Version) }}\n";
/// The constants in the policy that limits lanes: as in the object, and as in the chart.
const OF_LANES: [(&str, &str); 2] = [
    (
        "expression: \"'CHOSEN-IMAGE'\"",
        "expression: {{ printf \"'%s'\" .Values.image | quote }}",
    ),
    (
        "expression: \"'CHOSEN-CLASS'\"",
        "expression: {{ printf \"'%s'\" .Values.priorityClass | quote }}",
    ),
];
/// Before an object that exists only with requests to Receivers.
const WITH_HOOKS: &str = "{{- if .Values.hooks }}\n";
/// Before an object that exists only if the API server calls Tenure's webhooks.
const WITH_ADMISSION: &str = "{{- if .Values.admission }}\n";
/// Before an object that exists only with webhooks and without policies.
const WITH_ADMISSION_ALONE: &str = "{{- if and .Values.admission (not (and .Values.policies (semverCompare \">=1.31-0\" .Capabilities.KubeVersion.Version))) }}\n";
/// Before an object that exists only if policies are enforced: where the values ask for them, and the cluster can have them. The version decides, since
/// `helm template` knows no kinds.
const WITH_POLICIES: &str =
    "{{- if and .Values.policies (semverCompare \">=1.31-0\" .Capabilities.KubeVersion.Version) }}\n";
/// Before an object that exists only in a cluster with policies.
const WHERE_POLICIES_ARE: &str = "{{- if semverCompare \">=1.30-0\" .Capabilities.KubeVersion.Version }}\n";
/// After each of these objects.
const END: &str = "{{- end }}\n";
/// The place for additional egress rules: at the end of a policy's egress, which is before its selector, or before its ingress.
const EGRESS: (&str, &str) = (
    "  podSelector:\n",
    "  {{- with .Values.egress }}\n  {{- toYaml . | nindent 2 }}\n  {{- end }}\n",
);

/// The content of `values.yaml`.
const VALUES: &str = "\
# The image with the program at /tenure, as REGISTRY/tenure:TAG@sha256:DIGEST. Required. Without a digest, the image of a tag can be replaced without notice.
image: \"\"
# The number of Pods. One leads, the others wait.
replicas: 2
# Accept requests to Receivers, at the Service webhook-receiver. Only the leader can answer them, so the number of Pods is then 1.
hooks: false
# Let the API server send writes to Tenure's admission webhooks, at the Service tenure-webhook. Owners can then create their own namespaces.
admission: true
# Keep the rules of tenancy in force as ValidatingAdmissionPolicies, from Kubernetes 1.31. They hold also while no Pod of Tenure runs.
policies: true
# The PriorityClass of the Pods.
priorityClass: \"\"
# More arguments for `tenure run`, one flag per entry, such as --allow-source=https://10.0.0.7:8443
arguments: []
# How lanes run: task, process or deployment. With deployment, the controllers write a Deployment for each lane and get the right to do so.
lanes: task
# More destinations for the controllers and lanes, such as private Git servers, as egress rules of a NetworkPolicy.
egress: []
";

/// Writes the files of the chart.
pub(super) fn write_chart() -> Result<BTreeMap<PathBuf, String>> {
    let folder = Path::new("deploy/chart");
    let mut files = BTreeMap::new();
    let version = env!("CARGO_PKG_VERSION");
    files.insert(
        folder.join("Chart.yaml"),
        format!(
            "{HEADER}apiVersion: v2\nname: tenure\ndescription: Git reconciled into Kubernetes as somebody.\ntype: application\n\
             version: {version}\nappVersion: \"{version}\"\nkubeVersion: \">=1.28.0-0\"\n"
        ),
    );
    files.insert(folder.join("values.yaml"), format!("{HEADER}{VALUES}"));
    let chosen = Workload {
        replicas: 16,
        hooks: true,
        admission: true,
        lanes: true,
        priority_class: Some("CHOSEN-CLASS".to_owned()),
        arguments: vec!["--policies".to_owned(), "CHOSEN-ARGUMENT".to_owned()],
        ..Workload::usual("CHOSEN-IMAGE")
    };
    let connected = write_connected(&chosen)?;
    for (object, begins) in list_chosen(&chosen)? {
        let mut path = file_name(&object)?;
        let mut text = write_document(&object);
        ensure!(
            !text.contains("{{") || path.starts_with("crds/"),
            "{path} would be a template"
        );
        if let Some(name) = path.strip_prefix("crds/") {
            files.insert(folder.join("crds").join(name), text);
            continue;
        }
        if object.get("kind").and_then(Value::as_str) == Some("Deployment") {
            for (stands, choice) in CHOICES {
                ensure!(text.matches(stands).count() == 1, "{path} has no place for {choice}");
                text = text.replace(stands, choice);
            }
        }
        if begins == Some(WITH_LANE_POLICIES) && object.get("kind").is_some_and(|kind| kind == POLICY) {
            for (stands, choice) in OF_LANES {
                ensure!(text.matches(stands).count() == 1, "{path} has no place for {choice}");
                text = text.replace(stands, choice);
            }
        }
        ensure!(!text.contains("CHOSEN-"), "{path} has a choice that nobody makes");
        if object.pointer("/spec/egress").is_some() {
            let is_controllers = object.pointer("/spec/ingress").is_some();
            if is_controllers {
                text = mark_sources(&text, &connected)?;
            }
            let (follows, choice) = if is_controllers { INGRESS } else { (EGRESS.0, EGRESS.0) };
            ensure!(text.matches(follows).count() == 1, "{path} has no place for egress");
            text = text.replace(follows, &format!("{}{choice}", EGRESS.1));
        }
        if let Some(begins) = begins {
            text = text.replacen(HEADER, &format!("{HEADER}{begins}"), 1) + END;
        }
        if begins == Some(WITH_ADMISSION_ALONE) {
            path = path.replace(".yaml", "-of-admission.yaml");
        }
        let (_, name) = path.split_once('/').unwrap_or(("", &path));
        let name = folder.join("templates").join(name);
        ensure!(
            files.insert(name, text).is_none(),
            "two objects of the chart would be {path}"
        );
    }
    Ok(files)
}

/// Writes the controllers' policy for controllers that connect to sources themselves.
fn write_connected(chosen: &Workload) -> Result<String> {
    let connecting = Workload {
        lanes: false,
        ..chosen.clone()
    };
    let written = workload::objects(&connecting);
    let policy = written
        .iter()
        .find(|object| object.pointer("/spec/ingress").is_some() && object.pointer("/spec/egress").is_some());
    policy.map(write_document).context("the controllers have no policy")
}

/// Adds the part for sources to the controllers' policy. The policy lacks it, and needs it where lanes have no Pods.
fn mark_sources(text: &str, connected: &str) -> Result<String> {
    let (before, after) = text.split_once("  ingress:\n").context("nobody comes in")?;
    let (all, _) = connected.split_once("  ingress:\n").context("nobody comes in")?;
    let same = |(line, other): &(&str, &str)| line == other;
    let ends = before.lines().rev().zip(all.lines().rev()).take_while(same).count();
    let begins = before.lines().count().saturating_sub(ends);
    let left = all.lines().count().saturating_sub(ends);
    ensure!(
        before.lines().zip(all.lines()).take(begins).all(|pair| same(&pair)) && begins < left,
        "the policies differ in more than what sources need"
    );
    let mut marked = String::new();
    for (number, line) in all.lines().enumerate() {
        if number == begins {
            marked.push_str(WITHOUT_LANE_PODS.0);
        }
        if number == left {
            marked.push_str(WITHOUT_LANE_PODS.1);
        }
        marked.push_str(line);
        marked.push('\n');
    }
    Ok(format!("{marked}  ingress:\n{after}"))
}

/// Lists all objects, each with its condition.
fn list_chosen(chosen: &Workload) -> Result<Vec<(Value, Option<&'static str>)>> {
    let kind = |object: &Value| object.get("kind").and_then(Value::as_str).map(str::to_owned);
    let policing = installation::policing(&list_enforced_objects(&Settings::default()));
    let mut objects = Vec::new();
    for object in list_installed()? {
        let is_policy = kind(&object).is_some_and(|kind| kind == POLICY || kind == POLICY_BINDING);
        objects.push((object, is_policy.then_some(WHERE_POLICIES_ARE)));
    }
    for object in installation::admission() {
        let name = |object: &Value| (kind(object), object.pointer("/metadata/name").cloned());
        let has_more = policing.iter().any(|other| name(other) == name(&object));
        let begins = if has_more { WITH_ADMISSION_ALONE } else { WITH_ADMISSION };
        objects.push((object, Some(begins)));
    }
    objects.extend(policing.into_iter().map(|object| (object, Some(WITH_POLICIES))));
    for object in list_lanes(chosen) {
        let is_policy = kind(&object).is_some_and(|kind| kind == POLICY || kind == POLICY_BINDING);
        let begins = if is_policy { WITH_LANE_POLICIES } else { WITH_LANE_PODS };
        objects.push((object, Some(begins)));
    }
    let without = workload::objects(&Workload {
        lanes: false,
        ..chosen.clone()
    });
    for object in workload::objects(chosen) {
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        let is_called_so = |other: &Value| {
            kind(other) == kind(&object) && other.pointer("/metadata/name").and_then(Value::as_str) == name
        };
        let begins = match kind(&object).as_deref() {
            _ if !without.iter().any(is_called_so) => Some(WITH_LANE_PODS),
            Some("Service") if name == Some(SERVICE) => Some(WITH_ADMISSION),
            Some("Service") => Some(WITH_HOOKS),
            _ => None,
        };
        objects.push((object, begins));
    }
    Ok(objects)
}

#[cfg(test)]
mod tests;
