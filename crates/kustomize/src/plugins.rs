//! `transformers`, `generators` and `validators`: resources that configure built-in plugins. Every other plugin is an error, because a
//! build runs no programs and containers.

use go_yaml::json::{resource_value, through_json};
use go_yaml::node::{Node, Style, Tag};
use go_yaml::read::Lines;
use serde_json::Value;

use crate::accumulate::{Accumulated, Builder, Frame, field_error, file_name};
use crate::decode::{Decoder, Spot};
use crate::error::Error;
use crate::fields::GeneratorArguments;
use crate::generate::{self, Place};
use crate::kustomization::Kustomization;
use crate::load::Loader;
use crate::meter;
use crate::origin::Origin;
use crate::plugin_steps::find_field;
use crate::resource::{Notes, Resource};
use crate::steps::Step;

const GENERATORS: [&str; 3] = ["ConfigMapGenerator", "IAMPolicyGenerator", "SecretGenerator"];

/// A resource that configures a plugin.
struct Plugin {
    resource: Resource,
    origin: Option<Origin>,
    line: u32,
    field: String,
}

const TRANSFORMERS: [&str; 14] = [
    "AnnotationsTransformer",
    "HashTransformer",
    "ImageTagTransformer",
    "LabelTransformer",
    "NamespaceTransformer",
    "PatchJson6902Transformer",
    "PatchStrategicMergeTransformer",
    "PatchTransformer",
    "PrefixSuffixTransformer",
    "PrefixTransformer",
    "SuffixTransformer",
    "ReplacementTransformer",
    "ReplicaCountTransformer",
    "ValueAddTransformer",
];

