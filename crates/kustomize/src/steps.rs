//! The order of transformers in one kustomization: its fields become steps, which the build runs one after another.

use std::borrow::Cow;
use std::collections::BTreeMap;

use go_yaml::json::{from_value, patch_value};
use go_yaml::read::Lines;

use crate::accumulate::{Builder, Frame, field_error};
use crate::collection::{Collection, Trouble};
use crate::config::{TransformerConfig, merge_specs};
use crate::decode::{Decoder, Spot};
use crate::error::Error;
use crate::fields::{FieldSpec, Image, Patch, Replacement, Replica};
use crate::jsonpatch;
use crate::kustomization::Kustomization;
use crate::load::Loader;
use crate::meter;
use crate::origin::Origin;
use crate::patch::{Content, PatchTrouble, PreparedPatch};
use crate::resource::Resource;
use crate::selector::Matcher;
use crate::transform::images::ImageChange;
use crate::transform::names::Affix;
use crate::transform::namespace::Namespace;
use crate::transform::replacements::PreparedReplacement;
use crate::transform::value_add::ValueAdd;
use crate::transform::{labels, replacements, replicas};

/// A transformer that is ready to run.
#[derive(Debug)]
pub(crate) enum Action {
    Patch(PreparedPatch),
    Namespace(Namespace),
    Affix(Affix),
    /// Labels or annotations.
    Pairs {
        pairs: BTreeMap<String, String>,
        fields: Vec<FieldSpec>,
    },
    Replicas {
        replica: Replica,
        fields: Vec<FieldSpec>,
    },
    Image {
        change: ImageChange,
        fields: Vec<FieldSpec>,
    },
    Replacements(Vec<PreparedReplacement>),
    ValueAdd(ValueAdd),
    Hash,
    /// Checks for two resources with one id.
    CheckIds,
    /// Several actions that count as one transformer.
    Several(Vec<Action>),
}

impl Action {
    pub(crate) fn run(&self, resources: &mut Collection) -> Result<(), PatchTrouble> {
        let on_resource = PatchTrouble::Resource;
        meter::count_steps(1 + resources.list.len());
        meter::check().map_err(PatchTrouble::Target)?;
        match self {
            Action::Patch(patch) => patch.transform(resources),
            Action::Namespace(namespace) => namespace.transform(resources).map_err(on_resource),
            Action::Affix(affix) => affix.transform(resources).map_err(on_resource),
            Action::Pairs { pairs, fields } => {
                labels::transform(pairs, fields, &mut resources.list).map_err(on_resource)
            }
            Action::Replicas { replica, fields } => {
                if replicas::transform(replica, fields, resources).map_err(on_resource)? {
                    return Ok(());
                }
                let kinds: Vec<&str> = fields.iter().map(|spec| &*spec.gvk.kind).collect();
                Err(PatchTrouble::Target(format!(
                    "no resource with name {} has replicas to set; it must be a {}",
                    replica.name,
                    kinds.join(", a ")
                )))
            }
            Action::Image { change, fields } => change.transform(fields, resources).map_err(on_resource),
            Action::Replacements(list) => replacements::transform(list, resources),
            Action::ValueAdd(add) => add.transform(resources).map_err(on_resource),
            Action::Hash => hash_names(resources).map_err(on_resource),
            Action::CheckIds => resources.check_ids().map_err(on_resource),
            Action::Several(actions) => actions.iter().try_for_each(|action| action.run(resources)),
        }
    }
}

/// Appends the hash of their content to the names that want it.
pub(crate) fn hash_names(resources: &mut Collection) -> Result<(), Trouble> {
    for resource in resources.list.iter_mut().filter(|resource| resource.notes.needs_hash) {
        check_hashed_kind(resource)?;
        let hash = crate::generate::hash_content(resource).map_err(|message| Trouble::new(resource, message))?;
        meter::check().map_err(|message| Trouble::new(resource, message))?;
        resource.store_previous_id();
        let name = format!("{}-{hash}", resource.name());
        resource.set_name(&name);
    }
    Ok(())
}

