//! The order of API versions: stable before beta before alpha, newer before older, and all other names last, in their alphabetical order.

use std::cmp::Reverse;

/// Sorts versions, the preferred one first.
#[must_use]
pub fn version_priority(version: &str) -> (u8, Reverse<u64>, Reverse<u64>, String) {
    match parse(version) {
        Some((stage, major, minor)) => (stage, Reverse(major), Reverse(minor), String::new()),
        None => (3, Reverse(0), Reverse(0), version.to_owned()),
    }
}

fn parse(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(rest.len());
    let (major, rest) = rest.split_at(end);
    let major = major.parse().ok()?;
    if rest.is_empty() {
        return Some((0, major, 0));
    }
    let (stage, minor) = match rest.strip_prefix("beta") {
        Some(minor) => (1, minor),
        None => (2, rest.strip_prefix("alpha")?),
    };
    Some((stage, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_by_stability_then_age() {
        let mut versions = [
            "foo10",
            "v1alpha1",
            "v2",
            "v11beta2",
            "v1",
            "v10beta3",
            "foo1",
            "v12alpha1",
        ];
        versions.sort_by_key(|version| version_priority(version));
        assert_eq!(
            versions,
            [
                "v2",
                "v1",
                "v11beta2",
                "v10beta3",
                "v12alpha1",
                "v1alpha1",
                "foo1",
                "foo10"
            ]
        );
    }
}
