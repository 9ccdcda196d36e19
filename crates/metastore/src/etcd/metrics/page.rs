//! The Prometheus text format.

use std::fmt::{Display, Write};

use crate::histogram::Histogram;

#[derive(Default)]
pub struct Page(pub String);

impl Page {
    pub fn gauge(&mut self, name: &str, value: i64) {
        self.labelled(name, "gauge", &[("", value)]);
    }

    pub fn counter(&mut self, name: &str, value: i64) {
        self.labelled(name, "counter", &[("", value)]);
    }

    /// Writes the values of one metric, each with its formatted labels.
    pub fn labelled(&mut self, name: &str, kind: &str, values: &[(impl AsRef<str>, i64)]) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = match labels.as_ref() {
                "" => writeln!(self.0, "{name} {value}"),
                labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
            };
        }
    }

    pub fn histogram(&mut self, name: &str, times: &Histogram) {
        let _ = writeln!(self.0, "# TYPE {name} histogram");
        for (bound, below) in times.bounds() {
            self.bucket(name, bound, below);
        }
        let count = times.count();
        self.bucket(name, "+Inf", count);
        let _ = writeln!(self.0, "{name}_sum {}\n{name}_count {count}", times.seconds());
    }

    fn bucket(&mut self, name: &str, bound: impl Display, below: u64) {
        let _ = writeln!(self.0, "{name}_bucket{{le=\"{bound}\"}} {below}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_number_has_its_type_and_its_labels() {
        let mut page = Page::default();
        page.gauge("a", -1);
        page.labelled("b", "counter", &[("x=\"1\"", 2)]);
        assert_eq!(page.0, "# TYPE a gauge\na -1\n# TYPE b counter\nb{x=\"1\"} 2\n");
    }

    #[test]
    fn a_histogram_ends_with_all_its_sum_and_its_count() {
        let times = Histogram::default();
        times.add(Duration::from_millis(3));
        times.add(Duration::from_secs(60));
        let mut page = Page::default();
        page.histogram("h", &times);
        assert!(page.0.starts_with("# TYPE h histogram\nh_bucket{le=\"0.001\"} 0\n"), "{}", page.0);
        assert!(page.0.contains("\nh_bucket{le=\"0.004\"} 1\n"), "{}", page.0);
        assert!(page.0.ends_with("\nh_bucket{le=\"+Inf\"} 2\nh_sum 60.003\nh_count 2\n"));
    }
}
