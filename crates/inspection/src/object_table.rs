//! Tables of objects for people. The API server computes most columns (meta.k8s.io/v1 Table). For reconciled objects, the revision and the suspension are added. The
//! age comes from the given clock, and the message is the last column.

use jiff::Timestamp;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::metadata::GENERATOR_SWITCH;
use tenure_api::text::visible;

use crate::ages::{write_distance, write_time_since};
use crate::text_table::{Cell, Tone};

/// The number of printed digits of a commit or a digest.
const DIGITS: usize = 8;
/// Digests have at least so many digits. A shorter number is no digest.
const FEWEST_DIGITS: usize = 12;
/// The names of digests in revisions.
const DIGESTS: [&str; 3] = ["sha1:", "sha256:", "sha512:"];

/// The words of columns that say how an object is, from good to bad.
const GOOD: &[&str] = &[
    "True",
    "Active",
    "Running",
    "Succeeded",
    "Completed",
    "Complete",
    "Bound",
    "Available",
    "Ready",
];
const BAD: &[&str] = &[
    "False",
    "Failed",
    "Error",
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "OOMKilled",
    "Evicted",
    "Lost",
];
const CHANGING: &[&str] = &[
    "Unknown",
    "Pending",
    "Progressing",
    "ContainerCreating",
    "Terminating",
    "Cordoned",
    "Released",
];
/// The columns whose words are coloured.
const STATES: &[&str] = &["READY", "STATUS", "STATE", "ACCEPTED", "COUNTS", "PHASE"];

/// The field with the revision of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Revision {
    /// The kind has no revision.
    None,
    /// One field.
    At(&'static str),
    /// The applied revision of each source of a Surface.
    OfSources,
}

/// A kind with columns that its API server doesn't compute.
struct KindColumns {
    group: &'static str,
    kind: &'static str,
    revision: Revision,
    can_be_suspended: bool,
}

const fn list_columns(
    group: &'static str,
    kind: &'static str,
    revision: Revision,
    can_be_suspended: bool,
) -> KindColumns {
    KindColumns {
        group,
        kind,
        revision,
        can_be_suspended,
    }
}

const SOURCE: &str = "source.toolkit.fluxcd.io";
const NOTIFICATION: &str = "notification.toolkit.fluxcd.io";
const IMAGE: &str = "image.toolkit.fluxcd.io";
const FETCHED: Revision = Revision::At("/status/artifact/revision");

/// The kinds of Tenure and Flux with such columns.
const KINDS: [KindColumns; 19] = [
    list_columns(SOURCE, "GitRepository", FETCHED, true),
    list_columns(SOURCE, "OCIRepository", FETCHED, true),
    list_columns(SOURCE, "Bucket", FETCHED, true),
    list_columns(SOURCE, "HelmRepository", FETCHED, true),
    list_columns(SOURCE, "HelmChart", FETCHED, true),
    list_columns(SOURCE, "ExternalArtifact", FETCHED, false),
    list_columns("source.extensions.fluxcd.io", "ArtifactGenerator", Revision::None, true),
    list_columns(
        "kustomize.toolkit.fluxcd.io",
        "Kustomization",
        Revision::At("/status/lastAppliedRevision"),
        true,
    ),
    list_columns(
        "helm.toolkit.fluxcd.io",
        "HelmRelease",
        Revision::At("/status/history/0/chartVersion"),
        true,
    ),
    list_columns("tenure.dev", "Surface", Revision::OfSources, true),
    list_columns(NOTIFICATION, "Receiver", Revision::None, true),
    list_columns(NOTIFICATION, "Provider", Revision::None, true),
    list_columns(NOTIFICATION, "Alert", Revision::None, true),
    list_columns(IMAGE, "ImageRepository", Revision::None, true),
    list_columns(IMAGE, "ImagePolicy", Revision::None, true),
    list_columns(IMAGE, "ImageUpdateAutomation", Revision::None, true),
    list_columns("capsule.clastix.io", "Tenant", Revision::None, false),
    list_columns("tenure.dev", "FluxAccessGrant", Revision::None, false),
    list_columns("tenure.dev", "FluxAccessStandingGrant", Revision::None, false),
];