impl Builder<'_> {
    /// Reads the resources that a list of plugins names or holds.
    fn read_plugins(
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
            match self.loader.read_resources(&k.path, &entry.value, entry.lines()) {
                Ok(resources) => {
                    let origin = frame.origin.as_ref().map(|origin| origin.append_path(file_name(k)));
                    inline.extend(resources.into_iter().map(|resource| plugin(resource, origin.clone())));
                    continue;
                }
                Err(error) if entry.value.trim_end().contains('\n') => return Err(error),
                Err(_) => {}
            }
            let at = |message: String| field_error(k, entry.line, &field, message);
            let resources = match self
                .loader
                .find(&frame.root, &entry.value)
                .map_err(|error| at(error.to_string()))?
            {
                Some((found, bytes)) => {
                    let text = Loader::decode_text(&found, bytes)?;
                    let origin = frame.origin.as_ref().map(|origin| origin.append_path(&entry.value));
                    self.loader
                        .read_resources(&found, &text, Lines::After(0))?
                        .into_iter()
                        .map(|resource| (resource, origin.clone()))
                        .collect()
                }
                None => self.plugin_directory(frame, k, &field, entry)?,
            };
            named.extend(resources.into_iter().map(|(resource, origin)| plugin(resource, origin)));
        }
        inline.extend(named);
        let mut known = std::collections::HashSet::new();
        for plugin in &inline {
            let id = plugin.resource.current_id();
            if !known.insert(id.clone().into_key()) {
                let message = format!("may not add resource with an already registered id: {id}");
                return Err(field_error(k, plugin.line, &plugin.field, message));
            }
        }
        Ok(inline)
    }

    fn plugin_directory(
        &self,
        frame: &Frame,
        k: &Kustomization,
        field: &str,
        entry: &Spot<String>,
    ) -> Result<Vec<(Resource, Option<Origin>)>, Error> {
        let mut accumulated = Accumulated::default();
        self.add_resource(
            frame,
            k,
            field,
            entry,
            &mut accumulated,
            &mut std::collections::HashSet::new(),
        )?;
        let origin = frame.origin.as_ref().map(|origin| origin.append_path(&entry.value));
        Ok(accumulated
            .resources
            .list
            .into_iter()
            .map(|resource| (resource, origin.clone()))
            .collect())
    }

    fn refuse_plugin(&self, k: &Kustomization, plugin: &Plugin) -> Error {
        let kind = plugin.resource.kind();
        let list = plugin.field.split('[').next().unwrap_or("");
        let other = if list == "generators" {
            TRANSFORMERS.as_slice()
        } else {
            GENERATORS.as_slice()
        };
        if plugin.resource.api_version() == "builtin" && other.contains(&kind) {
            let (is, of) = if list == "generators" {
                ("transformer", "transformers")
            } else {
                ("generator", "generators")
            };
            let message = format!("{kind} is a {is}; list it under {of}");
            return field_error(k, plugin.line, &plugin.field, message);
        }
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

    /// Returns the steps that plugins of a field add.
    pub(crate) fn external_steps(
        &self,
        frame: &Frame,
        k: &Kustomization,
        field: &str,
        list: &[Spot<String>],
    ) -> Result<Vec<Step>, Error> {
        let mut steps = Vec::new();
        for mut plugin in self.read_plugins(frame, k, field, list)? {
            meter::check().map_err(|message| field_error(k, plugin.line, &plugin.field, message))?;
            let kind = TRANSFORMERS.iter().find(|kind| **kind == plugin.resource.kind());
            let Some(kind) = kind.filter(|_| plugin.resource.api_version() == "builtin") else {
                return Err(self.refuse_plugin(k, &plugin));
            };
            let at = |message: String| field_error(k, plugin.line, &plugin.field, message);
            through_json(&mut plugin.resource.node).map_err(|problem| at(problem.message))?;
            let actions = self.read_transformer(frame, kind, &plugin.resource.node, &at)?;
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

    /// Runs the plugins of `generators`.
    pub(crate) fn run_external_generators(
        &self,
        frame: &Frame,
        k: &Kustomization,
        into: &mut Accumulated,
    ) -> Result<(), Error> {
        for plugin in self.read_plugins(frame, k, "generators", &k.generators)? {
            meter::check().map_err(|message| field_error(k, plugin.line, &plugin.field, message))?;
            let kind = plugin.resource.kind();
            if !GENERATORS.contains(&kind) || plugin.resource.api_version() != "builtin" {
                return Err(self.refuse_plugin(k, &plugin));
            }
            let is_secret = kind == "SecretGenerator";
            let mut node = plugin.resource.node.clone();
            through_json(&mut node).map_err(|problem| field_error(k, plugin.line, &plugin.field, problem.message))?;
            if kind == "IAMPolicyGenerator" {
                let mut made = self.make_account(k, &plugin, &node)?;
                made.notes.origin = plugin.origin.as_ref().map(Origin::to_text);
                into.resources
                    .absorb(made)
                    .map_err(|trouble| field_error(k, plugin.line, &plugin.field, trouble.message))?;
                continue;
            }
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
            let mut made =
                generate::generate_resource(&self.loader, &arguments, arguments.options.as_ref(), is_secret, place)?;
            made.notes.origin = plugin.origin.as_ref().map(Origin::to_text);
            into.resources
                .absorb(made)
                .map_err(|trouble| field_error(k, plugin.line, &plugin.field, trouble.message))?;
        }
        Ok(())
    }

    /// Returns the ServiceAccount that IAMPolicyGenerator makes.
    fn make_account(&self, k: &Kustomization, plugin: &Plugin, node: &Node) -> Result<Resource, Error> {
        let path = self.loader.source_path(node.source);
        let decoder = Decoder::new(&path, false);
        let text = |holder: &'static str, name: &'static str| {
            find_field(&decoder, node, holder)
                .and_then(|node| find_field(&decoder, node, name))
                .map_or(String::new(), |node| decoder.read_text(node, name))
        };
        let cloud = find_field(&decoder, node, "cloud").map_or(String::new(), |node| decoder.read_text(node, "cloud"));
        let (name, namespace) = (
            text("kubernetesService", "name"),
            text("kubernetesService", "namespace"),
        );
        let account_name = text("serviceAccount", "name");
        let project = text("serviceAccount", "projectId");
        decoder.finish()?;
        if cloud != "gke" {
            let message = format!("cloud provider {cloud} not supported yet; IAMPolicyGenerator knows gke");
            return Err(field_error(k, plugin.line, &plugin.field, message));
        }
        if account_name.is_empty() {
            let message = "serviceAccount.name is empty: there is no account to name in the annotation".to_owned();
            return Err(field_error(k, plugin.line, &plugin.field, message));
        }
        let account = format!("{account_name}@{project}.iam.gserviceaccount.com");
        let mut made = Node::map();
        made.set_field("apiVersion", Node::untyped("v1"));
        made.set_field("kind", Node::untyped("ServiceAccount"));
        if let Some(metadata) = made.map_field("metadata") {
            if let Some(annotations) = metadata.map_field("annotations") {
                annotations.set_field("iam.gke.io/gcp-service-account", Node::untyped(account));
            }
            metadata.set_field("name", Node::untyped(name));
            if !namespace.is_empty() {
                metadata.set_field("namespace", Node::untyped(namespace));
            }
        }
        made.place_all(node.source, node.line);
        Ok(self.loader.make_resource(made))
    }

    /// Runs the plugins of `validators`, which must leave the resources as they are.
    pub(crate) fn validate(&self, frame: &Frame, k: &Kustomization, into: &mut Accumulated) -> Result<(), Error> {
        let steps = self.external_steps(frame, k, "validators", &k.validators)?;
        if steps.is_empty() {
            return Ok(());
        }
        let before: Vec<_> = into.resources.list.iter().map(seen_by_validators).collect();
        // A build records nothing about validators.
        let frame = Frame {
            origin: None,
            ..frame.clone()
        };
        for step in steps {
            let (field, line) = (step.field.clone(), step.line);
            self.run(&frame, k, vec![step], &mut into.resources)?;
            // Resources are compared by id, so each id must be unique.
            meter::check().map_err(|message| field_error(k, line, &field, message))?;
            let same = before.len() == into.resources.list.len()
                && into.resources.keys().len() == into.resources.list.len()
                && before.iter().zip(&into.resources.list).all(|(old, new)| {
                    let _passing = meter::in_passing();
                    let mut new = new.clone();
                    let mut labels = new.text_map("labels");
                    if labels.remove("validated-by").is_some() {
                        if !labels.is_empty() && rewriting_shows(&new) {
                            return false;
                        }
                        new.set_text_map("labels", &labels);
                    }
                    *old == seen_by_validators(&new)
                });
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

/// Checks whether rewriting all labels in order, behind the other metadata, changes the nodes. kustomize rewrites them to remove
/// `validated-by`, and then compares nodes with the nodes from before.
fn rewriting_shows(resource: &Resource) -> bool {
    let metadata = resource.node.get("metadata").map_or(&[][..], Node::entries);
    // A generated resource has annotations from the start: kustomize's notes.
    let is_behind = |key: &Node| resource.notes.is_generated && key.text() == "annotations";
    let last = metadata.iter().rfind(|(key, _)| !is_behind(key));
    let Some((key, labels)) = last.filter(|(key, _)| key.text() == "labels") else {
        return true;
    };
    // Only keys that were read have a line.
    let is_read = |key: &Node| key.line != 0;
    let others = || {
        let entries = labels.entries().iter();
        entries.filter(|(key, _)| key.text() != "validated-by")
    };
    let is_patched =
        |value: &Node| value.share.writes > 0 && (value.source, value.line) != (labels.source, labels.line);
    // Transformers of names and values make labels of undecided type, and a label keeps the style of its previous value.
    let is_label = |value: &Node| {
        let style = match value.text() {
            text if text.contains('\n') => Style::Literal,
            text if Node::string(text).needs_quotes() => Style::Quoted,
            _ => Style::Plain,
        };
        value.tag == Tag::Str && value.style == style
    };
    is_read(key)
        || others().any(|(key, value)| is_read(key) || is_patched(value) || !is_label(value))
        || !others().is_sorted_by(|(one, _), (next, _)| one.text() <= next.text())
}

/// Returns the parts that a validator must not change: the content, and the names that kustomize stores in annotations.
fn seen_by_validators(resource: &Resource) -> (Option<Value>, Notes) {
    let Notes {
        previous,
        prefixes,
        suffixes,
        ..
    } = resource.notes.clone();
    let notes = Notes {
        previous,
        prefixes,
        suffixes,
        ..Notes::default()
    };
    (resource_value(&resource.node).ok(), notes)
}
