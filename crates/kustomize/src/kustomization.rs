//! The fields of a Kustomization or Component file, read strictly and with their lines.

use std::collections::BTreeMap;

use go_yaml::node::Node;

use crate::decode::{Decoder, Spot};
use crate::error::Error;
use crate::fields::{
    FieldSpec, GeneratorArguments, GeneratorOptions, Image, Label, Patch, Replacement, Replica, SortOptions, Variable,
};

/// Names that a kustomization file may have.
pub(crate) const FILE_NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// A kustomization file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kustomization {
    /// The file's path in the tree.
    pub(crate) path: String,
    /// The file's number in the build.
    pub(crate) source: u32,
    pub(crate) is_component: bool,
    pub(crate) resources: Vec<Spot<String>>,
    pub(crate) components: Vec<Spot<String>>,
    pub(crate) name_prefix: Spot<String>,
    pub(crate) name_suffix: Spot<String>,
    pub(crate) namespace: Spot<String>,
    pub(crate) common_labels: Spot<BTreeMap<String, String>>,
    pub(crate) labels: Vec<Spot<Label>>,
    pub(crate) common_annotations: Spot<BTreeMap<String, String>>,
    pub(crate) patches_strategic_merge: Vec<Spot<String>>,
    pub(crate) patches_json6902: Vec<Spot<Patch>>,
    pub(crate) patches: Vec<Spot<Patch>>,
    pub(crate) images: Vec<Spot<Image>>,
    pub(crate) replacements: Vec<Spot<Replacement>>,
    pub(crate) replicas: Vec<Spot<Replica>>,
    pub(crate) vars: Vec<Spot<Variable>>,
    pub(crate) sort_options: Option<Spot<SortOptions>>,
    pub(crate) crds: Vec<Spot<String>>,
    pub(crate) config_maps: Vec<Spot<GeneratorArguments>>,
    pub(crate) secrets: Vec<Spot<GeneratorArguments>>,
    pub(crate) helm: Option<Spot<String>>,
    pub(crate) generator_options: Option<GeneratorOptions>,
    pub(crate) configurations: Vec<Spot<String>>,
    pub(crate) generators: Vec<Spot<String>>,
    pub(crate) transformers: Vec<Spot<String>>,
    pub(crate) validators: Vec<Spot<String>>,
    pub(crate) build_metadata: Vec<Spot<String>>,
    pub(crate) openapi: Option<Spot<BTreeMap<String, String>>>,
    /// Deprecated fields that the file uses, each with its replacement.
    pub(crate) deprecated: Vec<(&'static str, &'static str)>,
}

const FIELDS: [&str; 34] = [
    "apiVersion",
    "kind",
    "metadata",
    "openapi",
    "namePrefix",
    "nameSuffix",
    "namespace",
    "commonLabels",
    "labels",
    "commonAnnotations",
    "patchesStrategicMerge",
    "patchesJson6902",
    "patches",
    "images",
    "imageTags",
    "replacements",
    "replicas",
    "vars",
    "sortOptions",
    "resources",
    "components",
    "crds",
    "bases",
    "configMapGenerator",
    "secretGenerator",
    "helmGlobals",
    "helmCharts",
    "helmChartInflationGenerator",
    "generatorOptions",
    "configurations",
    "generators",
    "transformers",
    "validators",
    "buildMetadata",
];

