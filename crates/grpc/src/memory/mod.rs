//! Accounting of the memory that clients can make a server use. Memory is charged
//! before it is used.
//!
//! A [`MemoryPool`] is a budget of bytes shared by many calls; a [`Share`] is the
//! part that one owner holds. [`CallPools`] are the pools of a server. It gives
//! every network call a [`CallMemory`]: the bytes of its request are charged to it
//! as they arrive, then the size of the decoded request (`account`); responses
//! take their memory from the pool that it names. Calls within the process have no
//! `CallMemory` and are not limited.

mod account;
mod call;
mod pool;
mod pools;

pub use call::CallMemory;
pub use pool::{MemoryPool, Share};
pub use pools::CallPools;
