//! The transformers that ran over a resource, as ranges of step numbers of the build. A step runs over all existing resources, so a list of
//! names in each resource would become larger than the resources.

/// The numbers of the steps that ran over one resource, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Half-open ranges of step numbers.
    ranges: Vec<(usize, usize)>,
}

impl Touched {
    pub(crate) fn push(&mut self, step: usize) {
        match self.ranges.last_mut() {
            Some((_, end)) if *end == step => *end += 1,
            _ => {
                crate::meter::count_bytes(size_of::<(usize, usize)>());
                self.ranges.push((step, step + 1));
            }
        }
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = usize> {
        self.ranges.iter().flat_map(|(start, end)| *start..*end)
    }
}

/// The file paths and transformers that the numbers in resources stand for, shared by all resources of a build.
#[derive(Debug, Default)]
pub(crate) struct Register {
    /// Paths of files; a node's source is the position here, plus one.
    pub(crate) files: Vec<String>,
    /// Transformers as they were run, each as `Transformer (file:line)`.
    pub(crate) steps: Vec<String>,
}

impl Register {
    /// Returns the path of a file by its number; empty for an unknown number.
    pub(crate) fn file(&self, source: u32) -> &str {
        usize::try_from(source)
            .ok()
            .and_then(|source| self.files.get(source.checked_sub(1)?))
            .map_or("", String::as_str)
    }
}
