//! The protobuf wire format: tags, varints, fixed numbers, lengths.

use super::ProtobufError;

/// A field's value in the wire format.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8], usize),
}

/// Reads fields one after the other.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// Offset of `rest` in the whole body, for messages.
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], offset: usize) -> Self {
        Self { rest: bytes, offset }
    }

    /// Returns the next field's number and value; `None` at the end.
    pub(super) fn read_field(&mut self) -> Result<Option<(u64, Wire<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.read_varint()?;
        let value = match tag & 7 {
            0 => Wire::Varint(self.read_varint()?),
            1 => {
                let bytes = self.take_bytes(8)?;
                Wire::Fixed64(
                    bytes
                        .iter()
                        .rev()
                        .fold(0, |number, byte| number << 8 | u64::from(*byte)),
                )
            }
            2 => {
                let length = usize::try_from(self.read_varint()?).map_err(|_| self.malformed_error())?;
                let start = self.offset;
                Wire::Bytes(self.take_bytes(length)?, start)
            }
            5 => {
                let bytes = self.take_bytes(4)?;
                Wire::Fixed32(
                    bytes
                        .iter()
                        .rev()
                        .fold(0, |number, byte| number << 8 | u32::from(*byte)),
                )
            }
            // Groups are long deprecated, and Kubernetes uses none.
            _ => return Err(self.malformed_error()),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// Varints until the end: a packed list.
    pub(super) fn read_packed(mut self) -> Result<Vec<u64>, ProtobufError> {
        let mut numbers = Vec::new();
        while !self.rest.is_empty() {
            numbers.push(self.read_varint()?);
        }
        Ok(numbers)
    }

    fn read_varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self
                .take_bytes(1)?
                .first()
                .copied()
                .ok_or_else(|| self.malformed_error())?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.malformed_error())
    }

    fn take_bytes(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| self.malformed_error())?;
        self.rest = rest;
        self.offset += length;
        Ok(taken)
    }

    fn malformed_error(&self) -> ProtobufError {
        ProtobufError::Malformed(self.offset)
    }
}

impl<'a> Wire<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], ProtobufError> {
        match self {
            Self::Bytes(bytes, _) => Ok(bytes),
            _ => Err(ProtobufError::Malformed(0)),
        }
    }

    pub(super) fn message(self) -> Result<Reader<'a>, ProtobufError> {
        match self {
            Self::Bytes(bytes, offset) => Ok(Reader::new(bytes, offset)),
            _ => Err(ProtobufError::Malformed(0)),
        }
    }

    pub(super) fn text(self) -> Result<&'a str, ProtobufError> {
        match self {
            Self::Bytes(bytes, offset) => std::str::from_utf8(bytes).map_err(|_| ProtobufError::NotUtf8(offset)),
            _ => Err(ProtobufError::Malformed(0)),
        }
    }

    /// Returns an integer of any width, as two's complement.
    pub(super) fn integer(self) -> Result<i64, ProtobufError> {
        match self {
            Self::Varint(number) | Self::Fixed64(number) => Ok(number.cast_signed()),
            Self::Fixed32(number) => Ok(i64::from(number.cast_signed())),
            Self::Bytes(_, offset) => Err(ProtobufError::Malformed(offset)),
        }
    }
}
