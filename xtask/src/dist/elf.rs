//! Checks whether a program needs a loader, and with it a C library, where it runs. Reads only the needed fields of ELF; only 64-bit little-endian programs are accepted.

use anyhow::{Context, Result, ensure};

/// The type of a program header that names a loader.
const INTERPRETER: u32 = 3;

/// Checks whether the program names a loader.
pub(crate) fn wants_loader(program: &[u8]) -> Result<bool> {
    ensure!(
        program.starts_with(b"\x7fELF\x02\x01"),
        "this is no program for 64 bits"
    );
    let offset = usize::try_from(u64::from_le_bytes(read_bytes(program, 32)?))?;
    let size = usize::from(u16::from_le_bytes(read_bytes(program, 54)?));
    let count = usize::from(u16::from_le_bytes(read_bytes(program, 56)?));
    for number in 0..count {
        if u32::from_le_bytes(read_bytes(program, offset + number * size)?) == INTERPRETER {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_bytes<const LENGTH: usize>(program: &[u8], at: usize) -> Result<[u8; LENGTH]> {
    let bytes = program
        .get(at..at.saturating_add(LENGTH))
        .context("the program is cut off")?;
    Ok(bytes.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a header with one program header of this type.
    fn program(kind: u32) -> Vec<u8> {
        let mut program = b"\x7fELF\x02\x01".to_vec();
        program.resize(64, 0);
        program.splice(32..40, 64_u64.to_le_bytes());
        program.splice(54..56, 56_u16.to_le_bytes());
        program.splice(56..58, 1_u16.to_le_bytes());
        program.extend(kind.to_le_bytes());
        program.resize(64 + 56, 0);
        program
    }

    #[test]
    fn a_loader_is_found() -> Result<()> {
        assert!(wants_loader(&program(INTERPRETER))?);
        assert!(!wants_loader(&program(1))?);
        assert!(wants_loader(b"#!/bin/sh").is_err());
        assert!(wants_loader(&program(1)[..64]).is_err());
        if cfg!(all(
            target_os = "linux",
            target_env = "gnu",
            target_pointer_width = "64"
        )) {
            assert!(wants_loader(&std::fs::read(std::env::current_exe()?)?)?);
        }
        Ok(())
    }
}
