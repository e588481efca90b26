//! The types of a kustomization's fields.

use std::collections::BTreeMap;

use go_yaml::node::Node;

use crate::decode::{Decoder, Spot};
use crate::fieldspec::split_path;
use crate::id::Gvk;
use crate::meter;
use crate::options::PatchTarget;
use crate::selector::Matcher;
use crate::transform::value_add::Target;

/// A field of certain kinds. A copy spends the build's budget, because every transformer has a list of these.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSpec {
    pub(crate) gvk: Gvk,
    pub(crate) path: String,
    pub(crate) create: bool,
}

impl Clone for FieldSpec {
    fn clone(&self) -> Self {
        let Gvk { group, version, kind } = &self.gvk;
        meter::count_text(size_of::<Self>() + group.len() + version.len() + kind.len() + self.path.len());
        FieldSpec {
            gvk: self.gvk.clone(),
            path: self.path.clone(),
            create: self.create,
        }
    }
}

impl FieldSpec {
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node, at: &str) -> Self {
        let mut spec = FieldSpec::default();
        for (name, value) in decoder.read_fields(node, at, &["group", "version", "kind", "path", "create"]) {
            let at = format!("{at}.{name}");
            match name {
                "create" => spec.create = decoder.read_bool(value, &at),
                "path" => spec.path = decoder.read_text(value, &at),
                part => set_gvk(&mut spec.gvk, part, decoder.read_text(value, &at)),
            }
        }
        spec
    }
}

fn set_gvk(gvk: &mut Gvk, part: &str, text: String) {
    match part {
        "group" => gvk.group = text,
        "version" => gvk.version = text,
        _ => gvk.kind = text,
    }
}

/// An element of `labels`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Label {
    pub(crate) pairs: BTreeMap<String, String>,
    pub(crate) include_selectors: bool,
    pub(crate) include_templates: bool,
    pub(crate) fields: Vec<FieldSpec>,
}

impl Label {
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node, at: &str) -> Self {
        let mut label = Label::default();
        for (name, value) in decoder.read_fields(node, at, &["pairs", "includeSelectors", "includeTemplates", "fields"])
        {
            let at = format!("{at}.{name}");
            match name {
                "pairs" => label.pairs = decoder.read_text_map(value, &at),
                "includeSelectors" => label.include_selectors = decoder.read_bool(value, &at),
                "includeTemplates" => label.include_templates = decoder.read_bool(value, &at),
                _ => label.fields = decoder.read_each(value, &at, |node, at| FieldSpec::read(decoder, node, at)),
            }
        }
        label
    }
}

/// A selector of resources. An empty part matches any value; other parts are anchored regular expressions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) gvk: Gvk,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) label_selector: String,
    pub(crate) annotation_selector: String,
}

impl From<&PatchTarget> for Selector {
    fn from(target: &PatchTarget) -> Self {
        Self {
            gvk: Gvk {
                group: target.group.clone(),
                version: target.version.clone(),
                kind: target.kind.clone(),
            },
            name: target.name.clone(),
            namespace: target.namespace.clone(),
            label_selector: target.label_selector.clone(),
            annotation_selector: target.annotation_selector.clone(),
        }
    }
}

impl Selector {
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node, at: &str) -> Self {
        let mut selector = Selector::default();
        let known = [
            "group",
            "version",
            "kind",
            "name",
            "namespace",
            "labelSelector",
            "annotationSelector",
        ];
        for (name, value) in decoder.read_fields(node, at, &known) {
            let text = decoder.read_text(value, &format!("{at}.{name}"));
            match name {
                "name" => selector.name = text,
                "namespace" => selector.namespace = text,
                "labelSelector" => selector.label_selector = text,
                "annotationSelector" => selector.annotation_selector = text,
                part => set_gvk(&mut selector.gvk, part, text),
            }
        }
        selector
    }
}

/// An element of `patches` or `patchesJson6902`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patch {
    pub(crate) path: String,
    /// The patch itself, when it is written in the kustomization.
    pub(crate) patch: Spot<String>,
    pub(crate) target: Option<Selector>,
    pub(crate) allow_name_change: bool,
    pub(crate) allow_kind_change: bool,
}

