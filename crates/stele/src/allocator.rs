//! The allocator of the process. The only unsafe code of this crate: one function of
//! mimalloc has no safe wrapper.

use mimalloc::MiMalloc;

/// Faster than the system allocator in a server with many threads, and returns freed
/// memory to the system, by default after a second.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Returns all memory that was freed to the system now.
pub fn return_freed_memory() {
    // SAFETY: The function has no preconditions; it may be called by any thread at any
    // time.
    #[allow(unsafe_code, reason = "mimalloc has no safe wrapper for this function")]
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}
