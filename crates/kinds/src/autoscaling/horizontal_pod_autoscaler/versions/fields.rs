//! The fields of version 1 with which annotations describe metrics, and the place of each field in version 2. This module contains only
//! tables.

/// The form of a field of version 1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Number,
    Amount,
    Selector,
    /// Kind, name and version of an object.
    Reference,
}

/// A field of version 1, and the JSON pointer at which version 2 has it.
pub(super) struct Field {
    pub(super) old: &'static str,
    pub(super) new: &'static str,
    pub(super) form: Form,
    /// Whether the field is also written when it is empty.
    pub(super) always: bool,
}

const fn always_written(old: &'static str, new: &'static str, form: Form) -> Field {
    Field {
        old,
        new,
        form,
        always: true,
    }
}

const fn written_if_set(old: &'static str, new: &'static str, form: Form) -> Field {
    Field {
        old,
        new,
        form,
        always: false,
    }
}

/// A source of metrics and its fields, in the order in which version 1 writes them.
pub(super) type Source = (&'static str, &'static [Field]);

/// The targets of metrics.
pub(super) const WANTED: [Source; 5] = [
    (
        "object",
        &[
            always_written("target", "/describedObject", Form::Reference),
            always_written("metricName", "/metric/name", Form::Text),
            always_written("targetValue", "/target/value", Form::Amount),
            written_if_set("selector", "/metric/selector", Form::Selector),
            written_if_set("averageValue", "/target/averageValue", Form::Amount),
        ],
    ),
    (
        "pods",
        &[
            always_written("metricName", "/metric/name", Form::Text),
            always_written("targetAverageValue", "/target/averageValue", Form::Amount),
            written_if_set("selector", "/metric/selector", Form::Selector),
        ],
    ),
    (
        "resource",
        &[
            always_written("name", "/name", Form::Text),
            written_if_set("targetAverageUtilization", "/target/averageUtilization", Form::Number),
            written_if_set("targetAverageValue", "/target/averageValue", Form::Amount),
        ],
    ),
    (
        "containerResource",
        &[
            always_written("name", "/name", Form::Text),
            written_if_set("targetAverageUtilization", "/target/averageUtilization", Form::Number),
            written_if_set("targetAverageValue", "/target/averageValue", Form::Amount),
            always_written("container", "/container", Form::Text),
        ],
    ),
    (
        "external",
        &[
            always_written("metricName", "/metric/name", Form::Text),
            written_if_set("metricSelector", "/metric/selector", Form::Selector),
            written_if_set("targetValue", "/target/value", Form::Amount),
            written_if_set("targetAverageValue", "/target/averageValue", Form::Amount),
        ],
    ),
];

/// The observed values of metrics.
pub(super) const OBSERVED: [Source; 5] = [
    (
        "object",
        &[
            always_written("target", "/describedObject", Form::Reference),
            always_written("metricName", "/metric/name", Form::Text),
            always_written("currentValue", "/current/value", Form::Amount),
            written_if_set("selector", "/metric/selector", Form::Selector),
            written_if_set("averageValue", "/current/averageValue", Form::Amount),
        ],
    ),
    (
        "pods",
        &[
            always_written("metricName", "/metric/name", Form::Text),
            always_written("currentAverageValue", "/current/averageValue", Form::Amount),
            written_if_set("selector", "/metric/selector", Form::Selector),
        ],
    ),
    (
        "resource",
        &[
            always_written("name", "/name", Form::Text),
            written_if_set("currentAverageUtilization", "/current/averageUtilization", Form::Number),
            always_written("currentAverageValue", "/current/averageValue", Form::Amount),
        ],
    ),
    (
        "containerResource",
        &[
            always_written("name", "/name", Form::Text),
            written_if_set("currentAverageUtilization", "/current/averageUtilization", Form::Number),
            always_written("currentAverageValue", "/current/averageValue", Form::Amount),
            always_written("container", "/container", Form::Text),
        ],
    ),
    (
        "external",
        &[
            always_written("metricName", "/metric/name", Form::Text),
            written_if_set("metricSelector", "/metric/selector", Form::Selector),
            always_written("currentValue", "/current/value", Form::Amount),
            written_if_set("currentAverageValue", "/current/averageValue", Form::Amount),
        ],
    ),
];
