//! `tenure confined`: limits this process, and becomes another program. `tenure up` starts helm-controller so.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::confinement::{self, Confinement};
use crate::failure::Failure;

/// Run a program that reads and writes only the working directory. Only `tenure up` starts this command.
#[derive(Debug, Args)]
pub(crate) struct Confined {
    /// The largest memory, in bytes.
    #[arg(long, value_name = "BYTES")]
    memory: u64,
    /// The program.
    #[arg(value_name = "PROGRAM")]
    program: PathBuf,
    /// Its arguments.
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Confined {
    /// Becomes the program. Must be called while only one thread exists. Returns only if that fails.
    pub(crate) fn become_program(&self) -> Failure {
        confinement::die_with_parent();
        confinement::close_inherited();
        for gap in Confinement::enter_for_program(self.memory, &self.program).list_gaps() {
            crate::output::print_note(gap);
        }
        let error = Command::new(&self.program).args(&self.arguments).exec();
        Failure::environment(format!("{}: {error}", self.program.display()))
    }
}
