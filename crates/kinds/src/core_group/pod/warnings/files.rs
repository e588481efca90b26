//! Files of a volume with overlapping paths.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde_json::Value;
use tenure_checkpoint::checkpoint;

use super::{FieldPath, MOST_TEXTS, get_text, go_quoted, list_items};

pub(super) fn warn_about_files(volume: &Value, found: &mut Vec<String>) {
    let name = go_quoted(get_text(volume, "name"));
    let root = FieldPath::default();
    let paths = |source: &Value, from: &str| -> Vec<(String, String)> {
        let paths =
            list_items(source, "items", &root).map(|(item, _)| get_text(item, "path").trim_end_matches('/').to_owned());
        paths.map(|path| (path, from.to_owned())).collect()
    };
    for (kind, field, what) in [
        ("configMap", "name", "ConfigMap"),
        ("secret", "secretName", "Secret"),
        ("downwardAPI", "", "DownwardAPI"),
    ] {
        let Some(source) = volume.get(kind) else { continue };
        let called = match field {
            "" => what.to_owned(),
            field => format!("{what} {}", go_quoted(get_text(source, field))),
        };
        KnownPaths::default().add(&name, &called, paths(source, ""), found);
    }
    let mut known = KnownPaths::default();
    let projected = volume.get("projected").unwrap_or(&Value::Null);
    for (source, _) in list_items(projected, "sources", &root) {
        let paths = if let Some(map) = source.get("configMap") {
            paths(map, &format!("ConfigMap {}", go_quoted(get_text(map, "name"))))
        } else if let Some(secret) = source.get("secret") {
            paths(secret, &format!("Secret {}", go_quoted(get_text(secret, "name"))))
        } else if let Some(fields) = source.get("downwardAPI") {
            paths(fields, "DownwardAPI")
        } else if let Some(token) = source.get("serviceAccountToken") {
            let path = get_text(token, "path").trim_end_matches('/');
            vec![(path.to_owned(), "ServiceAccountToken".to_owned())]
        } else {
            found.push(format!("volume {name} (Projected) has no sources provided"));
            continue;
        };
        known.add(&name, "Projected", paths, found);
    }
}

/// The known paths, each with a final slash, its place in the list, and its origin.
#[derive(Default)]
struct KnownPaths {
    paths: BTreeMap<String, Vec<(usize, String)>>,
    count: usize,
}

impl KnownPaths {
    fn add(&mut self, volume: &str, called: &str, paths: Vec<(String, String)>, found: &mut Vec<String>) {
        let shown = |path: &str, from: &str| match from {
            "" => go_quoted(path.trim_end_matches('/')),
            from => format!("{} ({from})", go_quoted(path.trim_end_matches('/'))),
        };
        for (path, from) in paths {
            checkpoint();
            if path.is_empty() {
                continue;
            }
            let path = format!("{path}/");
            if found.len() < MOST_TEXTS {
                for (other, its) in self.find_overlapping(&path) {
                    let (one, other) = (shown(&path, &from), shown(other, its));
                    found.push(format!(
                        "volume {volume} ({called}): overlapping paths: {one} with {other}"
                    ));
                }
            }
            self.count += 1;
            self.paths.entry(path).or_default().push((self.count, from));
        }
    }

    /// Returns the paths above, at and below a path, in the order of the list. Their number has a limit, because the number of warnings has
    /// one.
    fn find_overlapping<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let above = path
            .match_indices('/')
            .map(|(end, _)| end + 1)
            .filter_map(|end| path.get(..end));
        let above = above.filter_map(|above| self.paths.get_key_value(above));
        let below = (Bound::Excluded(path), Bound::Unbounded);
        let below = self
            .paths
            .range::<str, _>(below)
            .take_while(|(below, _)| below.starts_with(path));
        let mut overlapping: Vec<(usize, &str, &str)> = above
            .chain(below)
            .flat_map(|(path, all)| {
                all.iter()
                    .map(move |(place, from)| (*place, path.as_str(), from.as_str()))
            })
            .take(MOST_TEXTS)
            .collect();
        overlapping.sort_unstable();
        overlapping.into_iter().map(|(_, path, from)| (path, from))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list_warnings(paths: &[&str]) -> Vec<String> {
        let paths: Vec<Value> = paths.iter().map(|path| json!({"key": "k", "path": path})).collect();
        let mut found = Vec::new();
        warn_about_files(
            &json!({"name": "v", "configMap": {"name": "c", "items": paths}}),
            &mut found,
        );
        let pairs = found
            .iter()
            .map(|text| text.split_once("overlapping paths: ").expect("a pair").1.to_owned());
        pairs.collect()
    }

    #[test]
    fn overlapping_paths_are_reported_in_list_order() {
        assert_eq!(
            list_warnings(&["b", "a/b/c", "a-b", "a/b/d", "a/b", "", "a/b/c/"]),
            [
                r#""a/b" with "a/b/c""#,
                r#""a/b" with "a/b/d""#,
                r#""a/b/c" with "a/b/c""#,
                r#""a/b/c" with "a/b""#
            ]
        );
    }

    #[test]
    fn many_paths_are_not_compared_with_each_other() {
        let paths: Vec<String> = (0..60_000).map(|index| format!("d{}/f{index}", index % 7)).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        assert!(list_warnings(&paths).is_empty());
        let same = list_warnings(&vec!["same"; 60_000]).len();
        assert!(
            (MOST_TEXTS..2 * MOST_TEXTS).contains(&same),
            "the warnings are longer than a response may be: {same}"
        );
    }
}
