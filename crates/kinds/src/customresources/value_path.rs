//! The path of a value in an object: `spec.rules[3].name`. The text is built only for an error, because most values are valid and an object
//! of 300 KB has thousands of values.

use std::fmt::{self, Display, Formatter};

use crate::schema::{LONGEST_PATH, shorten_key};

/// The way from an object's root to a value. Each step borrows the one above it.
#[derive(Clone, Copy)]
pub(super) struct ValuePath<'a> {
    above: Option<&'a ValuePath<'a>>,
    step: Step<'a>,
    /// The length of the written path in bytes.
    length: usize,
}

/// The last step of a path.
#[derive(Clone, Copy)]
enum Step<'a> {
    /// A field, or a path from the root, as written.
    Field(&'a str),
    /// The item of a list.
    Item(usize),
    /// The key of a map entry, where errors distinguish keys from fields.
    Key(&'a str),
}

impl<'a> ValuePath<'a> {
    /// The object itself, which has no name.
    pub(super) const ROOT: ValuePath<'static> = ValuePath {
        above: None,
        step: Step::Field(""),
        length: 0,
    };

    /// Returns the path of a field. Below a path that is already long, the path stays the same, so that a long key costs nothing below it.
    pub(super) fn field(&'a self, name: &'a str) -> Self {
        let name = shorten_key(name);
        self.step(Step::Field(name), name.len() + usize::from(self.length > 0))
    }

    /// Returns the path of a list item.
    pub(super) fn item(&'a self, index: usize) -> Self {
        let digits = index.checked_ilog10().map_or(1, |log| log as usize + 1);
        self.step(Step::Item(index), digits + 2)
    }

    /// Returns the path of a map entry, in brackets, as schema rules write it.
    pub(super) fn key(&'a self, name: &'a str) -> Self {
        let name = shorten_key(name);
        self.step(Step::Key(name), name.len() + 2)
    }

    fn step(&'a self, step: Step<'a>, more: usize) -> Self {
        if self.length > LONGEST_PATH {
            return *self;
        }
        Self {
            above: Some(self),
            step,
            length: self.length + more,
        }
    }

    /// Returns whether the path is the object itself.
    pub(super) fn is_root(&self) -> bool {
        self.length == 0
    }
}

impl Display for ValuePath<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(formatter)?;
        }
        match self.step {
            Step::Field(name) => {
                let follows = self.above.is_some_and(|above| !above.is_root());
                formatter.write_str(if follows { "." } else { "" })?;
                formatter.write_str(name)
            }
            Step::Item(index) => write!(formatter, "[{index}]"),
            Step::Key(name) => write!(formatter, "[{name}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_by_real_server() {
        let root = ValuePath::ROOT;
        let spec = root.field("spec");
        let rules = spec.field("rules");
        let third = rules.item(10);
        assert_eq!(root.to_string(), "");
        assert_eq!(root.item(0).to_string(), "[0]");
        assert_eq!(third.field("name").to_string(), "spec.rules[10].name");
        assert_eq!(spec.key("a.b").to_string(), "spec[a.b]");
    }

    #[test]
    fn path_length_equals_length_of_its_text() {
        let root = ValuePath::ROOT;
        let spec = root.field("spec");
        for path in [
            spec.item(0),
            spec.item(9),
            spec.item(10),
            spec.item(1234),
            spec.key("k"),
            spec.field("f"),
        ] {
            assert_eq!(path.length, path.to_string().len());
        }
    }

    #[test]
    fn below_a_long_path_nothing_is_named() {
        let long = "k".repeat(2 * LONGEST_PATH);
        let root = ValuePath::ROOT;
        let (first, spec) = (root.field(&long), root.field("spec"));
        let second = spec.field(&long);
        assert_eq!(first.to_string().len(), LONGEST_PATH);
        assert_eq!(second.field("below").item(3).to_string(), second.to_string());
    }
}
