//! Owns `transformers`, `generators` and `validators`: resources that configure built-in plugins. Refuses every other plugin:
//! programs and containers aren't run during a build.

use std::collections::BTreeMap;

use crate::accumulate::{Accumulated, Builder, Frame, field_error, file_name};
use crate::decode::{Decoder, Spot};
use crate::error::Error;
use crate::fields::{FieldSpec, GeneratorArguments, Image, Patch, Replacement, Replica, Selector};
use crate::generate::{self, Place};
use crate::jsonpatch;
use crate::kustomization::{Kustomization, field_specs};
use crate::load::Loader;
use crate::origin::Origin;
use crate::patch::{Content, PreparedPatch};
use crate::resource::Resource;
use crate::selector::Matcher;
use crate::steps::{Action, PatchError, Step, image_action, prepare_patch, prepare_replacement};
use crate::transform::names::Affix;
use crate::transform::namespace::{Namespace, Subjects};
use crate::yaml::json::{configuration_value, through_json};
use crate::yaml::node::Node;

/// A resource that configures a plugin.
struct Plugin {
    resource: Resource,
    origin: Option<Origin>,
    line: u32,
    field: String,
}

const TRANSFORMERS: [&str; 13] = [
    "AnnotationsTransformer",
    "HashTransformer",
    "ImageTagTransformer",
    "LabelTransformer",
    "NamespaceTransformer",
    "PatchJson6902Transformer",
    "PatchStrategicMergeTransformer",
    "PatchTransformer",
    "PrefixTransformer",
    "SuffixTransformer",
    "ReplacementTransformer",
    "ReplicaCountTransformer",
    "ValueAddTransformer",
];

