//! Owns how deep, how big and how long in its texts a resource may become through transformations, which can copy parts of it into
//! it. The whole of it is only measured when enough was added since: changes that are many and small cost no more than a few large ones.

use go_yaml::node::Node;

use crate::meter;

/// How deep a resource may be nested.
const MAXIMUM_DEPTH: usize = 400;
/// How many nodes it may have.
const MAXIMUM_NODES: usize = 2_000_000;
/// How many bytes of text it may have.
const MAXIMUM_TEXT: usize = 64 << 20;
/// What may be added to a small resource before it is measured again: nodes and bytes of text by the sixteen.
const SMALL: usize = 4096;

/// What was added to a resource since it was measured.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    size: usize,
    added: usize,
}

impl Growth {
    /// Notes that something was put into the resource, and refuses one that has grown beyond all measure.
    ///
    /// # Errors
    /// When it has too many nodes or too much text, or the build is given up.
    pub(crate) fn add(&mut self, added: usize, resource: &Node) -> Result<(), String> {
        self.added = self.added.saturating_add(added);
        if self.added > self.size.max(SMALL) {
            self.size = size(resource);
            self.added = 0;
            let (mut nodes, mut text) = (MAXIMUM_NODES, MAXIMUM_TEXT);
            spend(resource, &mut nodes, &mut text)?;
        }
        meter::check()
    }
}

/// How much a node is: nodes, and bytes of text by the sixteen.
pub(crate) fn size(node: &Node) -> usize {
    meter::work(1);
    let items = node.items().iter().map(size).sum::<usize>();
    let values = node.entries().iter().map(|(_, value)| size(value)).sum::<usize>();
    1 + node.text().len() / 16 + items + values
}

/// Refuses to put a node so many levels deep when that is too deep with what is in it.
///
/// # Errors
/// When it is.
pub(crate) fn check_depth(node: &Node, level: usize) -> Result<(), String> {
    let deeper = |node: &Node| check_depth(node, level + 1);
    meter::work(1);
    if level > MAXIMUM_DEPTH {
        return Err(format!(
            "the resource becomes nested deeper than {MAXIMUM_DEPTH} levels"
        ));
    }
    node.items().iter().try_for_each(deeper)?;
    node.entries().iter().try_for_each(|(_, value)| deeper(value))
}

fn spend(node: &Node, nodes: &mut usize, text: &mut usize) -> Result<(), String> {
    let too_big = || "the resource becomes too big: a change copies parts of it into it".to_owned();
    *nodes = nodes.checked_sub(1).ok_or_else(too_big)?;
    *text = text.checked_sub(node.text().len()).ok_or_else(too_big)?;
    node.items().iter().try_for_each(|item| spend(item, nodes, text))?;
    node.entries()
        .iter()
        .try_for_each(|(_, value)| spend(value, nodes, text))
}
