//! An entry as written in any format, and its conversion to a valid entry.

use tenure_api::access::{DEFAULT_ROLE, DEFAULT_ROTATE, DEFAULT_SECRET_NAME, Period};
use tenure_api::names::{ObjectName, ServiceAccountName};
use tenure_api::text;
use tenure_tenancy::access::NamespacePattern;

use super::{Entry, MOST_OF_AN_ENTRY, Place, Problem};
use tenure_remote_requests::git_host::{Role, Scope};

/// The maximum of characters of an invalid text in a message.
const SHOWN: usize = 80;
/// The maximum length of a path of a project or group, in bytes.
const LONGEST_PATH: usize = 1_024;

/// A text of a configuration file, with its line.
#[derive(Clone, Debug)]
pub(super) struct LocatedText {
    pub(super) text: String,
    pub(super) line: Option<u32>,
}

/// The defaults for entries without own values. An invalid default is an error only for these entries.
pub(super) struct Defaults {
    role: Result<Role, String>,
    rotate: Result<Period, String>,
}

impl Defaults {
    pub(super) fn read(role: Option<&LocatedText>, rotate: Option<&LocatedText>) -> Self {
        Self {
            role: read_role(role.map_or(DEFAULT_ROLE, |role| &role.text)),
            rotate: read_period(rotate.map_or(DEFAULT_ROTATE, |rotate| &rotate.text)),
        }
    }
}

/// An entry as written in a configuration, before it is checked.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) id: Option<LocatedText>,
    pub(super) role: Option<LocatedText>,
    pub(super) rotate: Option<LocatedText>,
    pub(super) secret_name: Option<LocatedText>,
    pub(super) namespaces: Vec<LocatedText>,
    pub(super) service_accounts: Vec<LocatedText>,
    pub(super) is_strict: bool,
    pub(super) is_for_images: bool,
}

impl Draft {
    /// Checks the draft, and converts it to an entry.
    pub(super) fn make_entry(
        self,
        place: Place,
        scope: Scope,
        defaults: &Defaults,
        group: &str,
    ) -> Result<Entry, Problem> {
        let wrong = |line: Option<u32>, message: String| Problem {
            place: Place {
                line: line.or(place.line),
                ..place.clone()
            },
            message,
        };
        let Some(id) = self.id else {
            return Err(wrong(
                None,
                "it has no id: write the path of the project or group, as in id: group-1/project-a".to_owned(),
            ));
        };
        check_path(&id.text, scope, group).map_err(|why| wrong(id.line, why))?;
        let role = match &self.role {
            Some(role) => read_role(&role.text).map_err(|why| wrong(role.line, why))?,
            None => defaults
                .role
                .clone()
                .map_err(|why| wrong(None, format!("it has no role of its own, and of the common one: {why}")))?,
        };
        let rotate = match &self.rotate {
            Some(rotate) => read_period(&rotate.text).map_err(|why| wrong(rotate.line, why))?,
            None => defaults.rotate.clone().map_err(|why| {
                wrong(
                    None,
                    format!("it has no rotate of its own, and of the common one: {why}"),
                )
            })?,
        };
        let secret_name = match &self.secret_name {
            Some(secret_name) => {
                let name = ObjectName::new(&secret_name.text).map_err(|_| {
                    let rule = "lower-case letters, digits, '-' and '.', at most 253 characters";
                    wrong(
                        secret_name.line,
                        format!(
                            "secret_name {} is no Secret's name: {rule}",
                            quote_text(&secret_name.text)
                        ),
                    )
                })?;
                name.as_str().to_owned()
            }
            None => DEFAULT_SECRET_NAME.to_owned(),
        };
        if self.namespaces.is_empty() {
            return Err(wrong(
                None,
                "it names no namespaces: write where the Secret is wanted, as in namespaces: [project-a]".to_owned(),
            ));
        }
        for (what, list) in [
            ("namespaces", &self.namespaces),
            ("service_accounts", &self.service_accounts),
        ] {
            if list.len() > MOST_OF_AN_ENTRY {
                let count = list.len();
                return Err(wrong(
                    None,
                    format!(
                        "it names {count} {what}, and {MOST_OF_AN_ENTRY} is the most: use patterns, or several entries"
                    ),
                ));
            }
        }
        let mut namespaces: Vec<NamespacePattern> = Vec::with_capacity(self.namespaces.len());
        for namespace in &self.namespaces {
            let pattern = namespace
                .text
                .parse()
                .map_err(|error| wrong(namespace.line, format!("{error}")))?;
            if !namespaces.contains(&pattern) {
                namespaces.push(pattern);
            }
        }
        let mut service_accounts: Vec<String> = Vec::with_capacity(self.service_accounts.len());
        for service_account in &self.service_accounts {
            let Ok(name) = ServiceAccountName::new(&service_account.text) else {
                return Err(wrong(
                    service_account.line,
                    format!(
                        "{} is no ServiceAccount's name: write those of the entry's namespaces, without a namespace",
                        quote_text(&service_account.text)
                    ),
                ));
            };
            if !service_accounts.iter().any(|known| known == name.as_str()) {
                service_accounts.push(name.into());
            }
        }
        if self.is_for_images && (role != Role::ReadRegistry || service_accounts.is_empty()) {
            return Err(wrong(
                None,
                "image_pull_secrets is for role read_registry with service_accounts: those are whose containers are fetched with it".to_owned(),
            ));
        }
        Ok(Entry {
            place,
            scope,
            path: id.text,
            role,
            rotate,
            secret_name,
            namespaces,
            service_accounts,
            is_strict: self.is_strict,
            is_for_images: self.is_for_images,
        })
    }
}

