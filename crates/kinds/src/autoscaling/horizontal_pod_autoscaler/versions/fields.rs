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

const fn always(old: &'static str, new: &'static str, form: Form) -> Field {
    Field {
        old,
        new,
        form,
        always: true,
    }
}

const fn maybe(old: &'static str, new: &'static str, form: Form) -> Field {
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
            always("target", "/describedObject", Form::Reference),
            always("metricName", "/metric/name", Form::Text),
            always("targetValue", "/target/value", Form::Amount),
            maybe("selector", "/metric/selector", Form::Selector),
            maybe("averageValue", "/target/averageValue", Form::Amount),
        ],
    ),
    (
        "pods",
        &[
            always("metricName", "/metric/name", Form::Text),
            always("targetAverageValue", "/target/averageValue", Form::Amount),
            maybe("selector", "/metric/selector", Form::Selector),
        ],
    ),
    (
        "resource",
        &[
            always("name", "/name", Form::Text),
            maybe("targetAverageUtilization", "/target/averageUtilization", Form::Number),
            maybe("targetAverageValue", "/target/averageValue", Form::Amount),
        ],
    ),
    (
        "containerResource",
        &[
            always("name", "/name", Form::Text),
            maybe("targetAverageUtilization", "/target/averageUtilization", Form::Number),
            maybe("targetAverageValue", "/target/averageValue", Form::Amount),
            always("container", "/container", Form::Text),
        ],
    ),
    (
        "external",
        &[
            always("metricName", "/metric/name", Form::Text),
            maybe("metricSelector", "/metric/selector", Form::Selector),
            maybe("targetValue", "/target/value", Form::Amount),
            maybe("targetAverageValue", "/target/averageValue", Form::Amount),
        ],
    ),
];

/// The observed values of metrics.
pub(super) const OBSERVED: [Source; 5] = [
    (
        "object",
        &[
            always("target", "/describedObject", Form::Reference),
            always("metricName", "/metric/name", Form::Text),
            always("currentValue", "/current/value", Form::Amount),
            maybe("selector", "/metric/selector", Form::Selector),
            maybe("averageValue", "/current/averageValue", Form::Amount),
        ],
    ),
    (
        "pods",
        &[
            always("metricName", "/metric/name", Form::Text),
            always("currentAverageValue", "/current/averageValue", Form::Amount),
            maybe("selector", "/metric/selector", Form::Selector),
        ],
    ),
    (
        "resource",
        &[
            always("name", "/name", Form::Text),
            maybe("currentAverageUtilization", "/current/averageUtilization", Form::Number),
            always("currentAverageValue", "/current/averageValue", Form::Amount),
        ],
    ),
    (
        "containerResource",
        &[
            always("name", "/name", Form::Text),
            maybe("currentAverageUtilization", "/current/averageUtilization", Form::Number),
            always("currentAverageValue", "/current/averageValue", Form::Amount),
            always("container", "/container", Form::Text),
        ],
    ),
    (
        "external",
        &[
            always("metricName", "/metric/name", Form::Text),
            maybe("metricSelector", "/metric/selector", Form::Selector),
            always("currentValue", "/current/value", Form::Amount),
            maybe("currentAverageValue", "/current/averageValue", Form::Amount),
        ],
    ),
];