/// The ends of the API groups of Tenure, Flux and the projects whose kinds Tenure serves.
pub const GROUPS: &[&str] = &["tenure.dev", "fluxcd.io", "capsule.clastix.io", "cozystack.io"];

/// Columns that only a wide table has, because a revision or a state says more.
const WIDE_ONLY: &[(&str, &str)] = &[
    ("GitRepository", "URL"),
    ("OCIRepository", "URL"),
    ("Bucket", "ENDPOINT"),
    ("HelmRepository", "URL"),
    ("HelmChart", "VERSION"),
    ("HelmChart", "SOURCE KIND"),
    ("HelmChart", "SOURCE NAME"),
    ("Surface", "IDENTITY"),
    ("Surface", "TIER"),
    ("Tenant", "NAMESPACE QUOTA"),
];
/// Shorter headers.
const SHORT_HEADERS: &[(&str, &str)] = &[("NAMESPACE COUNT", "NAMESPACES"), ("NAMESPACE QUOTA", "QUOTA")];

/// Whether the table of a kind needs whole objects in the answer of the API server.
#[must_use]
pub fn needs_objects(group: &str, kind: &str) -> bool {
    find_kind(group, kind).is_some()
}

fn find_kind(group: &str, kind: &str) -> Option<&'static KindColumns> {
    KINDS
        .iter()
        .find(|columns| (columns.group, columns.kind) == (group, kind))
}

/// The kind of a table's objects, and the options that select its columns.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// The API group of the objects.
    pub group: &'a str,
    /// Their kind.
    pub kind: &'a str,
    /// Whether the namespace is the first column.
    pub with_namespace: bool,
    /// Whether names have their kind before them: `kustomization/web`.
    pub with_kind: bool,
    /// Whether all columns and complete revisions are shown.
    pub is_wide: bool,
}

/// A column of the printed table, and the source of its cells.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    Namespace,
    /// The cell of the server at this position; the name has its kind before it.
    Name(usize),
    /// The cell of the server at this position.
    Served(usize),
    /// The cell of the server at this position, coloured.
    State(usize),
    Revision(Revision),
    Suspended,
    /// The age of the object, or the server's cell.
    Age(usize),
    /// The time to the end of a grant. API servers know only times since something.
    Until,
}

/// The columns of a table for objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectTable {
    columns: Vec<Column>,
    kind: String,
    is_wide: bool,
    /// The headers.
    pub headers: Vec<String>,
}

impl ObjectTable {
    /// Selects the columns from the definitions in an answer of the API server.
    #[must_use]
    pub fn select_columns(answer: &Value, selection: &Selection<'_>) -> Self {
        let known = find_kind(selection.group, selection.kind);
        // For kinds of these groups, the column Status has the message of the condition Ready.
        let has_message = GROUPS.iter().any(|group| selection.group.ends_with(group));
        let mut chosen: Vec<(String, Column)> = Vec::new();
        let (mut ready, mut age, mut message) = (None, None, None);
        for (index, column) in ObjectView::new(answer).list_views("/columnDefinitions").enumerate() {
            let header = column.find("/name").map_or_else(String::new, write_cell).to_uppercase();
            let is_shown = column.find_number("/priority").unwrap_or(0) == 0
                && !(known.is_some() && WIDE_ONLY.contains(&(selection.kind, header.as_str())));
            if !is_shown && !selection.is_wide {
                continue;
            }
            match header.as_str() {
                "NAME" if index == 0 && selection.with_kind => chosen.push((header, Column::Name(index))),
                "AGE" => age = Some((header, Column::Age(index))),
                "UNTIL" if known.is_some() => chosen.push((header, Column::Until)),
                "READY" if has_message => ready = Some((header, Column::State(index))),
                "STATUS" if has_message => message = Some((header, Column::Served(index))),
                _ if STATES.contains(&header.as_str()) => chosen.push((header, Column::State(index))),
                _ => {
                    let short = SHORT_HEADERS.iter().find(|(long, _)| *long == header);
                    let header = short.map_or(header, |(_, short)| (*short).to_owned());
                    chosen.push((header, Column::Served(index)));
                }
            }
        }
        if let Some(known) = known {
            let revision = Some(known.revision).filter(|revision| *revision != Revision::None);
            chosen.extend(revision.map(|revision| ("REVISION".to_owned(), Column::Revision(revision))));
            chosen.extend(
                known
                    .can_be_suspended
                    .then(|| ("SUSPENDED".to_owned(), Column::Suspended)),
            );
        }
        chosen.extend(ready);
        chosen.extend(age);
        chosen.extend(message);
        if selection.with_namespace {
            chosen.insert(0, ("NAMESPACE".to_owned(), Column::Namespace));
        }
        let (headers, columns) = chosen.into_iter().unzip();
        Self {
            columns,
            kind: selection.kind.to_lowercase(),
            is_wide: selection.is_wide,
            headers,
        }
    }

