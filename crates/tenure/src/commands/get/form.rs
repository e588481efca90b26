//! The output formats of `tenure get`, and the formats that a user describes: `jsonpath=…` and `custom-columns=…`, in kubectl's grammar.

use serde_json::Value;
use tenure_api::text::visible;
use tenure_inspection::custom_columns::Columns;
use tenure_inspection::jsonpath::Template;
use tenure_inspection::suggestions::name_suggestions;

use crate::failure::Failure;
use crate::output::{self, Format};

/// The formats, for help and completions.
pub(super) const FORMS: [&str; 9] = [
    "wide",
    "json",
    "yaml",
    "name",
    "jsonpath=",
    "jsonpath-as-json=",
    "jsonpath-file=",
    "custom-columns=",
    "custom-columns-file=",
];

/// An output format of objects.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    /// A table with all columns, without cut texts.
    Wide,
    /// Data in a known format.
    Data(Format),
    /// The text of a template.
    JsonPath(Template),
    /// The results of a template, as JSON.
    JsonPathAsJson(Template),
    /// Columns that the user describes.
    CustomColumns(Columns),
}

impl Form {
    /// Reads the value of `-o`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let template = || match value.unwrap_or_default() {
            "" => Err("template format specified but no template given".to_owned()),
            value => Template::parse(value).map_err(|error| error.to_string()),
        };
        match (name, value) {
            ("wide", None) => Ok(Self::Wide),
            ("json", None) => Ok(Self::Data(Format::Json)),
            ("yaml", None) => Ok(Self::Data(Format::Yaml)),
            ("name", None) => Ok(Self::Data(Format::Name)),
            ("jsonpath", _) => template().map(Self::JsonPath),
            ("jsonpath-as-json", _) => template().map(Self::JsonPathAsJson),
            ("jsonpath-file", Some(file)) => {
                let template = Template::parse(&read_file(file)?).map_err(|error| error.to_string())?;
                Ok(Self::JsonPath(template))
            }
            ("custom-columns", _) => parse_columns(value.unwrap_or_default()),
            ("custom-columns-file", Some(file)) => parse_columns(&join_columns(&read_file(file)?)?),
            _ => {
                let names: Vec<&str> = FORMS.iter().map(|form| form.trim_end_matches('=')).collect();
                let hint = name_suggestions(name, &names);
                Err(hint.unwrap_or_else(|| format!("the formats are {}", names.join(", "))))
            }
        }
    }

    /// Prints objects. A single object is the whole document; several are a list.
    pub(super) fn print(&self, objects: &[Value], is_single: bool, with_headers: bool) -> Result<(), Failure> {
        let print_template = |print: &dyn Fn(&Value) -> Result<String, Failure>| {
            let text = match objects {
                [only] if is_single => print(only)?,
                _ => print(&output::make_list(objects))?,
            };
            output::print_written(|out| out.write_all(visible(&text).as_bytes()));
            Ok(())
        };
        let fail = |error: String| Failure::usage(error).hint("look at the object: -o json");
        match self {
            Self::Data(format) => output::objects(objects, *format, is_single),
            Self::JsonPath(template) => {
                print_template(&|data| template.print(data).map_err(|error| fail(error.to_string())))
            }
            Self::JsonPathAsJson(template) => {
                print_template(&|data| template.print_json(data).map_err(|error| fail(error.to_string())))
            }
            Self::CustomColumns(columns) => {
                let lines = columns
                    .print(objects, with_headers)
                    .map_err(|error| fail(error.to_string()))?;
                lines.iter().for_each(output::print_line);
                Ok(())
            }
            Self::Wide => Ok(()),
        }
    }
}

fn parse_columns(text: &str) -> Result<Form, String> {
    Columns::parse(text)
        .map(Form::CustomColumns)
        .map_err(|error| error.to_string())
}

/// Joins the two lines of a file, headers and paths, as `custom-columns-file` of kubectl has them.
fn join_columns(text: &str) -> Result<String, String> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (headers, paths) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    if headers.is_empty() || headers.len() != paths.len() {
        return Err("the file needs a line of headers, and a line with as many paths".to_owned());
    }
    let columns = headers
        .iter()
        .zip(paths)
        .map(|(header, path)| format!("{header}:{path}"));
    Ok(columns.collect::<Vec<_>>().join(","))
}

fn read_file(file: &str) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_read() {
        for form in FORMS.iter().filter(|form| !form.ends_with('=')) {
            assert!(Form::parse(form).is_ok(), "{form}");
        }
        for form in ["jsonpath={.kind}", "jsonpath-as-json={.kind}", "custom-columns=A:.kind"] {
            assert!(Form::parse(form).is_ok(), "{form}");
        }
        let failure = |text: &str| Form::parse(text).expect_err(text);
        assert_eq!(failure("jsn"), "did you mean json?");
        assert_eq!(
            failure("custom-column=A:.b"),
            "did you mean custom-columns or custom-columns-file?"
        );
        assert!(failure("frobnicate").contains("json, yaml"));
        assert!(failure("jsonpath").contains("no template given"));
        assert!(failure("jsonpath={.a").contains("unclosed action"));
        assert!(failure("custom-columns-file=/nonexistent/file").contains("/nonexistent/file"));
    }

    #[test]
    fn a_file_of_columns_has_two_lines() {
        assert_eq!(join_columns("A   B\n.a  .b\n").as_deref(), Ok("A:.a,B:.b"));
        assert!(join_columns("A B\n.a\n").is_err() && join_columns("").is_err());
    }
}