impl Patch {
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node, at: &str) -> Self {
        let mut patch = Patch::default();
        for (name, value) in decoder.read_fields(node, at, &["path", "patch", "target", "options"]) {
            let at = format!("{at}.{name}");
            match name {
                "path" => patch.path = decoder.read_text(value, &at),
                "patch" => patch.patch = decoder.read_spot(value, &at),
                "target" if value.is_null() => {}
                "target" => patch.target = Some(Selector::read(decoder, value, &at)),
                _ => {
                    for (option, value) in decoder.read_fields(value, &at, &["allowNameChange", "allowKindChange"]) {
                        let truth = decoder.read_bool(value, &format!("{at}.{option}"));
                        if option == "allowNameChange" {
                            patch.allow_name_change = truth;
                        } else {
                            patch.allow_kind_change = truth;
                        }
                    }
                }
            }
        }
        patch
    }
}

/// An element of `images`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) name: String,
    pub(crate) new_name: String,
    pub(crate) tag_suffix: String,
    pub(crate) new_tag: String,
    pub(crate) digest: String,
}

impl Image {
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node, at: &str) -> Self {
        let mut image = Image::default();
        for (name, value) in decoder.read_fields(node, at, &["name", "newName", "tagSuffix", "newTag", "digest"]) {
            let text = decoder.read_text(value, &format!("{at}.{name}"));
            match name {
                "name" => image.name = text,
                "newName" => image.new_name = text,
                "tagSuffix" => image.tag_suffix = text,
                "newTag" => image.new_tag = text,
                _ => image.digest = text,
            }
        }
        image
    }
}

/// An element of a ValueAddTransformer's `targets`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValueTarget {
    selector: Option<Selector>,
    field_path: String,
    position: i64,
}

impl ValueTarget {
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node, at: &str) -> Self {
        let mut target = ValueTarget::default();
        for (name, value) in decoder.read_fields(node, at, &["selector", "fieldPath", "filePathPosition"]) {
            let at = format!("{at}.{name}");
            match name {
                "selector" if value.is_null() => {}
                "selector" => target.selector = Some(Selector::read(decoder, value, &at)),
                "fieldPath" => target.field_path = decoder.read_text(value, &at),
                _ => target.position = decoder.read_integer(value, &at),
            }
        }
        target
    }

    /// Returns the target, ready to apply.
    ///
    /// # Errors
    /// If it has no path, a negative position, or a pattern that can't be read.
    pub(crate) fn prepare(&self) -> Result<Target, String> {
        if self.field_path.is_empty() {
            return Err("fieldPath cannot be empty".to_owned());
        }
        let position = usize::try_from(self.position)
            .map_err(|_| format!("value of FilePathPosition ({}) cannot be negative", self.position))?;
        Ok(Target {
            select: self.selector.as_ref().map(Matcher::new).transpose()?,
            path: split_path(&self.field_path, '/'),
            position,
        })
    }
}

/// An element of `replicas`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) count: i64,
}

impl Replica {
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node, at: &str) -> Self {
        let mut replica = Replica::default();
        for (name, value) in decoder.read_fields(node, at, &["name", "count"]) {
            let at = format!("{at}.{name}");
            match name {
                "name" => replica.name = decoder.read_text(value, &at),
                _ => replica.count = decoder.read_integer(value, &at),
            }
        }
        replica
    }
}

/// `generatorOptions`, or `options` of one generator.
#[derive(Debug, Clone, Default)]
pub(crate) struct GeneratorOptions {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) disable_name_suffix_hash: bool,
    pub(crate) immutable: bool,
}

impl GeneratorOptions {
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node, at: &str) -> Self {
        let mut options = GeneratorOptions::default();
        for (name, value) in decoder.read_fields(
            node,
            at,
            &["labels", "annotations", "disableNameSuffixHash", "immutable"],
        ) {
            let at = format!("{at}.{name}");
            match name {
                "labels" => options.labels = decoder.read_text_map(value, &at),
                "annotations" => options.annotations = decoder.read_text_map(value, &at),
                "disableNameSuffixHash" => options.disable_name_suffix_hash = decoder.read_bool(value, &at),
                _ => options.immutable = decoder.read_bool(value, &at),
            }
        }
        options
    }

    /// Returns these options, completed with the kustomization's own options. These options take precedence.
    pub(crate) fn with_defaults(mut self, global: &GeneratorOptions) -> Self {
        for (key, value) in &global.labels {
            self.labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
        for (key, value) in &global.annotations {
            self.annotations.entry(key.clone()).or_insert_with(|| value.clone());
        }
        self.disable_name_suffix_hash |= global.disable_name_suffix_hash;
        self.immutable |= global.immutable;
        self
    }
}

