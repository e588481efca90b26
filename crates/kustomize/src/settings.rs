//! Reads the settings that a kustomization makes for kinds and fields in the whole build: `openapi`, `configurations` and `crds`.

use std::borrow::Cow;
use std::sync::Arc;

use go_yaml::json::configuration_value;
use go_yaml::read::Lines;
use serde_json::Value;

use crate::accumulate::{Builder, Frame, field_error};
use crate::config::TransformerConfig;
use crate::decode::Decoder;
use crate::error::Error;
use crate::kustomization::Kustomization;
use crate::load::Loader;
use crate::meter;

impl<'tree> Builder<'tree> {
    /// Applies the schema of a kustomization.
    pub(crate) fn take_schema(&self, directory: &str, kustomization: &Kustomization) -> Result<(), Error> {
        let Some(openapi) = &kustomization.openapi else {
            return Ok(());
        };
        let at = |message: String| field_error(kustomization, openapi.line, "openapi", message);
        for key in openapi
            .value
            .keys()
            .filter(|key| !matches!(key.as_str(), "path" | "version"))
        {
            self.warnings.borrow_mut().push(format!(
                "{}:{}: openapi: unknown name '{key}'",
                kustomization.path, openapi.line
            ));
        }
        let document = match openapi.value.get("path") {
            None => None,
            Some(path) => {
                let at = |message: String| field_error(kustomization, openapi.line, "openapi.path", message);
                let (found, text) = self.text_of(directory, path, &at)?;
                let document = self
                    .json_or_yaml(&found, &text)
                    .map_err(|error| at(error.to_string()))?;
                if text.is_empty() {
                    return Err(at(format!("invalid schema file: '{found}' is empty")));
                }
                // A file of comments, or null, defines nothing.
                Some(document.unwrap_or_else(|| Value::Object(serde_json::Map::new())))
            }
        };
        self.loader.schema.set(&openapi.value, document).map_err(at)
    }

    /// Returns the fields of the transformers for one kustomization: defaults and `configurations`.
    pub(crate) fn read_configuration(
        &self,
        frame: &Frame,
        kustomization: &Kustomization,
    ) -> Result<Arc<TransformerConfig>, Error> {
        let mut custom = TransformerConfig::default();
        for (index, reference) in kustomization.configurations.iter().enumerate() {
            let field = format!("configurations[{index}]");
            let at = |message: String| field_error(kustomization, reference.line, &field, message);
            let (path, text) = self.text_of(&frame.root, &reference.value, &at)?;
            let Some(node) = self.loader.strict_configuration(&path, &text)? else {
                continue;
            };
            let decoder = Decoder::new(&path, true);
            let mut read = TransformerConfig::read(&decoder, &node);
            decoder.finish()?;
            read.sort();
            custom = custom.merge(&mut read).map_err(at)?;
        }
        if kustomization.configurations.is_empty() {
            return Ok(TransformerConfig::defaults());
        }
        let merged = TransformerConfig::defaults().merge(&mut custom);
        merged
            .map(Arc::new)
            .map_err(|message| field_error(kustomization, 1, "configurations", message))
    }

    /// Returns the path and the text of a file that a kustomization names. `at` makes an error for the place of the name.
    fn text_of(
        &self,
        directory: &str,
        reference: &str,
        at: &impl Fn(String) -> Error,
    ) -> Result<(String, Cow<'tree, str>), Error> {
        let read = self.loader.read(directory, reference);
        let (path, bytes) = read.map_err(|error| at(error.to_string()))?;
        let text = Loader::decode_text(&path, bytes)?;
        Ok((path, text))
    }

    /// Reads a file as JSON if it begins like JSON, and as YAML otherwise.
    fn json_or_yaml(&self, path: &str, text: &str) -> Result<Option<Value>, Error> {
        if text.starts_with('{') {
            return serde_json::from_str(text).map(Some).map_err(|error| Error::Yaml {
                path: path.to_owned(),
                line: u32::try_from(error.line()).unwrap_or(0),
                message: error.to_string(),
            });
        }
        let Some(node) = self.loader.read_configuration(path, text, Lines::After(0))? else {
            return Ok(None);
        };
        configuration_value(&node).map(Some).map_err(|problem| Error::Yaml {
            path: path.to_owned(),
            line: problem.line,
            message: problem.message,
        })
    }

    /// Returns the fields that the schemas under `crds` name.
    pub(crate) fn read_crds(
        &self,
        frame: &Frame,
        kustomization: &Kustomization,
    ) -> Result<Arc<TransformerConfig>, Error> {
        let mut config = TransformerConfig::default();
        for (index, reference) in kustomization.crds.iter().enumerate() {
            let field = format!("crds[{index}]");
            let at = |message: String| field_error(kustomization, reference.line, &field, message);
            let (path, text) = self.text_of(&frame.root, &reference.value, &at)?;
            if text.is_empty() {
                // kustomize crashes.
                return Err(at(format!("'{path}' is empty")));
            }
            let mut read = match self.json_or_yaml(&path, &text)? {
                Some(value) => {
                    let read = crate::crds::read_definitions(value).map_err(at)?;
                    meter::check().map_err(at)?;
                    read
                }
                None => continue,
            };
            config = config.merge(&mut read).map_err(at)?;
        }
        Ok(Arc::new(config))
    }
}
