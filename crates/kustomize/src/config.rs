//! The fields that the transformers change: kustomize's defaults, and additions from `configurations` and `crds`.

use std::sync::{Arc, LazyLock};

use go_yaml::node::Node;

use crate::decode::Decoder;
use crate::fields::FieldSpec;
use crate::id::Gvk;
use crate::kustomization::field_specs;
use crate::meter;

/// Fields that hold names of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameReference {
    pub(crate) target: Gvk,
    pub(crate) referrers: Vec<FieldSpec>,
}

/// The fields of every transformer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TransformerConfig {
    pub(crate) name_prefix: Vec<FieldSpec>,
    pub(crate) name_suffix: Vec<FieldSpec>,
    pub(crate) namespace: Vec<FieldSpec>,
    pub(crate) common_labels: Vec<FieldSpec>,
    pub(crate) labels: Vec<FieldSpec>,
    pub(crate) template_labels: Vec<FieldSpec>,
    pub(crate) common_annotations: Vec<FieldSpec>,
    pub(crate) name_reference: Vec<NameReference>,
    pub(crate) var_reference: Vec<FieldSpec>,
    pub(crate) images: Vec<FieldSpec>,
    pub(crate) replicas: Vec<FieldSpec>,
}

static DEFAULT: LazyLock<Arc<TransformerConfig>> = LazyLock::new(|| {
    let mut config = TransformerConfig::default();
    for line in include_str!("../data/fieldspecs.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let mut words = line.split_ascii_whitespace();
        let mut word = || words.next().filter(|word| *word != "-").unwrap_or("").to_owned();
        let section = word();
        let mut gvk = || Gvk {
            group: word(),
            version: word(),
            kind: word(),
        };
        let (target, gvk) = (gvk(), gvk());
        let create = word() == "create";
        let path = word();
        let spec = FieldSpec { gvk, path, create };
        if section == "nameReference" {
            // The entries of one target are adjacent.
            match config.name_reference.last_mut() {
                Some(reference) if reference.target == target => reference.referrers.push(spec),
                _ => config.name_reference.push(NameReference {
                    target,
                    referrers: vec![spec],
                }),
            }
        } else if let Some(list) = config.find_section(&section) {
            list.push(spec);
        }
    }
    Arc::new(config)
});

/// The order that kustomize sorts kinds in before it applies them.
const FIRST: [&str; 22] = [
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];
const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Returns the kinds that are written first and last by default.
pub(crate) fn default_order() -> (Vec<String>, Vec<String>) {
    (
        FIRST.iter().map(ToString::to_string).collect(),
        LAST.iter().map(ToString::to_string).collect(),
    )
}

/// Returns the sort position of a kind.
pub(crate) fn rank_kind(kind: &str, first: &[impl AsRef<str>], last: &[impl AsRef<str>]) -> i64 {
    let position = |list: &[&str]| {
        list.iter()
            .rposition(|name| *name == kind)
            .and_then(|at| i64::try_from(at).ok())
    };
    let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
    let last: Vec<&str> = last.iter().map(AsRef::as_ref).collect();
    if let Some(at) = position(&last) {
        return at + 1;
    }
    position(&first).map_or(0, |at| at - i64::try_from(first.len()).unwrap_or(0))
}

/// Returns a kind as text that sorts unnamed parts last.
pub(crate) fn sort_text(gvk: &Gvk) -> String {
    let or = |text: &'static str, part: &str| {
        if part.is_empty() {
            text.to_owned()
        } else {
            part.to_owned()
        }
    };
    format!(
        "{}_{}_{}",
        or("~G", &gvk.group),
        or("~V", &gvk.version),
        or("~K", &gvk.kind)
    )
}

fn sort_key(gvk: &Gvk) -> (i64, String) {
    (rank_kind(&gvk.kind, &FIRST, &LAST), sort_text(gvk))
}

/// The names of the sections, as configuration files name them.
pub(crate) const SECTIONS: [&str; 11] = [
    "namePrefix",
    "nameSuffix",
    "namespace",
    "commonLabels",
    "labels",
    "templateLabels",
    "commonAnnotations",
    "nameReference",
    "varReference",
    "images",
    "replicas",
];

impl TransformerConfig {
    /// Returns kustomize's defaults.
    pub(crate) fn defaults() -> Arc<TransformerConfig> {
        Arc::clone(&DEFAULT)
    }

