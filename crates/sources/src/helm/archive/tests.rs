//! Charts of `helm package` are read, and archives that reach elsewhere or expand without end are refused.

use std::io::Write as _;
use std::sync::atomic::AtomicBool;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use super::{ArchiveError, FILE_BYTES, check_archive, read_archive, read_metadata};
use crate::budget::{BudgetLimits, ByteBudget};
use crate::fetch_budgets::GrowingCharge;
use crate::fuzzing::unlimited_charge;

const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.0.0\n";

fn pack(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in entries {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(EntryType::Regular);
        // The library refuses such paths, so they are written as bytes.
        let name = &mut header.as_gnu_mut().unwrap().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        archive.append(&header, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

fn check(entries: &[(&str, &str)]) -> Result<(String, String), String> {
    let metadata = check_archive(pack(entries).as_slice(), &AtomicBool::new(false))?;
    Ok((metadata.name, metadata.version))
}

#[test]
fn metadata_of_a_chart_is_read() {
    let entries = [
        ("app/Chart.yaml", CHART),
        ("app/templates/a.yaml", "a"),
        ("app/charts/b/Chart.yaml", "broken: ["),
    ];
    assert_eq!(check(&entries).unwrap(), ("app".to_owned(), "1.0.0".to_owned()));
    let files = read_archive(
        pack(&entries).as_slice(),
        &AtomicBool::new(false),
        &mut unlimited_charge(),
    )
    .unwrap();
    assert_eq!(
        files.keys().map(String::as_str).collect::<Vec<_>>(),
        ["Chart.yaml", "charts/b/Chart.yaml", "templates/a.yaml"]
    );
}

#[test]
fn older_charts_have_requirements_in_a_file() {
    let requirements = "dependencies:\n- {name: b, version: 1.x, repository: 'https://b.example', alias: c}\n";
    let lock = "dependencies:\n- {name: b, version: 1.2.3, repository: 'https://b.example'}\n";
    let entries = [
        ("app/Chart.yaml", CHART),
        ("app/requirements.yaml", requirements),
        ("app/requirements.lock", lock),
    ];
    let files = read_archive(
        pack(&entries).as_slice(),
        &AtomicBool::new(false),
        &mut unlimited_charge(),
    )
    .unwrap();
    let found = &read_metadata(&files).unwrap().dependencies[0];
    assert_eq!((found.version.as_str(), found.inner_name()), ("1.2.3", "c"));
}

#[test]
fn paths_outside_the_chart_are_refused() {
    for (path, problem) in [
        ("/etc/passwd", "absolute paths"),
        ("app/../../etc/passwd", "parent directory"),
        ("../app/Chart.yaml", "outside the base directory"),
        ("Chart.yaml", "outside the base directory"),
        ("app/a//b", "ambiguous path"),
        ("app\\..\\b", "parent directory"),
        ("app/c:/windows", "illegally named"),
    ] {
        let found = check(&[("app/Chart.yaml", CHART), (path, "x")]).unwrap_err();
        assert!(found.contains(problem), "{path}: {found}");
    }
}

#[test]
fn archives_that_are_no_chart_are_refused() {
    for (entries, problem) in [
        (vec![("app/values.yaml", "a: 1")], "no 'Chart.yaml' found"),
        (vec![("app/Chart.yaml", CHART), ("app/Chart.yaml", CHART)], "twice"),
        (vec![("app/Chart.yaml", "name: [")], "can't be read as YAML"),
    ] {
        let found = check(&entries).unwrap_err();
        assert!(found.contains(problem), "{found}");
    }
    assert!(check_archive(b"no archive".as_slice(), &AtomicBool::new(false)).is_err());
    let mut cut = pack(&[("app/Chart.yaml", CHART)]);
    cut.truncate(cut.len() / 2);
    assert!(check_archive(cut.as_slice(), &AtomicBool::new(false)).is_err());
}

#[test]
fn archives_that_expand_without_end_are_refused() {
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let chunk = vec![0_u8; FILE_BYTES as usize];
    for number in 0..30 {
        let mut header = Header::new_gnu();
        header.set_size(chunk.len() as u64);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, format!("app/{number}"), chunk.as_slice())
            .unwrap();
    }
    let packed = archive.into_inner().unwrap().finish().unwrap();
    assert!(packed.len() < 2 << 20, "{}", packed.len());
    let found = check_archive(packed.as_slice(), &AtomicBool::new(false)).unwrap_err();
    assert!(found.contains("more than 100 MiB"), "{found}");
    let large = "x".repeat(FILE_BYTES as usize + 1);
    let found = check(&[("app/Chart.yaml", CHART), ("app/large", &large)]).unwrap_err();
    assert!(found.contains("larger than 5 MiB"), "{found}");
    // A member after the first one is not read as another archive.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"not tar").unwrap();
    assert!(check_archive(gzip.finish().unwrap().as_slice(), &AtomicBool::new(false)).is_err());
}

#[test]
fn files_are_charged_before_they_are_read() {
    let limits = BudgetLimits {
        lane: 1 << 20,
        ..BudgetLimits::unlimited("bytes")
    };
    let held = ByteBudget::new(limits).try_acquire("team", 0).unwrap();
    let mut memory = GrowingCharge::new_unused(held);
    let large = "x".repeat(2 << 20);
    let packed = pack(&[("app/Chart.yaml", CHART), ("app/large", &large)]);
    let read = read_archive(packed.as_slice(), &AtomicBool::new(false), &mut memory);
    assert!(matches!(read, Err(ArchiveError::OverBudget(_))));
}
