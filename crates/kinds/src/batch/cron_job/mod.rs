//! The kind CronJob.

mod schedule;
mod validation;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::core_group::pod::template;
use crate::kind::{Generation, Kind};
use crate::schema::defaults;
use crate::table::{cells, duration};

const TEMPLATE: &str = "/spec/jobTemplate/spec/template";

/// CronJobs.
pub(super) static CRON_JOB: Kind = Kind {
    generation: Generation::Counted,
    initial_status: Some(|| json!({})),
    pod_spec: Some("/spec/jobTemplate/spec/template/spec"),
    drop_disabled: |object, live| template::drop_disabled("/spec/jobTemplate/spec/template/spec", object, live),
    defaults: |_, object| {
        defaults::with_spec(object, |spec| {
            defaults::set(spec, "concurrencyPolicy", "Allow");
            defaults::set(spec, "suspend", false);
            defaults::set(spec, "successfulJobsHistoryLimit", 3);
            defaults::set(spec, "failedJobsHistoryLimit", 1);
        });
    },
    validate_create: |value, errors| validation::validate(value, None, errors),
    validate_update: |value, old, errors| validation::validate(value, Some(old), errors),
    warnings: |object, live| {
        if template::has_same_generation(object, live) {
            return Vec::new();
        }
        template::warnings_at(object, TEMPLATE)
    },
    cells: show,
    ..Kind::new("batch", "CronJob", "cronjobs")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let last = cells::get_text(object, "/status/lastScheduleTime");
    let last = if last.is_empty() {
        cells::NONE.to_owned()
    } else {
        duration::format_since(last, now)
    };
    let suspended = match object.pointer("/spec/suspend") {
        Some(Value::Bool(true)) => "True",
        Some(Value::Bool(false)) => "False",
        _ => "<unset>",
    };
    let [names, images] = cells::format_containers(object, "/spec/jobTemplate/spec/template/spec/containers");
    vec![
        cells::name_cell(object),
        cells::get_text(object, "/spec/schedule").into(),
        cells::non_empty_or(cells::get_text(object, "/spec/timeZone"), cells::NONE).into(),
        suspended.into(),
        cells::list_items(object, "/status/active").len().into(),
        last.into(),
        cells::format_age(object, now),
        names,
        images,
        cells::format_selector(object, "/spec/jobTemplate/spec/selector").into(),
    ]
}
