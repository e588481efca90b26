//! Server-side apply: field sets, managedFields, merge and conflicts, as a pure library.