/// Refuses the hash of a resource that is neither a ConfigMap nor a Secret. For other kinds, kustomize hashes its in-memory form, with the
/// lines, columns and quotes of every text that made or changed the resource.
fn check_hashed_kind(resource: &Resource) -> Result<(), Trouble> {
    if matches!(resource.kind(), "ConfigMap" | "Secret") {
        return Ok(());
    }
    let message = if resource.notes.is_generated {
        "the kind of this generated resource was changed, and only a ConfigMap or a Secret gets a name suffix hash here; \
         set disableNameSuffixHash: true in the options of its generator, or write it as a resource instead of generating it"
    } else {
        "the annotation internal.config.kubernetes.io/needsHashSuffix asks for a name suffix hash, \
         and only a ConfigMap or a Secret gets a name suffix hash here; remove the annotation"
    };
    // This message is also safe for a former Secret, because it quotes no content.
    Err(Trouble {
        message: message.to_owned(),
        ..Trouble::new(resource, "")
    })
}

/// A transformer that is ready to run, and the field that configures it.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) field: String,
    pub(crate) line: u32,
    /// The name of the transformer, as origin annotations give it.
    pub(crate) kind: &'static str,
    /// The origin of a transformer that a resource configures.
    pub(crate) origin: Option<Origin>,
}

/// Returns the steps of a kustomization, in kustomize's order.
pub(crate) fn of_kustomization(
    builder: &Builder<'_>,
    frame: &Frame,
    kustomization: &Kustomization,
    config: &TransformerConfig,
) -> Result<Vec<Step>, Error> {
    let k = kustomization;
    let mut steps = Vec::new();
    let mut push = |action: Action, field: String, line: u32, kind: &'static str| {
        meter::count_text(size_of::<Step>() + field.len());
        steps.push(Step {
            action,
            field,
            line,
            kind,
            origin: None,
        });
    };
    for (index, patch) in k.patches_strategic_merge.iter().enumerate() {
        let field = format!("patchesStrategicMerge[{index}]");
        let mut action = Action::Patch(legacy_merge(builder, frame, k, &field, patch)?);
        if index == 0 {
            // These patches change no id, so the first check finds every problem.
            action = Action::Several(vec![action, Action::CheckIds]);
        }
        push(action, field, patch.line, "PatchStrategicMergeTransformer");
    }
    for (index, patch) in k.patches.iter().enumerate() {
        let field = format!("patches[{index}]");
        let at = |message: String| field_error(k, patch.line, &field, message);
        meter::check().map_err(at)?;
        let place = (k.source, &*k.path);
        let prepared =
            prepare_patch(&builder.loader, &frame.root, &patch.value, place).map_err(|error| match error {
                PatchError::Message(message) => at(message),
                PatchError::Error(error) => error,
            })?;
        push(Action::Patch(prepared), field, patch.line, "PatchTransformer");
    }
    if !k.namespace.value.is_empty() {
        let action = Namespace {
            namespace: k.namespace.value.clone(),
            fields: config.namespace.clone(),
            ..Namespace::default()
        };
        push(
            Action::Namespace(action),
            "namespace".to_owned(),
            k.namespace.line,
            "NamespaceTransformer",
        );
    }
    for (text, is_prefix) in [(&k.name_prefix, true), (&k.name_suffix, false)] {
        if text.value.is_empty() {
            continue;
        }
        let fields = if is_prefix {
            config.name_prefix.clone()
        } else {
            config.name_suffix.clone()
        };
        let (field, kind) = if is_prefix {
            ("namePrefix", "PrefixTransformer")
        } else {
            ("nameSuffix", "SuffixTransformer")
        };
        push(
            Action::Affix(Affix {
                text: text.value.clone(),
                is_prefix,
                fields,
            }),
            field.to_owned(),
            text.line,
            kind,
        );
    }
    for (index, label) in k.labels.iter().enumerate() {
        let field = format!("labels[{index}]");
        let fields =
            label_fields(&label.value, config).map_err(|message| field_error(k, label.line, &field, message))?;
        meter::check().map_err(|message| field_error(k, label.line, &field, message))?;
        push(
            Action::Pairs {
                pairs: label.value.pairs.clone(),
                fields,
            },
            field,
            label.line,
            "LabelTransformer",
        );
    }
    if !k.labels.is_empty() || !k.common_labels.value.is_empty() {
        let pairs = k.common_labels.value.clone();
        let action = Action::Pairs {
            pairs,
            fields: config.common_labels.clone(),
        };
        push(
            action,
            "commonLabels".to_owned(),
            k.common_labels.line,
            "LabelTransformer",
        );
    }
    if !k.common_annotations.value.is_empty() {
        let pairs = k.common_annotations.value.clone();
        let action = Action::Pairs {
            pairs,
            fields: config.common_annotations.clone(),
        };
        push(
            action,
            "commonAnnotations".to_owned(),
            k.common_annotations.line,
            "AnnotationsTransformer",
        );
    }
    for (index, patch) in k.patches_json6902.iter().enumerate() {
        let field = format!("patchesJson6902[{index}]");
        let prepared = legacy_json(builder, frame, k, &field, patch)?;
        push(Action::Patch(prepared), field, patch.line, "PatchJson6902Transformer");
    }
    for (index, replica) in k.replicas.iter().enumerate() {
        meter::check().map_err(|message| field_error(k, replica.line, "replicas", message))?;
        let action = Action::Replicas {
            replica: replica.value.clone(),
            fields: config.replicas.clone(),
        };
        push(
            action,
            format!("replicas[{index}]"),
            replica.line,
            "ReplicaCountTransformer",
        );
    }
    for (index, image) in k.images.iter().enumerate() {
        let field = format!("images[{index}]");
        let action = image_action(&image.value, config.images.clone())
            .and_then(|action| meter::check().map(|()| action))
            .map_err(|message| field_error(k, image.line, &field, message))?;
        push(action, field, image.line, "ImageTagTransformer");
    }
    if let Some(first) = k.replacements.first() {
        let mut all = Vec::new();
        for (index, replacement) in k.replacements.iter().enumerate() {
            let field = format!("replacements[{index}]");
            let at = |message: String| field_error(k, replacement.line, &field, message);
            meter::check().map_err(at)?;
            let prepared = prepare_replacement(&builder.loader, &frame.root, &replacement.value, &at)?;
            all.extend(prepared.into_iter().map(|one| one.with_place(replacement.line, &field)));
        }
        push(
            Action::Replacements(all),
            "replacements".to_owned(),
            first.line,
            "ReplacementTransformer",
        );
    }
    steps.extend(builder.external_steps(frame, k, "transformers", &k.transformers)?);
    Ok(steps)
}

