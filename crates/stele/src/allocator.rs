//! The allocator of the process. The only unsafe code of this crate: one option of
//! mimalloc has no safe setter.

use mimalloc::MiMalloc;

/// Faster than the system allocator in a server with many threads, and returns freed
/// memory to the system.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// `mi_option_purge_delay`, for which the bindings have no name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// How long freed memory is kept for reuse, in milliseconds. The default, a second, lets
/// the process exceed its memory limit by what all requests of that second have freed;
/// returning everything at once makes a bulk load take half as much CPU time again.
const PURGE_DELAY_MS: std::ffi::c_long = 10;

/// Makes the allocator return freed memory soon, unless MIMALLOC_PURGE_DELAY says
/// otherwise. Must be called before the process starts other threads.
pub fn set_purge_delay() {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
        return;
    }
    // SAFETY: The option exists, as the test below checks, and no other thread runs yet
    // that could read it while it is written.
    #[allow(unsafe_code, reason = "mimalloc has no safe setter for its options")]
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, PURGE_DELAY_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only option with this default, so the number above is the right one.
    #[test]
    fn the_option_is_the_purge_delay() {
        // SAFETY: Only reads an option that no thread writes.
        #[allow(unsafe_code, reason = "mimalloc has no safe getter for its options")]
        let default = unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(default, 1000);
    }
}
