//! The XML of a store: pages of a listing, and errors. Pure.
//!
//! Known elements are read, all others are skipped. Document types are refused, and so is nesting beyond what answers have. Nothing is expanded or fetched.

use quick_xml::Reader;
use quick_xml::events::Event;

use crate::url::decode_percent;

/// The deepest nesting of elements.
const DEPTH: usize = 16;
/// Bytes of a text that is read. An encoded key may be three times as long as the key.
const TEXT_BYTES: usize = 16 << 10;

/// An object, as a page of a bucket's listing describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListedObject {
    pub(super) key: String,
    /// Changes whenever the content changes.
    pub(super) mark: String,
    pub(super) size: u64,
}

/// The end of a page of a listing, which names the next page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// The token of the next page; `None` on the last page.
    pub(super) next: Option<String>,
}

/// The error code in a store's answer, and the bucket's region if the answer names it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StoreError {
    /// The store's code for it; empty if the store sends none that can be shown.
    pub(super) code: String,
    /// The region that the bucket is in.
    pub(super) region: Option<String>,
}

/// Reads a page and shows its objects to `look` one by one. `look` returns whether to go on.
///
/// # Errors
/// The problem, to complete the sentence "its listing …".
pub(super) fn read_page(bytes: &[u8], mut look: impl FnMut(ListedObject) -> bool) -> Result<Page, &'static str> {
    let (mut next, mut is_truncated, mut is_encoded) = (None, None, false);
    let mut object = ListedObject::default();
    let mut size = None;
    // The page names the encoding of keys after the keys, so the keys are decoded at the end.
    let mut objects = Vec::new();
    let mut problem = None;
    walk_elements(bytes, |path, text| {
        match path {
            "ListBucketResult/EncodingType" => is_encoded = text == "url",
            "ListBucketResult/IsTruncated" => is_truncated = text.trim().parse().ok(),
            "ListBucketResult/NextContinuationToken" => next = Some(text.to_owned()),
            "ListBucketResult/Contents/Key" => object.key = text.to_owned(),
            "ListBucketResult/Contents/ETag" => object.mark = trim_mark(text).to_owned(),
            "ListBucketResult/Contents/Size" => size = text.trim().parse().ok(),
            "ListBucketResult/Contents" => {
                let mut done = std::mem::take(&mut object);
                match size.take() {
                    Some(size) => done.size = size,
                    None => problem = Some("has an object without a size"),
                }
                objects.push(done);
            }
            _ => {}
        }
        problem.is_none()
    })?;
    if let Some(problem) = problem {
        return Err(problem);
    }
    for mut object in objects {
        if is_encoded {
            object.key = decode_percent(&object.key.replace('+', " ")).ok_or("has a key that can't be read")?;
        }
        if object.key.is_empty() {
            return Err("has an object without a key");
        }
        if !look(object) {
            break;
        }
    }
    match (is_truncated, next) {
        (Some(true), Some(next)) if !next.is_empty() => Ok(Page { next: Some(next) }),
        (Some(true), _) => Err("has more pages, and doesn't say which is the next"),
        (Some(false), _) => Ok(Page::default()),
        // Any other page is no proof that the bucket is empty.
        (None, _) => Err("has no IsTruncated, so it is not a listing of S3"),
    }
}

/// Reads a refusal of the store. An unreadable refusal gives an empty one.
pub(super) fn read_error(bytes: &[u8]) -> StoreError {
    let mut error = StoreError::default();
    let read = walk_elements(bytes, |path, text| {
        match path {
            "Error/Code" => error.code = text.to_owned(),
            "Error/Region" => error.region = read_region(text),
            _ => {}
        }
        true
    });
    let is_word = error.code.len() <= 64 && error.code.bytes().all(|byte| byte.is_ascii_alphabetic());
    if read.is_err() || !is_word {
        error.code.clear();
    }
    error
}

/// Reads the region that a store names, if the text can be a region.
pub(super) fn read_region(text: &str) -> Option<String> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_region = (1..=64).contains(&text.len()) && text.bytes().all(is_part);
    is_region.then(|| text.to_owned())
}

/// Returns a mark (an ETag) without the quotes around it.
pub(super) fn trim_mark(text: &str) -> &str {
    let text = text.trim();
    let text = text.strip_prefix('"').unwrap_or(text);
    text.strip_suffix('"').unwrap_or(text)
}