impl Builder<'_> {
    /// Reads the resources that a list of plugins names or holds.
    fn plugins(
        &self,
        frame: &Frame,
        k: &Kustomization,
        field: &str,
        list: &[Spot<String>],
    ) -> Result<Vec<Plugin>, Error> {
        let (mut inline, mut named) = (Vec::new(), Vec::new());
        for (index, entry) in list.iter().enumerate() {
            let field = format!("{field}[{index}]");
            let plugin = |resource: Resource, origin: Option<Origin>| {
                let origin = origin.map(|origin| {
                    origin.configured_by(
                        resource.api_version(),
                        resource.kind(),
                        resource.name(),
                        resource.namespace(),
                    )
                });
                Plugin {
                    resource,
                    origin,
                    line: entry.line,
                    field: field.clone(),
                }
            };
            // An entry that reads as resources holds them; any other is a path.
            if let Ok(resources) = self.loader.resources(&k.path, &entry.value, entry.line) {
                let origin = frame.origin.as_ref().map(|origin| origin.appended(file_name(k)));
                inline.extend(resources.into_iter().map(|resource| plugin(resource, origin.clone())));
                continue;
            }
            let at = |message: String| field_error(k, entry.line, &field, message);
            let place = format!("{}:{}", k.path, entry.line);
            let resources = match self
                .loader
                .find(&frame.root, &entry.value)
                .map_err(|error| at(error.to_string()))?
            {
                Some((found, bytes)) => {
                    let text = Loader::text(&found, bytes)?;
                    let origin = frame.origin.as_ref().map(|origin| origin.appended(&entry.value));
                    self.loader
                        .resources(&found, text, 0)?
                        .into_iter()
                        .map(|resource| (resource, origin.clone()))
                        .collect()
                }
                None => self
                    .plugin_directory(frame, k, &field, entry)
                    .map_err(|error| error.through(place))?,
            };
            named.extend(resources.into_iter().map(|(resource, origin)| plugin(resource, origin)));
        }
        inline.extend(named);
        Ok(inline)
    }

    fn plugin_directory(
        &self,
        frame: &Frame,
        k: &Kustomization,
        field: &str,
        entry: &Spot<String>,
    ) -> Result<Vec<(Resource, Option<Origin>)>, Error> {
        let mut only = Kustomization {
            path: k.path.clone(),
            source: k.source,
            ..Kustomization::default()
        };
        only.resources.push(entry.clone());
        let _ = field;
        let accumulated = self.accumulate(frame, &only, Accumulated::default())?;
        let origin = frame.origin.as_ref().map(|origin| origin.appended(&entry.value));
        Ok(accumulated
            .resources
            .list
            .into_iter()
            .map(|resource| (resource, origin.clone()))
            .collect())
    }

    fn refuse_plugin(&self, k: &Kustomization, plugin: &Plugin) -> Error {
        let kind = plugin.resource.kind();
        let helm = kind == "HelmChartInflationGenerator";
        let what = if helm {
            "inflating Helm charts".to_owned()
        } else {
            format!("the plugin '{kind}'")
        };
        let instead = if helm {
            "no program is run during a build; render the chart with 'helm template' and commit the result"
        } else {
            "only built-in plugins (apiVersion: builtin) are loaded; programs and containers are never run during a build, so run it beforehand and commit its output"
        };
        Error::Unsupported {
            path: k.path.clone(),
            line: plugin.line,
            field: plugin.field.clone(),
            what,
            instead: instead.to_owned(),
        }
    }

    /// The steps that plugins of a field add.
    pub(crate) fn external_steps(
        &self,
        frame: &Frame,
        k: &Kustomization,
        field: &str,
        list: &[Spot<String>],
    ) -> Result<Vec<Step>, Error> {
        let mut steps = Vec::new();
        for mut plugin in self.plugins(frame, k, field, list)? {
            let kind = TRANSFORMERS.iter().find(|kind| **kind == plugin.resource.kind());
            let Some(kind) = kind.filter(|_| plugin.resource.api_version() == "builtin") else {
                return Err(self.refuse_plugin(k, &plugin));
            };
            let at = |message: String| field_error(k, plugin.line, &plugin.field, message);
            through_json(&mut plugin.resource.node).map_err(|problem| at(problem.message))?;
            let actions = self.transformer(frame, kind, &plugin.resource.node, &at)?;
            for action in actions {
                steps.push(Step {
                    action,
                    field: plugin.field.clone(),
                    line: plugin.line,
                    kind,
                    origin: plugin.origin.clone(),
                });
            }
        }
        Ok(steps)
    }

    fn transformer(
        &self,
        frame: &Frame,
        kind: &str,
        node: &Node,
        at: &dyn Fn(String) -> Error,
    ) -> Result<Vec<Action>, Error> {
        let path = self.loader.source_path(node.source);
        let decoder = Decoder::new(&path, false);
        let specs = || -> Option<Vec<FieldSpec>> {
            let node = field(&decoder, node, "fieldSpecs")?;
            Some(field_specs(&decoder, node, "fieldSpecs"))
        };
        let text =
            |name: &'static str| field(&decoder, node, name).map_or(String::new(), |node| decoder.text(node, name));
        let pairs = |name: &'static str| -> BTreeMap<String, String> {
            field(&decoder, node, name)
                .map(|node| decoder.text_map(node, name))
                .unwrap_or_default()
        };
        let actions = match kind {
            "AnnotationsTransformer" => vec![Action::Pairs {
                pairs: pairs("annotations"),
                fields: specs().unwrap_or_default(),
            }],
            "LabelTransformer" => vec![Action::Pairs {
                pairs: pairs("labels"),
                fields: specs().unwrap_or_default(),
            }],
            "HashTransformer" => vec![Action::Hash],
            "PrefixTransformer" | "SuffixTransformer" => {
                let is_prefix = kind == "PrefixTransformer";
                let fields = specs().ok_or_else(|| at("fieldSpecs is not expected to be nil".to_owned()))?;
                vec![Action::Affix(Affix {
                    text: text(if is_prefix { "prefix" } else { "suffix" }),
                    is_prefix,
                    fields,
                })]
            }
            "ImageTagTransformer" => {
                let image = field(&decoder, node, "imageTag")
                    .map(|node| Image::read(&decoder, node, "imageTag"))
                    .unwrap_or_default();
                vec![image_action(&image, specs().unwrap_or_default()).map_err(at)?]
            }
            "ReplicaCountTransformer" => {
                let replica = field(&decoder, node, "replica")
                    .map(|node| Replica::read(&decoder, node, "replica"))
                    .unwrap_or_default();
                vec![Action::Replicas {
                    replica,
                    fields: specs().unwrap_or_default(),
                }]
            }
            "NamespaceTransformer" => {
                let subjects = match text("setRoleBindingSubjects").as_str() {
                    "" | "defaultOnly" => Subjects::Default,
                    "allServiceAccounts" => Subjects::All,
                    "none" => Subjects::None,
                    other => {
                        return Err(at(format!(
                            "invalid value \"{other}\" for setRoleBindingSubjects: must be one of defaultOnly, none or allServiceAccounts"
                        )));
                    }
                };
                let namespace = node.at(&["metadata", "namespace"]).map_or("", Node::text).to_owned();
                let unset_only =
                    field(&decoder, node, "unsetOnly").is_some_and(|node| decoder.truth(node, "unsetOnly"));
                vec![Action::Namespace(Namespace {
                    namespace,
                    fields: specs().unwrap_or_default(),
                    unset_only,
                    subjects,
                })]
            }
            "PatchTransformer" => {
                let patch = Patch::read(&decoder, node, "patch");
                let prepared = prepare_patch(&self.loader, &frame.root, &patch, (node.source, &path)).map_err(
                    |error| match error {
                        PatchError::Message(message) => at(message),
                        PatchError::Error(error) => error,
                    },
                )?;
                vec![Action::Patch(prepared)]
            }
            "PatchJson6902Transformer" => {
                vec![self.json_plugin(frame, &decoder, node, &text("path"), &text("jsonOp"), at)?]
            }
            "PatchStrategicMergeTransformer" => self.merge_plugin(frame, &decoder, node, &text("patches"), at)?,
            "ReplacementTransformer" => {
                let list = field(&decoder, node, "replacements")
                    .map(|node| decoder.each(node, "replacements", |node, at| Replacement::read(&decoder, node, at)))
                    .unwrap_or_default();
                let mut all = Vec::new();
                for replacement in &list {
                    all.extend(prepare_replacement(&self.loader, &frame.root, replacement, at)?);
                }
                vec![Action::Replacements(all)]
            }
            _ => {
                return Err(at(format!(
                    "the built-in transformer {kind} is not supported; use replacements or patches instead"
                )));
            }
        };
        decoder.finish()?;
        Ok(actions)
    }

    fn json_plugin(
        &self,
        frame: &Frame,
        decoder: &Decoder<'_>,
        node: &Node,
        path: &str,
        text: &str,
        at: &dyn Fn(String) -> Error,
    ) -> Result<Action, Error> {
        let target = field(decoder, node, "target")
            .map(|node| Selector::read(decoder, node, "target"))
            .unwrap_or_default();
        if target.name.is_empty() {
            return Err(at("must specify the target name".to_owned()));
        }
        let (file, text) = match (path.is_empty(), text.is_empty()) {
            (true, true) => return Err(at("empty file path and empty jsonOp".to_owned())),
            (false, false) => {
                return Err(at("must specify a file path or jsonOp, not both".to_owned()));
            }
            (true, false) => (decoder.path.to_owned(), text),
            (false, true) => {
                let (found, bytes) = self
                    .loader
                    .read(&frame.root, path)
                    .map_err(|error| at(error.to_string()))?;
                let text = Loader::text(&found, bytes)?;
                (found, text)
            }
        };
        let read = self
            .loader
            .configuration(&file, text)?
            .ok_or_else(|| at("patch appears to be empty".to_owned()))?;
        let value = configuration_value(&read).map_err(|problem| at(problem.message))?;
        let operations = jsonpatch::operations(&value).map_err(at)?;
        let target = Some(Matcher::new(&target).map_err(at)?);
        let place = (self.loader.source(&file), node.line);
        Ok(Action::Patch(PreparedPatch {
            content: Content::Json(operations),
            target,
            is_legacy_merge: false,
            is_legacy_json: true,
            place,
        }))
    }

    fn merge_plugin(
        &self,
        frame: &Frame,
        decoder: &Decoder<'_>,
        node: &Node,
        inline: &str,
        at: &dyn Fn(String) -> Error,
    ) -> Result<Vec<Action>, Error> {
        let mut patches = Vec::new();
        let paths = field(decoder, node, "paths")
            .map(|node| decoder.texts(node, "paths"))
            .unwrap_or_default();
        for path in paths {
            match self.loader.resources(decoder.path, &path.value, path.line) {
                Ok(read) => patches.extend(read),
                Err(_) => {
                    let (found, bytes) = self
                        .loader
                        .read(&frame.root, &path.value)
                        .map_err(|error| at(error.to_string()))?;
                    patches.extend(self.loader.resources(&found, Loader::text(&found, bytes)?, 0)?);
                }
            }
        }
        if !inline.is_empty() {
            patches.extend(self.loader.resources(decoder.path, inline, node.line)?);
        }
        if patches.is_empty() {
            return Err(at("empty file path and empty patch content".to_owned()));
        }
        let place = (node.source, node.line);
        Ok(vec![Action::Patch(PreparedPatch {
            content: Content::Merge(patches),
            target: None,
            is_legacy_merge: true,
            is_legacy_json: false,
            place,
        })])
    }

    /// Runs the plugins of `generators`.
    pub(crate) fn run_external_generators(
        &self,
        frame: &Frame,
        k: &Kustomization,
        into: &mut Accumulated,
    ) -> Result<(), Error> {
        for plugin in self.plugins(frame, k, "generators", &k.generators)? {
            let is_secret = plugin.resource.kind() == "SecretGenerator";
            let known = is_secret || plugin.resource.kind() == "ConfigMapGenerator";
            if !known || plugin.resource.api_version() != "builtin" {
                return Err(self.refuse_plugin(k, &plugin));
            }
            let mut node = plugin.resource.node.clone();
            through_json(&mut node).map_err(|problem| field_error(k, plugin.line, &plugin.field, problem.message))?;
            let path = self.loader.source_path(node.source);
            let decoder = Decoder::new(&path, false);
            let mut arguments = GeneratorArguments::read(&decoder, &node, "generator", is_secret);
            decoder.finish()?;
            if arguments.name.is_empty() {
                plugin.resource.name().clone_into(&mut arguments.name);
            }
            if arguments.namespace.is_empty() {
                plugin.resource.namespace().clone_into(&mut arguments.namespace);
            }
            let place = Place {
                path: &path,
                source: node.source,
                line: node.line,
                field: "generator",
                root: &frame.root,
            };
            let mut made = generate::resource(&self.loader, &arguments, arguments.options.as_ref(), is_secret, place)?;
            made.notes.origin = plugin.origin.as_ref().map(Origin::to_text);
            into.resources
                .absorb(made)
                .map_err(|trouble| field_error(k, plugin.line, &plugin.field, trouble.message))?;
        }
        Ok(())
    }

    /// Runs the plugins of `validators`, which must leave the resources as they are.
    pub(crate) fn validate(&self, frame: &Frame, k: &Kustomization, into: &mut Accumulated) -> Result<(), Error> {
        let steps = self.external_steps(frame, k, "validators", &k.validators)?;
        if steps.is_empty() {
            return Ok(());
        }
        let before: Vec<Node> = into
            .resources
            .list
            .iter()
            .map(|resource| resource.node.clone())
            .collect();
        for step in steps {
            let (field, line) = (step.field.clone(), step.line);
            self.run(frame, k, vec![step], &mut into.resources)?;
            let same = before.len() == into.resources.list.len()
                && before
                    .iter()
                    .zip(&into.resources.list)
                    .all(|(old, new)| *old == new.node);
            if !same {
                return Err(field_error(
                    k,
                    line,
                    &field,
                    "validator shouldn't modify the resource map".to_owned(),
                ));
            }
        }
        Ok(())
    }
}

/// A field of a plugin's configuration.
fn field<'node>(decoder: &Decoder<'_>, node: &'node Node, name: &'static str) -> Option<&'node Node> {
    decoder
        .fields(node, "", &[name])
        .pop()
        .map(|(_, node)| node)
        .filter(|node| !node.is_null())
}