    /// Returns the rows of an answer.
    #[must_use]
    pub fn rows(&self, answer: &Value, now: Timestamp) -> Vec<Vec<Cell>> {
        let rows = ObjectView::new(answer).list_views("/rows");
        rows.map(|row| self.columns.iter().map(|column| self.write(column, row, now)).collect())
            .collect()
    }

    fn write(&self, column: &Column, row: ObjectView<'_>, now: Timestamp) -> Cell {
        let served = |index: usize| row.list("/cells").get(index).map_or_else(String::new, write_cell);
        match column {
            Column::Namespace => row
                .find("/object/metadata/namespace")
                .map_or_else(String::new, write_cell)
                .into(),
            Column::Name(index) => format!("{}/{}", self.kind, served(*index)).into(),
            Column::Served(index) if self.is_wide => served(*index).into(),
            Column::Served(index) => shorten_revisions(&served(*index)).into(),
            Column::State(index) => paint_state(served(*index)),
            Column::Revision(revision) => {
                let revision = visible(&find_revision(*revision, row)).into_owned();
                match self.is_wide {
                    true => revision.into(),
                    false => shorten_revisions(&revision).into(),
                }
            }
            Column::Until => match row.read_text("/object/spec/notAfter").parse() {
                Ok(end) => write_distance(end, now).into(),
                Err(_) => Cell::default(),
            },
            Column::Suspended => match is_suspended(row) {
                true => Cell {
                    text: "True".to_owned(),
                    tone: Tone::Warning,
                },
                false => "False".into(),
            },
            Column::Age(index) => match row.find_text("/object/metadata/creationTimestamp") {
                Some(time) => write_time_since(time, now).into(),
                None => served(*index).into(),
            },
        }
    }
}

fn find_revision(revision: Revision, row: ObjectView<'_>) -> String {
    match revision {
        Revision::None => String::new(),
        Revision::At(path) => row.read_text(&format!("/object{path}")).to_owned(),
        Revision::OfSources => {
            let sources = row.list_views("/object/status/sources");
            let mut revisions: Vec<&str> = sources
                .filter_map(|source| source.find_text("/appliedRevision"))
                .collect();
            revisions.dedup();
            revisions.join(", ")
        }
    }
}

fn is_suspended(row: ObjectView<'_>) -> bool {
    let object = ObjectView::new(row.find("/object").unwrap_or(&Value::Null));
    let is_generator = object.read_text("/kind") == "ArtifactGenerator";
    object.is_true("/spec/suspend") || (is_generator && object.has_annotation(GENERATOR_SWITCH, "disabled"))
}

/// Colours the word of a state. `2/3` is good if both numbers are equal.
fn paint_state(text: String) -> Cell {
    let word = text.as_str();
    let tone =
        match word.split_once('/') {
            Some((ready, all)) if !all.is_empty() && all.bytes().all(|digit| digit.is_ascii_digit()) => {
                if ready == all { Tone::Good } else { Tone::Bad }
            }
            _ if GOOD.contains(&word) => Tone::Good,
            _ if BAD.contains(&word) => Tone::Bad,
            _ if CHANGING.contains(&word) => Tone::Warning,
            _ => Tone::Plain,
        };
    Cell { text, tone }
}

/// Shortens the digests in a text: `main@sha1:12345678`.
#[must_use]
pub fn shorten_revisions(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = DIGESTS
        .iter()
        .filter_map(|name| Some(rest.find(name)? + name.len()))
        .min()
    {
        let (before, after) = rest.split_at_checked(start).unwrap_or((rest, ""));
        let digits = after.bytes().take_while(u8::is_ascii_hexdigit).count();
        let shown = if digits >= FEWEST_DIGITS { DIGITS } else { digits };
        short.push_str(before);
        short.push_str(after.get(..shown).unwrap_or_default());
        rest = after.get(digits..).unwrap_or_default();
    }
    short.push_str(rest);
    short
}

