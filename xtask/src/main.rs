//! Automation of the project: `generate [--check]`, `tidy`, `baseline`, `bench`.

fn main() {}
