//! Bindings: the assignment of a Pod to a node.

use crate::kind::{Action, Kind};

/// Bindings.
pub(super) static BINDING: Kind = Kind {
    action: |subresource| subresource.is_none().then_some(Action::Bind),
    ..Kind::new("", "Binding", "bindings")
};