fn write_cell(value: &Value) -> String {
    match value {
        // Text of a repository or another tenant must not move the cursor.
        Value::String(text) => visible(text).into_owned(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lay_out(answer: &Value, selection: &Selection<'_>) -> Vec<Vec<String>> {
        let table = ObjectTable::select_columns(answer, selection);
        let now = "2026-01-04T00:00:00Z".parse().expect("a time");
        let mut lines = vec![table.headers.clone()];
        let rows = table.rows(answer, now).into_iter();
        lines.extend(rows.map(|row| row.into_iter().map(|cell| cell.text).collect()));
        lines
    }

    const DEPLOYMENT: Selection<'_> = Selection {
        group: "apps",
        kind: "Deployment",
        with_namespace: true,
        with_kind: false,
        is_wide: false,
    };

    #[test]
    fn other_kinds_have_the_columns_of_the_server() {
        let answer = json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Images", "priority": 1}, {"name": "Ready"}],
            "rows": [{"cells": ["web", "nginx", "1/2"], "object": {"metadata": {"namespace": "a"}}}]});
        assert_eq!(
            lay_out(&answer, &DEPLOYMENT),
            [["NAMESPACE", "NAME", "READY"], ["a", "web", "1/2"]]
        );
        let wide = Selection {
            with_namespace: false,
            with_kind: true,
            is_wide: true,
            ..DEPLOYMENT
        };
        assert_eq!(
            lay_out(&answer, &wide),
            [["NAME", "IMAGES", "READY"], ["deployment/web", "nginx", "1/2"]]
        );
        assert_eq!(lay_out(&Value::Null, &wide), [[""; 0]; 1]);
    }

    #[test]
    fn reconciled_objects_have_revision_suspension_and_age() {
        let digest = "0123456789abcdef0123456789abcdef01234567";
        let answer = json!({
            "columnDefinitions": [{"name": "Name"}, {"name": "URL"}, {"name": "Age"}, {"name": "Ready"}, {"name": "Status"}],
            "rows": [{"cells": ["web", "https://a", "old", "True", format!("stored main@sha1:{digest}")], "object": {
                "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"suspend": true},
                "status": {"artifact": {"revision": format!("main@sha1:{digest}")}}}}]});
        let selection = Selection {
            group: SOURCE,
            kind: "GitRepository",
            with_namespace: false,
            ..DEPLOYMENT
        };
        assert_eq!(
            lay_out(&answer, &selection),
            [
                ["NAME", "REVISION", "SUSPENDED", "READY", "AGE", "STATUS"],
                [
                    "web",
                    "main@sha1:01234567",
                    "True",
                    "True",
                    "3d",
                    "stored main@sha1:01234567"
                ]
            ]
        );
        let wide = Selection {
            is_wide: true,
            ..selection
        };
        let lines = lay_out(&answer, &wide);
        assert_eq!(
            lines[0],
            ["NAME", "URL", "REVISION", "SUSPENDED", "READY", "AGE", "STATUS"]
        );
        assert_eq!(lines[1][2], format!("main@sha1:{digest}"));
    }

    #[test]
    fn words_of_states_have_tones() {
        for (word, tone) in [
            ("True", Tone::Good),
            ("False", Tone::Bad),
            ("Unknown", Tone::Warning),
            ("1/1", Tone::Good),
            ("0/1", Tone::Bad),
            ("", Tone::Plain),
        ] {
            assert_eq!(paint_state(word.to_owned()).tone, tone, "{word}");
        }
    }

    #[test]
    fn only_digests_are_shortened() {
        let check = |text: &str, expected: &str| assert_eq!(shorten_revisions(text), expected);
        check("", "");
        check("v1.0.0", "v1.0.0");
        check("main@sha1:0123", "main@sha1:0123");
        check(
            "a sha1:0123456789abcdef0123 b sha256:fedcba9876543210fedc.",
            "a sha1:01234567 b sha256:fedcba98.",
        );
        check("latest@sha256:é", "latest@sha256:é");
    }
}
