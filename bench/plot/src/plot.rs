//! A plot and its lines.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// One line of a plot.
pub struct Line {
    pub label: String,
    pub colour: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// Lines with a common x axis.
pub struct Plot {
    pub title: String,
    pub x_label: String,
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 50.0;
const STEPS: u32 = 5;

impl Plot {
    /// Writes the plot to a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let svg = self.svg()?;
        std::fs::write(path, svg).with_context(|| format!("writing {}", path.display()))
    }

    fn svg(&self) -> Result<String> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x_max = round_up(points().map(|point| point.0).fold(0.0, f64::max));
        let y_max = round_up(points().map(|point| point.1).fold(0.0, f64::max));
        let x_at = |x: f64| LEFT + x / x_max * (WIDTH - LEFT - RIGHT);
        let y_at = |y: f64| HEIGHT - BOTTOM - y / y_max * (HEIGHT - TOP - BOTTOM);
        let mut svg = String::new();
        writeln!(
            svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
        )?;
        writeln!(svg, r#"<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"#)?;
        writeln!(svg, r#"<text x="{LEFT}" y="22" font-size="15">{}</text>"#, self.title)?;
        for step in 0..=STEPS {
            let share = f64::from(step) / f64::from(STEPS);
            let (x, y) = (x_at(share * x_max), y_at(share * y_max));
            let (end, foot) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
            writeln!(svg, r##"<path d="M{LEFT} {y:.1}H{end}" stroke="#ddd"/>"##)?;
            let label = label(share * y_max);
            let left = LEFT - 8.0;
            writeln!(
                svg,
                r#"<text x="{left}" y="{:.1}" text-anchor="end">{label}</text>"#,
                y + 4.0
            )?;
            let label = self::label(share * x_max);
            let below = foot + 18.0;
            writeln!(svg, r#"<text x="{x:.1}" y="{below}" text-anchor="middle">{label}</text>"#)?;
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        let foot = HEIGHT - 10.0;
        writeln!(
            svg,
            r#"<text x="{middle}" y="{foot}" text-anchor="middle">{}</text>"#,
            self.x_label
        )?;
        for (number, line) in self.lines.iter().enumerate() {
            let Line { label, colour, points } = line;
            let x = LEFT + 180.0 * number as f64;
            writeln!(svg, r#"<rect x="{x}" y="36" width="14" height="4" fill="{colour}"/>"#)?;
            writeln!(svg, r#"<text x="{}" y="42">{label}</text>"#, x + 20.0)?;
            let path: Vec<String> =
                points.iter().map(|(x, y)| format!("{:.1},{:.1}", x_at(*x), y_at(*y))).collect();
            let path = path.join(" ");
            writeln!(
                svg,
                r#"<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>"#
            )?;
        }
        svg.push_str("</svg>\n");
        Ok(svg)
    }
}

/// Rounds up to the next number of the form 1, 2 or 5 times a power of ten.
fn round_up(number: f64) -> f64 {
    let power = 10f64.powf(number.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= number).unwrap_or(10.0 * power)
}

fn label(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axes_end_at_round_numbers() {
        assert_eq!([0.9, 1.0, 17.0, 201.0, 777.0].map(round_up), [1.0, 1.0, 20.0, 500.0, 1000.0]);
    }

    #[test]
    fn every_point_lies_inside_the_frame() {
        let points = vec![(0.0, 0.0), (5.0, 10.0), (9.0, 3.0)];
        let line = Line { label: "MB/s".into(), colour: "red", points };
        let plot = Plot { title: "t".into(), x_label: "s".into(), lines: vec![line] };
        let svg = plot.svg().unwrap();
        assert!(svg.contains(r#"points="70.0,370.0 455.0,60.0 763.0,277.0""#), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
}
