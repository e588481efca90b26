//! The recursion of a build: resources and bases, generators, components, then the transformers, for one kustomization.

use std::collections::HashSet;
use std::sync::Arc;

use go_yaml::read::Lines;

use crate::collection::{Collection, Trouble};
use crate::config::TransformerConfig;
use crate::decode::{Decoder, Spot};
use crate::error::Error;
use crate::fields::{GeneratorOptions, Variable};
use crate::generate::{self, Place};
use crate::id::Key;
use crate::kustomization::{self, FILE_NAMES, Kustomization};
use crate::load::{Loader, is_remote, join_path};
use crate::meter;
use crate::origin::Origin;
use crate::patch::PatchTrouble;
use crate::resource::Resource;
use crate::steps::{self, Step};
use crate::tree::{Entry, Found, is_within, resolve};

/// The resources, the transformer configuration and the vars of the kustomizations that were read so far.
#[derive(Debug, Default)]
pub(crate) struct Accumulated {
    pub(crate) resources: Collection,
    pub(crate) config: Option<Arc<TransformerConfig>>,
    pub(crate) vars: Vec<Variable>,
}

/// The position of a kustomization in the recursion.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    /// The directory of the kustomization, as a clean path.
    pub(crate) root: String,
    /// Directories on the way here, this one last.
    pub(crate) visited: Vec<String>,
    /// The origin that resources get, when the build keeps origins.
    pub(crate) origin: Option<Origin>,
}

/// The state of one build: its files, its warnings, the transformers that ran, and the limits that are left.
pub(crate) struct Builder<'tree> {
    pub(crate) loader: Loader<'tree>,
    pub(crate) warnings: std::cell::RefCell<Vec<String>>,
    /// The transformers run so far.
    pub(crate) steps: std::cell::RefCell<Vec<String>>,
    pub(crate) kustomizations_left: std::cell::Cell<usize>,
    /// Reads a directory without a kustomization as if one had been generated.
    pub(crate) generate_missing: bool,
}

