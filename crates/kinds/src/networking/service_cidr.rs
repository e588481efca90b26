//! ServiceCIDRs. They have table cells, but the server does not serve them.

use crate::kind::Kind;
use crate::table::cells;

/// ServiceCIDRs.
pub(super) static SERVICE_CIDR: Kind = Kind {
    cells: |object, now| {
        let ranges = cells::join_texts(object, "/spec/cidrs");
        vec![cells::name_cell(object), ranges.into(), cells::format_age(object, now)]
    },
    ..Kind::new("networking.k8s.io", "ServiceCIDR", "servicecidrs")
};
