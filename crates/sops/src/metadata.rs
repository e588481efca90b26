//! The metadata of an encrypted file, in all places where formats put them: below `sops`, or in flat keys that begin with `sops_` and spell out a path. Metadata that
//! SOPS refuses are refused, and so are more recipients than the limit.

use std::collections::BTreeMap;

use crate::error::{Error, shorten_name};
use crate::limits::Limits;
use crate::rules::{DEFAULT_UNENCRYPTED_SUFFIX, Rule};
use crate::tree::{Document, Entry, Node, Value, find_field};

/// The key of the metadata.
pub(crate) const KEY: &str = "sops";
const PREFIX: &str = "sops_";
const RULES: [&str; 6] = [
    "unencrypted_suffix",
    "encrypted_suffix",
    "unencrypted_regex",
    "encrypted_regex",
    "unencrypted_comment_regex",
    "encrypted_comment_regex",
];
/// The fields of key services, and the services' names.
const SERVICES: [(&str, &str); 5] = [
    ("kms", "AWS KMS"),
    ("gcp_kms", "Google Cloud KMS"),
    ("hckms", "HuaweiCloud KMS"),
    ("azure_kv", "Azure Key Vault"),
    ("hc_vault", "HashiCorp Vault"),
];
/// The deepest path of flat metadata.
const DEEPEST: usize = 8;

/// The place and form of the metadata in a file, which depends on the file's format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Below `sops`, as a map.
    Map,
    /// Below `sops`, as pairs whose keys spell out paths.
    FlatSection,
    /// Pairs whose keys begin with `sops_` and spell out paths.
    FlatKeys,
}

/// A recipient: its name, and the data key, or a share of it, encrypted for this recipient.
pub(crate) struct Recipient {
    pub(crate) name: String,
    pub(crate) sealed: String,
}

/// Recipients of a group. Each of them can open the group's share of the data key.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) age: Vec<Recipient>,
    pub(crate) pgp: Vec<Recipient>,
    pub(crate) services: Vec<&'static str>,
}

/// The metadata that SOPS has written into an encrypted file: the recipients, the rule and the MAC.
pub(crate) struct Metadata {
    pub(crate) groups: Vec<Group>,
    pub(crate) threshold: usize,
    pub(crate) rule: Rule,
    pub(crate) only_encrypted: bool,
    /// The encrypted MAC; empty if the file has none.
    pub(crate) mac: String,
    /// The time that is authenticated together with the MAC.
    pub(crate) last_modified: String,
}

fn metadata_error(what: impl Into<String>) -> Error {
    Error::Metadata(what.into())
}

/// Takes the metadata out of the documents; the first document has them.
///
/// # Errors
/// [`Error::NotEncrypted`] if there are none, [`Error::Metadata`] if they can't be read.
pub(crate) fn take_metadata(documents: &mut [Document], place: Place, limits: &Limits) -> Result<Metadata, Error> {
    let mut taken: Vec<Entry> = Vec::new();
    let mut is_there = false;
    for (index, document) in documents.iter_mut().enumerate() {
        let all = std::mem::take(&mut document.entries);
        for entry in all {
            match entry {
                Entry::Pair { key, value, whole } if place != Place::FlatKeys && key == KEY => {
                    document.cuts.push(whole);
                    if index > 0 {
                        continue;
                    }
                    if is_there {
                        return Err(metadata_error("they are there twice"));
                    }
                    is_there = true;
                    match value.value {
                        Value::Map(entries) => taken = entries,
                        _ => return Err(metadata_error("they are not a map")),
                    }
                }
                Entry::Pair { key, value, whole } if place == Place::FlatKeys && key.starts_with(PREFIX) => {
                    is_there = true;
                    let key = key.get(PREFIX.len()..).unwrap_or_default().to_owned();
                    taken.push(Entry::Pair { key, value, whole });
                }
                other => document.entries.push(other),
            }
        }
    }
    if !is_there {
        return Err(Error::NotEncrypted);
    }
    if place != Place::Map {
        taken = unflatten_entries(taken, place == Place::FlatSection)?;
    }
    read(&taken, limits)
}