impl Builder<'_> {
    /// Reads the kustomization file of a directory.
    pub(crate) fn find_kustomization(&self, directory: &str) -> Result<Kustomization, Error> {
        let left = self
            .kustomizations_left
            .get()
            .checked_sub(1)
            .ok_or_else(|| Error::Limit {
                path: crate::error::show_directory(directory).to_owned(),
                what: "the number of kustomizations".to_owned(),
                limit: self.loader.limits.kustomizations,
            })?;
        self.kustomizations_left.set(left);
        let mut found = Vec::new();
        for name in FILE_NAMES {
            if let Some((path, bytes)) = self.loader.find(directory, name)? {
                found.push((name, path, bytes));
            }
        }
        let [(name, _, bytes)] = found.as_slice() else {
            return Err(if found.is_empty() {
                Error::NoKustomization {
                    directory: directory.to_owned(),
                }
            } else {
                let files = found.iter().map(|(name, _, _)| (*name).to_owned()).collect();
                Error::SeveralKustomizations {
                    directory: directory.to_owned(),
                    files,
                }
            });
        };
        let path = join_path(directory, name);
        let text = Loader::decode_text(&path, bytes)?;
        self.read_kustomization(&path, &text)
    }

    pub(crate) fn read_kustomization(&self, path: &str, text: &str) -> Result<Kustomization, Error> {
        let Some(node) = self.loader.read_configuration(path, text, Lines::After(0))? else {
            return Err(Error::Field {
                path: path.to_owned(),
                line: 1,
                field: "kustomization".to_owned(),
                message: "kustomization.yaml is empty".to_owned(),
            });
        };
        let decoder = Decoder::new(path, true);
        let kustomization = kustomization::read(&decoder, &node);
        decoder.finish()?;
        for (old, new) in &kustomization.deprecated {
            self.warnings
                .borrow_mut()
                .push(format!("{path}: '{old}' is deprecated; use '{new}' instead"));
        }
        Ok(kustomization)
    }

    /// Returns the error for a resource's trouble, with the file of the resource.
    pub(crate) fn transform_error(&self, trouble: Trouble) -> Error {
        Error::Transform {
            path: self.loader.source_path(trouble.source),
            line: trouble.line,
            resource: trouble.id,
            message: trouble.message,
            step: String::new(),
        }
    }

    /// Returns the error of a step, with the name of the step's field.
    fn step_error(&self, kustomization: &Kustomization, line: u32, field: &str, trouble: PatchTrouble) -> Error {
        match trouble {
            PatchTrouble::Target(message) => field_error(kustomization, line, field, message),
            PatchTrouble::Resource(trouble) => match self.transform_error(trouble) {
                Error::Transform {
                    path: file,
                    line: at,
                    resource,
                    message,
                    ..
                } => Error::Transform {
                    path: file,
                    line: at,
                    resource,
                    message,
                    step: format!("{}:{line}: {field}", kustomization.path),
                },
                other => other,
            },
            PatchTrouble::At { line, field, trouble } => self.step_error(kustomization, line, &field, *trouble),
        }
    }

    /// Accumulates a kustomization into existing resources: none for a base, the parent's for a component.
    pub(crate) fn accumulate(
        &self,
        frame: &Frame,
        kustomization: &Kustomization,
        mut into: Accumulated,
    ) -> Result<Accumulated, Error> {
        kustomization::refuse_unsupported(kustomization)?;
        let mut errors = Vec::new();
        let mut known = into.resources.keys();
        for (index, reference) in kustomization.resources.iter().enumerate() {
            let field = format!("resources[{index}]");
            if let Err(error) = self.add_resource(frame, kustomization, &field, reference, &mut into, &mut known) {
                errors.push(error);
            }
            if meter::exhausted_limit().is_some() {
                // Every other entry would give an equal error.
                break;
            }
        }
        if let Some(error) = Error::combine(errors) {
            return Err(error);
        }
        meter::check().map_err(|message| field_error(kustomization, 1, "resources", message))?;
        let own = self.read_configuration(frame, kustomization)?;
        merge_config(&mut into, &own).map_err(|message| field_error(kustomization, 1, "configurations", message))?;
        if !kustomization.crds.is_empty() {
            let crds = self.read_crds(frame, kustomization)?;
            merge_config(&mut into, &crds).map_err(|message| field_error(kustomization, 1, "crds", message))?;
        }
        self.run_generators(frame, kustomization, &mut into)?;
        for (index, reference) in kustomization.components.iter().enumerate() {
            let field = format!("components[{index}]");
            into = self.add_component(frame, kustomization, &field, reference, into)?;
        }
        let config = into.config.clone().unwrap_or_else(TransformerConfig::defaults);
        let list = steps::of_kustomization(self, frame, kustomization, &config)?;
        self.run(frame, kustomization, list, &mut into.resources)?;
        self.validate(frame, kustomization, &mut into)?;
        self.note_vars(kustomization, &mut into)?;
        Ok(into)
    }

    /// Adds the target of one entry of `resources`: the resources of a file, or a base.
    pub(crate) fn add_resource(
        &self,
        frame: &Frame,
        kustomization: &Kustomization,
        field: &str,
        reference: &Spot<String>,
        into: &mut Accumulated,
        known: &mut HashSet<Key>,
    ) -> Result<(), Error> {
        let path = reference.value.as_str();
        let at = |message: String| field_error(kustomization, reference.line, field, message);
        let place = || format!("{}:{}", kustomization.path, reference.line);
        if path.is_empty() {
            return Err(at("the path is empty".to_owned()));
        }
        match self
            .loader
            .find(&frame.root, path)
            .map_err(|error| at(error.to_string()))?
        {
            Some((found, bytes)) => {
                let text = Loader::decode_text(&found, bytes)?;
                let mut resources = self.loader.read_resources(&found, &text, Lines::After(0))?;
                if let Some(origin) = &frame.origin {
                    let origin = origin.append_path(path).to_text();
                    for resource in &mut resources {
                        meter::count_text(origin.len());
                        resource
                            .set_origin(origin.clone())
                            .map_err(|trouble| self.transform_error(trouble))?;
                    }
                }
                self.append_resources(&mut into.resources, known, resources)
            }
            None => {
                let base = self.open_base(frame, kustomization, field, reference, false)?;
                let (inner, sub) = base;
                let child = self
                    .accumulate(&inner, &sub, Accumulated::default())
                    .map_err(|error| error.with_reference(place()))?;
                self.append_resources(&mut into.resources, known, child.resources.list)
                    .map_err(|error| error.with_reference(place()))?;
                if let Some(config) = child.config {
                    merge_config(into, &config).map_err(&at)?;
                }
                for var in child.vars {
                    meter::count_steps(1 + into.vars.len());
                    if into.vars.iter().any(|known| known.name == var.name) {
                        return Err(at(format!("var '{}' already encountered", var.name)));
                    }
                    into.vars.push(var);
                }
                Ok(())
            }
        }
    }

    fn append_resources(
        &self,
        collection: &mut Collection,
        known: &mut HashSet<Key>,
        resources: Vec<Resource>,
    ) -> Result<(), Error> {
        collection
            .append_known(known, resources)
            .map_err(|trouble| self.transform_error(trouble))?;
        let limit = self.loader.limits.resources;
        if collection.list.len() > limit {
            return Err(Error::Limit {
                path: "the build".to_owned(),
                what: "the number of resources".to_owned(),
                limit,
            });
        }
        Ok(())
    }

    /// Opens the directory that an entry of `resources` or `components` names.
    fn open_base(
        &self,
        frame: &Frame,
        kustomization: &Kustomization,
        field: &str,
        reference: &Spot<String>,
        component: bool,
    ) -> Result<(Frame, Kustomization), Error> {
        let path = reference.value.as_str();
        let at = |message: String| field_error(kustomization, reference.line, field, message);
        let place = format!("{}:{}", kustomization.path, reference.line);
        let directory = match resolve(self.loader.tree, &frame.root, path) {
            Ok(Found::Directory(directory)) => directory,
            Ok(Found::File { path, .. }) => {
                return Err(at(format!("'{path}' is a file; a directory is needed")));
            }
            Ok(Found::Nothing) if is_remote(path) => {
                return Err(at(Error::Remote { path: path.to_owned() }.to_string()));
            }
            Ok(Found::Nothing) => {
                return Err(at(format!(
                    "'{}': no such file or directory",
                    join_path(&frame.root, path)
                )));
            }
            Err(error) => return Err(at(error.to_string())),
        };
        if let Some(visited) = frame
            .visited
            .iter()
            .rev()
            .find(|visited| is_within(visited, &directory))
        {
            return Err(Error::Cycle {
                path: kustomization.path.clone(),
                line: reference.line,
                directory,
                visited: visited.clone(),
            });
        }
        if frame.visited.len() >= self.loader.limits.depth {
            let limit = self.loader.limits.depth;
            return Err(Error::Limit {
                path: directory,
                what: "the depth of bases".to_owned(),
                limit,
            });
        }
        let sub = self
            .open_kustomization(&directory)
            .map_err(|error| error.with_reference(place.clone()))?;
        self.take_schema(&directory, &sub)
            .map_err(|error| error.with_reference(place.clone()))?;
        if sub.is_component != component {
            let message = if component {
                format!("expected kind 'Component' for path '{directory}' but got 'Kustomization'")
            } else {
                format!("expected kind != 'Component' for path '{directory}'; list it under components")
            };
            return Err(at(message));
        }
        let mut visited = frame.visited.clone();
        visited.push(directory.clone());
        let origin = frame.origin.as_ref().map(|origin| origin.append_path(path));
        Ok((
            Frame {
                root: directory,
                visited,
                origin,
            },
            sub,
        ))
    }

    /// Opens the kustomization of a directory. A missing kustomization is generated if the caller wants that.
    pub(crate) fn open_kustomization(&self, directory: &str) -> Result<Kustomization, Error> {
        match self.find_kustomization(directory) {
            Err(Error::NoKustomization { .. }) if self.generate_missing => {
                let text = crate::generated::generate_kustomization(self.loader.tree, directory)?;
                self.read_kustomization(&join_path(directory, "kustomization.yaml"), &text)
            }
            other => other,
        }
    }

    fn add_component(
        &self,
        frame: &Frame,
        kustomization: &Kustomization,
        field: &str,
        reference: &Spot<String>,
        into: Accumulated,
    ) -> Result<Accumulated, Error> {
        let (inner, sub) = self.open_base(frame, kustomization, field, reference, true)?;
        let place = format!("{}:{}", kustomization.path, reference.line);
        let accumulated = self
            .accumulate(&inner, &sub, into)
            .map_err(|error| error.with_reference(place.clone()))?;
        accumulated
            .resources
            .check_ids()
            .map_err(|trouble| self.transform_error(trouble).with_reference(place))?;
        Ok(accumulated)
    }

    fn run_generators(
        &self,
        frame: &Frame,
        kustomization: &Kustomization,
        into: &mut Accumulated,
    ) -> Result<(), Error> {
        let lists = [
            ("configMapGenerator", &kustomization.config_maps, false),
            ("secretGenerator", &kustomization.secrets, true),
        ];
        for (name, list, is_secret) in lists {
            for (index, arguments) in list.iter().enumerate() {
                let field = format!("{name}[{index}]");
                let global = kustomization.generator_options.as_ref();
                let options: Option<GeneratorOptions> = match (arguments.value.options.clone(), global) {
                    (own, None) => own,
                    (own, Some(global)) => Some(own.unwrap_or_default().with_defaults(global)),
                };
                if let Some(options) = &options {
                    let labels = options.labels.iter().chain(&options.annotations);
                    meter::count_text(labels.map(|(key, text)| 64 + key.len() + text.len()).sum());
                }
                let place = Place {
                    path: &kustomization.path,
                    source: kustomization.source,
                    line: arguments.line,
                    field: &field,
                    root: &frame.root,
                };
                meter::check().map_err(|message| place.field_error(arguments.line, "", message))?;
                let mut made =
                    generate::generate_resource(&self.loader, &arguments.value, options.as_ref(), is_secret, place)?;
                if let Some(origin) = &frame.origin {
                    let kind = if is_secret {
                        "SecretGenerator"
                    } else {
                        "ConfigMapGenerator"
                    };
                    made.notes.origin = Some(
                        origin
                            .configured_in(file_name(kustomization), "builtin", kind)
                            .to_text(),
                    );
                }
                into.resources
                    .absorb(made)
                    .map_err(|trouble| place.field_error(arguments.line, "", trouble.message))?;
            }
        }
        self.run_external_generators(frame, kustomization, into)
    }

    /// Runs transformers in order.
    pub(crate) fn run(
        &self,
        frame: &Frame,
        kustomization: &Kustomization,
        steps: Vec<Step>,
        resources: &mut Collection,
    ) -> Result<(), Error> {
        for step in steps {
            let Step {
                action,
                field,
                line,
                kind,
                origin,
            } = step;
            let is_patch = matches!(action, steps::Action::Patch(_) | steps::Action::Several(_));
            action
                .run(resources)
                .and_then(|()| meter::check().map_err(PatchTrouble::Target))
                .map_err(|trouble| self.step_error(kustomization, line, &field, trouble))?;
            if is_patch {
                // Confidential resources are marked before other steps copy values out of them.
                self.loader.mark_all(&mut resources.list);
            }
            let origin = origin.or_else(|| {
                frame
                    .origin
                    .as_ref()
                    .map(|origin| origin.configured_in(file_name(kustomization), "builtin", kind))
            });
            if let Some(origin) = origin.filter(|_| frame.origin.is_some()) {
                let (text, item) = (origin.to_text(), origin.to_item());
                for resource in &mut resources.list {
                    resource.settle_annotations();
                    meter::count_text(item.len());
                    match &resource.notes.origin {
                        None => resource.notes.origin = Some(text.clone()),
                        Some(_) => resource.notes.transformations.push_str(&item),
                    }
                    meter::check().map_err(|message| field_error(kustomization, line, &field, message))?;
                }
            }
            meter::count_text(kustomization.path.len() + 64);
            let step = {
                let mut steps = self.steps.borrow_mut();
                steps.push(format!("{kind} ({}:{line})", kustomization.path));
                steps.len() - 1
            };
            resources
                .list
                .iter_mut()
                .for_each(|resource| resource.notes.touched_by.push(step));
            meter::count_steps(resources.list.len());
            resources.drop_empty();
        }
        Ok(())
    }
}

