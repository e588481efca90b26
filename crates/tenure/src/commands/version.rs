//! `tenure version`: prints the program's version.

use std::process::ExitCode;

use clap::Args;

use crate::{failure::Failure, output};

/// Print the version.
#[derive(Debug, Args)]
pub(crate) struct Version {}

impl Version {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        output::print_line(format!("tenure {}", env!("CARGO_PKG_VERSION")));
        Ok(ExitCode::SUCCESS)
    }
}
