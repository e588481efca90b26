//! Reads a page of tags and shows them one by one. No tag is held in memory, however many the registry lists. Pure.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Shows each tag of a page to `look`, until it refuses.
///
/// # Errors
/// When the text is no page of tags, or `look` refused a tag.
pub(super) fn read_page(bytes: &[u8], look: &mut dyn FnMut(&str) -> bool) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    deserializer.deserialize_map(Page(look))?;
    deserializer.end()
}

/// Reads the object of a page: only the field `tags` counts.
struct Page<'f>(&'f mut dyn FnMut(&str) -> bool);
/// Reads the list of tags.
struct TagList<'f>(&'f mut dyn FnMut(&str) -> bool);
/// Reads one tag and shows it to the callback.
struct Tag<'f>(&'f mut dyn FnMut(&str) -> bool);

impl<'de> Visitor<'de> for Page<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object with tags")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "tags" {
                map.next_value_seed(TagList(&mut *self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for TagList<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TagList<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of tags")
    }

    /// A repository after the deletion of all its tags has `null`.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut tags: A) -> Result<(), A::Error> {
        while tags.next_element_seed(Tag(&mut *self.0))?.is_some() {}
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Tag<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Tag<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a tag")
    }

    fn visit_str<E: serde::de::Error>(self, tag: &str) -> Result<(), E> {
        if (self.0)(tag) {
            Ok(())
        } else {
            Err(E::custom("too many"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(page: &str) -> Option<Vec<String>> {
        let mut tags = Vec::new();
        let mut look = |tag: &str| {
            tags.push(tag.to_owned());
            tags.len() < 4
        };
        read_page(page.as_bytes(), &mut look).ok().map(|()| tags)
    }

    #[test]
    fn a_page_is_shown_tag_by_tag() {
        let tags = |tags: &[&str]| Some(tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(r#"{"name":{"x":[1]},"tags":["a","b\u0063"]}"#), tags(&["a", "bc"]));
        assert_eq!(read(r#"{"tags":null}"#), tags(&[]));
        assert_eq!(read("{}"), tags(&[]));
        for page in [
            r#"{"tags":[1]}"#,
            r#"{"tags":{}}"#,
            "[]",
            "",
            r#"{"tags":["a"]"#,
            r#"{"tags":[]}x"#,
            r#"{"tags":["a","b","c","d"]}"#,
        ] {
            assert_eq!(read(page), None, "{page}");
        }
    }
}
