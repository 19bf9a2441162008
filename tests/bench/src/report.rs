//! Figures as a table, and as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::measure::middle;

/// One figure of one workload at one load, as often as it was taken.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    workload: &'static str,
    /// Such as `16`; empty where the workload has one load.
    load: String,
    name: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

/// All figures so far, in the order in which they were first taken.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    figures: Vec<Figure>,
}

impl Report {
    /// Adds one value of a figure.
    pub(crate) fn add(
        &mut self,
        workload: &'static str,
        load: &str,
        name: &'static str,
        unit: &'static str,
        value: f64,
    ) {
        let same =
            |figure: &&mut Figure| (figure.workload, &*figure.load, figure.name) == (workload, load, name);
        match self.figures.iter_mut().find(same) {
            Some(figure) => figure.values.push(value),
            None => {
                let load = load.to_owned();
                self.figures.push(Figure { workload, load, name, unit, values: vec![value] });
            }
        }
    }

    /// A workload as a Markdown table: a line for each figure, a column for each load.
    pub(crate) fn table(&self, workload: &str) -> String {
        let of: Vec<&Figure> = self.figures.iter().filter(|figure| figure.workload == workload).collect();
        let mut loads: Vec<&str> = Vec::new();
        let mut names: Vec<(&str, &str)> = Vec::new();
        let mut cells = BTreeMap::new();
        for figure in of {
            if !loads.contains(&&*figure.load) {
                loads.push(&figure.load);
            }
            if !names.contains(&(figure.name, figure.unit)) {
                names.push((figure.name, figure.unit));
            }
            cells.insert((figure.name, &*figure.load), cell(&figure.values));
        }
        let mut table = format!("| {workload} |");
        for load in &loads {
            table += &format!(" {load} |");
        }
        table += &format!("\n|---|{}\n", "---:|".repeat(loads.len()));
        for (name, unit) in names {
            table += &format!("| {name}{}{unit} |", if unit.is_empty() { "" } else { ", " });
            for load in &loads {
                table += &format!(" {} |", cells.get(&(name, *load)).map_or("", String::as_str));
            }
            table += "\n";
        }
        table
    }
}

/// The middle, and from where to where the values went.
fn cell(values: &[f64]) -> String {
    let (low, high) =
        values.iter().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    let middle = middle(values.iter().copied());
    if values.len() == 1 || digits(low) == digits(high) {
        digits(middle)
    } else {
        format!("{} ({} to {})", digits(middle), digits(low), digits(high))
    }
}

/// About three digits that mean something.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_middle_and_the_spread() {
        let mut report = Report::default();
        for (load, value) in [("1", 3.0), ("1", 1.0), ("1", 2.0), ("16", 250.4)] {
            report.add("w1", load, "CPU per run", "ms", value);
        }
        report.add("other", "", "runs", "", 7.0);
        assert_eq!(
            report.table("w1"),
            "| w1 | 1 | 16 |\n|---|---:|---:|\n| CPU per run, ms | 2.00 (1.00 to 3.00) | 250 |\n"
        );
    }
}
