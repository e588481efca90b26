//! The chart of a release: the files of `deploy/chart` with the image of the release as a default, as an archive and as an artifact of a registry. Pure.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::archive::{self, Entry};
use super::oci::{Layout, MANIFEST};
use super::origin::Origin;

/// Helm's media types.
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// The line of `values.yaml` for the image.
const NO_IMAGE: &str = "\nimage: \"\"\n";

/// Packs the files of the chart, by their path in its folder.
pub(super) fn pack_chart(files: &BTreeMap<String, String>, image: &str, origin: &Origin) -> Result<Vec<u8>> {
    let mut entries = Vec::new();
    for (path, text) in files {
        let text = match path.as_str() {
            "values.yaml" => {
                ensure!(
                    text.matches(NO_IMAGE).count() == 1,
                    "values.yaml has no line for the image"
                );
                text.replace(NO_IMAGE, &format!("\nimage: {image:?}\n"))
            }
            _ => text.clone(),
        };
        entries.push(Entry::file(format!("tenure/{path}"), 0o644, text));
    }
    // Helm reads the description of the chart first.
    entries.sort_by_key(|entry| entry.path != "tenure/Chart.yaml");
    archive::pack_compressed(&entries, origin.time)
}

/// Adds the packed chart to a layout, and returns its descriptor.
pub(super) fn add_chart(layout: &mut Layout, description: &str, packed: Vec<u8>, origin: &Origin) -> Result<Value> {
    let fields = read_fields(description)?;
    let text = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let annotations = json!({
        "org.opencontainers.image.created": origin.created,
        "org.opencontainers.image.description": text("description"),
        "org.opencontainers.image.revision": origin.commit,
        "org.opencontainers.image.source": origin.repository,
        "org.opencontainers.image.title": text("name"),
        "org.opencontainers.image.version": text("version"),
    });
    ensure!(
        text("version") == origin.version(),
        "the chart has version {}, and the release {}: run cargo xtask generate",
        text("version"),
        origin.version()
    );
    let config = layout.add_json(CONFIG, &Value::Object(fields));
    let content = layout.add(CONTENT, packed);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [content], "annotations": annotations
    });
    Ok(layout.add_json(MANIFEST, &manifest))
}

/// Reads `Chart.yaml`, which holds texts alone.
fn read_fields(description: &str) -> Result<Map<String, Value>> {
    let lines = description
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let fields = lines.map(|line| {
        let (name, value) = line
            .split_once(": ")
            .with_context(|| format!("Chart.yaml: {line:?} is no field"))?;
        Ok((name.to_owned(), Value::from(value.trim_matches('"'))))
    });
    fields.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIPTION: &str =
        "# Generated.\napiVersion: v2\nname: tenure\nversion: 0.1.0\nkubeVersion: \">=1.28.0-0\"\n";

    fn files() -> BTreeMap<String, String> {
        let files = [
            ("Chart.yaml", DESCRIPTION),
            ("crds/a.yaml", "a"),
            ("values.yaml", "# The image.\nimage: \"\"\nreplicas: 2\n"),
        ];
        files.map(|(path, text)| (path.to_owned(), text.to_owned())).into()
    }

    #[test]
    fn a_chart_names_the_image_of_its_release() -> Result<()> {
        use std::io::Read as _;
        let packed = pack_chart(&files(), "reg.example/tenure:0.1.0@sha256:a", &Origin::any())?;
        assert_eq!(
            packed,
            pack_chart(&files(), "reg.example/tenure:0.1.0@sha256:a", &Origin::any())?
        );
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let mut read = Vec::new();
        for entry in archive.entries()? {
            let mut entry = entry?;
            let mut text = String::new();
            entry.read_to_string(&mut text)?;
            read.push((entry.path()?.display().to_string(), text));
        }
        let paths: Vec<&str> = read.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["tenure/Chart.yaml", "tenure/crds/a.yaml", "tenure/values.yaml"]);
        assert_eq!(
            read[2].1,
            "# The image.\nimage: \"reg.example/tenure:0.1.0@sha256:a\"\nreplicas: 2\n"
        );
        let without = BTreeMap::from([("values.yaml".to_owned(), "replicas: 2\n".to_owned())]);
        assert!(pack_chart(&without, "a", &Origin::any()).is_err());
        Ok(())
    }

    #[test]
    fn a_registry_has_the_chart_as_helm_pushes_it() -> Result<()> {
        let mut layout = Layout::default();
        let root = add_chart(&mut layout, DESCRIPTION, b"packed".to_vec(), &Origin::any())?;
        let manifest = layout.read_json(&root);
        assert_eq!(manifest["layers"][0]["mediaType"], CONTENT);
        let config = json!({ "apiVersion": "v2", "name": "tenure", "version": "0.1.0", "kubeVersion": ">=1.28.0-0" });
        assert_eq!(layout.read_json(&manifest["config"]), config);
        let other = Origin {
            tag: "v0.2.0".to_owned(),
            ..Origin::any()
        };
        let problem = add_chart(&mut layout, DESCRIPTION, Vec::new(), &other).map_err(|error| error.to_string());
        assert!(problem.is_err_and(|problem| problem.contains("cargo xtask generate")));
        Ok(())
    }
}
