//! Snapshot in, Plan out: every decision of every reconciler, without I/O.
