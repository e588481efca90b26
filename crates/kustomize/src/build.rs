//! A whole build: the root kustomization with the caller's overrides, then names, references, vars and order.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use go_yaml::json::resource_value;

use crate::accumulate::{Accumulated, Builder, Frame, field_error};
use crate::collection::Collection;
use crate::config::TransformerConfig;
use crate::decode::Spot;
use crate::error::{Error, show_directory};
use crate::fields::{FieldSpec, Image, Patch, Selector};
use crate::kustomization::Kustomization;
use crate::load::Loader;
use crate::meter;
use crate::options::{Options, Overrides, Reorder};
use crate::origin::Origin;
use crate::output::{Build, BuiltResource};
use crate::resource::Resource;
use crate::touched::Register;
use crate::tree::{FileTree, Found, resolve};

/// The version of kustomize whose output this library reproduces.
const VERSION: &str = "v5.8.1";

/// Builds the kustomization in a directory of the tree, as `kustomize build` does.
///
/// # Errors
/// If the tree can't be built; the error names file, line, field and the bases that led there.
pub fn build(tree: &dyn FileTree, directory: &str, options: &Options) -> Result<Build, Error> {
    let mut resources = Vec::new();
    let metering = meter::start_metering(options.budget, &options.stop);
    let outcome = build_tree(tree, directory, options, &mut |resource| resources.push(resource));
    let warnings = prefer_budget_error(outcome, directory)?;
    Ok(Build {
        resources,
        warnings,
        used: metering.usage(),
    })
}

/// Builds as [`build`] does, but passes each resource to `each` and then drops it, so that the complete result is never in memory in every
/// form at once. Returns the warnings.
///
/// ```
/// use kustomize::{MapTree, Options, build_each};
///
/// let mut tree = MapTree::new();
/// tree.insert("kustomization.yaml", "nameSuffix: -blue\nresources: [accounts.yaml]\n");
/// let account = |name: &str| format!("apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n");
/// tree.insert("accounts.yaml", format!("{}---\n{}", account("jobs"), account("web")));
/// let mut names = Vec::new();
/// let warnings = build_each(&tree, "", &Options::default(), &mut |resource| {
///     names.push(resource.object["metadata"]["name"].clone());
/// })?;
/// assert_eq!(names, ["jobs-blue", "web-blue"]);
/// assert!(warnings.is_empty());
/// # Ok::<(), kustomize::Error>(())
/// ```
///
/// # Errors
/// As [`build`]. An error can come after `each` has received some resources. These resources are not a complete build.
pub fn build_each(
    tree: &dyn FileTree,
    directory: &str,
    options: &Options,
    each: &mut dyn FnMut(BuiltResource),
) -> Result<Vec<String>, Error> {
    let _metering = meter::start_metering(options.budget, &options.stop);
    prefer_budget_error(build_tree(tree, directory, options, each), directory)
}

/// Returns the final result of a build. A build that exceeded its budget returns that error in place of its own result.
fn prefer_budget_error(outcome: Result<Vec<String>, Error>, directory: &str) -> Result<Vec<String>, Error> {
    match meter::exhausted_limit() {
        None => outcome,
        Some(why) => Err(meter::spent_error(why, outcome.as_ref().err(), directory)),
    }
}

