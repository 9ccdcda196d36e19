//! Event counts of randomised tests. Without them, a change of the probabilities could
//! silently leave a guarantee untested.

use std::fmt::Debug;

/// The sum of what the runs of several seeds did.
pub trait EventCounts: Debug + Default {
    fn add(&mut self, other: &Self);

    /// Returns each count with its description.
    fn counts(&self) -> Vec<(&'static str, u64)>;
}

/// Defines `Tally`, a struct of event counts with their descriptions.
macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident: $description:literal,)*) => {
        /// Event counts, to make sure that the test covers what it should.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Tally {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $crate::support::tally::EventCounts for Tally {
            fn add(&mut self, other: &Tally) {
                $(self.$name += other.$name;)*
            }

            fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$(($description, self.$name),)*]
            }
        }
    };
}

/// Prints how to repeat a seed when it fails.
struct SeedHint(u64);

impl Drop for SeedHint {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run again with STELE_SEED={}", self.0);
        }
    }
}

/// Runs the seed in `STELE_SEED`, or the seeds in `kept` and those below `seeds`
/// (twenty times as many with `STELE_LONG`), and asserts that each event happened at
/// least `count_min` times.
pub fn run_seeds<T: EventCounts>(kept: &[u64], seeds: u64, count_min: u64, run: impl Fn(u64) -> T) {
    let run = |seed| {
        let _hint = SeedHint(seed);
        run(seed)
    };
    if let Ok(seed) = std::env::var("STELE_SEED") {
        println!("{:?}", run(seed.parse().expect("STELE_SEED is a number")));
        return;
    }
    let factor = if std::env::var_os("STELE_LONG").is_some() { 20 } else { 1 };
    let mut sum = T::default();
    for seed in kept.iter().copied().chain(0..seeds * factor) {
        sum.add(&run(seed));
    }
    println!("{sum:?}");
    for (event, count) in sum.counts() {
        assert!(count >= count_min, "too few {event} to prove anything: {sum:?}");
    }
}
