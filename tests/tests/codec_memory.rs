//! What decoding takes in memory, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use walser_codegen::{MEMORY_FACTOR_MAX, Message, Sampler, Style};
use walser_tests::codec::{Catalog, Codec};

struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged; the counters are plain cells without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(|live| live + layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(|live| live.saturating_sub(layout.size()));
        // SAFETY: `pointer` came from `alloc` above, that is from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(change: impl Fn(usize) -> usize) {
    LIVE.with(|live| {
        live.set(change(live.get()));
        PEAK.with(|peak| peak.set(peak.get().max(live.get())));
    });
}

/// Most bytes that were allocated at one time during `work`, above what was there before.
fn peak_of(work: impl FnOnce() -> bool) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    work();
    PEAK.get() - before
}

struct Check<'c> {
    message: &'c Message,
    codec: Codec,
    version: i16,
    /// Highest ratio seen, in hundredths.
    worst: usize,
}

impl Check<'_> {
    fn decode(&mut self, bytes: &[u8]) {
        let peak = peak_of(|| (self.codec.decode)(bytes, self.version));
        let limit = MEMORY_FACTOR_MAX * bytes.len();
        assert!(
            peak <= limit,
            "{} version {}: {peak} bytes for a frame of {}: {:02x?}",
            self.message.name,
            self.version,
            bytes.len(),
            &bytes[..bytes.len().min(64)]
        );
        self.worst = self.worst.max(peak * 100 / bytes.len().max(1));
    }

    /// Frames that claim as much as they can: minimal elements in great number, counts that lie, one byte repeated.
    fn run(&mut self) {
        for (count, depth) in [(1, 9), (4, 9), (1000, 1), (30, 2)] {
            let bytes = Sampler::new(1, Style::Minimal { count, depth }).message(self.message, self.version);
            self.decode(&bytes);
            self.lie(&bytes);
        }
        for seed in 0..2 {
            let bytes = Sampler::new(seed, Style::Random).message(self.message, self.version);
            self.decode(&bytes);
            self.lie(&bytes);
        }
        for byte in [0, 1, 2, 3, 4, 5, 8, 16, 0x40, 0x7f, 0x80, 0xff] {
            self.decode(&[byte; 16]);
            self.decode(&[byte; 1000]);
        }
    }

    /// The same bytes with one place after another overwritten by large counts, followed by room for what they claim.
    fn lie(&mut self, bytes: &[u8]) {
        if bytes.len() > 2000 {
            return;
        }
        let mut frame = bytes.to_vec();
        frame.extend_from_slice(&[1; 500]);
        for place in 0..bytes.len().min(60) {
            for claim in [&[0xff, 0x03][..], &[0, 0, 1, 0], &[0x7f, 0xff, 0xff, 0xff], &[200, 1]] {
                let mut kept = [0; 4];
                let kept = &mut kept[..claim.len()];
                kept.copy_from_slice(&frame[place..place + claim.len()]);
                frame[place..place + claim.len()].copy_from_slice(claim);
                self.decode(&frame);
                frame[place..place + claim.len()].copy_from_slice(kept);
            }
        }
    }
}

#[test]
fn decoding_takes_at_most_32_times_the_frame() {
    // Rule: whatever the bytes claim, what is allocated while decoding stays within 32 times the frame.
    let catalog = Catalog::load();
    let mut worst = (0, String::new());
    for message in catalog.messages() {
        for version in message.versions.first..=message.versions.last {
            let codec = catalog.codec(&message.name).expect("known");
            let mut check = Check { message, codec, version, worst: 0 };
            check.run();
            worst = worst.max((check.worst, format!("{} version {version}", message.name)));
        }
    }
    println!("highest: {}.{:02} times the frame, {}", worst.0 / 100, worst.0 % 100, worst.1);
    assert!(worst.0 > 500, "the frames claim too little to say anything: {worst:?}");
}
