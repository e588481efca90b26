//! Any bytes as a page of a listing, or as an error of a store, see [`crate::fuzzing`].

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    reason = "a check fails by a panic"
)]

use super::listing::{ListedObject, Page, read_error, read_page};

/// The objects of a page, each with key, mark and size, and the token of the next page.
pub type Listed = (Vec<(String, String, u64)>, Option<String>);

/// Returns the content of a page, for a comparison with another reader; `None` if it is refused.
pub fn check(bytes: &[u8]) -> Option<Listed> {
    let error = read_error(bytes);
    assert!(error.code.len() <= 64 && error.code.bytes().all(|byte| byte.is_ascii_alphabetic()));
    assert!(error.region.is_none_or(|region| region.len() <= 64));
    let mut objects = Vec::new();
    let page = read_page(bytes, |object| {
        objects.push(object);
        true
    });
    // A reader that looks at fewer objects gets the same ones.
    for most in [1, 2] {
        let mut first = Vec::new();
        let _page = read_page(bytes, |object| {
            first.push(object);
            first.len() < most
        });
        assert!(first.len() <= most);
        assert!(objects.starts_with(&first));
    }
    let page = page.ok()?;
    assert!(objects.iter().all(|object| !object.key.is_empty()));
    // A store that lists the same objects in the plainest way gives the same page.
    let mut again = Vec::new();
    let written = write_page(&objects, &page);
    if let Some(written) = written {
        let page_again = read_page(written.as_bytes(), |object| {
            again.push(object);
            true
        });
        assert_eq!((page_again.as_ref(), &again), (Ok(&page), &objects), "{written}");
    }
    let objects = objects.into_iter().map(|object| (object.key, object.mark, object.size));
    Some((objects.collect(), page.next))
}

/// Writes a page; nothing if a text can't be written plainly.
fn write_page(objects: &[ListedObject], page: &Page) -> Option<String> {
    let escape = |text: &str| -> Option<String> {
        let is_plain = text.len() < 10_000
            && !text
                .chars()
                .any(|c| c.is_control() || c == '\u{fffe}' || c == '\u{ffff}');
        is_plain.then(|| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
    };
    let mut out = "<ListBucketResult>".to_owned();
    for ListedObject { key, mark, size } in objects {
        let (key, mark) = (escape(key)?, escape(mark)?);
        out.push_str(&format!(
            "<Contents><Size>{size}</Size><Key>{key}</Key><ETag>\"{mark}\"</ETag></Contents>"
        ));
    }
    let next = page.next.as_deref();
    if let Some(next) = next {
        out.push_str(&format!(
            "<NextContinuationToken>{}</NextContinuationToken>",
            escape(next)?
        ));
    }
    out.push_str(&format!(
        "<IsTruncated>{}</IsTruncated></ListBucketResult>",
        next.is_some()
    ));
    Some(out)
}

/// Returns the first inputs.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        r#"<?xml version="1.0" encoding="UTF-8"?>
            <ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>apps</Name><Prefix/>
            <Contents><Key>a%2Bb+c/d%C3%BC</Key><ETag>&quot;1&#45;2&quot;</ETag><Size>3</Size><Owner><ID>x</ID></Owner></Contents>
            <Contents><Key>e</Key><ETag>"4"</ETag><Size>0</Size></Contents>
            <IsTruncated>true</IsTruncated><NextContinuationToken>a/+b=</NextContinuationToken><EncodingType>url</EncodingType>
            </ListBucketResult>"#,
        "<ListBucketResult><Contents><Key>a+b%20&amp;</Key><Size>1</Size></Contents><IsTruncated>false</IsTruncated></ListBucketResult>",
        "<s:ListBucketResult xmlns:s='x'><s:Contents><s:Key><![CDATA[a<b]]></s:Key><!-- c --><s:Size> 7 </s:Size></s:Contents><s:IsTruncated>false</s:IsTruncated></s:ListBucketResult>",
        "<Error><Code>AuthorizationHeaderMalformed</Code><Message>no</Message><Region>eu-west-1</Region></Error>",
        "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_around_the_first_inputs_keep_their_promises() {
        crate::fuzzing::check_around(&seeds(), |bytes| drop(check(bytes)));
    }
}
