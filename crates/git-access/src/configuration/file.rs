//! `flux_access` in a YAML file: in the agent's `config.yaml`, or in the file beside it if a strict agent refuses unknown keys.

use std::sync::Arc;

use go_yaml::meter::{self, Allowance};
use go_yaml::node::{Data, Node};
use go_yaml::read::{Lines, Source, first_document};
use go_yaml::scalar::Dialect;

use super::draft::{Defaults, Draft, LocatedText, is_path_below, quote_text};
use super::{Configuration, MOST_OF_A_SCOPE, Place, Problem, Reading};
use tenure_remote_requests::git_host::Scope;

/// The maximum size of a file.
const LONGEST: usize = 1 << 20;
/// The maximum of nodes in a file, with expanded aliases.
const MOST_NODES: usize = 200_000;
/// The limits for the work of the parser.
const ALLOWANCE: Allowance = Allowance {
    bytes: 64 << 20,
    steps: 64 << 20,
};
/// The top-level key.
const KEY: &str = "flux_access";

/// The path of a configuration file in a repository, and whether the file has other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File<'a> {
    /// Its path in the repository.
    pub path: &'a str,
    /// True if the file contains only `flux_access`. A file without this key is then an error, so that it can't ask for nothing by mistake.
    pub is_own: bool,
}

/// Reads a file. `group` is the group that all its targets must be in.
#[must_use]
pub fn read_file(file: File<'_>, bytes: &[u8], group: &str) -> Reading {
    let path: Arc<str> = tenure_api::text::visible_line(file.path).into();
    let unreadable = |line: Option<u32>, message: String| {
        Reading::Unreadable(Problem {
            place: Place {
                file: path.clone(),
                line,
                entry: String::new(),
            },
            message,
        })
    };
    if bytes.len() > LONGEST {
        return unreadable(
            None,
            format!("it is longer than {LONGEST} bytes: ask for groups, or use patterns"),
        );
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return unreadable(None, "it is not UTF-8: save it as such".to_owned());
    };
    let _metering = meter::start_metering(ALLOWANCE, None);
    let source = Source {
        file: 0,
        lines: Lines::After(0),
        maximum_nodes: MOST_NODES,
        scanner: Dialect::V2,
    };
    let root = match first_document(text, source) {
        Ok(root) => root,
        // A parser error can quote its input, and an agent's file may contain anything.
        Err(error) => {
            return unreadable(
                Some(error.line),
                "it can't be read as YAML from this line on: check it with a linter".to_owned(),
            );
        }
    };
    let nothing = || Reading::Read(Configuration::default());
    let missing = || {
        unreadable(
            None,
            format!("it has no {KEY}: everything in this file stands under that key"),
        )
    };
    let Some(root) = root else {
        return if file.is_own { missing() } else { nothing() };
    };
    let Data::Map(fields) = &root.data else {
        return unreadable(Some(root.line), "it is not a mapping: keys with values".to_owned());
    };
    let mut found = fields.iter().filter(|(key, _)| read_text(key) == Some(KEY));
    let value = match (found.next(), found.next()) {
        (None, _) if file.is_own => return missing(),
        (None, _) => return nothing(),
        (Some((_, value)), None) if value.is_null() => return nothing(),
        (Some((_, value)), None) => value,
        (Some(_), Some((key, _))) => {
            return unreadable(Some(key.line), format!("{KEY} is set twice: put both into one"));
        }
    };
    let Data::Map(fields) = &value.data else {
        return unreadable(
            Some(value.line),
            format!("{KEY} is not a mapping: it has projects, groups, role and rotate"),
        );
    };
    Reader {
        path,
        group,
        configuration: Configuration::default(),
    }
    .read(fields)
}

/// Reads the entries of a file into a configuration.
struct Reader<'a> {
    path: Arc<str>,
    group: &'a str,
    configuration: Configuration,
}

