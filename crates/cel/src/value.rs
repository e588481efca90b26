//! Values of variables and results of expressions. JSON is read in place, and copied only to build a new value.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::extension::Extension;
use crate::failure::Failure;
use crate::shape::Shape;
use crate::time::Timestamp;
use crate::types::Type;

/// A value of the language.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A text.
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    List(List<'a>),
    /// A map or an object.
    Map(Map<'a>),
    /// A point in time.
    Timestamp(Timestamp),
    /// A span of time, in nanoseconds.
    Duration(i64),
    /// A type.
    Type(Type),
    /// A value that may be absent.
    Optional(Option<Arc<Value<'a>>>),
    /// A value of one of Kubernetes' libraries.
    Extension(Extension),
    /// Something of unknown type inside an object; it can only be compared.
    Preserved(&'a Json),
}

/// A text that lies in the input or was made by an expression.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    /// A text in the input.
    Borrowed(&'a str),
    /// A text that an expression made.
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::String(Text::Shared(text.into()))
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }
}

impl<'a> From<Vec<Value<'a>>> for Value<'a> {
    fn from(items: Vec<Value<'a>>) -> Self {
        Self::List(List {
            items: Items::Made(Arc::new(items)),
            shape: None,
        })
    }
}

/// A list. If the schema calls the list a set or a map by keys, comparison and joining follow that.
#[derive(Debug, Clone)]
pub struct List<'a> {
    pub(crate) items: Items<'a>,
    /// The schema of the list.
    pub(crate) shape: Option<&'a Shape>,
}

/// The items of a list: in the input, or made by an expression.
#[derive(Debug, Clone)]
pub(crate) enum Items<'a> {
    Json(&'a [Json]),
    Made(Arc<Vec<Value<'a>>>),
}

impl<'a> List<'a> {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        match &self.items {
            Items::Json(items) => items.len(),
            Items::Made(items) => items.len(),
        }
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an item.
    ///
    /// # Errors
    /// If the item does not fit its schema.
    pub fn get(&self, index: usize) -> Option<Result<Value<'a>, Failure>> {
        match &self.items {
            Items::Json(items) => items
                .get(index)
                .map(|item| Value::view_typed(item, self.shape.and_then(Shape::items))),
            Items::Made(items) => items.get(index).cloned().map(Ok),
        }
    }

    /// Returns every item.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, Failure>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// A map or an object.
#[derive(Debug, Clone)]
pub struct Map<'a> {
    pub(crate) entries: Entries<'a>,
}

/// The entries of a map: in the input, with their schema, or made by an expression.
#[derive(Debug, Clone)]
pub(crate) enum Entries<'a> {
    Json(&'a serde_json::Map<String, Json>, Option<&'a Shape>),
    Made(Arc<BTreeMap<Key, Value<'a>>>),
}

/// A key of a map. Equal numbers of different types are equal keys.
#[derive(Debug, Clone)]
pub(crate) enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Arc<str>),
}

impl Key {
    fn rank(&self) -> (u8, i128, &str) {
        match self {
            Key::Bool(value) => (0, i128::from(*value), ""),
            Key::Int(value) => (1, i128::from(*value), ""),
            Key::Uint(value) => (1, i128::from(*value), ""),
            Key::String(text) => (2, 0, text),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl Key {
    /// Returns a value as a key; `None` if the value can't be a key.
    pub(crate) fn of(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(value) => Self::Int(*value),
            Value::Uint(value) => Self::Uint(*value),
            // A whole number is equal to the integer as a key.
            Value::Double(value) if value.fract() == 0.0 && value.abs() < 9.2e18 => Self::Int(*value as i64),
            Value::String(text) => Self::String(Arc::from(&**text)),
            _ => return None,
        })
    }

    pub(crate) fn value<'a>(&self) -> Value<'a> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::String(text) => Value::String(Text::Shared(text.clone())),
        }
    }
}

impl<'a> Map<'a> {
    pub(crate) fn from_entries(entries: BTreeMap<Key, Value<'a>>) -> Value<'a> {
        Value::Map(Map {
            entries: Entries::Made(Arc::new(entries)),
        })
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match &self.entries {
            Entries::Json(entries, _) => entries.len(),
            Entries::Made(entries) => entries.len(),
        }
    }

    /// Returns whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value at a text key.
    ///
    /// # Errors
    /// If the value does not fit its schema.
    pub fn get(&self, key: &str) -> Option<Result<Value<'a>, Failure>> {
        match &self.entries {
            Entries::Json(entries, None) => entries.get(key).map(|found| Value::view_typed(found, None)),
            Entries::Json(entries, Some(shape)) => {
                let unescaped;
                let name = if shape.is_object() {
                    unescaped = crate::escaping::unescape(key)?;
                    unescaped.as_str()
                } else {
                    key
                };
                let found = entries.get(name)?;
                if shape.is_object() && found.is_null() {
                    return None;
                }
                let property = shape.property(name)?;
                Some(Value::view_typed(found, Some(property)))
            }
            Entries::Made(entries) => entries.get(&Key::String(key.into())).cloned().map(Ok),
        }
    }