fn read(entries: &[Entry], limits: &Limits) -> Result<Metadata, Error> {
    let mut rules = RULES
        .iter()
        .filter_map(|field| Some((*field, find_text(entries, field)?)))
        .filter(|(_, text)| !text.is_empty());
    let rule = match (rules.next(), rules.next()) {
        (None, _) => Rule::new("unencrypted_suffix", DEFAULT_UNENCRYPTED_SUFFIX)?,
        (Some((field, text)), None) => Rule::new(field, &text)?,
        (Some((one, _)), Some((other, _))) => {
            return Err(metadata_error(format!("{one} and {other} can't both be set")));
        }
    };
    let only_encrypted = match find_field(entries, "mac_only_encrypted").map(|node| &node.value) {
        None | Some(Value::Null) => false,
        Some(Value::Bool(is)) => *is,
        Some(Value::Text(text)) => matches!(text.as_str(), "1" | "t" | "T" | "TRUE" | "true" | "True"),
        Some(_) => return Err(metadata_error("mac_only_encrypted is not a truth value")),
    };
    let threshold = match find_field(entries, "shamir_threshold").map(|node| &node.value) {
        None | Some(Value::Null) => 0,
        Some(Value::Int(number)) => {
            usize::try_from(*number).map_err(|_| metadata_error("shamir_threshold is not a count"))?
        }
        Some(Value::Text(text)) if text.is_empty() => 0,
        Some(Value::Text(text)) => text
            .parse()
            .map_err(|_| metadata_error("shamir_threshold is not a count"))?,
        Some(_) => return Err(metadata_error("shamir_threshold is not a count")),
    };
    let groups = read_groups(entries)?;
    let recipients: usize = groups
        .iter()
        .map(|group| group.age.len() + group.pgp.len() + group.services.len())
        .sum();
    if recipients > limits.recipients {
        return Err(Error::TooMany {
            what: "recipients",
            most: limits.recipients,
        });
    }
    Ok(Metadata {
        groups,
        threshold,
        rule,
        only_encrypted,
        mac: find_text(entries, "mac").unwrap_or_default(),
        last_modified: normalize_time(&find_text(entries, "lastmodified").unwrap_or_default())?,
    })
}

/// Reads the groups. Recipients at the top level form the only group.
fn read_groups(entries: &[Entry]) -> Result<Vec<Group>, Error> {
    let top = read_group(entries)?;
    if !(top.age.is_empty() && top.pgp.is_empty() && top.services.is_empty()) {
        return Ok(vec![top]);
    }
    let groups: Vec<Group> = find_list(entries, "key_groups")?
        .iter()
        .map(|node| match &node.value {
            Value::Map(entries) => read_group(entries),
            _ => Err(metadata_error("a key group is not a map")),
        })
        .collect::<Result<_, _>>()?;
    if groups.is_empty() {
        return Err(metadata_error("there are no recipients"));
    }
    Ok(groups)
}

fn read_group(entries: &[Entry]) -> Result<Group, Error> {
    let recipients = |field: &str, name: &str| {
        let nodes = find_list(entries, field)?
            .iter()
            .filter(|node| !matches!(node.value, Value::Comment(_)));
        nodes
            .map(|node| match &node.value {
                Value::Map(entries) => Ok(Recipient {
                    name: find_text(entries, name).unwrap_or_default(),
                    sealed: find_text(entries, "enc").unwrap_or_default(),
                }),
                _ => Err(metadata_error(format!("a recipient of {field} is not a map"))),
            })
            .collect::<Result<Vec<_>, _>>()
    };
    let mut services = Vec::new();
    for (field, name) in SERVICES {
        if !find_list(entries, field)?.is_empty() {
            services.push(name);
        }
    }
    Ok(Group {
        age: recipients("age", "recipient")?,
        pgp: recipients("pgp", "fp")?,
        services,
    })
}

fn find_list<'a>(entries: &'a [Entry], field: &str) -> Result<&'a [Node], Error> {
    match find_field(entries, field).map(|node| &node.value) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::List(items)) => Ok(items),
        Some(Value::Map(entries)) if entries.is_empty() => Ok(&[]),
        Some(_) => Err(metadata_error(format!("{field} is not a list"))),
    }
}

