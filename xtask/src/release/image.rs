//! The container image, made without a daemon: the authorities and the program, for each platform, with its components and its origin as statements beside it. Pure.
//!
//! The statements are stored as BuildKit stores them: a manifest for each platform in the same index, which no runtime takes for an image.

use anyhow::Result;
use serde_json::{Value, json};
use tenure_api::workload;

use super::archive::{self, Entry};
use super::oci::{CONFIG, INDEX, LAYER, Layout, MANIFEST, digest_of, make_digest};
use super::origin::Origin;

/// The media type of a statement.
const STATEMENT: &str = "application/vnd.in-toto+json";
/// The types of statements: the components of the program, and its origin.
const COMPONENTS: &str = "https://cyclonedx.org/bom";
const PROVENANCE: &str = "https://slsa.dev/provenance/v1";
/// Description of the image, for lists of images.
const DESCRIPTION: &str = "Git reconciled into Kubernetes as somebody.";

/// The program for one processor, with the list of its components, for the image.
#[derive(Debug, Clone)]
pub(super) struct PlatformProgram {
    /// The processor, as images name it: `amd64` or `arm64`.
    pub(super) architecture: String,
    pub(super) program: Vec<u8>,
    /// The components of the program, as CycloneDX writes them.
    pub(super) components: Value,
}

/// Adds the image for all platforms to a layout, and returns its descriptor.
pub(super) fn add_image(
    layout: &mut Layout,
    builds: &[PlatformProgram],
    authorities: &[u8],
    origin: &Origin,
) -> Result<Value> {
    let mut manifests = Vec::new();
    let mut statements = Vec::new();
    for build in builds {
        let manifest = add_platform(layout, build, authorities, origin)?;
        statements.push(add_statements(layout, build, &manifest, origin));
        manifests.push(manifest);
    }
    manifests.extend(statements);
    let index = json!({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": describe(origin)
    });
    Ok(layout.add_json(INDEX, &index))
}

/// Returns the annotations of an image.
fn describe(origin: &Origin) -> Value {
    json!({
        "org.opencontainers.image.created": origin.created,
        "org.opencontainers.image.description": DESCRIPTION,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.revision": origin.commit,
        "org.opencontainers.image.source": origin.repository,
        "org.opencontainers.image.title": "tenure",
        "org.opencontainers.image.version": origin.version(),
    })
}

fn add_platform(layout: &mut Layout, build: &PlatformProgram, authorities: &[u8], origin: &Origin) -> Result<Value> {
    let program = workload::PROGRAM.trim_start_matches('/');
    let layers = [
        (
            "the authorities that sources are trusted by",
            vec![
                Entry::folder("etc"),
                Entry::folder("etc/ssl"),
                Entry::folder("etc/ssl/certs"),
                Entry::file("etc/ssl/certs/ca-certificates.crt", 0o444, authorities),
            ],
        ),
        (
            "the program",
            vec![Entry::file(program, 0o555, build.program.as_slice())],
        ),
    ];
    let (mut descriptors, mut contents, mut history) = (Vec::new(), Vec::new(), Vec::new());
    for (comment, entries) in layers {
        let packed = archive::pack_entries(&entries, origin.time)?;
        contents.push(make_digest(&packed));
        descriptors.push(layout.add(LAYER, archive::compress_bytes(&packed)?));
        history.push(json!({ "created": origin.created, "created_by": "cargo xtask release", "comment": comment }));
    }
    let config = json!({
        "created": origin.created, "architecture": build.architecture, "os": "linux",
        "config": {
            "User": format!("{0}:{0}", workload::USER), "Entrypoint": [workload::PROGRAM], "Cmd": ["--help"], "WorkingDir": "/",
            "Labels": describe(origin)
        },
        "rootfs": { "type": "layers", "diff_ids": contents }, "history": history
    });
    let config = layout.add_json(CONFIG, &config);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": descriptors, "annotations": describe(origin)
    });
    let mut descriptor = layout.add_json(MANIFEST, &manifest);
    set_field(
        &mut descriptor,
        "platform",
        json!({ "architecture": build.architecture, "os": "linux" }),
    );
    Ok(descriptor)
}

/// Adds the statements about the image of a platform.
fn add_statements(layout: &mut Layout, build: &PlatformProgram, manifest: &Value, origin: &Origin) -> Value {
    let digest = digest_of(manifest);
    let name = format!(
        "pkg:docker/tenure@{}?platform=linux%2F{}",
        origin.version(),
        build.architecture
    );
    let subject = json!([{ "name": name, "digest": { "sha256": digest.trim_start_matches("sha256:") } }]);
    let (mut layers, mut contents) = (Vec::new(), Vec::new());
    for (kind, predicate) in [(COMPONENTS, &build.components), (PROVENANCE, &describe_origin(origin))] {
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicateType": kind, "predicate": predicate
        });
        let mut layer = layout.add_json(STATEMENT, &statement);
        contents.push(digest_of(&layer).to_owned());
        set_field(&mut layer, "annotations", json!({ "in-toto.io/predicate-type": kind }));
        layers.push(layer);
    }
    let config = json!({
        "architecture": "unknown", "os": "unknown", "config": {}, "rootfs": { "type": "layers", "diff_ids": contents }
    });
    let config = layout.add_json(CONFIG, &config);
    let document = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
    let mut descriptor = layout.add_json(MANIFEST, &document);
    set_field(
        &mut descriptor,
        "platform",
        json!({ "architecture": "unknown", "os": "unknown" }),
    );
    let about = json!({ "vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": digest });
    set_field(&mut descriptor, "annotations", about);
    descriptor
}

