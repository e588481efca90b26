//! Limits for the depth, the size and the text of a resource. Transformations can copy parts of a resource into itself. The whole resource
//! is measured only after enough additions, so many small changes cost no more than a few large ones.

use go_yaml::node::Node;

use crate::meter;

/// The maximum nesting of a resource.
const MAXIMUM_DEPTH: usize = 400;
/// The maximum number of nodes of a resource.
const MAXIMUM_NODES: usize = 2_000_000;
/// The maximum number of bytes of text in a resource.
const MAXIMUM_TEXT: usize = 64 << 20;
/// The additions to a small resource after which it is measured again, in nodes and in sixteen bytes of text each.
const SMALL: usize = 4096;

/// The additions to a resource since its last measurement.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    size: usize,
    added: usize,
}

impl Growth {
    /// Records an addition to the resource, and refuses a resource that has become too large.
    ///
    /// # Errors
    /// If the resource has too many nodes or too much text, or if the build's budget is exhausted.
    pub(crate) fn add(&mut self, added: usize, resource: &Node) -> Result<(), String> {
        self.added = self.added.saturating_add(added);
        if self.added > self.size.max(SMALL) {
            self.size = measure_size(resource);
            self.added = 0;
            let (mut nodes, mut text) = (MAXIMUM_NODES, MAXIMUM_TEXT);
            spend_node(resource, &mut nodes, &mut text)?;
        }
        meter::check()
    }
}

/// Returns the size of a node: nodes, and one for sixteen bytes of text.
pub(crate) fn measure_size(node: &Node) -> usize {
    meter::count_steps(1);
    let items = node.items().iter().map(measure_size).sum::<usize>();
    let values = node
        .entries()
        .iter()
        .map(|(_, value)| measure_size(value))
        .sum::<usize>();
    1 + node.text().len() / 16 + items + values
}

/// Checks that a node at this level, with everything in it, is not nested too deeply.
///
/// # Errors
/// If the node is nested too deeply.
pub(crate) fn check_depth(node: &Node, level: usize) -> Result<(), String> {
    let deeper = |node: &Node| check_depth(node, level + 1);
    meter::count_steps(1);
    if level > MAXIMUM_DEPTH {
        return Err(format!(
            "the resource becomes nested deeper than {MAXIMUM_DEPTH} levels"
        ));
    }
    node.items().iter().try_for_each(deeper)?;
    node.entries().iter().try_for_each(|(_, value)| deeper(value))
}

fn spend_node(node: &Node, nodes: &mut usize, text: &mut usize) -> Result<(), String> {
    let too_big = || "the resource becomes too big: a change copies parts of it into it".to_owned();
    *nodes = nodes.checked_sub(1).ok_or_else(too_big)?;
    *text = text.checked_sub(node.text().len()).ok_or_else(too_big)?;
    node.items().iter().try_for_each(|item| spend_node(item, nodes, text))?;
    node.entries()
        .iter()
        .try_for_each(|(_, value)| spend_node(value, nodes, text))
}