    /// Returns the value at any key.
    pub(crate) fn find(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, Failure> {
        if let Value::String(text) = key {
            return self.get(text).transpose();
        }
        match (&self.entries, Key::of(key)) {
            (Entries::Made(entries), Some(key)) => Ok(entries.get(&key).cloned()),
            (Entries::Json(_, Some(_)), _) => Err(Failure::no_such_overload()),
            _ => Ok(None),
        }
    }

    /// Returns the keys, in order.
    pub(crate) fn keys(&self) -> Vec<Value<'a>> {
        match &self.entries {
            Entries::Json(entries, None) => entries.keys().map(|key| Value::from(key.as_str())).collect(),
            Entries::Json(entries, Some(shape)) => entries
                .keys()
                .filter(|key| shape.property(key).is_some())
                .map(|key| {
                    let escaped = if shape.is_object() {
                        crate::escaping::escape(key).filter(|escaped| escaped != key)
                    } else {
                        None
                    };
                    escaped.map_or_else(|| Value::from(key.as_str()), Value::from)
                })
                .collect(),
            Entries::Made(entries) => entries.keys().map(Key::value).collect(),
        }
    }
}

impl<'a> Value<'a> {
    /// Creates a view of JSON without a schema: whole numbers are integers, other numbers floating-point.
    pub fn json(value: &'a Json) -> Self {
        match value {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(whole) => Self::Int(whole),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::from(text.as_str()),
            Json::Array(items) => Self::List(List {
                items: Items::Json(items),
                shape: None,
            }),
            Json::Object(entries) => Self::Map(Map {
                entries: Entries::Json(entries, None),
            }),
        }
    }

    /// Creates a view of JSON with the types of its schema.
    ///
    /// # Errors
    /// If it is not of the schema's type.
    pub fn with_shape(value: &'a Json, shape: &'a Shape) -> Result<Self, Failure> {
        Self::view_typed(value, Some(shape))
    }

    pub(crate) fn view_typed(value: &'a Json, shape: Option<&'a Shape>) -> Result<Self, Failure> {
        match shape {
            Some(shape) => shape.view(value),
            None => Ok(Self::json(value)),
        }
    }

    /// Creates an optional with or without a value.
    pub fn optional(value: Option<Value<'a>>) -> Self {
        Self::Optional(value.map(Arc::new))
    }

    /// Returns the type of the value, as `type()` returns it.
    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Timestamp(_) => Type::Timestamp,
            Self::Duration(_) => Type::Duration,
            Self::Type(_) => Type::Type(None),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Extension(extension) => extension.type_of(),
            Self::Preserved(_) => Type::Dyn,
        }
    }

    /// Returns the number of code points, bytes, items or entries; `None` if the value has no size.
    pub(crate) fn size(&self) -> Option<u64> {
        let size = match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Map(map) => map.len(),
            Self::Extension(extension) => return extension.size(),
            _ => return None,
        };
        u64::try_from(size).ok()
    }

    /// Returns the entries of a map, in the order of their keys; nothing for anything else.
    pub fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        let Self::Map(map) = self else {
            return Vec::new();
        };
        map.keys()
            .into_iter()
            .filter_map(|key| {
                let value = map.find(&key).ok()??;
                Some((key, value))
            })
            .collect()
    }

    /// Returns the text, if the value is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value as JSON, if JSON has a form for it.
    pub fn to_json(&self) -> Option<Json> {
        Some(match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::from(*value),
            Self::Int(value) => Json::from(*value),
            Self::Uint(value) => Json::from(*value),
            Self::Double(value) => Json::from(*value),
            Self::String(text) => Json::from(&**text),
            Self::List(list) => Json::Array(
                list.iter()
                    .map(|item| item.ok()?.to_json())
                    .collect::<Option<Vec<Json>>>()?,
            ),
            Self::Map(map) => {
                let mut object = serde_json::Map::new();
                for key in map.keys() {
                    let value = map.find(&key).ok()??;
                    object.insert(key.as_str()?.to_owned(), value.to_json()?);
                }
                Json::Object(object)
            }
            Self::Optional(Some(inner)) => inner.to_json()?,
            Self::Optional(None) => Json::Null,
            Self::Preserved(value) => (*value).clone(),
            Self::Bytes(_) | Self::Timestamp(_) | Self::Duration(_) | Self::Type(_) | Self::Extension(_) => {
                return None;
            }
        })
    }
}
