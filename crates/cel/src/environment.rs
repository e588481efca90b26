//! What an expression may refer to: variables with their types, and objects with their fields.

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
    /// Whether names that nothing declares are variables.
    open: bool,
}

impl Environment {
    /// Without variables. All libraries of Kubernetes 1.36 are there.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable.
    #[must_use]
    pub fn with_variable(mut self, name: &str, of: Type) -> Self {
        self.variables.insert(name.to_owned(), of);
        self
    }

    /// Takes every name that nothing declares for a variable of unknown type. Whether there is one shows when it is evaluated.
    #[must_use]
    pub fn with_any_variable(mut self) -> Self {
        self.open = true;
        self
    }

    /// Declares what fields the objects of a name have. [`Type::object`] is their type.
    #[must_use]
    pub fn with_object(mut self, name: &str, fields: BTreeMap<String, Type>) -> Self {
        self.objects.insert(name.into(), Arc::new(fields));
        self
    }

    /// As [`Self::with_object`], for fields that are many and used again and again.
    #[must_use]
    pub fn with_shared_object(mut self, name: &str, fields: Arc<BTreeMap<String, Type>>) -> Self {
        self.objects.insert(name.into(), fields);
        self
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    /// Whether names that nothing declares are variables.
    pub fn takes_any_variable(&self) -> bool {
        self.open
    }

    /// Whether it is declared what fields these objects have.
    pub(crate) fn knows(&self, object: &str) -> bool {
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