/// Reads a kustomization file's document.
pub(crate) fn read(decoder: &Decoder<'_>, node: &Node) -> Kustomization {
    let mut k = Kustomization {
        path: decoder.path.to_owned(),
        source: node.source,
        ..Kustomization::default()
    };
    let (mut kind, mut api_version) = (String::new(), String::new());
    let (mut kind_node, mut version_node) = (node, node);
    let known = |key: &Node| FIELDS.iter().any(|name| name.eq_ignore_ascii_case(key.text()));
    let mut empty = node.entries().iter().all(|(key, _)| known(key));
    let (mut bases, mut image_tags) = (Vec::new(), Vec::new());
    for (name, value) in decoder.read_fields(node, "", &FIELDS) {
        let line = value.line;
        match name {
            "apiVersion" => {
                api_version = decoder.read_text(value, name);
                version_node = value;
                continue;
            }
            "kind" => {
                kind = decoder.read_text(value, name);
                kind_node = value;
                continue;
            }
            _ if value.is_null() => continue,
            "metadata" => {
                let known = ["name", "namespace", "labels", "annotations"];
                for (inner, value) in decoder.read_fields(value, name, &known) {
                    match inner {
                        "labels" | "annotations" => drop(decoder.read_text_map(value, &format!("metadata.{inner}"))),
                        _ => drop(decoder.read_text(value, &format!("metadata.{inner}"))),
                    }
                }
            }
            "openapi" => k.openapi = Some(Spot::new(decoder.read_text_map(value, name), line)),
            "namePrefix" => k.name_prefix = decoder.read_spot(value, name),
            "nameSuffix" => k.name_suffix = decoder.read_spot(value, name),
            "namespace" => k.namespace = decoder.read_spot(value, name),
            "commonLabels" => {
                k.deprecated.push((name, "labels"));
                k.common_labels = Spot::new(decoder.read_text_map(value, name), line);
            }
            "labels" => {
                k.labels = decoder.read_each(value, name, |node, at| {
                    Spot::new(Label::read(decoder, node, at), node.line)
                })
            }
            "commonAnnotations" => k.common_annotations = Spot::new(decoder.read_text_map(value, name), line),
            "patchesStrategicMerge" => {
                k.deprecated.push((name, "patches"));
                k.patches_strategic_merge = decoder.read_texts(value, name);
            }
            "patchesJson6902" => {
                k.deprecated.push((name, "patches"));
                k.patches_json6902 = decoder.read_each(value, name, |node, at| {
                    Spot::new(Patch::read(decoder, node, at), node.line)
                });
            }
            "patches" => {
                k.patches = decoder.read_each(value, name, |node, at| {
                    Spot::new(Patch::read(decoder, node, at), node.line)
                })
            }
            "images" => {
                k.images = decoder.read_each(value, name, |node, at| {
                    Spot::new(Image::read(decoder, node, at), node.line)
                })
            }
            "imageTags" => {
                k.deprecated.push((name, "images"));
                image_tags = decoder.read_each(value, name, |node, at| {
                    Spot::new(Image::read(decoder, node, at), node.line)
                });
            }
            "replacements" => {
                k.replacements = decoder.read_each(value, name, |node, at| {
                    Spot::new(Replacement::read(decoder, node, at), node.line)
                });
            }
            "replicas" => {
                k.replicas = decoder.read_each(value, name, |node, at| {
                    Spot::new(Replica::read(decoder, node, at), node.line)
                })
            }
            "vars" => {
                k.deprecated.push((name, "replacements"));
                k.vars = decoder.read_each(value, name, |node, at| {
                    Spot::new(Variable::read(decoder, node, at), node.line)
                });
            }
            "sortOptions" => k.sort_options = Some(Spot::new(SortOptions::read(decoder, value, name), line)),
            "resources" => k.resources = decoder.read_texts(value, name),
            "components" => k.components = decoder.read_texts(value, name),
            "crds" => k.crds = decoder.read_texts(value, name),
            "bases" => {
                k.deprecated.push((name, "resources"));
                bases = decoder.read_texts(value, name);
            }
            "configMapGenerator" => {
                k.config_maps = decoder.read_each(value, name, |node, at| {
                    Spot::new(GeneratorArguments::read(decoder, node, at, false), node.line)
                });
            }
            "secretGenerator" => {
                k.secrets = decoder.read_each(value, name, |node, at| {
                    Spot::new(GeneratorArguments::read(decoder, node, at, true), node.line)
                });
            }
            // Without charts, the settings that all of them share are of no use to kustomize either.
            "helmCharts" | "helmChartInflationGenerator" if !value.is_empty() => {
                k.helm = Some(Spot::new(name.to_owned(), line))
            }
            "helmGlobals" => {
                for (field, value) in decoder.read_fields(value, name, &["chartHome", "configHome"]) {
                    decoder.read_text(value, &format!("{name}.{field}"));
                }
            }
            "generatorOptions" => k.generator_options = Some(GeneratorOptions::read(decoder, value, name)),
            "configurations" => k.configurations = decoder.read_texts(value, name),
            "generators" => k.generators = decoder.read_texts(value, name),
            "transformers" => k.transformers = decoder.read_texts(value, name),
            "validators" => k.validators = decoder.read_texts(value, name),
            "buildMetadata" => k.build_metadata = decoder.read_texts(value, name),
            _ => {}
        }
        empty &= matches!(&value.data, go_yaml::node::Data::Scalar(text) if text.is_empty());
    }
    k.resources.append(&mut bases);
    k.images.append(&mut image_tags);
    k.is_component = kind == "Component";
    if empty {
        decoder.complain(node, "kustomization", "kustomization.yaml is empty");
    }
    check_kind(decoder, (&kind, kind_node), (&api_version, version_node));
    k
}

fn check_kind(decoder: &Decoder<'_>, (kind, kind_node): (&str, &Node), (api_version, version_node): (&str, &Node)) {
    if !matches!(kind, "" | "Kustomization" | "Component") {
        decoder.complain(
            kind_node,
            "kind",
            format!("kind should be Kustomization or Component, not \"{kind}\""),
        );
    }
    let wanted = if kind == "Component" {
        "kustomize.config.k8s.io/v1alpha1"
    } else {
        "kustomize.config.k8s.io/v1beta1"
    };
    if !api_version.is_empty() && api_version != wanted {
        decoder.complain(
            version_node,
            "apiVersion",
            format!("apiVersion for {kind} should be {wanted}, not {api_version}"),
        );
    }
}

/// Returns the specifications of fields that a list of a configuration file names.
pub(crate) fn field_specs(decoder: &Decoder<'_>, node: &Node, at: &str) -> Vec<FieldSpec> {
    decoder.read_each(node, at, |node, at| FieldSpec::read(decoder, node, at))
}

/// Refuses the features that this library leaves to other tools. The error names the field.
pub(crate) fn refuse_unsupported(kustomization: &Kustomization) -> Result<(), Error> {
    let refuse = |line: u32, field: &str, what: &str, instead: &str| {
        Err(Error::Unsupported {
            path: kustomization.path.clone(),
            line,
            field: field.to_owned(),
            what: what.to_owned(),
            instead: instead.to_owned(),
        })
    };
    if let Some(helm) = &kustomization.helm {
        let instead = "no program is run during a build; render the chart with 'helm template', commit the result and list it under resources";
        return refuse(helm.line, &helm.value, "inflating Helm charts", instead);
    }
    Ok(())
}