/// An element of `configMapGenerator` or `secretGenerator`.
#[derive(Debug, Clone, Default)]
pub(crate) struct GeneratorArguments {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) behavior: String,
    pub(crate) literals: Vec<Spot<String>>,
    pub(crate) files: Vec<Spot<String>>,
    pub(crate) envs: Vec<Spot<String>>,
    pub(crate) options: Option<GeneratorOptions>,
    /// The type of a Secret.
    pub(crate) secret_type: String,
}

impl GeneratorArguments {
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node, at: &str, secret: bool) -> Self {
        let mut arguments = GeneratorArguments::default();
        let known = [
            "name",
            "namespace",
            "behavior",
            "literals",
            "files",
            "envs",
            "env",
            "options",
            "type",
        ];
        let known = if secret {
            known.as_slice()
        } else {
            known.split_last().map_or(&[][..], |(_, rest)| rest)
        };
        for (name, value) in decoder.read_fields(node, at, known) {
            let at = format!("{at}.{name}");
            match name {
                "name" => arguments.name = decoder.read_text(value, &at),
                "namespace" => arguments.namespace = decoder.read_text(value, &at),
                "behavior" => arguments.behavior = decoder.read_text(value, &at),
                "literals" => arguments.literals = decoder.read_texts(value, &at),
                "files" => arguments.files = decoder.read_texts(value, &at),
                "envs" => arguments
                    .envs
                    .splice(0..0, decoder.read_texts(value, &at))
                    .for_each(drop),
                "env" => {
                    let env = decoder.read_spot(value, &at);
                    if !env.value.is_empty() {
                        arguments.envs.push(env);
                    }
                }
                "options" if value.is_null() => {}
                "options" => arguments.options = Some(GeneratorOptions::read(decoder, value, &at)),
                _ => arguments.secret_type = decoder.read_text(value, &at),
            }
        }
        arguments
    }
}

/// `sortOptions`.
#[derive(Debug, Clone, Default)]
pub(crate) struct SortOptions {
    pub(crate) order: String,
    /// Kinds to put first and last, when they were named.
    pub(crate) legacy: Option<(Vec<String>, Vec<String>)>,
}

impl SortOptions {
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node, at: &str) -> Self {
        let mut options = SortOptions::default();
        for (name, value) in decoder.read_fields(node, at, &["order", "legacySortOptions"]) {
            let at = format!("{at}.{name}");
            match name {
                "order" => options.order = decoder.read_text(value, &at),
                _ if value.is_null() => {}
                _ => {
                    let mut kinds = (Vec::new(), Vec::new());
                    for (list, value) in decoder.read_fields(value, &at, &["orderFirst", "orderLast"]) {
                        let texts = decoder
                            .read_texts(value, &format!("{at}.{list}"))
                            .into_iter()
                            .map(|spot| spot.value)
                            .collect();
                        if list == "orderFirst" {
                            kinds.0 = texts;
                        } else {
                            kinds.1 = texts;
                        }
                    }
                    options.legacy = Some(kinds);
                }
            }
        }
        options
    }
}

/// An element of `vars`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) gvk: Gvk,
    pub(crate) object_name: String,
    pub(crate) object_namespace: String,
    pub(crate) field_path: String,
}

impl Variable {
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node, at: &str) -> Self {
        let mut variable = Variable {
            field_path: "metadata.name".to_owned(),
            ..Variable::default()
        };
        let mut api_version = String::new();
        for (name, value) in decoder.read_fields(node, at, &["name", "objref", "fieldref"]) {
            let at = format!("{at}.{name}");
            match name {
                "name" => variable.name = decoder.read_text(value, &at),
                "objref" => {
                    let known = ["apiVersion", "group", "version", "kind", "name", "namespace"];
                    for (part, value) in decoder.read_fields(value, &at, &known) {
                        let text = decoder.read_text(value, &format!("{at}.{part}"));
                        match part {
                            "apiVersion" => api_version = text,
                            "name" => variable.object_name = text,
                            "namespace" => variable.object_namespace = text,
                            part => set_gvk(&mut variable.gvk, part, text),
                        }
                    }
                }
                _ => {
                    for (_, value) in decoder.read_fields(value, &at, &["fieldPath"]) {
                        let text = decoder.read_text(value, &format!("{at}.fieldPath"));
                        if !text.is_empty() {
                            variable.field_path = text;
                        }
                    }
                }
            }
        }
        if !api_version.is_empty() {
            let kind = variable.gvk.kind.clone();
            let group = variable.gvk.group.clone();
            variable.gvk = Gvk::new(&api_version, &kind);
            if !api_version.contains('/') {
                variable.gvk.group = group;
            }
        }
        variable
    }
}

