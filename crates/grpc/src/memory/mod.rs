//! Accounting of the memory that clients can make a server use. Memory is charged
//! before it is used.
//!
//! A [`MemoryPool`] is a budget of bytes shared by many calls; a [`Share`] is the
//! part that one owner holds. The server gives every network call a
//! [`CallMemory`]: the bytes of its request are charged to it as they arrive,
//! then the size of the decoded request; responses take their memory from the
//! pool that it names. Calls within the process have no `CallMemory` and are not
//! limited.

mod call;
mod pool;
mod pools;

pub use call::{CallMemory, Waiting};
pub use pool::{MemoryPool, Share};
pub use pools::CallPools;
