//! Ranges of versions. The expected answers come from the documentation and the tests of Masterminds/semver v3. Its recorded answers are in
//! `tests/trials`.

use super::{Range, Version, parse_normalized};

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
                parsed.matches(&Version::parse(version).unwrap()),
                "{version} is in {range}"
            );
        }
        for version in outside.split(' ') {
            assert!(
                !parsed.matches(&Version::parse(version).unwrap()),
                "{version} is not in {range}"
            );
        }
    }
}

#[test]
fn invalid_version_ranges_are_refused() {
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
}

#[test]
fn short_versions_are_filled_up() {
    for (text, want) in [
        ("v1.2", Ok("1.2.0")),
        ("1", Ok("1.0.0")),
        ("01.002.3-a", Ok("1.2.3-a")),
        ("1.2-a", Err("short version cannot contain PreRelease/Build meta data")),
        ("v", Err("strconv.ParseUint: parsing \"\": invalid syntax")),
    ] {
        let found = parse_normalized(text).map(|version| version.to_string());
        assert_eq!(
            found.map_err(|error| error.to_string()),
            want.map(str::to_owned).map_err(str::to_owned),
            "{text}"
        );
    }
}