/// `options` of a replacement's source or target.
#[derive(Debug, Clone, Default)]
pub(crate) struct FieldOptions {
    pub(crate) delimiter: String,
    pub(crate) index: i64,
    pub(crate) create: bool,
}

impl FieldOptions {
    fn read(decoder: &Decoder<'_>, node: &Node, at: &str) -> Self {
        let mut options = FieldOptions::default();
        for (name, value) in decoder.read_fields(node, at, &["delimiter", "index", "encoding", "create"]) {
            let at = format!("{at}.{name}");
            match name {
                "delimiter" => options.delimiter = decoder.read_text(value, &at),
                "index" => options.index = decoder.read_integer(value, &at),
                "create" => options.create = decoder.read_bool(value, &at),
                // kustomize takes this field and does nothing with it.
                _ => drop(decoder.read_text(value, &at)),
            }
        }
        options
    }
}

/// The source of a replacement's value.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplacementSource {
    pub(crate) selector: Selector,
    pub(crate) field_path: String,
    pub(crate) options: Option<FieldOptions>,
}

/// The target of a replacement's value.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplacementTarget {
    pub(crate) select: Option<Selector>,
    pub(crate) reject: Vec<Selector>,
    pub(crate) field_paths: Vec<String>,
    pub(crate) options: Option<FieldOptions>,
}

/// An element of `replacements`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replacement {
    /// The file that holds the replacements instead.
    pub(crate) path: String,
    pub(crate) source: Option<ReplacementSource>,
    pub(crate) source_value: Option<String>,
    pub(crate) targets: Option<Vec<ReplacementTarget>>,
}

impl Replacement {
    pub(crate) fn read(decoder: &Decoder<'_>, node: &Node, at: &str) -> Self {
        let mut replacement = Replacement::default();
        for (name, value) in decoder.read_fields(node, at, &["path", "source", "targets", "sourceValue"]) {
            let at = format!("{at}.{name}");
            match name {
                "path" => replacement.path = decoder.read_text(value, &at),
                _ if value.is_null() => {}
                "source" => replacement.source = Some(Self::read_source(decoder, value, &at)),
                "sourceValue" => replacement.source_value = Some(decoder.read_text(value, &at)),
                _ => {
                    replacement.targets =
                        Some(decoder.read_each(value, &at, |node, at| Self::read_target(decoder, node, at)))
                }
            }
        }
        replacement
    }

    fn read_source(decoder: &Decoder<'_>, node: &Node, at: &str) -> ReplacementSource {
        let mut source = ReplacementSource::default();
        let known = ["group", "version", "kind", "name", "namespace", "fieldPath", "options"];
        for (name, value) in decoder.read_fields(node, at, &known) {
            let at = format!("{at}.{name}");
            match name {
                "options" if value.is_null() => {}
                "options" => source.options = Some(FieldOptions::read(decoder, value, &at)),
                "fieldPath" => source.field_path = decoder.read_text(value, &at),
                "name" => source.selector.name = decoder.read_text(value, &at),
                "namespace" => source.selector.namespace = decoder.read_text(value, &at),
                part => set_gvk(&mut source.selector.gvk, part, decoder.read_text(value, &at)),
            }
        }
        source
    }

    fn read_target(decoder: &Decoder<'_>, node: &Node, at: &str) -> ReplacementTarget {
        let mut target = ReplacementTarget::default();
        for (name, value) in decoder.read_fields(node, at, &["select", "reject", "fieldPaths", "options"]) {
            let at = format!("{at}.{name}");
            match name {
                _ if value.is_null() => {}
                "select" => target.select = Some(Selector::read(decoder, value, &at)),
                "reject" => target.reject = decoder.read_each(value, &at, |node, at| Selector::read(decoder, node, at)),
                "fieldPaths" => {
                    target.field_paths = decoder
                        .read_texts(value, &at)
                        .into_iter()
                        .map(|spot| spot.value)
                        .collect()
                }
                _ => target.options = Some(FieldOptions::read(decoder, value, &at)),
            }
        }
        target
    }
}
