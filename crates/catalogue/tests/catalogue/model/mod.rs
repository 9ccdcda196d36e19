//! Compares the service with a model: random requests with all flags, valid, stale and
//! forged cookies, flushes and compactions, and power cuts inside any step.
//! Acknowledged writes must survive, and each request is atomic.

mod chance;
mod life;
mod memory;
#[path = "../../../../engine/tests/support/power.rs"]
mod power;

#[test]
fn requests_answer_like_the_model_through_flushes_and_power_cuts() {
    let mut tally = life::Tally::default();
    for seed in 0..60 {
        life::Life::new(seed).live(120, &mut tally);
    }
    assert!(tally.crashes > 100 && tally.lost > 5 && tally.places > 10, "{tally:?}");
}
