//! The Helm chart: the objects of the installation, with what its user chooses in place of what `deploy/` holds. Owns the places of these
//! choices; refuses to hold an object of its own. Helm never deletes what is in `crds`, which is why the kinds are there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::Value;
use tenure_api::workload::{self, Workload};

use super::{HEADER, POLICY, POLICY_BINDING, document, file_name, list_installed};

/// What stands in the objects where a choice goes, how the file has it, and what the choice is written as.
const CHOICES: [(&str, &str); 6] = [
    (
        "image: CHOSEN-IMAGE",
        "image: {{ required \"image: NAME:TAG@DIGEST\" .Values.image | quote }}",
    ),
    // Only who leads can answer requests to Receivers.
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
];
/// Where requests to Receivers come in, if they do: in the controllers' policy.
const INGRESS: (&str, &str) = (
    "  ingress:\n  - ports:\n    - port: 9292\n      protocol: TCP\n",
    "  {{- if .Values.hooks }}\n  ingress:\n  - ports:\n    - port: 9292\n      protocol: TCP\n  {{- end }}\n",
);
/// Around an object that is there only where requests to Receivers are taken.
const WITH_HOOKS: (&str, &str) = ("{{- if .Values.hooks }}\n", "{{- end }}\n");
/// Around an object that is there only where the cluster has policies.
const WITH_POLICIES: (&str, &str) = (
    "{{- if .Capabilities.APIVersions.Has \"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy\" }}\n",
    "{{- end }}\n",
);
/// Where more rules of the network go: at the end of the list of the controllers' policy.
const EGRESS: (&str, &str) = (
    "  podSelector:\n",
    "  {{- with .Values.egress }}\n  {{- toYaml . | nindent 2 }}\n  {{- end }}\n",
);

/// What `values.yaml` holds.
const VALUES: &str = "\
# The image with the program as /tenure: NAME:TAG@DIGEST. There is no default; an image without a digest can be exchanged unseen.
image: \"\"
# How many Pods: one leads, the others wait.
replicas: 2
# Whether requests to Receivers are taken, at the Service webhook-receiver. Only who leads can answer them, so there is one Pod then.
hooks: false
# The PriorityClass of the Pods.
priorityClass: \"\"
# What `tenure run` is told besides, a flag an entry: --allow-source=https://10.0.0.7:8443
arguments: []
# More that the controllers may connect to, as rules of a NetworkPolicy: private Git servers.
egress: []
";

/// The files of the chart.
pub(super) fn write() -> Result<BTreeMap<PathBuf, String>> {
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
        priority_class: Some("CHOSEN-CLASS".to_owned()),
        arguments: vec!["CHOSEN-ARGUMENT".to_owned()],
        ..Workload::usual("CHOSEN-IMAGE")
    };
    let mut objects = list_installed()?;
    objects.extend(workload::objects(&chosen));
    for object in &objects {
        let path = file_name(object)?;
        let mut text = document(object);
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
        if object.pointer("/spec/egress").is_some() {
            ensure!(text.matches(EGRESS.0).count() == 1, "{path} has no place for egress");
            text = text.replace(EGRESS.0, &format!("{}{}", EGRESS.1, EGRESS.0));
            ensure!(text.matches(INGRESS.0).count() == 1, "{path} has no place for ingress");
            text = text.replace(INGRESS.0, INGRESS.1);
        }
        let around = match object.get("kind").and_then(Value::as_str) {
            Some("Service") => Some(WITH_HOOKS),
            Some(POLICY | POLICY_BINDING) => Some(WITH_POLICIES),
            _ => None,
        };
        if let Some((begin, end)) = around {
            text = text.replacen(HEADER, &format!("{HEADER}{begin}"), 1) + end;
        }
        let (_, name) = path.split_once('/').unwrap_or(("", &path));
        files.insert(folder.join("templates").join(name), text);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<()>;

    /// With the values that it has by default, the chart is what `deploy/` is.
    #[test]
    fn its_templates_are_the_objects_of_the_installation() -> TestResult {
        let by_default = [
            (
                "{{ required \"image: NAME:TAG@DIGEST\" .Values.image | quote }}",
                super::super::IMAGE,
            ),
            ("{{ if .Values.hooks }}1{{ else }}{{ .Values.replicas }}{{ end }}", "2"),
            (CHOICES[2].1, ""),
            (CHOICES[3].1, ""),
            (CHOICES[4].1, ""),
            (CHOICES[5].1, ""),
            (EGRESS.1, ""),
            (INGRESS.1, ""),
        ];
        let mut rendered = Vec::new();
        for (path, mut text) in write()? {
            let is_object = path.starts_with("deploy/chart/crds") || path.starts_with("deploy/chart/templates");
            if !is_object {
                continue;
            }
            if text.contains(&format!("{HEADER}{}", WITH_HOOKS.0)) {
                continue;
            }
            if let Some((head, rest)) = text.split_once(WITH_POLICIES.0) {
                text = format!("{head}{}", rest.strip_suffix(WITH_POLICIES.1).unwrap_or(rest));
            }
            for (expression, value) in by_default {
                text = text.replace(expression, value);
            }
            assert!(
                !text.contains("{{") || path.starts_with("deploy/chart/crds"),
                "{}: {text}",
                path.display()
            );
            let built = kustomize::manifests("chart", &text, &kustomize::Limits::default())?;
            rendered.extend(
                built
                    .into_iter()
                    .map(|built| super::super::write_plainly(&built.object)),
            );
        }
        let mut expected: Vec<String> = super::super::objects()?
            .iter()
            .map(super::super::write_plainly)
            .collect();
        rendered.sort();
        expected.sort();
        assert!(rendered == expected, "the chart holds other objects than are installed");
        Ok(())
    }

    #[test]
    fn every_value_is_used_and_every_used_value_is_there() -> TestResult {
        let files = write()?;
        let values = files
            .get(Path::new("deploy/chart/values.yaml"))
            .cloned()
            .unwrap_or_default();
        let named = values.lines().filter(|line| !line.starts_with('#'));
        let named: Vec<&str> = named
            .filter_map(|line| line.split_once(':'))
            .map(|(name, _)| name)
            .collect();
        let templates: String = files
            .iter()
            .filter(|(path, _)| path.starts_with("deploy/chart/templates"))
            .map(|(_, text)| text.as_str())
            .collect();
        for name in &named {
            assert!(
                templates.contains(&format!(".Values.{name} ")),
                "{name} is used nowhere"
            );
        }
        for used in templates.split(".Values.").skip(1) {
            let used: String = used.chars().take_while(char::is_ascii_alphanumeric).collect();
            assert!(named.contains(&used.as_str()), "{used} has no default");
        }
        Ok(())
    }

    /// The real one, where it is: it takes the chart, and renders what the program exports.
    #[test]
    fn helm_takes_it() {
        let folder = crate::tidy::root().join("deploy/chart");
        let helm = |arguments: &[&str]| std::process::Command::new("helm").args(arguments).arg(&folder).output();
        let Ok(linted) = helm(&["lint", "--set=image=tenure:1"]) else {
            // There is no helm on PATH.
            return;
        };
        assert!(linted.status.success(), "{}", String::from_utf8_lossy(&linted.stdout));
        assert!(
            helm(&["template", "tenure"]).is_ok_and(|output| !output.status.success()),
            "an image is wanted"
        );
        let rendered = helm(&["template", "--include-crds", "--set=image=tenure:1", "tenure"]);
        assert!(rendered.is_ok_and(|output| output.status.success()));
    }
}
