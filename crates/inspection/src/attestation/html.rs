//! The report as one page without further requests: no script, no file, no address.

use std::fmt::Write as _;

use tenure_api::text::visible_line;

use super::{Outcome, Report};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1c2024}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.5rem;border-top:1px solid #d8dce0}\
code{font-size:13px}.held{color:#18794e}.did{color:#cd2b31;font-weight:600}.could{color:#8d5c00}small{color:#60646c}";

/// Writes the page. All answers of a cluster are escaped as text.
#[must_use]
pub fn write_html(report: &Report) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">");
    page.push_str(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
    );
    let _written = write!(
        page,
        "<title>tenure attest</title><style>{STYLE}</style>\n<h1>{}</h1>\n<p>{} · {} · tenure {}</p>\n",
        escape_html(&report.summarize_counts()),
        escape_html(&report.cluster),
        escape_html(&report.started),
        escape_html(&report.version),
    );
    page.push_str("<table><tr><th>attack</th><th>outcome</th><th>what stops it</th><th>what was said</th></tr>\n");
    for outcome in [Outcome::NotHeld, Outcome::NotTried, Outcome::Held] {
        let class = match outcome {
            Outcome::Held => "held",
            Outcome::NotHeld => "did",
            Outcome::NotTried => "could",
        };
        for result in report.results.iter().filter(|result| result.outcome == outcome) {
            let _written = writeln!(
                page,
                "<tr><td><code>{}</code><br>{}</td><td class=\"{class}\">{}</td><td><code>{}</code></td><td>{}<br><small>{}</small></td></tr>",
                escape_html(&result.name),
                escape_html(&result.tries),
                outcome.as_str(),
                escape_html(&result.stop),
                escape_html(&result.message),
                escape_html(&result.remedy),
            );
        }
    }
    page.push_str("</table></html>\n");
    page
}

fn escape_html(text: &str) -> String {
    let text = visible_line(text);
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::verdict::AttackResult;
    use super::*;

    #[test]
    fn page_escapes_cluster_text_and_loads_nothing() {
        let report = Report {
            cluster: "https://<b>".to_owned(),
            started: String::new(),
            version: String::new(),
            results: vec![AttackResult {
                name: "a".to_owned(),
                tries: "tries".to_owned(),
                stop: "rbac".to_owned(),
                outcome: Outcome::NotHeld,
                message: "<script src=\"//x\">'&\u{202e}".to_owned(),
                remedy: String::new(),
            }],
        };
        let page = write_html(&report);
        assert!(
            page.contains("&lt;script src=&quot;//x&quot;&gt;&#39;&amp;\\u{202e}"),
            "{page}"
        );
        for absent in ["<script", "<b>", "<link", "<img", "@import", "url("] {
            assert!(!page.contains(absent), "{absent}: {page}");
        }
    }
}
