//! `tenure who`: the owner of each field of an object, the commit, file and line of fields from Git, and the users behind managers by an audit log. The content of a
//! Secret is never printed.

use std::process::ExitCode;
use std::rc::Rc;
use std::str::FromStr;

use clap::Args;
use kube::api::DynamicObject;
use serde_json::Value;
use structured_merge::{FieldPath, FieldSet, Managed, ManagedFieldsEntry, owners};
use tenure_api::ObjectView;
use tenure_api::text::{visible, visible_line};
use tenure_inspection::ownership::writers::{Address, Search};

use crate::audit_log::{AuditLog, describe_writers};
use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::provenance::Provenance;
use crate::{output, resources};

/// The longest printed value.
const LONGEST_VALUE: usize = 48;

/// Show who owns each field of an object, and from which commit, file and line it came.
///
/// The name of a field manager is only the writer's own claim. With --audit-log, the command shows the user that the API server recorded, too.
#[derive(Debug, Args)]
pub(crate) struct Who {
    /// Object as KIND/NAME, such as deployment/web.
    object: String,
    /// Only this field and the fields in it: .spec.replicas, '.spec.template.spec.containers[name="web"].image'.
    field: Option<String>,
    /// Folder with the fetched artifacts [default: `artifacts` beside the kubeconfig, where `tenure up` stores them].
    #[arg(long, value_name = "DIR")]
    artifacts: Option<std::path::PathBuf>,
    #[command(flatten)]
    log: AuditLog,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

/// A field with one of its owners.
struct Owned {
    path: FieldPath,
    value: String,
    entry: Rc<ManagedFieldsEntry>,
}

impl Who {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let (kind, name) = self.object.split_once('/').ok_or_else(|| {
            Failure::usage(format!(
                "{:?}: KIND/NAME is wanted, such as deployment/web",
                self.object
            ))
        })?;
        let field = match &self.field {
            Some(field) => Some(FieldPath::from_str(field).map_err(|error| {
                Failure::usage(format!("{field:?} is no field: {error}"))
                    .hint("fields look like .spec.replicas or '.spec.ports[port=80].name'")
            })?),
            None => None,
        };
        let client = self.connect.client().await?;
        let served = resources::served(&client).await?;
        let resource = resources::find(&served, kind)?;
        let namespace = self
            .scope
            .namespace(&client)
            .ok_or_else(|| Failure::usage("one object lives in one namespace: name it with -n instead of -A"))?;
        let api: kube::Api<DynamicObject> = if resource.namespaced {
            kube::Api::namespaced_with(client.clone(), &namespace, &resource.api())
        } else {
            kube::Api::all_with(client.clone(), &resource.api())
        };
        let object =
            serde_json::to_value(api.get(name).await?).map_err(|error| Failure::internal(error.to_string()))?;
        let owned = list_owned_fields(&object, field.as_ref())?;
        if owned.is_empty() {
            return Err(Failure::negative(match &self.field {
                Some(field) => format!("no manager owns {field} of {}", self.object),
                None => format!("no manager owns a field of {}: it has no managedFields", self.object),
            }));
        }
        let artifacts = self
            .artifacts
            .clone()
            .or_else(|| self.connect.folder().map(|folder| folder.join("artifacts")));
        let provenance = Provenance::of(&client, &object, artifacts.as_deref()).await;
        let address = Address {
            group: resource.group.clone(),
            resource: resource.plural.clone(),
            namespace: if resource.namespaced { namespace } else { String::new() },
            name: name.to_owned(),
        };
        let search = self.search(&address, &owned)?;
        let writer =
            |entry: &ManagedFieldsEntry| search.as_ref().map(|search| describe_writers(search, &address, entry));
        print(&owned, &provenance, &writer);
        Ok(ExitCode::SUCCESS)
    }

    /// Searches for the users of the managers.
    fn search(&self, address: &Address, owned: &[Owned]) -> Result<Option<Search>, Failure> {
        if !self.log.is_given() {
            return Ok(None);
        }
        let mut search = Search::default();
        search.seek(address.clone(), owned.iter().map(|field| &*field.entry));
        self.log.read(&mut search)?;
        Ok(Some(search))
    }
}

fn print(owned: &[Owned], provenance: &Provenance, writer: &dyn Fn(&ManagedFieldsEntry) -> Option<String>) {
    for line in provenance.summary() {
        output::print_line(visible(line));
    }
    let mut headers = ["field", "value", "owner", "since", "from"].map(str::to_owned).to_vec();
    if owned.iter().any(|field| writer(&field.entry).is_some()) {
        headers.push("written by".to_owned());
    }
    let rows = owned.iter().map(|field| {
        let from = if provenance.is_by(&field.entry.manager) {
            provenance.line_of(&field.path).unwrap_or_default()
        } else {
            String::new()
        };
        let mut cells = vec![
            field.path.to_string(),
            field.value.clone(),
            manager(&field.entry),
            since(&field.entry),
            from,
        ];
        cells.extend(writer(&field.entry));
        cells.iter().map(|cell| visible_line(cell).into_owned()).collect()
    });
    output::print_line(output::table(&headers, rows.collect()));
}