pub(crate) fn file_name(kustomization: &Kustomization) -> &str {
    kustomization.path.rsplit('/').next().unwrap_or("kustomization.yaml")
}

pub(crate) fn field_error(kustomization: &Kustomization, line: u32, field: &str, message: String) -> Error {
    Error::Field {
        path: kustomization.path.clone(),
        line,
        field: field.to_owned(),
        message,
    }
}

fn merge_config(into: &mut Accumulated, other: &Arc<TransformerConfig>) -> Result<(), String> {
    match &into.config {
        None if Arc::ptr_eq(&TransformerConfig::defaults(), other) => into.config = Some(Arc::clone(other)),
        // kustomize merges into an empty configuration. In this merge, a specification for one kind hides one for all kinds.
        None => {
            let mut other = (**other).clone();
            into.config = Some(Arc::new(TransformerConfig::default().merge(&mut other)?));
        }
        Some(own) if Arc::ptr_eq(own, other) || own == other => {}
        Some(own) => {
            let mut other = (**other).clone();
            into.config = Some(Arc::new(own.merge(&mut other)?));
        }
    }
    Ok(())
}

/// Checks whether a path of the tree is a regular file, without following links.
pub(crate) fn is_file(entry: Option<Entry<'_>>) -> bool {
    matches!(entry, Some(Entry::File(_)))
}