    fn find_section(&mut self, name: &str) -> Option<&mut Vec<FieldSpec>> {
        Some(match name {
            "namePrefix" => &mut self.name_prefix,
            "nameSuffix" => &mut self.name_suffix,
            "namespace" => &mut self.namespace,
            "commonLabels" => &mut self.common_labels,
            "labels" => &mut self.labels,
            "templateLabels" => &mut self.template_labels,
            "commonAnnotations" => &mut self.common_annotations,
            "varReference" => &mut self.var_reference,
            "images" => &mut self.images,
            "replicas" => &mut self.replicas,
            _ => return None,
        })
    }

    /// Reads a configuration file.
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node) -> Self {
        let mut config = TransformerConfig::default();
        for (name, value) in decoder.read_fields(node, "", &SECTIONS) {
            if name == "nameReference" {
                config.name_reference = decoder.read_each(value, name, |node, at| {
                    let mut reference = NameReference {
                        target: Gvk::default(),
                        referrers: Vec::new(),
                    };
                    for (part, value) in decoder.read_fields(node, at, &["group", "version", "kind", "fieldSpecs"]) {
                        let at = format!("{at}.{part}");
                        match part {
                            "group" => reference.target.group = decoder.read_text(value, &at),
                            "version" => reference.target.version = decoder.read_text(value, &at),
                            "kind" => reference.target.kind = decoder.read_text(value, &at),
                            _ => reference.referrers = field_specs(decoder, value, &at),
                        }
                    }
                    reference
                });
            } else if let Some(list) = config.find_section(name) {
                *list = field_specs(decoder, value, name);
            }
        }
        config
    }

    /// Sorts all specifications by kind, as kustomize does whenever it has read or merged some.
    pub(crate) fn sort(&mut self) {
        for name in SECTIONS {
            if let Some(list) = self.find_section(name) {
                list.sort_by_cached_key(|spec| sort_key(&spec.gvk));
            }
        }
        self.name_reference
            .sort_by_cached_key(|reference| sort_key(&reference.target));
    }

    /// Merges two configurations and sorts the result.
    ///
    /// # Errors
    /// If they disagree about creating a field.
    pub(crate) fn merge(&self, other: &mut TransformerConfig) -> Result<TransformerConfig, String> {
        let mut merged = self.clone();
        for name in SECTIONS {
            let incoming = other.find_section(name).map(std::mem::take).unwrap_or_default();
            if let Some(list) = merged.find_section(name) {
                merge_specs(list, incoming).map_err(|message| format!("{name}: {message}"))?;
            }
        }
        for reference in std::mem::take(&mut other.name_reference) {
            meter::count_steps(1 + merged.name_reference.len());
            match merged
                .name_reference
                .iter_mut()
                .find(|known| known.target == reference.target)
            {
                Some(known) => merge_specs(&mut known.referrers, reference.referrers)?,
                None => merged.name_reference.push(reference),
            }
        }
        merged.sort();
        Ok(merged)
    }
}

/// Adds specifications that aren't covered yet.
///
/// # Errors
/// If one disagrees with a known one about creating the field.
pub(crate) fn merge_specs(known: &mut Vec<FieldSpec>, incoming: Vec<FieldSpec>) -> Result<(), String> {
    for spec in incoming {
        meter::count_steps(1 + known.len());
        meter::check()?;
        match known
            .iter()
            .find(|old| old.gvk.is_selected(&spec.gvk) && old.path == spec.path)
        {
            Some(old) if old.create != spec.create => {
                return Err(format!(
                    "conflicting fieldspecs for '{}': one creates the field, the other doesn't",
                    spec.path
                ));
            }
            Some(_) => {}
            None => known.push(spec),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The defaults are read at every start. They are stored in kustomize's sort order, so that reading needs no sorting.
    #[test]
    fn the_defaults_are_sorted() {
        let mut sorted = TransformerConfig::clone(&TransformerConfig::defaults());
        sorted.sort();
        assert_eq!(sorted, *TransformerConfig::defaults());
        assert_eq!(sorted.images.len(), 6, "lines of the table are read");
        let mut targets: Vec<&Gvk> = sorted
            .name_reference
            .iter()
            .map(|reference| &reference.target)
            .collect();
        targets.sort();
        targets.dedup();
        assert_eq!(targets.len(), sorted.name_reference.len(), "a target has one list");
    }
}