/// Walks over a document and shows each element at its end: its path and its text. The callback returns whether to go on.
fn walk_elements(bytes: &[u8], mut end: impl FnMut(&str, &str) -> bool) -> Result<(), &'static str> {
    const UNREADABLE: &str = "is no XML that can be read";
    let document = std::str::from_utf8(bytes).map_err(|_| UNREADABLE)?;
    let mut reader = Reader::from_str(document);
    reader.config_mut().expand_empty_elements = true;
    let mut path = String::new();
    let mut depth = 0_usize;
    let mut text = String::new();
    let add = |text: &mut String, more: &str| {
        if text.len() + more.len() > TEXT_BYTES {
            return Err("has a text that is too long");
        }
        text.push_str(more);
        Ok(())
    };
    loop {
        match reader.read_event().map_err(|_| UNREADABLE)? {
            Event::Start(start) => {
                depth += 1;
                if depth > DEPTH {
                    return Err("has elements in elements without end");
                }
                if depth > 1 {
                    path.push('/');
                }
                path.push_str(start.local_name().into_inner());
                text.clear();
            }
            Event::End(_) => {
                if !end(&path, &text) {
                    return Ok(());
                }
                let outer = path.rfind('/').unwrap_or_default();
                path.truncate(outer);
                depth = depth.saturating_sub(1);
                text.clear();
            }
            // Each line end of a document is a line feed (XML 1.0, section 2.11).
            Event::Text(piece) => add(&mut text, &piece.xml10_content())?,
            Event::CData(piece) => add(&mut text, &piece.xml10_content())?,
            Event::GeneralRef(reference) => {
                let stands_for = match &*reference {
                    "lt" => Some('<'),
                    "gt" => Some('>'),
                    "amp" => Some('&'),
                    "apos" => Some('\''),
                    "quot" => Some('"'),
                    _ => reference.resolve_char_ref().ok().flatten(),
                };
                let stands_for = stands_for.ok_or(UNREADABLE)?;
                add(&mut text, stands_for.encode_utf8(&mut [0; 4]))?;
            }
            Event::DocType(_) => return Err("has a document type"),
            Event::Eof if depth > 0 => return Err("is cut off"),
            Event::Eof => return Ok(()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(xml: &str) -> Result<(Vec<ListedObject>, Page), &'static str> {
        let mut objects = Vec::new();
        let page = read_page(xml.as_bytes(), |object| {
            objects.push(object);
            true
        })?;
        Ok((objects, page))
    }

    #[test]
    fn a_page_is_read() {
        let xml = r#"<?xml version="1.0" encoding="UTF-8"?>
            <ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>apps</Name><Prefix/>
            <Contents><Key>a%2Bb+c/d%C3%BC</Key><ETag>&quot;1&#45;2&quot;</ETag><Size>3</Size><Owner><ID>x</ID></Owner></Contents>
            <Contents><Key>e</Key><ETag>"4"</ETag><Size>0</Size></Contents>
            <IsTruncated>true</IsTruncated><NextContinuationToken>a/+b=</NextContinuationToken><EncodingType>url</EncodingType>
            </ListBucketResult>"#;
        let object = |key: &str, mark: &str, size| ListedObject {
            key: key.to_owned(),
            mark: mark.to_owned(),
            size,
        };
        let next = Some("a/+b=".to_owned());
        assert_eq!(
            read(xml),
            Ok((vec![object("a+b c/dü", "1-2", 3), object("e", "4", 0)], Page { next }))
        );
        let plain = "<ListBucketResult><Contents><Key>a+b%20&amp;</Key><Size>1</Size></Contents><IsTruncated>false</IsTruncated></ListBucketResult>";
        assert_eq!(read(plain), Ok((vec![object("a+b%20&", "", 1)], Page::default())));
        // Line ends are line feeds for each reader of XML; a store escapes the others.
        let lines = "<ListBucketResult><Contents><Key>a\r\nb\rc&#13;d<![CDATA[\r\n]]></Key><Size>1</Size></Contents><IsTruncated>false</IsTruncated></ListBucketResult>";
        assert_eq!(read(lines), Ok((vec![object("a\nb\nc\rd\n", "", 1)], Page::default())));
    }

    #[test]
    fn malformed_listing_pages_are_refused() {
        for (xml, problem) in [
            ("no XML <", "is no XML"),
            ("<ListBucketResult>", "is cut off"),
            ("<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>", "document type"),
            ("<a>&b;</a>", "is no XML"),
            (
                "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
                "without a size",
            ),
            (
                "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
                "without a key",
            ),
            (
                "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
                "more pages",
            ),
            ("<html><IsTruncated>false</IsTruncated></html>", "has no IsTruncated"),
            ("<ListBucketResult/>", "has no IsTruncated"),
            ("", "has no IsTruncated"),
            (&"<a>".repeat(20), "elements in elements"),
            (&format!("<a>{}</a>", "x".repeat(20_000)), "too long"),
        ] {
            let error = read(xml).err().unwrap_or_default();
            assert!(error.contains(problem), "{problem}: {error}");
        }
    }

    #[test]
    fn an_error_says_a_word_and_a_region() {
        let error = |xml: &str| read_error(xml.as_bytes());
        let parsed = error(
            "<Error><Code>AuthorizationHeaderMalformed</Code><Message>no</Message><Region>eu-west-1</Region></Error>",
        );
        assert_eq!(
            (parsed.code.as_str(), parsed.region.as_deref()),
            ("AuthorizationHeaderMalformed", Some("eu-west-1"))
        );
        assert_eq!(
            error("<Error><Code>a b\nc</Code><Region>../x</Region></Error>"),
            StoreError::default()
        );
        assert_eq!(error("gateway"), StoreError::default());
    }
}