fn find_text(entries: &[Entry], field: &str) -> Option<String> {
    match &find_field(entries, field)?.value {
        Value::Text(text) | Value::Time(text) => Some(text.to_string()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Rewrites an RFC 3339 time as Go prints it: without fractions of a second, and UTC as `Z`.
fn normalize_time(text: &str) -> Result<String, Error> {
    if !crate::cipher::is_time(text) {
        return Err(metadata_error("lastmodified is not a time"));
    }
    let (seconds, rest) = text.split_at_checked(19).unwrap_or((text, ""));
    let zone = rest.trim_start_matches(|one: char| one == '.' || one.is_ascii_digit());
    let zone = if matches!(zone, "+00:00" | "-00:00") { "Z" } else { zone };
    Ok(format!("{seconds}{zone}"))
}

/// A tree that is built from the pairs of flat metadata.
enum Flat {
    Value(Node),
    Map(BTreeMap<String, Flat>),
    List(BTreeMap<usize, Flat>),
}

/// A step of the path that a flat key spells out: a key of a map, or an index of a list.
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Makes a tree of keys such as `age__list_0__map_enc`.
fn unflatten_entries(entries: Vec<Entry>, has_escapes: bool) -> Result<Vec<Entry>, Error> {
    let mut root = BTreeMap::new();
    for entry in entries {
        let Entry::Pair { key, mut value, .. } = entry else {
            continue;
        };
        if has_escapes && let Some(text) = value.as_text() {
            value = Node::text(text.replace("\\n", "\n"));
        }
        let unusable = || metadata_error(format!("the key {} doesn't fit the others", shorten_name(&key)));
        let steps = split_steps(&key).ok_or_else(unusable)?;
        let Some((Step::Key(first), rest)) = steps.split_first() else {
            return Err(unusable());
        };
        put_value(root.entry((*first).to_owned()), rest, value).ok_or_else(unusable)?;
    }
    root.into_iter()
        .map(|(key, flat)| {
            Ok(Entry::Pair {
                key,
                value: grow_node(flat)?,
                whole: crate::tree::Span::default(),
            })
        })
        .collect()
}

/// Splits a flat key into steps: `__map_` and `__list_` precede each step but the first.
fn split_steps(key: &str) -> Option<Vec<Step<'_>>> {
    let mut steps = Vec::new();
    let mut rest = key;
    let mut is_list = false;
    loop {
        let map_at = rest.find("__map_");
        let list_at = rest.find("__list_");
        let (end, next, next_is_list) = match (map_at, list_at) {
            (Some(map), Some(list)) if list < map => (list, list + "__list_".len(), true),
            (Some(map), _) => (map, map + "__map_".len(), false),
            (None, Some(list)) => (list, list + "__list_".len(), true),
            (None, None) => (rest.len(), rest.len(), false),
        };
        let step = rest.get(..end)?;
        steps.push(if is_list {
            Step::Index(step.parse().ok()?)
        } else {
            Step::Key(step)
        });
        if next == rest.len() && end == next {
            return Some(steps);
        }
        if steps.len() == DEEPEST {
            return None;
        }
        rest = rest.get(next..)?;
        is_list = next_is_list;
    }
}

fn put_value<K: Ord>(
    place: std::collections::btree_map::Entry<'_, K, Flat>,
    steps: &[Step<'_>],
    value: Node,
) -> Option<()> {
    use std::collections::btree_map::Entry as Slot;
    let Some((first, rest)) = steps.split_first() else {
        return match place {
            Slot::Vacant(vacant) => {
                vacant.insert(Flat::Value(value));
                Some(())
            }
            Slot::Occupied(_) => None,
        };
    };
    let empty = match first {
        Step::Key(_) => Flat::Map(BTreeMap::new()),
        Step::Index(_) => Flat::List(BTreeMap::new()),
    };
    match (place.or_insert(empty), first) {
        (Flat::Map(map), Step::Key(key)) => put_value(map.entry((*key).to_owned()), rest, value),
        (Flat::List(list), Step::Index(index)) => put_value(list.entry(*index), rest, value),
        _ => None,
    }
}

/// Converts a tree of flat metadata into a node.
fn grow_node(flat: Flat) -> Result<Node, Error> {
    Ok(match flat {
        Flat::Value(node) => node,
        Flat::Map(map) => Node::new(Value::Map(
            map.into_iter()
                .map(|(key, flat)| {
                    Ok(Entry::Pair {
                        key,
                        value: grow_node(flat)?,
                        whole: crate::tree::Span::default(),
                    })
                })
                .collect::<Result<_, Error>>()?,
        )),
        Flat::List(list) => {
            if list.keys().copied().ne(0..list.len()) {
                return Err(metadata_error("a list of theirs has gaps"));
            }
            Node::new(Value::List(
                list.into_values().map(grow_node).collect::<Result<_, _>>()?,
            ))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, text: &str) -> Entry {
        Entry::Pair {
            key: key.to_owned(),
            value: Node::text(text),
            whole: crate::tree::Span::default(),
        }
    }

    #[test]
    fn flat_keys_make_a_tree() {
        let flat = vec![
            pair("age__list_0__map_enc", "one\\ntwo"),
            pair("age__list_0__map_recipient", "age1"),
            pair("mac", "m"),
        ];
        let tree = unflatten_entries(flat, true).unwrap_or_default();
        let Some(Value::List(items)) = find_field(&tree, "age").map(|node| &node.value) else {
            panic!("no list")
        };
        let Some(Value::Map(first)) = items.first().map(|node| &node.value) else {
            panic!("no map")
        };
        assert_eq!(find_text(first, "enc").as_deref(), Some("one\ntwo"));
        for broken in [
            vec![pair("a__list_1", "x")],
            vec![pair("a", "x"), pair("a__map_b", "y")],
            vec![pair("a__list_x", "x")],
            vec![pair("a", "x"), pair("a", "y")],
            vec![pair(&"a__map_".repeat(20), "x")],
        ] {
            assert!(unflatten_entries(broken, true).is_err());
        }
    }

    #[test]
    fn a_moment_is_printed_as_go_does() {
        for (text, printed) in [
            ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
            ("2024-01-02T03:04:05.5+00:00", "2024-01-02T03:04:05Z"),
            ("2024-01-02T03:04:05+02:00", "2024-01-02T03:04:05+02:00"),
        ] {
            assert_eq!(normalize_time(text).as_deref(), Ok(printed));
        }
        assert!(normalize_time("yesterday").is_err());
    }
}