pub(crate) fn image_action(image: &Image, fields: Vec<FieldSpec>) -> Result<Action, String> {
    Ok(Action::Image {
        change: ImageChange::new(image.clone())?,
        fields,
    })
}

fn label_fields(label: &crate::fields::Label, config: &TransformerConfig) -> Result<Vec<FieldSpec>, String> {
    let mut fields = label.fields.clone();
    merge_specs(&mut fields, config.labels.clone())?;
    if label.include_selectors {
        merge_specs(&mut fields, config.common_labels.clone())?;
    } else {
        if label.include_templates {
            merge_specs(&mut fields, config.template_labels.clone())?;
        }
        let metadata = FieldSpec {
            path: "metadata/labels".to_owned(),
            create: true,
            ..FieldSpec::default()
        };
        merge_specs(&mut fields, vec![metadata])?;
    }
    Ok(fields)
}

/// The reason why a patch can't be prepared.
pub(crate) enum PatchError {
    /// An error that is reported at the patch's field.
    Message(String),
    /// An error with its own place.
    Error(Error),
}

/// Reads an element of `patches`; `place` is the kustomization's file number and path.
pub(crate) fn prepare_patch(
    loader: &Loader<'_>,
    root: &str,
    patch: &Patch,
    (source, path): (u32, &str),
) -> Result<PreparedPatch, PatchError> {
    let message = |text: &str| Err(PatchError::Message(text.to_owned()));
    let inline = patch.patch.value.trim();
    let (file, text, lines) = match (inline.is_empty(), patch.path.is_empty()) {
        (true, true) => return message("must specify one of patch and path"),
        (false, false) => return message("patch and path can't be set at the same time"),
        (false, true) => {
            let before = patch.patch.value.split(inline).next().unwrap_or("");
            let lines = patch.patch.lines().skip(before.matches('\n').count());
            (path.to_owned(), Cow::Borrowed(inline), lines)
        }
        (true, false) => {
            let (found, bytes) = loader.read(root, &patch.path).map_err(|error| {
                PatchError::Message(format!(
                    "failed to get the patch file from path({}): {error}",
                    patch.path
                ))
            })?;
            let text = Loader::decode_text(&found, bytes).map_err(PatchError::Error)?;
            (found, text, Lines::After(0))
        }
    };
    let is_inline = patch.path.is_empty();
    let merge = loader.read_resources(&file, &text, lines);
    let json = json_operations(loader, &file, &text, lines);
    let content = match (merge, json) {
        (Ok(patches), Ok(operations)) if !patches.is_empty() && !operations.is_empty() => {
            return message("illegally qualifies as both an SM and JSON patch");
        }
        (Ok(mut patches), _) => {
            for patch_resource in &mut patches {
                patch_resource.notes.allow_name_change = patch.allow_name_change;
                patch_resource.notes.allow_kind_change = patch.allow_kind_change;
                // kustomize stores these in annotations, and thereby makes all annotations strings.
                if patch.allow_name_change || patch.allow_kind_change {
                    patch_resource.settle_annotations();
                }
            }
            Content::Merge(patches)
        }
        (Err(_), Ok(operations)) => Content::Json(operations),
        (Err(merge), Err(json)) => {
            let why = if text.trim_start().starts_with(['-', '[']) {
                json
            } else {
                merge.to_string()
            };
            let what = if is_inline {
                "inline patch".to_owned()
            } else {
                format!("path {}", patch.path)
            };
            return Err(PatchError::Message(format!(
                "unable to parse SM or JSON patch from {what}: {why}"
            )));
        }
    };
    let empty_merge = matches!(&content, Content::Merge(patches) if patches.is_empty());
    let target = match &patch.target {
        _ if empty_merge => None,
        Some(selector) => Some(Matcher::new(selector).map_err(PatchError::Message)?),
        None => None,
    };
    let place = (
        if is_inline { source } else { loader.source_number(&file) },
        patch.patch.line.max(1),
    );
    Ok(PreparedPatch {
        content,
        target,
        is_legacy_merge: false,
        is_legacy_json: false,
        place,
    })
}

