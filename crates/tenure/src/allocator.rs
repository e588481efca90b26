//! The allocator, and a task that makes it return memory while the process is idle. Budgets bound the memory.

use std::hint::black_box;
use std::time::Duration;

/// Returns memory to the system a second after it is free, from every thread, with glibc and with musl (docs/decisions).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The interval at which [`give_back_freed_memory`] runs.
const EVERY: Duration = Duration::from_secs(5);

/// The stack of an idle thread, in bytes.
const STACK: usize = 64 << 10;

/// Makes the allocator search for returnable memory at intervals. By itself it searches only when a thread frees a page or ends, so a process that becomes idle after
/// much work would keep its memory until new work. Without unsafe code, only the end of a thread makes it search everything. Never ends.
pub(crate) async fn give_back_freed_memory() {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // The thread has to allocate, or the allocator doesn't know it. A failed start of the thread is ignored.
        let thread = std::thread::Builder::new()
            .name("give-back".to_owned())
            .stack_size(STACK);
        let _given_back_next_time = thread.spawn(|| drop(black_box(Box::new(0_u8))));
    }
}
