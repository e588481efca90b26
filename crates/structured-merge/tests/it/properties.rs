//! What must hold for any objects and managers.
