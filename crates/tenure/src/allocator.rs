//! The allocator, and what makes it give memory back while nothing happens. Owns no memory; refuses to decide how much may be used (budgets do).

use std::hint::black_box;
use std::time::Duration;

/// Gives memory back to the system a second after it is free, from every thread, with glibc and with musl (docs/decisions).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often it is made to look.
const EVERY: Duration = Duration::from_secs(5);

/// The stack of a thread that does nothing, in bytes.
const STACK: usize = 64 << 10;

/// Makes the allocator look, now and then, for what can be given back. By itself it looks when a thread frees a page or ends, so
/// a process that becomes idle after much work would hold what that work took until there is work again. A thread that ends is the one
/// way to make it look at everything that needs no unsafe code. Never ends.
pub(crate) async fn give_back_freed_memory() {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // It has to allocate something, or the allocator doesn't know it. Where no thread can be had, memory is the smaller worry.
        let thread = std::thread::Builder::new()
            .name("give-back".to_owned())
            .stack_size(STACK);
        let _given_back_next_time = thread.spawn(|| drop(black_box(Box::new(0_u8))));
    }
}