fn build_tree(
    tree: &dyn FileTree,
    directory: &str,
    options: &Options,
    each: &mut dyn FnMut(BuiltResource),
) -> Result<Vec<String>, Error> {
    let root = match resolve(tree, "", directory)? {
        Found::Directory(path) => path,
        Found::File { .. } | Found::Nothing => {
            return Err(Error::NotADirectory {
                directory: directory.to_owned(),
            });
        }
    };
    let builder = Builder {
        loader: Loader::new(tree, options.load_restrictor, options.limits),
        warnings: RefCell::new(Vec::new()),
        steps: RefCell::new(Vec::new()),
        kustomizations_left: Cell::new(options.limits.kustomizations),
        generate_missing: options.generate_missing,
    };
    let mut kustomization = builder.open_kustomization(&root)?;
    builder.take_schema(&root, &kustomization)?;
    apply_overrides(&builder, &root, &mut kustomization, &options.overrides)?;
    let kept = |name: &str| kustomization.build_metadata.iter().any(|kept| kept.value == name);
    for (index, kept) in kustomization.build_metadata.iter().enumerate() {
        if !matches!(
            kept.value.as_str(),
            "originAnnotations" | "transformerAnnotations" | "managedByLabel"
        ) {
            // kustomize ignores names that it doesn't know; a name that does nothing is a mistake worth telling.
            let field = format!("buildMetadata[{index}]");
            builder.warnings.borrow_mut().push(format!(
                "{}:{}: {field}: unknown name '{}'",
                kustomization.path, kept.line, kept.value
            ));
        }
    }
    let frame = Frame {
        root: root.clone(),
        visited: vec![root.clone()],
        origin: (!kustomization.build_metadata.is_empty()).then(Origin::default),
    };
    let mut accumulated = builder.accumulate(&frame, &kustomization, Accumulated::default())?;
    finish_names(&builder, &kustomization, &mut accumulated)?;
    let mut list = accumulated.resources.list;
    list.retain(|resource| {
        resource
            .text_map("annotations")
            .get("config.kubernetes.io/local-config")
            .is_none_or(|value| value == "false")
    });
    // Patches may have given two resources one id.
    let mut unique = Collection::default();
    unique
        .append_all(list)
        .map_err(|trouble| builder.transform_error(trouble))?;
    let mut list = unique.list;
    for resource in &list {
        meter::count_steps(1 + resource.notes.previous.len());
        // kustomize crashes over this.
        let has_named = |is_empty: bool| {
            let mut previous = resource.notes.previous.iter();
            previous.any(|(name, _, _)| name.is_empty() == is_empty)
        };
        if has_named(true) && has_named(false) {
            return Err(builder.transform_error(crate::collection::Trouble::new(
                resource,
                "the resource had a name, then none, and was renamed",
            )));
        }
        // kustomize fails here too: it stores previous names, namespaces and kinds as texts with commas between them.
        let commas = |part: fn(&(String, String, String)) -> &str| {
            let previous = resource.notes.previous.iter();
            previous.map(|id| part(id).matches(',').count()).sum::<usize>()
        };
        let in_names = commas(|(name, _, _)| name);
        if in_names != commas(|(_, namespace, _)| namespace) || in_names != commas(|(_, _, kind)| kind) {
            return Err(builder.transform_error(crate::collection::Trouble::new(
                resource,
                "a resource whose name has a comma can't be renamed",
            )));
        }
        // Lists need no name.
        if resource.name().is_empty() && !resource.kind().ends_with("List") || resource.kind().is_empty() {
            return Err(builder.transform_error(crate::collection::Trouble::new(
                resource,
                "a patch left the resource without kind or name",
            )));
        }
    }
    let sort = kustomization.sort_options.as_ref();
    if sort.is_some() && options.reorder != Reorder::Unspecified {
        builder.warnings.borrow_mut().push(format!(
            "{}: the order is set both in sortOptions and by the caller; sortOptions wins",
            kustomization.path
        ));
    }
    if sort.is_some() || options.reorder != Reorder::None {
        crate::transform::order::sort(sort.map(|options| &options.value), &mut list).map_err(|message| {
            field_error(
                &kustomization,
                sort.map_or(0, |options| options.line),
                "sortOptions",
                message,
            )
        })?;
    }
    let managed = options.managed_by_label || kept("managedByLabel");
    if managed {
        managed_by(&mut list).map_err(|trouble| builder.transform_error(trouble))?;
    }
    mark_confidential(&builder, &mut list);
    for resource in &mut list {
        resource.finish(kept("originAnnotations"), kept("transformerAnnotations"));
        if let Some(substitution) = &options.substitution {
            let substituted = substitution.apply(resource, options.limits.nodes);
            substituted.map_err(|trouble| builder.transform_error(trouble))?;
        }
        lay_over(resource, &options.overrides);
        go_on(&builder, resource)?;
    }
    let warnings = builder.warnings.take();
    let register = Arc::new(Register {
        files: builder.loader.into_sources(),
        steps: builder.steps.take(),
    });
    for resource in list {
        let object = resource_value(&resource.node).map_err(|problem| Error::Transform {
            step: String::new(),
            path: register
                .file(if problem.source == 0 {
                    resource.node.source
                } else {
                    problem.source
                })
                .to_owned(),
            line: if problem.line == 0 {
                resource.node.line
            } else {
                problem.line
            },
            resource: resource.current_id().to_string(),
            message: if resource.is_confidential() {
                crate::collection::HIDDEN_REASON.to_owned()
            } else {
                problem.message
            },
        })?;
        each(BuiltResource::new(object, resource, Arc::clone(&register)));
    }
    Ok(warnings)
}

/// Checks the budget before the next resource of a build.
fn go_on(builder: &Builder<'_>, resource: &Resource) -> Result<(), Error> {
    meter::check().map_err(|message| builder.transform_error(crate::collection::Trouble::new(resource, message)))
}

/// Marks each resource that contains a part of a confidential file. If no part of such a file is seen in any resource, its content may be
/// anywhere: the file may configure a transformer, whose values have no source. Then all resources are marked.
fn mark_confidential(builder: &Builder<'_>, list: &mut [Resource]) {
    if !builder.loader.mark_all(list) {
        list.iter_mut().for_each(|resource| resource.notes.holds_secret = true);
    }
}

/// Labels all resources with the name and version of the builder.
fn managed_by(list: &mut [Resource]) -> Result<(), crate::collection::Trouble> {
    let label = (
        "app.kubernetes.io/managed-by".to_owned(),
        format!("kustomize-{VERSION}"),
    );
    let metadata = FieldSpec {
        path: "metadata/labels".to_owned(),
        create: true,
        ..FieldSpec::default()
    };
    crate::transform::labels::transform(&[label].into(), &[metadata], list)
}

