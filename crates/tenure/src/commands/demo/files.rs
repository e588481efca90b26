//! The demo's repositories, from the folder `demo` of this crate, where readers find them as files.

/// A file of a repository: path and text.
pub(super) type File = (&'static str, &'static str);

/// Files below one folder of `demo`.
macro_rules! files {
    ($folder:literal: $($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/demo/", $folder, "/", $path)))),*]
    };
}

/// The initial repository of the administrators: tenants alpha and beta.
pub(super) const PLATFORM: &[File] = files!("platform":
    "tenants/kustomization.yaml",
    "tenants/alpha/kustomization.yaml",
    "tenants/alpha/tenant.yaml",
    "tenants/alpha/namespaces.yaml",
    "tenants/alpha/surface.yaml",
    "tenants/beta/kustomization.yaml",
    "tenants/beta/tenant.yaml",
    "tenants/beta/namespaces.yaml",
    "tenants/beta/surface.yaml",
);

/// The files of a later commit: tenant evil.
pub(super) const PLATFORM_EVIL: &[File] = files!("platform":
    "tenants/evil/kustomization.yaml",
    "tenants/evil/cluster-role.yaml",
    "tenants/evil/binding-right.yaml",
    "tenants/evil/tenant.yaml",
    "tenants/evil/namespaces.yaml",
    "tenants/evil/surface.yaml",
);

/// Alpha's application: a base and two overlays.
pub(super) const ALPHA: &[File] = files!("alpha":
    "base/kustomization.yaml",
    "base/deployment.yaml",
    "base/service.yaml",
    "overlays/production/kustomization.yaml",
    "overlays/production/banner.yaml",
    "overlays/staging/kustomization.yaml",
);

/// Beta's application: a base and an overlay.
pub(super) const BETA: &[File] = files!("beta":
    "base/kustomization.yaml",
    "base/deployment.yaml",
    "base/service.yaml",
    "overlays/production/kustomization.yaml",
);

/// Evil's repository: an application, and the attempts.
pub(super) const EVIL: &[File] = files!("evil":
    "app/kustomization.yaml",
    "app/deployment.yaml",
    "escapes/base/kustomization.yaml",
    "escapes/base/config-map.yaml",
    "escapes/own/path/kustomization.yaml",
    "escapes/own/foreign-service-account/kustomization.yaml",
    "escapes/own/cross-namespace-source/kustomization.yaml",
    "escapes/own/target-namespace/kustomization.yaml",
    "escapes/own/depends-on/kustomization.yaml",
    "escapes/own/chosen-identity/kustomization.yaml",
    "escapes/other-namespace/attempt/config-map.yaml",
    "escapes/other-namespace/control/config-map.yaml",
    "escapes/cluster-role/attempt/cluster-role.yaml",
    "escapes/cluster-role/control/role.yaml",
    "escapes/rbac-escalation/attempt/role-binding.yaml",
    "escapes/rbac-escalation/control/rbac.yaml",
    "escapes/remote-base/attempt/kustomization.yaml",
    "escapes/remote-base/control/kustomization.yaml",
    "escapes/symlink/attempt/kustomization.yaml",
    "escapes/symlink/control/kustomization.yaml",
    "escapes/symlink/control/own.txt",
    "escapes/dot-dot/attempt/kustomization.yaml",
    "escapes/dot-dot/control/kustomization.yaml",
);

/// Evil's symbolic links: path and target. The target of the second one is inside.
pub(super) const EVIL_LINKS: &[File] = &[
    ("escapes/symlink/attempt/linked.txt", "/etc/passwd"),
    ("escapes/symlink/control/linked.txt", "own.txt"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in the folder that no list names would silently be missing in the demo.
    #[test]
    fn every_file_of_the_folder_is_in_a_list() {
        fn list_files(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
            for entry in std::fs::read_dir(folder).expect("folder") {
                let path = entry.expect("entry").path();
                if path.is_dir() {
                    list_files(&path, found)
                } else {
                    found.push(path)
                }
            }
        }
        let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("demo");
        for (folder, lists) in [
            ("platform", vec![PLATFORM, PLATFORM_EVIL]),
            ("alpha", vec![ALPHA]),
            ("beta", vec![BETA]),
            ("evil", vec![EVIL]),
        ] {
            let mut found = Vec::new();
            list_files(&demo.join(folder), &mut found);
            let listed: Vec<_> = lists
                .iter()
                .flat_map(|list| list.iter())
                .map(|(path, _)| demo.join(folder).join(path))
                .collect();
            for path in &found {
                assert!(listed.contains(path), "{} is in no list", path.display());
            }
            assert_eq!(found.len(), listed.len(), "{folder}");
        }
    }
}
