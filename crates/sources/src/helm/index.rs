//! The index of a Helm repository: the versions of a chart, and the choice of one. Pure.
//!
//! An index may have ten thousands of versions, and a reader needs those of one chart. So the text is read as a stream of events, and only the wanted entries are kept.

use std::sync::atomic::{AtomicBool, Ordering};

use go_words::version::{Range, Version};
use go_yaml::events::{EventKind, EventReader};
use go_yaml::scalar::Dialect;
use jiff::Timestamp;

use crate::reference_selection::read_tag_version;

/// The most versions of one chart.
const MOST_VERSIONS: usize = 20_000;
/// The longest text of a field.
const LONGEST_TEXT: usize = 4096;
/// Events between two checks whether the reading was cancelled.
const EVENTS_PER_CHECK: u32 = 4096;

/// A version of a chart, as the index lists it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListedVersion {
    pub(super) version: String,
    /// The first of its addresses, which may be relative to the repository's.
    pub(super) url: Option<String>,
    /// SHA-256 of the archive in hex, if the index has it.
    pub(super) digest: Option<String>,
    created: Option<Timestamp>,
}

/// The content of an index: the versions of the wanted chart; `None` if it has no such chart.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) versions: Option<Vec<ListedVersion>>,
}

/// The events of an index, with the bounds of the reading.
struct IndexReader<'text, 'flag> {
    events: EventReader<'text>,
    cancelled: &'flag AtomicBool,
    count: u32,
}

/// Reads an index, and the versions of one chart in it.
///
/// # Errors
/// Says what is wrong, with the line.
pub(super) fn read_index(text: &str, chart: Option<&str>, cancelled: &AtomicBool) -> Result<Index, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err("empty index.yaml file".to_owned());
    }
    let mut reader = IndexReader {
        events: EventReader::new(text, Dialect::V2),
        cancelled,
        count: 0,
    };
    reader.read_index(chart)
}

impl<'text> IndexReader<'text, '_> {
    fn read_index(&mut self, chart: Option<&str>) -> Result<Index, String> {
        let mut index = Index::default();
        let mut api_version = None;
        let mut has_entries = false;
        loop {
            match self.next()? {
                EventKind::StreamStart | EventKind::DocumentStart => {}
                EventKind::MappingStart(..) => break,
                EventKind::StreamEnd | EventKind::DocumentEnd => return Err("empty index.yaml file".to_owned()),
                _ => return Err("it is no map with apiVersion and entries".to_owned()),
            }
        }
        while let Some(key) = self.next_key()? {
            match key.as_str() {
                "apiVersion" => api_version = self.read_text()?,
                "entries" if has_entries => return Err("it has entries twice".to_owned()),
                "entries" => {
                    has_entries = true;
                    self.read_entries(chart, &mut index)?;
                }
                _ => self.skip_node()?,
            }
        }
        if api_version.is_none_or(|version| version.is_empty()) {
            return Err("no API version specified".to_owned());
        }
        Ok(index)
    }

    fn read_entries(&mut self, chart: Option<&str>, index: &mut Index) -> Result<(), String> {
        match self.next()? {
            EventKind::MappingStart(..) => {}
            EventKind::Scalar(text, ..) if is_null(&text) => return Ok(()),
            _ => return Err("entries is no map of charts".to_owned()),
        }
        while let Some(name) = self.next_key()? {
            if chart != Some(name.as_str()) {
                self.skip_node()?;
                continue;
            }
            if index.versions.is_some() {
                return Err(format!("it has the chart '{name}' twice"));
            }
            index.versions = Some(self.read_versions(&name)?);
        }
        Ok(())
    }

    fn read_versions(&mut self, name: &str) -> Result<Vec<ListedVersion>, String> {
        let mut versions = Vec::new();
        match self.next()? {
            EventKind::SequenceStart(..) => {}
            EventKind::Scalar(text, ..) if is_null(&text) => return Ok(versions),
            _ => return Err(format!("the chart '{name}' has no list of versions")),
        }
        loop {
            match self.next()? {
                EventKind::SequenceEnd => return Ok(versions),
                EventKind::MappingStart(..) => {
                    if versions.len() >= MOST_VERSIONS {
                        return Err(format!("the chart '{name}' has more than {MOST_VERSIONS} versions"));
                    }
                    versions.push(self.read_version()?);
                }
                EventKind::Scalar(text, ..) if is_null(&text) => {}
                _ => return Err(format!("a version of the chart '{name}' is no map")),
            }
        }
    }

    fn read_version(&mut self) -> Result<ListedVersion, String> {
        let mut version = ListedVersion::default();
        while let Some(key) = self.next_key()? {
            match key.as_str() {
                "version" => version.version = self.read_text()?.unwrap_or_default(),
                "digest" => {
                    let digest = self.read_text()?;
                    version.digest = digest.map(|text| text.trim_start_matches("sha256:").to_owned());
                    version.digest = version.digest.filter(|digest| is_hex(digest));
                }
                "created" => version.created = self.read_text()?.and_then(|text| text.parse().ok()),
                "urls" => version.url = self.read_first()?,
                _ => self.skip_node()?,
            }
        }
        Ok(version)
    }

    /// Reads the first text of a list.
    fn read_first(&mut self) -> Result<Option<String>, String> {
        match self.next()? {
            EventKind::SequenceStart(..) => {}
            EventKind::Scalar(text, ..) if is_null(&text) => return Ok(None),
            _ => return Err("urls is no list".to_owned()),
        }
        let mut first = None;
        loop {
            match self.next()? {
                EventKind::SequenceEnd => return Ok(first),
                EventKind::Scalar(text, ..) if first.is_none() => first = Some(shorten(&text)?),
                begin => self.skip_rest(&begin)?,
            }
        }
    }

    /// Reads a scalar; `None` for null.
    fn read_text(&mut self) -> Result<Option<String>, String> {
        match self.next()? {
            EventKind::Scalar(text, form, _) => {
                let is_plain = form == go_yaml::events::Form::Plain;
                if is_plain && is_null(&text) {
                    return Ok(None);
                }
                shorten(&text).map(Some)
            }
            _ => Err("a field has a map or a list in place of a text".to_owned()),
        }
    }

    /// Reads the next key of a map; `None` at its end.
    fn next_key(&mut self) -> Result<Option<String>, String> {
        match self.next()? {
            EventKind::MappingEnd => Ok(None),
            EventKind::Scalar(text, ..) => shorten(&text).map(Some),
            _ => Err("a key is no text".to_owned()),
        }
    }

    fn skip_node(&mut self) -> Result<(), String> {
        let begin = self.next()?;
        self.skip_rest(&begin)
    }

    /// Skips the rest of a node after its first event.
    fn skip_rest(&mut self, begin: &EventKind<'text>) -> Result<(), String> {
        let mut depth = change_of_depth(begin);
        while depth > 0 {
            depth += change_of_depth(&self.next()?);
        }
        Ok(())
    }

    fn next(&mut self) -> Result<EventKind<'text>, String> {
        self.count = self.count.wrapping_add(1);
        if self.count.is_multiple_of(EVENTS_PER_CHECK) && self.cancelled.load(Ordering::Relaxed) {
            return Err("the reading was cancelled".to_owned());
        }
        let event = self.events.next();
        let event = event.map_err(|problem| format!("line {}: {}", problem.line, problem.message))?;
        Ok(event.what)
    }
}

