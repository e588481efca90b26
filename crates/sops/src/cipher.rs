//! The form of one encrypted value of SOPS, `ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]`, and its decryption. The path of a value is authenticated with it, so a value that
//! was moved to another key is refused.

use aes_gcm::aead::consts::U32;
use aes_gcm::aead::{Aead, KeyInit, Nonce, Payload};
use aes_gcm::{Aes256Gcm, AesGcm, aes::Aes256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::tree::{Comment, Span, Value};

const BEGIN: &str = "ENC[AES256_GCM,data:";
/// Bytes of an AES-GCM tag.
const TAG: usize = 16;

/// The key that encrypts all values of a file.
pub(crate) type DataKey = Zeroizing<[u8; 32]>;

/// Checks whether a text looks like an encrypted value.
pub(crate) fn is_encrypted(text: &str) -> bool {
    text.starts_with(BEGIN)
}

/// The parts of an encrypted value.
struct Parts<'a> {
    data: &'a str,
    nonce: &'a str,
    tag: &'a str,
    kind: &'a str,
}

/// Splits an encrypted value. As in SOPS, the text after the closing bracket is ignored.
fn split_parts(text: &str) -> Option<Parts<'_>> {
    let rest = text.strip_prefix(BEGIN)?;
    let (data, rest) = rest.split_once(",iv:")?;
    let (nonce, rest) = rest.split_once(",tag:")?;
    let (tag, rest) = rest.split_once(",type:")?;
    // SOPS takes the last bracket, and no type contains one.
    let (kind, _) = rest.rsplit_once(']')?;
    (!data.is_empty()).then_some(Parts { data, nonce, tag, kind })
}

/// Decrypts a value; an empty text stays empty.
///
/// # Errors
/// The reason, without any part of the value.
pub(crate) fn decrypt_value(text: &str, key: &DataKey, path: &str) -> Result<Value, &'static str> {
    if text.is_empty() {
        return Ok(Value::Text(Zeroizing::new(String::new())));
    }
    let parts = split_parts(text).ok_or("should be encrypted and isn't")?;
    let clear = open_bytes(&parts, key, path)?;
    convert_to_type(clear, parts.kind)
}

/// Decrypts a value with AES-GCM, authenticated with its path.
fn open_bytes(parts: &Parts<'_>, key: &DataKey, path: &str) -> Result<Zeroizing<Vec<u8>>, &'static str> {
    const NOT_BASE64: &str = "has parts that aren't base64";
    go_yaml::meter::count_text(parts.data.len());
    let mut sealed = decode(parts.data).ok_or(NOT_BASE64)?;
    let nonce = decode(parts.nonce).ok_or(NOT_BASE64)?;
    let tag = decode(parts.tag).ok_or(NOT_BASE64)?;
    if tag.len() != TAG {
        return Err("has a tag that isn't one of AES-GCM");
    }
    sealed.extend_from_slice(&tag);
    let payload = Payload {
        msg: &sealed,
        aad: path.as_bytes(),
    };
    let clear = match nonce.len() {
        32 => <AesGcm<Aes256, U32>>::new_from_slice(key.as_slice())
            .ok()
            .zip(Nonce::<AesGcm<Aes256, U32>>::try_from(nonce.as_slice()).ok())
            .and_then(|(cipher, nonce)| cipher.decrypt(&nonce, payload).ok()),
        12 => Aes256Gcm::new_from_slice(key.as_slice())
            .ok()
            .zip(Nonce::<Aes256Gcm>::try_from(nonce.as_slice()).ok())
            .and_then(|(cipher, nonce)| cipher.decrypt(&nonce, payload).ok()),
        _ => return Err("has an initialization vector of a length that SOPS doesn't write"),
    };
    clear
        .map(Zeroizing::new)
        .ok_or("was changed, moved from another key, or encrypted with another data key")
}

fn decode(text: &str) -> Option<Vec<u8>> {
    // Like Go's decoder, which skips line ends.
    if text.contains(['\r', '\n']) {
        let joined: String = text.chars().filter(|one| !matches!(one, '\r' | '\n')).collect();
        return STANDARD.decode(joined).ok();
    }
    STANDARD.decode(text).ok()
}

/// Converts a clear value to its type.
fn convert_to_type(clear: Zeroizing<Vec<u8>>, kind: &str) -> Result<Value, &'static str> {
    const MISFIT: &str = "is not of the type that it says";
    let text = |clear: &Zeroizing<Vec<u8>>| std::str::from_utf8(clear).map(|text| Zeroizing::new(text.to_owned()));
    let Ok(read) = text(&clear) else {
        return match kind {
            "str" | "bytes" => Ok(Value::Bytes(clear)),
            _ => Err(MISFIT),
        };
    };
    match kind {
        // SOPS 1 wrote `bytes` for files that aren't text.
        "str" | "bytes" => Ok(Value::Text(read)),
        "int" => parse_integer(&read).map(Value::Int).ok_or(MISFIT),
        "float" => read.parse().map(Value::Float).map_err(|_| MISFIT),
        "bool" => match read.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(MISFIT),
        },
        "time" if is_time(&read) => Ok(Value::Time(read)),
        "comment" => Ok(Value::Comment(Comment {
            text: read,
            span: Span::default(),
            is_opened: true,
        })),
        "time" => Err(MISFIT),
        _ => Err("has a type that SOPS doesn't write"),
    }
}

/// Reads an integer as Go's `strconv.Atoi`.
fn parse_integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Checks whether a text has the form of an RFC 3339 time.
pub(crate) fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is = |at: usize, byte: u8| bytes.get(at) == Some(&byte);
    let date = (0..4).chain(5..7).chain(8..10).all(is_digit) && is(4, b'-') && is(7, b'-') && is(10, b'T');
    let time = (11..13).chain(14..16).chain(17..19).all(is_digit) && is(13, b':') && is(16, b':');
    let Some(rest) = text.get(19..) else { return false };
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|one: char| one.is_ascii_digit()),
        None => rest,
    };
    let is_offset = |zone: &str| {
        let zone = zone.as_bytes();
        zone.len() == 6
            && zone.iter().enumerate().all(|(at, byte)| match at {
                0 => matches!(byte, b'+' | b'-'),
                3 => *byte == b':',
                _ => byte.is_ascii_digit(),
            })
    };
    date && time && (zone == "Z" || is_offset(zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_four_parts() {
        let parts = split_parts("ENC[AES256_GCM,data:YQ==,iv:Yg==,tag:Yw==,type:str]").unwrap();
        assert_eq!(
            (parts.data, parts.nonce, parts.tag, parts.kind),
            ("YQ==", "Yg==", "Yw==", "str")
        );
        for text in [
            "",
            "ENC[AES256_GCM,data:,iv:a,tag:b,type:str]",
            "ENC[AES256_GCM,data:a,iv:b,tag:c]",
            "plain",
        ] {
            assert!(super::split_parts(text).is_none(), "{text}");
        }
    }

    #[test]
    fn times_have_a_form() {
        for time in ["2024-01-02T03:04:05Z", "2024-01-02T03:04:05.123+01:00"] {
            assert!(is_time(time), "{time}");
        }
        for text in [
            "",
            "2024-01-02",
            "2024-01-02T03:04:05",
            "2024-01-02T03:04:05Zé",
            "2024-01-02T03:04:05+1:00",
        ] {
            assert!(!is_time(text), "{text}");
        }
    }
}
