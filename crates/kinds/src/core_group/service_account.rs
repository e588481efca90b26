//! The kind ServiceAccount.

use crate::kind::Kind;
use crate::table::name_and_age;

/// ServiceAccounts.
pub(super) static SERVICE_ACCOUNT: Kind = Kind {
    is_answered_when_deleted: true,
    cells: name_and_age,
    ..Kind::new("", "ServiceAccount", "serviceaccounts")
};