/// Describes the origin as SLSA does. It has no number of a run, so a second build of a commit has the same digest.
fn describe_origin(origin: &Origin) -> Value {
    let Origin {
        repository,
        tag,
        commit,
        builder,
        ..
    } = origin;
    json!({
        "buildDefinition": {
            "buildType": format!("{repository}/blob/{tag}/CONTRIBUTING.md#make-a-release"),
            "externalParameters": { "repository": repository, "ref": format!("refs/tags/{tag}") },
            "resolvedDependencies": [{ "uri": format!("git+{repository}@refs/tags/{tag}"), "digest": { "gitCommit": commit } }]
        },
        "runDetails": { "builder": { "id": builder } }
    })
}

fn set_field(descriptor: &mut Value, field: &str, value: Value) {
    if let Some(fields) = descriptor.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

/// Returns the name of a target's processor in images.
pub(super) fn name_architecture(target: &str) -> Result<&'static str> {
    match target.split('-').next() {
        Some("x86_64") => Ok("amd64"),
        Some("aarch64") => Ok("arm64"),
        _ => anyhow::bail!("{target}: images are made for x86_64 and aarch64 alone"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A build with a tiny program.
    pub(in crate::release) fn tiny(architecture: &str) -> PlatformProgram {
        PlatformProgram {
            architecture: architecture.to_owned(),
            program: format!("#!/bin/sh\necho {architecture}\n").into_bytes(),
            components: json!({ "bomFormat": "CycloneDX", "components": [] }),
        }
    }

    fn make() -> Result<(Layout, Value)> {
        let mut layout = Layout::default();
        let root = add_image(
            &mut layout,
            &[tiny("amd64"), tiny("arm64")],
            b"authorities",
            &Origin::any(),
        )?;
        Ok((layout, root))
    }

    #[test]
    fn the_same_input_has_the_same_digest() -> Result<()> {
        assert_eq!(make()?, make()?);
        let other = Origin {
            commit: "f".repeat(40),
            ..Origin::any()
        };
        let mut layout = Layout::default();
        let root = add_image(&mut layout, &[tiny("amd64"), tiny("arm64")], b"authorities", &other)?;
        assert_ne!(make()?.1, root);
        Ok(())
    }

    #[test]
    fn each_platform_has_its_image_and_its_statements() -> Result<()> {
        let (layout, root) = make()?;
        let index = layout.read_json(&root);
        let manifests = index["manifests"].as_array().cloned().unwrap_or_default();
        assert_eq!(manifests.len(), 4);
        for (number, architecture) in [(0, "amd64"), (1, "arm64")] {
            let descriptor = &manifests[number];
            assert_eq!(
                descriptor["platform"],
                json!({ "architecture": architecture, "os": "linux" })
            );
            let manifest = layout.read_json(descriptor);
            let config = layout.read_json(&manifest["config"]);
            assert_eq!(config["architecture"], architecture);
            assert_eq!(config["config"]["User"], "65532:65532");
            assert_eq!(config["config"]["Entrypoint"], json!(["/tenure"]));
            assert_eq!(config["rootfs"]["diff_ids"].as_array().map(Vec::len), Some(2));
            let about = &manifests[number + 2];
            assert_eq!(
                about["annotations"]["vnd.docker.reference.digest"],
                descriptor["digest"]
            );
            assert_eq!(about["platform"]["os"], "unknown");
            let statements: Vec<Value> = layout.read_json(about)["layers"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|layer| layout.read_json(layer))
                .collect();
            let kinds: Vec<&Value> = statements.iter().map(|statement| &statement["predicateType"]).collect();
            assert_eq!(kinds, [COMPONENTS, PROVENANCE]);
            for statement in &statements {
                let subject = statement["subject"][0]["digest"]["sha256"].as_str().unwrap_or_default();
                assert_eq!(format!("sha256:{subject}"), digest_of(descriptor));
            }
            let commit =
                &statements[1]["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"]["gitCommit"];
            assert_eq!(*commit, Origin::any().commit.as_str());
        }
        Ok(())
    }

    #[test]
    fn a_target_has_a_processor_of_images() {
        assert_eq!(name_architecture("aarch64-unknown-linux-musl").ok(), Some("arm64"));
        assert_eq!(name_architecture("x86_64-unknown-linux-gnu").ok(), Some("amd64"));
        assert!(name_architecture("riscv64gc-unknown-linux-gnu").is_err());
    }
}
