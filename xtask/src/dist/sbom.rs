//! Writes the components of the program, as CycloneDX 1.6 in JSON: every linked crate with its version, license and checksum, and the dependencies between them. Reads
//! `cargo metadata`. Crates that only builds or tests use are left out. The file has no time and no random number, so the same tree gives the same file.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::tidy;

/// The program's own crate.
const ROOT: &str = "tenure";

/// Writes the file for a target.
pub(crate) fn write_sbom(target: &str) -> Result<String> {
    let output = Command::new("cargo")
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            target,
        ])
        .current_dir(tidy::find_root())
        .output()?;
    ensure!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lock = std::fs::read_to_string(tidy::find_root().join("Cargo.lock"))?;
    let document = describe_packages(&serde_json::from_slice(&output.stdout)?, &read_checksums(&lock))?;
    Ok(format!("{document:#}\n"))
}

/// Reads the checksums of a lock file, by name and version.
fn read_checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut checksums = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let field = |name: &str| {
            let value = |line: &str| {
                line.strip_prefix(name)?
                    .strip_prefix(" = \"")?
                    .strip_suffix('"')
                    .map(str::to_owned)
            };
            package.lines().find_map(value)
        };
        if let (Some(name), Some(version), Some(checksum)) = (field("name"), field("version"), field("checksum")) {
            checksums.insert((name, version), checksum);
        }
    }
    checksums
}

fn describe_packages(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let list = |pointer: &str| {
        metadata
            .pointer(pointer)
            .and_then(Value::as_array)
            .context("cargo metadata: a list is missing")
    };
    let packages: BTreeMap<&str, &Value> = list("/packages")?
        .iter()
        .filter_map(|package| Some((package.get("id")?.as_str()?, package)))
        .collect();
    let needs: BTreeMap<&str, BTreeSet<&str>> = list("/resolve/nodes")?
        .iter()
        .filter_map(|node| Some((node.get("id")?.as_str()?, list_linked(node))))
        .collect();
    let root = packages.iter().find(|(_, package)| read_text(package, "name") == ROOT);
    let (root, program) = root.context("cargo metadata: there is no program")?;
    let mut linked = BTreeSet::from([*root]);
    let mut next = vec![*root];
    while let Some(id) = next.pop() {
        for needed in needs.get(id).into_iter().flatten() {
            if linked.insert(needed) {
                next.push(needed);
            }
        }
    }
    let reference = |id: &str| {
        packages
            .get(id)
            .map_or_else(String::new, |package| write_reference(package))
    };
    let mut components: Vec<Value> = linked
        .iter()
        .filter(|id| *id != root)
        .filter_map(|id| packages.get(id))
        .map(|package| describe_component(package, "library", checksums))
        .collect();
    components.sort_by_key(|component| read_text(component, "bom-ref").to_owned());
    let mut dependencies: Vec<Value> = linked
        .iter()
        .map(|id| {
            let mut on: Vec<String> = needs.get(id).into_iter().flatten().map(|id| reference(id)).collect();
            on.sort();
            json!({"ref": reference(id), "dependsOn": on})
        })
        .collect();
    dependencies.sort_by_key(|dependency| read_text(dependency, "ref").to_owned());
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": describe_component(program, "application", checksums)},
        "components": components, "dependencies": dependencies
    }))
}

/// Lists the crates that a crate is linked with: without dependencies of its build script, its tests and its macros.
fn list_linked(node: &Value) -> BTreeSet<&str> {
    let dependencies = node
        .get("deps")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let is_linked = |dependency: &&Value| {
        let kinds = dependency.get("dep_kinds").and_then(Value::as_array);
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind.get("kind").is_none_or(Value::is_null)))
    };
    dependencies
        .iter()
        .filter(is_linked)
        .filter_map(|dependency| dependency.get("pkg")?.as_str())
        .collect()
}

fn describe_component(package: &Value, kind: &str, checksums: &BTreeMap<(String, String), String>) -> Value {
    let (name, version) = (read_text(package, "name"), read_text(package, "version"));
    let reference = write_reference(package);
    let mut component =
        json!({"type": kind, "bom-ref": reference, "name": name, "version": version, "purl": reference});
    if let Some(fields) = component.as_object_mut() {
        let license = read_text(package, "license");
        if !license.is_empty() {
            // Older crates write a slash in place of OR.
            fields.insert(
                "licenses".to_owned(),
                json!([{"expression": license.replace('/', " OR ")}]),
            );
        }
        if let Some(checksum) = checksums.get(&(name.to_owned(), version.to_owned())) {
            fields.insert("hashes".to_owned(), json!([{"alg": "SHA-256", "content": checksum}]));
        }
    }
    component
}

fn write_reference(package: &Value) -> String {
    format!(
        "pkg:cargo/{}@{}",
        read_text(package, "name"),
        read_text(package, "version").replace('+', "%2B")
    )
}

fn read_text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str) -> Value {
        json!({"id": name, "name": name, "version": "1.0.0+x", "license": "MIT/Apache-2.0"})
    }

    #[test]
    fn sbom_names_only_linked_packages() -> Result<()> {
        let depends = |on: &str, kind: Value| json!({"pkg": on, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("tenure"), package("linked"), package("below"), package("builds"), package("tests"), package("stranger")],
            "resolve": {"nodes": [
                {"id": "tenure", "deps": [depends("linked", Value::Null), depends("builds", json!("build")), depends("tests", json!("dev"))]},
                {"id": "linked", "deps": [depends("below", Value::Null)]},
                {"id": "below", "deps": []}
            ]}
        });
        let lock = "[[package]]\nname = \"below\"\nversion = \"1.0.0+x\"\nchecksum = \"abc\"\n\n[[package]]\nname = \"linked\"\nversion = \"1.0.0+x\"\n";
        let document = describe_packages(&metadata, &read_checksums(lock))?;
        assert_eq!(document["bomFormat"], "CycloneDX");
        assert_eq!(document["metadata"]["component"]["name"], "tenure");
        let names: Vec<&str> = document["components"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|part| read_text(part, "name"))
            .collect();
        assert_eq!(names, ["below", "linked"]);
        assert_eq!(document["components"][0]["purl"], "pkg:cargo/below@1.0.0%2Bx");
        assert_eq!(
            document["components"][0]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        assert_eq!(document["components"][0]["hashes"][0]["content"], "abc");
        assert!(document["components"][1].get("hashes").is_none());
        let references: Vec<&str> = document["dependencies"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|part| read_text(part, "ref"))
            .collect();
        assert_eq!(references.len(), 3);
        assert_eq!(
            document["dependencies"][1]["dependsOn"],
            json!(["pkg:cargo/below@1.0.0%2Bx"])
        );
        Ok(())
    }

    /// Every linked crate of a registry has a checksum and a license, so that a scanner can look both up.
    #[test]
    fn the_program_itself_can_be_described() -> Result<()> {
        let document: Value = serde_json::from_str(&write_sbom("x86_64-unknown-linux-gnu")?)?;
        let components = document["components"].as_array().cloned().unwrap_or_default();
        assert!(components.len() > 100, "{}", components.len());
        for name in ["ring", "kube-client", "kustomize"] {
            assert!(components.iter().any(|part| read_text(part, "name") == name), "{name}");
        }
        for part in &components {
            assert!(part.get("licenses").is_some(), "{part}");
        }
        assert!(
            !components
                .iter()
                .any(|part| read_text(part, "name") == "tenure-testkit")
        );
        Ok(())
    }
}
