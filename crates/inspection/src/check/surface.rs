//! The settings of a Surface for a folder of its repository.

use tenure_api::Surface;

/// Finds the namespace that a Surface sets on the objects of a folder. If the Surface has only one folder, a folder that none of its paths names counts as that one.
#[must_use]
pub fn find_target_namespace(surface: &Surface, folder: &str) -> Option<String> {
    let mut folders: Vec<(String, Option<&String>)> = Vec::new();
    for source in &surface.spec.sources {
        let own = source.target_namespace.as_ref();
        if source.paths.is_empty() {
            folders.push((clean_path(source.path.as_deref().unwrap_or_default()), own));
        }
        for path in &source.paths {
            folders.push((clean_path(&path.path), path.target_namespace.as_ref().or(own)));
        }
    }
    let folder = clean_path(folder);
    let named = folders.iter().find(|(path, _)| *path == folder);
    let meant = match (named, folders.as_slice()) {
        (Some(named), _) => Some(named),
        (None, [only]) => Some(only),
        _ => None,
    };
    meant.and_then(|(_, namespace)| namespace.cloned())
}

fn clean_path(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_folder_has_the_namespace_of_its_path() {
        let surface = |paths: serde_json::Value| -> Surface {
            serde_json::from_value(json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": {"name": "s"},
                "spec": {"sources": [{"name": "a", "url": "https://git.example/a.git", "targetNamespace": "of-source", "paths": paths}]}}))
            .unwrap()
        };
        let two =
            surface(json!([{"name": "x", "path": "./x/", "targetNamespace": "of-path"}, {"name": "y", "path": "y"}]));
        for (folder, namespace) in [("x", Some("of-path")), ("./y", Some("of-source")), ("z", None)] {
            assert_eq!(find_target_namespace(&two, folder).as_deref(), namespace, "{folder}");
        }
        let one = surface(json!([]));
        assert_eq!(find_target_namespace(&one, "anywhere").as_deref(), Some("of-source"));
    }
}
