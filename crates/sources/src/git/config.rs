//! Reads files in the form of Git's configuration, as far as files of a repository need it: sections, variables, quotes, escapes, comments and continued lines.

/// A variable of a section that the caller selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable<S> {
    /// The caller's value for the section that has the variable.
    pub(crate) section: S,
    /// The key, in lower case: keys are case-insensitive.
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Reads the variables of the sections for whose headers `select` returns a value, in the order of the file. Lines of other sections may have any form.
///
/// # Errors
/// The number of the wrong line.
pub(crate) fn read_variables<S: Clone>(
    text: &str,
    select: impl Fn(&str) -> Option<S>,
) -> Result<Vec<Variable<S>>, String> {
    let mut variables = Vec::new();
    let mut section: Option<S> = None;
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let wrong = |problem: &str| format!("line {} {problem}", index + 1);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().filter(|_| line.contains(']'));
            section = select(header.ok_or_else(|| wrong("is a section without an end"))?);
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let Some(section) = &section else { continue };
        let mut value = value.trim().to_owned();
        // A backslash at the end continues the line.
        while value.ends_with('\\') && !value.ends_with("\\\\") {
            value.pop();
            let (_, more) = lines.next().ok_or_else(|| wrong("goes on where there is no line"))?;
            value.push_str(more.trim_end());
        }
        let value = read_value(&value).ok_or_else(|| wrong("has a value that is not closed, or an unknown escape"))?;
        variables.push(Variable {
            section: section.clone(),
            key: key.trim().to_ascii_lowercase(),
            value,
        });
    }
    Ok(variables)
}

/// Reads a value and removes its quotes, escapes and comment.
fn read_value(text: &str) -> Option<String> {
    let mut value = String::with_capacity(text.len());
    let mut is_quoted = false;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '\\' => value.push(match letters.next()? {
                'n' => '\n',
                't' => '\t',
                'b' => '\u{8}',
                escaped @ ('"' | '\\') => escaped,
                _ => return None,
            }),
            '#' | ';' if !is_quoted => {
                value.truncate(value.trim_end().len());
                break;
            }
            letter => value.push(letter),
        }
    }
    (!is_quoted).then_some(value)
}
