//! Calls whose type is erased.

use std::pin::Pin;

/// A call that starts when it is awaited. The type is erased, so that the code of a call is
/// compiled in the crate that defines it, once, and not in every crate that awaits one.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
