//! The content of a hostile tenant's repositories: small to send and expensive to use.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context, bail};
use tenure_git_server::Repository;

/// ConfigMaps that one Kustomization applies and another writer fills.
pub(super) const FILLED_MAPS: usize = 10;

/// Packs a repository once, each file as a delta of the previous one. Otherwise the Git server, on the same machine, would pack for every fetch, and this would be
/// measured.
pub(super) async fn pack_repository(repository: &Repository) -> anyhow::Result<()> {
    let status = tokio::process::Command::new("git")
        .arg("-C")
        .arg(repository.folder())
        .args(["repack", "-a", "-d", "-f", "-q", "--window=1", "--depth=1000"])
        .stdin(Stdio::null())
        .status()
        .await
        .context("git repack")?;
    if !status.success() {
        bail!("git repack: {status}");
    }
    Ok(())
}

/// Makes a replacement that copies 900 KB into 12,000 fields.
pub(super) fn copy_into_every_field() -> BTreeMap<String, Vec<u8>> {
    let source = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: source\ndata:\n  value: \"{}\"\n",
        "x".repeat(900 << 10)
    );
    let fields: String = (0..12_000)
        .map(|number| format!("    - name: n{number}\n      value: a\n"))
        .collect();
    let target =
        format!("apiVersion: example.com/v1\nkind: Target\nmetadata:\n  name: target\nspec:\n  fields:\n{fields}");
    let kustomization = "resources: [source.yaml, target.yaml]\nreplacements:\n  - source: {kind: ConfigMap, name: source, fieldPath: data.value}\n    \
                         targets:\n      - select: {kind: Target}\n        fieldPaths: [spec.fields.*.value]\n";
    [
        ("kustomization.yaml", kustomization.to_owned()),
        ("source.yaml", source),
        ("target.yaml", target),
    ]
    .into_iter()
    .map(|(path, text)| (path.to_owned(), text.into_bytes()))
    .collect()
}

/// Makes one object that the API server refuses: a number in place of a text.
pub(super) fn make_refused(number: usize) -> BTreeMap<String, Vec<u8>> {
    let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: refused-{number}\ndata:\n  port: 80\n");
    [(format!("{number}/app.yaml"), text.into_bytes())]
        .into_iter()
        .collect()
}

/// Makes one small object.
pub(super) fn make_small() -> BTreeMap<String, Vec<u8>> {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: small\ndata:\n  a: b\n";
    BTreeMap::from([("app.yaml".to_owned(), text.into())])
}

/// Makes ConfigMaps with one entry each, with the names that [`super::loads`] fills.
pub(super) fn small_maps(number: usize) -> BTreeMap<String, Vec<u8>> {
    let map = |map: usize| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: filled-{number}-{map}\ndata:\n  from: git\n")
    };
    let maps: Vec<String> = (0..FILLED_MAPS).map(map).collect();
    [(format!("{number}/app.yaml"), maps.join("---\n").into_bytes())]
        .into_iter()
        .collect()
}

/// Makes a claim that never becomes healthy: no controller writes its status.
pub(super) fn never_ready(number: usize) -> BTreeMap<String, Vec<u8>> {
    let text = format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: claim-{number}\nspec:\n  accessModes: [ReadWriteOnce]\n  \
         resources:\n    requests:\n      storage: 1Gi\n"
    );
    [(format!("{number}/app.yaml"), text.into_bytes())]
        .into_iter()
        .collect()
}

/// Makes files of zeros: tiny to send, and 180 MB in memory, which exceeds a tenant's limit, or 60 MB, which doesn't. The number makes repositories differ.
pub(super) fn make_zeros(number: usize) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for file in 0..(if number.is_multiple_of(2) { 3 } else { 1 }) {
        let mut content = vec![b'0'; 60 << 20];
        if let Some(first) = content.first_mut() {
            *first = b'a' + u8::try_from(file).unwrap_or_default();
        }
        files.insert(format!("zeros-{number}-{file}.txt"), content);
    }
    files.insert(
        "kustomization.yaml".to_owned(),
        b"configMapGenerator:\n  - name: small\n    literals: [a=b]\n".to_vec(),
    );
    files
}

/// Makes files that differ in a few bytes each, which Git stores as a chain of deltas: small to send, gigabytes to resolve.
pub(super) fn make_chain(batch: usize) -> BTreeMap<String, Vec<u8>> {
    (0..30)
        .map(|number| {
            let mut content = vec![b'0'; 8 << 20];
            content.extend_from_slice(format!("{batch}-{number}").as_bytes());
            (format!("chained-{batch}-{number}.txt"), content)
        })
        .collect()
}