fn change_of_depth(event: &EventKind<'_>) -> i64 {
    match event {
        EventKind::SequenceStart(..) | EventKind::MappingStart(..) => 1,
        EventKind::SequenceEnd | EventKind::MappingEnd => -1,
        _ => 0,
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn is_hex(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn shorten(text: &str) -> Result<String, String> {
    if text.len() > LONGEST_TEXT {
        return Err(format!("a field has more than {LONGEST_TEXT} bytes"));
    }
    Ok(text.to_owned())
}

/// Chooses the version that is written as wanted, or else the highest one in the wanted range. The creation time decides between equal versions. An empty text
/// means the highest version without a pre-release.
///
/// # Errors
/// Says that no version matches, or that the text is no range.
pub(super) fn choose_version<'a>(
    name: &str,
    versions: &'a [ListedVersion],
    wanted: &str,
) -> Result<&'a ListedVersion, String> {
    if versions.is_empty() {
        return Err("no chart version found".to_owned());
    }
    if let Some(exact) = versions
        .iter()
        .find(|listed| !wanted.is_empty() && listed.version == wanted)
    {
        return Ok(exact);
    }
    let range: Range = if wanted.is_empty() { "*" } else { wanted }
        .parse()
        .map_err(|error| format!("improper constraint: {error}"))?;
    let mut best: Option<(Version, &ListedVersion)> = None;
    for listed in versions {
        let Some(version) = read_tag_version(&listed.version).filter(|version| range.matches(version)) else {
            continue;
        };
        let is_better = best.as_ref().is_none_or(|(other, of)| {
            let order = version.cmp_precedence(other).then(listed.created.cmp(&of.created));
            order.is_gt()
        });
        if is_better {
            best = Some((version, listed));
        }
    }
    let none = || format!("no '{name}' chart with version matching '{wanted}' found");
    best.map(|(_, listed)| listed).ok_or_else(none)
}

#[cfg(test)]
mod tests;
