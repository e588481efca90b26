//! Every rule for writes, as a table: `tests/admission.yaml`, a trial for each case.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod admission;
mod coverage;
#[allow(dead_code, reason = "the tests of the admission points use the rest of it")]
mod table;

use std::process::ExitCode;
use std::sync::Arc;

use tenure_trials::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::default();
    let table: table::Table = serde_saphyr::from_str(include_str!("../admission.yaml")).unwrap();
    let table = Arc::new(table);
    let cases = (0..table.cases.len()).filter_map(|index| {
        let name = table.cases.get(index).map(|case| case.name(index))?;
        let table = Arc::clone(&table);
        Some((name, move || {
            table.cases.get(index).map_or(Ok(()), |case| table.check(case))
        }))
    });
    let cases: Vec<_> = cases.collect();
    // The table only grows.
    suite.add("admission", 155, cases);
    suite.add("coverage", coverage::COMBINATIONS, coverage::list(&table));
    suite.add("operations", coverage::TRIED, coverage::list_operations(&table));
    // Each attack that admission meets has its control.
    suite.add("controls", 300, coverage::list_controls(&table));
    suite.run()
}