/// Reads JSON patch operations, with the lines that they were written on where the text is YAML.
pub(crate) fn json_operations(
    loader: &Loader<'_>,
    file: &str,
    text: &str,
    lines: Lines,
) -> Result<Vec<jsonpatch::Operation>, String> {
    if text.is_empty() {
        return Err("empty json patch operations".to_owned());
    }
    if text.starts_with('[') {
        serde_json::from_str::<serde_json::Value>(text)
            .map_err(|error| format!("a patch that begins with '[' must be JSON: {error}"))?;
    }
    let node = loader
        .read_configuration(file, text, lines)
        .map_err(|error| error.to_string());
    // A text that starts like JSON must be JSON: a list in YAML's flow style isn't enough.
    if text.starts_with('[') {
        let value = serde_json::from_str(text)
            .map_err(|error| format!("it starts with '[', so it must be JSON (or a list in block style): {error}"))?;
        let node = node.ok().flatten().unwrap_or_else(|| from_value(&value));
        return jsonpatch::read_operations(&value, &node);
    }
    let node = node?.ok_or("empty json patch operations")?;
    let value = patch_value(&node).map_err(|problem| problem.message)?;
    jsonpatch::read_operations(&value, &node)
}

fn legacy_merge(
    builder: &Builder<'_>,
    frame: &Frame,
    k: &Kustomization,
    field: &str,
    patch: &Spot<String>,
) -> Result<PreparedPatch, Error> {
    let at = |message: String| field_error(k, patch.line, field, message);
    let loader = &builder.loader;
    // An entry may be the patch itself. A text that can't be read as a patch is a path.
    let patches: Vec<Resource> = match loader.read_resources(&k.path, &patch.value, patch.lines()) {
        Ok(patches) => patches,
        Err(_) => {
            let (path, bytes) = loader
                .read(&frame.root, &patch.value)
                .map_err(|error| at(error.to_string()))?;
            let text = Loader::decode_text(&path, bytes)?;
            loader.read_resources(&path, &text, Lines::After(0))?
        }
    };
    if patches.is_empty() {
        return Err(at("patch appears to be empty".to_owned()));
    }
    let place = (k.source, patch.line);
    Ok(PreparedPatch {
        content: Content::Merge(patches),
        target: None,
        is_legacy_merge: true,
        is_legacy_json: false,
        place,
    })
}

