//! Ranges of versions. The answers are those of Masterminds/semver v3, which its own documentation and tests give.

use tenure_sources::{Range, tag_version};

#[test]
fn ranges_mean_what_they_mean_in_flux() {
    for (range, inside, outside) in [
        ("1.2.3", "1.2.3 1.2.3+build", "1.2.4 1.2.2 1.2.3-rc.1"),
        ("=2.0.0", "2.0.0", "2.0.1"),
        ("!=4.1", "4.2.0 5.1.0 3.9.9", "4.1.0 4.1.9"),
        ("!=4.x", "5.1.0 3.0.0", "4.1.0"),
        (">1.1", "1.2.0 2.0.0", "1.1.0 1.1.1 0.9.0"),
        (">11", "12.0.0", "11.1.0 11.0.0"),
        (">1.1.1", "1.1.2 2.0.0", "1.1.1 1.0.0"),
        ("<2", "1.9.9", "2.0.0 2.1.0"),
        ("<=11", "11.9.9 1.0.0", "12.0.0"),
        ("<=11.1", "11.1.9 11.0.0", "11.2.0 12.0.0"),
        (">=1.1", "1.1.0 4.1.0", "1.0.9"),
        (">=1.0.0 <2.0.0", "1.0.0 1.99.0", "2.0.0 0.9.0"),
        (">= 1.0.0, < 2.0.0", "1.0.0 1.99.0", "2.0.0 0.9.0"),
        ("<1.0.0 || >=2.0.0", "0.1.0 2.0.0", "1.0.0 1.5.0"),
        ("1.x", "1.0.0 1.9.9", "2.0.0 0.9.0"),
        ("1.2.x", "1.2.0 1.2.9", "1.3.0"),
        ("1", "1.0.0 1.9.9", "2.0.0"),
        ("*", "0.0.0 1.2.3 99.0.0", "1.0.0-rc.1"),
        ("x", "1.2.3", "1.0.0-rc.1"),
        ("~1.2.3", "1.2.3 1.2.9", "1.3.0 1.2.2"),
        ("~1.2", "1.2.0 1.2.9", "1.3.0"),
        ("~1", "1.0.0 1.9.0", "2.0.0"),
        ("~>2.0.0", "2.0.5", "2.1.0"),
        ("^1.2.3", "1.2.3 1.9.0", "2.0.0 1.2.2"),
        ("^0.2.3", "0.2.3 0.2.9", "0.3.0 1.0.0"),
        ("^0.0.3", "0.0.3", "0.0.4 0.1.0"),
        ("^0.0", "0.0.0 0.0.9", "0.1.0"),
        ("^0", "0.0.0 0.9.9", "1.0.0"),
        ("^1.x", "1.0.0 1.9.9", "2.0.0"),
        ("1.2 - 1.4.5", "1.2.0 1.4.5 1.3.0", "1.4.6 1.1.0"),
        ("2 - 3", "2.0.0 3.9.9", "4.0.0 1.9.0"),
        (">=1.0.0-0", "1.0.0-rc.1 1.0.0 2.0.0-alpha", "0.9.0"),
        ("~1.2.3-beta.2", "1.2.3-beta.4 1.2.3 1.2.4", "1.2.3-beta.1 1.3.0"),
        ("v1.2.3", "1.2.3", "1.2.4"),
        (">=v1.2", "1.2.0", "1.1.0"),
    ] {
        let parsed: Range = range.parse().unwrap();
        assert_eq!(parsed.to_string(), range);
        for version in inside.split(' ') {
            assert!(
                parsed.matches(&tag_version(version).unwrap()),
                "{version} is in {range}"
            );
        }
        for version in outside.split(' ') {
            assert!(
                !parsed.matches(&tag_version(version).unwrap()),
                "{version} is not in {range}"
            );
        }
    }
}

/// Every range × version that the real implementation was asked.
#[test]
fn answers_are_those_of_the_real_one() {
    let recorded: serde_json::Value = serde_json::from_str(include_str!("../data/semver.json")).unwrap();
    let mut wrong = Vec::new();
    for case in recorded["cases"].as_array().unwrap() {
        let range = case["range"].as_str().unwrap();
        let expected = if case["error"] == true {
            None
        } else {
            Some(case["matches"].as_str().unwrap_or("").to_owned())
        };
        let actual = range.parse::<Range>().ok().map(|range| {
            let versions = recorded["versions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|version| version.as_str().unwrap());
            versions
                .filter(|version| range.matches(&tag_version(version).unwrap()))
                .collect::<Vec<_>>()
                .join(" ")
        });
        if actual != expected {
            wrong.push(format!("{range:?}\n  real: {expected:?}\n  ours: {actual:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_no_range_is_refused() {
    for bad in [
        "",
        "||",
        "1.2.3.4",
        "a",
        ">",
        "1 -",
        ">=1 ||",
        "=>=1",
        "1.a",
        "1.0.0-ä",
        "-1",
        ">>1",
        "99999999999999999999",
    ] {
        assert!(bad.parse::<Range>().is_err(), "{bad}");
    }
    let error = ">=1.0 <a".parse::<Range>().unwrap_err().to_string();
    assert!(error.contains("\"<a\"") && error.contains("such as >=1.2.0"), "{error}");
    for tag in ["v1", "1.2", "release-1.2.3", "vv1.0.0", "V1.0.0", "1.02.3", ""] {
        assert!(tag_version(tag).is_none(), "{tag}");
    }
}
