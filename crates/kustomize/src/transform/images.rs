//! `images`: new names, tags and digests for container images.

use go_yaml::node::{Data, Node};
use regex::Regex;

use crate::collection::{Collection, Trouble};
use crate::fields::{FieldSpec, Image};
use crate::fieldspec::{Create, apply};
use crate::meter;
use crate::pattern;

/// An entry of `images` that is ready to apply.
#[derive(Debug)]
pub(crate) struct ImageChange {
    image: Image,
    /// The name as a pattern; nothing where it has only signs that mean themselves, or, like the dot, any character.
    pattern: Option<Regex>,
}

impl ImageChange {
    /// Prepares an entry; its name is a regular expression, as in kustomize.
    ///
    /// # Errors
    /// If the name isn't a regular expression.
    pub(crate) fn new(image: Image) -> Result<Self, String> {
        // Nearly every name needs no regular expression, which takes longer to compile than most builds.
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/' | b':' | b'.');
        if image.name.bytes().all(is_word) {
            return Ok(ImageChange { image, pattern: None });
        }
        let pattern = format!("^{}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$", image.name);
        let pattern = pattern::compile(&pattern)
            .map_err(|_| format!("the image name '{}' is not a valid pattern", image.name))?;
        Ok(ImageChange {
            image,
            pattern: Some(pattern),
        })
    }

    /// Changes the image wherever containers are found, and in the fields named.
    pub(crate) fn transform(&self, fields: &[FieldSpec], resources: &mut Collection) -> Result<(), Trouble> {
        for resource in &mut resources.list {
            if resource.kind() == "CustomResourceDefinition" {
                continue;
            }
            self.walk(&mut resource.node)
                .map_err(|message| Trouble::new(resource, message))?;
        }
        for resource in &mut resources.list {
            if resource.kind() == "CustomResourceDefinition" {
                continue;
            }
            for spec in fields {
                let mut write = |node: &mut Node| self.write(node);
                apply(&mut resource.node, spec, Create::Nothing, &mut write)
                    .map_err(|message| Trouble::new(resource, message))?;
            }
        }
        Ok(())
    }

    fn walk(&self, node: &mut Node) -> Result<(), String> {
        meter::count_steps(1);
        meter::check()?;
        match &mut node.data {
            Data::Scalar(_) => Ok(()),
            Data::Seq(items) => items.iter_mut().try_for_each(|item| self.walk(item)),
            Data::Map(entries) => {
                for (key, value) in entries.iter_mut() {
                    self.walk(value)?;
                    if matches!(key.text(), "containers" | "initContainers") {
                        self.update_containers(key.text(), value)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn update_containers(&self, field: &str, node: &mut Node) -> Result<(), String> {
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
        let fits = match &self.pattern {
            Some(pattern) => pattern.is_match(node.text()),
            None => has_name(&self.image.name, node.text()),
        };
        if !fits {
            return Ok(());
        }
        let new = self.change_image(node.text());
        node.assign_scalar(Node::untyped(new));
        Ok(())
    }

    fn change_image(&self, old: &str) -> String {
        let (name, mut tag, mut digest) = split_image(old);
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

/// Checks whether an image has a name, with any tag and digest. A dot in the name matches any character, as in the pattern.
fn has_name(name: &str, image: &str) -> bool {
    let mut rest = image.chars();
    let is_prefix = name.chars().all(|wanted| {
        rest.next()
            .is_some_and(|found| wanted == found || (wanted == '.' && found != '\n'))
    });
    let is_of_tag = |byte: char| byte.is_ascii_alphanumeric() || matches!(byte, '_' | '.' | '{' | '}' | '-');
    let mut rest = rest.as_str();
    for separator in [":", "@sha256:"] {
        if let Some(tail) = rest.strip_prefix(separator) {
            rest = tail.trim_start_matches(is_of_tag);
        }
    }
    is_prefix && rest.is_empty()
}

/// Splits an image into name, tag and digest; a colon before the first slash belongs to a registry's port.
fn split_image(image: &str) -> (&str, &str, &str) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Names without signs of patterns are compared without one; the answers are the pattern's.
    #[test]
    fn a_word_fits_what_its_pattern_fits() {
        for name in ["app", "a.b/app", "a.b:80/app", "", "a-b_c"] {
            let pattern = format!("^{name}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$");
            let pattern = pattern::compile(&pattern).unwrap();
            for image in [
                "app",
                "app:",
                "app:v1",
                "app@sha256:1f",
                "app:v1@sha256:1f",
                "app@sha256:1f:v1",
                "app:v1:v2",
                "app@md5:1",
                "apps",
                "ap",
                "a.b/app",
                "aXb/app:v1",
                "a\nb/app",
                "aéb/app:v1@sha256:",
                "a.b:80/app:{x}",
                "a-b_c:v/1",
                "",
                ":v1",
                "@sha256:",
                "app:v1\n",
            ] {
                assert_eq!(has_name(name, image), pattern.is_match(image), "{name} {image}");
            }
        }
    }
}