/// Returns a text for messages: in quotes, in one line and cut if it is long.
pub(super) fn quote_text(text: &str) -> String {
    let start: String = text.chars().take(SHOWN).collect();
    let more = if start.len() < text.len() { "..." } else { "" };
    format!("\"{}{more}\"", text::visible_line(&start))
}

fn read_period(text: &str) -> Result<Period, String> {
    text.parse::<Period>().map_err(|error| format!("rotate {error}"))
}

fn read_role(text: &str) -> Result<Role, String> {
    match text {
        "read_repository" => Ok(Role::ReadRepository),
        "read_registry" => Ok(Role::ReadRegistry),
        "api" => Err(
            "role api is refused: statuses of commits are a different use case, and neither deploy tokens nor deploy keys give it; \
             write read_repository or read_registry, and report commits by an Alert"
                .to_owned(),
        ),
        "write_repository" => Err(
            "role write_repository is refused: nothing that reconciles a repository needs to write it; update images by Renovate rather than \
             from the cluster, and write read_repository or read_registry"
                .to_owned(),
        ),
        other => Err(format!(
            "role {} is unknown: write read_repository or read_registry",
            quote_text(other)
        )),
    }
}

/// Checks whether a text is a valid path of a project or a group in the top-level group.
pub(super) fn is_path_below(path: &str, group: &str) -> bool {
    check_path(path, Scope::Group, group).is_ok()
}

/// Checks that a text is the path of a project or a group in the top-level group. GitLab's paths have letters, digits, `_`, `-` and `.` between slashes, and ignore
/// the case of letters.
fn check_path(path: &str, scope: Scope, group: &str) -> Result<(), String> {
    let is_part = |part: &str| {
        let mut bytes = part.bytes();
        let begins = bytes
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        begins
            && part.len() <= 255
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
            && !part.contains("..")
            && ![".git", ".atom", "."].iter().any(|end| part.ends_with(end))
    };
    let shown = quote_text(path);
    if path.len() > LONGEST_PATH || path.is_empty() || !path.split('/').all(is_part) {
        return Err(format!(
            "id {shown} is no path: write it as the host shows it, as in group-1/project-a, without an address and without .git"
        ));
    }
    let mut parts = path.split('/');
    let first = parts.next().unwrap_or_default();
    if scope == Scope::Project && parts.next().is_none() {
        return Err(format!(
            "id {shown} is no project's path: a project is in a group, as in {group}/project-a; a group belongs under groups"
        ));
    }
    if !first.eq_ignore_ascii_case(group) {
        return Err(format!(
            "id {shown} is not below {group}, which is all that this agent may ask for: ask the administrator of its AccessProvider \
             (spec.topLevelGroup)"
        ));
    }
    Ok(())
}
