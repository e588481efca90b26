//! Owns what strategic merge needs to know about Kubernetes' kinds: which lists are merged, and by which keys.

use std::collections::HashMap;
use std::sync::LazyLock;

/// One type, by its number in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Type(usize);

/// What a field of a type is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field {
    /// A mapping of this type.
    Object(Type),
    /// A list that is replaced, of this type.
    Items(Type),
    /// A mapping from any key to this type.
    Values(Type),
    /// A list that is merged by keys (none for a list of scalars).
    Merged { keys: Vec<String>, elements: Option<Type> },
}

#[derive(Debug, Default)]
struct Table {
    types: Vec<HashMap<String, Field>>,
    kinds: HashMap<String, Type>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| read(include_str!("../data/merge-keys.txt")));

fn read(text: &str) -> Table {
    let mut table = Table::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["type", _, kinds @ ..] => {
                let number = Type(table.types.len());
                table.types.push(HashMap::new());
                for kind in kinds {
                    table.kinds.insert((*kind).to_owned(), number);
                }
            }
            [name, "list", _, keys, of] => {
                let keys = keys.split(',').filter(|key| *key != "-").map(str::to_owned).collect();
                insert(
                    &mut table,
                    name,
                    Field::Merged {
                        keys,
                        elements: of.parse().ok().map(Type),
                    },
                );
            }
            [name, kind @ ("field" | "items" | "map"), of] => {
                let Ok(of) = of.parse() else { continue };
                let field = match *kind {
                    "field" => Field::Object(Type(of)),
                    "items" => Field::Items(Type(of)),
                    _ => Field::Values(Type(of)),
                };
                insert(&mut table, name, field);
            }
            _ => {}
        }
    }
    table
}

fn insert(table: &mut Table, name: &str, field: Field) {
    if let Some(fields) = table.types.last_mut() {
        fields.insert(name.to_owned(), field);
    }
}

/// The type of a built-in kind; `None` for custom kinds, whose lists are never merged.
pub(crate) fn of_kind(api_version: &str, kind: &str) -> Option<Type> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    TABLE.kinds.get(&format!("{group}/{version}/{kind}")).copied()
}

/// A field of a type.
pub(crate) fn field(of: Type, name: &str) -> Option<&'static Field> {
    TABLE.types.get(of.0)?.get(name)
}