impl Reader<'_> {
    fn locate_entry(&self, line: u32, entry: impl Into<String>) -> Place {
        Place {
            file: self.path.clone(),
            line: Some(line),
            entry: entry.into(),
        }
    }

    fn add_problem(&mut self, line: u32, entry: &str, message: String) {
        let place = self.locate_entry(line, entry);
        self.configuration.add_problem(Problem { place, message });
    }

    fn read(mut self, fields: &[(Node, Node)]) -> Reading {
        let (mut role, mut rotate) = (None, None);
        let mut lists: [Option<&Node>; 2] = [None, None];
        let mut seen: Vec<&str> = Vec::new();
        for (key, value) in fields {
            let name = read_text(key).unwrap_or_default();
            let is_known = ["role", "rotate", "projects", "groups"].contains(&name);
            if !is_known {
                let message = format!(
                    "{} is unknown: {KEY} has role, rotate, projects and groups",
                    quote_text(name)
                );
                self.add_problem(key.line, KEY, message);
                // The key may have been meant as one of the lists.
                self.configuration.unread.add(None);
                continue;
            }
            if seen.contains(&name) {
                let message = format!("{name} is set twice, and the first one counts: put both into one");
                self.add_problem(key.line, KEY, message);
                self.configuration.unread.add(None);
                continue;
            }
            seen.push(name);
            match name {
                "role" | "rotate" => {
                    let text = read_optional_text(value, name);
                    let text = text.unwrap_or_else(|(line, message)| {
                        self.add_problem(line, KEY, message);
                        // An empty value is a mistake.
                        Some(LocatedText {
                            text: String::new(),
                            line: Some(line),
                        })
                    });
                    if name == "role" {
                        role = text;
                    } else {
                        rotate = text;
                    }
                }
                "projects" => lists[0] = Some(value),
                _ => lists[1] = Some(value),
            }
        }
        let defaults = Defaults::read(role.as_ref(), rotate.as_ref());
        for (name, scope, list) in [
            ("projects", Scope::Project, lists[0]),
            ("groups", Scope::Group, lists[1]),
        ] {
            if let Some(list) = list.filter(|list| !list.is_null()) {
                self.read_list(name, scope, list, &defaults);
            }
        }
        Reading::Read(self.configuration)
    }

    fn read_list(&mut self, name: &str, scope: Scope, list: &Node, defaults: &Defaults) {
        let Data::Seq(items) = &list.data else {
            let message = format!("{name} is not a list: each of them begins with - id:");
            self.add_problem(list.line, name, message);
            self.configuration.unread.add(None);
            return;
        };
        for (index, item) in items.iter().enumerate().take(MOST_OF_A_SCOPE) {
            let place = self.locate_entry(item.line, format!("{name}[{index}]"));
            let entry = match read_draft(item) {
                Ok(draft) => draft.make_entry(place, scope, defaults, self.group),
                Err((line, message)) => Err(Problem {
                    place: Place {
                        line: Some(line),
                        ..place
                    },
                    message,
                }),
            };
            match entry {
                Ok(entry) => self.configuration.entries.push(entry),
                Err(problem) => {
                    self.configuration.add_problem(problem);
                    self.configuration.unread.add(find_path(item, self.group));
                }
            }
        }
        for item in items.iter().skip(MOST_OF_A_SCOPE) {
            self.configuration.unread.add(find_path(item, self.group));
        }
        if let Some(beyond) = items.get(MOST_OF_A_SCOPE) {
            let message = format!(
                "there are {} {name}, and {MOST_OF_A_SCOPE} is the most: this one and all behind it are left out; ask for a group instead",
                items.len()
            );
            let entry = format!("{name}[{MOST_OF_A_SCOPE}]");
            self.add_problem(beyond.line, &entry, message);
        }
    }
}

/// The line of a problem, and its message.
type LineProblem = (u32, String);

/// Returns the path of an invalid entry, if the path is valid. Then the entry's project or group is known.
fn find_path<'a>(item: &'a Node, group: &str) -> Option<&'a str> {
    let Data::Map(fields) = &item.data else { return None };
    let mut ids = fields.iter().filter(|(key, _)| read_text(key) == Some("id"));
    match (ids.next(), ids.next()) {
        (Some((_, id)), None) => read_text(id).filter(|path| is_path_below(path, group)),
        _ => None,
    }
}

fn read_draft(item: &Node) -> Result<Draft, LineProblem> {
    let Data::Map(fields) = &item.data else {
        return Err((item.line, "it is not a mapping: it begins with - id:".to_owned()));
    };
    let mut draft = Draft::default();
    let mut seen: Vec<&str> = Vec::new();
    for (key, value) in fields.iter() {
        let name = read_text(key).unwrap_or_default();
        if seen.contains(&name) {
            return Err((key.line, format!("{} is set twice: remove one", quote_text(name))));
        }
        match name {
            "id" => draft.id = read_optional_text(value, name)?,
            "role" => draft.role = read_optional_text(value, name)?,
            "rotate" => draft.rotate = read_optional_text(value, name)?,
            "secret_name" => draft.secret_name = read_optional_text(value, name)?,
            "namespaces" => draft.namespaces = read_texts(value, name)?,
            "service_accounts" => draft.service_accounts = read_texts(value, name)?,
            "strict" => draft.is_strict = read_truth(value, name)?,
            "image_pull_secrets" => draft.is_for_images = read_truth(value, name)?,
            // An ignored misspelled key would leave its default in force.
            other => {
                return Err((
                    key.line,
                    format!(
                        "{} is unknown: an entry has id, role, rotate, secret_name, namespaces, service_accounts, strict and image_pull_secrets",
                        quote_text(other)
                    ),
                ));
            }
        }
        // Unknown keys have returned an error above, so the list stays short.
        seen.push(name);
    }
    Ok(draft)
}

/// Returns the text of a scalar; `None` for a map or a list.
fn read_text(node: &Node) -> Option<&str> {
    match &node.data {
        Data::Scalar(text) => Some(text.as_str()),
        Data::Map(_) | Data::Seq(_) => None,
    }
}

fn read_optional_text(node: &Node, name: &str) -> Result<Option<LocatedText>, LineProblem> {
    if node.is_null() {
        return Ok(None);
    }
    let Some(text) = read_text(node) else {
        return Err((node.line, format!("{name} is not a text")));
    };
    Ok(Some(LocatedText {
        text: text.to_owned(),
        line: Some(node.line),
    }))
}

fn read_texts(node: &Node, name: &str) -> Result<Vec<LocatedText>, LineProblem> {
    let Data::Seq(items) = &node.data else {
        return match node.is_null() {
            true => Ok(Vec::new()),
            false => Err((
                node.line,
                format!("{name} is not a list: write [a, b], or one a line behind -"),
            )),
        };
    };
    let mut texts = Vec::with_capacity(items.len());
    for item in items.iter() {
        let text = read_optional_text(item, name)?;
        texts.push(text.ok_or_else(|| (item.line, format!("{name} has an empty item: remove it")))?);
    }
    Ok(texts)
}

/// Reads `true` or `false`; an empty value is false.
fn read_truth(node: &Node, name: &str) -> Result<bool, LineProblem> {
    match read_text(node) {
        _ if node.is_null() => Ok(false),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        _ => Err((node.line, format!("{name} is neither true nor false"))),
    }
}