fn legacy_json(
    builder: &Builder<'_>,
    frame: &Frame,
    k: &Kustomization,
    field: &str,
    patch: &Spot<Patch>,
) -> Result<PreparedPatch, Error> {
    let at = |message: String| field_error(k, patch.line, field, message);
    let Patch {
        path,
        patch: text,
        target,
        ..
    } = &patch.value;
    let Some(target) = target.as_ref().filter(|target| !target.name.is_empty()) else {
        return Err(at("must specify the target name".to_owned()));
    };
    let (file, content, lines) = match (path.is_empty(), text.value.is_empty()) {
        (true, true) => return Err(at("empty file path and empty jsonOp".to_owned())),
        (false, false) => {
            return Err(at("must specify a file path or jsonOp, not both".to_owned()));
        }
        (true, false) => (k.path.clone(), Cow::Borrowed(text.value.as_str()), text.lines()),
        (false, true) => {
            let (found, bytes) = builder
                .loader
                .read(&frame.root, path)
                .map_err(|error| at(error.to_string()))?;
            let text = Loader::decode_text(&found, bytes)?;
            (found, text, Lines::After(0))
        }
    };
    let operations = json_operations(&builder.loader, &file, &content, lines).map_err(at)?;
    if operations.is_empty() {
        return Err(at("patch appears to be empty".to_owned()));
    }
    let target = Some(Matcher::new(target).map_err(at)?);
    let place = (builder.loader.source_number(&file), patch.line);
    Ok(PreparedPatch {
        content: Content::Json(operations),
        target,
        is_legacy_merge: false,
        is_legacy_json: true,
        place,
    })
}

/// Reads an element of `replacements`, which may be a file of several.
pub(crate) fn prepare_replacement(
    loader: &Loader<'_>,
    root: &str,
    replacement: &Replacement,
    at: &dyn Fn(String) -> Error,
) -> Result<Vec<PreparedReplacement>, Error> {
    if replacement.path.is_empty() {
        return Ok(vec![PreparedReplacement::new(replacement).map_err(at)?]);
    }
    if replacement.source.is_some() || replacement.targets.as_ref().is_some_and(|targets| !targets.is_empty()) {
        return Err(at("cannot specify both path and inline replacement".to_owned()));
    }
    let (path, bytes) = loader
        .read(root, &replacement.path)
        .map_err(|error| at(error.to_string()))?;
    let text = Loader::decode_text(&path, bytes)?;
    let Some(node) = loader.read_configuration(&path, &text, Lines::After(0))? else {
        return Err(at(format!(
            "{path}: unsupported replacement type encountered within replacement path: the file is empty"
        )));
    };
    let decoder = Decoder::new(&path, false);
    let read: Vec<Replacement> = if node.is_map() {
        vec![Replacement::read(&decoder, &node, "replacement")]
    } else {
        decoder.read_each(&node, "replacements", |node, at| Replacement::read(&decoder, node, at))
    };
    decoder.finish()?;
    read.iter()
        .map(|replacement| PreparedReplacement::new(replacement).map_err(at))
        .collect()
}
