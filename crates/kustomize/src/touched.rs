//! Owns which transformers were run over a resource: the numbers of the build's steps, as ranges, because a step runs over all
//! resources that are there, and a list of names for each of them would outgrow the resources.

/// The steps that were run over one resource, in order.
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
                crate::meter::made(size_of::<(usize, usize)>());
                self.ranges.push((step, step + 1));
            }
        }
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = usize> {
        self.ranges.iter().flat_map(|(start, end)| *start..*end)
    }
}

/// What the numbers in resources stand for, shared by all resources of a build.
#[derive(Debug, Default)]
pub(crate) struct Register {
    /// Paths of files; a node's source is the position here, plus one.
    pub(crate) files: Vec<String>,
    /// Transformers as they were run, each as `Transformer (file:line)`.
    pub(crate) steps: Vec<String>,
}

impl Register {
    /// The path of a file by its number; empty when it has none.
    pub(crate) fn file(&self, source: u32) -> &str {
        usize::try_from(source)
            .ok()
            .and_then(|source| self.files.get(source.checked_sub(1)?))
            .map_or("", String::as_str)
    }
}
