//! The output of these commands: for people, or as data. Texts that users wrote are printed as visible characters only.

use clap::{Args, ValueEnum};
use serde::Serialize;
use tenure_api::text::visible_line;

use crate::failure::Failure;
use crate::output;

/// The flag for the output format.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Output {
    /// Output format.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Form::Table)]
    output: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Text for people.
    Table,
    /// The data as JSON.
    Json,
    /// The data as YAML.
    Yaml,
}

impl Output {
    /// Prints data for programs. If the user wants text for people, prints nothing and returns [`Printed::ForPeople`].
    pub(super) fn print(self, report: &impl Serialize) -> Result<Printed, Failure> {
        let value = serde_json::to_value(report).map_err(|error| Failure::internal(error.to_string()))?;
        match self.output {
            Form::Table => return Ok(Printed::ForPeople),
            Form::Json => output::print_json(&value)?,
            Form::Yaml => output::print_yaml(&value)?,
        }
        Ok(Printed::AsData)
    }
}

/// Whether the data were printed, or the caller still has to print text for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Printed {
    /// The caller prints for people.
    ForPeople,
    /// The data were printed.
    AsData,
}

/// Returns a line of a description.
pub(super) fn describe(title: &str, text: &str) -> String {
    format!("  {title:<13}{}", visible_line(text))
}

/// Joins texts; `none` if the list is empty.
pub(super) fn join_texts(texts: &[String], none: &str) -> String {
    match texts.is_empty() {
        true => none.to_owned(),
        false => texts.join(", "),
    }
}
