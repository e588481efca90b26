//! `-o custom-columns=NAME:.metadata.name,…`: columns that the user describes, with kubectl's layout and words.

use serde_json::Value;

use crate::jsonpath::{JsonPathError, Template, write_go_value};

/// The space between columns, and the least width of a column with its space.
const GAP: usize = 3;
const NARROWEST: usize = 6;
/// The cell of a missing field.
const MISSING: &str = "<none>";

/// The reason why the described columns can't be printed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// No column is described.
    #[error("custom-columns format specified but no custom columns given")]
    NoColumns,
    /// A column lacks its header or its path.
    #[error("unexpected custom-columns spec: {0}, expected <header>:<json-path-expr>")]
    NoPath(String),
    /// A path can't be read, or doesn't fit an object.
    #[error(transparent)]
    Path(#[from] JsonPathError),
}

/// The columns that a user describes: a header and a path for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    headers: Vec<String>,
    paths: Vec<Template>,
}

impl Columns {
    /// Parses `HEADER:PATH,HEADER:PATH`.
    ///
    /// # Errors
    /// Fails when a column has no path, or one that can't be read.
    pub fn parse(text: &str) -> Result<Self, ColumnsError> {
        if text.is_empty() {
            return Err(ColumnsError::NoColumns);
        }
        let split = |column: &str| match column.split_once(':') {
            Some((header, path)) => Ok((header.to_owned(), path.to_owned())),
            None => Err(ColumnsError::NoPath(column.to_owned())),
        };
        let columns = text.split(',').map(split).collect::<Result<Vec<_>, _>>()?;
        let (headers, paths): (Vec<String>, Vec<String>) = columns.into_iter().unzip();
        let paths = paths.iter().map(|path| Template::parse_relaxed(path));
        Ok(Self {
            headers,
            paths: paths.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the lines for objects.
    ///
    /// # Errors
    /// Fails when a path doesn't fit an object.
    pub fn print(&self, objects: &[Value], with_headers: bool) -> Result<Vec<String>, ColumnsError> {
        let mut rows = Vec::new();
        rows.extend(with_headers.then(|| self.headers.clone()));
        for object in objects {
            let cells = self.paths.iter().map(|path| write_cell(path, object));
            rows.push(cells.collect::<Result<Vec<_>, _>>()?);
        }
        let width = |index: usize| {
            let cells = rows.iter().filter_map(|row| row.get(index));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.headers.len())
            .map(|index| (width(index) + GAP).max(NARROWEST))
            .collect();
        Ok(rows.iter().map(|row| lay_out(row, &widths)).collect())
    }
}

fn write_cell(path: &Template, object: &Value) -> Result<String, ColumnsError> {
    let found = path.find(object)?;
    let values: Vec<String> = found.iter().flatten().map(write_go_value).collect();
    Ok(match values.is_empty() {
        true => MISSING.to_owned(),
        false => tenure_api::text::visible(&values.join(",")).into_owned(),
    })
}

fn lay_out(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
        line.push_str(cell);
        if index + 1 < row.len() {
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
        }
    }
    line
}
