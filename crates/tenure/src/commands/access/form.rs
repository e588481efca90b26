//! How these commands print: for people, or as data. Owns the forms; refuses to print what somebody wrote as anything but visible text.

use clap::{Args, ValueEnum};
use serde::Serialize;
use tenure_api::text::visible_line;

use crate::failure::Failure;
use crate::output;

/// The flag.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Output {
    /// How it is printed.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Form::Table)]
    output: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Table,
    /// As JSON.
    Json,
    /// As YAML.
    Yaml,
}

impl Output {
    /// Prints data for programs; or says that it is for people, and prints nothing.
    pub(super) fn print(self, told: &impl Serialize) -> Result<Printed, Failure> {
        let value = serde_json::to_value(told).map_err(|error| Failure::internal(error.to_string()))?;
        match self.output {
            Form::Table => return Ok(Printed::ForPeople),
            Form::Json => output::print_json(&value)?,
            Form::Yaml => output::print_yaml(&value)?,
        }
        Ok(Printed::AsData)
    }
}

/// For whom it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Printed {
    /// It is still to be.
    ForPeople,
    /// It was.
    AsData,
}

/// A line of a description.
pub(super) fn describe(title: &str, text: &str) -> String {
    format!("  {title:<13}{}", visible_line(text))
}

/// Texts in a row; `none` where there are none.
pub(super) fn join(texts: &[String], none: &str) -> String {
    match texts.is_empty() {
        true => none.to_owned(),
        false => texts.join(", "),
    }
}
