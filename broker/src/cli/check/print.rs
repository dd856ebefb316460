//! What a check says: findings as they are made, how far it is, and a summary.

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use walser_machine::metadata::MetadataImage;
use walser_storage::check::repair::Loss;
use walser_storage::check::{Event, Finding, Report};

use crate::cli::error::CliError;
use crate::cli::output::{bold, json_line};

/// The bar is drawn anew no more often.
const REDRAW_EVERY: Duration = Duration::from_millis(100);
const BAR_CELLS: usize = 30;

/// Findings go to standard output; the bar to standard error, where that is a terminal, and one plain line where not.
pub(super) struct Printer {
    json: bool,
    is_terminal: bool,
    total_bytes: Cell<u64>,
    read_bytes: Cell<u64>,
    drawn: Cell<Option<Instant>>,
    /// An error of the output, met where none can be returned.
    error: RefCell<Option<CliError>>,
}

impl Printer {
    pub fn new(json: bool) -> Self {
        Self {
            json,
            is_terminal: std::io::stderr().is_terminal(),
            total_bytes: Cell::new(0),
            read_bytes: Cell::new(0),
            drawn: Cell::new(None),
            error: RefCell::default(),
        }
    }

    /// The first error of the output that could not be returned when it happened.
    pub fn finish(&self) -> Result<(), CliError> {
        self.error.take().map_or(Ok(()), Err)
    }

    pub fn event(&self, event: Event<'_>) {
        match event {
            Event::Total(bytes) => {
                self.total_bytes.set(bytes);
                if !self.is_terminal && !self.json {
                    eprintln!("reading {} of logs", size(bytes));
                }
            }
            Event::Read(bytes) => {
                self.read_bytes.update(|read| read + bytes);
                self.draw();
            }
            Event::Found(finding) => {
                if let Err(error) = self.finding(finding) {
                    self.error.borrow_mut().get_or_insert(error);
                }
            }
        }
    }

    pub fn finding(&self, finding: &Finding) -> Result<(), CliError> {
        let Finding { partition, path, position, offset, reason, consequence, .. } = finding;
        let severity = if finding.is_damage() { "damage" } else { "note" };
        let value = json!({
            "type": severity,
            "partition": partition,
            "path": path.display().to_string(),
            "position": position,
            "offset": offset,
            "reason": reason,
            "at_a_start": consequence,
        });
        self.line(&value, || {
            let position = position.map(|position| format!(" at byte {position}")).unwrap_or_default();
            let offset = offset.map(|offset| format!(", offset {offset}")).unwrap_or_default();
            let label = if finding.is_damage() { bold("damage:") } else { "note:".to_owned() };
            format!("{label} {}{position}{offset}: {reason}\n  at a start: {consequence}", path.display())
        })
    }

    pub fn loss(&self, partition: &str, loss: &Loss) -> Result<(), CliError> {
        let Loss { first_offset, last_offset, aside } = loss;
        let value = json!({
            "type": "lost",
            "partition": partition,
            "first_offset": first_offset,
            "last_offset": last_offset,
            "aside": aside.as_ref().map(|path| path.display().to_string()),
        });
        self.line(&value, || {
            let lost = match last_offset {
                Some(last) => format!("offsets {first_offset} to {last} are lost"),
                None => format!("records from offset {first_offset} on may be lost, how many is not known"),
            };
            let aside = aside.as_ref().map(|path| format!("; what is left of them is in {}", path.display()));
            format!("{} {partition}: {lost}{}", bold("lost:"), aside.unwrap_or_default())
        })
    }

    pub fn rebuilt(&self, partition: Option<&str>, path: &Path) -> Result<(), CliError> {
        let value = json!({"type": "rebuilt", "partition": partition, "path": path.display().to_string()});
        self.line(&value, || format!("rebuilt: {}", path.display()))
    }

    pub fn say(&self, text: &str) -> Result<(), CliError> {
        self.line(&json!({"type": "message", "text": text}), || text.to_owned())
    }

    pub fn summary(&self, report: &Report, image: Option<&MetadataImage>, damage_count: usize) -> Result<(), CliError> {
        let Report { partitions, batches, bytes, journals, journal_records, .. } = report;
        let notes = report.findings.len() - report.damage_count();
        let value = json!({
            "type": "summary",
            "damaged_places": damage_count,
            "notes": notes,
            "partitions": partitions,
            "batches": batches,
            "bytes": bytes,
            "journals": journals,
            "journal_records": journal_records,
            "metadata_end_offset": image.map(MetadataImage::end_offset),
        });
        self.line(&value, || {
            let mut text = format!("partitions: {partitions}, good batches: {batches}, {}", size(*bytes));
            if *journals > 0 {
                text.push_str(&format!(
                    "; journals: {journals}, records to put into logs at a start: {journal_records}"
                ));
            }
            text.push_str(&match damage_count {
                0 => "\nnothing is damaged".to_owned(),
                1 => "\n1 place is damaged".to_owned(),
                count => format!("\n{count} places are damaged"),
            });
            text
        })
    }

    fn line(&self, value: &serde_json::Value, text: impl FnOnce() -> String) -> Result<(), CliError> {
        self.clear();
        let mut out = std::io::stdout().lock();
        if self.json {
            json_line(&mut out, value)?
        } else {
            writeln!(out, "{}", text())?
        }
        Ok(())
    }

    fn clear(&self) {
        if self.drawn.take().is_some() {
            eprint!("\r\u{1b}[K");
        }
    }

    fn draw(&self) {
        let is_fresh = self.drawn.get().is_some_and(|drawn| drawn.elapsed() < REDRAW_EVERY);
        if !self.is_terminal || is_fresh {
            return;
        }
        self.drawn.set(Some(now()));
        let (read, total) = (self.read_bytes.get(), self.total_bytes.get().max(1));
        let share = (read as f64 / total as f64).min(1.0);
        let full = (share * BAR_CELLS as f64) as usize;
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR_CELLS - full));
        eprint!("\r[{bar}] {:3.0} %  {} of {}\u{1b}[K", share * 100.0, size(read), size(total));
    }
}

#[expect(clippy::disallowed_methods, reason = "a command line tool, outside of a shard")]
fn now() -> Instant {
    Instant::now()
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for next in UNITS {
        if value < 1000.0 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    if unit == "bytes" { format!("{bytes} bytes") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        // Rule: three digits and a unit.
        for (bytes, want) in
            [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 KB"), (3_456_789, "3.5 MB"), (1 << 40, "1.1 TB")]
        {
            assert_eq!(size(bytes), want);
        }
    }
}
