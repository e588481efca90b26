//! Durable, revisioned objects with history and watch, in one file.