/// Returns every owned field, ordered by path, at or below `within` if given.
fn list_owned_fields(object: &Value, within: Option<&FieldPath>) -> Result<Vec<Owned>, Failure> {
    let managed = Managed::of_object(object)
        .map_err(|error| Failure::environment(format!("managedFields can't be read: {error}")))?;
    let mut fields = Vec::new();
    for entry in managed.entries().into_iter().map(Rc::new) {
        let paths = match within {
            Some(path) if owns_around(&entry.fields, path) => vec![path.clone()],
            Some(path) => entry
                .fields
                .paths()
                .into_iter()
                .filter(|owned| owned.0.starts_with(&path.0))
                .collect(),
            None => entry.fields.paths(),
        };
        for path in paths {
            if let Some(value) = owners::value_at(object, &path)
                && shown(value, &entry.fields, &path)
            {
                fields.push(Owned {
                    value: describe_value(object, &path, value),
                    entry: Rc::clone(&entry),
                    path,
                });
            }
        }
    }
    fields.sort_by_cached_key(|field| (field.path.to_string(), manager(&field.entry)));
    Ok(fields)
}

/// Whether the field itself is owned, or a parent as a whole.
fn owns_around(set: &FieldSet, path: &FieldPath) -> bool {
    (1..=path.0.len())
        .filter_map(|length| path.0.get(..length))
        .any(|prefix| {
            // A parent counts only if it is owned as a whole, that is, without owned children.
            set.contains(prefix) && (prefix.len() == path.0.len() || !has_children(set, prefix))
        })
}

fn has_children(set: &FieldSet, path: &[structured_merge::PathElement]) -> bool {
    let mut below = set;
    for element in path {
        match below.node(element) {
            Some(node) => below = &node.children,
            None => return false,
        }
    }
    !below.is_empty()
}

/// Whether a field has a line of its own. A map or list has one only if it is owned as a whole; else its fields have lines.
fn shown(value: &Value, set: &FieldSet, path: &FieldPath) -> bool {
    !(value.is_object() || value.is_array()) || !has_children(set, &path.0)
}

fn manager(entry: &ManagedFieldsEntry) -> String {
    if entry.subresource.is_empty() {
        entry.manager.clone()
    } else {
        format!("{} ({})", entry.manager, entry.subresource)
    }
}

fn since(entry: &ManagedFieldsEntry) -> String {
    entry.time.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Describes a value in one line, without the content of a Secret.
fn describe_value(object: &Value, path: &FieldPath, value: &Value) -> String {
    let secret = ObjectView::of(object).read_text("/kind") == "Secret";
    let text = path.to_string();
    // kubectl stores a copy of the whole object in an annotation.
    let holds_values = [".data", ".stringData", ".metadata.annotations"];
    if secret && holds_values.iter().any(|field| text.starts_with(field)) {
        return "(secret)".to_owned();
    }
    let whole = value
        .as_str()
        .map_or_else(|| value.to_string(), |text| text.replace('\n', "⏎"));
    if whole.chars().count() > LONGEST_VALUE {
        let mut short: String = whole.chars().take(LONGEST_VALUE - 1).collect();
        short.push('…');
        short
    } else {
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(kind: &str) -> Value {
        json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": "a", "managedFields": [
            {"manager": "kustomize-controller", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}},
            {"manager": "kubectl-edit", "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T00:00:00Z", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:data": {".": {}, "f:c": {}}}}]},
            "data": {"a": "1", "b": "2", "c": "3"}})
    }

    fn check(kind: &str, field: Option<&str>, want: &[(&str, &str, &str)]) {
        let field = field.map(|field| FieldPath::from_str(field).expect("a path"));
        let got = list_owned_fields(&object(kind), field.as_ref()).expect("managedFields");
        let got: Vec<_> = got
            .iter()
            .map(|owned| (owned.path.to_string(), owned.value.clone(), manager(&owned.entry)))
            .collect();
        let want: Vec<_> = want
            .iter()
            .map(|(path, value, manager)| ((*path).to_owned(), (*value).to_owned(), (*manager).to_owned()))
            .collect();
        assert_eq!(got, want);
    }

    #[test]
    fn fields_and_their_owners() {
        check(
            "ConfigMap",
            None,
            &[
                (".data.a", "1", "kustomize-controller"),
                (".data.b", "2", "kustomize-controller"),
                (".data.c", "3", "kubectl-edit"),
            ],
        );
        check("ConfigMap", Some(".data.c"), &[(".data.c", "3", "kubectl-edit")]);
        check("ConfigMap", Some(".data.nothing"), &[]);
        check(
            "Secret",
            Some(".data.a"),
            &[(".data.a", "(secret)", "kustomize-controller")],
        );
    }
}
