//! The page *Why is it not applied?* against the list of reasons in the code: each reason that reports a problem has its row.

use std::collections::BTreeSet;

/// The reasons that report no problem, or only begin an event.
const NO_PROBLEM: [&str; 20] = [
    "Accepted",
    "ArtifactUpToDate",
    "ChartPackageSucceeded",
    "ChartPullSucceeded",
    "Exclusive",
    "FluxReplaced",
    "GitOperationSucceeded",
    "InForce",
    "Merged",
    "MetadataAppendFailed",
    "NewArtifact",
    "NewRevision",
    "NotificationDispatchFailed",
    "OtherCluster",
    "OwnersThere",
    "Progressing",
    "ProgressingWithRetry",
    "ReconciliationSucceeded",
    "Recorded",
    "TakenOver",
];

#[test]
fn each_reason_leads_to_a_remedy() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).unwrap();
    let code = read("crates/api/src/reason.rs") + &read("crates/api/src/reason/packages.rs");
    let values = code.lines().filter(|line| line.starts_with("pub const "));
    let reasons: BTreeSet<&str> = values.filter_map(|line| line.split('"').nth(1)).collect();
    assert!(reasons.len() > 50, "{reasons:?}");
    let page = read("docs/howto/why-is-it-not-applied.md");
    // The first cell of a row has the reasons, and the section about a missing controller begins with one.
    let cells = page
        .lines()
        .filter(|line| line.starts_with("| `") || line.starts_with("`NoController`"));
    let first_cells = cells.filter_map(|line| line.trim_start_matches('|').split(['|', ':']).next());
    let named: BTreeSet<&str> = first_cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|word| !["True", "Unknown", "False"].contains(word))
        .collect();
    let no_problem: BTreeSet<&str> = NO_PROBLEM.into();
    // A reason that isn't used any more leaves the list, too.
    assert!(no_problem.is_subset(&reasons), "{:?}", &no_problem - &reasons);
    let expected = &(&reasons - &no_problem) - &BTreeSet::from(["Succeeded"]);
    assert_eq!(&expected - &named, BTreeSet::new(), "reasons without a row");
    assert_eq!(&named - &expected, BTreeSet::new(), "rows without a reason in the code");
}
