//! Owns `images`: new names, tags and digests for container images.

use regex::Regex;

use crate::collection::{Collection, Trouble};
use crate::fields::{FieldSpec, Image};
use crate::fieldspec::{Create, apply};
use crate::pattern;
use crate::yaml::node::{Data, Node};

/// One entry of `images`, ready to apply.
#[derive(Debug)]
pub(crate) struct ImageChange {
    image: Image,
    pattern: Regex,
}

impl ImageChange {
    /// Prepares an entry; its name is a regular expression, as in kustomize.
    ///
    /// # Errors
    /// When the name isn't a regular expression.
    pub(crate) fn new(image: Image) -> Result<Self, String> {
        let pattern = format!("^{}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$", image.name);
        let pattern = pattern::compile(&pattern)
            .map_err(|_| format!("the image name '{}' is not a valid pattern", image.name))?;
        Ok(ImageChange { image, pattern })
    }

    /// Changes the image wherever containers are found, and in the fields named.
    pub(crate) fn transform(&self, fields: &[FieldSpec], resources: &mut Collection) -> Result<(), Trouble> {
        for resource in &mut resources.list {
            if resource.kind() == "CustomResourceDefinition" {
                continue;
            }
            self.walk(&mut resource.node)
                .map_err(|message| Trouble::of(resource, message))?;
        }
        for resource in &mut resources.list {
            if resource.kind() == "CustomResourceDefinition" {
                continue;
            }
            for spec in fields {
                let mut write = |node: &mut Node| self.write(node);
                apply(&mut resource.node, spec, Create::Nothing, &mut write)
                    .map_err(|message| Trouble::of(resource, message))?;
            }
        }
        Ok(())
    }

    fn walk(&self, node: &mut Node) -> Result<(), String> {
        match &mut node.data {
            Data::Scalar(_) => Ok(()),
            Data::Seq(items) => items.iter_mut().try_for_each(|item| self.walk(item)),
            Data::Map(entries) => {
                for (key, value) in entries.iter_mut() {
                    self.walk(value)?;
                    if matches!(key.text(), "containers" | "initContainers") {
                        self.containers(key.text(), value)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn containers(&self, field: &str, node: &mut Node) -> Result<(), String> {
        let Some(items) = node.items_mut() else {
            return Ok(());
        };
        for container in items {
            if container.is_null() {
                continue;
            }
            if !container.is_map() {
                return Err(format!("wrong node kind: expected MappingNode in '{field}'"));
            }
            if let Some(image) = container.get_mut("image") {
                self.write(image)?;
            }
        }
        Ok(())
    }

    fn write(&self, node: &mut Node) -> Result<(), String> {
        if !node.is_scalar() {
            return Err("wrong node kind: an image must be a string".to_owned());
        }
        if !self.pattern.is_match(node.text()) {
            return Ok(());
        }
        let new = self.changed(node.text());
        node.assign_scalar(Node::untyped(new));
        Ok(())
    }

    fn changed(&self, old: &str) -> String {
        let (name, mut tag, mut digest) = split(old);
        let image = &self.image;
        let name = if image.new_name.is_empty() {
            name
        } else {
            image.new_name.as_str()
        };
        let suffixed;
        match (image.new_tag.as_str(), image.digest.as_str()) {
            ("", "") if image.tag_suffix.is_empty() => {}
            ("", "") => {
                suffixed = format!("{tag}{}", image.tag_suffix);
                (tag, digest) = (&suffixed, "");
            }
            (new_tag, new_digest) => (tag, digest) = (new_tag, new_digest),
        }
        let mut result = name.to_owned();
        if !tag.is_empty() {
            result.push(':');
            result.push_str(tag);
        }
        if !digest.is_empty() {
            result.push('@');
            result.push_str(digest);
        }
        result
    }
}

/// Splits an image into name, tag and digest; a colon before the first slash belongs to a registry's port.
fn split(image: &str) -> (&str, &str, &str) {
    let start = image.find('/').filter(|slash| *slash > 0).unwrap_or(0);
    let search = image.get(start..).unwrap_or("");
    let at = search.find('@').map(|position| position + start);
    let colon = search.find(':').map(|position| position + start);
    let part = |from: usize, to: usize| image.get(from..to).unwrap_or("");
    match (colon, at) {
        (None, None) => (image, "", ""),
        (colon, Some(at)) if colon.is_none_or(|colon| at < colon) => (part(0, at), "", part(at + 1, image.len())),
        (Some(colon), Some(at)) => (part(0, colon), part(colon + 1, at), part(at + 1, image.len())),
        (Some(colon), None) => (part(0, colon), part(colon + 1, image.len()), ""),
        (None, Some(at)) => (part(0, at), "", part(at + 1, image.len())),
    }
}
