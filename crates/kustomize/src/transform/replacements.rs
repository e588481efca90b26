//! `replacements`: copies a value from one resource's field into fields of others.

use go_yaml::node::{Data, Node};

use crate::collection::{Collection, Trouble};
use crate::fields::{FieldOptions, Replacement, ReplacementSource};
use crate::growth::{self, Growth};
use crate::id::ResourceId;
use crate::meter;
use crate::patch::PatchTrouble;
use crate::resource::Resource;
use crate::selector::Matcher;
use crate::transform::field_paths::{look_up, smarter_split, visit_matches};
use crate::transform::inner_text::write_in_text;

/// A replacement, ready to apply.
#[derive(Debug)]
pub(crate) struct PreparedReplacement {
    source: Option<ReplacementSource>,
    source_value: Option<String>,
    targets: Vec<PreparedTarget>,
    /// The line and field of the replacement in a kustomization.
    place: Option<(u32, String)>,
}

/// The selectors and paths of one target of a replacement, ready to apply.
#[derive(Debug)]
struct PreparedTarget {
    select: Matcher,
    reject: Vec<Matcher>,
    paths: Vec<String>,
    options: Option<FieldOptions>,
}

impl PreparedReplacement {
    /// Prepares a replacement.
    ///
    /// # Errors
    /// If it has no source or no target, or a pattern can't be read.
    pub(crate) fn new(replacement: &Replacement) -> Result<Self, String> {
        let Some(targets) = replacement
            .targets
            .as_ref()
            .filter(|_| replacement.source.is_some() || replacement.source_value.is_some())
        else {
            return Err("replacements must specify a source and at least one target".to_owned());
        };
        if replacement.source.is_some() && replacement.source_value.is_some() {
            return Err("value and resource selectors are mutually exclusive".to_owned());
        }
        let targets = targets
            .iter()
            .map(|target| {
                let select = target
                    .select
                    .as_ref()
                    .ok_or("target must specify resources to select")?;
                let mut paths = target.field_paths.clone();
                if paths.is_empty() {
                    paths.push("metadata.name".to_owned());
                }
                Ok(PreparedTarget {
                    select: Matcher::new(select)?,
                    reject: target.reject.iter().map(Matcher::new).collect::<Result<_, _>>()?,
                    paths,
                    options: target.options.clone(),
                })
            })
            .collect::<Result<Vec<_>, String>>()?;
        Ok(PreparedReplacement {
            source: replacement.source.clone(),
            source_value: replacement.source_value.clone(),
            targets,
            place: None,
        })
    }

    /// Returns the replacement with a known line and field.
    pub(crate) fn with_place(mut self, line: u32, field: &str) -> Self {
        self.place = Some((line, field.to_owned()));
        self
    }

    /// Returns an error with the place of this replacement.
    fn locate_trouble(&self, part: &str, trouble: PatchTrouble) -> PatchTrouble {
        match &self.place {
            Some((line, field)) => PatchTrouble::At {
                line: *line,
                field: format!("{field}.{part}"),
                trouble: Box::new(trouble),
            },
            None => trouble,
        }
    }
}

/// Applies all replacements in order.
pub(crate) fn transform(list: &[PreparedReplacement], resources: &mut Collection) -> Result<(), PatchTrouble> {
    for replacement in list {
        let (mut value, whole, is_secret) = match (&replacement.source_value, &replacement.source) {
            (Some(text), _) => (Node::untyped(text.clone()), None, false),
            (None, Some(source)) => source_value(source, resources)
                .map_err(|message| replacement.locate_trouble("source", PatchTrouble::Target(message)))?,
            (None, None) => continue,
        };
        value.unshare();
        for (index, target) in replacement.targets.iter().enumerate() {
            for (position, resource) in resources.list.iter_mut().enumerate() {
                let gone = |message: String| {
                    replacement.locate_trouble(&format!("targets[{index}]"), PatchTrouble::Target(message))
                };
                meter::count_steps(1 + target.reject.len());
                meter::check().map_err(gone)?;
                if !target.selects(resource) {
                    continue;
                }
                resource.notes.holds_secret |= is_secret;
                let mut growth = Growth::default();
                for (count, path) in target.paths.iter().enumerate() {
                    let options = target.options.as_ref();
                    let written = write(&mut resource.node, path, &value, options);
                    if count == 0 || !matches!(written, Ok(false)) {
                        resource.settle_shares();
                    }
                    let added = growth::measure_size(&value);
                    if let Err(message) = written.and_then(|_| growth.add(added, &resource.node)) {
                        let trouble = PatchTrouble::Resource(Trouble::new(resource, message));
                        return Err(replacement.locate_trouble(&format!("targets[{index}]"), trouble));
                    }
                    // A whole field is read at its current place, so a write to that field changes the value for the next targets.
                    if let Some(path) = whole
                        .as_ref()
                        .filter(|(source, _)| *source == position)
                        .map(|(_, path)| path)
                        && let Ok(Some(node)) = look_up(&resource.node, path)
                    {
                        value = node.clone();
                        value.unshare();
                    }
                }
            }
        }
    }
    Ok(())
}

