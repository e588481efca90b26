//! The confirmation of an irreversible action. Only a yes counts.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use crate::failure::Failure;

/// Asks a user at a terminal. Without a terminal, the user must confirm in advance, as `otherwise` says.
pub(crate) fn ask_confirmation(otherwise: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("there is no terminal for the confirmation").hint(otherwise));
    }
    let mut out = std::io::stderr();
    let _reader_gone = write!(out, "Do this? Only yes is taken for yes: ").and_then(|()| out.flush());
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_err() || answer.trim() != "yes" {
        return Err(Failure::negative("nothing was done"));
    }
    Ok(())
}
