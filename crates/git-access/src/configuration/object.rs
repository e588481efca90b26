//! The entries in a [`FluxAccess`]. The schema has checked its structure.

use std::sync::Arc;

use tenure_api::access::FluxAccess;
use tenure_api::access::flux_access::AccessEntry;

use super::draft::{Defaults, Draft, LocatedText, is_path_below};
use super::{Configuration, MOST_OF_A_SCOPE, Place, Problem};
use tenure_remote_requests::git_host::Scope;

/// Reads the entries of an object. `group` is the group that all targets must be in.
#[must_use]
pub fn read_object(access: &FluxAccess, group: &str) -> Configuration {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (text(&access.metadata.namespace), text(&access.metadata.name));
    let file: Arc<str> = format!("FluxAccess {namespace}/{name}").into();
    let spec = &access.spec;
    let defaults = Defaults::read(
        make_text(spec.role.as_ref()).as_ref(),
        make_text(spec.rotate.as_ref()).as_ref(),
    );
    let mut configuration = Configuration::default();
    for (list, scope, items) in [
        ("projects", Scope::Project, &spec.projects),
        ("groups", Scope::Group, &spec.groups),
    ] {
        for (index, item) in items.iter().enumerate() {
            let place = Place {
                file: file.clone(),
                line: None,
                entry: format!("spec.{list}[{index}]"),
            };
            // An API server without the current schema may store more entries.
            if index >= MOST_OF_A_SCOPE {
                for item in items.iter().skip(MOST_OF_A_SCOPE) {
                    configuration.unread.add(find_path(item, group));
                }
                let message = format!(
                    "there are {} {list}, and {MOST_OF_A_SCOPE} is the most: this one and all behind it are left out; ask for a group instead",
                    items.len()
                );
                configuration.add_problem(Problem { place, message });
                break;
            }
            match take_draft(item).make_entry(place, scope, &defaults, group) {
                Ok(entry) => configuration.entries.push(entry),
                Err(problem) => {
                    configuration.add_problem(problem);
                    configuration.unread.add(find_path(item, group));
                }
            }
        }
    }
    configuration
}

fn find_path<'a>(item: &'a AccessEntry, group: &str) -> Option<&'a str> {
    Some(item.id.as_str()).filter(|path| is_path_below(path, group))
}

fn make_text(text: Option<&String>) -> Option<LocatedText> {
    text.map(|text| LocatedText {
        text: text.clone(),
        line: None,
    })
}

fn take_draft(entry: &AccessEntry) -> Draft {
    let all = |texts: &[String]| texts.iter().filter_map(|text| make_text(Some(text))).collect();
    Draft {
        id: make_text(Some(&entry.id)).filter(|id| !id.text.is_empty()),
        role: make_text(entry.role.as_ref()),
        rotate: make_text(entry.rotate.as_ref()),
        secret_name: make_text(entry.secret_name.as_ref()),
        namespaces: all(&entry.namespaces),
        service_accounts: all(&entry.service_accounts),
        is_strict: entry.strict,
        is_for_images: entry.image_pull_secrets,
    }
}