impl PreparedTarget {
    fn selects(&self, resource: &Resource) -> bool {
        if !self.select.fits_labels(resource) {
            return false;
        }
        if self
            .reject
            .iter()
            .any(|reject| reject.has_labels && reject.fits_labels(resource))
        {
            return false;
        }
        let ids = collect_ids(resource);
        let rejected = |reject: &Matcher| !reject.is_only_labels && ids.iter().any(|id| reject.fits_id(id));
        !self.reject.iter().any(rejected) && ids.iter().any(|id| self.select.fits_id(id))
    }
}

/// Returns the current id, then the previous ones.
fn collect_ids(resource: &Resource) -> Vec<ResourceId> {
    let mut ids = vec![resource.current_id()];
    ids.extend(resource.previous_ids());
    ids
}

/// The place where a value is read: the resource's position and the path in it.
type Whole = (usize, Vec<String>);

/// Returns the value of a source, its place if it is a whole field, and whether it comes from a confidential resource.
fn source_value(source: &ReplacementSource, resources: &Collection) -> Result<(Node, Option<Whole>, bool), String> {
    let selector = &source.selector;
    let wanted = ResourceId::of_selector(selector.gvk.clone(), selector.name.clone(), selector.namespace.clone());
    let path = if source.field_path.is_empty() {
        "metadata.name"
    } else {
        &source.field_path
    };
    let mut found = resources
        .list
        .iter()
        .enumerate()
        .filter(|(_, resource)| collect_ids(resource).iter().any(|id| id.is_selected_by(&wanted)));
    let Some((position, resource)) = found.next() else {
        return Err(format!("nothing selected by {wanted}:{path}"));
    };
    if found.next().is_some() {
        return Err(format!("multiple matches for selector {wanted}:{path}"));
    }
    let parts = smarter_split(path);
    let node = look_up(&resource.node, &parts).map_err(|why| format!("error looking up replacement source: {why}"))?;
    let Some(node) = node.filter(|node| !node.is_empty()) else {
        return Err(format!("fieldPath `{path}` is missing for replacement source {wanted}"));
    };
    let Some(options) = source.options.as_ref().filter(|options| !options.delimiter.is_empty()) else {
        return Ok((node.clone(), Some((position, parts)), resource.is_confidential()));
    };
    let Data::Scalar(text) = &node.data else {
        return Err("delimiter option can only be used with scalar nodes".to_owned());
    };
    let part = usize::try_from(options.index)
        .ok()
        .and_then(|index| text.split(&*options.delimiter).nth(index));
    let Some(part) = part else {
        return Err(format!(
            "options.index {} is out of bounds for the value",
            options.index
        ));
    };
    let mut node = node.clone();
    node.set_text(part);
    Ok((node, None, resource.is_confidential()))
}

/// Writes a value into the fields of a path. Returns whether one of these fields is shared between several places.
///
/// # Errors
/// If the field is missing, or can't take the value.
fn write(root: &mut Node, path: &str, value: &Node, options: Option<&FieldOptions>) -> Result<bool, String> {
    let parts = smarter_split(path);
    meter::count_steps(1 + path.len() / 16);
    growth::check_depth(value, parts.len())?;
    let create = options.is_some_and(|options| options.create).then_some(value);
    if write_in_text(root, &parts, value, create)? {
        return Ok(false);
    }
    let (mut count, mut is_shared) = (0, false);
    let mut set = |target: &mut Node| {
        count += 1;
        is_shared |= target.share.group != 0;
        set_value(target, value, options)
    };
    let what = if create.is_some() { "find or create" } else { "find" };
    visit_matches(root, &parts, create, &mut set)
        .map_err(|why| format!("unable to {what} field \"{path}\" in replacement target: {why}"))?;
    if count == 0 {
        return Err(format!("unable to {what} field \"{path}\" in replacement target"));
    }
    Ok(is_shared)
}

fn set_value(target: &mut Node, value: &Node, options: Option<&FieldOptions>) -> Result<(), String> {
    meter::check()?;
    let mut value = value.clone();
    if let Some(options) = options.filter(|options| !options.delimiter.is_empty()) {
        let Data::Scalar(old) = &target.data else {
            return Err("delimiter option can only be used with scalar nodes".to_owned());
        };
        meter::count_steps(old.len() / 4);
        let mut parts: Vec<&str> = old.split(&*options.delimiter).collect();
        let new = value.text().to_owned();
        match usize::try_from(options.index) {
            Err(_) => parts.insert(0, &new),
            Ok(index) => match parts.get_mut(index) {
                Some(part) => *part = &new,
                None => parts.push(&new),
            },
        }
        value.set_text(parts.join(&options.delimiter));
    }
    match &target.data {
        Data::Scalar(_) => {
            target.set_text(value.text());
            target.share = target.written_over(&value);
            target.line = value.line;
            target.source = value.source;
        }
        _ => *target = value,
    }
    Ok(())
}
