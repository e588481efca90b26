//! The names that an expression may use: variables with their types, and objects with their fields.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::program::Program;
use crate::source::CompileError;
use crate::types::Type;

/// Variables and object types, on top of the functions that every expression of Kubernetes has.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: HashMap<String, Type>,
    objects: HashMap<Arc<str>, Arc<BTreeMap<String, Type>>>,
    /// Whether undeclared names are variables.
    open: bool,
}

impl Environment {
    /// Creates an environment without variables, but with all libraries of Kubernetes 1.36.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable.
    #[must_use]
    pub fn with_variable(mut self, name: &str, of: Type) -> Self {
        self.variables.insert(name.to_owned(), of);
        self
    }

    /// Treats every undeclared name as a variable of unknown type. A missing variable is an error only at evaluation.
    #[must_use]
    pub fn with_any_variable(mut self) -> Self {
        self.open = true;
        self
    }

    /// Declares the fields of an object type. [`Type::object`] is the type with this name.
    #[must_use]
    pub fn with_object(mut self, name: &str, fields: BTreeMap<String, Type>) -> Self {
        self.objects.insert(name.into(), Arc::new(fields));
        self
    }

    /// Like [`Self::with_object`], for many fields that are used repeatedly.
    #[must_use]
    pub fn with_shared_object(mut self, name: &str, fields: Arc<BTreeMap<String, Type>>) -> Self {
        self.objects.insert(name.into(), fields);
        self
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    /// Returns whether undeclared names are variables.
    pub fn takes_any_variable(&self) -> bool {
        self.open
    }

    /// Checks whether the fields of this object type are declared.
    pub(crate) fn declares_fields_of(&self, object: &str) -> bool {
        self.objects.contains_key(object)
    }

    pub(crate) fn field(&self, object: &str, field: &str) -> Option<&Type> {
        let fields = self.objects.get(object)?;
        let keyword = || fields.get(&crate::escaping::escape(field)?);
        // Words that the language keeps for itself may be written as they are after a dot.
        fields
            .get(field)
            .or_else(|| crate::parser::is_reserved(field).then(keyword).flatten())
    }

    /// Compiles an expression: parses it, checks its types, and prepares it for evaluation.
    ///
    /// # Errors
    /// With all problems that Kubernetes would name, in its words.
    pub fn compile(&self, expression: &str) -> Result<Program, CompileError> {
        Program::compile(expression, self)
    }
}