fn finish_names(
    builder: &Builder<'_>,
    kustomization: &Kustomization,
    accumulated: &mut Accumulated,
) -> Result<(), Error> {
    let config = accumulated.config.clone().unwrap_or_else(TransformerConfig::defaults);
    let resources = &mut accumulated.resources;
    crate::steps::hash_names(resources).map_err(|trouble| builder.transform_error(trouble))?;
    crate::transform::references::transform(&config, resources).map_err(|trouble| builder.transform_error(trouble))?;
    accumulated.vars.sort_by(|a, b| a.name.cmp(&b.name));
    crate::transform::vars::transform(&accumulated.vars, &config.var_reference, resources).map_err(
        |(message, trouble)| match trouble {
            Some(trouble) => builder.transform_error(trouble),
            None => field_error(
                kustomization,
                kustomization.vars.first().map_or(0, |var| var.line),
                "vars",
                message,
            ),
        },
    )
}

impl Builder<'_> {
    /// Notes which resources the vars of a kustomization read from.
    pub(crate) fn note_vars(&self, kustomization: &Kustomization, into: &mut Accumulated) -> Result<(), Error> {
        for (index, var) in kustomization.vars.iter().enumerate() {
            let at = |message: String| field_error(kustomization, var.line, &format!("vars[{index}]"), message);
            let wanted = &var.value;
            meter::count_steps(1 + into.vars.len());
            meter::check().map_err(at)?;
            // An empty namespace matches any. Another namespace never matches a cluster-scoped kind.
            let found = into.resources.matching_any(|id| {
                id.name == wanted.object_name
                    && id.gvk == wanted.gvk
                    && (wanted.object_namespace.is_empty() || id.effective_namespace() == wanted.object_namespace)
            });
            if let [_, _, ..] = found.as_slice() {
                return Err(at(format!(
                    "found {} resId matches for var {} (unable to disambiguate)",
                    found.len(),
                    var.value.name
                )));
            }
            if let Some(resource) = found
                .first()
                .and_then(|position| into.resources.list.get_mut(*position))
            {
                resource.notes.var_names.push(var.value.name.clone());
            }
            if into.vars.iter().any(|known| known.name == var.value.name) {
                return Err(at(format!("var '{}' already encountered", var.value.name)));
            }
            into.vars.push(var.value.clone());
        }
        Ok(())
    }
}

/// Lays a reconciler's overrides over the root kustomization.
fn apply_overrides(
    builder: &Builder<'_>,
    root: &str,
    k: &mut Kustomization,
    overrides: &Overrides,
) -> Result<(), Error> {
    let text = |value: &str| Spot::new(value.to_owned(), 0);
    if let Some(namespace) = &overrides.namespace {
        k.namespace = text(namespace);
    }
    if let Some(prefix) = &overrides.name_prefix {
        k.name_prefix = text(prefix);
    }
    if let Some(suffix) = &overrides.name_suffix {
        k.name_suffix = text(suffix);
    }
    for patch in &overrides.patches {
        let target = patch.target.as_ref().map(Selector::from);
        k.patches.push(Spot::new(
            Patch {
                patch: text(&patch.patch),
                target,
                ..Patch::default()
            },
            0,
        ));
    }
    for image in &overrides.images {
        let image = Image {
            name: image.name.clone(),
            new_name: image.new_name.clone(),
            new_tag: image.new_tag.clone(),
            digest: image.digest.clone(),
            tag_suffix: String::new(),
        };
        match k.images.iter_mut().find(|known| known.value.name == image.name) {
            Some(known) => merge_image(&mut known.value, image),
            None => k.images.push(Spot::new(image, 0)),
        }
    }
    if !overrides.build_metadata.is_empty() {
        k.build_metadata = overrides.build_metadata.iter().map(|name| text(name)).collect();
    }
    for component in &overrides.components {
        if k.components.iter().any(|known| known.value == *component) {
            continue;
        }
        let missing = !matches!(resolve(builder.loader.tree, root, component)?, Found::Directory(_));
        if missing && overrides.ignore_missing_components {
            builder.warnings.borrow_mut().push(format!(
                "component '{component}' of '{}' is missing and was left out",
                show_directory(root)
            ));
            continue;
        }
        k.components.push(text(component));
    }
    Ok(())
}

/// Merges the caller's image into a known one. The caller's fields take precedence. Tag and digest both select the version, so they change
/// together.
fn merge_image(known: &mut Image, over: Image) {
    if !over.new_name.is_empty() {
        known.new_name = over.new_name;
    }
    if !over.new_tag.is_empty() || !over.digest.is_empty() {
        known.new_tag = over.new_tag;
        known.digest = over.digest;
    }
}

/// Puts the caller's labels and annotations on a finished resource.
fn lay_over(resource: &mut Resource, overrides: &Overrides) {
    for (field, map) in [("labels", &overrides.labels), ("annotations", &overrides.annotations)] {
        if map.is_empty() {
            continue;
        }
        let mut all = resource.text_map(field);
        all.extend(map.iter().map(|(key, value)| (key.clone(), value.clone())));
        resource.set_text_map(field, &all);
    }
}
