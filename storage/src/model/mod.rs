//! Logs behind journals through everything that can happen to them, held against a plain list of what was appended.
//!
//! The code is the broker's own: logs, journals, checkpoints, recovery, retention, compaction, producers, the settling of
//! directories at a start. Disk, clock and executor are simulated, and all that happens follows from a seed. A run is a row
//! of lives of a broker (`life`) in a world that outlives them (`world`). In a life one step follows the other (`steps`,
//! `faults`), some of them in tasks beside the others, and after each step every log is looked at (`check`) and must be
//! what the list says (`expect`). A life ends by a clean stop, by a kill, or by a power cut in the middle of whatever
//! operation, also of a start.
//!
//! ```text
//! cargo test --release -p walser-storage --lib model::runs_for_long -- --ignored --nocapture
//! ```
//! runs for as long as `WALSER_MODEL_STEPS` and `WALSER_MODEL_SEEDS` say. What fails is told with its seed, and
//! `WALSER_FIRST_SEED=<seed> WALSER_MODEL_SEEDS=1` runs that one again.

mod check;
mod expect;
mod faults;
mod life;
mod steps;
mod world;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use self::life::{Life, boot};
use self::world::World;
use crate::runtime::Runtime;
use crate::runtime::prng::seeds;

/// Of each seed, unless the number of all steps says otherwise.
const STEPS: u64 = 500;

/// What a run has gone through.
#[derive(Clone, Debug, Default)]
struct Tally {
    steps: u64,
    lives: u64,
    clean_stops: u64,
    kills: u64,
    power_cuts: u64,
    failed_starts: u64,
    passes: u64,
    segments_removed: u64,
    /// Times that the ends of logs were noted.
    notes: u64,
    /// Disk operations told to fail, disks that were full, files that were damaged.
    faults: u64,
    /// Logs that served only a part for it.
    condemned: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { steps, lives, clean_stops, kills, power_cuts, failed_starts, .. } = self;
        let Self { passes, segments_removed, notes, faults, condemned, .. } = self;
        write!(
            f,
            "{steps} steps in {lives} lives, {clean_stops} stopped cleanly; {kills} ended by a kill, {power_cuts} by a power cut; \
             {passes} passes of compaction, {segments_removed} segments removed, {notes} times ends noted; \
             {faults} faults, {failed_starts} starts failed, {condemned} logs served only a part"
        )
    }
}

/// How a life ended, if the power did not go.
enum Ending {
    Stopped,
    Killed,
    PowerCut,
}

async fn live(world: Rc<World>, steps_max: u64) -> Ending {
    if world.is_full.get() {
        let wait = Duration::from_millis(world.below(5_000));
        let (world, runtime) = (Rc::clone(&world), world.runtime.clone());
        world.runtime.clone().spawn(async move {
            runtime.sleep(wait).await;
            world.make_room();
        });
    }
    let life = match boot(&world).await {
        Ok(life) => life,
        Err(failure) => {
            assert!(world.has_failed() || world.may_refuse(), "no start: {failure}");
            world.tally.borrow_mut().failed_starts += 1;
            return Ending::Killed;
        }
    };
    life.observe();
    for _ in 0..steps_max {
        world.tally.borrow_mut().steps += 1;
        life.step().await;
    }
    end(&world, life).await
}

async fn end(world: &World, life: Life) -> Ending {
    match world.below(5) {
        0 => Ending::Killed,
        1 => Ending::PowerCut,
        _ => {
            if life.stop().await {
                world.tally.borrow_mut().clean_stops += 1;
            }
            Ending::Stopped
        }
    }
}

/// Lives until so many steps are done, and one more without any.
fn run(world: &Rc<World>, steps: u64) {
    let tally = &world.tally;
    let done = || tally.borrow().steps;
    let end = done() + steps;
    loop {
        let left = end.saturating_sub(done());
        if left == 0 {
            world.make_room();
        }
        let steps_max = world.between(1, 120).min(left);
        if left > 0 {
            if world.chance(1, 2) {
                let cut_at = if world.chance(1, 4) { world.between(1, 60) } else { world.between(1, 1500) };
                world.disk().cut_power_at(cut_at);
            }
            world.plan_faults();
        }
        tally.borrow_mut().lives += 1;
        world.note(|| format!("a life of {steps_max} steps"));
        let disk = world.disk();
        let outcome = world.runtime.block_on_unless(live(Rc::clone(world), steps_max), || disk.has_lost_power());
        let is_kill = match outcome {
            Ok(Ending::Killed) => true,
            Ok(Ending::Stopped) => world.chance(1, 2),
            Ok(Ending::PowerCut) => false,
            Err(stopped) => {
                assert!(disk.has_lost_power(), "{stopped}");
                world.chance(1, 4)
            }
        };
        let count = |tally: &mut Tally| if is_kill { tally.kills += 1 } else { tally.power_cuts += 1 };
        count(&mut tally.borrow_mut());
        world.end(is_kill);
        if left == 0 {
            return;
        }
        if !world.is_full.get() {
            world.runtime.block_on(world.damage_indexes());
            world.runtime.block_on(world.damage_recovery_points());
        }
        world.damage_journal();
    }
}

/// Runs one seed after the other; the seeds that failed.
fn run_seeds(seeds: std::ops::Range<u64>, steps: u64) -> Vec<u64> {
    let tally = Rc::new(RefCell::new(Tally::default()));
    let mut failed = Vec::new();
    for seed in seeds.clone() {
        let begun = tally.borrow().steps;
        let world = World::new(seed, Rc::clone(&tally));
        if catch_unwind(AssertUnwindSafe(|| run(&world, steps))).is_err() {
            // Its tasks are dropped while nobody borrows what they have.
            world.history.borrow().iter().for_each(|what| println!("{what}"));
            let total = tally.borrow().steps;
            println!("seed {seed} fails at its step {} of {steps}, after {total} steps of all seeds", total - begun);
            println!("again: WALSER_FIRST_SEED={seed} WALSER_MODEL_SEEDS=1 WALSER_MODEL_STEPS={steps}");
            failed.push(seed);
            if failed.len() == 10 {
                break;
            }
        }
    }
    println!("{} seeds from {}, {} failed: {}", seeds.end - seeds.start, seeds.start, failed.len(), tally.borrow());
    failed
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn logs_are_lists_whatever_happens() {
    // Rule: whatever is appended, read, rolled, removed, compacted, deleted, stopped, killed, cut off from power, and
    // whichever disk operation fails: what was acknowledged is there, byte for byte, and nothing else is.
    assert_eq!(run_seeds(seeds(40), 200), [0; 0]);
}

#[test]
#[ignore = "takes as long as it is told to"]
fn runs_for_long() {
    // Rule: the same, for as many steps as asked.
    let seed_count = number_of("WALSER_MODEL_SEEDS").unwrap_or(2_000);
    let steps = number_of("WALSER_MODEL_STEPS").unwrap_or(seed_count * STEPS);
    assert_eq!(run_seeds(seeds(seed_count), steps.div_ceil(seed_count)), [0; 0]);
}
