//! The configurations of built-in transformers, as entries of `transformers` and `validators` contain them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use go_yaml::node::Node;
use go_yaml::read::Lines;

use crate::accumulate::{Builder, Frame};
use crate::decode::{Decoder, Spot};
use crate::error::Error;
use crate::fields::{FieldSpec, Image, Patch, Replacement, Replica, Selector, ValueTarget};
use crate::kustomization::field_specs;
use crate::load::Loader;
use crate::patch::{Content, PreparedPatch};
use crate::selector::Matcher;
use crate::steps::{Action, PatchError, image_action, json_operations, prepare_patch, prepare_replacement};
use crate::transform::names::Affix;
use crate::transform::namespace::{Namespace, Subjects};
use crate::transform::value_add::ValueAdd;

impl Builder<'_> {
    /// Reads a transformer's configuration.
    ///
    /// # Errors
    /// If the configuration can't be read or is incomplete.
    pub(crate) fn read_transformer(
        &self,
        frame: &Frame,
        kind: &str,
        node: &Node,
        at: &dyn Fn(String) -> Error,
    ) -> Result<Vec<Action>, Error> {
        let path = self.loader.source_path(node.source);
        let decoder = Decoder::new(&path, false);
        let specs = || -> Option<Vec<FieldSpec>> {
            let node = find_field(&decoder, node, "fieldSpecs")?;
            Some(field_specs(&decoder, node, "fieldSpecs"))
        };
        let text = |name: &'static str| {
            find_field(&decoder, node, name).map_or(String::new(), |node| decoder.read_text(node, name))
        };
        let pairs = |name: &'static str| -> BTreeMap<String, String> {
            find_field(&decoder, node, name)
                .map(|node| decoder.read_text_map(node, name))
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
                let image = find_field(&decoder, node, "imageTag")
                    .map(|node| Image::read(&decoder, node, "imageTag"))
                    .unwrap_or_default();
                vec![image_action(&image, specs().unwrap_or_default()).map_err(at)?]
            }
            "ReplicaCountTransformer" => {
                let replica = find_field(&decoder, node, "replica")
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
                let namespace = node
                    .find_at(&["metadata", "namespace"])
                    .map_or("", Node::text)
                    .to_owned();
                let unset_only =
                    find_field(&decoder, node, "unsetOnly").is_some_and(|node| decoder.read_bool(node, "unsetOnly"));
                vec![Action::Namespace(Namespace {
                    namespace,
                    fields: specs().unwrap_or_default(),
                    unset_only,
                    subjects,
                })]
            }
            "PrefixSuffixTransformer" => {
                let fields = specs().ok_or_else(|| at("fieldSpecs is not expected to be nil".to_owned()))?;
                let affix = |name: &'static str, is_prefix: bool| {
                    Action::Affix(Affix {
                        text: text(name),
                        is_prefix,
                        fields: fields.clone(),
                    })
                };
                vec![Action::Several(vec![affix("prefix", true), affix("suffix", false)])]
            }
            "ValueAddTransformer" => vec![self.read_value_add(frame, &decoder, node, text("value").trim(), at)?],
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
                let operations = find_field(&decoder, node, "jsonOp")
                    .map_or_else(Spot::default, |node| decoder.read_spot(node, "jsonOp"));
                vec![self.json_plugin(frame, &decoder, node, &text("path"), &operations, at)?]
            }
            "PatchStrategicMergeTransformer" => {
                let patches = find_field(&decoder, node, "patches")
                    .map_or_else(Spot::default, |node| decoder.read_spot(node, "patches"));
                self.merge_plugin(frame, &decoder, node, &patches, at)?
            }
            "ReplacementTransformer" => {
                let list = find_field(&decoder, node, "replacements")
                    .map(|node| {
                        decoder.read_each(node, "replacements", |node, at| Replacement::read(&decoder, node, at))
                    })
                    .unwrap_or_default();
                let mut all = Vec::new();
                for replacement in &list {
                    all.extend(prepare_replacement(&self.loader, &frame.root, replacement, at)?);
                }
                vec![Action::Replacements(all)]
            }
            other => return Err(at(format!("there is no built-in transformer {other}"))),
        };
        decoder.finish()?;
        Ok(actions)
    }

    /// Reads a ValueAddTransformer: its value (default: the name of the folder) and its targets, inline and from targetFilePath.
    fn read_value_add(
        &self,
        frame: &Frame,
        decoder: &Decoder<'_>,
        node: &Node,
        value: &str,
        at: &dyn Fn(String) -> Error,
    ) -> Result<Action, Error> {
        let value = if value.is_empty() {
            frame.root.rsplit('/').next().unwrap_or("")
        } else {
            value
        };
        if value.is_empty() {
            return Err(at(
                "value is empty, and the top directory of the tree has no name to take instead; set value".to_owned(),
            ));
        }
        let mut targets = find_field(decoder, node, "targets")
            .map(|node| decoder.read_each(node, "targets", |node, at| ValueTarget::read(decoder, node, at)))
            .unwrap_or_default();
        let path = find_field(decoder, node, "targetFilePath")
            .map_or(String::new(), |node| decoder.read_text(node, "targetFilePath"));
        if !path.is_empty() {
            let (found, bytes) = self
                .loader
                .read(&frame.root, &path)
                .map_err(|error| at(error.to_string()))?;
            let text = Loader::decode_text(&found, bytes)?;
            if let Some(read) = self.loader.read_configuration(&found, &text, Lines::After(0))? {
                let decoder = Decoder::new(&found, false);
                if let Some(list) = find_field(&decoder, &read, "targets") {
                    targets
                        .extend(decoder.read_each(list, "targets", |node, at| ValueTarget::read(&decoder, node, at)));
                }
                decoder.finish()?;
            }
        }
        if targets.is_empty() {
            return Err(at("must specify at least one target".to_owned()));
        }
        let targets = targets
            .iter()
            .map(|target| target.prepare().map_err(at))
            .collect::<Result<_, _>>()?;
        Ok(Action::ValueAdd(ValueAdd {
            value: value.to_owned(),
            targets,
        }))
    }

    fn json_plugin(
        &self,
        frame: &Frame,
        decoder: &Decoder<'_>,
        node: &Node,
        path: &str,
        inline: &Spot<String>,
        at: &dyn Fn(String) -> Error,
    ) -> Result<Action, Error> {
        let target = find_field(decoder, node, "target")
            .map(|node| Selector::read(decoder, node, "target"))
            .unwrap_or_default();
        if target.name.is_empty() {
            return Err(at("must specify the target name".to_owned()));
        }
        let (file, text, lines) = match (path.is_empty(), inline.value.is_empty()) {
            (true, true) => return Err(at("empty file path and empty jsonOp".to_owned())),
            (false, false) => {
                return Err(at("must specify a file path or jsonOp, not both".to_owned()));
            }
            (true, false) => (
                decoder.path.to_owned(),
                Cow::Borrowed(inline.value.as_str()),
                inline.lines(),
            ),
            (false, true) => {
                let (found, bytes) = self
                    .loader
                    .read(&frame.root, path)
                    .map_err(|error| at(error.to_string()))?;
                let text = Loader::decode_text(&found, bytes)?;
                (found, text, Lines::After(0))
            }
        };
        let operations = json_operations(&self.loader, &file, &text, lines).map_err(at)?;
        let target = Some(Matcher::new(&target).map_err(at)?);
        let place = (self.loader.source_number(&file), node.line);
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
        inline: &Spot<String>,
        at: &dyn Fn(String) -> Error,
    ) -> Result<Vec<Action>, Error> {
        let mut patches = Vec::new();
        let paths = find_field(decoder, node, "paths")
            .map(|node| decoder.read_texts(node, "paths"))
            .unwrap_or_default();
        for path in paths {
            match self.loader.read_resources(decoder.path, &path.value, path.lines()) {
                Ok(read) => patches.extend(read),
                Err(_) => {
                    let (found, bytes) = self
                        .loader
                        .read(&frame.root, &path.value)
                        .map_err(|error| at(error.to_string()))?;
                    patches.extend(self.loader.read_resources(
                        &found,
                        &Loader::decode_text(&found, bytes)?,
                        Lines::After(0),
                    )?);
                }
            }
        }
        if !inline.value.is_empty() {
            patches.extend(
                self.loader
                    .read_resources(decoder.path, &inline.value, inline.lines())?,
            );
        }
        if patches.is_empty() {
            return Err(at("empty file path and empty patch content".to_owned()));
        }
        let place = (node.source, node.line);
        Ok(vec![Action::Several(vec![
            Action::Patch(PreparedPatch {
                content: Content::Merge(patches),
                target: None,
                is_legacy_merge: true,
                is_legacy_json: false,
                place,
            }),
            Action::CheckIds,
        ])])
    }
}

/// Returns a field of a plugin's configuration.
pub(crate) fn find_field<'node>(decoder: &Decoder<'_>, node: &'node Node, name: &'static str) -> Option<&'node Node> {
    decoder
        .read_fields(node, "", &[name])
        .pop()
        .map(|(_, node)| node)
        .filter(|node| !node.is_null())
}
