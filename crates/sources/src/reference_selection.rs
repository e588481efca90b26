//! Selects the commit of a reference among the server's references. Pure.

use go_words::version::Version;

use crate::git::oid::Oid;
use crate::git::wire::RemoteReference;
use crate::request::Reference;

/// Reads a tag as a version, as Flux does: strictly, but with an optional `v` in front.
pub fn read_tag_version(tag: &str) -> Option<Version> {
    Version::parse(tag.strip_prefix('v').unwrap_or(tag)).ok()
}

/// The server's reference that the spec selects, with its commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelectedReference {
    /// The full name of the reference; `None` for a bare commit.
    pub(crate) name: Option<String>,
    /// The object to request from the server: a commit, or a tag object.
    pub(crate) want: Oid,
    /// The commit, as far as the server has named it.
    pub(crate) commit: Oid,
}

/// Lists the prefixes to request from the server for this reference; empty if no list is needed.
pub(crate) fn list_prefixes(reference: &Reference) -> Vec<String> {
    match reference {
        Reference::Branch(branch) => vec![format!("refs/heads/{branch}")],
        Reference::Tag(tag) => vec![format!("refs/tags/{tag}")],
        Reference::Semver(_) => vec!["refs/tags/".to_owned()],
        Reference::Name(name) => vec![name.clone()],
        Reference::Commit { .. } => Vec::new(),
    }
}

/// Lists the prefixes of similar names, for the error if the reference is missing.
pub(crate) fn list_neighbours(reference: &Reference) -> Vec<String> {
    match reference {
        Reference::Branch(_) => vec!["refs/heads/".to_owned()],
        Reference::Tag(_) | Reference::Semver(_) => vec!["refs/tags/".to_owned()],
        Reference::Name(_) => vec!["refs/".to_owned()],
        Reference::Commit { .. } => Vec::new(),
    }
}

/// Selects a reference; `None` if it is missing. A commit needs no selection and gives `None`.
pub(crate) fn select_reference(reference: &Reference, references: &[RemoteReference]) -> Option<SelectedReference> {
    let named = |name: String| references.iter().find(|remote| remote.name == name).map(make_selection);
    match reference {
        Reference::Branch(branch) => named(format!("refs/heads/{branch}")),
        Reference::Tag(tag) => named(format!("refs/tags/{tag}")),
        Reference::Name(name) => named(name.clone()),
        Reference::Semver(range) => references
            .iter()
            .filter_map(|remote| Some((read_tag_version(remote.name.strip_prefix("refs/tags/")?)?, remote)))
            .filter(|(version, _)| range.matches(version))
            // Versions that differ only in build metadata are ordered by it, then by name, so that the choice is always the same.
            .max_by(|(a, left), (b, right)| a.cmp(b).then_with(|| left.name.cmp(&right.name)))
            .map(|(_, remote)| make_selection(remote)),
        Reference::Commit { .. } => None,
    }
}

fn make_selection(remote: &RemoteReference) -> SelectedReference {
    SelectedReference {
        name: Some(remote.name.clone()),
        want: remote.oid,
        commit: remote.peeled.unwrap_or(remote.oid),
    }
}

/// Writes the revision in Flux's form: `main@sha1:…` for a branch or tag, `sha1:…` for a bare commit, and the full name, `refs/heads/main@sha1:…`, for `spec.ref.name`.
pub(crate) fn write_revision(reference: &Reference, name: Option<&str>, commit: &Oid) -> String {
    let digest = format!("{}:{commit}", commit.algorithm().name());
    let short = |name: &str| {
        let short = name
            .strip_prefix("refs/heads/")
            .or(name.strip_prefix("refs/tags/"))
            .unwrap_or(name);
        format!("{short}@{digest}")
    };
    match (reference, name) {
        (_, None) => digest,
        (Reference::Name(_), Some(name)) => format!("{name}@{digest}"),
        (_, Some(name)) => short(name),
    }
}

/// Describes a reference for a message.
pub(crate) fn describe_reference(reference: &Reference) -> String {
    match reference {
        Reference::Branch(branch) => format!("branch {branch:?}"),
        Reference::Tag(tag) => format!("tag {tag:?}"),
        Reference::Semver(range) => format!("a tag that matches the versions {:?}", range.to_string()),
        Reference::Name(name) => format!("reference {name:?}"),
        Reference::Commit { id, branch: None } => format!("commit {id}"),
        Reference::Commit {
            id,
            branch: Some(branch),
        } => format!("commit {id} on branch {branch:?}"),
    }
}

/// Lists at most five names that look like the requested one, the most similar first.
pub(crate) fn find_close_names(reference: &Reference, references: &[RemoteReference]) -> Vec<String> {
    let (wanted, prefix) = match reference {
        Reference::Branch(name) => (name.clone(), "refs/heads/"),
        Reference::Tag(name) => (name.clone(), "refs/tags/"),
        Reference::Semver(range) => (range.to_string(), "refs/tags/"),
        Reference::Name(name) => (name.clone(), ""),
        Reference::Commit { .. } => return Vec::new(),
    };
    let versions = matches!(reference, Reference::Semver(_));
    let few = references.len() <= 5;
    let mut names: Vec<(usize, &str)> = references
        .iter()
        .filter_map(|remote| remote.name.strip_prefix(prefix))
        .filter(|name| name.len() <= 100 && (!versions || read_tag_version(name).is_some()))
        .map(|name| {
            let part_of = name.contains(wanted.as_str()) || wanted.contains(name);
            // main and master count as similar, whatever their letters.
            let twins = matches!((wanted.as_str(), name), ("main", "master") | ("master", "main"));
            (
                if part_of || twins {
                    1
                } else {
                    edit_distance(&wanted, name)
                },
                name,
            )
        })
        .filter(|(distance, _)| few || versions || *distance <= 1 + wanted.len() / 3)
        .collect();
    names.sort_unstable();
    names
        .into_iter()
        .take(5)
        .map(|(_, name)| name.chars().filter(|c| !c.is_control()).collect())
        .collect()
}

/// Counts how many characters must change to turn one text into the other.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (line, from) in a.chars().take(100).enumerate() {
        let mut diagonal = line;
        let mut left = line + 1;
        let mut next = vec![left];
        for (to, above) in b.iter().zip(row.iter().skip(1)) {
            let cost = diagonal + usize::from(from != *to);
            left = cost.min(left + 1).min(above + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::read_tag_version;

    #[test]
    fn tags_are_whole_versions() {
        assert_eq!(read_tag_version("v1.2.3"), read_tag_version("1.2.3"));
        for tag in ["v1", "1.2", "release-1.2.3", "vv1.0.0", "V1.0.0", "1.02.3", ""] {
            assert!(read_tag_version(tag).is_none(), "{tag}");
        }
    }
}
