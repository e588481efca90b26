//! Metrics in the text form that Prometheus reads (version 0.0.4): families of series, labels, histograms.
//!
//! This crate only writes, and stores no values. Invariant: a label's value is at most [`LONGEST_VALUE`] long and
//! stays within its line, because clients choose the values.

use std::fmt::{self, Write as _};

/// The longest value of a label, in bytes: a longer one is cut and ends with `…`.
pub const LONGEST_VALUE: usize = 512;

/// The type of a metric family, as Prometheus names it in a `# TYPE` line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// The values only grow.
    Counter,
    /// The values go up and down.
    Gauge,
    /// The values show the distribution of observations.
    Histogram,
}

impl FamilyKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The labels of one series, in their written form between braces.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(String);

impl Labels {
    /// Returns the empty set, for a series without labels.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns labels with these names and values, in this order.
    #[must_use]
    pub fn of(labels: &[(&str, &str)]) -> Self {
        labels
            .iter()
            .fold(Self::none(), |labels, (name, value)| labels.with(name, value))
    }

    /// Returns the labels with one more label at the end.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push_str("=\"");
        let (value, is_cut) = cut_value(value);
        for letter in value.chars() {
            match letter {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
        if is_cut {
            self.0.push('…');
        }
        self.0.push('"');
        self
    }
}

/// Returns the written part of a value, and whether the rest is cut.
fn cut_value(value: &str) -> (&str, bool) {
    if value.len() <= LONGEST_VALUE {
        return (value, false);
    }
    let end = (0..=LONGEST_VALUE.saturating_sub('…'.len_utf8()))
        .rev()
        .find(|end| value.is_char_boundary(*end));
    (value.get(..end.unwrap_or_default()).unwrap_or_default(), true)
}

/// Writes the `# HELP` and `# TYPE` lines of a metric family. The series of the family must follow.
pub fn begin_family(out: &mut String, name: &str, kind: FamilyKind, help: &str) {
    if !help.is_empty() {
        let _ = writeln!(out, "# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n"));
    }
    let _ = writeln!(out, "# TYPE {name} {}", kind.as_str());
}

/// Writes one series.
pub fn write_series(out: &mut String, name: &str, labels: &Labels, value: impl fmt::Display) {
    let _ = if labels.0.is_empty() {
        writeln!(out, "{name} {value}")
    } else {
        writeln!(out, "{name}{{{}}} {value}", labels.0)
    };
}

/// Writes a family with its series.
pub fn write_family<V: fmt::Display>(
    out: &mut String,
    (name, kind, help): (&str, FamilyKind, &str),
    series: impl IntoIterator<Item = (Labels, V)>,
) {
    begin_family(out, name, kind, help);
    for (labels, value) in series {
        write_series(out, name, &labels, value);
    }
}

/// Writes one histogram: the number of observations at or below each end, the total number, and the sum.
/// `counts` has each observation once, in the first bucket that takes it.
pub fn write_histogram(
    out: &mut String,
    (name, labels): (&str, &Labels),
    ends: &[f64],
    counts: &[u64],
    (sum, count): (impl fmt::Display, u64),
) {
    let comma = if labels.0.is_empty() { "" } else { "," };
    let mut below = 0_u64;
    for (end, bucket) in ends.iter().zip(counts) {
        below = below.saturating_add(*bucket);
        let _ = writeln!(out, "{name}_bucket{{{}{comma}le=\"{end}\"}} {below}", labels.0);
    }
    let _ = writeln!(out, "{name}_bucket{{{}{comma}le=\"+Inf\"}} {count}", labels.0);
    for (part, value) in [("sum", &sum as &dyn fmt::Display), ("count", &count)] {
        let _ = if labels.0.is_empty() {
            writeln!(out, "{name}_{part} {value}")
        } else {
            writeln!(out, "{name}_{part}{{{}}} {value}", labels.0)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_written_as_prometheus_reads_it() {
        let mut out = String::new();
        write_family(
            &mut out,
            ("objects", FamilyKind::Gauge, "How many there are."),
            [(Labels::none(), 3), (Labels::of(&[("kind", "a"), ("name", "b")]), 4)],
        );
        begin_family(&mut out, "seconds", FamilyKind::Histogram, "");
        write_histogram(
            &mut out,
            ("seconds", &Labels::of(&[("kind", "a")])),
            &[0.5, 1.0],
            &[2, 1],
            (7.25, 4),
        );
        assert_eq!(
            out,
            "# HELP objects How many there are.\n# TYPE objects gauge\nobjects 3\nobjects{kind=\"a\",name=\"b\"} 4\n\
             # TYPE seconds histogram\nseconds_bucket{kind=\"a\",le=\"0.5\"} 2\nseconds_bucket{kind=\"a\",le=\"1\"} 3\n\
             seconds_bucket{kind=\"a\",le=\"+Inf\"} 4\nseconds_sum{kind=\"a\"} 7.25\nseconds_count{kind=\"a\"} 4\n"
        );
    }

    /// A label's value may be any text from a status: it ends no line, adds no label, and is no longer than the
    /// limit.
    #[test]
    fn a_value_stays_in_its_label() {
        for (value, written) in [
            ("plain", "plain"),
            ("a\"} 1\nother{b=\"c", "a\\\"} 1\\nother{b=\\\"c"),
            ("back\\slash", "back\\\\slash"),
        ] {
            let labels = Labels::of(&[("l", value)]);
            assert_eq!(labels.0, format!("l=\"{written}\""));
        }
        let long = Labels::of(&[("l", &"ü".repeat(LONGEST_VALUE))]);
        assert!(long.0.len() <= LONGEST_VALUE + "l=\"\"".len() && long.0.ends_with("ü…\""));
    }
}
