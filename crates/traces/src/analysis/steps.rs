//! Finds lasting changes of a number: splits a series into runs whose means differ by
//! more than their noise.

use serde::Serialize;

use crate::tile::CommitIndex;

/// The minimum number of points on each side of a step.
const RUN_MIN: usize = 3;
/// The maximum number of steps in one series.
const STEPS_MAX: usize = 64;
/// The minimum noise as a fraction of the level, because clocks have a finite
/// resolution.
const NOISE_FLOOR: f64 = 1e-3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOptions {
    /// The minimum distance of the means in standard errors.
    pub score_min: f64,
    /// The minimum change as a fraction of the mean before.
    pub change_min: f64,
}

impl Default for StepOptions {
    fn default() -> StepOptions {
        StepOptions { score_min: 7.0, change_min: 0.02 }
    }
}

/// A step between two consecutive results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The last commit before the step.
    pub good: CommitIndex,
    pub bad: CommitIndex,
    /// The mean of the run before the step.
    pub before: f64,
    pub after: f64,
    /// The distance of the means in standard errors.
    pub score: f64,
}

/// Returns all steps of a series in order.
pub fn steps(points: &[(CommitIndex, f64)], options: StepOptions) -> Vec<Step> {
    let sums = Sums::new(points);
    let mut cuts = vec![0, points.len()];
    let mut open = vec![(0, points.len())];
    while let Some((start, end)) = open.pop() {
        if cuts.len() - 2 >= STEPS_MAX {
            break;
        }
        let Some(cut) = sums.best_cut(start, end, options) else { continue };
        cuts.push(cut);
        open.extend([(start, cut), (cut, end)]);
    }
    cuts.sort_unstable();
    // Computed from the runs after all splits.
    let step = |run: &[usize]| {
        let [start, cut, end] = run else { return None };
        let compared = sums.compare(*start, *cut, *end);
        let far = compared.is_far(options);
        far.then(|| Step {
            good: points[cut - 1].0,
            bad: points[*cut].0,
            before: compared.before,
            after: compared.after,
            score: compared.score,
        })
    };
    cuts.windows(3).filter_map(step).collect()
}

/// Running sums, from which any mean and variance is a subtraction. They are relative
/// to the first value, so that small noise at large levels is not lost to rounding.
struct Sums {
    level: f64,
    values: Vec<f64>,
    squares: Vec<f64>,
}

struct Compared {
    before: f64,
    after: f64,
    score: f64,
}

impl Compared {
    fn is_far(&self, options: StepOptions) -> bool {
        let change = (self.after - self.before).abs();
        self.score >= options.score_min && change >= options.change_min * self.before.abs()
    }
}

impl Sums {
    fn new(points: &[(CommitIndex, f64)]) -> Sums {
        let level = points.first().map_or(0.0, |point| point.1);
        let (mut values, mut squares) = (vec![0.0], vec![0.0]);
        let (mut sum, mut square) = (0.0, 0.0);
        for (_, value) in points {
            sum += value - level;
            square += (value - level).powi(2);
            values.push(sum);
            squares.push(square);
        }
        Sums { level, values, squares }
    }

    fn mean(&self, start: usize, end: usize) -> f64 {
        (self.values[end] - self.values[start]) / (end - start) as f64
    }

    /// Returns the sum of squared distances from the mean.
    fn scatter(&self, start: usize, end: usize) -> f64 {
        let mean = self.mean(start, end);
        let squares = self.squares[end] - self.squares[start];
        (squares - mean * mean * (end - start) as f64).max(0.0)
    }

    fn compare(&self, start: usize, cut: usize, end: usize) -> Compared {
        let (left, right) = ((cut - start) as f64, (end - cut) as f64);
        let (before, after) = (self.mean(start, cut), self.mean(cut, end));
        let scatter = self.scatter(start, cut) + self.scatter(cut, end);
        let noise = (scatter / (left + right - 2.0).max(1.0)).sqrt();
        let floor = NOISE_FLOOR * (before + self.level).abs().max((after + self.level).abs());
        let error = noise.max(floor) * (1.0 / left + 1.0 / right).sqrt();
        let distance = (after - before).abs();
        let score = if distance == 0.0 { 0.0 } else { distance / error.max(f64::MIN_POSITIVE) };
        // JSON has no representation of infinity.
        let score = score.min(1e9);
        Compared { before: before + self.level, after: after + self.level, score }
    }

    fn best_cut(&self, start: usize, end: usize, options: StepOptions) -> Option<usize> {
        let cuts = start + RUN_MIN..(end + 1).saturating_sub(RUN_MIN);
        let scored = cuts.map(|cut| (cut, self.compare(start, cut, end)));
        let best = scored.max_by(|one, other| one.1.score.total_cmp(&other.1.score))?;
        best.1.is_far(options).then_some(best.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn series(values: impl IntoIterator<Item = f64>) -> Vec<(CommitIndex, f64)> {
        (0..).map(CommitIndex).zip(values).collect()
    }

    /// Returns deterministic noise around a level.
    fn noisy(level: f64, count: usize) -> impl Iterator<Item = f64> {
        (0..count).map(move |at| level * (1.0 + 0.01 * ((at * 7 % 11) as f64 / 5.0 - 1.0)))
    }

    #[test]
    fn steps_up_and_down_are_found_where_they_are() {
        let values = noisy(100.0, 30).chain(noisy(120.0, 40)).chain(noisy(90.0, 20));
        let found = steps(&series(values), StepOptions::default());
        let places: Vec<_> = found.iter().map(|step| (step.good.0, step.bad.0)).collect();
        assert_eq!(places, [(29, 30), (69, 70)]);
        assert!((found[0].before - 100.0).abs() < 1.0 && (found[0].after - 120.0).abs() < 1.0);
    }

    #[test]
    fn noise_single_spikes_and_small_drifts_are_not_steps() {
        let mut spiky: Vec<_> = noisy(100.0, 60).collect();
        spiky[20] = 300.0;
        for values in [noisy(100.0, 60).collect(), spiky, vec![1.0; 50], vec![0.0; 9], vec![]] {
            assert_eq!(steps(&series(values.clone()), StepOptions::default()), [], "{values:?}");
        }
        let slight = noisy(100.0, 30).chain(noisy(101.0, 30));
        assert_eq!(steps(&series(slight), StepOptions::default()), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_numbers_are_accepted(values in prop::collection::vec(-1e300f64..1e300, 0..40)) {
            for step in steps(&series(values), StepOptions::default()) {
                prop_assert!(step.score.is_finite());
            }
        }
    }
}
