//! Checks of the readers of an index and of a chart's archive.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "a check fails by a panic"
)]

/// Any text as an index. A second reader builds the whole document, and has to find the same versions.
pub mod index {
    use std::sync::atomic::AtomicBool;

    use go_yaml::json::configuration_value;
    use go_yaml::read::{Lines, Source, first_document};
    use go_yaml::scalar::Dialect;
    use serde_json::Value;

    use super::super::index::{choose_version, read_index};

    const CHART: &str = "app";

    pub fn check(bytes: &[u8]) {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let never = AtomicBool::new(false);
        let Ok(index) = read_index(text, Some(CHART), &never) else {
            return;
        };
        // The other charts of an index are not read, but its form is checked.
        assert!(read_index(text, None, &never).is_ok());
        for wanted in ["", "1.x", "1.0.0"] {
            if let Some(versions) = &index.versions
                && let Ok(chosen) = choose_version(CHART, versions, wanted)
            {
                assert!(versions.contains(chosen));
            }
        }
        // An alias stands for other content, which the stream does not follow.
        if text.contains(['*', '<', '!']) {
            return;
        }
        let source = Source {
            file: 0,
            lines: Lines::After(0),
            maximum_nodes: 100_000,
            scanner: Dialect::V2,
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let Ok(Some(node)) = first_document(text, source) else {
            return;
        };
        let Ok(whole) = configuration_value(&node) else { return };
        let listed = whole
            .pointer(&format!("/entries/{CHART}"))
            .filter(|listed| !listed.is_null());
        assert_eq!(index.versions.is_some(), listed.is_some() || has_key(&whole));
        let maps = |listed: &Value| {
            listed
                .as_array()
                .map(|all| all.iter().filter(|one| one.is_object()).count())
        };
        assert_eq!(
            index.versions.map_or(0, |versions| versions.len()),
            listed.and_then(maps).unwrap_or_default()
        );
    }

    fn has_key(whole: &Value) -> bool {
        whole.get("entries").is_some_and(|entries| entries.get(CHART).is_some())
    }

    /// Returns the first inputs: block and flow notation, JSON, and several charts.
    pub fn seeds() -> Vec<Vec<u8>> {
        let digest = "a".repeat(64);
        [
            format!("apiVersion: v1\nentries:\n  app:\n  - version: 1.0.0\n    urls:\n    - app.tgz\n    digest: {digest}\n"),
            "apiVersion: v1\nentries: {app: [{version: 1.0.0, urls: [a], created: \"2024-01-01T00:00:00Z\"}, null]}\n".to_owned(),
            r#"{"apiVersion":"v1","entries":{"other":[{"a":[1,{"b":2}]}],"app":[{"version":"1.2.3"}]},"generated":null}"#.to_owned(),
            "apiVersion: v1\nentries:\n  app: ~\nserverInfo: {}\n".to_owned(),
        ]
        .map(String::into_bytes)
        .to_vec()
    }
}

/// Any bytes as the archive of a chart. Both readers have to agree, and no path leads out of the chart.
pub mod chart {
    use std::sync::atomic::AtomicBool;

    use super::super::archive::{UNPACKED_BYTES, check_archive, read_archive, read_metadata};
    use crate::archive_writer::ArchiveWriter;
    use crate::budget::BudgetLimits;
    use crate::fuzzing::unlimited_charge;
    use crate::limits::Limits;

    pub fn check(bytes: &[u8]) {
        let never = AtomicBool::new(false);
        let checked = check_archive(bytes, &never);
        let Ok(files) = read_archive(bytes, &never, &mut unlimited_charge()) else {
            assert!(checked.is_err(), "one reader refuses the archive");
            return;
        };
        assert_eq!(checked, read_metadata(&files));
        let size: u64 = files.values().map(|file| file.content.len() as u64).sum();
        assert!(size <= UNPACKED_BYTES);
        for path in files.keys() {
            let is_part = |part: &str| !matches!(part, "" | "." | "..");
            assert!(path.split('/').all(is_part) && !path.contains(['\0', '\\']), "{path:?}");
        }
        let Ok(metadata) = checked else { return };
        // A packaged chart is read as the same chart.
        let (limits, trees) = (Limits::default(), BudgetLimits::unlimited("trees"));
        let mut written = Vec::new();
        let packaged =
            super::super::package::write_package(&files, &metadata, &metadata.version, (&mut written, &limits, &trees));
        if packaged.is_ok() {
            let again = read_archive(written.as_slice(), &never, &mut unlimited_charge());
            assert_eq!(again.unwrap(), files);
        }
    }

    /// Returns the first inputs: a chart, one with requirements and a lock, and one that leads elsewhere.
    pub fn seeds() -> Vec<Vec<u8>> {
        let metadata = "apiVersion: v2\nname: app\nversion: 1.0.0\ndependencies: [{name: b, version: 1.x}]\n";
        let lists = "dependencies:\n- {name: b, version: 1.0.0, repository: 'https://b.example'}\n";
        [
            vec![("app/Chart.yaml", metadata), ("app/values.yaml", "a: 1\n")],
            vec![
                ("app/Chart.yaml", "name: app\nversion: v1.2\n"),
                ("app/requirements.yaml", lists),
                ("app/requirements.lock", lists),
            ],
            vec![("app/Chart.yaml", metadata), ("other/Chart.yaml", "x")],
        ]
        .iter()
        .map(|files| pack(files))
        .collect()
    }

    fn pack(files: &[(&str, &str)]) -> Vec<u8> {
        let (limits, trees) = (Limits::default(), BudgetLimits::unlimited("trees"));
        let mut bytes = Vec::new();
        let mut archive = ArchiveWriter::new(&mut bytes, &limits, &trees);
        for (path, content) in files {
            let content = content.as_bytes();
            let _ = archive.add_file(path, false, (content.len() as u64, content));
        }
        let _ = archive.finish();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{chart, index};
    use crate::fuzzing::check_around;

    #[test]
    fn mutated_indexes_are_read_as_by_a_second_reader() {
        check_around(&index::seeds(), index::check);
    }

    #[test]
    fn mutated_charts_are_read_alike_by_both_readers() {
        check_around(&chart::seeds(), chart::check);
    }
}
