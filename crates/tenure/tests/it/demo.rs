//! The demo, as CI and a new user run it.

use crate::process::tenure;

/// Every step holds, and nothing stays behind without a named folder.
#[test]
fn the_whole_story_holds() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("demo");
    let output = tenure(&["demo", "--once", "--data", data.to_str().unwrap()])
        .output()
        .unwrap();
    let account = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{account}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        account.matches("denied; the control succeeds").count() >= 8,
        "{account}"
    );
    assert!(!account.contains("NOT SEEN"), "{account}");
    let kubeconfig = data.join("data/kubeconfig");
    assert!(
        kubeconfig.exists(),
        "{} is what the account names",
        kubeconfig.display()
    );
}

/// The rules for writes: every step holds, and each denial names its reason.
#[test]
fn the_story_of_tenancy_holds() {
    let output = tenure(&["demo", "tenancy", "--once"]).output().unwrap();
    let account = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{account}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for rule in [
        "namespace-membership",
        "namespace-options",
        "container-registries",
        "git-managed",
        "field-ownership",
    ] {
        assert!(account.contains(&format!("({rule})")), "{rule}: {account}");
    }
    assert!(!account.contains("NOT SEEN"), "{account}");
}

/// Access to a private project: every step holds, and no value of a credential is printed.
#[test]
fn the_story_of_access_holds() {
    let output = tenure(&["demo", "access", "--once"]).output().unwrap();
    let account = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{account}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for words in ["(access)", "it has cloned", "runs on", "payments/ledger"] {
        assert!(account.contains(words), "{words}: {account}");
    }
    assert!(!account.contains("NOT SEEN"), "{account}");
    for value in ["gldt-", "glpat-"] {
        assert!(!account.contains(value), "{account}");
    }
}

/// A Package of a platform's chart: every step holds, also with helm-controller if `TENURE_BESIDE` names a folder with it.
#[test]
fn the_story_of_packages_holds() {
    let beside =
        std::env::var_os("TENURE_BESIDE").map(|folder| std::path::PathBuf::from(folder).join("helm-controller"));
    let beside = beside.filter(|program| program.exists());
    for program in [None, beside] {
        let mut command = tenure(&["demo", "packages", "--once"]);
        if let Some(program) = &program {
            command.arg("--helm-controller").arg(program);
        }
        let output = command.output().unwrap();
        let account = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{account}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        for words in [
            "VariantNotFound",
            "would apply them again",
            "recovered",
            "allow-deletion",
        ] {
            assert!(account.contains(words), "{words}: {account}");
        }
        assert!(!account.contains("NOT SEEN"), "{account}");
    }
    crate::process::fails(&["demo", "--helm-controller", "x"], 2, &["only the story packages"]);
    let nothing = [
        "demo",
        "packages",
        "--once",
        "--helm-controller",
        "/nonexistent/program",
    ];
    crate::process::fails(&nothing, 3, &["--helm-controller /nonexistent/program"]);
}

/// A folder with files belongs to the user.
#[test]
fn the_demo_does_not_touch_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine"), "mine").unwrap();
    crate::process::fails(
        &["demo", "--once", "--data", folder.path().to_str().unwrap()],
        2,
        &["is not empty", "hint:"],
    );
}
