//! The invariant of every scenario: a tenant reaches no authority outside its own namespaces beyond an
//! administrator's grants.

use kubernetes_reach::{Cluster, Coverage, SOURCES, Subject, list_beyond};
use serde_json::{Value, json};

use crate::admin::Admin;

/// Searches the authority of a tenant on the cluster in its current state.
///
/// # Errors
/// Every path that leads out, or an object that could not be read.
pub async fn check_reach(admin: &Admin, tenant: &str) -> Result<(), String> {
    let mut objects = Vec::new();
    for source in SOURCES {
        let api_version = match source.group {
            "" => source.version.to_owned(),
            group => format!("{group}/{}", source.version),
        };
        let found = match admin.list((&api_version, source.kind), "").await {
            Ok(found) => found,
            // A cluster without a kind has no objects of it. A missing or unreadable tenant is an error below.
            Err(error) if error.is_unserved() => continue,
            Err(error) => return Err(format!("{}: {error}", source.resource)),
        };
        for mut object in found {
            if let Some(fields) = object.as_object_mut() {
                fields.insert("apiVersion".to_owned(), json!(api_version));
                fields.insert("kind".to_owned(), json!(source.kind));
                fields.remove("data");
            }
            objects.push(object);
        }
    }
    search_beyond(&objects, tenant)
}

fn search_beyond(objects: &[Value], tenant: &str) -> Result<(), String> {
    let cluster = Cluster::read(objects, &Coverage::default());
    let beyond = list_beyond(&cluster, tenant)?;
    if beyond.is_empty() {
        return Ok(());
    }
    let paths: Vec<String> = beyond.iter().map(ToString::to_string).collect();
    let subject = Subject::Tenant(tenant.to_owned());
    Err(format!(
        "{subject:?} reaches beyond its namespaces:\n{}",
        paths.join("\n")
    ))
}
