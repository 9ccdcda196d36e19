//! Writes metrics as text.

use std::fmt::{Display, Write};

/// The content type of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A page being written. Writing to it cannot fail.
#[derive(Default)]
pub struct Text(String);

impl Text {
    pub fn with_capacity(bytes: usize) -> Text {
        Text(String::with_capacity(bytes))
    }

    pub fn into_string(self) -> String {
        self.0
    }

    /// Appends metrics that have been written elsewhere.
    pub fn append(&mut self, metrics: &str) {
        self.0.push_str(metrics);
    }

    /// Begins a metric; its samples follow. An empty help text is omitted.
    pub fn head(&mut self, name: &str, kind: Kind, help: &str) {
        if !help.is_empty() {
            let _ = writeln!(self.0, "# HELP {name} {help}");
        }
        let _ = writeln!(self.0, "# TYPE {name} {}", kind.name());
    }

    /// Writes one sample, with its labels in the given order.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            self.label(at == 0, label, value);
        }
        self.value(!labels.is_empty(), value);
    }

    /// Writes a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, Kind::Counter, help);
        self.sample(name, &[], value);
    }

    /// Writes a gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, Kind::Gauge, help);
        self.sample(name, &[], value);
    }

    /// Writes the samples of a histogram: for each upper bound, in ascending order,
    /// the number of observations up to it, then the sum and the number of all.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: impl IntoIterator<Item = (f64, u64)>,
        sum: f64,
        count: u64,
    ) {
        for (bound, below) in bounds {
            self.bucket(name, labels, &bound.to_string(), below);
        }
        self.bucket(name, labels, "+Inf", count);
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, count);
    }

    fn bucket(&mut self, name: &str, labels: &[(&str, &str)], bound: &str, below: u64) {
        self.0.push_str(name);
        self.0.push_str("_bucket");
        for (at, (label, value)) in labels.iter().enumerate() {
            self.label(at == 0, label, value);
        }
        self.label(labels.is_empty(), "le", bound);
        self.value(true, below);
    }

    fn label(&mut self, first: bool, label: &str, value: &str) {
        let _ = write!(self.0, "{}{label}=\"", if first { '{' } else { ',' });
        for ch in value.chars() {
            match ch {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                ch => self.0.push(ch),
            }
        }
        self.0.push('"');
    }

    fn value(&mut self, labelled: bool, value: impl Display) {
        let _ = writeln!(self.0, "{} {value}", if labelled { "}" } else { "" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_its_type_and_its_samples() {
        let mut text = Text::default();
        text.gauge("a", "", -1);
        text.head("b", Kind::Counter, "Things.");
        text.sample("b", &[("x", "1"), ("y", "2")], 2);
        let expected = "# TYPE a gauge\na -1\n\
                        # HELP b Things.\n# TYPE b counter\nb{x=\"1\",y=\"2\"} 2\n";
        assert_eq!(text.into_string(), expected);
    }

    #[test]
    fn label_values_are_escaped() {
        let mut text = Text::default();
        text.sample("a", &[("b", "c\"\\\nd"), ("e", "f")], 1);
        assert_eq!(text.into_string(), "a{b=\"c\\\"\\\\\\nd\",e=\"f\"} 1\n");
    }

    #[test]
    fn a_histogram_ends_with_all_its_sum_and_its_count() {
        let mut text = Text::default();
        text.head("h", Kind::Histogram, "");
        text.histogram("h", &[], [(0.001, 0), (0.004, 1)], 60.003, 2);
        let plain = "# TYPE h histogram\nh_bucket{le=\"0.001\"} 0\nh_bucket{le=\"0.004\"} 1\n\
                     h_bucket{le=\"+Inf\"} 2\nh_sum 60.003\nh_count 2\n";
        assert_eq!(text.into_string(), plain);
        let mut text = Text::default();
        text.histogram("h", &[("m", "x")], [(0.5, 1)], 1.0, 1);
        let labelled = "h_bucket{m=\"x\",le=\"0.5\"} 1\nh_bucket{m=\"x\",le=\"+Inf\"} 1\n\
                        h_sum{m=\"x\"} 1\nh_count{m=\"x\"} 1\n";
        assert_eq!(text.into_string(), labelled);
    }
}
