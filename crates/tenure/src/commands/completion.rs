//! `tenure completion SHELL`: the completion script of a shell, on standard output.

use std::process::ExitCode;

use clap::{Args, CommandFactory};

use crate::{failure::Failure, output};

/// Print the completion script of a shell.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell.
    shell: clap_complete::Shell,
}

impl Completion {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Arguments::command(), "tenure", &mut script);
        output::written(|out| out.write_all(&script));
        Ok(ExitCode::SUCCESS)
    }
}
